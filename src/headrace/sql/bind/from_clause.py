"""FROM: its items and joins, in an order that needs no cross product where an equality connects the items.

Joins run in the order of the text. Where items stand beside each other without a condition of their own (`FROM a, b
WHERE a.x = b.x`), the conditions of WHERE and of the inner joins around them decide: those about one item filter it,
those about several hold in the join that brings the last of them, and equalities among them are its keys. An item is
joined after one that an equality connects it with; groups of items that nothing connects are paired at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.errors import SqlError
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import TableEntry
from headrace.sql.bind.conditions import all_of, columns_of, conjuncts, has_subquery
from headrace.sql.bind.context import Context
from headrace.sql.bind.joins import Joins
from headrace.sql.bind.lateral import Lateral, answered, is_lateral
from headrace.sql.bind.relations import Item
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.bind.times import joined_columns
from headrace.sql.bind.unnest import all_unnested, is_unnest, unnested
from headrace.sql.bind.windows import Tick
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["FromClause"]

#: Joins that return every left row as it is, or parts of its lifetime: conditions on it may be applied before.
_KEEPS_LEFT = frozenset({"inner", "cross", "left", "semi", "anti", "clip"})


#: Words that other dialects have before JOIN; here they would parse as an alias.
_NO_JOINS = ("ASOF", "OUTER")


@dataclass(frozen=True)
class _Operand:
    """An item to be joined; a table that is not the first item is joined as one."""

    item: Item
    join: s.Join | None
    table: TableEntry | None = None


@dataclass(frozen=True)
class FromClause:
    """Binds FROM and its joins."""

    queries: Queries
    part: s.Select
    tick: Tick
    #: What a sub-query uses of the rows around it (`correlation.Domain`): it stands before the items of FROM.
    around: Item | None = None

    def bound(self) -> tuple[Item, s.Select]:
        """The rows of FROM, and the SELECT with the conditions of WHERE that are left."""
        part, queries = self.part, self.queries
        for place in (part.source, *(join.right for join in part.joins)):
            _check_alias(queries.context, place)
        if self.around is not None:
            return self._beside(self.around)
        first = queries.timed_item(part, part.source, self.tick)
        if all(map(is_unnest, part.joins)):
            return all_unnested(queries, first, part.joins), part
        return self.with_joins(first)

    def _beside(self, around: Item) -> tuple[Item, s.Select]:
        """The rows around a sub-query, joined with the items of its FROM."""
        part = self.part
        if part.source == s.NO_SOURCE:
            return around, part
        step = s.Join("cross", part.source, at=part.source.at)
        if all(join.kind in _KEEPS_LEFT for join in part.joins):
            found, rest = replace(self, part=replace(part, joins=(step, *part.joins))).with_joins(around)
            return found, replace(rest, joins=part.joins)
        item, rest = replace(self, around=None).bound()
        self._check_window(item, part.source)
        whole, where = self._planned([_Operand(around, None), _Operand(item, step)], rest.where, pushable=True)
        return whole, replace(rest, where=where)

    def with_joins(self, first: Item) -> tuple[Item, s.Select]:
        """The first item joined with the others."""
        part, queries = self.part, self.queries
        tables = [queries.table(place) for place in (part.source, *(join.right for join in part.joins))]
        steps = [self._step(join, table) for join, table in zip(part.joins, tables[1:], strict=True)]
        left, where = self._all_joined(self._joins.ready(first), steps)
        streams = [first] if tables[0] is None else []
        streams += [one.item for one in steps if isinstance(one, _Operand) and one.table is None]
        shown = tuple(stream for item in streams for stream in item.shown) or first.shown
        item = replace(joined_columns(queries.context, part, left), shown=shown)
        return item, part if where is part.where else replace(part, where=where)

    @property
    def _joins(self) -> Joins:
        return Joins(self.queries.context, self.queries.catalog.known)

    def _step(self, join: s.Join, table: TableEntry | None) -> _Step:
        if is_unnest(join) or is_lateral(join):
            return join
        try:
            item = self.queries.timed_item(self.part, join.right, self.tick)
        except SqlError:
            if self.around is not None and isinstance(join.right.stream, s.Subquery):
                return join  # it may use the rows around
            raise
        if table is not None:
            return _Operand(item, join, table)
        if self.around is not None:
            self._check_window(item, join.right)
        return _Operand(self._joins.ready(item), join)

    def _check_window(self, item: Item, place: s.FromItem) -> None:
        if item.windowing is not None or item.windows is not None:
            raise self.queries.context.error(
                place,
                "a sub-query over a window is connected with the rows outside by equalities in its WHERE",
                given=to_sql(place),
                allowed="WHERE inner.column = outer.column",
                instead="FROM (SELECT … FROM stream [TUMBLING 10 s] …), with the condition around it",
            )

    def _all_joined(self, left: Item, steps: list[_Step]) -> tuple[Item, s.Expression | None]:
        where = self.part.where
        while steps:
            run = _run(steps)
            if run:
                pushable = all(_kind(one) in _KEEPS_LEFT for one in steps[len(run) :])
                left, where = self._planned([_Operand(left, None), *run], where, pushable=pushable)
                steps = steps[len(run) :]
            else:
                left = self._joined(left, steps[0])
                steps = steps[1:]
        return left, where

    def _joined(self, left: Item, step: _Step) -> Item:
        if isinstance(step, s.Join):
            return self._dependent(left, step)
        assert step.join is not None
        left, right, join = answered(self._subqueries, left, step.item, step.join)
        if step.table is not None and right is step.item:
            return self._joins.with_table(left, step.table, right, join)
        return self._joins.joined(left, right, join)

    def _dependent(self, left: Item, join: s.Join) -> Item:
        """Rows with what is computed from each of them: the elements of a list, or a sub-query."""
        if is_unnest(join):
            return unnested(self.queries, left, join)
        seen: tuple[Relation, ...] = left.relations
        if not is_lateral(join) and self.around is not None:
            there = {(one.name, one.level) for one in self.around.relations}
            seen = tuple(one for one in seen if (one.name, one.level) in there)
        return self._subqueries.joined(left, join, seen)

    @property
    def _subqueries(self) -> Lateral:
        return Lateral(self.queries, self.tick)

    # --- the order of joins ------------------------------------------------------------------------------------------

    def _planned(
        self, operands: list[_Operand], where: s.Expression | None, *, pushable: bool
    ) -> tuple[Item, s.Expression | None]:
        """The join of these items, and what is left of WHERE."""
        kept = [] if pushable else conjuncts(where)
        pool = conjuncts(where) if pushable else []
        conditions: list[tuple[frozenset[int], s.Expression]] = []
        answers: list[s.Expression] = []
        ons = [one for operand in operands if operand.join is not None for one in conjuncts(operand.join.on)]
        for one in (*ons, *pool):
            used = None if has_subquery(one) else self._used(one, operands)
            if has_subquery(one) and any(one is other for other in ons):
                answers.append(one)
            elif used is None or not used:
                kept.append(one)
            else:
                conditions.append((used, one))
        operands, conditions = self._filtered(operands, conditions)
        groups = _connected(len(operands), [used for used, one in conditions if _is_equality(one)])
        orders = [_order(group, [used for used, one in conditions if _is_equality(one)]) for group in groups]
        joined: Item | None = None
        there: frozenset[int] = frozenset()
        for order in orders:
            found, conditions = self._chained(operands, order, conditions)
            join = next(one.join for one in operands if one.join is not None)
            if joined is None:
                joined, there = found.item, frozenset(order)
                continue
            there |= frozenset(order)
            met = [one for used, one in conditions if used <= there]
            conditions = [(used, one) for used, one in conditions if not used <= there]
            last = operands[order[0]].join or join
            step = replace(last, kind="inner" if met else "cross", on=all_of(met))
            joined = self._joined(joined, replace(found, join=step))
        assert joined is not None
        in_order = sorted(joined.relations, key=lambda relation: _position(relation, operands))
        joined = replace(joined, relations=tuple(in_order))
        return self._answered(joined, answers) if answers else joined, all_of(kept)

    def _answered(self, item: Item, conditions: list[s.Expression]) -> Item:
        """The joined rows for which conditions with sub-queries hold."""
        rest, rows = self._subqueries.filtered(conditions, item)
        if rest is None:
            return rows
        return replace(item, stream=rows.stream.where(self.queries.expressions(rows).predicate(rest)))

    def _filtered(
        self, operands: list[_Operand], conditions: list[tuple[frozenset[int], s.Expression]]
    ) -> tuple[list[_Operand], list[tuple[frozenset[int], s.Expression]]]:
        """Items with the conditions about them alone applied, and the other conditions."""
        for number, operand in enumerate(operands):
            alone = all_of(one for used, one in conditions if used == {number})
            if alone is None or operand.table is not None:
                continue
            predicate = self.queries.expressions(operand.item).predicate(alone)
            item = replace(operand.item, stream=operand.item.stream.where(predicate))
            operands = [*operands[:number], replace(operand, item=item), *operands[number + 1 :]]
            conditions = [(used, one) for used, one in conditions if used != {number}]
        return operands, conditions

    def _chained(
        self,
        operands: list[_Operand],
        order: Sequence[int],
        conditions: list[tuple[frozenset[int], s.Expression]],
    ) -> tuple[_Operand, list[tuple[frozenset[int], s.Expression]]]:
        """Items joined one after the other, and the conditions that need others."""
        first = operands[order[0]]
        if len(order) > 1:
            first = replace(first, table=None)  # the rows of a table, as a stream
        left, there = first, frozenset({order[0]})
        for number in order[1:]:
            there |= {number}
            met = [one for used, one in conditions if used <= there]
            conditions = [(used, one) for used, one in conditions if not used <= there]
            right = operands[number]
            join = right.join or next(one.join for one in operands if one.join is not None)
            joined = self._joined(left.item, replace(right, join=replace(join, kind="inner", on=all_of(met))))
            left = replace(left, item=joined)
        return left, conditions

    def _used(self, part: s.Expression, operands: list[_Operand]) -> frozenset[int] | None:
        """The operands whose columns a condition uses; None if that is unknown."""
        found: set[int] = set()
        for column in columns_of(part):
            scopes = [Scope(self.queries.context, operand.item.relations) for operand in operands]
            known = [number for number, scope in enumerate(scopes) if scope.knows(column)]
            own = [number for number in known if any(not one.level for one in operands[number].item.relations)]
            known = own or known  # names of the rows around a sub-query are hidden by its own
            if len(known) != 1:
                return None
            found.add(known[0])
        return frozenset(found)


#: A join; one whose right side is computed from the rows before it is bound when these are.
_Step = _Operand | s.Join


def _kind(step: _Step) -> str:
    join = step if isinstance(step, s.Join) else step.join
    assert join is not None
    return join.kind


def _plain_inner(operand: _Operand) -> bool:
    join = operand.join
    assert join is not None
    return join.kind in ("inner", "cross") and not join.using and not join.natural


def _run(steps: Sequence[_Step]) -> list[_Operand]:
    """The first joins that can be planned together; none if each has its own condition."""
    run: list[_Operand] = []
    for step in steps:
        if isinstance(step, s.Join) or not _plain_inner(step):
            break
        run.append(step)
    ons = [one.join.on for one in run if one.join is not None]
    return run if any(on is None or has_subquery(on) for on in ons) else []


def _is_equality(part: s.Expression) -> bool:
    return isinstance(part, s.Binary) and part.operator == "="


def _connected(count: int, edges: Sequence[frozenset[int]]) -> list[list[int]]:
    """Items in groups that the edges connect, in the order of the first of each."""
    group = list(range(count))
    for edge in edges:
        least = min(group[number] for number in edge)
        merged = {group[number] for number in edge}
        group = [least if one in merged else one for one in group]
    return [[number for number in range(count) if group[number] == one] for one in dict.fromkeys(group)]


def _order(items: list[int], edges: Sequence[frozenset[int]]) -> list[int]:
    """Connected items so that each is connected with those before it."""
    order, waiting = items[:1], items[1:]
    while waiting:
        ready = [one for one in waiting if any(one in edge and edge <= {*order, one} for edge in edges)]
        order.append((ready or waiting)[0])
        waiting.remove(order[-1])
    return order


def _position(relation: Relation, operands: Sequence[_Operand]) -> int:
    """Where a relation stands in FROM."""
    wanted = (relation.name, relation.level)
    return next(
        number
        for number, one in enumerate(operands)
        if any((other.name, other.level) == wanted for other in one.item.relations)
    )


def _check_alias(context: Context, part: s.FromItem) -> None:
    alias = part.alias
    if alias is not None and not alias.quoted and alias.text.upper() in _NO_JOINS:
        raise context.error(
            alias,
            f"there is no {alias.text.upper()} JOIN",
            given=alias.text,
            allowed="JOIN, LEFT, RIGHT, FULL, CROSS, NATURAL, SEMI, ANTI and CLIP JOIN",
            instead="LEFT JOIN, or the name in double quotes",
        )
