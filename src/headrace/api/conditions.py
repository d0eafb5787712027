"""Conditions written in SQL, on the events of one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.plan.nodes import Where, walk

if TYPE_CHECKING:
    from headrace.api.stream import Stream

__all__ = ["condition_of"]


def condition_of(stream: Stream, text: str) -> Expr:
    """The expression of a condition on the columns of a stream: `price > 100`."""
    # Imported when it is needed: SQL stands above the API.
    from headrace.sql import sql
    from headrace.sql.parse import parse_expression  # as above

    parse_expression(text)  # nothing stands behind it: `price > 100 LIMIT 1` is no condition
    chosen = sql(f"SELECT * FROM answers WHERE {text}", answers=stream).node  # noqa: S608 - the user's own condition
    for node in walk(chosen):
        if isinstance(node, Where) and node.input == stream.node:
            return node.predicate
    raise PlanError("this is not a condition on one row", given=text, allowed="columns of its operator, and values")
