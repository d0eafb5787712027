"""Recursion: a stream that is defined, at every instant, by itself (rules 9.1 and 9.3).

`body` is a function of a stream, and the result is the limit of `X₀ = nothing, Xᵢ₊₁ = seed ∪ body(Xᵢ)`; with `distinct`
every payload is there at most once at an instant. If the body is monotone (joins, unions, filters), the limit is the
least fixed point. A loop that always gives something new has no limit, and an error stops it.

The body is called once, with a stream that stands for the result so far (`LoopInput`), and returns a plan over it.
Other streams that this plan reads become inputs of the node beside the seed; inside, `LoopInput`s stand for them too.
So the body is a self-contained plan, and a kernel can run it round by round.

With `distinct`, a body may contain operators that process one instant at a time, so that the result at an instant
follows from the inputs at that instant. Such a loop promises what its inputs promise. Without `distinct`, events go
round one by one, and a body may contain operators on single events or pairs that never go back in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import ClassVar, Literal, get_args

from headrace.errors import PlanError
from headrace.plan.base import Node, Properties, Reach, walk
from headrace.plan.coalesce import Coalesce
from headrace.plan.columns import columns_used
from headrace.plan.liveliness import Liveliness, of_all_inputs
from headrace.plan.loop_keys import loop_keys, why_no_key
from headrace.progress import Progress
from headrace.schema import Schema

__all__ = ["FedNode", "LoopInput", "LoopProgress", "Recurse", "recursion"]

#: How progress leaves the loop (rule 9.2).
LoopProgress = Literal["hwm", "probing", "hybrid"]

#: The default bounds on rounds: fewer where payloads may repeat for ever.
_MOST_ROUNDS, _MOST_PLAIN_ROUNDS = 10_000, 1_000
_numbers = count(1)


@dataclass(frozen=True, eq=False)
class FedNode(Node):
    """An input inside a loop, which the loop's kernel feeds."""

    reach: ClassVar[Reach] = "event"
    columns: Schema
    name: str
    dates: bool = False

    @cached_property
    def schema(self) -> Schema:
        return self.columns

    @cached_property
    def properties(self) -> Properties:
        return Properties(insert_only=False, settled=False)

    @property
    def liveliness(self) -> Liveliness:
        return Liveliness("by its loop", "by its loop", "none")

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002
        raise AssertionError("it has no input")

    def describe(self) -> str:
        return f"{type(self).__name__} {self.name}"

    def with_inputs(self, *inputs: Node) -> Node:  # noqa: ARG002 - it has none
        return self


@dataclass(frozen=True, eq=False)
class LoopInput(FedNode):
    """An input of a body: the result so far, or a stream from outside the loop."""

    @classmethod
    def fresh(cls, columns: Schema, *, dates: bool) -> LoopInput:
        """The result so far of a new loop, different from all others."""
        return cls(columns, f"loop {next(_numbers)}", dates)


