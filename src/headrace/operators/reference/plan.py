"""Whole plans by twins: a plan's answer, from the histories and the progress of its sources.

Progress is folded along with the histories, because two operators look at it: speculative windows are given up to m
(rule 5.3), and `Final` holds back what is not final (rule 3.5): the answers of windows and matches that may still
change, and of all else what the CTI has not passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.errors import PlanError
from headrace.operators.reference.aggregate import aggregate
from headrace.operators.reference.clip import clip
from headrace.operators.reference.coalesce import coalesce
from headrace.operators.reference.edge import edge_lifetimes
from headrace.operators.reference.group_apply import group_apply
from headrace.operators.reference.join import join
from headrace.operators.reference.ordered import ordered
from headrace.operators.reference.pattern import match
from headrace.operators.reference.per_window import per_window
from headrace.operators.reference.recurse import recurse
from headrace.operators.reference.rows import Row
from headrace.operators.reference.span import SPAN, event_times
from headrace.operators.reference.windows import last_closed_start, open_window_start
from headrace.plan.nodes import (
    Admit,
    Aggregate,
    AlterLifetime,
    Clip,
    Coalesce,
    Contents,
    EdgeLifetimes,
    Extend,
    Final,
    Fold,
    GroupApply,
    GroupInput,
    HeldEventTimes,
    Join,
    LoopInput,
    Match,
    Node,
    Operate,
    Output,
    Over,
    PerWindow,
    Recurse,
    Shift,
    Source,
    Top,
    Union,
)
from headrace.plan.ordered import Ordered
from headrace.plan.windows import Grid
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["TWINS", "WHOLE_PLANS", "Seen", "reference_history", "reference_stream"]

#: History and progress of each source, and of the current group, by the fingerprint of its node.
Seen = Mapping[str, tuple[Sequence[Row], Progress]]
#: What an operator gave: its history and its progress.
Given = tuple[list[Row], Progress]


def reference_history(node: Node, seen: Seen, *, ended: bool = True) -> list[Row]:
    """The history that a plan must have when its sources have `seen`; no more will come if `ended`."""
    return reference_stream(node, seen, ended=ended)[0]


def reference_stream(node: Node, seen: Seen, *, ended: bool = True) -> Given:
    """The history and the progress of a plan's output."""
    if type(node) in WHOLE_PLANS:
        return WHOLE_PLANS[type(node)](node, seen, ended)
    return _of_inputs(node, [reference_stream(child, seen, ended=ended) for child in node.inputs])


def _of_inputs(node: Node, below: Sequence[Given]) -> Given:
    """An operator over its inputs."""
    if type(node) not in TWINS:
        raise PlanError(f"no twin for {type(node).__name__}", allowed=", ".join(t.__name__ for t in TWINS))
    return TWINS[type(node)](node, below)


def _fed(node: Node, seen: Seen, ended: bool) -> Given:
    rows, progress = seen[node.fingerprint]
    return list(rows), Progress(INFINITY, progress.high) if ended else progress


def _group_apply(node: GroupApply, seen: Seen, ended: bool) -> Given:
    rows, now = reference_stream(node.group.input, seen, ended=ended)

    def of_one(mine: Sequence[Row]) -> Given:
        return reference_stream(node.body, {**seen, node.group.fingerprint: (mine, now)}, ended=ended)

    return group_apply(node, rows, of_one)


def _recurse(node: Recurse, seen: Seen, ended: bool) -> Given:
    below = [reference_stream(child, seen, ended=ended) for child in node.inputs]
    now = Progress(min(p.cti for _, p in below), max(p.high for _, p in below))

    def body(found: Sequence[Row]) -> list[Row]:
        return reference_stream(node.definition, {**seen, node.start.fingerprint: (found, now)}, ended=ended)[0]

    return recurse(node, below[0][0], body), now


def _reached(now: Progress) -> int:
    """`m` of rule 5.3, for a CTI that may be infinite."""
    return now.high if now.cti == INFINITY else max(now.cti, now.high)


def _moved(time: int, by: int) -> int:
    return time if time in (INFINITY, NEG_INFINITY) else time + by


def _span_progress(node: Node, now: Progress) -> Progress:
    if isinstance(node, Shift):
        return Progress(_moved(now.cti, node.by), _moved(now.high, node.by))
    if isinstance(node, Extend) and node.by < 0:
        return Progress(_moved(now.cti, node.by), now.high)
    if isinstance(node, AlterLifetime):
        return Progress(_moved(now.cti, -node.back), now.high)
    return now


def _held_event_times(node: HeldEventTimes, below: Sequence[Given]) -> Given:
    """The promise waits for the events whose end may still change."""
    rows, now = below[0]
    if node.input.properties.settled or now.cti == INFINITY:
        return event_times(node, rows), now
    waiting = [le for le, re, _ in rows if re >= now.cti]
    return event_times(node, rows), Progress(min([now.cti, *waiting]), now.high)


