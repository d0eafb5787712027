"""Streams: every method builds a plan node; nothing runs until `run`, `cht` or `start`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import pyarrow as pa

from headrace.api.checks import (
    checked_expr,
    checked_function,
    checked_operator,
    checked_window,
    column_or_expr,
    columns_or_exprs,
    join_keys,
    named_aggregates,
    named_exprs,
    node_of,
    refuse_instants,
    row_expr,
)
from headrace.api.options import OverOptions, StreamRunOptions, StreamStartOptions, WindowOptions, shows_options
from headrace.api.pattern import match_node
from headrace.api.ranking import distinct_rows, top_node, without_stamps
from headrace.api.running import Run, outputs_of, run, start
from headrace.api.windows import Slide, frame
from headrace.errors import PlanError
from headrace.explain.steps import explain
from headrace.expr import Expr, as_expr
from headrace.host.driving.query import Query
from headrace.io.tables import table_of
from headrace.modules import Module, Operator
from headrace.patterns import Pattern
from headrace.plan.arrival import stamped
from headrace.plan.framed import frame_node
from headrace.plan.group_apply import apply_to_groups
from headrace.plan.join import JoinKind
from headrace.plan.nodes import (
    Aggregate,
    CapDuration,
    Clip,
    Coalesce,
    Contents,
    Extend,
    Final,
    Fold,
    GroupInput,
    Join,
    Node,
    Operate,
    PointAtEnd,
    PointAtStart,
    Select,
    SetDuration,
    Shift,
    TableJoin,
    Union,
    Where,
    diverted_streams,
)  # fmt: skip
from headrace.plan.ordered import Frame, Ordered
from headrace.plan.pattern import Rows
from headrace.plan.table import TableJoinKind
from headrace.plan.windows import PLAIN_POLICY, Clipping, Snapshot, Timestamping, WindowKind, WindowPolicy
from headrace.schema import STAMPS, Schema
from headrace.time import DurationLike, duration

if TYPE_CHECKING:
    from headrace.api.history import Engine, History
    from headrace.history.inputs import Late

__all__ = ["Framed", "Grouped", "Stream", "Windowed"]


@dataclass(frozen=True, eq=False)
class Stream:
    """Events with lifetimes, as the result of a query."""

    node: Node

    @property
    def schema(self) -> Any:
        """The columns of the payload."""
        return self.node.schema

    @property
    def _example(self) -> str:
        """The name of a column, quoted, for errors that show what to write."""
        return repr(next(iter(self.node.schema.names), "key"))

    def where(self, predicate: Expr) -> Stream:
        """Keep the events for which the predicate is true."""
        return Stream(Where(self.node, checked_expr(predicate, "where", f"where(col({self._example}) == ...)")))

    def select(self, *columns: str | Expr, **named: Expr | str | float | bool | None) -> Stream:
        """Compute new payloads: columns by name, expressions with an alias, or `name=expression`."""
        found = [column_or_expr(column, "select", f"select(name={column!r})") for column in columns]
        outputs = [
            *((c.name, c) for c in found),
            *((name, row_expr(as_expr(value), "select")) for name, value in named.items()),
        ]
        return Stream(Select(self.node, tuple(outputs)))

    def shift(self, by: DurationLike) -> Stream:
        """Move lifetimes by a duration."""
        return Stream(Shift(self.node, duration(by)))

    def set_duration(self, to: DurationLike) -> Stream:
        """Let every event last `to` from its start."""
        return Stream(SetDuration(self.node, duration(to)))

    def extend(self, by: DurationLike) -> Stream:
        """Move the ends of lifetimes by a duration; a negative one shortens them."""
        return Stream(Extend(self.node, duration(by)))

    def point_at_start(self) -> Stream:
        """Keep the first instant of every event."""
        return Stream(PointAtStart(self.node))

    def point_at_end(self) -> Stream:
        """Keep the instant at which an event ends; an event without an end gives none."""
        return Stream(PointAtEnd(self.node))

    def cap_duration(self, to: DurationLike) -> Stream:
        """Let no event last longer than `to` from its start."""
        return Stream(CapDuration(self.node, duration(to)))

    def coalesce(self) -> Stream:
        """Merge events with equal payloads whose lifetimes meet or overlap."""
        return Stream(Coalesce(self.node))

    def distinct(self, *columns: str | Expr) -> Stream:
        """Keep each payload at most once at every instant: merge its events that meet or overlap.

        With columns, select these first.
        """
        return (self.select(*columns) if columns else self).coalesce()

    def union(self, *others: Stream) -> Stream:
        """All events of this stream and others with equal columns."""
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

        `on` names columns of both streams, or maps this stream's names to the other's. Columns of the other stream
        whose names clash get the suffix `_right`; `where` may use all columns. Two streams of instants are refused:
        give one of them a duration.
        """
        return self._joined("join", other, on, where, "inner")

    def left_join(
        self, other: Stream, on: str | Sequence[str] | Mapping[str, str] = (), where: Expr | None = None
    ) -> Stream:
        """The result of `join`, and the parts of this stream's lifetimes without a match, with nulls.

        An event with the lifetime [1, 9) and a match during [3, 5) gives a pair for [3, 5), and rows with nulls for
        [1, 3) and [5, 9). A null key, and a condition that is null, match nothing.
        """
        return self._joined("left_join", other, on, where, "left")

    def anti_join(
        self, other: Stream, on: str | Sequence[str] | Mapping[str, str] = (), where: Expr | None = None
    ) -> Stream:
        """The parts of this stream's lifetimes during which no event of the other has equal keys and passes `where`.

        `where` may use the columns of both, named as `join` names them; the payload is this stream's.
        """
        return self._joined("anti_join", other, on, where, "anti")

    def _joined(self, method: str, other: Any, on: Any, where: Any, kind: JoinKind) -> Stream:
        right = node_of(other, f"{method}(other, on='key')")
        if where is not None:
            checked_expr(where, "where", f"where=col({self._example}) == ...")
        refuse_instants(self.node, right, method)
        return Stream(Join(self.node, right, join_keys(on), where, kind))

    def join_table(
        self,
        table: pa.Table | str | Path,
        on: str | Sequence[str] | Mapping[str, str],
        how: TableJoinKind = "inner",
        *,
        schema: Schema | str | pa.Schema | None = None,
    ) -> Stream:
        """Pairs of an event and a table's row with equal keys: the payloads side by side, with the event's lifetime.

        `table` is an Arrow table, a pandas frame, or a path to Parquet, CSV, JSON or Arrow files; without `schema` its
        columns are inferred. With `how="left"` an event without a matching row stays, with nulls; a null key matches
        nothing. Names are those of `join`.

        The table is read once, when the query starts, and is part of the query: a checkpoint with another content is
        refused. A table that changes is a stream: `join` or `left_join` it, read with a lifetime such as
        `hr.edge("valid_from", key="code")`, with which every row lasts until the next row of its key.
        """
        rows = table_of(table, schema)
        return Stream(TableJoin(self.node, rows, rows.columns, join_keys(on), how))

    def clip(self, by: Stream, on: str | Sequence[str] | Mapping[str, str] = ()) -> Stream:
        """End every event where the first event of `by` with equal keys starts strictly inside its lifetime.

        `on` names columns of both streams, or maps this stream's names to the other's; without it any event of `by`
        clips. An event of `by` that starts at the start or at the end of an event does not clip it. A null key matches
        nothing.
        """
        return Stream(Clip(self.node, node_of(by, "clip(by=other, on='key')"), join_keys(on)))

    def group_by(self, *keys: str | Expr, **named: Expr) -> Grouped:
        """Divide the stream into groups of events with equal keys."""
        instead = f"group_by({self._example})"
        found = [column_or_expr(key, "group_by", instead) for key in keys]
        return Grouped(self, (*((key.name, key) for key in found), *named_exprs(named, "group_by", instead)))

    @shows_options(WindowOptions)
    def window(self, window: WindowKind, **policy: Unpack[WindowOptions]) -> Windowed:
        """Divide time into windows; see `Grouped.window`."""
        return Grouped(self, ()).window(window, **policy)

    @shows_options(OverOptions)
    def over(
        self, *, rows: int | None = None, range: DurationLike | None = None, slide: Slide | None = None,
        active: bool = False, **policy: Unpack[OverOptions],
    ) -> Framed:  # fmt: skip
        """For each event, the events before it and itself; see `Grouped.over`."""
        return Grouped(self, ()).over(rows=rows, range=range, slide=slide, active=active, **policy)

    def match(
        self, pattern: Pattern | str, *, rows: Rows = "one", transitions: Stream | None = None, **measures: Expr | str
    ) -> Stream:
        """The matches of a pattern; see `Grouped.match`."""
        return Grouped(self, ()).match(pattern, rows=rows, transitions=transitions, **measures)

    def top(self, k: int, by: str | Expr | Sequence[str | Expr], *, descending: bool = True) -> Stream:
        """At every instant, the first k of the events alive, ordered by `by`."""
        return Grouped(self, ()).top(k, by, descending=descending)

    def final(self) -> Stream:
        """Hold back each event until it is final."""
        return Stream(Final(self.node))

    def diverted(self) -> Stream:
        """The rows of this stream's sources that were late or malformed, with the reason."""
        sides = diverted_streams(self.node, whole=True)
        return Stream(sides[0] if len(sides) == 1 else Union(tuple(sides)))

    @shows_options(StreamRunOptions)
    def run(self, **options: Unpack[StreamRunOptions]) -> Run:
        """Run bounded inputs to their end; see `headrace.run`."""
        return run({"out": self.node}, **options)

    @shows_options(StreamRunOptions)
    def cht(self, **options: Unpack[StreamRunOptions]) -> pa.Table:
        """Run bounded inputs to their end and return the history: `le`, `re` and the payload."""
        return self.run(**options).cht()

    def history(self, engine: Engine = "spark", *, late: Late = "decide", master: str | None = None) -> History:
        """The same query as batch SQL over all stored rows of its inputs: `.cht()`, `.dataframe()`, `.sql()`.

        The history is that of the live query. `engine` is `spark`, on `master` as in `run`, or `duckdb`, in process.
        Rows that are late for the live query are treated by the policy of their input, as far as that follows from the
        stored rows; `late="include"` uses them as if they were in time.
        """
        # Imported when it is needed: printers of SQL load slowly.
        from headrace.api.history import History

        return History(self.node, engine, late, master)

    @shows_options(StreamStartOptions)
    def start(self, *sinks: Any, **options: Unpack[StreamStartOptions]) -> Query:
        """Run until stopped, on Spark or with `host="local"` in this process; see `headrace.start`."""
        return start([(self.node, sink) for sink in sinks], **options)

    def verify(
        self,
        *,
        seeds: int = 100,
        over: Any = "anything",
        seed: int = 0,
        own_data: bool = True,
        shape: Literal["point", "interval", "edge"] = "interval",
        order: Literal["full", "corrections"] = "corrections",
        pattern: Callable[..., Any] | None = None,
    ) -> Any:
        """Compare the query with batch SQL over the history, on its own data and on `seeds` generated streams.

        It raises if they differ, with the smallest stream that shows the difference, and returns a report of what was
        tried. `over` describes the streams: `"highly_out_of_order & revised"`. `shape` and `order` declare the answers:
        points, for instance, or in the order of their times. `pattern` is a function of a `random.Random` and a number
        n, and returns n lifetimes (start, end), for streams with a special shape.
        """
        # Imported here because it imports streams, and most queries do not need it.
        from headrace.testing.verify.own_data import verify

        options = {"seeds": seeds, "over": over, "seed": seed, "shape": shape, "order": order, "pattern": pattern}
        return verify(self.node, own_data=own_data, **options)

    def explain(self, *, liveliness: bool = False) -> str:
        """The operators, where they run and their state; with `liveliness`, how soon answers are final, and advice."""
        return explain(outputs_of({"out": self.node}), liveliness=liveliness)


