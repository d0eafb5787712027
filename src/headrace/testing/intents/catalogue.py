"""The kinds of queries for intents: one for each operator, with the dimensions along which it varies.

Input and output of every kind have the columns `k STRING, i LONG, x DOUBLE`, so that kinds can be composed freely.
Times are in ticks; windows have 1 to 12 of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import IntentError
from headrace.testing.intents.columns import COLUMNS
from headrace.testing.intents.composed import COMPOSED
from headrace.testing.intents.grouped import GROUPED
from headrace.testing.intents.join import MEETINGS
from headrace.testing.intents.kind import Kind, Options
from headrace.testing.intents.lifetimes import LIFETIMES
from headrace.testing.intents.pattern import PATTERNS
from headrace.testing.intents.per_window import PER_WINDOW
from headrace.testing.intents.recurse import LOOPS
from headrace.testing.intents.relations import RELATIONS
from headrace.testing.intents.span import SPANS

__all__ = ["KINDS", "OPERATORS", "Kind", "Options"]


def _no_query(_names: tuple[str, ...], _options: Options) -> str:
    raise IntentError(
        "'any' is not a query yet",
        given="any",
        allowed=", ".join(OPERATORS),
        instead="concrete(intent, seed) chooses some",
    )


#: The kinds that are queries, by name.
OPERATORS: Mapping[str, Kind] = {kind.name: kind for kind in (*SPANS, *MEETINGS, *PER_WINDOW, *GROUPED)}

_ANY = {"operator": tuple(OPERATORS), "below": tuple(OPERATORS), "depth": ("2", "3", "4")}
#: All kinds: the operators; `any`, which stands for a chain of them and names the last two; and compositions, patterns,
#: loops, columns, computed lifetimes and relations, which `any` does not draw, so that its draws stay the same.
KINDS: Mapping[str, Kind] = {
    **OPERATORS,
    "any": Kind("any", 1, _ANY, _no_query),
    **{kind.name: kind for kind in (*COMPOSED, *PATTERNS, *LOOPS, *COLUMNS, *LIFETIMES, *RELATIONS)},
}
