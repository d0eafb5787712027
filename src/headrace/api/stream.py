"""A stream, as people see it. Every method builds a plan node; nothing runs until `run`, `cht` or `start`."""

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
    of_rows,
    refuse_instants,
)
from headrace.api.options import OverOptions, StreamRunOptions, StreamStartOptions, WindowOptions, showing
from headrace.api.pattern import matched
from headrace.api.ranking import distinct_rows, ranked, without_stamps
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
from headrace.plan.framed import framed
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

__all__ = ["Grouped", "Preceded", "Stream", "Windowed"]


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
        outputs = [
            *((c.name, c) for c in found),
            *((name, of_rows(as_expr(value), "select")) for name, value in named.items()),
        ]
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

    def point_at_end(self) -> Stream:
        """Keep the instant at which an event ends; one that never ends gives none."""
        return Stream(PointAtEnd(self.node))

    def cap_duration(self, to: DurationLike) -> Stream:
        """Let no event last longer than this from its start."""
        return Stream(CapDuration(self.node, duration(to)))

    def coalesce(self) -> Stream:
        """Make one event of events with equal payload whose lifetimes meet or overlap."""
        return Stream(Coalesce(self.node))

    def distinct(self, *columns: str | Expr) -> Stream:
        """Give each payload at most once at every instant: its events that meet or overlap become one.

        With columns, payloads are cut down to these first, as `select` does.
        """
        return (self.select(*columns) if columns else self).coalesce()

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
        taken get `_right` behind it; `where` may use all of them. Two streams of instants are refused: let one last.
        """
        return self._joined("join", other, on, where, "inner")

    def left_join(
        self, other: Stream, on: str | Sequence[str] | Mapping[str, str] = (), where: Expr | None = None
    ) -> Stream:
        """As `join`, and the parts of this stream's lifetimes without a match, with nulls for the other's columns.

        An event that is matched from 3 to 5 of its lifetime [1, 9) gives a pair for [3, 5), and itself with nulls for
        [1, 3) and [5, 9). A null key, and a condition that is null, match nothing.
        """
        return self._joined("left_join", other, on, where, "left")

    def anti_join(
        self, other: Stream, on: str | Sequence[str] | Mapping[str, str] = (), where: Expr | None = None
    ) -> Stream:
        """The parts of this stream's lifetimes during which no event of the other has equal keys and passes `where`.

        `where` may use the columns of both, named as `join` names them; the payload given is this stream's own.
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
        """Payloads extended from a table: each event with every row that has equal keys, as long as the event lasts.

        `table` is an Arrow table, a pandas frame, or a path to Parquet, CSV, JSON or Arrow files; `schema` says which
        columns it has, where that should not be guessed. With `how="left"` an event without a row stays, with nulls; a
        null key has none. Names are those of `join`.

        The table is read once, when the query starts, and is part of the query: a checkpoint made with another content
        is refused. A table that changes is a stream: `join` or `left_join` it, read with a lifetime such as
        `hr.edge("valid_from", key="code")`, by which every row holds until the next one of its key.
        """
        found = table_of(table, schema)
        return Stream(TableJoin(self.node, found, found.columns, join_keys(on), how))

    def clip(self, by: Stream, on: str | Sequence[str] | Mapping[str, str] = ()) -> Stream:
        """End every event where the first event of `by` with equal keys starts strictly inside its lifetime.

        `on` names columns of both streams, or maps this one's to the other's; without it any event of `by` will do.
        What starts together with an event, or with its end, does not clip it. A null key matches nothing.
        """
        return Stream(Clip(self.node, node_of(by, "clip(by=other, on='key')"), join_keys(on)))

    def group_by(self, *keys: str | Expr, **named: Expr) -> Grouped:
        """Work on groups of events with equal keys, each apart from the others."""
        instead = f"group_by({self._example})"
        found = [column_or_expr(key, "group_by", instead) for key in keys]
        return Grouped(self, (*((key.name, key) for key in found), *named_exprs(named, "group_by", instead)))

    @showing(WindowOptions)
    def window(self, window: WindowKind, **policy: Unpack[WindowOptions]) -> Windowed:
        """Divide time into windows; see `Grouped.window`."""
        return Grouped(self, ()).window(window, **policy)

    @showing(OverOptions)
    def over(
        self, *, rows: int | None = None, range: DurationLike | None = None, slide: Slide | None = None,
        active: bool = False, **policy: Unpack[OverOptions],
    ) -> Preceded:  # fmt: skip
        """Look, from each event, at those before it; see `Grouped.over`."""
        return Grouped(self, ()).over(rows=rows, range=range, slide=slide, active=active, **policy)

    def match(
        self, pattern: Pattern | str, *, rows: Rows = "one", transitions: Stream | None = None, **measures: Expr | str
    ) -> Stream:
        """The matches of a pattern; see `Grouped.match`."""
        return Grouped(self, ()).match(pattern, rows=rows, transitions=transitions, **measures)

    def top(self, k: int, by: str | Expr | Sequence[str | Expr], *, descending: bool = True) -> Stream:
        """At every instant the k events that come first in an order, of those alive."""
        return Grouped(self, ()).top(k, by, descending=descending)

    def final(self) -> Stream:
        """Let an event out only when nothing can change it any more."""
        return Stream(Final(self.node))

    def diverted(self) -> Stream:
        """The rows of this stream's sources that were late or malformed, with the reason."""
        sides = diverted_streams(self.node, whole=True)
        return Stream(sides[0] if len(sides) == 1 else Union(tuple(sides)))

    @showing(StreamRunOptions)
    def run(self, **options: Unpack[StreamRunOptions]) -> Run:
        """Run bounded inputs to their end; see `headrace.run`."""
        return run({"out": self.node}, **options)

    @showing(StreamRunOptions)
    def cht(self, **options: Unpack[StreamRunOptions]) -> pa.Table:
        """Run bounded inputs to their end and give the history: `le`, `re` and the payload."""
        return self.run(**options).cht()

    def history(self, engine: Engine = "spark", *, late: Late = "decide", master: str | None = None) -> History:
        """The same query as batch SQL over everything its inputs have stored: `.cht()`, `.dataframe()`, `.sql()`.

        The answer is the one that the live query comes to. `engine` is `spark`, on `master` as in `run`, or `duckdb`,
        in process. Rows that the live query would have met too late are treated by the policy of their input, as far
        as that follows from what is stored; with `late="include"` they count as if they had come in time.
        """
        # Loaded when it is asked for: what prints SQL takes its time.
        from headrace.api.history import History

        return History(self.node, engine, late, master)

    @showing(StreamStartOptions)
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
        """Raise if the answer is not that of batch SQL over the history, on its own data or on so many made-up streams.

        `over` says what the streams are like: `"highly_out_of_order & revised"`. The error has the smallest stream that
        shows the mistake; the report that is returned says what was tried. `shape` and `order` are what the answers are
        declared to be: points say, or in the order of their times. `pattern` is a function of a `random.Random` and
        a number, and gives so many lifetimes (start, end), for streams with a shape of their own.
        """
        # What tests streams makes streams: it can only be loaded when they exist, and most queries never need it.
        from headrace.testing.verify.own_data import verify

        said = {"seeds": seeds, "over": over, "seed": seed, "shape": shape, "order": order, "pattern": pattern}
        return verify(self.node, own_data=own_data, **said)

    def explain(self, *, liveliness: bool = False) -> str:
        """What runs, where, and what it remembers; with `liveliness`, how soon answers are final, and advice."""
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
                    "groups cannot be told apart by a list",
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

        The rest is about users' modules. `clipping` is what of an event's lifetime a time-sensitive one sees (`none`,
        `left`, `right`, `full`), `timestamping` which lifetimes its outputs get (`align`, `unchanged`, `clip`,
        `time_bound`). When one fails, `on_error="skip"` leaves out that window, counts it and diverts it. `verify`
        calls it twice to see whether it is deterministic; `time_limit` is in seconds for each call.
        """
        policy = WindowPolicy(clipping, timestamping, on_error, verify, time_limit)
        divided = checked_window(window)
        return Windowed(self._in_order() if isinstance(divided, Ordered) else self, divided, policy)

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
    ) -> Preceded:
        """Look, from each event, at those of its group that start before it, and at itself.

        Events stand in the order of their starts; where these are equal, in that of their arrival if their source tells
        it, and of their columns. `over(rows=9)` looks at the nine before, `over(range="10 s")` at those that start up
        to ten seconds before, `over()` at all.

        With a slide only every so many events have a result: `over(rows=49, slide=10)` every tenth of its group,
        `over(range="60 s", slide="10 s")` the last of every ten seconds, given when these have passed.

        With `active`, events leave a range when their time is over, not when the next one comes, and what a module
        returns then counts too: each answer is an instant, with the keys beside it.
        """
        policy = WindowPolicy("none", None, on_error, verify, time_limit)
        return Preceded(self._in_order(), frame(rows, range, slide), policy, active)

    def match(
        self, pattern: Pattern | str, *, rows: Rows = "one", transitions: Stream | None = None, **measures: Expr | str
    ) -> Stream:
        """The matches of a pattern among the events of each group, in the order that `over` has.

        A match is an event at the instant of its last one, with the keys and these measures:
        `match(hr.pattern("A B+", define=...), start=hr.first("A.price"), n=hr.count())`. With `rows="all"` there is an
        event for each one of the match, with its own columns and measures of the match so far.

        `transitions` is a stream with columns `source`, `variable`, `target` and `final`, such as
        `hr.events(pattern.transitions())`: it says what may follow what, and may change while the query runs.
        """
        moves = None if transitions is None else node_of(transitions, "transitions=hr.events(pattern.transitions())")
        found = matched(self._in_order().stream.node, self.keys, pattern, rows, measures, moves)
        return Stream(without_stamps(found))

    def _in_order(self) -> Grouped:
        """With the arrival of its events, where their source tells it: of those that start together it decides."""
        return replace(self, stream=Stream(stamped(self.stream.node)))

    def apply(self, function: Callable[[Stream], Stream]) -> Stream:
        """The results of a query of its own for each group, united; the group's keys are their first columns.

        `function` is called once, with a stream that stands for any one group, and gives a stream made from it by
        any operators: windows, joins of its parts, groups within the group. Other streams may be joined to it; they
        meet every group. A column of its result that is named as a key gives way to the key. All groups run at once.
        """
        example = "apply(lambda group: group.where(...))"
        group = GroupInput.of(self.stream.node)
        made = checked_function(function, "apply", example)(Stream(group))
        return Stream(apply_to_groups(self.keys, group, node_of(made, example)))

    def top(self, k: int, by: str | Expr | Sequence[str | Expr], *, descending: bool = True) -> Stream:
        """At every instant the k events of each group that come first in an order, of those alive."""
        return self.window(Snapshot()).top(k, by, descending=descending)


@dataclass(frozen=True, eq=False)
class Windowed:
    """A stream divided by keys and windows."""

    grouped: Grouped
    over: WindowKind
    policy: WindowPolicy = PLAIN_POLICY

    def aggregate(self, *calls: Expr | Module, **named: Expr | Module) -> Stream:
        """One event per group and window with events: the keys and these aggregates.

        A module stands for itself over columns that are named as its input fields; `module.of(...)` says which.
        """
        outputs = named_aggregates(calls, named)
        return Stream(Aggregate(self.grouped.stream.node, self.grouped.keys, self.over, outputs, policy=self.policy))

    def operate(self, module: Operator, *columns: str | Expr, **fields: str | Expr) -> Stream:
        """What a user's operator makes of the events of each group and window.

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
        """The k events of each group and window that come first in an order; of equal ones, by all their columns.

        With `each`, k events for each value of these columns in a window. The windows stay those of all its events.
        """
        order, values = (columns_or_exprs(some, "top", "top(3, by='price')") for some in (by, each))
        node, keys = self.grouped.stream.node, self.grouped.keys
        found = ranked(node, keys, self.over, self.policy, k=k, by=order, descending=descending, each=values)
        return Stream(without_stamps(found))

    def distinct(self, *columns: str | Expr) -> Stream:
        """Each payload once for every window that has it; with columns, payloads are cut down to the keys and these."""
        node, keys = self.grouped.stream.node, self.grouped.keys
        names = columns or [name for name in node.schema.names if name not in STAMPS]
        wanted = ((expr.name, expr) for expr in columns_or_exprs(names, "distinct", "distinct('symbol')"))
        outputs = (*keys, *(pair for pair in wanted if pair[0] not in dict(keys)))
        return Stream(distinct_rows(node, keys, self.over, self.policy, outputs))

    def contents(self, start: str | None = None) -> Stream:
        """Every event once for each window it belongs to, unchanged but for its lifetime, which is the window's.

        So streams can be joined window by window. `start` names a column, of type LONG, for the time at which the
        window starts: where windows overlap, a join on it pairs events of the same window only.
        """
        node, keys = self.grouped.stream.node, self.grouped.keys
        return Stream(without_stamps(Contents(node, keys, self.over, start, policy=self.policy)))


@dataclass(frozen=True, eq=False)
class Preceded:
    """A stream whose events are looked at together with those before them."""

    grouped: Grouped
    frame: Frame
    policy: WindowPolicy = PLAIN_POLICY
    active: bool = False

    def aggregate(self, *calls: Expr | Module, **named: Expr | Module) -> Stream:
        """Every event as it is, with aggregates of those before it and itself behind its columns."""
        outputs = named_aggregates(calls, named)
        node, keys = self.grouped.stream.node, self.grouped.keys
        return Stream(without_stamps(framed(node, keys, self.frame, outputs, self.policy, active=self.active)))

    def operate(self, module: Operator, *columns: str | Expr, **fields: str | Expr) -> Stream:
        """Every event with what a user's operator makes of those before it and itself: once for each of its outputs.

        Columns are its input fields in order, or by name; a field that is not given is the column of the same name.
        """
        mapping = tuple(checked_operator(module).mapping(columns, fields).items())
        node, keys = self.grouped.stream.node, self.grouped.keys
        names, policy = module.gives.names, self.policy
        fold = Fold(node, keys, self.frame, module, mapping, names, active=self.active, policy=policy)
        return Stream(without_stamps(fold))