@dataclass(frozen=True, eq=False)
class Grouped:
    """A stream divided by keys."""

    stream: Stream
    keys: tuple[tuple[str, Expr], ...]

    def __post_init__(self) -> None:
        for name, expr in self.keys:
            if expr.type(self.stream.node.schema).is_array:
                raise PlanError(
                    "a list cannot be a key of groups",
                    given=f"{name} = {expr}",
                    allowed="columns of one value",
                    instead="a function of the list: @hr.udf",
                )

    def window(
        self,
        window: WindowKind,
        *,
        clipping: Clipping = "none",
        timestamping: Timestamping | None = None,
        on_error: Literal["fail", "skip"] = "fail",
        verify: bool = False,
        time_limit: float | None = None,
    ) -> Windowed:
        """Divide each group's time into windows.

        The other arguments are for users' modules. `clipping` says how lifetimes are clipped to the window before a
        time-sensitive module sees them (`none`, `left`, `right`, `full`), `timestamping` which lifetimes its outputs
        get (`align`, `unchanged`, `clip`, `time_bound`). If a module fails, `on_error="skip"` leaves out the window,
        counts it and diverts it. `verify` calls modules twice, to check that they are deterministic; `time_limit` is in
        seconds for each call.
        """
        policy = WindowPolicy(clipping, timestamping, on_error, verify, time_limit)
        checked = checked_window(window)
        return Windowed(self._in_order() if isinstance(checked, Ordered) else self, checked, policy)

    def over(
        self,
        *,
        rows: int | None = None,
        range: DurationLike | None = None,
        slide: Slide | None = None,
        active: bool = False,
        on_error: Literal["fail", "skip"] = "fail",
        verify: bool = False,
        time_limit: float | None = None,
    ) -> Framed:
        """For each event, the events of its group that start before it, and itself.

        Events are ordered by their starts, then by their arrival if the source records it, then by their columns.
        `over(rows=9)` takes the nine events before, `over(range="10 s")` those that start up to ten seconds before,
        `over()` all.

        With a slide only some events have a result: `over(rows=49, slide=10)` every tenth event of its group,
        `over(range="60 s", slide="10 s")` the last event of every ten seconds, once these have passed.

        With `active`, events leave a range when their time is over, not when the next event comes, and what a module
        returns then is an answer too: each answer is an instant, with the keys as columns.
        """
        policy = WindowPolicy("none", None, on_error, verify, time_limit)
        return Framed(self._in_order(), frame(rows, range, slide), policy, active)

    def match(
        self, pattern: Pattern | str, *, rows: Rows = "one", transitions: Stream | None = None, **measures: Expr | str
    ) -> Stream:
        """The matches of a pattern among the events of each group, in the order that `over` has.

        A match is an event at the instant of its last event, with the keys and the measures:
        `match(hr.pattern("A B+", define=...), start=hr.first("A.price"), n=hr.count())`. `rows="all"` gives a row for
        each event of the match, with its own columns and the measures of the match up to it.

        `transitions` is a stream with columns `source`, `variable`, `target` and `final`, such as
        `hr.events(pattern.transitions())`: it says which variable may follow which, and may change while the query
        runs.
        """
        moves = None if transitions is None else node_of(transitions, "transitions=hr.events(pattern.transitions())")
        found = match_node(self._in_order().stream.node, self.keys, pattern, rows, measures, moves)
        return Stream(without_stamps(found))

    def _in_order(self) -> Grouped:
        """The groups with the arrival of events, if the source records it: it orders events that start together."""
        return replace(self, stream=Stream(stamped(self.stream.node)))

    def apply(self, function: Callable[[Stream], Stream]) -> Stream:
        """The union of a query's results for each group; the group's keys are the first columns.

        `function` is called once, with a stream that stands for any group, and returns a stream made from it by any
        operators: windows, joins of its parts, groups within the group. It may join other streams, which meet every
        group. A column of the result with the name of a key is replaced by the key. All groups run at once.
        """
        example = "apply(lambda group: group.where(...))"
        group = GroupInput.of(self.stream.node)
        result = checked_function(function, "apply", example)(Stream(group))
        return Stream(apply_to_groups(self.keys, group, node_of(result, example)))

    def top(self, k: int, by: str | Expr | Sequence[str | Expr], *, descending: bool = True) -> Stream:
        """At every instant, the first k of each group's events alive, ordered by `by`."""
        return self.window(Snapshot()).top(k, by, descending=descending)


