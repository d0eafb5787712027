"""Conditions written in SQL, on the events of one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import PlanError
from headrace.expr import Column, Expr
from headrace.plan.nodes import EventTimes, Where, walk

if TYPE_CHECKING:
    from headrace.api.stream import Stream

__all__ = ["condition_of"]


def condition_of(stream: Stream, text: str) -> Expr:
    """The expression of a condition on the columns of a stream, and on `le` and `re`: `price > 100`."""
    # Imported when it is needed: SQL stands above the API.
    from headrace.sql import sql
    from headrace.sql.parse import parse_expression  # as above

    parse_expression(text)  # nothing stands behind it: `price > 100 LIMIT 1` is no condition
    chosen = sql(f"SELECT * FROM answers WHERE {text}", answers=stream).node  # noqa: S608 - the user's own condition
    for node in walk(chosen):
        if isinstance(node, Where) and node.input == stream.node:
            return node.predicate
        if isinstance(node, Where) and isinstance(node.input, EventTimes) and node.input.input == stream.node:
            return _of_lifetime(node.predicate, node.input)
    raise PlanError(
        "this is not a condition on one row", given=text, allowed="columns of its operator, le and re, and values"
    )


def _of_lifetime(condition: Expr, times: EventTimes) -> Expr:
    """A condition over columns with the times of events, over `le` and `re`."""
    names = {times.start: "le", times.end: "re"}
    return condition.transform(
        lambda part: Column(names[part.name]) if isinstance(part, Column) and part.name in names else part
    )
