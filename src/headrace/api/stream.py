"""A stream, as people see it. Every method builds a plan node; nothing runs until `run`, `cht` or `start`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.api.checks import checked_aggregate, checked_expr, column_or_expr, join_keys, named_exprs, node_of
from headrace.api.running import Run, outputs_of, run, start
from headrace.errors import PlanError
from headrace.expr import AggregateCall, Expr, as_expr
from headrace.plan.nodes import (
    Aggregate,
    Extend,
    Final,
    Join,
    Node,
    PointAtStart,
    Select,
    SetDuration,
    Shift,
    Union,
    Where,
    set_aside,
)  # fmt: skip
from headrace.plan.windows import Window
from headrace.stages.explain import explain
from headrace.time import DurationLike, duration

__all__ = ["Grouped", "Stream", "Windowed"]


@dataclass(frozen=True, eq=False)
class Stream:
    """Events with lifetimes, and the query that makes them."""

    node: Node

    @property
    def schema(self) -> Any:
        """The columns of the payload."""
        return self.node.schema

    @property
    def _example(self) -> str:
        """The name of one of its columns, quoted, for errors that show what to write."""
        return repr(next(iter(self.node.schema.names), "key"))

    def where(self, predicate: Expr) -> Stream:
        """Keep the events for which the predicate is true."""
        return Stream(Where(self.node, checked_expr(predicate, "where", f"where(col({self._example}) == ...)")))

    def select(self, *columns: str | Expr, **named: Expr | str | float | bool | None) -> Stream:
        """Give other payloads: columns by name, expressions with an alias, or `name=expression`."""
        found = [column_or_expr(column, "select", f"select(name={column!r})") for column in columns]
        outputs = [*((c.name, c) for c in found), *((name, as_expr(value)) for name, value in named.items())]
        return Stream(Select(self.node, tuple(outputs)))

    def shift(self, by: DurationLike) -> Stream:
        """Move lifetimes by a duration."""
        return Stream(Shift(self.node, duration(by)))

    def set_duration(self, to: DurationLike) -> Stream:
        """Let every event last so long from its start."""
        return Stream(SetDuration(self.node, duration(to)))

    def extend(self, by: DurationLike) -> Stream:
        """Move the ends of lifetimes; a negative duration shortens."""
        return Stream(Extend(self.node, duration(by)))

    def point_at_start(self) -> Stream:
        """Keep the first instant of every event."""
        return Stream(PointAtStart(self.node))

    def union(self, *others: Stream) -> Stream:
        """All events of several streams with equal columns."""
        if not others:
            raise PlanError(
                "union needs at least one other stream", given="none", allowed="streams", instead="union(other)"
            )
        nodes = [node_of(o, "union(*streams)" if isinstance(o, (list, tuple)) else "union(other)") for o in others]
        return Stream(Union((self.node, *nodes)))

    def join(
        self, other: Stream, on: str | Sequence[str] | Mapping[str, str] = (), where: Expr | None = None
    ) -> Stream:
        """Pairs of events that overlap, with equal keys: the payloads side by side, for as long as both last.

        `on` names columns of both streams, or maps this one's to the other's. Columns of the other stream whose name is
        taken get `_right` behind it; `where` may use all of them.
        """
        right = node_of(other, "join(other, on='key')")
        if where is not None:
            checked_expr(where, "where", f"where=col({self._example}) == ...")
        return Stream(Join(self.node, right, join_keys(on), where))

    def group_by(self, *keys: str | Expr, **named: Expr) -> Grouped:
        """Work on groups of events with equal keys, each apart from the others."""
        instead = f"group_by({self._example})"
        found = [column_or_expr(key, "group_by", instead) for key in keys]
        return Grouped(self, (*((key.name, key) for key in found), *named_exprs(named, "group_by", instead)))

    def window(self, window: Window) -> Windowed:
        """Divide time into windows."""
        return Grouped(self, ()).window(window)

    def final(self) -> Stream:
        """Let an event out only when nothing can change it any more."""
        return Stream(Final(self.node))

    def diverted(self) -> Stream:
        """The rows of this stream's sources that were late or malformed, with the reason."""
        sides = set_aside(self.node, whole=True)
        return Stream(sides[0] if len(sides) == 1 else Union(tuple(sides)))

    def run(self, **options: Any) -> Run:
        """Run bounded inputs to their end; see `headrace.run`."""
        return run({"out": self.node}, **options)

    def cht(self, **options: Any) -> pa.Table:
        """Run bounded inputs to their end and give the history: `le`, `re` and the payload."""
        return self.run(**options).cht()

    def start(self, *sinks: Any, **options: Any) -> Any:
        """Run on Spark until stopped; see `headrace.start`."""
        return start([(self.node, sink) for sink in sinks], **options)

    def explain(self) -> str:
        """What runs, where, and what it remembers."""
        return explain(outputs_of({"out": self.node}))


@dataclass(frozen=True, eq=False)
class Grouped:
    """A stream divided by keys."""

    stream: Stream
    keys: tuple[tuple[str, Expr], ...]

    def __post_init__(self) -> None:
        for _, expr in self.keys:
            expr.type(self.stream.node.schema)

    def window(self, window: Window) -> Windowed:
        """Divide each group's time into windows."""
        if not isinstance(window, Window):
            raise PlanError("this is not a window", given=window, allowed="tumbling(...), hopping(...)")
        return Windowed(self, window)


@dataclass(frozen=True, eq=False)
class Windowed:
    """A stream divided by keys and windows."""

    grouped: Grouped
    over: Window

    def aggregate(self, *calls: Expr, **named: Expr) -> Stream:
        """One event per group and window with events: the keys and these aggregates."""
        found = [(_name(call), call) for call in map(checked_aggregate, calls)]
        outputs = (*found, *((name, checked_aggregate(call, name)) for name, call in named.items()))
        return Stream(Aggregate(self.grouped.stream.node, self.grouped.keys, self.over, outputs))


def _name(call: Expr) -> str:
    if isinstance(call, AggregateCall):
        return call.function if call.argument is None else f"{call.function}_{call.argument}"
    return call.name
