"""What an output stems from: for every operator, the events of its inputs that caused one of its output events.

An event here stands for all equal events of a history. Its causes are the input events that it is made of: a filter's
event, the pair of a join, the members of a window. Where a lifetime or a place depends on other events, these are
causes too: the ends that bound a snapshot, the tuples that give another its number, the partner that ends the unmatched
part of an event. So causes are *enough*: over them alone the operator gives the event again. `stems` checks that with
the twin and, rather than give a wrong answer, raises an error that names the operator. Not every cause is *needed*: of
two equal minima, one may go. Of a module only its window is known: its causes are all events of the window.

`LINEAGE` has the declaration of every operator, as `TWINS` has the twins. Each finds candidates by columns, so that
large histories are searched quickly, and decides with functions of the twin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.errors import TraceError
from headrace.operators.reference.lineage.events import (
    by_event,
    of_clip,
    of_coalesce,
    of_edges,
    of_join,
    of_union,
    same_event,
)
from headrace.operators.reference.lineage.histories import Cause, Histories, Stem, rows_of_changes
from headrace.operators.reference.lineage.loops import of_loop
from headrace.operators.reference.lineage.windows import of_frames, of_matches, of_prefix, of_windows
from headrace.operators.reference.plan import TWINS
from headrace.operators.reference.rows import Row, row_identity
from headrace.operators.reference.span import SPAN
from headrace.plan.nodes import (
    Aggregate,
    Clip,
    Coalesce,
    Contents,
    EdgeLifetimes,
    Final,
    Fold,
    GroupApply,
    Join,
    Match,
    Node,
    Operate,
    Output,
    Over,
    Recurse,
    Top,
    Union,
)

__all__ = ["LINEAGE", "Cause", "Histories", "Stem", "rows_of_changes", "stems"]

#: The most causes of an event with which the twin checks that they are enough.
_CHECKED = 1_000

#: What an output event of each operator stems from.
LINEAGE: Mapping[type[Node], Callable[[Any, Row, Histories], Stem]] = {
    **dict.fromkeys(SPAN, by_event),
    Aggregate: of_windows,
    Clip: of_clip,
    Coalesce: of_coalesce,
    Contents: of_windows,
    EdgeLifetimes: of_edges,
    Final: same_event,
    Fold: of_prefix,
    GroupApply: same_event,
    Join: of_join,
    Match: of_matches,
    Operate: of_windows,
    Output: same_event,
    Over: of_frames,
    Recurse: lambda node, row, inputs: of_loop(node, row, inputs, stems),
    Top: of_windows,
    Union: of_union,
}


def stems(node: Node, row: Row, inputs: Histories) -> Stem:
    """The causes of an output event, each once; a `TraceError` if they are not known."""
    if type(node) not in LINEAGE:
        raise _unknown(node, "this operator does not say what its output stems from")
    stem = LINEAGE[type(node)](node, row, inputs)
    each = {(cause.position, row_identity(cause.row)): cause for cause in reversed(stem.causes)}
    once = Stem(list(reversed(each.values())), stem.through)
    if not each or (len(each) <= _CHECKED and not _enough(node, row, once, inputs)):
        raise _unknown(node, "the causes of this event of the operator cannot be found")
    return once


def _enough(node: Node, row: Row, stem: Stem, inputs: Histories) -> bool:
    """Whether the twin gives the event again over its causes alone, each as often as it is there."""
    if type(node) not in TWINS:
        return True
    given = []
    for position, now in enumerate(inputs.progress):
        own = [cause.row for cause in stem.causes if cause.position == position]
        given.append((inputs.copies(position, own), now))
    rows, _ = TWINS[type(node)](node, given)
    return row_identity(row) in map(row_identity, rows)


def _unknown(node: Node, message: str) -> TraceError:
    return TraceError(message, given=node.describe(), allowed="operators listed in the documentation of traces")
