"""Whole plans by twins: what a plan's answer is, given the histories of its sources and how far they have come.

Progress is folded along with the histories, because two operators look at it: speculative windows are given up to m
(rule 5.3), and `Final` holds back what a CTI has not settled (rule 3.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.errors import PlanError
from headrace.operators.reference.aggregate import aggregate
from headrace.operators.reference.edge import edge_lifetimes
from headrace.operators.reference.join import join
from headrace.operators.reference.rows import Row
from headrace.operators.reference.span import SPAN
from headrace.operators.reference.windows import open_window_start
from headrace.plan.nodes import Admit, Aggregate, EdgeLifetimes, Extend, Final, Join, Node, Output, Shift, Source, Union
from headrace.plan.windows import Grid
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["Seen", "reference_history", "reference_stream"]

#: What came of each source, by the fingerprint of its node: its history, and its progress.
Seen = Mapping[str, tuple[Sequence[Row], Progress]]


def reference_history(node: Node, seen: Seen, *, ended: bool = True) -> list[Row]:
    """The history a plan must have given when its sources gave `seen`, and nothing more will come if `ended`."""
    return reference_stream(node, seen, ended=ended)[0]


def reference_stream(node: Node, seen: Seen, *, ended: bool = True) -> tuple[list[Row], Progress]:
    """The history and the progress of a plan's output."""
    if isinstance(node, Source):
        rows, progress = seen[node.fingerprint]
        return list(rows), Progress(INFINITY, progress.high) if ended else progress
    below = [reference_stream(child, seen, ended=ended) for child in node.inputs]
    rows, now = below[0]
    if isinstance(node, Union):
        ctis, highs = [p.cti for _, p in below], [p.high for _, p in below]
        return [row for part, _ in below for row in part], Progress(min(ctis), max(highs))
    if isinstance(node, Join):
        ctis, highs = [p.cti for _, p in below], [p.high for _, p in below]
        return join(node, rows, below[1][0]), Progress(min(ctis), max(highs))
    if isinstance(node, Aggregate):
        return aggregate(node, rows, _reached(now), ended=now.cti == INFINITY), _window_progress(node.window, now)
    if isinstance(node, Final):
        return _final(node, rows, now)
    if isinstance(node, EdgeLifetimes):
        return edge_lifetimes(node, rows), now
    if isinstance(node, (Admit, Output)):
        return rows, now
    if type(node) not in SPAN:
        raise PlanError(f"no twin for {type(node).__name__}", allowed=", ".join(t.__name__ for t in SPAN))
    return SPAN[type(node)](node, rows), _span_progress(node, now)


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


def _final(node: Final, rows: list[Row], now: Progress) -> tuple[list[Row], Progress]:
    """Rule 3.5; the promise waits for the earliest event that is held back."""
    if now.cti == INFINITY:
        return rows, now
    settled = node.input.properties.settled
    out = [row for row in rows if (row[0] if settled else row[1]) < now.cti]
    held = [] if settled else [row[0] for row in rows if row[1] >= now.cti]
    return out, Progress(min([now.cti, *held]), now.high)
