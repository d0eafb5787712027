"""Joins of streams with lifetimes or with time windows, and of a stream with a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.api.stream import Stream
from headrace.expr import Expr, col, lit
from headrace.expr import nodes as engine
from headrace.plan.instants import BOTH_INSTANTS, has_points
from headrace.plan.join import names_beside
from headrace.plan.nodes import Select, TableJoin
from headrace.plan.table import TableJoinKind
from headrace.plan.windows import Hopping
from headrace.schema import Schema
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import TableEntry
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions
from headrace.sql.bind.relations import Item
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.printer import to_sql

__all__ = ["Joins"]

#: The start and the end of the window of a joined tuple.
_OURS = "_sql_"
_FROM, _UNTIL = f"{_OURS}from", f"{_OURS}until"


@dataclass(frozen=True)
class Joins:
    """Binds joins; `own` are the user's functions."""

    context: Context
    own: Mapping[str, Any]

    def ready(self, item: Item) -> Item:
        """The input of a join: events unchanged, or with the lifetime of their window if they have one."""
        windowing = item.windowing
        if windowing is None:
            return item
        if not isinstance(windowing.window, Hopping):
            raise self.context.error(
                windowing.part,
                "only time windows of one length can be joined",
                given=to_sql(windowing.part),
                allowed="[SIZE 10 ON ts EVERY 5 ON ts], [TUMBLING 10 s], [HOPPING 10 s EVERY 5 s], [RANGE 10 s]",
            )
        contents = item.stream.window(windowing.window).contents(start=_FROM)
        until = col(_FROM) + lit(windowing.window.size)
        kept = [(name, col(name)) for name in contents.schema.names if name != _FROM]
        stream = Stream(Select(contents.node, (*kept, (_UNTIL, until))))
        return replace(item, stream=stream, windowing=None, windows=windowing.window)

    def joined(self, left: Item, right: Item, join: s.Join) -> Item:
        """Pairs of overlapping events; one side may be points, if the other has lifetimes."""
        right = self.ready(right)
        if join.kind != "clip" and has_points(left.stream.node) and has_points(right.stream.node):
            source = join.right.stream.text if isinstance(join.right.stream, s.Name) else "(…)"
            raise self.context.error(
                join,
                BOTH_INSTANTS,
                given=to_sql(join),
                allowed="streams with time windows on both sides, or with lifetimes on one",
                instead=f"{source} [SIZE 10 ON ts] on both sides, or {source} [RANGE 10 s]",
            )
        on, rest = self._condition(left, right.relations, join)
        if _UNTIL in left.stream.schema and _UNTIL in right.stream.schema:
            on.append((_UNTIL, _UNTIL))
        if join.kind == "left" and not join.using:
            right, on = _keys_apart(left, right, on)
        both = {"on": dict(on)}
        with self.context.at(join):
            if join.kind == "clip":
                return replace(left, stream=left.stream.clip(right.stream, **both))
            keys = tuple(on)
            names = names_beside(left.stream.schema, right.stream.schema, keys)
            shared = {right_column: left_column for left_column, right_column in keys if left_column == right_column}
            hidden = shared if join.kind == "left" else {}
            beside = tuple(relation.without(hidden).renamed({**names, **shared}) for relation in right.relations)
            relations = (*left.relations, *beside)
            where = self._rest(rest, left, right, names, relations)
            joins = {"left": left.stream.left_join, "anti": left.stream.anti_join}
            stream = joins.get(join.kind, left.stream.join)(right.stream, where=where, **both)
        windows = left.windows if left.windows == right.windows else None
        return Item(stream, left.relations if join.kind == "anti" else relations, windows=windows)

    def _rest(
        self,
        rest: list[s.Expression],
        left: Item,
        right: Item,
        names: Mapping[str, str],
        relations: tuple[Relation, ...],
    ) -> Expr | None:
        """The parts of a join's condition that are not equalities of two columns."""
        if not rest:
            return None
        fields = (replace(f, name=names[f.name]) for f in right.stream.schema if f.name in names)
        schema = Schema((*left.stream.schema.fields, *fields))
        scope = Scope(self.context, relations)
        expressions = Expressions(self.context, scope, schema, self.own)
        found = [expressions.predicate(one) for one in rest]
        whole = found[0]
        for one in found[1:]:
            whole = engine.Call("and", (whole, one))
        return whole

    def _condition(
        self, left: Item, right: tuple[Relation, ...], join: s.Join
    ) -> tuple[list[tuple[str, str]], list[s.Expression]]:
        """The columns that must be equal, and the rest of the ON condition."""
        left_column, right_column = Scope(self.context, left.relations), Scope(self.context, right)
        if join.using:
            return [(left_column.column(s.Column(name, at=name.at)), right_column.column(s.Column(name, at=name.at)))
                    for name in join.using], []  # fmt: skip
        if join.on is None:
            return [], []
        on, rest = [], []
        for one in _conjuncts(join.on):
            pair = _equal(one, left_column, right_column)
            if pair is None:
                rest.append(one)
            else:
                on.append(pair)
        if join.kind == "clip" and rest:
            raise self.context.error(rest[0], "CLIP JOIN allows only equal columns", given=to_sql(rest[0]))
        return on, rest

    def with_table(self, left: Item, table: TableEntry, join: s.Join) -> Item:
        """A stream joined with the rows of a table."""
        assert isinstance(join.right.stream, s.Name)
        names_of_table = {column: column for column in table.schema.names}
        relation = Relation((join.right.alias or join.right.stream).text, names_of_table)
        on, rest = self._condition(left, (relation,), join)
        if rest or not on or join.kind not in ("inner", "left"):
            raise self.context.error(
                rest[0] if rest else join,
                "a table must be joined by equal columns",
                given=to_sql(join),
                allowed="JOIN and LEFT JOIN with ON stream.a = table.b, or USING (a)",
            )
        keys = tuple(on)
        names = names_beside(left.stream.schema, table.schema, keys)
        shared = {right_column: left_column for left_column, right_column in keys if left_column == right_column}
        with self.context.at(join):
            how: TableJoinKind = "left" if join.kind == "left" else "inner"
            stream = Stream(TableJoin(left.stream.node, table.table, table.schema, keys, how))
        hidden = shared if join.kind == "left" else {}
        beside = relation.without(hidden).renamed({**names, **shared})
        return Item(stream, (*left.relations, beside), windows=left.windows)


