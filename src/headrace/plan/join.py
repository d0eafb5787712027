"""Joins: pairs of events whose lifetimes overlap, and the parts of lifetimes without a match (rule 4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.plan.base import Node, Properties, Reach
from headrace.plan.liveliness import Liveliness, of_all_inputs
from headrace.plan.span import keys_first
from headrace.progress import Progress
from headrace.schema import Field, Schema, Type

__all__ = [
    "BOTH_ENDED", "Join", "JoinKind", "Keys", "Meeting", "check_keys", "comparable", "keys_to_meet_by",
    "names_beside",
]  # fmt: skip

JoinKind = Literal["inner", "left", "anti"]
#: Pairs of columns that must be equal: of the left input and of the right one.
Keys = tuple[tuple[str, str], ...]

#: The state of operators that find the parts of lifetimes without a match.
BOTH_ENDED = "events whose end the lesser of both CTIs has not passed"
_TITLES = {"inner": "Join", "left": "LeftJoin", "anti": "AntiJoin"}


def comparable(a: Type, b: Type) -> bool:
    """Whether keys of these types can be equal: of one type, or both whole numbers, or both texts."""
    return a is b or (a.is_integer and b.is_integer) or (a.is_text and b.is_text)


def check_keys(left: Schema, right: Schema, on: Keys) -> None:
    """Refuse keys that do not exist, or whose values cannot be compared."""
    for ours, theirs in on:
        a, b = left[ours].type, right[theirs].type
        if not comparable(a, b):
            raise PlanError(
                f"join keys must have the same type: {ours} is {a.value}, {theirs} is {b.value}",
                given=f"{ours} = {theirs}",
                instead=f"select(..., {theirs}=col({theirs!r}).cast({a.value!r})) before the join",
            )


def names_beside(left: Schema, right: Schema, on: Keys) -> dict[str, str]:
    """The columns taken from the right input, and their names in the output.

    Keys of the same name appear once; columns whose names clash get the suffix `_right`.
    """
    shared = {theirs for ours, theirs in on if ours == theirs}
    taken = set(left.names)
    names = {}
    for name in right.names:
        if name not in shared:
            new = name
            while new in taken:
                new += "_right"
            taken.add(new)
            names[name] = new
    return names


def keys_to_meet_by(inputs: tuple[Node, ...], on: Keys, groups: int) -> Keys:
    """The keys by which rows are brought together.

    If rows of one side are already together by some of the keys, it is these, so that the rows can stay; otherwise the
    keys of groups, which the operators around share; otherwise all keys.
    """
    for side, node in enumerate(inputs):
        keys = node.properties.keys
        pairs = [next((pair for pair in on if pair[side] == key), None) for key in keys or ()]
        if keys and None not in pairs:
            return tuple(pair for pair in pairs if pair is not None)
    return on[:groups] or on


class Meeting(Node):
    """An operator whose two inputs meet by keys; the first `groups` of them identify groups, nulls included."""

    linear: ClassVar[bool] = False
    on: Keys
    groups: int

    @cached_property
    def _together(self) -> Keys:
        return keys_to_meet_by(self.inputs, self.on, self.groups)

    def need(self, position: int) -> tuple[str, ...] | None:
        return tuple(pair[position] for pair in self._together)

    def keys_of(self, side: int) -> set[str]:
        """The columns of one input that are keys."""
        return {pair[side] for pair in self.on}

    def progress(self, inputs: list[Progress]) -> Progress:
        return Progress.together(inputs)

    def met_by(self) -> str:
        """The keys, for `describe`."""
        keys = " and ".join(f"{a} = {b}" for a, b in self.on) or "everything"
        return keys + (f" (groups: {self.groups})" if self.groups else "")


@dataclass(frozen=True, eq=False)
class Join(Meeting):
    """Pairs of a left and a right event with equal keys (nulls equal nothing) whose lifetimes overlap.

    The payload is the left one's, then the right one's without keys of the same name; columns whose names clash get the
    suffix `_right`. `where` may use all of these columns. A `left` join also gives the parts of a left lifetime without
    a match, with nulls for the right one's columns; an `anti` join gives only these parts, with the left payload.
    """

    left: Node
    right: Node
    on: Keys = ()
    where: Expr | None = None
    kind: JoinKind = "inner"
    #: The names of the right columns, if a rule has narrowed the inputs: the columns keep their names.
    names: tuple[tuple[str, str], ...] | None = None
    #: The number of first keys that identify groups (`group_by(...).apply`): in these, nulls are equal.
    groups: int = 0

    def __post_init__(self) -> None:
        check_keys(self.left.schema, self.right.schema, self.on)
        kind = Type.BOOLEAN if self.where is None else self.where.type(self.paired)
        if kind is not Type.BOOLEAN:
            raise PlanError("where needs a BOOLEAN", given=f"{self.where} of type {kind.value}")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.left, self.right

    @cached_property
    def right_columns(self) -> dict[str, str]:
        """The columns taken from the right input, and their names in a pair."""
        if self.names is None:
            return names_beside(self.left.schema, self.right.schema, self.on)
        return {name: new for name, new in self.names if name in self.right.schema}

    @cached_property
    def paired(self) -> Schema:
        """The payload of a pair, which `where` may use."""
        right = (Field(new, self.right.schema[name].type) for name, new in self.right_columns.items())
        return Schema((*self.left.schema.fields, *right))

    @cached_property
    def schema(self) -> Schema:
        return self.left.schema if self.kind == "anti" else self.paired

    @cached_property
    def properties(self) -> Properties:
        left, right = self.left.properties, self.right.properties
        keys = self.need(0)
        if self.kind != "inner":  # a later match retracts an unmatched part
            return Properties(insert_only=False, settled=False, keys=keys)
        return Properties(left.insert_only and right.insert_only, left.settled and right.settled, keys)

    @cached_property
    def all_instants(self) -> bool:
        return self.left.all_instants or (self.kind == "inner" and self.right.all_instants)

    @property
    def reach(self) -> Reach:
        return "pair" if self.kind == "inner" else "instant"

    @property
    def liveliness(self) -> Liveliness:
        met = "events whose end the other side's CTI has not passed"
        return of_all_inputs(met if self.kind == "inner" else BOTH_ENDED)

    def uses(self, side: int, needed: set[str]) -> set[str]:
        used = needed | (self.where.columns() if self.where is not None else set())
        taken = {name for name, new in self.right_columns.items() if new in used} if side else used
        return self.keys_of(side) | taken

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:
        (left, right), same = inputs, tuple((name, name) for name in keys)
        if all(derived):
            return Join(left, right, (*same, *self.on), self.where, self.kind, self.names, self.groups + len(keys))
        if not derived[0] and self.kind != "inner":
            raise PlanError(
                f"{self.kind}_join inside apply needs the group's stream on its left: an event from outside belongs "
                "to no group, so its parts without a match are unknown",
                given=self.left.describe(),
                allowed="a left side made from the group's stream",
                instead=f"group.{self.kind}_join(other, on='key'), or {self.kind}_join after apply(...)",
            )
        names = self.names if derived[0] or self.names is None else (*same, *self.names)
        return keys_first(Join(left, right, self.on, self.where, self.kind, names, self.groups), keys)

    def describe(self) -> str:
        plain = names_beside(self.left.schema, self.right.schema, self.on)
        kept = [f"{name} as {new}" for name, new in self.right_columns.items() if plain.get(name) != new]
        where = f" where {self.where}" if self.where is not None else ""
        return f"{_TITLES[self.kind]} on {self.met_by()}{where}" + (f", with {', '.join(kept)}" if kept else "")

    def with_inputs(self, *inputs: Node) -> Node:
        names = tuple(self.right_columns.items())
        return Join(inputs[0], inputs[1], self.on, self.where, self.kind, names, self.groups)
