"""The table of rule 6.4, row by row: what the output CTI is, and what is remembered after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.changes import Changes
from headrace.operators.registry import kernel_of
from headrace.optimizer import optimize
from headrace.plan.nodes import Merge, Output, PerWindow
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY

ENDLESS = INFINITY


class Spans(hr.Aggregate):
    """Shows all it sees."""

    time_sensitive = True
    input = "x LONG"
    output = "STRING"

    def compute(self, events: list[Any], window: Any) -> str:
        return f"{tuple(window)} {[tuple(event) for event in events]}"


class Starts(hr.Operator):
    """An output for each event, at its start."""

    time_sensitive = True
    input = "x LONG"
    output = "x LONG"

    def compute(self, events: list[Any], window: Any) -> Any:
        return [self.event(max(e.le, window.le), max(e.le, window.le) + 1, e.x) for e in events]


class Driven:
    """One operator, driven by hand."""

    def __init__(self, build: Any) -> None:
        self.stream = hr.events([], schema="x LONG")
        self.node = build(self.stream).node
        self.kernel = kernel_of(self.node)
        self.high = NEG_INFINITY

    def feed(self, *events: tuple[int, int, int], cti: int = NEG_INFINITY) -> int:
        """Insert `(le, re, x)` (or take back, with a weight as fourth), then the CTI; the output's CTI."""
        le, re, x = (np.array([event[i] for event in events], np.int64) for i in range(3))
        weight = np.array([event[3] if len(event) > 3 else 1 for event in events], np.int64)
        self.high = max([self.high, *le.tolist()] + ([cti] if cti != INFINITY else []))
        changes = Changes(le, re, weight, pa.table({"x": x}))
        _, progress = self.kernel.step([changes], [Progress(cti, self.high)])
        return progress.cti

    @property
    def remembered(self) -> list[tuple[int, int]]:
        """The lifetimes of the events that are remembered."""
        found = self.kernel.traces["events"].scan()
        if found is None:
            return []
        left = Changes.from_table(found).consolidate()
        return sorted(zip(left.le.tolist(), left.re.tolist(), strict=True))

    @property
    def windows(self) -> set[tuple[int, int]]:
        """The windows whose outputs are remembered."""
        found = self.kernel.traces["given"].scan()
        if found is None:
            return set()
        left = Changes.from_table(found).consolidate().payload
        return set(zip(left.column("__wle").to_pylist(), left.column("__wre").to_pylist(), strict=True))


def spans(window: Any, **policy: Any) -> Any:
    return lambda s: s.window(window, **policy).aggregate(t=Spans().of("x"))


def count(window: Any) -> Any:
    return lambda s: s.window(window).aggregate(n=hr.count())


def test_aligned_and_time_insensitive():
    """First row: the smallest W.LE of windows with W.RE > c; forgotten when W.RE <= c."""
    run = Driven(lambda s: s.window(hr.hopping(10, 5)).top(9, by="x"))
    assert run.feed((1, 2, 0), (7, 30, 0), (12, 13, 0), cti=0) == -5
    assert run.feed(cti=9) == 0
    assert run.feed(cti=10) == 5
    # [1, 2) belongs to windows that end by 10 only. Of an end only its last window counts: here that is [25, 35).
    assert run.remembered == [(7, 26), (12, 13)]
    assert run.feed(cti=22) == 15
    assert run.remembered == [(7, 26)]
    assert run.windows == set()  # [15, 25) has not ended, so it was not given


def test_aligned_built_ins_promise_the_same():
    node = count(hr.hopping(10, 5))(hr.events([], schema="x LONG")).node
    (merged,) = optimize([Output(node, "out")])
    merge = merged.input
    assert isinstance(merge, Merge)
    assert isinstance(merge.aggregate, PerWindow)
    top = Driven(lambda s: s.window(hr.hopping(10, 5)).top(9, by="x"))
    assert [merge.aggregate.window.cti(c) for c in (0, 9, 10, 22)] == [top.feed(cti=c) for c in (0, 9, 10, 22)]


