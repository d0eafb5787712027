"""Joins of streams with lifetimes or with time windows, and of a stream with a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.api.joins import join_node
from headrace.api.stream import Stream
from headrace.errors import HeadraceError
from headrace.expr import Expr, col, lit
from headrace.expr import nodes as engine
from headrace.expr.signatures import common
from headrace.plan.instants import BOTH_INSTANTS, has_points
from headrace.plan.join import Keys, comparable, names_beside
from headrace.plan.nodes import Select, TableJoin
from headrace.plan.table import TableJoinKind
from headrace.plan.windows import Hopping
from headrace.schema import Schema
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import TableEntry
from headrace.sql.bind.conditions import columns_of, conjuncts, has_subquery
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions
from headrace.sql.bind.in_time import lasting_to_meet
from headrace.sql.bind.relations import Item
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.printer import to_sql

__all__ = ["Joins"]

#: The start and the end of the window of a joined tuple.
_OURS = "_sql_"
_FROM, _UNTIL = f"{_OURS}from", f"{_OURS}until"
#: Joins that fill columns of a side with nulls.
_OUTER = frozenset({"left", "right", "full"})


@dataclass(frozen=True)
class Joins:
    """Binds joins; `own` are the user's functions. `instants`: two streams of instants meet where they are the same."""

    context: Context
    own: Mapping[str, Any]
    instants: bool = False

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

    def joined(self, left: Item, right: Item, join: s.Join, same: Sequence[tuple[Expr, Expr]] = ()) -> Item:
        """Pairs of overlapping events, or what else the kind of join makes of them; one side may be points.

        `same` are more keys, in which nulls are equal.
        """
        instants = has_points(left.stream.node) and has_points(right.stream.node)
        if instants and join.kind != "clip" and not self.instants:
            met = self._met_in_time(left, right, join)
            if met is not None:
                return replace(met, stream=met.stream.point_at_start())
            source = join.right.stream.text if isinstance(join.right.stream, s.Name) else "(…)"
            raise self.context.error(
                join,
                BOTH_INSTANTS,
                given=to_sql(join),
                allowed="streams with time windows on both sides, or with lifetimes on one; "
                "in an inner join also bounds of both times: a.ts BETWEEN b.ts - 5 min AND b.ts",
                instead=f"{source} [SIZE 10 ON ts] on both sides, or {source} [RANGE 10 s]",
            )
        return self._paired(left, right, join, same)

    def _met_in_time(self, left: Item, right: Item, join: s.Join) -> Item | None:
        """Pairs of instants that the condition wants within a time of each other; None if it does not say so."""
        if join.kind not in ("inner", "cross"):
            return None
        both = [
            (item, Expressions(self.context, Scope(self.context, item.relations), item.stream.schema, self.own))
            for item in (left, right)
        ]
        lasting = lasting_to_meet(self.context, join.on, both[0], both[1])
        return None if lasting is None else self._paired(*lasting, join)

    def _paired(self, left: Item, right: Item, join: s.Join, same: Sequence[tuple[Expr, Expr]] = ()) -> Item:
        join = self._natural(left, right, join)
        if join.kind in _OUTER and not join.using:
            right = _keys_apart(left, right, self._condition(left, right, join).columns)
        condition = self._condition(left, right, join)
        same, pairs = [*same, *condition.same], condition.pairs
        if _UNTIL in left.stream.schema and _UNTIL in right.stream.schema:
            pairs = [*pairs, (col(_UNTIL), col(_UNTIL))]
        with self.context.at(join):
            if join.kind == "clip":
                return replace(left, stream=left.stream.clip(right.stream, on=pairs))
            keys = _columns([*same, *pairs])
            names = names_beside(left.stream.schema, right.stream.schema, tuple(keys))
            shared = {theirs: ours for ours, theirs in keys if ours == theirs}
            beside = [relation.renamed({**names, **shared}) for relation in right.relations]
            where = self._rest(condition.rest, left, right, names, (*left.relations, *beside))
            kind = "inner" if join.kind == "cross" else join.kind
            stream = Stream(join_node(left.stream.node, right.stream.node, pairs, where, kind, same))
        windows = left.windows if left.windows == right.windows else None
        if join.kind in ("semi", "anti"):
            return Item(stream, left.relations, windows=windows)
        hidden = shared if join.kind in _OUTER else {}
        return Item(stream, _beside(left.relations, tuple(beside), hidden, join.kind), windows=windows)

    def _rest(
        self,
        rest: list[s.Expression],
        left: Item,
        right: Item,
        names: Mapping[str, str],
        relations: tuple[Relation, ...],
    ) -> Expr | None:
        """The parts of a join's condition that are not equalities of both sides."""
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

    def _natural(self, left: Item, right: Item, join: s.Join) -> s.Join:
        """A natural join as one by all columns that both sides have."""
        if not join.natural:
            return join
        there = {name.lower() for relation in right.relations for name in relation.columns}
        ours = [name for relation in left.relations for name in relation.columns]
        common = [name for name in dict.fromkeys(ours) if name.lower() in there]
        if not common:
            raise self.context.error(
                join,
                "a natural join is by the columns that both sides have, and there are none",
                given=to_sql(join),
                instead=to_sql(replace(join, natural=False, on=s.Value(value=True))),
            )
        return replace(join, natural=False, using=tuple(s.Name(name, at=join.at) for name in common))

    def _condition(self, left: Item, right: Item, join: s.Join) -> _Condition:
        """The keys of both sides, and the rest of the ON condition."""
        scopes = Scope(self.context, left.relations), Scope(self.context, right.relations)
        if join.using:
            names = [s.Column(name, at=name.at) for name in join.using]
            return _Condition([(col(scopes[0].column(name)), col(scopes[1].column(name))) for name in names], [], [])
        sides = tuple(
            Expressions(self.context, scope, item.stream.schema, self.own)
            for scope, item in zip(scopes, (left, right), strict=True)
        )
        found = _Condition([], [], [])
        for one in conjuncts(join.on):
            pair = _equal(one, sides[0], sides[1])
            if pair is None:
                found.rest.append(one)
            elif isinstance(one, s.IsDistinct):
                found.same.append(pair)
            else:
                found.pairs.append(pair)
            if join.kind == "clip" and (found.rest or found.same):
                raise self.context.error(one, "CLIP JOIN allows only equal columns", given=to_sql(one))
        return found

    def with_table(self, left: Item, table: TableEntry, rows: Item, join: s.Join) -> Item:
        """A stream joined with the rows of a table, by a look-up where columns are equal."""
        natural = self._natural(left, rows, join)
        condition = self._condition(left, rows, natural)
        by_columns = condition.pairs and not condition.same and len(condition.columns) == len(condition.pairs)
        if not by_columns or natural.kind not in ("inner", "left") or (natural.kind == "left" and condition.rest):
            return self.joined(left, rows, join)
        if natural.kind == "left" and not natural.using:
            left, keys = _keys_copied(left, condition.columns)
        else:
            keys = tuple(condition.columns)
        names = names_beside(left.stream.schema, table.schema, keys)
        shared = {theirs: ours for ours, theirs in keys if ours == theirs}
        with self.context.at(join):
            how: TableJoinKind = "left" if natural.kind == "left" else "inner"
            stream = Stream(TableJoin(left.stream.node, table.table, table.schema, keys, how))
        beside = tuple(relation.renamed({**names, **shared}) for relation in rows.relations)
        hidden = shared if natural.kind == "left" else {}
        item = Item(stream, _beside(left.relations, beside, hidden, natural.kind), windows=left.windows)
        for one in condition.rest:
            expressions = Expressions(self.context, Scope(self.context, item.relations), stream.schema, self.own)
            item = replace(item, stream=item.stream.where(expressions.predicate(one)))
        return item


