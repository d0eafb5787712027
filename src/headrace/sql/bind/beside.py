"""Window functions over rows that last: `OVER (PARTITION BY … [ORDER BY …])` without a frame.

The rows of a partition are those that hold at each instant (rule 8.4), so an aggregate sees all of them, whenever they
began, and an ORDER BY may name any column. A row is divided where an answer beside it changes. Frames over such rows
(ROWS, RANGE), and aggregates of modules, look back in the order of their starts, as those of a stream do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.expr import AggregateCall
from headrace.plan.instants import has_points
from headrace.sql import syntax as s
from headrace.sql.bind.grouping import has_modules
from headrace.sql.bind.relations import Item
from headrace.sql.bind.returned import gives_rows
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["PLACES", "beside_rows"]

#: The functions that place a row among the others.
PLACES = ("row_number", "rank", "dense_rank")


def beside_rows(
    queries: Queries, item: Item, calls: Sequence[s.Call], called: Mapping[s.Call, str]
) -> tuple[Item, dict[s.Call, str]]:
    """The rows with the answers of the calls that have no frame as columns, and the names of these columns."""
    given: dict[s.Call, str] = {}
    if has_points(item.stream.node):
        return item, given
    for call in dict.fromkeys(calls):
        over, name = call.over, called.get(call, f"_sql_beside{len(given)}")
        assert over is not None
        expressions = queries.expressions(item, aggregates=True)
        with queries.context.at(call):
            groups = item.stream.group_by(*(expressions.bind(key) for key in over.partition))
            if _place(call) is not None:
                _check_order(queries, call, over)
                by, down = [expressions.bind(key.value) for key in over.order], [key.descending for key in over.order]
                stream = groups.rank(by, descending=down, **{name: _place(call)})  # type: ignore[arg-type]
            elif over.whole:
                if gives_rows(call, queries.catalog.known):
                    continue
                answer = expressions.bind(replace(call, over=None))
                if not isinstance(answer, AggregateCall) or has_modules(answer):
                    continue
                stream = groups.with_columns(**{name: answer})
            else:
                continue
        item, given[call] = replace(item, stream=stream), name
    return item, given


def _place(call: s.Call) -> str | None:
    name = ".".join(part.text for part in call.name).lower()
    return name if name in PLACES else None


def _check_order(queries: Queries, call: s.Call, over: s.Over) -> None:
    if not over.order:
        raise queries.context.error(
            call,
            f"{_place(call)} needs an order",
            given=to_sql(call),
            instead=f"{_place(call)}() OVER (ORDER BY …)",
        )
