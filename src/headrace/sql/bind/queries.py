"""Queries: FROM, its joins, WHERE, grouping, HAVING, the list of SELECT, and the clauses after them.

The order of a SELECT's parts is that of rule 8.4: a window makes a relation of a stream, WHERE, joins and groups work
on relations, and each window's result is a stream again. Where a window divides the time axis (rule 5) it does not
matter whether events are filtered before it or inside it, so they are filtered before. A window that counts tuples is
filled first and filtered then; `[… WHERE p]` filters before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from headrace.api.grouped import Grouped
from headrace.api.ranking import distinct_rows, first_rows, top_node
from headrace.api.stream import Stream
from headrace.expr import Expr, col, lit
from headrace.expr.nodes import Column
from headrace.plan.framed import frame_node
from headrace.plan.instants import has_points
from headrace.plan.nodes import Select
from headrace.plan.ordered import Time, Tuples
from headrace.plan.windows import Snapshot
from headrace.schema import Schema
from headrace.sql import syntax as s
from headrace.sql.aggregates.adapters.builtin import as_module
from headrace.sql.aggregates.adapters.online import online
from headrace.sql.bind.answers import over_groups
from headrace.sql.bind.beside import beside_rows
from headrace.sql.bind.catalog import Catalog, TableEntry
from headrace.sql.bind.clauses import behind_over, in_order, peek, peeks, qualified, resolved, with_windows
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions, has_aggregate, inside
from headrace.sql.bind.following import ends_behind, with_rows_of_time
from headrace.sql.bind.frames import depth, frame_between, is_shift, shifted, sliding_last, with_frames
from headrace.sql.bind.from_clause import FromClause
from headrace.sql.bind.grouping import Grouping, column_name
from headrace.sql.bind.grouping_sets import by_sets, has_sets
from headrace.sql.bind.recursion import with_named
from headrace.sql.bind.relations import Item, lasting, plain, same_columns, standing
from headrace.sql.bind.returned import check_active, gives_rows, with_frame, with_rows
from headrace.sql.bind.rewritten_calls import with_groups, with_plain_calls
from headrace.sql.bind.scope import Relation, Scope, visible
from headrace.sql.bind.sets import combined, one_row, values, without_duplicates
from headrace.sql.bind.sorting import sort_keys
from headrace.sql.bind.stored import always, check_union, is_relation, stored
from headrace.sql.bind.subqueries import Subqueries
from headrace.sql.bind.times import event_columns, window_columns, window_times
from headrace.sql.bind.unnest import is_unnest, no_stream
from headrace.sql.bind.values import duration_of, unit_of
from headrace.sql.bind.window_functions import around_windows, in_column_windows, with_brackets
from headrace.sql.bind.windows import Tick, Windowing, bracketed
from headrace.sql.printer import to_sql

__all__ = ["Queries"]


@dataclass(frozen=True)
class Queries:
    """Binds queries over a catalog."""

    context: Context
    catalog: Catalog
    #: Whether columns are renamed by position, so that equal names are allowed.
    renames: bool = False

    def query(self, part: s.Query) -> Stream:
        """The stream of a query's answers; where they go is the statement's."""
        if part.into is not None:
            raise self.context.error(part.into, "INTO stands behind a whole statement", instead="the query without it")
        self._check_tick(part)
        tick = Tick(part.tick or self.catalog.settings["tick"], part.tick_by)
        stream = plain(with_named(self, part).body(part.body, tick))
        return stream.final() if part.emit == "final" else stream

    def _check_tick(self, part: s.Query) -> None:
        sized = any(isinstance(one, s.SizeWindow) for one in inside(part.body))
        if part.tick not in (None, "tuple") and not sized:
            raise self.context.error(
                part.tick_by or part,
                "TICK says what windows of SIZE and EVERY react to, and there is none",
                given=f"TICK {str(part.tick).upper()}",
                allowed="TICK behind a query with [SIZE … EVERY …]",
            )

    def named(self, name: s.Name) -> Stream:
        """The stream of a name."""
        entry = self.catalog.stream(self.context, name)
        if isinstance(entry, TableEntry):
            raise self.context.error(
                name,
                f"{entry.name} is a table: it has rows, but no events",
                given=name.text,
                allowed="streams; a table is joined to one",
                instead=f"SELECT … FROM stream JOIN {entry.name} ON …",
            )
        if entry.node is None:
            raise self.context.error(
                name,
                f"the stream {entry.name!r} has no source yet",
                given=name.text,
                instead=f"CREATE STREAM {entry.name} (…) SOURCE FILE ('…', ','), or INSERT INTO {entry.name} SELECT …",
            )
        return entry.stream

    def body(self, part: s.Body, tick: Tick) -> Stream:
        """The rows of a SELECT, of VALUES, or of set operations over them."""
        # A long chain nests to the left: a loop unrolls it, to avoid deep recursion.
        operations: list[s.SetOperation] = []
        while isinstance(part, s.SetOperation):
            operations.append(part)
            part = part.left
        found = (
            self.select(part, tick) if isinstance(part, s.Select) else values(self.context, part, self.catalog.known)
        )
        for operation in reversed(operations):
            left, right = plain(found), plain(self.body(operation.right, tick))
            check_union(self.context, self.catalog, operation, left, right)
            with self.context.at(operation):
                found = combined(self.context, operation, left, right)
        return found

    # --- one SELECT --------------------------------------------------------------------------------------------------

    def select(self, part: s.Select, tick: Tick) -> Stream:
        """The stream of one SELECT."""
        body = with_brackets(self, around_windows(part), tick)
        if not isinstance(body, s.Select):
            return self.body(body, tick)
        part = body
        if part.qualify is not None:
            rows = qualified(self, part, tick)
            return without_duplicates(plain(rows)) if part.distinct else rows
        item, part = self.rows(part, tick)
        return self.selected(part, item, tick)

    def rows(self, part: s.Select, tick: Tick, around: Item | None = None) -> tuple[Item, s.Select]:
        """The rows of FROM, beside those `around` a sub-query that uses them, and the SELECT that is left."""
        part = with_plain_calls(self.context, with_windows(self.context, part), self.catalog.known)
        part = online(with_groups(self.context, part, self.catalog.known), self.catalog.known)
        item, part = FromClause(self, part, tick, around).bound()
        return item, resolved(self.context, part, Scope(self.context, item.relations))

    def selected(self, part: s.Select, item: Item, tick: Tick) -> Stream:
        """The stream of a SELECT over the rows of its FROM."""
        if part.limit is not None and part.limit.count == 0:
            return self.selected(replace(part, order=(), limit=None), item, tick).where(lit(value=False))
        answers = over_groups(self, part, item, tick)
        if answers is not None:
            return answers
        if has_sets(part):
            return by_sets(self, part, item, tick)
        part, item = Subqueries(self, tick).applied(part, item)
        if item.windowing is None and item.windows is None and self.table(part.source) is None:
            part = with_frame(part, self.catalog.known)
        aggregates = part.having is not None or any(has_aggregate(e, self.catalog.known) for e in part.entries)
        windowed = item.windowing is not None or item.windows is not None
        # Groups of a stream of instants, without a window, are the stream itself: nothing is computed for them.
        framed = any(call.over for entry in part.entries for call in _calls(entry))
        lasts = not has_points(item.stream.node) and not framed
        if aggregates or (bool(part.group) and (windowed or lasts)):
            return Grouping(self, part, window_times(part, item)).stream()
        framed = framed or any(call.over for key in part.order for call in _calls(key))
        if framed and part.limit is not None and item.windowing is None and not part.distinct:
            return behind_over(self, part, item, tick)
        return self._listed(part, item)

    def expressions(self, item: Item, **more: Any) -> Expressions:
        """The binder for expressions over the columns of FROM."""
        scope = Scope(self.context, item.relations)
        schema = Schema((*item.stream.schema, *item.window_times)) if item.window_times else item.stream.schema
        return Expressions(self.context, scope, schema, self.catalog.known, **more)

    def _listed(self, part: s.Select, item: Item) -> Stream:
        """Without groups: a row for every row, of every window if there is one."""
        given: dict[s.Call, str] = {}
        self._check_over(part, item.windowing)
        windowed = item.windowing is not None
        part = in_order(self, part, item)
        if part.limit is not None and peeks(part, item):
            item = peek(self, part, self._filtered(part, item))
        elif part.limit is not None or part.order:
            item = self._first(part, item)
        elif part.distinct and (item.windowing is not None or item.windows is not None):
            return self._distinct(part, item)
        elif item.windowing is not None:
            over_time = item.windowing.divides_time
            item = self._filtered(part, item) if over_time else item
            item = self._contents(item)
            item = item if over_time else self._filtered(part, item)
        else:
            item = self._filtered(part, item)
            item, given = beside_rows(self, item, _framed(part), self._called(part, item))
            part = with_frames(self, part, item, given)
            item, given = self._over(part, item, given)
            item, given = shifted(self, part, item, given)
            part, item = with_rows(self, part, item, given)
        item = window_columns(self.context, part, item) if windowed else item
        outputs = self._outputs(part.entries, item, given)
        columns = [(name, col(name)) for name in item.stream.schema.names]
        if not same_columns(outputs, columns):
            with self.context.at(part.entries[0]):
                item = replace(item, stream=Stream(Select(item.stream.node, tuple(outputs))))
        return without_duplicates(plain(item.stream)) if part.distinct and part.limit is None else item.stream

    def _distinct(self, part: s.Select, item: Item) -> Stream:
        """DISTINCT per window: each row once for every window that contains it."""
        item, joined = standing(part, item)
        windowing = item.windowing
        assert windowing is not None
        where = None
        if windowing.divides_time:
            item = self._filtered(part, item)
        elif part.where is not None:
            where = self.expressions(item).predicate(part.where)
        outputs = tuple(self._outputs(part.entries, item, {}))
        with self.context.at(windowing.part):
            divided = Grouped(item.stream, windowing.keys).window(windowing.window)
            node, keys = divided.grouped.stream.node, divided.grouped.keys
            found = Stream(distinct_rows(node, keys, divided.over, divided.policy, outputs, where))
        return lasting(found, joined)

    def _check_over(self, part: s.Select, windowing: Windowing | None) -> None:
        calls = [one for entry in part.entries for one in inside(entry) if isinstance(one, s.Call) and one.over]
        if calls and (windowing is not None or part.limit is not None):
            raise self.context.error(
                calls[0],
                "OVER looks back from each tuple of a stream: a window in FROM, or LIMIT of DISTINCT, does not fit",
                given=to_sql(calls[0]),
                allowed="one of them in a SELECT",
                instead="a sub-select with the one, and the other around it",
            )

    def _filtered(self, part: s.Select, item: Item) -> Item:
        if part.where is None:
            return item
        return replace(item, stream=item.stream.where(self.expressions(item).predicate(part.where)))

    def _contents(self, item: Item) -> Item:
        assert item.windowing is not None
        windowing = item.windowing
        with self.context.at(windowing.part):
            divided = Grouped(item.stream, windowing.keys).window(windowing.window)
            return replace(item, stream=divided.contents(), windowing=None)

    def _first(self, part: s.Select, item: Item) -> Item:
        """ORDER BY and LIMIT: the first rows of each window and key."""
        self.check_limit(part)
        assert part.limit is not None
        if part.where is not None and item.windowing is not None and not item.windowing.divides_time:
            raise self.filtered_first(part.where, "LIMIT")
        item, joined = standing(part, self._filtered(part, item))
        expressions = self.expressions(item)
        by, descending = self.order(part, expressions)
        keys = [expressions.bind(key) for key in part.limit.by]
        distinct = [expr for _, expr in self._outputs(part.entries, item, {})] if part.distinct else []
        self._check_distinct(part, expressions, distinct)
        windowing = item.windowing
        limit = part.limit
        with self.context.at(limit):
            if windowing is None:
                divided = Grouped(item.stream, tuple((key.name, key) for key in keys)).window(Snapshot())
                node, groups = divided.grouped.stream.node, divided.grouped.keys
                top = first_rows(
                    node, groups, divided.policy,
                    k=limit.count, by=by, descending=descending, distinct=distinct, skip=limit.offset,
                )  # fmt: skip
            else:
                divided = Grouped(item.stream, windowing.keys).window(windowing.window)
                node, groups = divided.grouped.stream.node, divided.grouped.keys
                top = top_node(
                    node, groups, divided.over, divided.policy,
                    k=limit.count, by=by, descending=descending, each=keys, distinct=distinct, skip=limit.offset,
                )  # fmt: skip
        return replace(item, stream=lasting(Stream(top), joined), windowing=None)

    def check_limit(self, part: s.Select) -> None:
        """Refuse ORDER BY without LIMIT."""
        if part.order and part.limit is None:
            raise self.context.error(
                part.order[0],
                "a stream has no end, so it cannot be sorted as a whole",
                given=f"ORDER BY {to_sql(part.order[0])}",
                allowed="ORDER BY … LIMIT k: the k that come first, of every window",
                instead=f"ORDER BY {to_sql(part.order[0])} LIMIT 10",
            )

    def _check_distinct(self, part: s.Select, expressions: Expressions, distinct: Sequence[Expr]) -> None:
        """Check that rows which are equal in the list have equal rank."""
        assert part.limit is not None
        columns = {expr.name for expr in distinct if isinstance(expr, Column)}
        for value in (*(key.value for key in part.order), *part.limit.by):
            bound = expressions.bind(value)
            if part.distinct and str(bound) not in map(str, distinct) and not bound.columns() <= columns:
                raise self.context.error(
                    value,
                    "DISTINCT leaves one of equal rows, and this may differ among them",
                    given=to_sql(value),
                    allowed="what stands in the list of SELECT DISTINCT",
                    instead=f"SELECT DISTINCT …, {to_sql(value)}",
                )

    def filtered_first(self, where: s.Expression, what: str) -> Exception:
        """The error for a clause that cannot process part of a window of tuples."""
        return self.context.error(
            where,
            f"WHERE filters the content of a window of tuples, and {what} needs all of it",
            given=f"WHERE {to_sql(where)}",
            allowed="a condition in the brackets, which filters before tuples are counted",
            instead=f"[SIZE … WHERE {to_sql(where)}]",
        )

    def order(self, part: s.Select, expressions: Expressions) -> tuple[list[Expr], tuple[bool, ...]]:
        """The sort keys, and whether each descends."""
        if not part.order:  # any rows, but the same whatever the order of their arrival: columns decide
            return [col(visible(expressions.schema.names)[0])], (False,)
        return sort_keys(expressions, part.order)

    def _outputs(self, entries: Sequence[s.Entry], item: Item, given: Mapping[s.Call, str]) -> list[tuple[str, Expr]]:
        expressions = self.expressions(item, given=given)
        outputs: list[tuple[str, Expr, s.Entry]] = []
        for entry in entries:
            if isinstance(entry.value, s.Star):
                outputs += [(name, col(theirs), entry) for name, theirs in expressions.scope.star(entry.value)]
            else:
                outputs.append((column_name(entry), expressions.bind(entry.value), entry))
        return self.unique(outputs)

    def unique(self, outputs: Sequence[tuple[str, Expr, s.Entry]]) -> list[tuple[str, Expr]]:
        """Outputs with distinct names; where columns are renamed anyway, equal names are numbered."""
        seen: dict[str, s.Entry] = {}
        for name, _, entry in outputs:
            if name in seen and not self.renames:
                unwritten = entry.alias is not None and entry.alias.at == entry.at  # a column of rows has its name
                value = seen[name].value if unwritten else entry.value
                instead = "the columns by their names" if isinstance(value, s.Star) else f"{to_sql(value)} AS other"
                given = self.context.text[slice(*entry.at)]
                raise self.context.error(entry, f"two columns have the name {name!r}", given=given, instead=instead)
            seen[name] = entry
        found: dict[str, Expr] = {}
        for name, expr, _ in outputs:
            numbered = (f"{name} {number}" for number in count(2))
            found[name if name not in found else next(one for one in numbered if one not in seen | found)] = expr
        return list(found.items())

    # --- OVER --------------------------------------------------------------------------------------------------------

    def _over(self, part: s.Select, item: Item, given: dict[s.Call, str]) -> tuple[Item, dict[s.Call, str]]:
        """Add the results of OVER as columns, frame by frame."""
        frames: dict[s.Over, list[s.Call]] = {}
        calls = [call for call in _framed(part) if not is_shift(call) and call not in given]
        rows = [call for call in calls if gives_rows(call, self.catalog.known)]
        for call in dict.fromkeys(call for call in calls if call not in rows):
            assert call.over is not None
            frames.setdefault(call.over, []).append(call)
        frames = dict(sorted(frames.items(), key=lambda frame: max(map(depth, frame[1]))))
        called = self._called(part, item)
        for over, wanted in sliding_last(self.context, frames, rows=bool(rows)):
            names = {call: called.get(call, f"_sql_over{len(given) + number}") for number, call in enumerate(wanted)}
            expressions = self.expressions(item, aggregates=True, given=given)
            outputs = tuple((name, expressions.bind(replace(call, over=None))) for call, name in names.items())
            if over.active:
                outputs = tuple((name, as_module(expr, item.stream.schema)) for name, expr in outputs)
            keys = [expressions.bind(key) for key in over.partition]
            check_active(self, part, over)
            if ends_behind(over):
                unit = unit_of(item.stream.node)
                item = replace(item, stream=with_rows_of_time(self, over, item.stream, keys, outputs, unit))
                given |= names
                continue
            with self.context.at(over):
                made = item.stream.group_by(*keys).over(**self.frame(over, item.stream))
                # With its stamps, so that the next frame has the same order of tuples.
                node = frame_node(
                    made.grouped.stream.node, made.grouped.keys, made.frame, outputs, made.policy, active=over.active
                )
                item = replace(item, stream=Stream(node))
            given |= names
        return item, given

    def _called(self, part: s.Select, item: Item) -> dict[s.Call, str]:
        """The names of calls that are entries of the list, unless a column has that name."""
        taken = [*item.stream.schema.names, *(column_name(entry) for entry in part.entries)]
        named = [(entry.value, column_name(entry)) for entry in part.entries]
        return {call: name for call, name in named if isinstance(call, s.Call) and taken.count(name) == 1}

    def frame(self, over: s.Over, stream: Stream) -> dict[str, Any]:
        """The arguments for `over` of a stream."""
        unit = unit_of(stream.node)
        frame: dict[str, Any] = self.policy
        if over.between:
            return frame | frame_between(self.context, over, unit)
        if over.frame == "rows":
            assert over.size is not None
            frame["rows"] = self._count(over.size, "ROWS")
        elif over.frame == "range":
            assert isinstance(over.size, (s.Duration, s.Number))
            frame["range"] = duration_of(self.context, over.size, unit)
        if over.slide is not None:
            frame["slide"] = self._slide(over, over.slide, unit)
        return frame

    @property
    def policy(self) -> dict[str, Any]:
        """The policy for failing modules, if it is not the default."""
        wanted = self.catalog.settings["on_error"]
        return {} if wanted == "fail" else {"on_error": wanted}

    def _slide(self, over: s.Over, slide: s.Expression, unit: int) -> Tuples | Time:
        with self.context.at(slide):
            if over.frame == "rows" or (over.frame == "unbounded" and isinstance(slide, s.Number)):
                return Tuples(self._count(slide, "SLIDE of ROWS" if over.frame == "rows" else "SLIDE"))
            assert isinstance(slide, (s.Duration, s.Number))
            return Time(duration_of(self.context, slide, unit))

    def _count(self, part: s.Expression, what: str) -> int:
        if not isinstance(part, s.Number) or not isinstance(part.value, int):
            raise self.context.error(part, f"{what} counts tuples", given=to_sql(part), allowed="a number")
        return part.value

    # --- FROM --------------------------------------------------------------------------------------------------------

    def timed_item(self, part: s.Select, place: s.FromItem, tick: Tick) -> Item:
        """An item with the times of its events as columns, where the SELECT uses them."""
        return event_columns(self.context, part, self.item(place, tick), alone=all(map(is_unnest, part.joins)))

    def table(self, part: s.FromItem) -> TableEntry | None:
        """The table that the item names, or None."""
        entry = self.catalog.stream(self.context, part.stream) if isinstance(part.stream, s.Name) else None
        if not isinstance(entry, TableEntry):
            return None
        if part.brackets:
            raise self.context.error(part.brackets[0], "a table has no windows", given=to_sql(part))
        return entry

    def item(self, part: s.FromItem, tick: Tick) -> Item:
        """What stands in FROM."""
        if isinstance(part.stream, s.WindowFunction):
            place = replace(part.stream.rows, alias=part.alias or part.stream.rows.alias)
            return in_column_windows(self, part.stream, self.item(place, tick))
        table = self.table(part)
        if table is not None:
            return stored(table, part)
        if part == s.NO_SOURCE:
            return Item(one_row(), (Relation("", {}),), shown=(one_row(),))
        if isinstance(part.stream, s.Subquery):
            stream = replace(self, renames=False).query(part.stream.query)
            name = part.alias.text if part.alias else ""
            rows = is_relation(part.stream.query, self.catalog)
        elif isinstance(part.stream, s.Unnest):
            raise no_stream(self.context, part.stream)
        else:
            name = (part.alias or part.stream).text
            stream = self.named(part.stream)
            rows = self.catalog.holds_rows(part.stream.text)
        whole = always(stream) if rows else None
        relation = self.columns_named(part, Relation(name, {column: column for column in visible(stream.schema.names)}))
        relation, stream, windowing = bracketed(
            self.context, self.catalog.known, tick, relation, stream, part, self.policy
        )
        return Item(stream, (relation,), windowing, shown=(whole or stream,))

    def columns_named(self, part: s.FromItem, relation: Relation) -> Relation:
        """A relation with the columns that its alias names, by position."""
        if len(part.columns) > len(relation.columns):
            raise self.context.error(
                part.columns[len(relation.columns)],
                f"there are only {len(relation.columns)} columns",
                given=", ".join(name.text for name in part.columns),
                allowed=", ".join(relation.columns),
            )
        names = [*(name.text for name in part.columns), *list(relation.columns)[len(part.columns) :]]
        return replace(relation, columns=dict(zip(names, relation.columns.values(), strict=True)))


def _framed(part: s.Select) -> list[s.Call]:
    """The calls with OVER in the list, inner ones first."""
    return [one for entry in part.entries for one in reversed(inside(entry)) if isinstance(one, s.Call) and one.over]


def _calls(part: s.Part) -> list[s.Call]:
    return [one for one in inside(part) if isinstance(one, s.Call)]
