"""Aggregates of some rows, `sum(x) FILTER (WHERE p)`, and in an order: `string_agg(x, ',' ORDER BY y)`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.expr import AggregateCall, Expr
from headrace.expr.aggregates import filtered
from headrace.expr.in_order import in_order_of
from headrace.modules import ModuleCall
from headrace.sql import syntax as s
from headrace.sql.bind.names import AGGREGATE_SYNONYMS
from headrace.sql.bind.sorting import sort_keys
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.bind.expressions import Expressions

__all__ = ["in_an_order", "some_rows"]

#: The aggregates that have all values, and so an order of them.
_LISTS = ("collect", "concat")


def in_an_order(part: s.Call) -> bool:
    """Whether a call gives its values in an order, or equal ones once."""
    return bool(part.order) or (part.distinct and _function(part) in _LISTS)


def some_rows(expressions: Expressions, part: s.Call) -> Expr:
    """An aggregate of the rows that fulfil a condition, or in an order of its own."""
    context = expressions.context
    if in_an_order(part):
        return _ordered(expressions, part)
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


def _function(part: s.Call) -> str:
    name = ".".join(one.text for one in part.name).lower()
    return AGGREGATE_SYNONYMS.get(name, name)


def _ordered(expressions: Expressions, part: s.Call) -> Expr:
    """The values of a list or a text in the order of ORDER BY."""
    context, function = expressions.context, _function(part)
    if function not in _LISTS:
        raise context.error(
            part.order[0],
            f"{part.name[-1].text} is the same in any order",
            given=to_sql(part),
            allowed="string_agg(x, ',' ORDER BY y), array_agg(x ORDER BY y)",
            instead="the aggregate without ORDER BY",
        )
    whole = expressions.bind(replace(part, order=(), distinct=False, filter=None))
    assert isinstance(whole, AggregateCall)
    assert whole.argument is not None
    rows = replace(expressions, aggregates=False)
    where = None if part.filter is None else rows.predicate(part.filter)
    order = list(zip(*sort_keys(rows, part.order), strict=True))
    separator = str(whole.parameters[0]) if whole.parameters else None
    with context.at(part):
        return in_order_of(expressions.schema, whole.argument, order, separator, distinct=part.distinct, where=where)
