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

from headrace.sql import syntax as s
from headrace.sql.bind.catalog import TableEntry
from headrace.sql.bind.conditions import all_of, columns_of, conjuncts, has_subquery
from headrace.sql.bind.context import Context
from headrace.sql.bind.joins import Joins
from headrace.sql.bind.relations import Item
from headrace.sql.bind.scope import Scope
from headrace.sql.bind.times import joined_columns
from headrace.sql.bind.unnest import all_unnested, around_unnest
from headrace.sql.bind.windows import Tick

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

    def bound(self) -> tuple[Item, s.Select]:
        """The rows of FROM, and the SELECT with the conditions of WHERE that are left."""
        part, queries = self.part, self.queries
        for place in (part.source, *(join.right for join in part.joins)):
            _check_alias(queries.context, place)
        first = queries.timed_item(part, part.source, self.tick)
        before, joins, behind = around_unnest(queries.context, part.joins)
        first = all_unnested(queries, first, before)
        if not joins:
            return first, part
        item, rest = replace(self, part=replace(part, joins=joins)).with_joins(first)
        return all_unnested(queries, item, behind), replace(rest, joins=part.joins)

    def with_joins(self, first: Item) -> tuple[Item, s.Select]:
        """The first item joined with the others."""
        part, queries = self.part, self.queries
        tables = [queries.table(place) for place in (part.source, *(join.right for join in part.joins))]
        operands = [self._operand(join, table) for join, table in zip(part.joins, tables[1:], strict=True)]
        left, where = self._all_joined(self._joins.ready(first), operands)
        streams = [first] if tables[0] is None else []
        streams += [one.item for one in operands if one.table is None]
        shown = tuple(stream for item in streams for stream in item.shown) or first.shown
        item = replace(joined_columns(queries.context, part, left), shown=shown)
        return item, part if where is part.where else replace(part, where=where)

    @property
    def _joins(self) -> Joins:
        return Joins(self.queries.context, self.queries.catalog.known)

    def _operand(self, join: s.Join, table: TableEntry | None) -> _Operand:
        item = self.queries.timed_item(self.part, join.right, self.tick)
        if table is not None:
            return _Operand(item, join, table)
        return _Operand(self._joins.ready(item), join)

    def _all_joined(self, left: Item, operands: list[_Operand]) -> tuple[Item, s.Expression | None]:
        where = self.part.where
        while operands:
            run = _run_length(operands)
            if run:
                pushable = all(_kind(one) in _KEEPS_LEFT for one in operands[run:])
                left, where = self._planned([_Operand(left, None), *operands[:run]], where, pushable=pushable)
                operands = operands[run:]
            else:
                left = self._joined(left, operands[0])
                operands = operands[1:]
        return left, where

    def _joined(self, left: Item, right: _Operand) -> Item:
        assert right.join is not None
        if right.table is not None:
            return self._joins.with_table(left, right.table, right.item, right.join)
        return self._joins.joined(left, right.item, right.join)

    # --- the order of joins ------------------------------------------------------------------------------------------

    def _planned(
        self, operands: list[_Operand], where: s.Expression | None, *, pushable: bool
    ) -> tuple[Item, s.Expression | None]:
        """The join of these items, and what is left of WHERE."""
        kept = [] if pushable else conjuncts(where)
        pool = conjuncts(where) if pushable else []
        conditions: list[tuple[frozenset[int], s.Expression]] = []
        ons = [one for operand in operands if operand.join is not None for one in conjuncts(operand.join.on)]
        for one in (*ons, *pool):
            used = None if has_subquery(one) else self._used(one, operands)
            if used is None or not used:
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
        in_order = sorted(joined.relations, key=lambda relation: _position(relation.name, operands))
        return replace(joined, relations=tuple(in_order)), all_of(kept)

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
            if len(known) != 1:
                return None
            found.add(known[0])
        return frozenset(found)


def _kind(operand: _Operand) -> str:
    assert operand.join is not None
    return operand.join.kind


def _plain_inner(operand: _Operand) -> bool:
    join = operand.join
    assert join is not None
    return join.kind in ("inner", "cross") and not join.using and not join.natural


def _run_length(operands: Sequence[_Operand]) -> int:
    """How many of the first joins can be planned together; 0 if each has its own condition."""
    run = 0
    while run < len(operands) and _plain_inner(operands[run]):
        run += 1
    bare = any(one.join is not None and one.join.on is None for one in operands[:run])
    return run if bare else 0


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


def _position(name: str, operands: Sequence[_Operand]) -> int:
    """Where a relation stands in FROM."""
    return next(
        number for number, one in enumerate(operands) if any(relation.name == name for relation in one.item.relations)
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
