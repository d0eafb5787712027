"""Cutting a plan into a line of stages.

Linear operators run where their rows are. An operator that needs rows brought together (`Node.needs`) runs one level
after its inputs, unless the rows are together already. Level 0 is the *intake*: the tasks that read the sources. Every
other level is a stage, run by a fixed number of buckets. Rows that cross levels travel on *edges*, routed by hash to
their bucket; stages in between pass them through. A plan without state has no stage: its rows leave where they were
read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.errors import PlanError
from headrace.optimizer import RULES, Rule, optimize
from headrace.plan.nodes import (
    Diverted,
    GroupInput,
    LoopEnd,
    LoopInput,
    LoopStart,
    Node,
    Output,
    Source,
    sources_of,
    walk,
)
from headrace.stages.spread import spread_loops

__all__ = ["Line", "PlanEdge", "cut", "line_of"]


@dataclass(frozen=True, eq=False)
class PlanEdge:
    """Rows of `producer` for the nodes of level `to` that read them.

    `route`: the columns whose hash decides the bucket; () for one bucket; None for any bucket.
    """

    number: int
    producer: Node
    start: int
    to: int
    route: tuple[str, ...] | None


@dataclass(frozen=True, eq=False)
class Line:
    """A plan cut into levels."""

    outputs: tuple[Output, ...]
    levels: dict[str, int]
    edges: tuple[PlanEdge, ...]

    @property
    def depth(self) -> int:
        """The number of stages after the intake."""
        return max(self.levels[output.fingerprint] for output in self.outputs)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, inputs first."""
        return tuple(walk(*self.outputs))

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        return tuple(sources_of(*self.outputs))

    @cached_property
    def loops(self) -> tuple[LoopEnd, ...]:
        """The loops across buckets."""
        return tuple(node for node in self.nodes if isinstance(node, LoopEnd))

    @cached_property
    def on_loops(self) -> frozenset[str]:
        """The operators of those loops, by fingerprint."""
        found: set[str] = set()
        for node in self.nodes:
            fed = any(child.fingerprint in found for child in node.inputs)
            if isinstance(node, LoopStart) or (fed and not isinstance(node, LoopEnd)):
                found.add(node.fingerprint)
        return frozenset(found)

    @cached_property
    def fingerprint(self) -> str:
        """A short text that is equal for queries that compute the same, and for no others."""
        return hashlib.sha256("\n".join(o.fingerprint for o in self.outputs).encode()).hexdigest()[:16]

    def at(self, level: int) -> tuple[Node, ...]:
        """The nodes of a level, inputs first."""
        return tuple(node for node in self.nodes if self.levels[node.fingerprint] == level)

    def edge_to(self, consumer: Node, position: int) -> PlanEdge | None:
        """The edge of one input of a consumer; None if both are on the same level."""
        producer, level = consumer.inputs[position], self.levels[consumer.fingerprint]
        if self.levels[producer.fingerprint] == level:
            return None
        route = consumer.need(position)
        return next(e for e in self.edges if (e.producer, e.to, e.route) == (producer, level, route))


def _needs_nothing(node: Node) -> bool:
    return all(node.need(i) is None for i in range(len(node.inputs)))


def _in_place(node: Node, levels: dict[str, int], level: int) -> bool:
    """Whether an operator can run on the level of its inputs.

    Rows of a single input stay where they are if they are together by some of the needed columns. Rows of several
    inputs must also meet: those on this level must be in the bucket of the hash of all needed columns, in their order;
    those from earlier levels are routed there.
    """
    if level == 0 or isinstance(node, LoopEnd):  # the end of a loop needs the rows of all buckets
        return False
    if len(node.inputs) == 1:
        keys = node.inputs[0].properties.keys
        return keys is not None and set(keys) <= set(node.need(0) or ())
    there = [(i, child) for i, child in enumerate(node.inputs) if levels[child.fingerprint] == level]
    return all(child.properties.keys == node.need(i) for i, child in there if node.need(i) is not None)


def line_of(outputs: Sequence[Output], buckets: int = 1, rules: Sequence[Rule] = RULES) -> Line:
    """A plan as it runs: optimized, and cut into levels."""
    return cut(optimize(outputs, rules), buckets)


def cut(outputs: Sequence[Output], buckets: int = 1) -> Line:
    """Assign every node a level, and find the edges between levels."""
    if buckets > 1:
        outputs = spread_loops(outputs)
    levels: dict[str, int] = {}
    for node in walk(*outputs):
        if isinstance(node, GroupInput):
            raise PlanError(
                "the stream of a group may be used only inside its apply",
                given=node.describe(),
                allowed="the stream that apply returns",
                instead="use the group's stream only in the function that apply calls",
            )
        if isinstance(node, LoopInput):
            raise PlanError(
                "the recursive stream of a loop may be used only inside the loop",
                given=node.describe(),
                allowed="the stream that recurse returns",
                instead="use it only in the function that recurse calls",
            )
        level = max((levels[child.fingerprint] for child in node.inputs), default=0)
        if not _needs_nothing(node) and not _in_place(node, levels, level):
            level += 1
        levels[node.fingerprint] = level
    return Line(tuple(outputs), levels, _edges(outputs, levels))


def _edges(outputs: Sequence[Output], levels: dict[str, int]) -> tuple[PlanEdge, ...]:
    wanted: dict[tuple[str, int, tuple[str, ...] | None], PlanEdge] = {}
    for node in walk(*outputs):
        for position, child in enumerate(node.inputs):
            if isinstance(node, Diverted):
                continue
            start, to, route = levels[child.fingerprint], levels[node.fingerprint], node.need(position)
            if start != to:
                wanted.setdefault((child.fingerprint, to, route), PlanEdge(len(wanted), child, start, to, route))
    return tuple(wanted.values())