@dataclass(frozen=True)
class _Condition:
    """What a join is by: pairs of keys, of the left and of the right side, and other conditions.

    `same` are keys in which nulls are equal.
    """

    pairs: list[tuple[Expr, Expr]]
    same: list[tuple[Expr, Expr]]
    rest: list[s.Expression]

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The pairs of columns among the keys."""
        return _columns([*self.same, *self.pairs])


def _columns(pairs: Sequence[tuple[Expr, Expr]]) -> list[tuple[str, str]]:
    both = [pair for pair in pairs if all(isinstance(key, engine.Column) for key in pair)]
    return [(ours.name, theirs.name) for ours, theirs in both]


def _beside(
    left: tuple[Relation, ...], right: tuple[Relation, ...], keys: Mapping[str, str], kind: str
) -> tuple[Relation, ...]:
    """The relations of a join; keys that both sides share are those of the side that is never null."""
    if not keys:
        return *left, *right
    one, other = (tuple(relation.without(keys) for relation in side) for side in (left, right))
    if kind == "left":
        return *left, *other
    if kind == "right":
        return *one, *right
    return Relation("", {name: name for name in keys}), *one, *other


def _keys_copied(left: Item, keys: Sequence[tuple[str, str]]) -> tuple[Item, Keys]:
    """The left side of a left join with a table, with keys under other names: the table's own are null at no match."""
    copies = {ours: f"{_OURS}{ours}" for ours, theirs in keys if ours == theirs}
    if not copies:
        return left, tuple(keys)
    columns = [(name, col(name)) for name in left.stream.schema.names]
    stream = Stream(Select(left.stream.node, (*columns, *((copy, col(name)) for name, copy in copies.items()))))
    return replace(left, stream=stream), tuple((copies.get(ours, ours), theirs) for ours, theirs in keys)


