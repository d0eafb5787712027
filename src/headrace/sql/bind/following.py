"""Frames of streams of instants that end behind the current row: `ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING`.

Such an answer is final when the rows behind have come; before, it is about those that have.

- Of rows: the frame of a row up to the second behind it is that of three rows before this second one, which `lead`
  looks at; if there is only one row behind, that one's, and so on.
- Of time: each row lasts from `following` before it to `preceding` behind it, so at each instant those of the frame of
  a row at that instant are alive: a snapshot of them, joined with the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.api.around import Extent
from headrace.api.grouped import around_in_time
from headrace.api.stream import Stream
from headrace.expr import AggregateCall, Expr
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.bind.grouping import has_modules
from headrace.sql.bind.values import duration_of
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["ends_behind", "seen_from_behind", "with_rows_of_time"]

#: How many rows a frame may look ahead: each of them is a frame of its own.
_MOST = 20


def ends_behind(over: s.Over) -> bool:
    """Whether a frame ends behind the current row."""
    return bool(over.between) and over.between[1].kind == "following"


def seen_from_behind(context: Context, part: s.Part) -> s.Part | None:
    """A call over rows up to some behind the current one, by `lead` of calls over rows before; None for other parts."""
    if not isinstance(part, s.Call) or part.over is None or part.over.frame != "rows" or not ends_behind(part.over):
        return None
    over, at = part.over, part.at
    _check(context, over)
    start, end = over.between
    most = end.size
    counts = isinstance(most, s.Number) and isinstance(most.value, int) and most.value <= _MOST
    sized = start.size is None or (isinstance(start.size, s.Number) and isinstance(start.size.value, int))
    if not counts or not sized:
        raise context.error(
            start if counts else end,
            "ROWS counts rows",
            given=to_sql(over),
            allowed=f"whole numbers, and at most {_MOST} FOLLOWING over a stream of instants",
            instead="RANGE BETWEEN 10 s PRECEDING AND 10 s FOLLOWING for many rows",
        )
    assert isinstance(most, s.Number)
    ahead = s.Over(over.partition, order=over.order, at=over.at)

    def led(value: s.Expression, rows: int) -> s.Call:
        return s.Call((s.Name("lead", at=at),), (value, s.Number(rows, at=at)), over=ahead, at=at)

    def before(rows: int) -> s.Call:
        """The call for the row so many behind, over the same first row."""
        first = start
        if start.kind == "current" or start.size is not None:
            size = start.size.value if isinstance(start.size, s.Number) else 0
            first = s.FrameBound("preceding", s.Number(size + rows, at=at), at=start.at)
        return replace(part, over=replace(over, between=(first, s.FrameBound("current", at=end.at))))

    behind = [
        (s.IsNull(led(s.Number(1, at=at), rows), negated=True, at=at), led(before(rows), rows))
        for rows in range(int(most.value), 0, -1)
    ]
    return s.Case(tuple(behind), before(0), at=at) if behind else before(0)


def _check(context: Context, over: s.Over) -> None:
    start, end = over.between
    if end.size is None:
        raise context.error(
            end,
            "a stream has no last row: such an answer would never be final",
            given=to_sql(over),
            allowed="a number of rows or a duration before FOLLOWING",
            instead="ROWS BETWEEN 3 PRECEDING AND 3 FOLLOWING; a window: FROM s [TUMBLING 10 s]",
        )
    if start.kind == "following":
        raise context.error(
            start,
            "a frame over a stream of instants has the current row",
            given=to_sql(over),
            allowed="BETWEEN … PRECEDING or CURRENT ROW AND … FOLLOWING",
            instead="lead(x, 2) for a row behind",
        )


def with_rows_of_time(
    queries: Queries, over: s.Over, stream: Stream, keys: Sequence[Expr], outputs: Sequence[tuple[str, Expr]], unit: int
) -> Stream:
    """The rows with aggregates of those from some time before each to some time behind it."""
    context = queries.context
    _check(context, over)
    start, end = over.between
    modules = [expr for _, expr in outputs if not isinstance(expr, AggregateCall) or has_modules(expr)]
    if modules or over.slide is not None or over.active:
        raise context.error(
            over,
            "a frame of time that ends behind the current row has built-in aggregates, without SLIDE",
            given=to_sql(over),
            allowed="RANGE BETWEEN … PRECEDING AND CURRENT ROW",
        )
    behind = duration_of(context, end.size, unit)  # type: ignore[arg-type]
    before: int | None = 0
    if start.kind == "preceding":
        before = None if start.size is None else duration_of(context, start.size, unit)  # type: ignore[arg-type]
    with context.at(over):
        around = Extent("range", None if before is None else -before, behind)
        # With its stamps, so that the next frame has the same order of tuples.
        answered = around_in_time(stream.group_by(*keys), around, tuple(outputs))
        return answered.select(*stream.schema.names, *(name for name, _ in outputs))
