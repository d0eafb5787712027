"""Recursion: a stream that is made, at every instant, from itself (rules 9.1 and 9.3).

`body` is a function of a stream, and the answer is the limit of `X₀ = nothing, Xᵢ₊₁ = seed ∪ body(Xᵢ)`; with
`distinct` every payload is there at most once at an instant. Where the body only ever gives more for more (joins,
unions, filters), the limit is the least fixed point. A loop that keeps giving something new has none, and is stopped
by an error.

The body is called once, with a stream that stands for what is known so far (`LoopInput`), and makes a plan over it.
What that plan reads from elsewhere becomes an input of the node beside the seed; inside, `LoopInput`s stand for these
as well. So the body is a plan with a beginning and an end of its own, and a kernel can run it round by round.

What may stand in a body is what looks at one instant at a time, so that what holds at an instant follows from what held
at that instant. Such a loop promises what its inputs promise. Without `distinct`, events go round one by one: there any
operator may stand that looks at single events or pairs and never reaches back in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import ClassVar, Literal, get_args

from headrace.errors import PlanError
from headrace.plan.aggregate import Aggregate
from headrace.plan.base import Node, Properties, walk
from headrace.plan.coalesce import Coalesce
from headrace.plan.group_apply import GroupApply
from headrace.plan.join import Join
from headrace.plan.loop_keys import loop_keys, why_no_key
from headrace.plan.operate import Top
from headrace.plan.span import (
    CapDuration,
    Extend,
    PointAtEnd,
    PointAtStart,
    Select,
    SetDuration,
    Shift,
    Union,
    Where,
)
from headrace.plan.table import TableJoin
from headrace.plan.windows import Snapshot
from headrace.progress import Progress
from headrace.schema import Schema

__all__ = ["FedNode", "LoopInput", "LoopProgress", "Recurse", "recursion"]

#: How progress leaves the loop (rule 9.2).
LoopProgress = Literal["hwm", "probing", "hybrid"]

#: Rounds that no loop should need when its user has named no bound: fewer where payloads may repeat for ever.
_MOST_ROUNDS, _MOST_PLAIN_ROUNDS = 10_000, 1_000
_numbers = count(1)
#: Operators that give more for more, a result for each event or pair of events alone.
_PAIRWISE = (GroupApply, Select, TableJoin, Union, Where)
_LIFETIMES = (CapDuration, PointAtEnd, PointAtStart, SetDuration)


@dataclass(frozen=True, eq=False)
class FedNode(Node):
    """What a loop begins with; whoever runs the loop feeds it."""

    columns: Schema
    name: str

    @cached_property
    def schema(self) -> Schema:
        return self.columns

    @cached_property
    def properties(self) -> Properties:
        return Properties(insert_only=False, settled=False)

    def describe(self) -> str:
        return f"{type(self).__name__} {self.name}"

    def with_inputs(self, *inputs: Node) -> Node:  # noqa: ARG002 - it has none
        return self


@dataclass(frozen=True, eq=False)
class LoopInput(FedNode):
    """What a body begins with: the result so far, or a stream from outside the loop."""

    @classmethod
    def fresh(cls, columns: Schema) -> LoopInput:
        """The result so far of a loop that is being written, different from all others."""
        return cls(columns, f"loop {next(_numbers)}")


@dataclass(frozen=True, eq=False)
class Recurse(Node):
    """The limit of `seed ∪ body(result)`.

    `body` reads `LoopInput`s: number 0 is the result so far, the others are the streams `outside`. What was asked for,
    the plan `asked` over the result `start`, is kept beside it: it is what the answer is checked against.
    """

    linear: ClassVar[bool] = False
    seed: Node
    outside: tuple[Node, ...]
    body: Node
    start: LoopInput
    asked: Node
    distinct: bool = True
    max_rounds: int | None = None
    strategy: LoopProgress = "hybrid"
    #: Columns of all inputs and of the result that tell groups apart: each group has a loop of its own.
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_options(self)
        if self.body.schema != self.seed.schema:
            raise PlanError(
                "the body of a loop gives what it is given: columns equal to the seed's",
                given=str(self.body.schema),
                allowed=str(self.seed.schema),
                instead=f"select({', '.join(map(repr, self.seed.schema.names))}) at the end of the body",
            )
        for node in walk(self.body):
            _check_allowed(node, distinct=self.distinct)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.seed, *self.outside

    @property
    def inside(self) -> tuple[Node, ...]:
        return (self.body,)

    @cached_property
    def schema(self) -> Schema:
        return self.seed.schema

    @cached_property
    def ports(self) -> tuple[LoopInput, ...]:
        """What the body reads: the result so far, then the streams from outside."""
        return ports_of(self.inputs, self.depth)

    @cached_property
    def depth(self) -> int:
        """How many loops deep it is, counted from the innermost: inputs of a loop inside another have other names."""
        return 1 + _depth(walk(self.body))

    @property
    def bound(self) -> int:
        """How deep a derivation may be; a loop that goes on is stopped."""
        return self.max_rounds or (_MOST_ROUNDS if self.distinct else _MOST_PLAIN_ROUNDS)

    @cached_property
    def circulates(self) -> bool:
        """Whether changes can go round on their own: the body gives more for more, of each event or pair alone."""
        return all(_pairwise(node) or isinstance(node, Coalesce) for node in walk(self.body))

    @cached_property
    def properties(self) -> Properties:
        below = [node.properties for node in self.inputs]
        plain = not self.distinct
        return Properties(
            insert_only=plain and all(p.insert_only for p in below),
            settled=plain and all(p.settled for p in below),
            keys=self.need(0),
        )

    @cached_property
    def _keys(self) -> tuple[str, ...] | None:
        return loop_keys(self.body, self.ports)

    @property
    def why_in_one_bucket(self) -> str | None:
        """What keeps a loop from being spread by a key; None if nothing does."""
        return None if self.need(0) else why_no_key(self.body, self.ports)

    def need(self, position: int) -> tuple[str, ...] | None:
        if self.groups or self._keys is None:
            return self.groups
        return (self._keys[position],)

    def progress(self, inputs: list[Progress]) -> Progress:
        return Progress.together(inputs)

    @property
    def marks(self) -> str:
        return f"body {self.body.fingerprint}"

    def describe(self) -> str:
        kind = "distinct" if self.distinct else "all"
        rounds = f", at most {self.max_rounds} rounds" if self.max_rounds is not None else ""
        per = f" per {', '.join(self.groups)}" if self.groups else ""
        return f"Recurse {kind}{rounds}, progress {self.strategy}{per}"

    def with_inputs(self, *inputs: Node) -> Recurse:
        # A rule may have narrowed what comes from outside: the body reads the columns that are left.
        new: dict[str, Node] = dict(zip((p.fingerprint for p in self.ports), ports_of(inputs, self.depth), strict=True))
        for node in walk(self.body):
            if node.fingerprint not in new:
                new[node.fingerprint] = node.with_inputs(*(new[child.fingerprint] for child in node.inputs))
        return replace(self, seed=inputs[0], outside=inputs[1:], body=new[self.body.fingerprint])

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:
        if not derived[0]:
            raise PlanError(
                "a loop inside apply begins with events of the group: others belong to no group",
                given=self.seed.describe(),
                allowed="a seed made from the stream that apply gives",
                instead="recurse(group.select(...), ...), or the loop behind apply(...)",
            )
        ports = ports_of(inputs, self.depth)
        new: dict[str, Node] = {old.fingerprint: port for old, port in zip(self.ports, ports, strict=True)}
        inside = {port.fingerprint for port, mine in zip(self.ports, derived, strict=True) if mine}
        for node in walk(self.body):
            if node.fingerprint not in new:
                mine = tuple(child.fingerprint in inside for child in node.inputs)
                parts = tuple(new[child.fingerprint] for child in node.inputs)
                new[node.fingerprint] = node.lifted(parts, keys, mine) if any(mine) else node.with_inputs(*parts)
                inside |= {node.fingerprint} if any(mine) else set()
        groups = (*keys, *self.groups) if all(derived) else ()
        body = new[self.body.fingerprint]
        return replace(self, seed=inputs[0], outside=inputs[1:], body=body, groups=groups)


def recursion(
    seed: Node,
    body: Callable[[Node], Node],
    *,
    distinct: bool = True,
    max_rounds: int | None = None,
    strategy: LoopProgress = "hybrid",
) -> Recurse:
    """The loop that a function of the result so far describes."""
    start = LoopInput.fresh(seed.schema)
    asked = body(start)
    nodes = list(walk(asked))
    if start not in nodes:
        raise PlanError(
            "the body of a loop must use the stream it is given: without it nothing goes round",
            given=asked.describe(),
            allowed="a plan over the result so far",
            instead="recurse(seed, lambda found: found.join(edges, on='node').select(...))",
        )
    inside, outside = _parted(nodes, start)
    ports = ports_of((seed, *outside), 1 + _depth(inside))
    new: dict[str, Node] = {node.fingerprint: port for node, port in zip((start, *outside), ports, strict=True)}
    for node in inside:
        new[node.fingerprint] = node.with_inputs(*(new[child.fingerprint] for child in node.inputs))
    return Recurse(seed, outside, new[asked.fingerprint], start, asked, distinct, max_rounds, strategy)


def ports_of(inputs: tuple[Node, ...], depth: int) -> tuple[LoopInput, ...]:
    """What stands for the inputs of a loop inside it."""
    names = ("result", *(f"outside {number}" for number in range(1, len(inputs))))
    pairs = zip(inputs, names, strict=True)
    return tuple(LoopInput(node.schema, name if depth == 1 else f"{name} of loop {depth}") for node, name in pairs)


def _depth(nodes: Iterable[Node]) -> int:
    """Of the operators of a body; loops that it reads from outside are not inside it."""
    return max((node.depth for node in nodes if isinstance(node, Recurse)), default=0)


def _parted(nodes: list[Node], start: LoopInput) -> tuple[list[Node], tuple[Node, ...]]:
    """The operators that are on the loop, and the streams they read that are not, each once."""
    inside: dict[str, Node] = {start.fingerprint: start}
    found: dict[str, Node] = {}
    for node in nodes:
        if any(child.fingerprint in inside for child in node.inputs):
            inside[node.fingerprint] = node
            found |= {child.fingerprint: child for child in node.inputs if child.fingerprint not in inside}
    return list(inside.values())[1:], tuple(found.values())


# --- what a body may hold --------------------------------------------------------------------------------------------


def _pairwise(node: Node) -> bool:
    if isinstance(node, Join):
        return node.kind == "inner"
    if isinstance(node, (Shift, Extend)):
        return node.by >= 0
    return isinstance(node, (LoopInput, *_PAIRWISE, *_LIFETIMES))


def _instant_wise(node: Node) -> bool:
    """Whether what an operator gives at an instant follows from what it is given then, whatever lifetimes say else."""
    if isinstance(node, (Aggregate, Top)):
        # A module that sees lifetimes sees other instants; what one diverts would be lost in the loop.
        plain = not node.sensitive and node.policy.on_error == "fail"
        return isinstance(node.window, Snapshot) and plain
    if isinstance(node, (Extend, *_LIFETIMES)):
        return False
    return _pairwise(node) or isinstance(node, (Coalesce, Join)) or (isinstance(node, Recurse) and node.distinct)


def _check_allowed(node: Node, *, distinct: bool) -> None:
    if distinct and not _instant_wise(node):
        raise PlanError(
            f"a loop of distinct payloads cannot hold {type(node).__name__}: it looks at more than one instant",
            given=node.describe(),
            allowed="where, select, union, joins, distinct, aggregates and top at every instant (snapshot windows), "
            "shift forward, loops",
            instead="put it before the loop or behind it",
        )
    if not distinct and not _pairwise(node):
        raise PlanError(
            f"a loop of all events cannot hold {type(node).__name__}: it looks at more than single events and pairs, "
            "or back in time",
            given=node.describe(),
            allowed="where, select, union, join, join_table, and lifetimes that do not move back",
            instead="recurse(..., distinct=True), or put it before the loop or behind it",
        )


def _check_options(node: Recurse) -> None:
    if type(node.distinct) is not bool:
        raise PlanError("distinct is a yes or no", given=node.distinct, allowed="True, False")
    if node.max_rounds is not None and (type(node.max_rounds) is not int or node.max_rounds < 1):
        raise PlanError(
            "max_rounds is how often a loop may go round",
            given=node.max_rounds,
            allowed="a whole number from 1 on, or None",
            instead="recurse(..., max_rounds=100)",
        )
    if node.strategy not in get_args(LoopProgress):
        raise PlanError("unknown way of progress", given=node.strategy, allowed=", ".join(get_args(LoopProgress)))
