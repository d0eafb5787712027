"""Slides as plans: numbered tuples, parts of windows, and filtered results (rule 7.5).

Tuples that differ only in their ends have different results, which must stay in the order of the tuples through several
operators. So tuples are numbered first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd

from headrace.expr import AggregateCall, Expr, col
from headrace.modules import ModuleCall
from headrace.modules.merged import MergedStates, PartialState
from headrace.plan.base import Node
from headrace.plan.ordered import NUMBER, Frame, Time, Tuples
from headrace.plan.over import Over
from headrace.plan.span import Select, Where
from headrace.schema import Schema, Type

__all__ = ["again", "numbered", "pane_size", "part", "unnumbered", "yielding"]

Named = tuple[tuple[str, Expr], ...]
#: The aggregates that combine the results of panes.
_AGAIN = {"count": "sum", "max": "max", "min": "min", "sum": "sum"}
#: Types whose sums never overflow in a pane: such a sum would be null, although the window's sum may fit.
_SMALL = (Type.BYTE, Type.SHORT, Type.INT)


def numbered(node: Node, keys: Named) -> Over:
    """Tuples with their numbers in their groups, from 1 on."""
    return Over(node, keys, Frame(), ((NUMBER, AggregateCall("count")),))


def unnumbered(node: Node) -> Select:
    """The plan without the numbers."""
    return Select(node, tuple((name, col(name)) for name in node.schema.names if name != NUMBER))


def yielding(node: Node, keys: Named, slide: Tuples | Time) -> Node:
    """The numbered tuples that are the last of their slot."""
    if isinstance(slide, Tuples):
        return Where(node, (col(NUMBER) % slide.count) == 0)
    left = Over(node, keys, Frame(range=0, slide=slide), (("_last", AggregateCall("count")),))
    return Select(left, tuple((name, col(name)) for name in node.schema.names))


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
    return call.function in _AGAIN


def part(call: AggregateCall) -> AggregateCall:
    """The call that computes a pane."""
    if isinstance(call, ModuleCall) and not call.module.composes:
        return ModuleCall.of(PartialState(call.module), call.mapping)
    return call


def again(expr: Expr, columns: Mapping[str, str]) -> Expr:
    """An output over the results of panes; `columns` has the column of each call."""

    def change(call: Expr) -> Expr:
        if not isinstance(call, AggregateCall):
            return call
        pane = col(columns[str(call)])
        if not isinstance(call, ModuleCall):
            return AggregateCall(_AGAIN[call.function], pane)
        module = call.module if call.module.composes else MergedStates(call.module)
        return ModuleCall.of(module, dict.fromkeys(module.fields.names, pane))

    return expr.transform(change)
