"""Slides as plans: numbered tuples, parts of windows, and filtered results (rule 7.5).

Tuples that differ only in their ends have different results, which must stay in the order of the tuples through several
operators. So tuples are numbered first.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.expr import AggregateCall, Expr, col
from headrace.modules import ModuleCall
from headrace.modules.merged import MergedStates, PartialState
from headrace.plan.base import Node
from headrace.plan.ordered import NUMBER, Frame, Time, Tuples
from headrace.plan.over import Over
from headrace.plan.paned import AGAIN
from headrace.plan.span import Select, Where

__all__ = ["again", "numbered", "part", "unnumbered", "yielding"]

Named = tuple[tuple[str, Expr], ...]


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
            return AggregateCall(AGAIN[call.function], pane)
        module = call.module if call.module.composes else MergedStates(call.module)
        return ModuleCall.of(module, dict.fromkeys(module.fields.names, pane))

    return expr.transform(change)
