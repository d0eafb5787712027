"""The manual clock stands still until it is told to move, and inputs with a heartbeat follow it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.errors import TimeError
from headrace.testing.clock import ManualClock
from headrace.testing.script import run_scripted


def test_it_moves_only_when_told():
    clock = ManualClock()
    assert (clock.now, clock(), repr(clock)) == (0, 0, "ManualClock(0)")
    assert clock.advance("10 s") == 10_000_000
    assert clock.advance(timedelta(milliseconds=1)) == clock() == clock.now == 10_001_000


def test_it_starts_at_any_time():
    assert ManualClock("1970-01-01T00:00:01Z").now == 1_000_000
    assert ManualClock(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)).now == 2_000_000


def test_it_does_not_go_back():
    clock = ManualClock(5)
    with pytest.raises(TimeError, match="does not go back"):
        clock.advance(-1)
    assert clock.now == 5


def test_a_heartbeat_follows_it():
    stream = hr.events("le | n\n1 | 1", progress=hr.heartbeat(every=10, delay=3))
    clock = ManualClock(28)
    assert stream.run(host="local", clock=clock, finish=False).cti() == 20
    clock.advance(5)
    assert stream.run(host="local", clock=clock, finish=False).cti() == 30


def test_an_idle_input_progresses_while_it_pauses():
    """The window of the only event closes though nothing arrives any more: the pauses alone move the promise."""
    clock = ManualClock(100)
    run = run_scripted(
        {"ticks": "kind | le | n\ninsert | 101 | 1\npause | 10 |\npause | 10 |"},
        lambda ticks: ticks.window(hr.tumbling(10)).aggregate(n=hr.count()).final(),
        progress={"ticks": hr.heartbeat(every=1)},
        clock=clock,
    )
    assert clock.now == 120
    batches = [(len(changes), progress.cti) for changes, progress in run.results["out"].batches]
    assert batches == [(0, 100), (1, 110), (0, 120), (0, hr.INFINITY)]


def test_a_heartbeat_unblocks_a_union():
    """An idle side holds the promise of a union back until its clock moves on."""

    def promises(idle: Any) -> list[int]:
        run = run_scripted(
            {
                "busy": "kind | le | n\ninsert | 101 | 1\npause | 10 |\ninsert | 112 | 2\ncti | 113 |",
                "idle": "kind | le | n\ninsert | 90 | 0\npause | 10 |\npause | 10 |",
            },
            lambda busy, idle: busy.union(idle),
            progress={"busy": hr.advance(0), "idle": idle},
            clock=ManualClock(100),
        )
        return [point.cti for _, point in run.results["out"].batches]

    assert promises(hr.heartbeat(every=1)) == [100, 110, 113, hr.INFINITY]
    assert promises(hr.explicit()) == [*[hr.NEG_INFINITY] * 3, hr.INFINITY]
