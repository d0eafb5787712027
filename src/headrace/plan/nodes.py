"""The plan: operators as frozen nodes, from which schema, properties and progress are derived.

A plan is a graph of nodes that point at their inputs. Nodes hold what the user asked for and nothing that runs: kernels
are in `operators/`, one for each node class. A plan that makes no sense cannot be built: every node checks itself
against the schema of its inputs. Two nodes are equal when they would compute the same; `fingerprint` is that, as text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar

from headrace.errors import PlanError, SchemaError
from headrace.expr import AggregateCall, Expr, col, split_aggregates
from headrace.plan.policies import BadRowPolicy, Edge, Lifetime, Physical, ProgressPolicy
from headrace.plan.windows import Window
from headrace.progress import Progress
from headrace.schema import RESERVED, Field, Schema, Type
from headrace.time import add_one, format_duration

__all__ = [
    "DIVERTED", "Admit", "Aggregate", "Combine", "Diverted", "EdgeLifetimes", "Extend", "Final", "Merge", "Node",
    "Orphans", "Output", "PointAtStart", "Properties", "Select", "SetDuration", "Shift", "Source", "Union", "Where",
    "set_aside", "walk",
]  # fmt: skip


@dataclass(frozen=True)
class Properties:
    """What is known about a stream before it runs.

    `insert_only`: nothing is ever taken back. `settled`: lifetimes never change once given, so an event is final as
    soon as the CTI passes its LE (rule 3.5). `keys`: rows that agree on these columns are in the same bucket, in
    whatever stage the node runs; None when nothing is known; () when everything is in one bucket.
    """

    insert_only: bool
    settled: bool
    keys: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class Node:
    """An operator and its inputs."""

    #: Linear operators may run on any part of their input, so they run wherever their input is.
    linear: ClassVar[bool] = True

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        """The payload this node gives."""
        return self.inputs[0].schema

    @cached_property
    def properties(self) -> Properties:
        return self.inputs[0].properties

    @property
    def needs(self) -> tuple[str, ...] | None:
        """Columns of the input that rows must be brought together by; () for all in one place, None for no need."""
        return None

    def progress(self, inputs: list[Progress]) -> Progress:
        """The output's progress, for operators without state."""
        return inputs[0]

    def describe(self) -> str:
        """One line that says everything the user asked for."""
        return type(self).__name__

    def with_inputs(self, *inputs: Node) -> Node:
        """The same operator over other inputs."""
        raise NotImplementedError

    @cached_property
    def fingerprint(self) -> str:
        """A short text that is equal exactly for plans that compute the same."""
        text = "\n".join([self.describe(), str(self.schema), *(node.fingerprint for node in self.inputs)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


def walk(*roots: Node) -> Iterator[Node]:
    """Every node once, inputs before their readers."""
    seen: set[str] = set()

    def visit(node: Node) -> Iterator[Node]:
        if node.fingerprint not in seen:
            seen.add(node.fingerprint)
            for child in node.inputs:
                yield from visit(child)
            yield node

    for root in roots:
        yield from visit(root)


def _refuse_reserved(schema: Schema) -> None:
    for column in schema:
        if column.name in RESERVED or column.name.startswith("__"):
            raise SchemaError(
                f"a payload column may not be named {column.name!r}",
                given=str(schema),
                allowed=f"any name but {', '.join(RESERVED)} and those that begin with '__'",
                instead=f"select(..., {column.name}_=col({column.name!r}))",
            )


def _renamed(keys: tuple[str, ...] | None, outputs: tuple[tuple[str, Expr], ...]) -> tuple[str, ...] | None:
    """What columns that rows are together by are called in the output; None when one of them is gone."""
    new_names = {str(expr): name for name, expr in reversed(outputs)}
    renamed = [new_names.get(str(col(key))) for key in keys or ()]
    return None if keys is None or None in renamed else tuple(name for name in renamed if name)


@dataclass(frozen=True, eq=False)
class Source(Node):
    """An input: where rows come from, and how they become events.

    `origin` is told apart by its text only; the host's reader knows what to do with it.
    """

    origin: object
    columns: Schema
    lifetime: Lifetime
    policy: ProgressPolicy
    bad_rows: BadRowPolicy = "divert"
    #: Predicate and columns that the reader applies itself, put here by the optimizer.
    pushed: Expr | None = None
    read_columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _refuse_reserved(self.schema)
        if isinstance(self.lifetime, Edge):
            for name in self.lifetime.key:
                self.schema[name]

    @cached_property
    def schema(self) -> Schema:
        payload = self.columns.payload
        if self.read_columns is None:
            return payload
        return Schema(tuple(f for f in payload if f.name in self.read_columns))

    @cached_property
    def properties(self) -> Properties:
        physical = isinstance(self.lifetime, Physical)
        return Properties(insert_only=not physical, settled=not physical)

    def describe(self) -> str:
        pushed = f", reads only where {self.pushed}" if self.pushed is not None else ""
        bad = "" if self.bad_rows == "divert" else f", bad rows {self.bad_rows}"
        return f"Source {self.origin} as {self.lifetime}, progress {self.policy}{bad}{pushed}"


DIVERTED = Schema.of("source STRING, reason STRING, row STRING")


@dataclass(frozen=True, eq=False)
class Diverted(Node):
    """The side stream of a source: rows that were late or malformed, as points at the CTI they broke."""

    source: Source
    #: Whether somebody reads it, so that rows must be given whole, with columns the query itself does not use.
    whole: bool = True

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.source,)

    def describe(self) -> str:
        return "Diverted" + (" with all columns" if self.whole else "")

    @cached_property
    def schema(self) -> Schema:
        return DIVERTED

    @cached_property
    def properties(self) -> Properties:
        return Properties(insert_only=True, settled=True)

    def with_inputs(self, *inputs: Node) -> Node:
        assert isinstance(inputs[0], Source)
        return Diverted(inputs[0], self.whole)


@dataclass(frozen=True, eq=False)
class _OneInput(Node):
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, *inputs: Node) -> Node:
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "input"}
        return type(self)(inputs[0], **values)


