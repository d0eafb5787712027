"""What an output stems from: for every operator, the events of its inputs that caused one of its output events.

An event here stands for all equal events of a history. Its causes are the input events that it is made of: a filter's
event, the pair of a join, the members of a window. Where a lifetime or a place depends on other events, these are
causes too: the ends that bound a snapshot, the tuples that give another its number, the partner that ends the unmatched
part of an event. So causes are *enough*: over them alone the operator gives the event again. `stems` checks that with
the twin and, rather than give a wrong answer, raises an error that names the operator. Not every cause is *needed*: of
two equal minima, one may go. Of a module only its window is known: its causes are all events of the window.

`LINEAGE` has the declaration of every operator, as `TWINS` has the twins. Each finds candidates by columns, so that
large histories are searched quickly, and decides with functions of the twin.

`ABSENCE` is the counterpart for events that are not there: from a description of an output event (`wanted.py`) to the
input events that an operator lost, with the reason, and to descriptions of the input events that would have made it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from headrace.errors import TraceError
from headrace.operators.reference.lineage.absence import (
    lost_by_clip,
    lost_by_coalesce,
    lost_by_edges,
    lost_by_event,
    lost_by_final,
    lost_by_join,
    lost_by_parts,
)
from headrace.operators.reference.lineage.absence_in_windows import (
    lost_in_frames,
    lost_in_loop,
    lost_in_matches,
    lost_in_windows,
)
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
from headrace.operators.reference.lineage.losses import Loss, LostEvents, Question
from headrace.operators.reference.lineage.wanted import WantedEvent
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

__all__ = [
    "ABSENCE", "LINEAGE", "Cause", "Histories", "Loss", "LostEvents", "Question", "Stem", "WantedEvent", "losses",
    "rows_of_changes", "stems",
]  # fmt: skip

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

#: What each operator lost of the events that would have made a wanted one.
ABSENCE: Mapping[type[Node], Callable[[Question], LostEvents]] = {
    **dict.fromkeys(SPAN, lost_by_event),
    Aggregate: lost_in_windows,
    Clip: lost_by_clip,
    Coalesce: lost_by_coalesce,
    Contents: lost_in_windows,
    EdgeLifetimes: lost_by_edges,
    Final: lost_by_final,
    Fold: lost_in_frames,
    GroupApply: lost_by_parts,
    Join: lost_by_join,
    Match: lost_in_matches,
    Operate: lost_in_windows,
    Output: lost_by_parts,
    Over: lost_in_frames,
    Recurse: lost_in_loop,
    Top: lost_in_windows,
    Union: lost_by_parts,
}


def losses(question: Question) -> LostEvents:
    """What an operator lost; a `TraceError` if it does not say."""
    if type(question.node) not in ABSENCE:
        raise _unknown(question.node, "this operator does not say what it lost")
    return ABSENCE[type(question.node)](question)


def stems(node: Node, row: Row, inputs: Histories) -> Stem:
    """The causes of an output event, each once; a `TraceError` if they are not known."""
    if type(node) not in LINEAGE:
        raise _unknown(node, "this operator does not say what its output stems from")
    ways: list[Callable[[Any, Row, Histories], Stem]] = [LINEAGE[type(node)]]
    ways += [partial(of_matches, whole=True)] if isinstance(node, Match) else []
    for way in ways:
        stem = way(node, row, inputs)
        each = {(cause.position, row_identity(cause.row)): cause for cause in reversed(stem.causes)}
        once = Stem(list(reversed(each.values())), stem.through)
        if each and (len(each) > _CHECKED or _enough(node, row, once, inputs)):
            return once
    raise _unknown(node, "the causes of this event of the operator cannot be found")


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
