"""Whole plans by twins: what a plan's answer is, given the histories of its sources and how far they have come.

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
from headrace.operators.reference.span import SPAN
from headrace.operators.reference.windows import open_window_start
from headrace.plan.nodes import (
    Admit,
    Aggregate,
    Clip,
    Coalesce,
    EdgeLifetimes,
    Extend,
    Final,
    GroupApply,
    GroupInput,
    Join,
    LoopInput,
    Match,
    Node,
    Output,
    PerWindow,
    Recurse,
    Shift,
    Source,
    Union,
)
from headrace.plan.ordered import Frame, Ordered
from headrace.plan.windows import Grid
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["Seen", "reference_history", "reference_stream"]

#: What came of each source, and of the group that is looked at, by the fingerprint of its node: history and progress.
Seen = Mapping[str, tuple[Sequence[Row], Progress]]


def _same(node: Node, rows: Sequence[Row]) -> list[Row]:  # noqa: ARG001 - twins of one family are called alike
    return list(rows)


#: Operators of one history that pass progress on, or move it by a duration.
PLAIN: dict[type[Node], Callable[[Any, Sequence[Row]], list[Row]]] = {
    **SPAN,
    Admit: _same,
    Coalesce: coalesce,
    EdgeLifetimes: edge_lifetimes,
    Output: _same,
}


def reference_history(node: Node, seen: Seen, *, ended: bool = True) -> list[Row]:
    """The history a plan must have given when its sources gave `seen`, and nothing more will come if `ended`."""
    return reference_stream(node, seen, ended=ended)[0]


def reference_stream(node: Node, seen: Seen, *, ended: bool = True) -> tuple[list[Row], Progress]:
    """The history and the progress of a plan's output."""
    if isinstance(node, GroupApply):
        return _group_apply(node, seen, ended=ended)
    if isinstance(node, Final):
        return _final(node.input, seen, ended=ended)
    if isinstance(node, Recurse):
        return _recurse(node, seen, ended=ended)
    if isinstance(node, (GroupInput, LoopInput, Source)):
        rows, progress = seen[node.fingerprint]
        return list(rows), Progress(INFINITY, progress.high) if ended else progress
    return _of_inputs(node, [reference_stream(child, seen, ended=ended) for child in node.inputs])


def _of_inputs(node: Node, below: Sequence[tuple[list[Row], Progress]]) -> tuple[list[Row], Progress]:
    """An operator over what its inputs gave."""
    rows, now = below[0]
    if isinstance(node, Union):
        ctis, highs = [p.cti for _, p in below], [p.high for _, p in below]
        return [row for part, _ in below for row in part], Progress(min(ctis), max(highs))
    if isinstance(node, (Clip, Join)):
        ctis, highs = [p.cti for _, p in below], [p.high for _, p in below]
        given = join(node, rows, below[1][0]) if isinstance(node, Join) else clip(node, rows, below[1][0])
        return given, Progress(min(ctis), max(highs))
    if isinstance(node, PerWindow) and isinstance(node.window, Ordered):
        return ordered(node, rows, now)
    if isinstance(node, Match):
        return match(node, rows, now)
    if isinstance(node, PerWindow) and not (isinstance(node, Aggregate) and node.splits):
        return per_window(node, rows, now)
    if isinstance(node, Aggregate):
        assert isinstance(node.window, Grid)
        return aggregate(node, rows, _reached(now), ended=now.cti == INFINITY), _window_progress(node.window, now)
    if type(node) not in PLAIN:
        raise PlanError(f"no twin for {type(node).__name__}", allowed=", ".join(t.__name__ for t in PLAIN))
    return PLAIN[type(node)](node, rows), _span_progress(node, now)


def _group_apply(node: GroupApply, seen: Seen, *, ended: bool) -> tuple[list[Row], Progress]:
    rows, now = reference_stream(node.group.input, seen, ended=ended)

    def of_one(mine: Sequence[Row]) -> tuple[list[Row], Progress]:
        return reference_stream(node.body, {**seen, node.group.fingerprint: (mine, now)}, ended=ended)

    return group_apply(node, rows, of_one)


def _recurse(node: Recurse, seen: Seen, *, ended: bool) -> tuple[list[Row], Progress]:
    below = [reference_stream(child, seen, ended=ended) for child in node.inputs]
    now = Progress(min(p.cti for _, p in below), max(p.high for _, p in below))

    def body(found: Sequence[Row]) -> list[Row]:
        return reference_stream(node.asked, {**seen, node.start.fingerprint: (found, now)}, ended=ended)[0]

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
    return now


def _window_progress(window: Grid, now: Progress) -> Progress:
    """Rule 6.4, first row; the highest LE given is the start of the last window that ends at or before m."""
    cti = now.cti if now.cti in (INFINITY, NEG_INFINITY) else open_window_start(window, now.cti)
    high = now.high if now.high == NEG_INFINITY else open_window_start(window, now.high) - window.hop
    return Progress(cti, high)


def _final(node: Node, seen: Seen, *, ended: bool) -> tuple[list[Row], Progress]:
    """What is final of a stream (rule 3.5)."""
    above: list[Node] = []
    while type(node) in SPAN:
        above.insert(0, node)
        node = node.inputs[0]
    if isinstance(node, Union):  # of each part by itself
        return _of_inputs(node, [_final(_through(part, above), seen, ended=ended) for part in node.parts])
    if not _by_answer(node):
        whole = _through(node, above)
        return _passed(*reference_stream(whole, seen, ended=ended), settled=whole.properties.settled)
    if isinstance(node, GroupApply):
        found = _group_apply(replace(node, body=Final(node.body)), seen, ended=ended)
    else:
        itself = replace(node, final=True) if isinstance(node, (Match, PerWindow)) else node
        found = reference_stream(itself, seen, ended=ended)
    for reader in above:  # what is made of a final answer is final
        found = _of_inputs(reader, [found])
    return found


def _through(node: Node, above: Sequence[Node]) -> Node:
    for reader in above:
        node = reader.with_inputs(node)
    return node


def _by_answer(node: Node) -> bool:
    """Whether windows or matches say what is final, and not the CTI."""
    if isinstance(node, GroupApply):
        body = node.body
        while type(body) in SPAN:
            body = body.inputs[0]
        return isinstance(body, Union) or _by_answer(body)
    frame = isinstance(node, PerWindow) and isinstance(node.window, Frame)
    return isinstance(node, Final) or (isinstance(node, (Match, PerWindow)) and node.waits and not frame)


def _passed(rows: list[Row], now: Progress, *, settled: bool) -> tuple[list[Row], Progress]:
    """What the CTI has passed; the promise waits for the earliest event that is held back."""
    if now.cti == INFINITY:
        return rows, now
    out = [row for row in rows if (row[0] if settled else row[1]) < now.cti]
    held = [] if settled else [row[0] for row in rows if row[1] >= now.cti]
    return out, Progress(min([now.cti, *held]), now.high)
