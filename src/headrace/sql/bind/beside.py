"""Window functions over rows that last: `OVER (PARTITION BY … [ORDER BY … [frame]])`.

The rows of a partition are those that hold at each instant (rule 8.4), so an answer is about all of them, whenever they
began, and an ORDER BY may name any column. A row is divided where an answer beside it changes. Frames without an ORDER
BY over such rows (ROWS, RANGE), and aggregates of modules, look back in the order of their starts, as those of a stream
do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.api.around import Extent, Order, surrounded_node
from headrace.api.stream import Stream
from headrace.expr import AggregateCall, Expr
from headrace.expr.ordered_calls import OrderedCall
from headrace.plan.around import Distance, Unit
from headrace.plan.instants import has_points
from headrace.schema import STAMPS, Type
from headrace.sql import syntax as s
from headrace.sql.bind.expressions import Expressions
from headrace.sql.bind.frames import RANKS, VALUES, is_shift, name_of, nth_of, shift_of
from headrace.sql.bind.grouping import has_modules
from headrace.sql.bind.relations import Item
from headrace.sql.bind.returned import gives_rows
from headrace.sql.bind.sorting import sort_keys
from headrace.sql.bind.values import duration_of
from headrace.sql.printer import to_sql
from headrace.time import duration

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["beside_rows"]

_ONE_DAY = duration("1 day")


def beside_rows(
    queries: Queries, item: Item, calls: Sequence[s.Call], called: Mapping[s.Call, str]
) -> tuple[Item, dict[s.Call, str]]:
    """The rows with the answers of the calls as columns, and the names of these columns.

    Calls that are none of this, as they look back in the order of starts, are left out.
    """
    given: dict[s.Call, str] = {}
    if has_points(item.stream.node):
        return item, given
    orders: dict[tuple[object, ...], list[s.Call]] = {}
    for call in dict.fromkeys(calls):
        assert call.over is not None
        if not call.over.order:
            item, given = _beside_all(queries, item, call, called, given)
        elif not gives_rows(call, queries.catalog.known):
            orders.setdefault((call.over.partition, call.over.order), []).append(call)
    for together in orders.values():
        item, given = _Ordered(queries, item, together[0]).answered(together, called, given)
    return item, given


def _beside_all(
    queries: Queries, item: Item, call: s.Call, called: Mapping[s.Call, str], given: dict[s.Call, str]
) -> tuple[Item, dict[s.Call, str]]:
    """A call without an order: about all rows of its partition."""
    over, name = call.over, called.get(call, f"_sql_beside{len(given)}")
    assert over is not None
    if name_of(call) in RANKS or is_shift(call):
        raise queries.context.error(
            call,
            f"{name_of(call)} needs an order",
            given=to_sql(call),
            instead=f"{to_sql(replace(call, over=None))} OVER (ORDER BY …)",
        )
    unbounded = [bound.kind != "current" and bound.size is None for bound in over.between]
    if not (over.whole or (unbounded and all(unbounded))) or gives_rows(call, queries.catalog.known):
        return item, given
    expressions = queries.expressions(item, aggregates=True)
    answer = expressions.bind(replace(call, over=None))
    if not isinstance(answer, AggregateCall) or has_modules(answer):
        return item, given
    with queries.context.at(call):
        groups = item.stream.group_by(*(expressions.bind(key) for key in over.partition))
        return replace(item, stream=groups.with_columns(**{name: answer})), given | {call: name}


@dataclass
class _Ordered:
    """Calls over one partition in one order: rows with what each sees of those around it."""

    queries: Queries
    item: Item
    #: One of the calls.
    call: s.Call

    @property
    def over(self) -> s.Over:
        assert self.call.over is not None
        return self.call.over

    @cached_property
    def expressions(self) -> Expressions:
        return self.queries.expressions(self.item, aggregates=True)

    @cached_property
    def order(self) -> Order:
        by, descending = sort_keys(self.expressions, self.over.order)
        return Order(tuple(by), descending)

    @property
    def by(self) -> tuple[Expr, ...]:
        return self.order.by

    def answered(
        self, calls: Sequence[s.Call], called: Mapping[s.Call, str], given: dict[s.Call, str]
    ) -> tuple[Item, dict[s.Call, str]]:
        """The rows with the answers as columns, and their names beside those given."""
        outputs: dict[str, tuple[Expr, Extent]] = {}
        names: dict[s.Call, str] = {}
        for call in calls:
            name = called.get(call, f"_sql_beside{len(given) + len(names)}")
            with self.queries.context.at(call):
                answer = self._answer(call)
            if answer is not None:
                outputs[name], names[call] = answer, name
        if not names:
            return self.item, given
        with self.queries.context.at(self.call):
            own = self.item.stream
            groups = own.group_by(*(self.expressions.bind(key) for key in self.over.partition))
            found = Stream(surrounded_node(own.node, groups.keys, self.order, outputs))
            kept = [name for name in own.schema.names if name not in STAMPS]
            return replace(self.item, stream=found.select(*kept, *outputs)), given | names

    def _answer(self, call: s.Call) -> tuple[Expr, Extent] | None:
        """The function of a call and its frame; None for one that has no order here."""
        function, over, context = name_of(call), call.over, self.queries.context
        assert over is not None
        self._check(call, over)
        if function in RANKS:
            if call.arguments:
                raise context.error(
                    call, f"{function} has no arguments", given=to_sql(call), instead=f"{function}() OVER (…)"
                )
            return OrderedCall(function), Extent()
        if is_shift(call):
            return shift_of(context, self.expressions, call), Extent()
        if function in VALUES:
            nth = nth_of(context, call)
            value = self.expressions.bind(call.arguments[0])
            return OrderedCall(function, value, number=max(nth, 1)), self._frame(over)
        answer = self.expressions.bind(replace(call, over=None))
        plain = isinstance(answer, AggregateCall) and not has_modules(answer)
        return (answer, self._frame(over)) if plain else None

    def _check(self, call: s.Call, over: s.Over) -> None:
        if over.slide is not None or over.active:
            raise self.queries.context.error(
                over,
                "SLIDE and ACTIVE EXPIRATION are for streams of instants",
                given=to_sql(call),
                allowed="OVER (PARTITION BY … ORDER BY … frame)",
                instead="FROM stream [NOW], whose rows are instants",
            )

    # --- frames ------------------------------------------------------------------------------------------------------

    def _frame(self, over: s.Over) -> Extent:
        unit: Unit = "rows" if over.frame == "unbounded" else over.frame
        start, end = over.between or (s.FrameBound("preceding", over.size, at=over.at), s.FrameBound("current"))
        first, last = self._distance(start, unit), self._distance(end, unit)
        backwards = (start.kind == "following" and first is None) or (end.kind == "preceding" and last is None)
        if backwards or (first is not None and last is not None and first > last):
            raise self.queries.context.error(
                start,
                "a frame ends before it begins",
                given=to_sql(over),
                allowed="in the order UNBOUNDED PRECEDING, n PRECEDING, CURRENT ROW, n FOLLOWING, UNBOUNDED FOLLOWING",
            )
        return Extent(unit, first, last)

    def _distance(self, bound: s.FrameBound, unit: Unit) -> Distance:
        if bound.kind == "current":
            return 0
        if bound.size is None:
            return None
        size = self._rows(bound) if unit == "rows" else self._range(bound)
        return -size if bound.kind == "preceding" else size

    def _rows(self, bound: s.FrameBound) -> int:
        size = bound.size
        if not isinstance(size, s.Number) or not isinstance(size.value, int):
            raise self.queries.context.error(bound, "ROWS counts rows", given=to_sql(bound), allowed="a number")
        return size.value

    def _range(self, bound: s.FrameBound) -> int | float:
        """A distance in the values of the order: a number, or of times a duration."""
        kind, size = self.by[0].type(self.item.stream.schema), bound.size
        assert isinstance(size, (s.Number, s.Duration))
        timed, number = kind in (Type.DATETIME, Type.DATE), isinstance(size, s.Number)
        whole = _ONE_DAY if kind is Type.DATE else 1
        fits = number != timed and len(self.by) == 1 and (timed or kind.is_integer or kind.is_floating)
        if fits and timed:
            ticks = duration_of(self.queries.context, size)
            if ticks % whole == 0:
                return ticks // whole
        elif fits and isinstance(size, s.Number) and (kind.is_floating or isinstance(size.value, int)):
            return size.value
        raise self.queries.context.error(
            bound,
            "a distance of RANGE is one of the values of its ORDER BY",
            given=f"{to_sql(size)}, of ORDER BY {', '.join(to_sql(key) for key in self.over.order)}",
            allowed="a number where one number orders the rows, a duration where one DATETIME does, days for a DATE",
            instead="ROWS BETWEEN 3 PRECEDING AND CURRENT ROW; RANGE UNBOUNDED PRECEDING",
        )