@dataclass(frozen=True, eq=False)
class Admit(_OneInput):
    """Lets a retraction of physical events in only if the event it speaks of is there."""

    linear: ClassVar[bool] = False
    #: Columns that rows are brought together by; any will do, since equal events agree on all of them.
    by: tuple[str, ...] = ()

    @property
    def source(self) -> Source:
        assert isinstance(self.input, Source)
        return self.input

    @property
    def needs(self) -> tuple[str, ...] | None:
        return self.by or self.input.schema.names

    @cached_property
    def properties(self) -> Properties:
        return Properties(insert_only=False, settled=False, keys=self.needs)

    def describe(self) -> str:
        return f"Admit retractions of known events, rows together by {', '.join(self.needs or ())}"


@dataclass(frozen=True, eq=False)
class Orphans(_OneInput):
    """The retractions that an `Admit` has set aside: its second output."""

    @cached_property
    def schema(self) -> Schema:
        return DIVERTED

    @cached_property
    def properties(self) -> Properties:
        return Properties(insert_only=True, settled=True)


@dataclass(frozen=True, eq=False)
class Where(_OneInput):
    """Keeps events for which the predicate is true."""

    predicate: Expr

    def __post_init__(self) -> None:
        found = self.predicate.type(self.input.schema)
        if found is not Type.BOOLEAN:
            raise PlanError(
                "where needs a BOOLEAN",
                given=f"{self.predicate} of type {found.value}",
                instead=f"({self.predicate}) > 0",
            )

    def describe(self) -> str:
        return f"Where {self.predicate}"


@dataclass(frozen=True, eq=False)
class Select(_OneInput):
    """Maps payloads: each output column is an expression over the input's."""

    outputs: tuple[tuple[str, Expr], ...]

    def __post_init__(self) -> None:
        if not self.outputs:
            raise PlanError("select needs at least one column", instead="select('symbol', price2=col('price') * 2)")
        _refuse_reserved(self.schema)

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(Field(name, expr.type(self.input.schema)) for name, expr in self.outputs))

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(below.insert_only, below.settled, _renamed(below.keys, self.outputs))

    def describe(self) -> str:
        return "Select " + ", ".join(
            f"{name} = {expr}" if str(expr) != str(col(name)) else name for name, expr in self.outputs
        )


