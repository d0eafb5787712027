"""Columns of payloads: which ones a stream has, under which names, and how they are computed.

A text among the arguments is the name of a column, everywhere: `select("price", fee="price")`. A text as a value is
`lit("text")`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.api.checks import checked_expr, column_or_expr, row_expr
from headrace.api.times import payloads
from headrace.errors import PlanError, SchemaError, UnknownColumn
from headrace.expr import Expr, col
from headrace.expr.nodes import column_or_value
from headrace.plan.nodes import Explode, Node, Select
from headrace.schema import Schema

__all__ = ["dropped", "exploded", "in_order_of", "named_columns", "renamed", "selected", "with_columns"]


def in_order_of(node: Node, schema: Schema) -> Node:
    """The plan with its columns in the order of `schema`, if it has the same ones; else as it is."""
    if node.schema == schema or {*node.schema} != {*schema}:
        return node
    return Select(node, tuple((name, col(name)) for name in schema.names))


def selected(node: Node, columns: Sequence[Any], named: Mapping[str, Any]) -> Node:
    """The columns and expressions, and nothing else; `"*"` stands for all columns."""
    outputs: list[tuple[str, Expr]] = []
    for column in columns:
        if isinstance(column, str) and column == "*" and "*" not in node.schema:
            outputs += _all(node.schema)
        else:
            expr = column_or_expr(column, "select", f"select(name={column!r})")
            outputs.append((expr.name, expr))
    outputs += named_columns(named, "select")
    _refuse_twice(outputs, node.schema)
    return payloads(node, tuple(outputs))


def with_columns(node: Node, exprs: Sequence[Any], named: Mapping[str, Any]) -> Node:
    """All columns, those of the same name replaced in their place, new ones behind them."""
    instead = "with_columns(total=col('price') * 2)"
    found = [checked_expr(expr, "with_columns", instead) for expr in exprs]
    new = [*((expr.name, expr) for expr in found), *named_columns(named, "with_columns")]
    if not new:
        raise PlanError("with_columns needs a column", given="none", allowed="expressions", instead=instead)
    _refuse_twice(new, node.schema)
    return payloads(node, tuple((dict(_all(node.schema)) | dict(new)).items()))


def dropped(node: Node, names: Iterable[Any]) -> Node:
    """All columns but these."""
    given = list(names)
    wrong = next((name for name in given if not isinstance(name, str)), None)
    if not given or wrong is not None:
        raise PlanError(
            "drop needs names of columns",
            given="none" if not given else wrong,
            allowed=", ".join(node.schema.names),
            instead=f"drop(*{wrong!r})" if isinstance(wrong, list | tuple) else f"drop({node.schema.names[-1]!r})",
        )
    _known(given, node.schema, "drop")
    kept = tuple((name, col(name)) for name in node.schema.names if name not in given)
    if not kept:
        raise PlanError("drop leaves no column", given=", ".join(given), allowed="at least one must stay")
    return Select(node, kept)


def exploded(node: Node, column: str, into: str | None, position: str | None, *, outer: bool) -> Node:
    """A row for each element of a list, which takes the list's place or is a new column."""
    _known([column], node.schema, "explode")
    if into is not None:
        return Explode(node, column, into, position, outer)
    taken = {*node.schema.names, position}
    name = next(one for one in (f"{column}_element{'_' * more}" for more in range(len(taken) + 1)) if one not in taken)
    found = Explode(node, column, name, position, outer)
    new = {old: col(name) if old == column else col(old) for old in found.schema.names if old != name}
    return Select(found, tuple(new.items()))


def renamed(node: Node, names: Any) -> Node:
    """All columns in their order, some under new names."""
    pairs = names.items() if isinstance(names, Mapping) else ()
    if not pairs or not all(isinstance(name, str) for pair in pairs for name in pair):
        raise PlanError(
            "rename needs names of columns",
            given="None" if names is None else names,
            allowed="a dict from old to new names",
            instead="rename({'price': 'cost'})",
        )
    _known(names, node.schema, "rename")
    outputs = [(names.get(name, name), col(name)) for name in node.schema.names]
    _refuse_twice(outputs, node.schema)
    return Select(node, tuple(outputs))


def named_columns(named: Mapping[str, Any], where: str) -> list[tuple[str, Expr]]:
    """The columns of keyword arguments: a text is the name of a column, other values are literals."""
    return [(name, row_expr(column_or_value(value), where)) for name, value in named.items()]


def _all(schema: Schema) -> list[tuple[str, Expr]]:
    return [(name, col(name)) for name in schema.names]


def _known(names: Iterable[str], schema: Schema, where: str) -> None:
    for name in names:
        if name not in schema:
            raise UnknownColumn.of(name, schema.names, where)


def _refuse_twice(outputs: Sequence[tuple[str, Expr]], schema: Schema) -> None:
    names = [name for name, _ in outputs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SchemaError(
            f"column {twice!r} appears twice",
            given=", ".join(names),
            allowed="different names",
            instead=f"with_columns({twice}=...) replaces the column" if twice in schema else f"other_{twice}=...",
        )
