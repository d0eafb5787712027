"""Sources, admission, and diverted rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.plan.base import Node, OneInput, Properties, Reach, refuse_reserved, walk
from headrace.plan.liveliness import AS_INPUT, NOT_ENDED, Liveliness
from headrace.plan.policies import (
    Advance,
    BadRowPolicy,
    Edge,
    Interval,
    Lifetime,
    Physical,
    Point,
    ProgressPolicy,
    Shedding,
    arrives,
    times_are_dates,
)
from headrace.schema import ARRIVAL, STAMPS, Schema, Type

__all__ = [
    "DIVERTED", "RE_NEW", "Admit", "Diverted", "Orphans", "Source", "diverted_rows", "diverted_streams", "shedding",
    "sources_of",
]  # fmt: skip


#: Rows that were not used: their source, the reason, the file and line where known, and the row.
DIVERTED = Schema.of("source STRING, reason STRING, file STRING, line LONG, row STRING")
#: The types of times by which rows may be shed.
_TIMES = (Type.DATETIME, Type.DATE)
#: The column of a retraction's new end, null for inserts, between a source and its `Admit`.
RE_NEW = "__re_new"


@dataclass(frozen=True, eq=False)
class Source(Node):
    """An input: the origin of rows, and how they become events.

    Only its text identifies `origin`; the host's reader reads it.
    """

    reach: ClassVar[Reach] = "streams"
    origin: object
    columns: Schema
    lifetime: Lifetime
    policy: ProgressPolicy
    bad_rows: BadRowPolicy = "divert"
    #: Predicate and columns that the optimizer has moved into the reader.
    pushed: Expr | None = None
    read_columns: tuple[str, ...] | None = None
    #: Whether rows have their arrival and position: `STAMPS`, the last of `columns`.
    stamped: bool = False
    #: Whether times are dates, for rows in memory whose lifetime does not show it; None: the lifetime shows it.
    dated: bool | None = None
    #: Which rows a started query drops under overload.
    shedding: Shedding | None = None

    def __post_init__(self) -> None:
        if self.shedding is not None:
            _check_shedding(self.shedding, self.lifetime, self.columns.payload)
        refuse_reserved(self.schema, STAMPS if self.stamped else None)
        if self.policy.late == "adjust" and not isinstance(self.lifetime, (Interval, Physical)):
            raise PlanError(
                "late='adjust' moves the start of a lifetime up to the CTI, and nothing is left of an instant",
                given=f"{self.lifetime}, progress {self.policy}",
                allowed="late='divert', 'drop' or 'raise' for points, edges and arrivals; 'adjust' for intervals",
                instead="late='divert'",
            )
        if self.stamped and ARRIVAL not in self.columns:
            raise PlanError("stamped rows have columns for the stamps", given=str(self.columns), allowed=str(STAMPS))
        if isinstance(self.lifetime, Edge):
            for name in self.lifetime.key:
                self.schema[name]
        if isinstance(self.policy, Advance) and self.policy.per is not None:
            if arrives(self.lifetime):
                raise PlanError(
                    "rows in the order of their arrival are never late, so their keys have no progress of their own",
                    given=str(self.policy),
                    instead="hr.advance(...) without per=",
                )
            if self.columns.payload[self.policy.per].type.is_array:
                raise PlanError("a list cannot be a key of progress", given=str(self.policy), allowed="a plain column")

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

    @cached_property
    def dates(self) -> bool:
        return times_are_dates(self.lifetime, self.columns) if self.dated is None else self.dated

    @property
    def instants(self) -> bool:
        return isinstance(self.lifetime, Point)

    @property
    def ends(self) -> bool:
        return self.instants

    @property
    def liveliness(self) -> Liveliness:
        return Liveliness("by its policy", "by its policy", "none")

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002
        raise AssertionError("a source has no input")

    def describe(self) -> str:
        pushed = f", reads only where {self.pushed}" if self.pushed is not None else ""
        bad = "" if self.bad_rows == "divert" else f", bad rows {self.bad_rows}"
        stamped = ", stamped" if self.stamped else ""
        sheds = f", {self.shedding}" if self.shedding is not None else ""
        return f"Source {self.origin} as {self.lifetime}{stamped}, progress {self.policy}{bad}{pushed}{sheds}"


def shedding(node: Node, rule: Shedding) -> Source:
    """A source that sheds rows by a rule."""
    if isinstance(node, OneInput) and isinstance(node.inputs[0], Source):
        _check_shedding(rule, node.inputs[0].lifetime, node.schema)
    if not isinstance(node, Source):
        raise PlanError(
            "only a stream as it is read sheds rows",
            given=node.describe(),
            allowed="the stream of a source, before any operator",
            instead="hr.read_csv(...).shed(above=100_000)",
        )
    return replace(node, shedding=rule)


def _check_shedding(rule: Shedding, lifetime: Lifetime, payload: Schema) -> None:
    if isinstance(lifetime, (Physical, Edge)):
        raise PlanError(
            "these rows change what others say, so none may be shed",
            given=str(lifetime),
            allowed="shedding for rows that are events of their own: points, arrivals and intervals",
        )
    if rule.by is not None and not (payload[rule.by].type.is_numeric or payload[rule.by].type in _TIMES):
        raise PlanError(
            "rows are shed by a number or a time",
            given=f"{rule.by} {payload[rule.by].type}",
            allowed=", ".join(f.name for f in payload if f.type.is_numeric or f.type in _TIMES) or "RANDOM",
        )


@dataclass(frozen=True, eq=False)
class Diverted(Node):
    """The side stream of a source: late and malformed rows, as points at the CTI that they broke."""

    reach: ClassVar[Reach] = "streams"
    instants: ClassVar[bool] = True
    source: Source
    #: Whether the query reads it, so that rows must have all columns, also those that the query does not use.
    whole: bool = True

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.source,)

    @property
    def liveliness(self) -> Liveliness:
        return AS_INPUT

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - the rows as they came
        return self.all_of(side) if self.whole else set()

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
class Admit(OneInput):
    """Admits a retraction of a physical event only if the event exists."""

    linear: ClassVar[bool] = False
    reach: ClassVar[Reach] = "streams"
    ends: ClassVar[None] = None
    #: The columns by which rows are brought together. Any columns are correct, because equal events agree on all; the
    #: optimizer chooses them.
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
        return Properties(insert_only=False, settled=False, keys=self.by or None)

    @property
    def liveliness(self) -> Liveliness:
        return AS_INPUT.remembering(NOT_ENDED)

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - all of them
        return self.all_of(side)

    def describe(self) -> str:
        return f"Admit retractions of known events, rows together by {', '.join(self.needs or ())}"


@dataclass(frozen=True, eq=False)
class Orphans(OneInput):
    """The retractions that an `Admit` has diverted: its second output."""

    reach: ClassVar[Reach] = "streams"
    instants: ClassVar[bool] = True

    @cached_property
    def schema(self) -> Schema:
        return DIVERTED

    @cached_property
    def properties(self) -> Properties:
        return Properties(insert_only=True, settled=True)

    @property
    def liveliness(self) -> Liveliness:
        return AS_INPUT

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - it has columns of its own
        return set()


def sources_of(*roots: Node) -> list[Source]:
    """The sources that a plan reads, each once."""
    return [node for node in walk(*roots) if isinstance(node, Source)]


def diverted_streams(*roots: Node, whole: bool) -> list[Node]:
    """The streams of diverted rows: late and malformed rows, retractions of unknown events, failed windows."""
    nodes = list(walk(*roots))
    late: list[Node] = [Diverted(source, whole) for source in sources_of(*roots)]
    late += [Orphans(node) for node in nodes if isinstance(node, Admit)]
    return late + [side for node in nodes if (side := node.side()) is not None]


def diverted_rows(
    source: str, reasons: Any, rows: Sequence[str], file: str | None = None, lines: pa.Array | None = None
) -> pa.Table:
    """Diverted rows of one source, as rows of the side stream; by default without file and line."""
    size = len(rows)
    files = pa.array([file] * size, pa.string())
    places = pa.nulls(size, pa.int64()) if lines is None else lines
    return pa.table([[source] * size, reasons, files, places, rows], schema=DIVERTED.arrow)