def test_sensitive_without_right_clipping_waits_for_open_events():
    """Second row: windows with W.RE > c or holding an event with RE >= c; forgotten when every event has RE < c."""
    run = Driven(spans(hr.tumbling(10)))
    assert run.feed((1, 25, 1), (2, 3, 2), (12, 14, 3), cti=0) == 0
    assert run.feed(cti=20) == 0  # [0, 10) holds [1, 25), which may still change
    assert run.remembered == [(1, 25), (2, 3), (12, 14)]
    assert run.windows == {(0, 10), (10, 20)}
    assert run.feed(cti=25) == 0  # RE = c may still be extended
    assert run.feed(cti=26) == 20
    assert run.remembered == [(1, 25)]  # it is still in [20, 30)
    assert run.windows == set()
    assert run.feed(cti=30) == 30
    assert run.remembered == []


@pytest.mark.parametrize("clipping", ["right", "full"])
def test_sensitive_with_right_clipping_is_as_aligned(clipping: str):
    """Third row; for tumbling windows the CTI is W.RE of the last closed window."""
    run = Driven(spans(hr.tumbling(10), clipping=clipping))
    run.feed((1, ENDLESS, 1), (2, 3, 2), cti=0)
    assert run.feed(cti=20) == 20
    assert run.windows == set()
    assert run.remembered == [(1, ENDLESS)]


def test_left_clipping_does_not_help():
    run = Driven(spans(hr.tumbling(10), clipping="left"))
    run.feed((1, ENDLESS, 1), cti=0)
    assert run.feed(cti=20) == 0


@pytest.mark.parametrize(("clipping", "windows"), [("none", {(0, 10), (10, 20), (20, 30)}), ("right", {(20, 30)})])
def test_time_bound_promises_what_its_input_does(clipping: str, windows: set[tuple[int, int]]):
    """Fourth row: c; forgotten as its clipping says."""
    run = Driven(
        lambda s: s.window(hr.tumbling(10), clipping=clipping, timestamping="time_bound").operate(Starts(), "x")
    )
    assert run.feed((1, ENDLESS, 1), cti=0) == 0
    assert run.feed(cti=7) == 7
    assert run.feed(cti=23) == 23
    assert run.windows == windows


def test_snapshots_are_corrected_by_shortening():
    """Fifth row: c, because a window that is split keeps its start and its answer."""
    run = Driven(lambda s: s.window(hr.snapshot()).top(9, by="x"))
    assert run.feed((1, 30, 1), (2, 4, 2), cti=3) == 3
    assert run.windows == {(2, 4), (4, 30)}
    assert run.feed((10, 12, 3), cti=10) == 10
    # [2, 4) ended the window before: the window that starts there is kept, so the event is not needed any more.
    assert run.remembered == [(1, 30), (10, 12)]
    assert run.feed(cti=11) == 11
    assert run.remembered == [(1, 30), (10, 12)]
    assert run.feed(cti=31) == 31
    assert run.remembered == []


def test_sums_over_snapshots_remember_endpoints_and_a_total():
    run = Driven(count(hr.snapshot()))
    assert run.feed(*((n, ENDLESS, n) for n in range(50)), cti=0) == 0
    assert run.kernel.traces["steps"].rows == 50
    assert run.feed(cti=49) == 49
    assert (run.kernel.traces["steps"].rows, run.kernel.traces["bases"].rows) == (1, 1)
    assert run.feed(cti=INFINITY - 1) == INFINITY - 1
    assert (run.kernel.traces["steps"].rows, run.kernel.traces["bases"].rows) == (0, 1)


def test_snapshots_with_time_sensitive_modules_wait():
    run = Driven(spans(hr.snapshot(), clipping="full"))
    assert run.feed((1, 30, 1), (2, 4, 2), cti=3) == 2
    assert run.feed(cti=4) == 2  # [2, 4) ends at c: the event that ends there may still be extended
    assert run.feed(cti=5) == 4


