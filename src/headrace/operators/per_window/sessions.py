"""Sessions as rows: a change costs what it changes, whatever its session and its group hold (rules 5 and 6.4).

A session is one row: its group, its first and its latest start, and the sums of its events, as in
`operators/aggregate`. A batch is first made into rows of the same form, *pieces*. Then pieces and the known sessions of
their groups, in the order of their starts, join where they are less than a gap apart; sums add up. So a late event
extends a session, or joins two, and the events of these are not read.

Traces carry the state:

- `open`: sessions that are not visible yet: they end after m (rule 5.3), or after the CTI if answers are final;
- `shown`: sessions that have an answer and are not closed by the CTI;
- `instants`, if the input may take events back: sums for each start, kept for a gap after it.

**Retractions.** An event that is taken back may leave a session without its first or latest start, or divide it. Events
that may be taken back start at the CTI or later. So a start that matters lies less than a gap before the CTI, or after
it: what comes before is one piece that nothing divides, with the sums of the session less those of its instants. The
cost of a retraction depends on the instants after the CTI of its session, not on how long the session has been going
on.

This is for built-in aggregates whose sums add up; others need all events of a session, as the general kernel reads them
(`kernel.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, concat, factorize, group_sum, hash_rows, to_numpy
from headrace.compiled import INT, INTS, NEW_INTS, compiled
from headrace.operators.aggregate.accumulators import COUNT, Layout
from headrace.operators.aggregate.combine import compact
from headrace.operators.aggregate.running import negate, order_of_steps, without_zeros
from headrace.operators.aggregate.window_runs import expand_runs
from headrace.operators.groups import Groups, positions_among
from headrace.operators.kernel import Data, Kernel, SavedTraces, cancelled_rows, expression_texts
from headrace.operators.per_window.content import AggregateContent
from headrace.operators.per_window.sums import WINDOW
from headrace.plan.nodes import Aggregate, PerWindow
from headrace.plan.windows import Session
from headrace.progress import Progress
from headrace.segments import Hashes
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import HASH, TIME, Segment, Trace

__all__ = ["SessionKernel", "keeps_sessions"]

#: The first and the latest start of a session.
FIRST, LATEST = "__first_start", "__latest_start"


def keeps_sessions(node: PerWindow) -> bool:
    """Whether the sessions of a node can be rows of sums."""
    if not isinstance(node, Aggregate) or not isinstance(node.window, Session) or node.modules:
        return False
    if node.window.longest is not None:  # a session that ends by its length depends on all its starts
        return False
    layout = AggregateContent(node).layout
    return layout is not None and not layout.bag_columns


@dataclass(frozen=True)
class _JoinedRows:
    """The session that each of some rows belongs to; and for each session its group, first and latest start."""

    number: Int64s
    group: Int64s
    first: Int64s
    latest: Int64s


class SessionKernel(Kernel):
    """Answers per group and session, given early and corrected, or once when a session is closed."""

    divisible = True

    def __init__(self, node: Aggregate) -> None:
        super().__init__(node)
        assert isinstance(node.window, Session)
        self.per_window, self.gap = node, node.window.gap
        self.content = AggregateContent(node)
        assert self.content.layout is not None
        self.layout: Layout = self.content.layout
        self.traces = {name: Trace(self._compact) for name in ("open", "shown")}
        if not self.layout.insert_only:
            self.traces["instants"] = Trace(self._compact)
        self.groups = Groups(node, self.content.columns, self.traces)
        self.keys = self.groups.keys
        self.bounds = [*self.keys, FIRST, LATEST]
        self.scalars = {"cti": NEG_INFINITY, "seen": NEG_INFINITY}

    def column_names(self) -> dict[str, str]:
        arguments = dict(self.content.columns)
        sums = {a.prefix: f"{arguments[str(a.expr)]}: " for a in self.layout.arguments.values()}
        return expression_texts(self.groups.projection) | sums

    # --- one batch ---------------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        now = Progress(max(now.cti, self.scalars["cti"]), now.high)
        seen = max(now.seen, self.scalars["seen"])
        limit = now.cti if self.per_window.final else seen
        result = self._correct(self.groups.project(changes, changes.le + 1), limit, now.cti)
        self.scalars = {"cti": now.cti, "seen": seen}
        return result, Progress(self._promise(now.cti), now.high)

    @property
    def _visible(self) -> int:
        """The time up to which sessions have answers."""
        return self.scalars["cti" if self.per_window.final else "seen"]

    def _correct(self, delta: Changes, limit: int, cti: int) -> Changes:
        """Replace the sessions that change, and give answers for those that end up to `limit`."""
        pieces = self._pieces(delta)
        known = self._known(pieces)
        old, new = self._replaced(known, pieces)
        new = _where(new, self._ends(new) > self.scalars["cti"])
        due = self._net(self.traces["open"].until(limit), pieces)
        if old.num_rows and due.num_rows:
            due = _where(due, positions_among(old.select(self.bounds), due.select(self.bounds)) < 0)
        answered, answers = self._ends(old) <= self._visible, self._ends(new) <= limit
        stale, fresh = _where(old, answered), concat([_where(new, answers), due])
        if "instants" in self.traces:
            self.traces["instants"].drop(cti)
            self._keep("instants", pieces, _cells(self._hashes(pieces), to_numpy(pieces.column(FIRST)) // self.gap))
        self.traces["open"].drop(limit)
        self._keep("open", concat([self._negated(_where(old, ~answered)), _where(new, ~answers)]))
        self.traces["shown"].drop(cti)
        self._keep("shown", concat([self._negated(stale), fresh]))
        return Changes.concat([self._answers(stale, -1), self._answers(fresh, 1)]).cancelled()

    def _pieces(self, delta: Changes) -> pa.Table:
        """The changes of a batch as rows: the sessions that they are by themselves; instants, if some may be taken
        back.
        """
        (group,), keys = self.groups.number(delta.payload)
        le = np.ascontiguousarray(delta.le)
        joined = _join(group, le, le, self.gap if self.layout.insert_only else 1)
        sums = pa.table(self.layout.coded_sums(delta, joined.number, len(joined.first)))
        rows = self._with_bounds(keys.take(pa.array(joined.group)), joined.first, joined.latest, sums)
        return rows if self.layout.insert_only else without_zeros(rows, self.bounds)

    def _replaced(self, known: pa.Table, pieces: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The sessions that pieces change, before and after."""
        rows, size = concat([known, pieces]), known.num_rows
        joined = self._joined(rows)
        changed = np.zeros(len(joined.first), bool)
        changed[joined.number[size:]] = True
        of_change = changed[joined.number]
        old = _where(known, of_change[:size])
        losing = np.zeros(len(changed), bool)
        if not self.layout.insert_only:
            losing[joined.number[size:][to_numpy(pieces.column(COUNT)) <= 0]] = True
        if not losing.any():
            return old, self._merged(_where(rows, of_change), joined, joined.number[of_change])
        loses = losing[joined.number]
        divided = self._divided(_where(known, loses[:size]), _where(pieces, loses[size:]))
        rows = concat([_where(rows, of_change & ~loses), *divided])
        joined = self._joined(rows)
        return old, self._merged(rows, joined, joined.number)

    def _divided(self, sessions: pa.Table, changes: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Sessions that lose events: what comes before their instants, and all instants that remain."""
        zone, size = self._instants(sessions), sessions.num_rows
        # Of an earlier event only the end may change, in two changes that need not come in the same step.
        early = to_numpy(changes.column(FIRST)) < self._first_instant
        rows = concat([sessions, self._negated(zone), _where(changes, early)])
        joined = self._joined(rows)
        place = np.full(len(joined.first), -1, np.int64)
        place[joined.number[:size]] = np.arange(size)
        of = place[joined.number]  # of other sessions of the group: -1
        in_zone = of[size : size + zone.num_rows]
        zone = _where(zone, in_zone >= 0)
        # What comes before goes on to the first instant: that one is before the CTI, so that nothing takes it back.
        latest = to_numpy(sessions.column(LATEST)).copy()
        np.minimum.at(latest, in_zone[in_zone >= 0], to_numpy(zone.column(FIRST)))
        sums = self._sums(_where(rows, of >= 0)).append_column(WINDOW, pa.array(of[of >= 0]))
        before = compact(sums, self.layout, [WINDOW])
        which = to_numpy(before.column(WINDOW))
        keys, first = sessions.select(self.keys).take(pa.array(which)), to_numpy(sessions.column(FIRST))
        before = self._with_bounds(keys, first[which], latest[which], before.drop_columns([WINDOW]))
        return before, self._net(concat([zone, _where(changes, ~early)]), zone)

    def _merged(self, rows: pa.Table, joined: _JoinedRows, number: Int64s) -> pa.Table:
        """One row for each session, from rows and the numbers of their sessions."""
        if np.bincount(number).max(initial=0) <= 1:
            return rows
        sums = compact(self._sums(rows).append_column(WINDOW, pa.array(number)), self.layout, [WINDOW])
        place = np.empty(len(joined.first), np.int64)
        place[number] = np.arange(len(number))
        which = to_numpy(sums.column(WINDOW))
        keys = rows.select(self.keys).take(pa.array(place[which]))
        return self._with_bounds(keys, joined.first[which], joined.latest[which], sums.drop_columns([WINDOW]))

    def _joined(self, rows: pa.Table) -> _JoinedRows:
        group, _ = factorize(rows.select(self.keys))
        return _join(group, to_numpy(rows.column(FIRST)), to_numpy(rows.column(LATEST)), self.gap)

    # --- rows of traces ----------------------------------------------------------------------------------------------

    def _known(self, pieces: pa.Table) -> pa.Table:
        """The sessions of the groups of pieces."""
        touched = self._hashes(pieces)
        found = [self.traces[name].lookup(touched) for name in ("open", "shown")] if len(touched) else []
        rows = [table for table in found if table is not None]
        return self._net(concat(rows) if rows else None, pieces)

    def _instants(self, sessions: pa.Table) -> pa.Table:
        """The instants that are kept of sessions, and perhaps some of other sessions of their groups."""
        first = np.maximum(to_numpy(sessions.column(FIRST)), self._first_instant)
        row, cell = expand_runs(
            first // self.gap, to_numpy(sessions.column(LATEST)) // self.gap, self.per_window.window
        )
        hashes = _cells(self._hashes(sessions)[row], cell)
        return self._net(self.traces["instants"].lookup(hashes), sessions)

    @property
    def _first_instant(self) -> int:
        """The first start whose instant is kept: it is less than a gap before the CTI."""
        return max(self.scalars["cti"] - self.gap + 1, NEG_INFINITY)

    def _net(self, rows: pa.Table | None, like: pa.Table) -> pa.Table:
        """The rows that remain when all are summed; without any, a table with the columns of another."""
        if rows is None:
            return like.slice(0, 0)
        rows = compact(rows, self.layout, self.bounds)
        return _where(rows, to_numpy(rows.column(COUNT)) > 0)

    def _keep(self, trace: str, rows: pa.Table, hashes: Hashes | None = None) -> None:
        """Add rows, which are forgotten when the CTI, or what is visible, reaches their end."""
        if rows.num_rows:
            self.traces[trace].append(rows, self._hashes(rows) if hashes is None else hashes, self._ends(rows))

    def _compact(self, table: pa.Table) -> pa.Table:
        rows = compact(table, self.layout, self.bounds, (HASH, TIME))
        return _where(rows, to_numpy(rows.column(COUNT)) != 0) if self.layout.insert_only else rows

    def _hashes(self, rows: pa.Table) -> Hashes:
        return hash_rows(rows.select(self.keys))

    def _ends(self, rows: pa.Table) -> Int64s:
        return to_numpy(rows.column(LATEST)) + self.gap

    def _sums(self, rows: pa.Table) -> pa.Table:
        return rows.drop_columns(self.bounds)

    def _negated(self, rows: pa.Table) -> pa.Table:
        return rows if rows.num_rows == 0 else negate(rows, [*self.bounds, *self.layout.extreme_columns])

    @staticmethod
    def _with_bounds(keys: pa.Table, first: Int64s, latest: Int64s, sums: pa.Table) -> pa.Table:
        columns = dict(zip(keys.column_names, keys.columns, strict=True))
        sums_of = dict(zip(sums.column_names, sums.columns, strict=True))
        return pa.table(columns | {FIRST: pa.array(first), LATEST: pa.array(latest)} | sums_of)

    # --- answers and progress ----------------------------------------------------------------------------------------

    def _answers(self, sessions: pa.Table, weight: int) -> Changes:
        size = sessions.num_rows
        if size == 0:
            return Changes.empty(self.node.schema)
        keys = self.groups.key_columns(sessions.select(self.keys), np.arange(size))
        columns = [*keys.columns, *self.content.answers_of(self._sums(sessions)).columns]
        payload = pa.Table.from_arrays(columns, schema=self.node.schema.arrow)
        return Changes(to_numpy(sessions.column(FIRST)), self._ends(sessions), np.full(size, weight, np.int64), payload)

    def _promise(self, cti: int) -> int:
        """The output CTI: the start of the first session that is not closed (rule 6.4)."""
        if cti in (INFINITY, NEG_INFINITY):
            return cti
        rows = [self.traces[name].scan(FIRST, COUNT) for name in ("open", "shown")]
        return min([cti, *(self._least_start(table) for table in rows if table is not None)])

    def _least_start(self, rows: pa.Table) -> int:
        """The first start of sessions, given with those that they have replaced."""
        first = to_numpy(rows.column(FIRST))
        if not self.layout.insert_only:  # else a session starts no later than those that it has replaced
            codes, places = factorize(rows.select([FIRST]))
            first = first[places[group_sum(codes, to_numpy(rows.column(COUNT)), len(places)) > 0]]
        return int(first.min(initial=INFINITY))

    # --- state from a checkpoint -------------------------------------------------------------------------------------

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        """Restore the saved state; an earlier Headrace kept events, and sessions are made from these."""
        if "open" in traces:
            super().restore(scalars, traces, held)
            return
        self.scalars = scalars
        saved = Trace(cancelled_rows)
        saved.restore(traces["events"], held)
        rows = saved.scan()
        if rows is not None:
            self._correct(Changes.from_table(rows), self._visible, scalars["cti"])

    def held_by(self) -> str:
        return f"open windows; CTI {self.time_text(self.scalars['cti'])}"


def _where(rows: pa.Table, mask: Bools) -> pa.Table:
    """The rows where a mask is true, without a copy if it is everywhere."""
    return rows if mask.all() else rows.filter(pa.array(mask))


def _cells(keys: Hashes, cell: Int64s) -> Hashes:
    """The hashes of cells of time of groups."""
    return hash_rows(pa.table({"key": keys.view(np.int64), "cell": cell}))


def _join(group: Int64s, first: Int64s, latest: Int64s, gap: int) -> _JoinedRows:
    """The sessions of rows with a first and a latest start each."""
    order, _ = order_of_steps(group, first)
    number, *sessions = (np.empty(len(group), np.int64) for _ in range(4))
    count = _join_in_order(order, group, first, latest, gap, number, *sessions)
    return _JoinedRows(number, *(column[:count] for column in sessions))


@compiled(INTS, INTS, INTS, INTS, INT, NEW_INTS, NEW_INTS, NEW_INTS, NEW_INTS)
def _join_in_order(
    order: Int64s,
    group: Int64s,
    first: Int64s,
    latest: Int64s,
    gap: int,
    number: Int64s,
    of: Int64s,
    begin: Int64s,
    end: Int64s,
) -> int:
    """Fill the session of each row, taken in the order of groups and first starts; the group and bounds of sessions."""
    last = -1
    for row in order:
        if last < 0 or group[row] != of[last] or first[row] - end[last] >= gap:
            last += 1
            of[last], begin[last], end[last] = group[row], first[row], latest[row]
        elif latest[row] > end[last]:
            end[last] = latest[row]
        number[row] = last
    return last + 1