@dataclass(frozen=True, eq=False)
class Recurse(Node):
    """The limit of `seed ∪ body(result)`.

    `body` reads `LoopInput`s: number 0 is the result so far, the others are the streams `outside`. `definition` is the
    body as it was written, a plan over the result `start`; tests compare the result with it.
    """

    linear: ClassVar[bool] = False
    seed: Node
    outside: tuple[Node, ...]
    body: Node
    start: LoopInput
    definition: Node
    distinct: bool = True
    max_rounds: int | None = None
    strategy: LoopProgress = "hybrid"
    #: Columns of all inputs and of the result that identify groups: each group has its own loop.
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_options(self)
        if self.body.schema != self.seed.schema:
            raise PlanError(
                "the body of a loop returns the columns of its seed",
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
    def dates(self) -> bool:
        return self.start.dates or any(
            node.dates for node in self.inputs
        )  # a started query may have others than written

    @cached_property
    def ports(self) -> tuple[LoopInput, ...]:
        """The inputs of the body: the result so far, then the streams from outside."""
        return ports_of(self.inputs, self.depth, dates=self.dates)

    @cached_property
    def depth(self) -> int:
        """The nesting depth of loops, counted from the innermost: inputs of nested loops have different names."""
        return 1 + _depth(walk(self.body))

    @property
    def bound(self) -> int:
        """The largest number of rounds; a loop that needs more is stopped."""
        return self.max_rounds or (_MOST_ROUNDS if self.distinct else _MOST_PLAIN_ROUNDS)

    @cached_property
    def circulates(self) -> bool:
        """Whether changes can go round by themselves: every operator of the body is pairwise."""
        return all(node.pairwise or isinstance(node, Coalesce) for node in walk(self.body))

    @cached_property
    def properties(self) -> Properties:
        below = [node.properties for node in self.inputs]
        plain = not self.distinct
        return Properties(
            insert_only=plain and all(p.insert_only for p in below),
            settled=plain and all(p.settled for p in below),
            keys=self.need(0),
        )

    @property
    def reach(self) -> Reach:
        return "instant" if self.distinct else "streams"

    @cached_property
    def _keys(self) -> tuple[str, ...] | None:
        return loop_keys(self.body, self.ports)

    @property
    def why_in_one_bucket(self) -> str | None:
        """Why a loop cannot be divided into buckets by a key; None if it can."""
        return None if self.need(0) else why_no_key(self.body, self.ports)

    def need(self, position: int) -> tuple[str, ...] | None:
        if self.groups or self._keys is None:
            return self.groups
        return (self._keys[position],)

    @property
    def liveliness(self) -> Liveliness:
        return of_all_inputs("what the loop has found, and events its operators met, whose end the CTI has not passed")

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - all columns go round
        return self.all_of(side) if side == 0 else columns_used(self.body)[self.ports[side].fingerprint]

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
        # A rule may have narrowed streams from outside: the body reads the remaining columns.
        ports = ports_of(inputs, self.depth, dates=self.dates)
        new: dict[str, Node] = dict(zip((p.fingerprint for p in self.ports), ports, strict=True))
        for node in walk(self.body):
            if node.fingerprint not in new:
                new[node.fingerprint] = node.with_inputs(*(new[child.fingerprint] for child in node.inputs))
        return replace(self, seed=inputs[0], outside=inputs[1:], body=new[self.body.fingerprint])

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:
        if not derived[0]:
            raise PlanError(
                "a loop inside apply needs a seed of the group: other events belong to no group",
                given=self.seed.describe(),
                allowed="a seed made from the group's stream",
                instead="recurse(group.select(...), ...), or the loop after apply(...)",
            )
        ports = ports_of(inputs, self.depth, dates=self.dates)
        new: dict[str, Node] = {old.fingerprint: port for old, port in zip(self.ports, ports, strict=True)}
        inside = {port.fingerprint for port, is_derived in zip(self.ports, derived, strict=True) if is_derived}
        for node in walk(self.body):
            if node.fingerprint not in new:
                flags = tuple(child.fingerprint in inside for child in node.inputs)
                parts = tuple(new[child.fingerprint] for child in node.inputs)
                new[node.fingerprint] = node.lifted(parts, keys, flags) if any(flags) else node.with_inputs(*parts)
                inside |= {node.fingerprint} if any(flags) else set()
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
    """The loop of a function of the result so far."""
    start = LoopInput.fresh(seed.schema, dates=seed.dates)
    definition = body(start)
    if definition.dates and not start.dates:  # streams from outside have dates, and so has the result
        start = LoopInput.fresh(seed.schema, dates=True)
        definition = body(start)
    nodes = list(walk(definition))
    if start not in nodes:
        raise PlanError(
            "the body of a loop must use its argument: without it nothing goes round",
            given=definition.describe(),
            allowed="a plan over the result so far",
            instead="recurse(seed, lambda found: found.join(edges, on='node').select(...))",
        )
    inside, outside = _split(nodes, start)
    ports = ports_of((seed, *outside), 1 + _depth(inside), dates=start.dates)
    new: dict[str, Node] = {node.fingerprint: port for node, port in zip((start, *outside), ports, strict=True)}
    for node in inside:
        new[node.fingerprint] = node.with_inputs(*(new[child.fingerprint] for child in node.inputs))
    return Recurse(seed, outside, new[definition.fingerprint], start, definition, distinct, max_rounds, strategy)


def ports_of(inputs: tuple[Node, ...], depth: int, *, dates: bool) -> tuple[LoopInput, ...]:
    """The nodes that stand for the inputs of a loop inside it; `dates`: whether the times of the result are dates."""
    suffix = "" if depth == 1 else f" of loop {depth}"
    outside = (
        LoopInput(node.schema, f"outside {number}{suffix}", node.dates) for number, node in enumerate(inputs[1:], 1)
    )
    return (LoopInput(inputs[0].schema, f"result{suffix}", dates), *outside)


def _depth(nodes: Iterable[Node]) -> int:
    """The nesting depth of these operators; streams from outside do not count."""
    return max((node.depth for node in nodes if isinstance(node, Recurse)), default=0)


def _split(nodes: list[Node], start: LoopInput) -> tuple[list[Node], tuple[Node, ...]]:
    """The operators of the loop, and the streams that they read from outside, each once."""
    inside: dict[str, Node] = {start.fingerprint: start}
    outside: dict[str, Node] = {}
    for node in nodes:
        if any(child.fingerprint in inside for child in node.inputs):
            inside[node.fingerprint] = node
            outside |= {child.fingerprint: child for child in node.inputs if child.fingerprint not in inside}
    return list(inside.values())[1:], tuple(outside.values())


# --- checks ----------------------------------------------------------------------------------------------------------


def _check_allowed(node: Node, *, distinct: bool) -> None:
    if distinct and not node.instant_wise:
        raise PlanError(
            f"a loop of distinct payloads cannot hold {type(node).__name__}: it uses more than one instant",
            given=node.describe(),
            allowed="where, select, union, joins, distinct, aggregates and top at every instant (snapshot windows), "
            "shift forward, loops",
            instead="put it before the loop or after it",
        )
    if not distinct and not node.pairwise:
        raise PlanError(
            f"a loop of all events cannot hold {type(node).__name__}: it uses more than single events and pairs, "
            "or back in time",
            given=node.describe(),
            allowed="where, select, union, join, join_table, and lifetimes that do not move back",
            instead="recurse(..., distinct=True), or put it before the loop or after it",
        )


def _check_options(node: Recurse) -> None:
    if type(node.distinct) is not bool:
        raise PlanError("distinct is true or false", given=node.distinct, allowed="True, False")
    if node.max_rounds is not None and (type(node.max_rounds) is not int or node.max_rounds < 1):
        raise PlanError(
            "max_rounds is the largest number of rounds of a loop",
            given=node.max_rounds,
            allowed="a whole number from 1 on, or None",
            instead="recurse(..., max_rounds=100)",
        )
    if node.strategy not in get_args(LoopProgress):
        raise PlanError("unknown progress of a loop", given=node.strategy, allowed=", ".join(get_args(LoopProgress)))