@dataclass(frozen=True, eq=False)
class Shift(_OneInput):
    """Moves lifetimes: `[LE + d, RE + d)`."""

    by: int

    def progress(self, inputs: list[Progress]) -> Progress:
        return Progress(add_one(inputs[0].cti, self.by), add_one(inputs[0].high, self.by))

    def describe(self) -> str:
        return f"Shift by {format_duration(self.by)}"


@dataclass(frozen=True, eq=False)
class SetDuration(_OneInput):
    """Gives every event the same duration: `[LE, LE + d)`."""

    duration: int

    def __post_init__(self) -> None:
        if self.duration <= 0:
            raise PlanError("a duration must be positive", given=self.duration, instead="set_duration('10 s')")

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(below.insert_only, settled=True, keys=below.keys)

    def describe(self) -> str:
        return f"SetDuration {format_duration(self.duration)}"


@dataclass(frozen=True, eq=False)
class Extend(_OneInput):
    """Moves ends: `[LE, RE + d)`; events that d makes empty vanish."""

    by: int

    def progress(self, inputs: list[Progress]) -> Progress:
        return Progress(add_one(inputs[0].cti, min(0, self.by)), inputs[0].high)

    def describe(self) -> str:
        return f"Extend by {format_duration(self.by)}"


@dataclass(frozen=True, eq=False)
class PointAtStart(_OneInput):
    """Keeps the first instant of every event."""

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(below.insert_only, settled=True, keys=below.keys)


@dataclass(frozen=True, eq=False)
class Union(Node):
    """The bag union of streams with equal columns."""

    parts: tuple[Node, ...]

    def __post_init__(self) -> None:
        first = self.parts[0].schema
        for other in self.parts[1:]:
            if other.schema != first:
                raise PlanError(
                    "union needs equal columns",
                    given=str(other.schema),
                    allowed=str(first),
                    instead="select the same columns first",
                )

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    @cached_property
    def properties(self) -> Properties:
        known = [part.properties for part in self.parts]
        keys = known[0].keys if all(p.keys == known[0].keys for p in known) else None
        return Properties(all(p.insert_only for p in known), all(p.settled for p in known), keys)

    def progress(self, inputs: list[Progress]) -> Progress:
        return Progress.together(inputs)

    def with_inputs(self, *inputs: Node) -> Node:
        return Union(inputs)


@dataclass(frozen=True, eq=False)
class EdgeLifetimes(_OneInput):
    """Turns samples (points) into a signal: each lasts until the next sample of its key."""

    linear: ClassVar[bool] = False
    key: tuple[str, ...]
    closes: Expr | None = None

    def __post_init__(self) -> None:
        found = Type.BOOLEAN if self.closes is None else self.closes.type(self.input.schema)
        if found is not Type.BOOLEAN:
            raise PlanError(
                "closes needs a BOOLEAN", given=f"{self.closes} of type {found.value}", instead=f"({self.closes}) > 0"
            )

    @property
    def needs(self) -> tuple[str, ...] | None:
        return self.key

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties.keys
        keys = below if below is not None and set(below) <= set(self.key) else self.key
        return Properties(insert_only=False, settled=False, keys=keys)

    def describe(self) -> str:
        closes = f", closed by {self.closes}" if self.closes is not None else ""
        return f"EdgeLifetimes by {', '.join(self.key) or 'nothing'}{closes}"


