"""Streams: every method builds a plan node; nothing runs until `run`, `cht` or `start`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import pyarrow as pa

from headrace.api import times
from headrace.api.analyzed import explain_analyzed
from headrace.api.checks import (
    checked_expr,
    column_or_expr,
    named_exprs,
    node_of,
    refuse_instants,
    row_expr,
)
from headrace.api.column_windows import in_windows
from headrace.api.columns import dropped, exploded, in_order_of, renamed, selected, with_columns
from headrace.api.conditions import condition_of
from headrace.api.grouped import Framed, Grouped, Windowed
from headrace.api.joins import How, On, checked_how, clip_node, join_node, table_join_node
from headrace.api.options import (
    Consistency,
    Host,
    OverOptions,
    StreamPlotOptions,
    StreamRunOptions,
    StreamStartOptions,
    WindowOptions,
    shows_options,
)
from headrace.api.plotting import plot
from headrace.api.running import Run, outputs_of, run, start_all
from headrace.api.tracing import debugged, traced
from headrace.api.windows import Slide
from headrace.border import LIFETIME, TimeColumns
from headrace.display.html import html_stream
from headrace.display.rich import RichDisplay
from headrace.display.timeline import Timeline
from headrace.display.words import columns_text, plan_text
from headrace.elsewhere import Hinting
from headrace.errors import PlanError
from headrace.explain.steps import explain
from headrace.expr import Expr, Value
from headrace.frames import frame_kind
from headrace.host.driving.query import Query
from headrace.io.tables import table_of
from headrace.modules import Module
from headrace.patterns import Pattern
from headrace.plan.nodes import (
    CapDuration,
    Chop,
    Coalesce,
    Extend,
    Final,
    Node,
    PointAtEnd,
    PointAtStart,
    SetDuration,
    Shift,
    Union,
    diverted_streams,
)  # fmt: skip
from headrace.plan.pattern import Rows
from headrace.plan.policies import Shedding
from headrace.plan.source import shedding
from headrace.plan.table import TableJoinKind
from headrace.plan.windows import Grid, WindowKind
from headrace.schema import SchemaLike
from headrace.time import DurationLike, TimeLike, duration, ticks
from headrace.tracing.debugging import DebugSession
from headrace.tracing.traced import TracedRun

if TYPE_CHECKING:
    import pandas as pd

    from headrace.api.history import Engine, History
    from headrace.history.inputs import Late

__all__ = ["Stream"]


@dataclass(frozen=True, eq=False)
class Stream(Hinting, RichDisplay):
    """Events with lifetimes, as the result of a query."""

    node: Node

    def __repr__(self) -> str:
        return f"Stream of {columns_text(self.node.schema)}\n  {plan_text(self.node)}"

    def _repr_html_(self) -> str:
        return html_stream(self.node)

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
        return Stream(times.where(self.node, checked_expr(predicate, "where", f"where(col({self._example}) == ...)")))

    def select(self, *columns: str | Expr, **named: Value) -> Stream:
        """Compute new payloads: columns by name, `"*"` for all of them, expressions, or `name=expression`.

        A text is the name of a column, also in `name="column"`; `hr.lit("text")` is the text.
        """
        return Stream(selected(self.node, columns, named))

    def with_columns(self, *exprs: Expr, **named: Value) -> Stream:
        """All columns, and more: `name=expression` adds a column, or replaces the one of that name in its place.

        Expressions use the columns as they were before; a text is the name of a column.
        """
        return Stream(with_columns(self.node, exprs, named))

    def drop(self, *columns: str) -> Stream:
        """All columns but these."""
        return Stream(dropped(self.node, columns))

    def rename(self, names: Mapping[str, str]) -> Stream:
        """All columns in their order, some under new names: `rename({"old": "new"})`."""
        return Stream(renamed(self.node, names))

    def explode(
        self, column: str, *, into: str | None = None, position: str | None = None, outer: bool = False
    ) -> Stream:
        """A row for each element of a list, with the lifetime of its event.

        The element takes the place of the list, or is the new column `into`; `position` names a column for its place,
        counted from 1. A list that is empty or NULL gives no row; with `outer` it gives one, whose element is NULL.
        """
        return Stream(exploded(self.node, column, into, position, outer=outer))

    def with_windows(self, time: str | Expr, window: Grid) -> Stream:
        """A row for each window that contains the time in a column, with the columns `window_start` and `window_end`.

        The rows keep their lifetimes: `tumbling` and `hopping` windows here depend on values, so rows that last can be
        grouped by them at every instant. A row without a time is in no window. `group_by(…).window(…)` divides the
        time of a stream instead.
        """
        return Stream(in_windows(self.node, time, window))

    def shift(self, by: DurationLike) -> Stream:
        """Move lifetimes by a duration."""
        return Stream(Shift(self.node, duration(by)))

    def set_duration(self, to: DurationLike | Expr) -> Stream:
        """Let every event last `to` from its start: a duration, or an expression in ticks (null: it never ends)."""
        if isinstance(to, Expr):
            return self.alter_lifetime(duration=row_expr(to, "set_duration"))
        return Stream(SetDuration(self.node, duration(to)))

    def alter_lifetime(
        self,
        *,
        start: Expr | str | None = None,
        end: Expr | str | None = None,
        duration: DurationLike | Expr | None = None,
        earliest: DurationLike | None = None,
    ) -> Stream:
        """Give each event another start, and another end or duration: expressions over its columns and its own times.

        What is left out stays. A null end or duration means that the event never ends; an event with a null start, or
        whose end is not after its start, is dropped. `start` is `hr.start()` or `hr.end()` moved by a constant, or the
        `greatest` of a moved `hr.start()` and anything; or any expression, with `earliest`: no new start may be more
        than that before the old one. An event that breaks this promise stops the query.
        """
        return Stream(times.altered(self.node, start, end, duration, earliest))

    def chop(self, every: DurationLike, origin: TimeLike = 0) -> Stream:
        """Cut lifetimes at every multiple of `every`, counted from `origin`: an event for each piece.

        An event that never ends would give endlessly many pieces, which is an error: `cap_duration` first.
        """
        return Stream(Chop(self.node, duration(every), ticks(origin)))

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
        """All events of this stream and others with the same columns, in any order."""
        if not others:
            raise PlanError(
                "union needs at least one other stream", given="none", allowed="streams", instead="union(other)"
            )
        nodes = [node_of(o, "union(*streams)" if isinstance(o, (list, tuple)) else "union(other)") for o in others]
        return Stream(Union((self.node, *(in_order_of(node, self.node.schema) for node in nodes))))

    def join(self, other: Stream, on: On = (), where: Expr | None = None, how: How = "inner") -> Stream:
        """Pairs of events that overlap, with equal keys: the payloads side by side, for as long as both last.

        `on` names columns of both streams, or maps this stream's names to the other's; keys may also be expressions,
        such as `on=col("id") % 10`, or pairs, such as `on=[(col("a") + 1, col("b"))]`. Columns of the other stream
        whose names clash get the suffix `_right`; `where` may use all columns. A null key, and a condition that is
        null, match nothing. Two streams of instants are refused: give one of them a duration.

        `how` is `inner`, or one of `left`, `right`, `full`, `semi` and `anti`, as in the methods of these names.
        """
        right = node_of(other, "join_table(frame, on='key')" if frame_kind(other) else "join(other, on='key')")
        if where is not None:
            checked_expr(where, "where", f"where=col({self._example}) == ...")
        refuse_instants(self.node, right, "join" if checked_how(how) == "inner" else f"{how}_join")
        return Stream(join_node(self.node, right, on, where, how))

    def left_join(self, other: Stream, on: On = (), where: Expr | None = None) -> Stream:
        """The result of `join`, and the parts of this stream's lifetimes without a match, with nulls.

        An event with the lifetime [1, 9) and a match during [3, 5) gives a pair for [3, 5), and rows with nulls for
        [1, 3) and [5, 9).
        """
        return self.join(other, on, where, "left")

    def right_join(self, other: Stream, on: On = (), where: Expr | None = None) -> Stream:
        """The result of `join`, and the parts of the other stream's lifetimes without a match, with nulls.

        Columns are in the order of `join`; a key with the same name in both streams has the other's value.
        """
        return self.join(other, on, where, "right")

    def full_join(self, other: Stream, on: On = (), where: Expr | None = None) -> Stream:
        """The result of `join`, and the parts of both streams' lifetimes without a match, with nulls.

        A key with the same name in both streams is never null for want of a match. State is twice that of `left_join`.
        """
        return self.join(other, on, where, "full")

    def semi_join(self, other: Stream, on: On = (), where: Expr | None = None) -> Stream:
        """The parts of this stream's lifetimes during which some event of the other has equal keys and passes `where`.

        However many match, each part comes once; the payload is this stream's.
        """
        return self.join(other, on, where, "semi")

    def anti_join(self, other: Stream, on: On = (), where: Expr | None = None) -> Stream:
        """The parts of this stream's lifetimes during which no event of the other has equal keys and passes `where`.

        `where` may use the columns of both, named as `join` names them; the payload is this stream's.
        """
        return self.join(other, on, where, "anti")

    def join_table(
        self,
        table: pa.Table | str | Path,
        on: On,
        how: TableJoinKind = "inner",
        *,
        schema: SchemaLike | None = None,
    ) -> Stream:
        """Pairs of an event and a table's row with equal keys: the payloads side by side, with the event's lifetime.

        `table` is an Arrow table, a frame of pandas or Polars, or a path to Parquet, CSV, JSON or Arrow files; without
        `schema` its columns are inferred. With `how="left"` an event without a matching row stays, with nulls; a null
        key matches nothing. Names are those of `join`; keys of this stream may be expressions.

        The table is read once, when the query starts, and is part of the query: a checkpoint with another content is
        refused. A table that changes is a stream: `join` or `left_join` it, read with a lifetime such as
        `hr.edge("valid_from", key="code")`, with which every row lasts until the next row of its key.
        """
        rows = table_of(table, schema)
        return Stream(table_join_node(self.node, rows, on, how))

    def clip(self, by: Stream, on: On = ()) -> Stream:
        """End every event where the first event of `by` with equal keys starts strictly inside its lifetime.

        `on` gives the keys as in `join`; without it any event of `by`
        clips. An event of `by` that starts at the start or at the end of an event does not clip it. A null key matches
        nothing.
        """
        return Stream(clip_node(self.node, node_of(by, "clip(by=other, on='key')"), on))

    def group_by(self, *keys: str | Expr, **named: str | Expr) -> Grouped:
        """Divide the stream into groups of events with equal keys."""
        instead = f"group_by({self._example})"
        found = [column_or_expr(key, "group_by", instead) for key in keys]
        exprs = (*((key.name, key) for key in found), *named_exprs(named, "group_by", instead))
        node, columns = times.grouped(self.node, exprs)
        return Grouped(Stream(node), columns)

    @shows_options(WindowOptions)
    def window(self, window: WindowKind, **policy: Unpack[WindowOptions]) -> Windowed:
        """Divide time into windows; see `Grouped.window`."""
        return Grouped(self, ()).window(window, **policy)

    def aggregate(self, *calls: Expr | Module, **named: Expr | Module) -> Stream:
        """At every instant, the aggregates of the events alive; see `Grouped.aggregate`."""
        return Grouped(self, ()).aggregate(*calls, **named)

    @shows_options(OverOptions)
    def over(
        self, *, by: str | Expr | Sequence[str | Expr] | None = None, descending: bool | Sequence[bool] = False,
        rows: int | tuple[int | None, int | None] | None = None,
        range: DurationLike | tuple[DurationLike | None, DurationLike | None] | float | None = None,
        slide: Slide | None = None, peers: bool = False, active: bool = False, **policy: Unpack[OverOptions],
    ) -> Framed:  # fmt: skip
        """For each event, the events before it and itself; see `Grouped.over`."""
        return Grouped(self, ()).over(
            by=by, descending=descending, rows=rows, range=range, slide=slide, peers=peers, active=active, **policy
        )

    def match(
        self, pattern: Pattern | str, *, rows: Rows = "one", transitions: Stream | None = None, **measures: Expr | str
    ) -> Stream:
        """The matches of a pattern; see `Grouped.match`."""
        return Grouped(self, ()).match(pattern, rows=rows, transitions=transitions, **measures)

    def top(
        self, k: int, by: str | Expr | Sequence[str | Expr], *, descending: bool | Sequence[bool] = True, skip: int = 0
    ) -> Stream:
        """At every instant, the first k of the events alive, ordered by `by`; see `Windowed.top`."""
        return Grouped(self, ()).top(k, by, descending=descending, skip=skip)

    def final(self) -> Stream:
        """Hold back each event until it is final."""
        return Stream(Final(self.node))

    def shed(self, above: int, by: str | None = None) -> Stream:
        """Let a started query drop rows under overload: of a batch, it keeps `above` rows of this source.

        The rows are chosen at random, or by a column, whose greatest values are kept. They are counted, and count for
        progress; `run`, `cht` and `history` use every row. For streams of points and intervals as they are read.
        """
        return Stream(shedding(self.node, Shedding(above, by)))

    def diverted(self) -> Stream:
        """The rows of this stream's sources that were late or malformed, with the reason."""
        sides = diverted_streams(self.node, whole=True)
        return Stream(sides[0] if len(sides) == 1 else Union(tuple(sides)))

    @shows_options(StreamRunOptions)
    def run(self, **options: Unpack[StreamRunOptions]) -> Run:
        """Run bounded inputs to their end; see `headrace.run`."""
        return run({"out": self.node}, **options)

    @shows_options(StreamRunOptions)
    def cht(self, *, time_columns: TimeColumns = LIFETIME, **options: Unpack[StreamRunOptions]) -> pa.Table:
        """Run bounded inputs to their end and return the history: `le`, `re` and the payload.

        With a `checkpoint` from which the run continues, that is what has changed since.

        Times are UTC timestamps if they come from dates, with null for an event without an end, and numbers of ticks
        if they come from numbers. `time_columns=("start", "end")` gives their columns other names.
        """
        return self.run(**options).cht(time_columns=time_columns)

    @shows_options(StreamRunOptions)
    def to_pandas(self, *, time_columns: TimeColumns = LIFETIME, **options: Unpack[StreamRunOptions]) -> pd.DataFrame:
        """The history, as `cht` gives it, as a pandas frame."""
        return self.run(**options).to_pandas(time_columns=time_columns)

    @shows_options(StreamRunOptions)
    def to_polars(self, *, time_columns: TimeColumns = LIFETIME, **options: Unpack[StreamRunOptions]) -> Any:
        """The history, as `cht` gives it, as a data frame of Polars, which must be installed."""
        return self.run(**options).to_polars(time_columns=time_columns)

    @shows_options(StreamRunOptions)
    def show(self, n: int = 20, **options: Unpack[StreamRunOptions]) -> None:
        """Run bounded inputs to their end and print the first `n` rows of the history."""
        self.run(**options).show(n)

    @shows_options(StreamPlotOptions)
    def plot(self, by: str | Sequence[str] = (), **options: Unpack[StreamPlotOptions]) -> Timeline:
        """Run bounded inputs to their end and draw a timeline: the lifetimes of events, and their corrections.

        Notebooks show it, and `.save("out.svg")` writes it. `by` names columns: their values divide the picture into
        groups of one colour. What a correction has made untrue is dashed or struck out. The vertical line is the last
        CTI before the end of the input.

        Without `batch_rows`, the input arrives in up to 200 batches, a small one row by row, so that corrections show.
        A picture shows at most `rows` rows, from `start` to `end`, and says how many events it leaves out.
        """
        return plot(self.node, by, **options)

    def trace(
        self, *, batch_rows: int | None = None, state: bool = False, consistency: Consistency = "speculative"
    ) -> TracedRun:
        """Run bounded inputs to their end in this process, and keep what every operator did in every batch.

        The query runs as it is written. The result has Arrow tables: `operators`, `batches`, `edges` and `changes`,
        and `why` goes from an answer back to the events that caused it.
        `batch_rows` bounds a batch, as in `run`; with 1, every row is a batch. `state=True` also keeps what operators
        remembered after each batch.
        """
        return traced(self.node, batch_rows=batch_rows, state=state, consistency=consistency)

    def debug(
        self, *, batch_rows: int | None = None, state: bool = True, consistency: Consistency = "speculative"
    ) -> DebugSession:
        """A session that runs bounded inputs step by step, and stops at breakpoints.

        The query runs as in `trace`, and the options are the same. `session.step_batch()`, `step_operator()`,
        `step_event()` and `run()` go on; `session.trace` has everything recorded so far. Use it in a `with` statement.
        """
        return debugged(
            self.node,
            batch_rows=batch_rows,
            state=state,
            consistency=consistency,
            conditions=lambda node, text: condition_of(Stream(node), text),
        )

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
        """Run until stopped, on Spark or with `host="local"` in this process; see `headrace.start_all`."""
        return start_all([(self.node, sink) for sink in sinks], **options)

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

    def explain(
        self, *, liveliness: bool = False, analyze: bool = False, host: Host = "local", buckets: int | None = None
    ) -> str:
        """The operators, where they run and their state; with `liveliness`, how soon answers are final, and advice.

        With `analyze` the query runs to the end of its inputs, on a `host`: in one thread of this process, or on Spark.
        The text has the rows, the time and the largest state of each operator, and for several `buckets` how evenly
        rows are divided among them.
        """
        if analyze:
            options = {} if buckets is None else {"buckets": buckets}
            return explain_analyzed(self.node, liveliness=liveliness, host=host, **options)
        return explain(outputs_of({"out": self.node}), liveliness=liveliness)