def test_count_windows_wait_until_they_are_complete():
    run = Driven(count(hr.count_by_start(3)))
    assert run.feed((1, 2, 1), (5, 6, 1), cti=6) == 1
    assert run.feed((7, 8, 1), cti=7) == 1  # [1, 8) ends after 7
    assert run.feed(cti=8) == 5
    assert run.remembered == [(5, 6), (7, 8)]
    assert run.windows == set()


def test_sessions_wait_for_their_gap():
    run = Driven(count(hr.session(5)))
    assert run.feed((1, 2, 1), (4, 5, 1), cti=8) == 1
    assert run.feed(cti=9) == 9
    assert [trace.rows for trace in run.kernel.traces.values()] == [0, 0, 0]


def test_sessions_whose_events_are_read_wait_for_their_gap():
    run = Driven(lambda stream: stream.window(hr.session(5)).aggregate(middle=hr.median("x")))
    assert run.feed((1, 2, 1), (4, 5, 1), cti=8) == 1
    assert run.feed(cti=9) == 9
    assert run.remembered == []


def test_a_session_is_a_row_whatever_it_holds():
    run = Driven(count(hr.session(5)))
    run.feed(*((time, time + 1, 1) for time in range(1000)), cti=999)
    run.feed((1000, 1001, 1), (1000, 1001, 1), cti=1000)
    assert run.kernel.traces["open"].scan("__n").num_rows <= 3  # it, and perhaps what it was and what takes that back
    assert run.kernel.traces["instants"].rows == 5  # at 996 and later: an event that may be taken back starts later


def test_advice_is_given_where_it_helps():
    stream = hr.events([], schema="x LONG")
    told = spans(hr.tumbling(10))(stream).explain(liveliness=True)
    assert "advice: clipping='right': output CTI no longer waits for open events; state bound falls from" in told
    assert "advice" not in spans(hr.tumbling(10), clipping="right")(stream).explain(liveliness=True)
    assert "up to 10 ticks" in count(hr.tumbling(10))(stream).explain(liveliness=True)


def advice(window: Any, *keys: str, **policy: Any) -> str:
    """What is advised for a time-sensitive operator."""
    stream = hr.events([], schema="x LONG, k STRING").group_by(*keys)
    told = stream.window(window, **policy).operate(Starts(), "x").explain(liveliness=True)
    return "\n".join(line.partition("advice: ")[2] for line in told.splitlines() if "advice: " in line)


def test_left_clipping_is_advised_to_be_full():
    assert "clipping='full'" in advice(hr.tumbling(10), clipping="left")
    assert "clipping='right'" not in advice(hr.tumbling(10), clipping="left")
    assert "clipping='right'" in advice(hr.tumbling(10))
    assert "clipping=" not in advice(hr.tumbling(10), clipping="full")


@pytest.mark.parametrize("window", [hr.count_by_start(2), hr.count_by_end(2), hr.count_by_start(1)], ids=str)
def test_a_time_bound_is_not_advised_where_windows_count(window: Any):
    assert "time_bound" not in advice(window)
    assert "time_bound" in advice(hr.tumbling(10))
    assert "time_bound" in advice(hr.session(10))
    assert "time_bound" not in advice(hr.tumbling(10), timestamping="time_bound")
    assert "time_bound" not in spans(hr.tumbling(10))(hr.events([], schema="x LONG")).explain(liveliness=True)
    assert "time_bound" in spans(hr.snapshot())(hr.events([], schema="x LONG")).explain(liveliness=True)


@pytest.mark.parametrize(
    ("window", "who"),
    [
        (
            hr.count_by_start(3),
            "a group that goes quiet before it has 3 start times holds the output CTI",
        ),
        (hr.count_by_end(3), "a group that goes quiet before it has 3 end times"),
        (hr.session(5), "a group that never pauses holds the output CTI of all groups"),
        (hr.snapshot(), "a group that has an event that lasts"),
        (hr.sliding(3), "a group that goes quiet holds the output CTI of all groups"),
    ],
    ids=str,
)
def test_groups_that_hold_back_others_are_spoken_of(window: Any, who: str):
    assert who in advice(window, "k")
    assert "a group that" not in advice(window)
    assert "a group that" not in advice(hr.tumbling(10), "k")
