"""A plan as a sequence of batch SQL statements over the histories of its inputs (rule 10.1).

Every operator has one translation, found by the class of its node; it reads the relations of its inputs and defines its
own history, in SQL that DuckDB and Spark both understand (`dialect.py` has the differences). An
event is a row: a bag of equal events is so many equal rows. What is computed is the history when everything has come,
so there is nothing of batches, CTIs, corrections or state here, and nothing of the engine's kernels: that is what makes
the answer worth comparing with.

- Stateless operators are a SELECT. Joins pair rows whose lifetimes overlap; what a left or anti join adds is found by
  laying the matched parts of a lifetime in order and taking the gaps.
- Windows are made as data (`windows.py`): a generated grid, neighbouring endpoints, runs of starts. Then they are a
  GROUP BY, a ranking, or a call of a module with the list of a window's events (`functions.py`).
- `group_by(...).apply(f)` is translated as it is lifted: the keys are columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace.errors import HistoryError
from headrace.history import fold, lifetimes, pattern, ranking, recurse
from headrace.history import join as joins
from headrace.history import per_window as windowed
from headrace.history import span as spans
from headrace.history.dialect import Dialect
from headrace.history.functions import udf_function
from headrace.history.inputs import LATE, Late
from headrace.history.json import own_function
from headrace.history.script import HistoryScript
from headrace.history.translation import Translation
from headrace.plan.nodes import (
    Admit,
    Aggregate,
    AlterLifetime,
    CapDuration,
    Chop,
    Clip,
    Coalesce,
    Combine,
    Contents,
    Diverted,
    EdgeLifetimes,
    EventTimes,
    Explode,
    Extend,
    Failures,
    Final,
    Fold,
    GroupApply,
    GroupInput,
    HeldEventTimes,
    Join,
    LoopEnd,
    LoopInput,
    LoopStart,
    Match,
    Merge,
    Node,
    Operate,
    Orphans,
    Output,
    Over,
    Panes,
    PointAtEnd,
    PointAtStart,
    Recurse,
    Select,
    SetDuration,
    Shift,
    Source,
    TableJoin,
    Top,
    Union,
    Where,
    walk,
)

__all__ = ["TRANSLATIONS", "UNTRANSLATED", "translate"]

#: The translation of every node of a query.
TRANSLATIONS: Mapping[type[Node], Callable[[Translation, Any], None]] = {
    Admit: spans.same,
    Aggregate: windowed.aggregate,
    AlterLifetime: lifetimes.alter_lifetime,
    CapDuration: spans.cap_duration,
    Chop: lifetimes.chop,
    Clip: joins.clip,
    Coalesce: spans.coalesce,
    Contents: windowed.contents,
    EdgeLifetimes: spans.edge,
    EventTimes: lifetimes.event_times,
    Explode: spans.explode,
    Extend: spans.extend,
    Final: spans.same,
    Fold: fold.fold,
    GroupApply: spans.same,
    HeldEventTimes: lifetimes.event_times,
    Join: joins.join,
    Match: pattern.match,
    Operate: windowed.operate,
    Output: spans.same,
    Over: windowed.over,
    PointAtEnd: spans.point_at_end,
    PointAtStart: spans.point_at_start,
    Recurse: lambda t, node: recurse.recurse(t, node, _each),
    Select: spans.select,
    SetDuration: spans.set_duration,
    Shift: spans.shift,
    Source: spans.source,
    TableJoin: spans.table_join,
    Top: ranking.top,
    Union: spans.union,
    Where: spans.where,
}

#: Nodes that have no history of their own to translate, and why.
UNTRANSLATED: Mapping[type[Node], str] = {
    Combine: "half of an aggregate, made by the optimizer; a plan is translated as it was written",
    Merge: "half of an aggregate, made by the optimizer; a plan is translated as it was written",
    Panes: "states of modules, made by the optimizer; a plan is translated as it was written",
    Diverted: "what was diverted depends on how rows arrived, which a history does not tell",
    Orphans: "what was diverted depends on how rows arrived, which a history does not tell",
    Failures: "why a window was left out is told by the run that left it out",
    GroupInput: "one group of many; apply is translated for all groups at once",
    LoopStart: "a loop that is cut open to run across buckets; a plan is translated as it was written",
    LoopEnd: "a loop that is cut open to run across buckets; a plan is translated as it was written",
    LoopInput: "an input of a loop, which is translated with all that is inside",
}


def translate(
    node: Node, dialect: Dialect, *, late: Late = "decide", prefix: str = "", orphans: bool = False
) -> HistoryScript:
    """The statements for the history of a plan's output; all names in them begin with the prefix.

    It assumes, and checks, that retractions find their events; with `orphans` they need not.
    """
    if late not in LATE:
        raise HistoryError("unknown policy for rows that came late", given=late, allowed=", ".join(LATE))
    translation = Translation(dialect, late, prefix, orphans=orphans)
    _each(translation, walk(node))
    script = translation.script
    script.result = translation.relations[node.fingerprint]
    script.functions += [own_function(name) for name in sorted(dialect.own)]
    script.functions += [udf_function(name, *udf) for name, udf in dialect.udfs.items()]
    return script


def _each(translation: Translation, nodes: Iterable[Node]) -> None:
    for part in nodes:
        kind = type(part)
        if kind not in TRANSLATIONS:
            raise HistoryError(
                f"{kind.__name__} has no translation to batch SQL: {UNTRANSLATED.get(kind, 'nobody wrote one')}",
                given=part.describe(),
                allowed=", ".join(sorted(known.__name__ for known in TRANSLATIONS)),
                instead="the live query: run()",
            )
        TRANSLATIONS[kind](translation, part)
