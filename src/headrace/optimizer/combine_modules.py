"""Algebraic modules compute states where the rows are, and merge them where the groups are (rule 6.5)."""

from __future__ import annotations

from headrace.expr import Expr, col
from headrace.modules import ModuleCall
from headrace.modules.merged import MergedStates
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Aggregate, Node, Output
from headrace.plan.panes import Panes
from headrace.plan.windows import Grid

__all__ = ["combine_modules"]


def combine_modules(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """`Aggregate(x)` of algebraic modules becomes an aggregate of merged states over `Panes(x)`."""
    return rewrite(outputs, _split)


def _split(node: Node) -> Node:
    if not isinstance(node, Aggregate) or not _algebraic(node):
        return node
    panes = Panes(node.input, node)
    column = {str(call): name for name, call in panes.calls.items()}

    def merged(expr: Expr) -> Expr:
        return MergedStates(expr.module).of(column[str(expr)]) if isinstance(expr, ModuleCall) else expr

    outputs = tuple((name, expr.transform(merged)) for name, expr in node.outputs)
    return Aggregate(panes, tuple((name, col(name)) for name, _ in node.keys), node.window, outputs, policy=node.policy)


def _algebraic(node: Aggregate) -> bool:
    """Whether windows do not depend on events, there are no retractions, and failures do not need their window."""
    calls = node.split[0].values()
    if not all(isinstance(call, ModuleCall) and not isinstance(call.module, MergedStates) for call in calls):
        return False
    plain = node.policy.on_error == "fail" and not node.policy.verify and node.timestamping != "time_bound"
    states = all(m.algebraic and not m.time_sensitive and not m.order_sensitive for m in node.modules)
    return plain and states and isinstance(node.window, Grid) and node.input.properties.insert_only
