"""Streams divided by keys, windows and frames: what `group_by`, `window` and `over` return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from headrace.api.around import (
    Extent,
    Order,
    ahead_node,
    check_ahead,
    extent,
    framed_node,
    has_ordered,
    lasting,
    surrounded_node,
)  # fmt: skip
from headrace.api.checks import (
    checked_function,
    checked_operator,
    checked_window,
    columns_or_exprs,
    named_aggregates,
    node_of,
)
from headrace.api.each import check_one_window, with_answers
from headrace.api.every_instant import aggregate_node
from headrace.api.pattern import match_node
from headrace.api.ranking import distinct_rows, first_rows, top_node, without_stamps
from headrace.api.times import payloads, with_argument_times, with_window_times
from headrace.api.windows import Slide, frame
from headrace.display.words import clipped
from headrace.elsewhere import Hinting
from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.modules import Module, Operator
from headrace.patterns import Pattern
from headrace.plan.arrival import stamped
from headrace.plan.framed import frame_node
from headrace.plan.group_apply import apply_to_groups
from headrace.plan.instants import has_points
from headrace.plan.nodes import (
    Aggregate,
    Coalesce,
    Contents,
    Fold,
    GroupInput,
    Node,
    Operate,
)  # fmt: skip
from headrace.plan.ordered import Frame, Ordered
from headrace.plan.pattern import Rows
from headrace.plan.times import only
from headrace.plan.windows import PLAIN_POLICY, Clipping, Snapshot, Timestamping, WindowKind, WindowPolicy
from headrace.schema import STAMPS
from headrace.time import DurationLike, duration

if TYPE_CHECKING:
    from headrace.api.stream import Stream

__all__ = ["Framed", "Grouped", "Windowed", "around_in_time"]


@dataclass(frozen=True, eq=False)
class Grouped(Hinting):
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

    def __repr__(self) -> str:
        return f"{_keys_text(self.keys)} of {self.stream!r}"

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

    def aggregate(self, *calls: Expr | Module, **named: Expr | Module) -> Stream:
        """At every instant, one event for each group with events alive: the keys and the aggregates.

        It is for streams whose events last: tables that change, edges, intervals, answers of windows. An answer holds
        as long as its values stay the same. Without keys there is an answer from the first event on, also while no
        event is alive: a count of 0, a sum of null.

        An aggregate over a stream of instants has no answer before its end: write `window` or `over` first, or give the
        events a duration.
        """
        if has_points(self.stream.node):
            raise self._blocked("aggregate", calls, named)
        node = aggregate_node(self.stream.node, self.keys, named_aggregates(calls, named, self.stream.schema))
        return _stream_of(self, Coalesce(node))

    def with_columns(self, *calls: Expr | Module, **named: Expr | Module) -> Stream:
        """At every instant, each event alive with its columns, and with aggregates of its group's events alive.

        It is for streams whose events last, as `aggregate` is. An event is divided where an aggregate changes: SQL's
        `sum(v) OVER (PARTITION BY k)`. Keys that are no columns come first.
        """
        if has_points(self.stream.node):
            raise self._blocked("with_columns", calls, named)
        outputs = named_aggregates(calls, named, self.stream.schema)
        names = [name for name, _ in outputs]
        own = [name for name in self.stream.schema.names if name not in names]

        def one_group(group: Stream) -> Stream:
            answers = Windowed(Grouped(group, ()), Snapshot()).aggregate(**dict(outputs)).coalesce()
            return group.select(*own).join(answers)

        found = self.apply(one_group) if self.keys else one_group(self.stream)
        return found.select(*(name for name, _ in self.keys if name not in own), *own, *names)

    def _blocked(self, method: str, calls: Sequence[Expr | Module], named: Mapping[str, object]) -> PlanError:
        outputs = clipped(", ".join([*map(str, calls), *(f"{name}={call}" for name, call in named.items())]), 60)
        grouped = f"group_by({', '.join(repr(name) for name, _ in self.keys)})." if self.keys else ""
        return PlanError(
            "an aggregate over a stream of instants without a window is blocking: its answer would never come",
            given=f"{grouped}{method}({outputs})",
            allowed="aggregates over a window, over(...), which answers for every event, or events that last",
            instead=f"{grouped}window(hr.tumbling('10 s')).aggregate(...), or set_duration('10 s') or "
            f"set_duration(hr.INFINITY) before it",
        )

    def over(
        self,
        *,
        by: str | Expr | Sequence[str | Expr] | None = None,
        descending: bool | Sequence[bool] = False,
        rows: int | tuple[int | None, int | None] | None = None,
        range: DurationLike | tuple[DurationLike | None, DurationLike | None] | float | None = None,
        slide: Slide | None = None,
        peers: bool = False,
        active: bool = False,
        on_error: Literal["fail", "skip"] = "fail",
        verify: bool = False,
        time_limit: float | None = None,
    ) -> Framed:
        """For each event, the events of its group that start before it, and itself.

        Events are ordered by their starts, then by their arrival if the source records it, then by their columns.
        `over(rows=9)` takes the nine events before, `over(range="10 s")` those that start up to ten seconds before,
        `over()` all.

        With `peers`, a frame of time also has the events after it that start at the same time.

        With a slide only some events have a result: `over(rows=49, slide=10)` every tenth event of its group,
        `over(range="60 s", slide="10 s")` the last event of every ten seconds, once these have passed.

        A pair also has events behind: `over(rows=(2, 1))`, `over(range=("10 s", "5 s"))`. Answers are final when these
        have come; until then they are about those that have.

        With `by`, for events that last, the events are all that are alive at each instant, in the order of these
        columns and then of all columns; nulls are last. Frames are of rows, of distances in the values of `by`, or with
        `peers` of all events up to those that the order equates; None in a pair is all: `over(by="price", rows=(None,
        None))`. An event is divided where an answer changes. A change costs the events of its group that are alive.

        With `active`, events leave a range when their time is over, not when the next event comes, and what a module
        returns then is an answer too: each answer is an instant, with the keys as columns.
        """
        policy = WindowPolicy("none", None, on_error, verify, time_limit)
        if by is not None:
            return self._surrounded(by, descending, rows, range, peers=peers, only=slide is None and not active)
        if isinstance(rows, tuple) or isinstance(range, tuple):
            ahead = extent(rows, _in_ticks(range), peers=peers, by=(), below=self.stream.node)
            if slide is not None or active:
                raise PlanError("slide and active are for frames that end with their event", given=str(ahead))
            return Framed(self._in_order(), Frame(), policy, ahead=ahead)
        assert not isinstance(range, float)
        return Framed(self._in_order(), frame(rows, range, slide, peers=peers), policy, active)

    def _surrounded(
        self, by: Any, descending: bool | Sequence[bool], rows: object, range: object, *, peers: bool, only: bool
    ) -> Framed:
        """Frames by any order."""
        if has_points(self.stream.node):
            raise PlanError(
                "over(by=...) is for streams whose events last: of a stream of instants, time is the order",
                given=f"by={by!r}",
                allowed="over(), in the order of time",
                instead="window(hr.tumbling('10 s')).top(3, by=...), or set_duration('10 s') before over",
            )
        if not only:
            raise PlanError("slide and active are for frames in the order of time", given=f"by={by!r}")
        columns = tuple(columns_or_exprs(by, "over", "over(by='price')"))
        order = Order(columns, descending if isinstance(descending, bool) else tuple(descending))
        around = extent(rows, range, peers=peers, by=columns, below=self.stream.node)
        return Framed(self, Frame(), order=order, ahead=around)

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
        return _stream_of(self, without_stamps(found))

    def _in_order(self) -> Grouped:
        """The groups with the arrival of events, if the source records it: it orders events that start together."""
        return replace(self, stream=_stream_of(self, stamped(self.stream.node)))

    def apply(self, function: Callable[[Stream], Stream]) -> Stream:
        """The union of a query's results for each group; the group's keys are the first columns.

        `function` is called once, with a stream that stands for any group, and returns a stream made from it by any
        operators: windows, joins of its parts, groups within the group. It may join other streams, which meet every
        group. A column of the result with the name of a key is replaced by the key. All groups run at once.
        """
        example = "apply(lambda group: group.where(...))"
        group = GroupInput.of(self.stream.node)
        result = checked_function(function, "apply", example)(_stream_of(self, group))
        return _stream_of(self, apply_to_groups(self.keys, group, node_of(result, example)))

    def top(
        self,
        k: int,
        by: str | Expr | Sequence[str | Expr],
        *,
        descending: bool | Sequence[bool] = True,
        skip: int = 0,
    ) -> Stream:
        """At every instant, the first k of each group's events alive, ordered by `by`; `skip` leaves out some first.

        An event is one answer for as long as it is among them.
        """
        order = columns_or_exprs(by, "top", "top(3, by='price')")
        how: dict[str, Any] = {"k": k, "by": order, "descending": descending, "skip": skip}
        return _stream_of(self, without_stamps(first_rows(self.stream.node, self.keys, PLAIN_POLICY, **how)))


@dataclass(frozen=True, eq=False)
class Windowed(Hinting):
    """A stream divided by keys and windows."""

    grouped: Grouped
    over: WindowKind
    policy: WindowPolicy = PLAIN_POLICY

    def __repr__(self) -> str:
        return f"Windows {self.over}, {self.grouped!r}"

    def aggregate(self, *calls: Expr | Module, **named: Expr | Module) -> Stream:
        """One event for each group and window with events: the keys and the aggregates.

        A module alone reads the columns with the names of its input fields; `module.of(...)` names others.
        """
        keys, given = self.grouped.keys, named_aggregates(calls, named, self.grouped.stream.schema)
        calls_of, above = with_window_times([name for name, _ in keys], given)
        node, outputs = with_argument_times(self.grouped.stream.node, calls_of)
        found = Aggregate(node, keys, self.over, outputs, policy=self.policy)
        return _stream_of(self.grouped, found if above is None else payloads(found, above))

    def with_columns(self, *calls: Expr | Module, **named: Expr | Module) -> Stream:
        """Every event with its own lifetime and columns, and with aggregates of the window that it starts in.

        For windows that do not overlap: `window(hr.session("30 min")).with_columns(pages=hr.count(),
        begin=hr.window_start())`. Keys that are no columns come first.
        """
        check_one_window(self.over)
        names = [name for name, _ in named_aggregates(calls, named, self.grouped.stream.schema)]
        keys = [name for name, _ in self.grouped.keys]
        own = self.grouped.stream.schema.names

        def one_group(group: Stream) -> Stream:
            answers = replace(self, grouped=Grouped(group, ())).aggregate(*calls, **named)
            return with_answers(group, answers, names)

        found = self.grouped.apply(one_group) if keys else one_group(self.grouped.stream)
        kept = [name for name in own if name not in names]
        return found.select(*(name for name in keys if name not in own), *kept, *names)

    def operate(self, module: Operator, *columns: str | Expr, **fields: str | Expr) -> Stream:
        """The outputs of a user's operator for the events of each group and window.

        Columns are its input fields in order, or by name; a field that is not given is the column of the same name.
        """
        mapping = tuple(checked_operator(module).mapping(columns, fields).items())
        node, keys = self.grouped.stream.node, self.grouped.keys
        return _stream_of(self.grouped, Operate(node, keys, self.over, module, mapping, policy=self.policy))

    def top(
        self,
        k: int,
        by: str | Expr | Sequence[str | Expr],
        *,
        each: str | Expr | Sequence[str | Expr] = (),
        descending: bool | Sequence[bool] = True,
        skip: int = 0,
    ) -> Stream:
        """The first k events of each group and window, ordered by `by`, then by all columns.

        `descending` is for all columns of `by`, or a list with one for each: `by=["price", "name"], descending=[True,
        False]`. Nulls are last in both directions.
        With `each`, k events for each value of these columns in a window; the windows stay those of the group.
        With `skip`, the k events after the first few.
        """
        order, values = (columns_or_exprs(columns, "top", "top(3, by='price')") for columns in (by, each))
        node, keys = self.grouped.stream.node, self.grouped.keys
        how: dict[str, Any] = {"k": k, "by": order, "descending": descending, "each": values, "skip": skip}
        found = top_node(node, keys, self.over, self.policy, **how)
        return _stream_of(self.grouped, without_stamps(found))

    def distinct(self, *columns: str | Expr) -> Stream:
        """Each payload once for every window that has it; with columns, payloads are the keys and these columns."""
        node, keys = self.grouped.stream.node, self.grouped.keys
        names = columns or [name for name in node.schema.names if name not in STAMPS]
        wanted = ((expr.name, expr) for expr in columns_or_exprs(names, "distinct", "distinct('symbol')"))
        outputs = (*keys, *(pair for pair in wanted if pair[0] not in dict(keys)))
        return _stream_of(self.grouped, distinct_rows(node, keys, self.over, self.policy, outputs))

    def contents(self, start: str | None = None) -> Stream:
        """Every event once for each window it belongs to, with the window's lifetime.

        So streams can be joined window by window. `start` names a new column of type LONG with the start of the window:
        where windows overlap, a join on it pairs only events of the same window.
        """
        node, keys = self.grouped.stream.node, self.grouped.keys
        return _stream_of(self.grouped, without_stamps(Contents(node, keys, self.over, start, policy=self.policy)))


@dataclass(frozen=True, eq=False)
class Framed(Hinting):
    """A stream with a frame for each event: the events before it and itself."""

    grouped: Grouped
    frame: Frame
    policy: WindowPolicy = PLAIN_POLICY
    active: bool = False
    #: Another order than that of time, and frames that are not of `frame`.
    order: Order | None = None
    ahead: Extent | None = None

    def __repr__(self) -> str:
        return f"Frames {self.frame if self.ahead is None else self.ahead}, {self.grouped!r}"

    def aggregate(self, *calls: Expr | Module, **named: Expr | Module) -> Stream:
        """Every event with its columns, then aggregates of its frame.

        Functions of the order may be among them, and columns beside these: `aggregate(n=hr.row_number(),
        change=col("price") - hr.lag("price"))`.
        """
        below, keys = self.grouped.stream.node, self.grouped.keys
        outputs = named_aggregates(calls, named, below.schema)
        if self.order is not None and self.ahead is not None:
            around = {name: (expr, self.ahead) for name, expr in outputs}
            return _stream_of(self.grouped, surrounded_node(below, keys, self.order, around))
        if self.ahead is not None and self.ahead.unit == "rows":
            return _stream_of(self.grouped, ahead_node(below, keys, self.ahead, outputs, self.policy))
        if self.ahead is not None:
            found = around_in_time(self.grouped, self.ahead, outputs)
            return _stream_of(self.grouped, without_stamps(found.node))
        if has_ordered(outputs):
            if self.frame.slide is not None or self.active:
                raise PlanError(
                    "functions of an order are for frames without slide and active",
                    given=", ".join(str(expr) for _, expr in outputs),
                    allowed="over(), over(rows=9), over(range='10 s')",
                    instead="over(...) twice: the functions first",
                )
            return _stream_of(self.grouped, framed_node(below, keys, self.frame, outputs, self.policy))
        node, outputs = with_argument_times(below, outputs)
        framed = without_stamps(frame_node(node, keys, self.frame, outputs, self.policy, active=self.active))
        added = {*node.schema.names} - {*below.schema.names}
        return _stream_of(self.grouped, only(framed, [name for name in framed.schema.names if name not in added]))

    def operate(self, module: Operator, *columns: str | Expr, **fields: str | Expr) -> Stream:
        """Every event with each output of a user's operator for its frame.

        Columns are its input fields in order, or by name; a field that is not given is the column of the same name.
        """
        if self.ahead is not None:
            raise PlanError(
                "an operator has the events before and the event itself",
                given=str(module),
                allowed="over(rows=9), over(range='10 s'), over()",
            )
        mapping = tuple(checked_operator(module).mapping(columns, fields).items())
        node, keys = self.grouped.stream.node, self.grouped.keys
        names, policy = module.gives.names, self.policy
        fold = Fold(node, keys, self.frame, module, mapping, names, active=self.active, policy=policy)
        return _stream_of(self.grouped, without_stamps(fold))


def around_in_time(grouped: Grouped, around: Extent, outputs: tuple[tuple[str, Expr], ...]) -> Stream:
    """Every event with aggregates of those from some time before it to some time behind it.

    Each event lasts where the events are that have it in their frames: a snapshot there has the events of a frame.
    """
    check_ahead(around, outputs)
    own = grouped.stream.schema.names

    def one_group(group: Stream) -> Stream:
        spread = group.shift(-int(around.end or 0)).set_duration(lasting(around))
        answers = Windowed(Grouped(spread, ()), Snapshot()).aggregate(**dict(outputs)).coalesce()
        return group.join(answers)

    found = grouped.apply(one_group) if grouped.keys else one_group(grouped.stream)
    return found.select(*(name for name, _ in grouped.keys if name not in own), *own, *(name for name, _ in outputs))


def _in_ticks(range: Any) -> Any:
    """The sides of a range of time in ticks."""
    return tuple(None if side is None else duration(side) for side in range) if isinstance(range, tuple) else range


def _keys_text(keys: tuple[tuple[str, Expr], ...]) -> str:
    return clipped(f"groups by {', '.join(name for name, _ in keys)}", 80) if keys else "one group"


def _stream_of(grouped: Grouped, node: Node) -> Stream:
    return replace(grouped.stream, node=node)