def _keys_apart(left: Item, right: Item, on: list[tuple[str, str]]) -> tuple[Item, list[tuple[str, str]]]:
    """The right side of an outer join with keys of their own names: where nothing matches, they are null."""
    shared = [
        right_column
        for left_column, right_column in on
        if left_column == right_column and not right_column.startswith(_OURS)
    ]
    if not shared:
        return right, on
    taken = {*left.stream.schema.names, *right.stream.schema.names}
    names = {}
    for name in shared:
        new = f"{name}_right"
        while new in taken:
            new += "_right"
        taken.add(new)
        names[name] = new
    outputs = tuple((names.get(name, name), col(name)) for name in right.stream.schema.names)
    renamed = replace(
        right,
        stream=Stream(Select(right.stream.node, outputs)),
        relations=tuple(relation.renamed(names) for relation in right.relations),
    )
    return renamed, [(left_column, names.get(right_column, right_column)) for left_column, right_column in on]


def _conjuncts(part: s.Expression) -> list[s.Expression]:
    found: list[s.Expression] = []
    while isinstance(part, s.Binary) and part.operator == "AND":
        found.append(part.right)
        part = part.left
    return [part, *reversed(found)]


def _equal(part: s.Expression, left: Scope, right: Scope) -> tuple[str, str] | None:
    """The columns of `a.x = b.y`, in either order; None if it is anything else."""
    if not (isinstance(part, s.Binary) and part.operator == "="):
        return None
    one, other = part.left, part.right
    if not (isinstance(one, s.Column) and isinstance(other, s.Column)):
        return None
    if left.knows(one) and right.knows(other) and not (right.knows(one) and one.stream is None):
        return left.column(one), right.column(other)
    if left.knows(other) and right.knows(one):
        return left.column(other), right.column(one)
    return None
