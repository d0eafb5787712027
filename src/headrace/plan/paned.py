"""Panes: parts of sliding windows that do not overlap (rule 7.5)."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import NamedTuple

from headrace.expr import AggregateCall
from headrace.modules import ModuleCall
from headrace.plan.ordered import Frame, Tuples
from headrace.schema import Schema, Type

__all__ = ["AGAIN", "PanedFrames", "pane_size", "paned_frames"]

#: The aggregates that combine the results of panes.
AGAIN = {"count": "sum", "max": "max", "min": "min", "sum": "sum"}
#: Types whose sums never overflow in a pane: such a sum would be null, although the window's sum may fit.
_SMALL = (Type.BYTE, Type.SHORT, Type.INT)


class PanedFrames(NamedTuple):
    """The frames of panes, over tuples, and of windows, over the results of panes."""

    pane: Frame
    window: Frame


def paned_frames(frame: Frame, size: int) -> PanedFrames:
    """A frame in panes of so many tuples."""
    assert frame.rows is not None
    assert isinstance(frame.slide, Tuples)
    slide = frame.slide.count // size
    window = Frame((frame.rows + 1) // size - 1, slide=Tuples(slide) if slide > 1 else None)
    return PanedFrames(Frame(size - 1, slide=Tuples(size)), window)


def pane_size(frame: Frame, calls: Iterable[AggregateCall], schema: Schema) -> int:
    """The number of tuples of a pane; 1 if there are no panes."""
    if frame.rows is None or not isinstance(frame.slide, Tuples) or frame.tumbles:
        return 1
    size = gcd(frame.rows + 1, frame.slide.count)
    return size if size > 1 and all(_merges(call, schema) for call in calls) else 1


def _merges(call: AggregateCall, schema: Schema) -> bool:
    """Whether its value over a window follows from values over panes."""
    if isinstance(call, ModuleCall):
        module = call.module
        states = module.algebraic and not module.time_sensitive and not module.order_sensitive
        return module.composes or states
    if call.function == "sum":
        assert call.argument is not None
        return call.argument.type(schema) in _SMALL
    return call.function in AGAIN