def _keys_apart(left: Item, right: Item, on: Sequence[tuple[str, str]]) -> Item:
    """The right side of an outer join with keys of their own names: where nothing matches, they are null."""
    shared = [theirs for ours, theirs in on if ours == theirs and not theirs.startswith(_OURS)]
    if not shared:
        return right
    taken = {*left.stream.schema.names, *right.stream.schema.names}
    names = {}
    for name in shared:
        new = f"{name}_right"
        while new in taken:
            new += "_right"
        taken.add(new)
        names[name] = new
    outputs = tuple((names.get(name, name), col(name)) for name in right.stream.schema.names)
    return replace(
        right,
        stream=Stream(Select(right.stream.node, outputs)),
        relations=tuple(relation.renamed(names) for relation in right.relations),
    )


def _equal(part: s.Expression, left: Expressions, right: Expressions) -> tuple[Expr, Expr] | None:
    """The keys of `a.x = b.y`, in either order: expressions of one side each; None if it is anything else.

    `a.x IS NOT DISTINCT FROM b.y` has keys too.
    """
    equality = isinstance(part, s.Binary) and part.operator == "="
    if not (equality or (isinstance(part, s.IsDistinct) and part.negated)) or has_subquery(part):
        return None
    assert isinstance(part, (s.Binary, s.IsDistinct))
    for ours, theirs in ((part.left, part.right), (part.right, part.left)):
        if _is_of(ours, left, right) and _is_of(theirs, right, left):
            return _of_one_type(left, left.bind(ours), right, right.bind(theirs))
    return None


def _is_of(part: s.Expression, side: Expressions, other: Expressions) -> bool:
    """Whether an expression is about one side: a name without a stream may not be one of both."""
    columns = columns_of(part)
    alone = all(column.stream is not None or not other.scope.knows(column) for column in columns)
    return bool(columns) and alone and all(side.scope.knows(column) for column in columns)


def _of_one_type(left: Expressions, ours: Expr, right: Expressions, theirs: Expr) -> tuple[Expr, Expr] | None:
    """Keys of types whose values can be equal; None if there is no type for both."""
    a, b = ours.type(left.schema), theirs.type(right.schema)
    if comparable(a, b):
        return ours, theirs
    try:
        kind = common("=", [a, b])
    except HeadraceError:
        return None  # the condition as a whole says why
    return None if kind is None else (ours.cast(kind), theirs.cast(kind))