@dataclass(frozen=True, eq=False)
class Windowed:
    """A stream divided by keys and windows."""

    grouped: Grouped
    over: WindowKind
    policy: WindowPolicy = PLAIN_POLICY

    def aggregate(self, *calls: Expr | Module, **named: Expr | Module) -> Stream:
        """One event for each group and window with events: the keys and the aggregates.

        A module alone reads the columns with the names of its input fields; `module.of(...)` names others.
        """
        outputs = named_aggregates(calls, named)
        return Stream(Aggregate(self.grouped.stream.node, self.grouped.keys, self.over, outputs, policy=self.policy))

    def operate(self, module: Operator, *columns: str | Expr, **fields: str | Expr) -> Stream:
        """The outputs of a user's operator for the events of each group and window.

        Columns are its input fields in order, or by name; a field that is not given is the column of the same name.
        """
        mapping = tuple(checked_operator(module).mapping(columns, fields).items())
        node, keys = self.grouped.stream.node, self.grouped.keys
        return Stream(Operate(node, keys, self.over, module, mapping, policy=self.policy))

    def top(
        self,
        k: int,
        by: str | Expr | Sequence[str | Expr],
        *,
        each: str | Expr | Sequence[str | Expr] = (),
        descending: bool = True,
    ) -> Stream:
        """The first k events of each group and window, ordered by `by`, then by all columns.

        With `each`, k events for each value of these columns in a window; the windows stay those of the group.
        """
        order, values = (columns_or_exprs(columns, "top", "top(3, by='price')") for columns in (by, each))
        node, keys = self.grouped.stream.node, self.grouped.keys
        found = top_node(node, keys, self.over, self.policy, k=k, by=order, descending=descending, each=values)
        return Stream(without_stamps(found))

    def distinct(self, *columns: str | Expr) -> Stream:
        """Each payload once for every window that has it; with columns, payloads are the keys and these columns."""
        node, keys = self.grouped.stream.node, self.grouped.keys
        names = columns or [name for name in node.schema.names if name not in STAMPS]
        wanted = ((expr.name, expr) for expr in columns_or_exprs(names, "distinct", "distinct('symbol')"))
        outputs = (*keys, *(pair for pair in wanted if pair[0] not in dict(keys)))
        return Stream(distinct_rows(node, keys, self.over, self.policy, outputs))

    def contents(self, start: str | None = None) -> Stream:
        """Every event once for each window it belongs to, with the window's lifetime.

        So streams can be joined window by window. `start` names a new column of type LONG with the start of the window:
        where windows overlap, a join on it pairs only events of the same window.
        """
        node, keys = self.grouped.stream.node, self.grouped.keys
        return Stream(without_stamps(Contents(node, keys, self.over, start, policy=self.policy)))


@dataclass(frozen=True, eq=False)
class Framed:
    """A stream with a frame for each event: the events before it and itself."""

    grouped: Grouped
    frame: Frame
    policy: WindowPolicy = PLAIN_POLICY
    active: bool = False

    def aggregate(self, *calls: Expr | Module, **named: Expr | Module) -> Stream:
        """Every event with its columns, then aggregates of its frame."""
        outputs = named_aggregates(calls, named)
        node, keys = self.grouped.stream.node, self.grouped.keys
        return Stream(without_stamps(frame_node(node, keys, self.frame, outputs, self.policy, active=self.active)))

    def operate(self, module: Operator, *columns: str | Expr, **fields: str | Expr) -> Stream:
        """Every event with each output of a user's operator for its frame.

        Columns are its input fields in order, or by name; a field that is not given is the column of the same name.
        """
        mapping = tuple(checked_operator(module).mapping(columns, fields).items())
        node, keys = self.grouped.stream.node, self.grouped.keys
        names, policy = module.gives.names, self.policy
        fold = Fold(node, keys, self.frame, module, mapping, names, active=self.active, policy=policy)
        return Stream(without_stamps(fold))