def _window_progress(window: Grid, now: Progress) -> Progress:
    """Rule 6.4, first row; the highest LE given is the start of the last window that ends at or before m."""
    cti = now.cti if now.cti in (INFINITY, NEG_INFINITY) else open_window_start(window, now.cti)
    high = now.high if now.high == NEG_INFINITY else last_closed_start(window, now.high)
    return Progress(cti, high)


def _final(node: Node, seen: Seen, *, ended: bool) -> Given:
    """The final part of a stream (rule 3.5)."""
    above: list[Node] = []
    while type(node) in SPAN:
        above.insert(0, node)
        node = node.inputs[0]
    if isinstance(node, Union):  # each part by itself
        return _of_inputs(node, [_final(_through(part, above), seen, ended=ended) for part in node.parts])
    if not _by_answer(node):
        whole = _through(node, above)
        return _passed(*reference_stream(whole, seen, ended=ended), settled=whole.properties.settled)
    if isinstance(node, GroupApply):
        found = _group_apply(replace(node, body=Final(node.body)), seen, ended)
    else:
        found = reference_stream(node.by_answer() or node, seen, ended=ended)
    for reader in above:  # an answer from final answers is final
        found = _of_inputs(reader, [found])
    return found


def _through(node: Node, above: Sequence[Node]) -> Node:
    for reader in above:
        node = reader.with_inputs(node)
    return node


def _by_answer(node: Node) -> bool:
    """Whether windows or matches decide what is final, and not the CTI."""
    if isinstance(node, GroupApply):
        body = node.body
        while type(body) in SPAN:
            body = body.inputs[0]
        return isinstance(body, Union) or _by_answer(body)
    return isinstance(node, Final) or node.by_answer() is not None


def _passed(rows: list[Row], now: Progress, *, settled: bool) -> Given:
    """The events that the CTI has passed; the promise waits for the earliest one held back."""
    if now.cti == INFINITY:
        return rows, now
    out = [row for row in rows if (row[0] if settled else row[1]) < now.cti]
    held = [] if settled else [row[0] for row in rows if row[1] >= now.cti]
    return out, Progress(min([now.cti, *held]), now.high)


# --- the twin of every node ------------------------------------------------------------------------------------------


def _of_one(twin: Callable[[Any, Sequence[Row]], list[Row]]) -> Callable[[Any, Sequence[Given]], Given]:
    """The twin of an operator with one input that passes progress on, or moves it by a duration."""
    return lambda node, below: (twin(node, below[0][0]), _span_progress(node, below[0][1]))


def _of_two(twin: Callable[[Any, Sequence[Row], Sequence[Row]], list[Row]]) -> Callable[[Any, Sequence[Given]], Given]:
    return lambda node, below: (twin(node, below[0][0], below[1][0]), _of_all(below))


def _same(_: Node, rows: Sequence[Row]) -> list[Row]:
    return list(rows)


def _union(_: Union, below: Sequence[Given]) -> Given:
    return [row for part, _ in below for row in part], _of_all(below)


def _of_all(below: Sequence[Given]) -> Progress:
    return Progress(min(p.cti for _, p in below), max(p.high for _, p in below))


def _aggregate(node: Aggregate, below: Sequence[Given]) -> Given:
    if not node.splits:
        return _windows(node, below)
    rows, now = below[0]
    assert isinstance(node.window, Grid)
    return aggregate(node, rows, _reached(now), ended=now.cti == INFINITY), _window_progress(node.window, now)


def _windows(node: PerWindow, below: Sequence[Given]) -> Given:
    return ordered(node, *below[0]) if isinstance(node.window, Ordered) else per_window(node, *below[0])


#: The twin of every operator that follows from what its inputs gave.
TWINS: Mapping[type[Node], Callable[[Any, Sequence[Given]], Given]] = {
    **{kind: _of_one(twin) for kind, twin in SPAN.items()},
    Admit: _of_one(_same),
    Aggregate: _aggregate,
    Clip: _of_two(clip),
    Coalesce: _of_one(coalesce),
    Contents: _windows,
    EdgeLifetimes: _of_one(edge_lifetimes),
    Fold: _windows,
    HeldEventTimes: _held_event_times,
    Join: _of_two(join),
    Match: lambda node, below: match(node, *below[0]),
    Operate: _windows,
    Output: _of_one(_same),
    Over: _windows,
    Top: _windows,
    Union: _union,
}

#: Of the others: inputs, and what looks at a plan of its own.
WHOLE_PLANS: Mapping[type[Node], Callable[[Any, Seen, bool], Given]] = {
    Final: lambda node, seen, ended: _final(node.input, seen, ended=ended),
    GroupApply: _group_apply,
    GroupInput: _fed,
    LoopInput: _fed,
    Recurse: _recurse,
    Source: _fed,
}
