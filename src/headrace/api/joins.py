"""Joins: their keys, and the kinds that are made of others.

Plans have inner, left and anti joins. The other kinds follow from these, exactly:

- *right* is a left join of the exchanged streams, with the columns of `join`;
- *full* is a left join, and the parts of the right lifetimes without a match;
- *semi* is what is left of a stream without its parts that have no match. Keys and condition decide at every instant
  whether an event has a match, so the parts to remove are found by the columns that they use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal, get_args

from headrace.api.checks import row_expr
from headrace.api.times import joined, payloads
from headrace.elsewhere import JOINS
from headrace.errors import PlanError, nearest
from headrace.expr import Call, Column, Expr, col, lit
from headrace.expr.signatures import common
from headrace.plan.join import Keys, comparable
from headrace.plan.nodes import Clip, Join, Node, Select, TableJoin, Union
from headrace.plan.table import HOW, TableJoinKind

__all__ = ["How", "On", "checked_how", "clip_node", "join_node", "table_join_node"]

#: Keys of a join: columns of both streams, or pairs of them.
On = str | Expr | Sequence[str | Expr | tuple[str | Expr, str | Expr]] | Mapping[str, str | Expr]
How = Literal["inner", "left", "right", "full", "semi", "anti"]
KeyPairs = tuple[tuple[Expr, Expr], ...]


def checked_how(how: Any, kinds: Sequence[str] = get_args(How)) -> Any:
    """`how`, which must be one of `kinds`."""
    if how in kinds:
        return how
    named = JOINS.get(str(how).lower()) or nearest(str(how), kinds)
    close = named if named in kinds else "left" if named == "full" else kinds[0]  # what of `full` a table can give
    raise PlanError("there is no such join", given=how, allowed=", ".join(kinds), instead=f"how={close!r}")


def join_node(left: Node, right: Node, on: Any, where: Expr | None, how: Any, same: Any = ()) -> Node:
    """The join of two plans; in the keys `same`, nulls are equal."""
    parts = joined(left, right, (*_key_pairs(same), *_key_pairs(on)), where)
    left, right, keys, hidden = _keyed(parts.left, parts.right, parts.on)
    node = Join(left, right, keys, parts.where, groups=len(_key_pairs(same)))
    return _without(getattr(_JoinKinds(node), how)(), (*hidden, *parts.hidden))


def clip_node(node: Node, by: Node, on: Any) -> Node:
    """A stream whose events end where events of another start."""
    node, by, keys, hidden = _keyed(node, by, _key_pairs(on))
    return _without(Clip(node, by, keys), hidden)


def table_join_node(node: Node, table: Any, on: Any, how: TableJoinKind) -> Node:
    """The join with a table; keys may be expressions over the stream's columns."""
    keys: list[tuple[str, str]] = []
    added: list[tuple[str, Expr]] = []
    for ours, theirs in _key_pairs(on):
        if not isinstance(theirs, Column):
            raise PlanError(
                "the key of a table is one of its columns",
                given=theirs,
                allowed=", ".join(table.columns.names),
                instead=f"on=[(col('key'), {table.columns.names[0]!r})]",
            )
        if isinstance(ours, Column):
            keys.append((ours.column, theirs.column))
        else:
            name = next(n for i in count() if (n := f"_on{i}") not in (*node.schema.names, *dict(added)))
            keys.append((name, theirs.column))
            added.append((name, ours))
    node = _beside(node, added) if added else node
    return _without(
        TableJoin(node, table, table.columns, tuple(keys), checked_how(how, HOW)), tuple(name for name, _ in added)
    )


