"""The kinds of queries that intents speak of: one for each operator, with the dimensions along which it varies.

Every kind takes and gives streams of the columns `k STRING, i LONG, x DOUBLE`, so that the output of any can be the
input of any other. Times are in ticks; windows have 1 to 12 of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import IntentError
from headrace.testing.intents.composed import COMPOSED
from headrace.testing.intents.grouped import GROUPED
from headrace.testing.intents.join import MEETINGS
from headrace.testing.intents.kind import Kind, Options
from headrace.testing.intents.pattern import PATTERNS
from headrace.testing.intents.per_window import PER_WINDOW
from headrace.testing.intents.recurse import LOOPS
from headrace.testing.intents.span import SPANS

__all__ = ["KINDS", "OPERATORS", "Kind", "Options"]


def _not_yet(_names: tuple[str, ...], _options: Options) -> str:
    raise IntentError(
        "'any' is no query yet",
        given="any",
        allowed=", ".join(OPERATORS),
        instead="concrete(intent, seed) chooses some",
    )


#: The kinds that are queries, by name.
OPERATORS: Mapping[str, Kind] = {kind.name: kind for kind in (*SPANS, *MEETINGS, *PER_WINDOW, *GROUPED)}

_ANY = {"operator": tuple(OPERATORS), "below": tuple(OPERATORS), "depth": ("2", "3", "4")}
#: All kinds: the same; `any`, which stands for so many of them, each over the one before, and names the last two; the
#: compositions that are written down; patterns and loops, which came later: `any` goes on to draw as it did.
KINDS: Mapping[str, Kind] = {
    **OPERATORS,
    "any": Kind("any", 1, _ANY, _not_yet),
    **{kind.name: kind for kind in (*COMPOSED, *PATTERNS, *LOOPS)},
}