@dataclass(frozen=True, eq=False)
class Aggregate(_OneInput):
    """Aggregates per group and window; the optimizer splits it into `Combine` and `Merge`."""

    linear: ClassVar[bool] = False
    keys: tuple[tuple[str, Expr], ...]
    window: Window
    outputs: tuple[tuple[str, Expr], ...]

    def __post_init__(self) -> None:
        if not self.outputs:
            raise PlanError("aggregate needs at least one output", instead="aggregate(n=hr.count())")
        for name, expr in self.outputs:
            outside = sorted(set(_columns_outside_calls(expr)))
            if outside:
                raise PlanError(
                    f"{name!r} uses {', '.join(outside)} outside an aggregate function",
                    given=str(expr),
                    instead=f"hr.max({outside[0]!r}), or group_by({outside[0]!r})",
                )
        _refuse_reserved(self.schema)

    @cached_property
    def schema(self) -> Schema:
        below = self.input.schema
        keys = [Field(name, expr.type(below)) for name, expr in self.keys]
        return Schema((*keys, *(Field(name, expr.type(below)) for name, expr in self.outputs)))

    @cached_property
    def split(self) -> tuple[dict[str, AggregateCall], dict[str, Expr]]:
        """The aggregate calls by internal column, and the outputs written over those columns."""
        return split_aggregates(dict(self.outputs))

    @cached_property
    def properties(self) -> Properties:
        # Rows that are together already stay where they are, so they are together by what brought them there.
        below = _renamed(self.input.properties.keys, self.keys)
        return Properties(insert_only=False, settled=True, keys=self.needs if below is None else below)

    @property
    def needs(self) -> tuple[str, ...] | None:
        return tuple(name for name, _ in self.keys)

    def describe(self) -> str:
        keys = ", ".join(name if str(expr) == str(col(name)) else f"{name} = {expr}" for name, expr in self.keys)
        outputs = ", ".join(f"{name} = {expr}" for name, expr in self.outputs)
        return f"Aggregate {outputs} over {self.window}" + (f" per {keys}" if keys else "")


def _columns_outside_calls(expr: Expr) -> Iterator[str]:
    if isinstance(expr, AggregateCall):
        return
    if not expr.children:
        yield from expr.columns()
    for child in expr.children:
        yield from _columns_outside_calls(child)


@dataclass(frozen=True, eq=False)
class Combine(_OneInput):
    """The first half of an aggregate: partial results per group and span of windows, wherever the rows are."""

    aggregate: Aggregate

    @cached_property
    def schema(self) -> Schema:
        return Schema(self.aggregate.schema.fields[: len(self.aggregate.keys)])

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(below.insert_only, below.settled, _renamed(below.keys, self.aggregate.keys))

    def describe(self) -> str:
        return f"Combine for {self.aggregate.describe()}"


@dataclass(frozen=True, eq=False)
class Merge(_OneInput):
    """The second half: partial results brought together by group, answers given and corrected."""

    linear: ClassVar[bool] = False
    aggregate: Aggregate

    @cached_property
    def schema(self) -> Schema:
        return self.aggregate.schema

    @cached_property
    def properties(self) -> Properties:
        return self.aggregate.properties

    @property
    def needs(self) -> tuple[str, ...] | None:
        return self.aggregate.needs

    def describe(self) -> str:
        return f"Merge for {self.aggregate.describe()}"


@dataclass(frozen=True, eq=False)
class Final(_OneInput):
    """Lets an event out only when no legal change can touch it any more (rule 3.5)."""

    linear: ClassVar[bool] = False

    @property
    def needs(self) -> tuple[str, ...] | None:
        return self.input.schema.names

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(insert_only=True, settled=True, keys=below.keys)


@dataclass(frozen=True, eq=False)
class Output(_OneInput):
    """Where a stream leaves: events that one correction is made of must be together, to be paired (rule 2.3)."""

    linear: ClassVar[bool] = False
    name: str

    @property
    def needs(self) -> tuple[str, ...] | None:
        return None if self.input.properties.insert_only else self.input.schema.names

    def describe(self) -> str:
        return f"Output {self.name}"


def set_aside(*roots: Node, whole: bool) -> list[Node]:
    """The streams of rows that the sources of a plan set aside: late and malformed ones, and retractions of nothing."""
    nodes = list(walk(*roots))
    late: list[Node] = [Diverted(node, whole) for node in nodes if isinstance(node, Source)]
    return late + [Orphans(node) for node in nodes if isinstance(node, Admit)]
