"""Aggregates of some rows: `sum(x) FILTER (WHERE p)`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.expr import AggregateCall, Expr
from headrace.expr.aggregates import filtered
from headrace.modules import ModuleCall
from headrace.sql import syntax as s
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.bind.expressions import Expressions

__all__ = ["some_rows"]


def some_rows(expressions: Expressions, part: s.Call) -> Expr:
    """An aggregate of the rows that fulfil a condition; ORDER BY among its arguments is refused."""
    context = expressions.context
    if part.order:
        raise context.error(
            part.order[0],
            "values of an aggregate are in the order of time, and of their own",
            given=to_sql(part),
            allowed="string_agg(x, ','), array_agg(x): by the start of rows, then by value",
            instead="the aggregate without ORDER BY",
        )
    assert part.filter is not None
    call = expressions.bind(replace(part, filter=None))
    if not isinstance(call, AggregateCall) or isinstance(call, ModuleCall):
        raise context.error(
            part.filter,
            "FILTER is for built-in aggregates",
            given=to_sql(part),
            allowed="count, sum, avg, min, max, …",
            instead="a sub-select with WHERE",
        )
    return filtered(call, replace(expressions, aggregates=False).predicate(part.filter))
