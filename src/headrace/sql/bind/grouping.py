"""SELECT with aggregates: groups, one window, HAVING, and the order of answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.api.checks import aggregate_name
from headrace.api.every_instant import aggregate_node
from headrace.api.grouped import Grouped
from headrace.api.ranking import first_rows, top_node
from headrace.api.stream import Stream
from headrace.api.times import payloads
from headrace.expr import AggregateCall, Expr, col, count
from headrace.expr import nodes as engine
from headrace.expr.aggregates import filtered, has_aggregates
from headrace.expr.times import EventTime
from headrace.modules import ModuleCall
from headrace.plan.calendar import Calendar
from headrace.plan.instants import has_points
from headrace.plan.windows import Grid, Hopping, Snapshot
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions, has_aggregate
from headrace.sql.bind.listed import by_window, named_in_list, order_of_answers
from headrace.sql.bind.relations import Item, lasting, same_columns, standing
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.bind.times import as_times
from headrace.sql.bind.windows import Windowing
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["Grouping", "column_name", "not_grouped", "once"]


@dataclass(frozen=True)
class Grouping:
    """A SELECT with aggregates: keys, one window, outputs, HAVING."""

    queries: Queries
    part: s.Select
    item: Item

    @property
    def context(self) -> Context:
        return self.queries.context

    def stream(self) -> Stream:
        """The stream of its answers."""
        item, joined = standing(self.part, self.item)
        windowing = item.windowing or self._every_instant(item)
        hidden: Expr | None = None
        if self.part.where is not None:
            where = self.queries.expressions(item).predicate(self.part.where)
            if windowing.divides_time:
                item = replace(item, stream=item.stream.where(where))
            else:
                hidden = where
                self._check_modules(item, self.part.where)
        keys = self._keys(item, windowing)
        outputs = self._split(item, keys, hidden)
        made = self._aggregated(item, windowing, keys, outputs)
        made = self._listed(made, keys, outputs, merged=item.windowing is None)
        if not by_window(self.part):
            self.queries.check_limit(self.part)
        return lasting(self._chosen(made, windowing, grouped=bool(keys)), joined)

    def _every_instant(self, item: Item) -> Windowing:
        """The windows of a stream without one, which must last: a relation at every instant (rule 8.4)."""
        if has_points(item.stream.node):
            raise self._blocked()
        return Windowing(self.part.source, Snapshot(), (), self.queries.policy)

    def _check_modules(self, item: Item, where: s.Expression) -> None:
        """Built-in aggregates ignore nulls, and so rows that a condition excludes; a module would see them."""
        expressions = self.queries.expressions(item, aggregates=True)
        asked = [entry.value for entry in self.part.entries if not isinstance(entry.value, s.Star)]
        if self.part.having is not None:
            asked.append(named_in_list(self.part.having, self.part.entries, expressions.scope))
        for value in asked:
            if has_modules(expressions.bind(value)):
                raise self.queries.filtered_first(where, to_sql(value))

    def _blocked(self) -> Exception:
        blocking = next(
            (entry for entry in self.part.entries if has_aggregate(entry, self.queries.catalog.known)),
            self.part.entries[0],
        )
        source = to_sql(self.part.source)
        joined = bool(self.part.joins)
        rows = f"FROM (SELECT … FROM {source} JOIN …)" if joined else f"FROM {source}"
        return self.context.error(
            blocking,
            "an aggregate over a stream of instants without a window is blocking: its answer would never come",
            given=to_sql(blocking) if joined else source,
            allowed="aggregates over a window, OVER (… PRECEDING), which answers for every tuple, or rows that last",
            instead=f"a window: {rows} [TUMBLING 10 s] or [SIZE 100]; "
            f"or a lifetime: {rows} [RANGE 10 s] or [RANGE UNBOUNDED]",
        )

    def _keys(self, item: Item, windowing: Windowing) -> list[tuple[str, Expr]]:
        keys = [(self._called(expr) or name, expr) for name, expr in windowing.keys]
        texts = {str(expr) for _, expr in keys}
        expressions = self.queries.expressions(item)
        added = 0
        for entry in self.part.group:
            expr = as_times(expressions.bind(named_in_list(entry.value, self.part.entries, expressions.scope)))
            if isinstance(expr, EventTime):  # windows divide the groups anyway
                continue
            if str(expr) not in texts:
                name = entry.alias.text if entry.alias else self._called(expr) or column_name(entry)
                keys.append((name, expr))
                texts.add(str(expr))
                added += 1
        if windowing.keys and added and not windowing.divides_time:
            raise self.context.error(
                self.part.group[0],
                "windows that count tuples are divided by PARTITIONED BY or by GROUP BY, not by different columns",
                given=", ".join(map(to_sql, self.part.group)),
                allowed=", ".join(name for name, _ in windowing.keys),
            )
        return keys

    def _called(self, expr: Expr) -> str | None:
        """The name of a key in the list, unless it is a column under its own name."""
        expressions = self.queries.expressions(self.item, aggregates=True)
        for entry in self.part.entries:
            if isinstance(entry.value, s.Star) or has_aggregate(entry, self.queries.catalog.known):
                continue
            if str(expressions.bind(entry.value)) == str(expr):
                return column_name(entry)
        return None

    def _split(self, item: Item, keys: list[tuple[str, Expr]], hidden: Expr | None) -> _Outputs:
        expressions = self.queries.expressions(item, aggregates=True)
        found = _Outputs({str(expr): name for name, expr in keys}, [], [], {})
        for entry in self.part.entries:
            if isinstance(entry.value, s.Star):
                raise self.context.error(entry, "* cannot be used with groups", instead="the columns of GROUP BY")
            expr = _within(as_times(expressions.bind(entry.value)), hidden)
            self._check_grouped(entry.value, found.over_keys(expr))
            found.add(column_name(entry, expr), expr, entry)
        if self.part.having is not None:
            having = named_in_list(self.part.having, self.part.entries, expressions.scope)
            condition = _within(as_times(expressions.predicate(having)), hidden)
            self._check_grouped(self.part.having, found.over_keys(condition))
            found.having = found.over_answers(condition)
        if hidden is not None:
            alive = found.over_answers(count(where=hidden)) > 0
            found.having = alive if found.having is None else engine.Call("and", (alive, found.having))
        return found

    def _check_grouped(self, part: s.Expression, expr: Expr) -> None:
        outside = sorted(_outside(expr))
        if outside:
            raise not_grouped(self.context, part, outside[0])

    def _aggregated(self, item: Item, windowing: Windowing, keys: list[tuple[str, Expr]], found: _Outputs) -> Stream:
        outputs = found.calls or [("_sql_n", AggregateCall("count"))]
        with self.context.at(self.part.entries[0]):
            divided = Grouped(item.stream, tuple(keys)).window(windowing.window, **windowing.policy)
            if item.windowing is None:
                shown = [stream.node for stream in self.item.shown or (self.item.stream,)]
                made = Stream(aggregate_node(item.stream.node, tuple(keys), tuple(outputs), divided.policy, shown))
            else:
                made = divided.aggregate(**dict(outputs))
            return made if found.having is None else made.where(found.having)

    def _listed(self, made: Stream, keys: list[tuple[str, Expr]], found: _Outputs, *, merged: bool) -> Stream:
        """The columns of the list; `merged`: neighbours of one group that are equal in them are one answer."""
        wanted = self.queries.unique(found.wanted)
        there = [(name, col(name)) for name in made.schema.names]
        with self.context.at(self.part.entries[0]):
            if not merged:
                return made if same_columns(wanted, there) else Stream(payloads(made.node, tuple(wanted)))
            shown = {str(expr) for _, expr in wanted}
            hidden = [(f"_sql_key{i}", col(name)) for i, (name, _) in enumerate(keys) if str(col(name)) not in shown]
            apart = [*wanted, *hidden]  # all keys, so that equal answers of different groups stay separate
            listed = made if same_columns(apart, there) else Stream(payloads(made.node, tuple(apart)))
            whole = listed.coalesce()
            return whole.select(*(name for name, _ in wanted)) if hidden else whole

    def _chosen(self, made: Stream, windowing: Windowing, *, grouped: bool) -> Stream:
        """DISTINCT, ORDER BY and LIMIT among the answers of one window; where groups have their own, of one instant."""
        window, limit = windowing.window, self.part.limit
        # Answers of overlapping windows are separated by clipping them to the part where only their window is new.
        overlapping = isinstance(window, Grid) and window.overlap > 1
        if isinstance(window, Calendar) and overlapping and grouped and (limit is not None or self.part.distinct):
            raise self.context.error(
                self.part,
                "DISTINCT and LIMIT choose among the answers of a window, so calendar windows may not overlap here",
                given=str(window),
                allowed="hopping windows of one length, or TUMBLING",
                instead=f"TUMBLING {window.spans[0]}",
            )
        apart = made.set_duration(window.hop) if isinstance(window, Hopping) and overlapping else made
        found = self._first(apart, limit) if limit is not None else self._once(apart) if self.part.distinct else apart
        if not grouped or found is apart:
            return made  # without groups every window has one answer
        return found.set_duration(window.size) if isinstance(window, Hopping) and overlapping else found

    def _once(self, made: Stream) -> Stream:
        """Each answer once: of a window, or at every instant."""
        return once(made) if self._windowed else made.distinct()

    @property
    def _windowed(self) -> bool:
        return self.item.windowing is not None or self.item.windows is not None

    def _first(self, made: Stream, limit: s.Limit) -> Stream:
        names = {name: name for name in made.schema.names}
        scope = Scope(self.context, (Relation("", names),))
        expressions = Expressions(self.context, scope, made.schema, self.queries.catalog.known)
        chosen = order_of_answers(self.part, list(names))
        assert chosen.limit is not None
        by, descending = self.queries.order(chosen, expressions)
        keys = tuple((key.name, key) for key in (expressions.bind(key) for key in chosen.limit.by))
        distinct = [col(name) for name in names] if self.part.distinct else []
        with self.context.at(limit):
            divided = Grouped(made, keys).window(Snapshot())
            find = partial(top_node, window=divided.over) if self._windowed else first_rows
            top = find(
                made.node, divided.grouped.keys, policy=divided.policy,
                k=limit.count, by=by, descending=descending, distinct=distinct, skip=limit.offset,
            )  # fmt: skip
            return Stream(top)


def not_grouped(context: Context, part: s.Expression, column: str) -> Exception:
    """The error for a column that the answers of groups do not have."""
    return context.error(
        part,
        f"{column} is neither in GROUP BY nor in an aggregate",
        given=to_sql(part),
        allowed="columns of GROUP BY, and aggregates",
        instead=f"GROUP BY {column}, or last({column})",
    )


def once(stream: Stream) -> Stream:
    """Each payload at most once at every instant, for events that stay separate: points, and answers of windows."""
    names = stream.schema.names
    counted = stream.group_by(*names).window(Snapshot()).aggregate(_sql_n=AggregateCall("count"))
    return counted.select(*names)


@dataclass
class _Outputs:
    """The aggregates to compute, and the expressions over them."""

    keys: dict[str, str]
    calls: list[tuple[str, Expr]]
    wanted: list[tuple[str, Expr, s.Entry]]
    known: dict[str, str]
    having: Expr | None = None

    def add(self, name: str, expr: Expr, entry: s.Entry) -> None:
        """An entry of the list."""
        over = self.over_keys(expr)
        if not has_aggregates(over) or over.columns() - expr.columns() or _uses_keys(over):
            self.wanted.append((name, self.over_answers(expr), entry))
            return
        if str(expr) not in self.known:
            taken = {other for other, _ in self.calls} | set(self.keys.values())
            self.calls.append((name if name not in taken else f"_sql_{len(self.calls)}", expr))
            self.known[str(expr)] = self.calls[-1][0]
        self.wanted.append((name, col(self.known[str(expr)]), entry))

    def over_keys(self, expr: Expr) -> Expr:
        """An expression over the keys, by their names, and aggregates."""
        if str(expr) in self.keys:
            return _Key(self.keys[str(expr)])
        if isinstance(expr, AggregateCall):
            return expr
        return expr.with_children([self.over_keys(child) for child in expr.children])

    def over_answers(self, expr: Expr) -> Expr:
        """An expression over the results of the aggregates."""
        if str(expr) in self.keys:
            return col(self.keys[str(expr)])
        if str(expr) in self.known:
            return col(self.known[str(expr)])
        if isinstance(expr, AggregateCall):
            self.calls.append((f"_sql_{len(self.calls)}", expr))
            self.known[str(expr)] = self.calls[-1][0]
            return col(self.known[str(expr)])
        return expr.with_children([self.over_answers(child) for child in expr.children])


class _Key(engine.Column):
    """A key of the groups, as distinct from columns of the stream."""


def _uses_keys(expr: Expr) -> bool:
    return isinstance(expr, _Key) or any(map(_uses_keys, expr.children))


def _outside(expr: Expr) -> set[str]:
    """Columns that are neither in an aggregate nor a key."""
    if isinstance(expr, (AggregateCall, _Key)):
        return set()
    if isinstance(expr, engine.Column):
        return {expr.name}
    return set().union(*(_outside(child) for child in expr.children)) if expr.children else set()


def has_modules(expr: Expr) -> bool:
    """Whether an expression calls a module."""
    return isinstance(expr, ModuleCall) or any(map(has_modules, expr.children))


def _within(expr: Expr, where: Expr | None) -> Expr:
    """Aggregates over the tuples of a window that satisfy a condition: the others count as NULL."""
    if where is None:
        return expr
    if not isinstance(expr, AggregateCall):
        return expr.with_children([_within(child, where) for child in expr.children])
    return filtered(expr, where)


#: The names of columns of times, of which every answer has its own under the usual names.
_TIMES = {"le": "start", "re": "end"}


def column_name(entry: s.Entry, expr: Expr | None = None) -> str:
    """The name of a column: its alias, its own name, or its text."""
    if entry.alias is not None:
        return entry.alias.text
    if isinstance(entry.value, s.Column):
        name = entry.value.name.text
        return _TIMES.get(name.lower(), name)
    if isinstance(expr, AggregateCall) and not expr.children:
        return aggregate_name(expr)
    if isinstance(expr, AggregateCall) and isinstance(expr.argument, engine.Column):
        return aggregate_name(expr)
    return to_sql(entry.value)
