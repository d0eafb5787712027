"""Rankings end where a filter ends: `row_number() … <= 3` needs the first three events, and not the places of all."""

from __future__ import annotations

from dataclasses import replace

from headrace.expr import Expr
from headrace.expr.nodes import Call, Column, Literal
from headrace.expr.pushdown import conjuncts
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Coalesce, Node, Output, Select, Top, Where

__all__ = ["rank_no_more"]


def rank_no_more(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """A filter that bounds the numbers of ranked events also bounds the ranking, which others may read as a whole."""

    def bound(node: Node) -> Node:
        if not isinstance(node, Where):
            return node
        bounds = [found for part in conjuncts(node.predicate) if (found := _bound(part)) is not None]
        below = node.input
        for name, most in bounds:
            below = _bounded(below, name, most)
        return node if below is node.input else Where(below, node.predicate)

    return rewrite(outputs, bound)


def _bound(part: Expr) -> tuple[str, int] | None:
    """The column that a condition bounds, and its greatest value."""
    if not isinstance(part, Call) or part.function not in ("eq", "le", "lt"):
        return None
    column, value = part.args
    if not (isinstance(column, Column) and isinstance(value, Literal) and type(value.value) is int):
        return None
    return column.name, value.value - (part.function == "lt")


def _bounded(node: Node, name: str, most: int) -> Node:
    """The plan with fewer events in the ranking that numbers them in this column, if there is one."""
    if isinstance(node, Coalesce):
        below = _bounded(node.input, name, most)
        return node if below is node.input else Coalesce(below)
    if isinstance(node, Select):
        source = dict(node.outputs)[name]
        below = _bounded(node.input, source.name, most) if isinstance(source, Column) else node.input
        return node if below is node.input else Select(below, node.outputs)
    if isinstance(node, Top) and (name, "row_number") in node.places and most >= 1 and not node.around:
        return replace(node, k=min(node.k, most))
    return node
