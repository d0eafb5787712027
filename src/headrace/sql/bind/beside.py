"""Window functions over rows that last: `OVER (PARTITION BY … [ORDER BY … [frame]])`.

The rows of a partition are those that hold at each instant (rule 8.4), so an answer is about all of them, whenever they
began, and an ORDER BY may name any column. A row is divided where an answer beside it changes. Frames without an ORDER
BY over such rows (ROWS, RANGE), and aggregates of modules, look back in the order of their starts, as those of a stream
do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING

from headrace.api.ranking import ranked_node
from headrace.api.stream import Stream
from headrace.expr import AggregateCall, Expr, col, lit
from headrace.expr.nodes import Case
from headrace.plan.around import Around, Distance, Unit
from headrace.plan.instants import has_points
from headrace.plan.operate import Place
from headrace.schema import STAMPS, Type
from headrace.sql import syntax as s
from headrace.sql.bind.expressions import Expressions
from headrace.sql.bind.frames import RANKS, VALUES, is_shift, name_of, nth_of, shift_arguments
from headrace.sql.bind.grouping import has_modules
from headrace.sql.bind.relations import Item
from headrace.sql.bind.returned import gives_rows
from headrace.sql.bind.values import duration_of
from headrace.sql.printer import to_sql
from headrace.time import duration

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["beside_rows"]

_ONE_DAY = duration("1 day")
_ONE_ROW = AggregateCall("count")


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
    """Calls over one partition in one order: a ranking with what each row sees of those around it."""

    queries: Queries
    item: Item
    #: One of the calls.
    call: s.Call
    places: dict[str, Place | Around] = field(default_factory=dict)
    #: The columns that are computed from others behind the ranking.
    above: dict[str, Expr] = field(default_factory=dict)

    @property
    def over(self) -> s.Over:
        assert self.call.over is not None
        return self.call.over

    @property
    def expressions(self) -> Expressions:
        return self.queries.expressions(self.item, aggregates=True)

    def answered(
        self, calls: Sequence[s.Call], called: Mapping[s.Call, str], given: dict[s.Call, str]
    ) -> tuple[Item, dict[s.Call, str]]:
        by = [self.expressions.bind(key.value) for key in self.over.order]
        names: dict[s.Call, str] = {}
        for call in calls:
            name = called.get(call, f"_sql_beside{len(given) + len(names)}")
            with self.queries.context.at(call):
                if self._place(name, call, by):
                    names[call] = name
        if not names:
            return self.item, given
        with self.queries.context.at(self.call):
            own = self.item.stream
            groups = own.group_by(*(self.expressions.bind(key) for key in self.over.partition))
            down = [key.descending for key in self.over.order]
            found = Stream(ranked_node(own.node, groups.keys, self._measured(by), down, self.places))
            kept = [name for name in own.schema.names if name not in STAMPS]
            answers = {name: self.above.get(name, col(name)) for name in names.values()}
            stream = found.select(*kept, **answers)
        return replace(self.item, stream=stream), given | names

    def _place(self, name: str, call: s.Call, by: Sequence[Expr]) -> bool:
        """Add the answer of a call; return whether it has one here."""
        function, over = name_of(call), call.over
        assert over is not None
        self._check(call, over)
        if function in RANKS:
            if call.arguments:
                raise self.queries.context.error(
                    call, f"{function} has no arguments", given=to_sql(call), instead=f"{function}() OVER (…)"
                )
            self.places[name] = function  # type: ignore[assignment]
        elif is_shift(call):
            value, steps, default = shift_arguments(self.queries.context, call)
            distance = -steps if function == "lag" else steps
            self.places[name] = Around(self.expressions.bind(value), "rows", distance, distance, nth=1)
            if default is not None:
                there = f"_sql_there{len(self.places)}"
                self.places[there] = Around(_ONE_ROW, "rows", distance, distance)
                absent = col(there) == lit(0)
                self.above[name] = Case(((absent, self.expressions.bind(default)),), col(name))
        elif function in VALUES:
            value_of = self.expressions.bind(call.arguments[0]) if call.arguments else lit(None)
            nth = nth_of(self.queries.context, call)
            self.places[name] = Around(value_of, *self._frame(over, by), nth=nth)
        else:
            answer = self.expressions.bind(replace(call, over=None))
            if not isinstance(answer, AggregateCall) or has_modules(answer):
                return False
            self.places[name] = Around(answer, *self._frame(over, by))
        return True

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

    def _frame(self, over: s.Over, by: Sequence[Expr]) -> tuple[Unit, Distance, Distance]:
        """The unit of a frame, its start and its end."""
        unit: Unit = "rows" if over.frame == "unbounded" else over.frame
        start, end = over.between or (s.FrameBound("preceding", over.size, at=over.at), s.FrameBound("current"))
        first, last = self._distance(start, unit, by), self._distance(end, unit, by)
        backwards = (start.kind == "following" and first is None) or (end.kind == "preceding" and last is None)
        if backwards or (first is not None and last is not None and first > last):
            raise self.queries.context.error(
                start,
                "a frame ends before it begins",
                given=to_sql(over),
                allowed="in the order UNBOUNDED PRECEDING, n PRECEDING, CURRENT ROW, n FOLLOWING, UNBOUNDED FOLLOWING",
            )
        return unit, first, last

    def _distance(self, bound: s.FrameBound, unit: str, by: Sequence[Expr]) -> Distance:
        if bound.kind == "current":
            return 0
        if bound.size is None:
            return None
        size = self._rows(bound) if unit == "rows" else self._range(bound, by)
        return -size if bound.kind == "preceding" else size

    def _rows(self, bound: s.FrameBound) -> int:
        size = bound.size
        if not isinstance(size, s.Number) or not isinstance(size.value, int):
            raise self.queries.context.error(bound, "ROWS counts rows", given=to_sql(bound), allowed="a number")
        return size.value

    def _range(self, bound: s.FrameBound, by: Sequence[Expr]) -> int | float:
        """A distance in the values of the order: a number, or of times a duration."""
        kind, size = by[0].type(self.item.stream.schema), bound.size
        assert isinstance(size, (s.Number, s.Duration))
        timed, number = kind in (Type.DATETIME, Type.DATE), isinstance(size, s.Number)
        whole = _ONE_DAY if kind is Type.DATE else 1
        fits = number != timed and len(by) == 1 and (timed or kind.is_integer or kind.is_floating)
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

    def _measured(self, by: Sequence[Expr]) -> list[Expr]:
        """The order; times as numbers where a frame measures distances in them."""
        if not any(isinstance(one, Around) and one.measures for one in self.places.values()):
            return list(by)
        kind = by[0].type(self.item.stream.schema)
        if kind is Type.DATETIME:
            return [by[0].cast("LONG")]
        return [by[0] - lit(date(1970, 1, 1))] if kind is Type.DATE else list(by)
