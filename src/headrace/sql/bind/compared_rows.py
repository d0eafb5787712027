"""Rows of values beside IN: `(a, b) IN ((1, 2), (3, 4))` and `(a, b) IN (SELECT …)` are comparisons of the values."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.printer import to_sql

__all__ = ["in_rows", "row_in_query", "row_test"]

#: The columns of a sub-query that is compared with a row of values. Only the binder names them.
_COMPARED, _VALUE = "_sql_row", "_sql_part"


def in_rows(context: Context, part: s.In) -> s.Expression:
    """`(a, b) IN ((1, 2), (3, 4))` as comparisons of the values, one by one."""
    assert isinstance(part.value, s.Row)
    whole: s.Expression | None = None
    for option in part.options:
        assert isinstance(option, s.Row)
        _check_size(context, part.value, option, len(option.values))
        equal = _all_equal(part.value.values, option.values, part.at)
        whole = equal if whole is None else s.Binary("OR", whole, equal, at=part.at)
    assert whole is not None
    return s.Unary("NOT", whole, at=part.at) if part.negated else whole


def row_in_query(context: Context, part: s.InQuery, *, negated: bool = False) -> s.Exists:
    """`(a, b) IN (SELECT …)`: whether a row of the sub-query is equal.

    `negated`: whether one is equal or may be, as a NULL in it or in the values leaves it open, which NOT IN refuses.
    """
    assert isinstance(part.value, s.Row)
    body = part.query.body
    if isinstance(body, s.Select) and not any(isinstance(entry.value, s.Star) for entry in body.entries):
        _check_size(context, part.value, part.query, len(body.entries))
    names = tuple(s.Name(f"{_VALUE}{n}") for n in range(len(part.value.values)))
    columns = [s.Column(name, s.Name(_COMPARED), at=part.at) for name in names]
    equal = _all_equal(columns, part.value.values, part.at)
    where = s.IsNull(equal, negated=True, what="FALSE", at=part.at) if negated else equal
    place = s.FromItem(
        s.Subquery(part.query, at=part.query.at), alias=s.Name(_COMPARED), columns=names, at=part.query.at
    )
    true = s.Entry(s.Value(value=True), s.Name("_"))
    return s.Exists(s.Query(s.Select((true,), place, where=where, at=part.at), at=part.at), at=part.at)


def row_test(context: Context, part: s.InQuery) -> s.Expression:
    """`(a, b) [NOT] IN (SELECT …)` as a value: true, false, or NULL where a NULL decides."""
    found, open_ = row_in_query(context, part), row_in_query(context, part, negated=True)
    yes, no = s.Value(value=not part.negated), s.Value(value=part.negated)
    return s.Case(((found, yes), (open_, s.Value(value=None))), no, at=part.at)


def _all_equal(left: Sequence[s.Expression], right: Sequence[s.Expression], at: s.Span) -> s.Expression:
    whole: s.Expression | None = None
    for one, other in zip(left, right, strict=True):
        equal = s.Binary("=", one, other, at=at)
        whole = equal if whole is None else s.Binary("AND", whole, equal, at=at)
    assert whole is not None
    return whole


def _check_size(context: Context, row: s.Row, other: s.Part, size: int) -> None:
    if size != len(row.values):
        raise context.error(
            other,
            f"{size} values are compared with {len(row.values)}",
            given=to_sql(other),
            allowed=f"as many values as {to_sql(row)} has",
        )