@dataclass(frozen=True)
class _JoinKinds:
    """The inner join of two streams, from which the other kinds are made."""

    node: Join

    def inner(self) -> Node:
        return self.node

    def left(self) -> Node:
        return replace(self.node, kind="left")

    def anti(self) -> Node:
        return replace(self.node, kind="anti")

    def semi(self) -> Node:
        unmatched = self.anti()
        used = () if self.node.where is None else self.node.where.columns()
        columns = [*self.node.keys_of(0), *(name for name in used if name in self.node.left.schema)]
        names = [name for name in self.node.left.schema.names if name in columns]
        # As keys of groups, in which nulls are equal: an event with a null key has no match, and is removed whole.
        same = tuple((name, name) for name in names)
        return Join(self.node.left, unmatched, same, kind="anti", groups=len(same))

    def right(self) -> Node:
        exchanged, names = self._exchanged("left")
        return Select(exchanged, tuple((name, col(names[name])) for name in self.node.schema.names))

    def full(self) -> Node:
        rest, names = self._exchanged("anti")
        both = self.left()
        outputs = []
        for field in both.schema.fields:
            there = names[field.name] in rest.schema
            outputs.append((field.name, col(names[field.name]) if there else lit(None).cast(field.type)))
        unmatched = Select(rest, tuple(outputs))
        wide = tuple((name, self._as_wide_as(unmatched, both, name)) for name in both.schema.names)
        narrow = tuple((name, self._as_wide_as(both, unmatched, name)) for name in both.schema.names)
        return Union((_selected(both, wide), _selected(unmatched, narrow)))

    def _exchanged(self, kind: Literal["left", "anti"]) -> tuple[Join, dict[str, str]]:
        """The join with its sides exchanged, and the names that the columns of this join have in it."""
        node = self.node
        on = tuple((theirs, ours) for ours, theirs in node.on)
        exchanged = Join(node.right, node.left, on, groups=node.groups)
        names = {name: exchanged.right_columns.get(name, name) for name in node.left.schema.names}
        names |= {new: name for name, new in node.right_columns.items()}
        if node.where is None:
            return replace(exchanged, kind=kind), names

        def moved(part: Expr) -> Expr:
            return col(names[part.column]) if isinstance(part, Column) else part

        return replace(exchanged, where=node.where.transform(moved), kind=kind), names

    @staticmethod
    def _as_wide_as(other: Node, node: Node, name: str) -> Expr:
        """A column of a node with the type that holds it and the other's: keys may be INT here and LONG there."""
        own, theirs = node.schema[name].type, other.schema[name].type
        if own is theirs:
            return col(name)
        return col(name).cast(common(name, (own, theirs)) or own)


def _selected(node: Node, outputs: tuple[tuple[str, Expr], ...]) -> Node:
    return node if all(isinstance(expr, Column) for _, expr in outputs) else Select(node, outputs)


# --- keys -----------------------------------------------------------------------------------------------------------


def _key_pairs(on: Any) -> KeyPairs:
    """The keys of a join as pairs of expressions, of the left and of the right stream."""
    if isinstance(on, (str, Expr)):
        on = [on]
    items = on.items() if isinstance(on, Mapping) else on if isinstance(on, (Sequence, set, frozenset)) else [on]
    pairs = [tuple(item) if isinstance(item, (tuple, list)) else (item, item) for item in items]
    for pair in pairs:
        if len(pair) != 2 or not all(isinstance(key, (str, Expr)) for key in pair):
            raise _not_keys(on)
    found = tuple((_key(ours), _key(theirs)) for ours, theirs in pairs)
    return tuple({(str(ours), str(theirs)): (ours, theirs) for ours, theirs in found}.values())


def _key(key: str | Expr) -> Expr:
    if isinstance(key, str):
        return col(key)
    if isinstance(key, Call) and key.function == "eq":
        pair = ", ".join(f"col('{arg}')" if isinstance(arg, Column) else str(arg) for arg in key.args)
        raise PlanError(
            "keys of a join are columns, not a condition",
            given=key,
            allowed="a column or expression of both streams, or pairs of them",
            instead=f"on=[({pair})], or where=... with the names of the result",
        )
    return row_expr(key, "on")


def _not_keys(on: Any) -> PlanError:
    return PlanError(
        "join keys are columns",
        given="None" if on is None else on,
        allowed="a name or an expression, a list of these or of pairs, or a dict from this stream's to the other's",
        instead="join(other, on='key'), join(other, on={'key': 'other_key'}), or on=[(col('a') % 10, col('b'))]",
    )


def _keyed(left: Node, right: Node, pairs: KeyPairs) -> tuple[Node, Node, Keys, tuple[str, ...]]:
    """Both inputs with the columns that keys need, the keys by name, and the names of the added columns."""
    free = (name for n in count() if (name := f"_on{n}") not in left.schema and name not in right.schema)
    keys, added = [], []
    for ours, theirs in pairs:
        if isinstance(ours, Column) and isinstance(theirs, Column):
            keys.append((ours.column, theirs.column))
        else:
            _check_types(ours, theirs, left, right)
            name = next(free)
            keys.append((name, name))
            added.append((name, ours, theirs))
    if added:
        left = _beside(left, [(name, ours) for name, ours, _ in added])
        right = _beside(right, [(name, theirs) for name, _, theirs in added])
    return left, right, tuple(keys), tuple(name for name, _, _ in added)


def _check_types(ours: Expr, theirs: Expr, left: Node, right: Node) -> None:
    a, b = ours.type(left.schema), theirs.type(right.schema)
    if not comparable(a, b):
        raise PlanError(
            f"join keys must have the same type: {ours} is {a.value}, {theirs} is {b.value}",
            given=f"{ours} = {theirs}",
            instead=f"cast one of them: .cast({a.value!r})",
        )


def _beside(node: Node, more: list[tuple[str, Expr]]) -> Node:
    return payloads(node, (*((name, col(name)) for name in node.schema.names), *more))


def _without(node: Node, hidden: tuple[str, ...]) -> Node:
    if not hidden:
        return node
    return Select(node, tuple((name, col(name)) for name in node.schema.names if name not in hidden))
