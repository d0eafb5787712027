"""Keys that are expressions are computed before the rows are brought together by them."""

from __future__ import annotations

from dataclasses import replace

from headrace.expr import Expr, col
from headrace.expr.nodes import Column
from headrace.optimizer.rewrite import rewrite
from headrace.plan.keyed import Keyed
from headrace.plan.nodes import Node, Output, Select

__all__ = ["compute_keys"]


def compute_keys(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """Windows by computed keys become windows by columns; aggregates that combine first compute them there."""
    return rewrite(outputs, _computed)


def _computed(node: Node) -> Node:
    if not isinstance(node, Keyed) or node.splits:
        return node
    if all(isinstance(expr, Column) for _, expr in node.keys):
        return node
    below = node.input.schema.names
    names = {name: _name(name, expr, node) for name, expr in node.keys}
    # Computed keys come first, as in the output of operators that pass events on.
    columns = {names[name]: expr for name, expr in node.keys if names[name] not in below}
    inner = Select(node.input, (*columns.items(), *((name, col(name)) for name in below)))
    return replace(node, input=inner, keys=tuple((name, col(new)) for name, new in names.items()))


def _name(name: str, expr: Expr, node: Keyed) -> str:
    """The column of a key; it must not hide a column that the operator reads."""
    if node.passes_on:
        return name
    if isinstance(expr, Column):
        return expr.name
    return f"{name} key" if name in node.input.schema else name
