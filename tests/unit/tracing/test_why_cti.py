"""Why a CTI is where it is: passed on, moved, held by a window or an event, promised by a source."""

from __future__ import annotations

import json

import pyarrow as pa

import headrace as hr
from headrace import col
from headrace.tracing.why_cti import WhyCti

EVENTS = hr.events(
    """
    kind   | le | re | re_new | k
    insert | 1  | 20 |        | a
    cti    | 9  |    |        |
    insert | 12 | 13 |        | b
    cti    | 15 |    |        |
    """
)
SILENT = hr.events("kind | le | re | re_new | k\ninsert | 1 | 2 | | a\ncti | 5 | | |")


def reasons(found: WhyCti) -> list[tuple[int, str]]:
    """The operators that hold the CTI, and why."""
    return [(step.operator.number, step.reason) for step in found.holders]


def test_a_source_that_promised_it_and_is_silent():
    found = EVENTS.join(SILENT, on="k").trace(batch_rows=1).why_cti()
    assert [(step.operator.number, step.cti) for step in found.steps()] == [(5, 5), (4, 5), (3, 5)]
    assert reasons(found) == [(3, "promised in batch 1; its last rows are of batch 0")]


def test_an_event_that_may_still_change():
    found = EVENTS.final().trace(batch_rows=1).why_cti()
    assert reasons(found)[0] == (3, "an event from 1 on may still change: the CTI of its input is 15")
    assert found.inputs["re"].to_pylist() == [20]


def test_windows_that_are_open():
    tumbling = EVENTS.window(hr.tumbling(10)).aggregate(n=hr.count()).shift(3).trace(batch_rows=1).why_cti()
    assert [step.cti for step in tumbling.steps()] == [13, 10, 15, 15]
    assert reasons(tumbling)[0] == (3, "the window [10, 20) is open until the CTI of its input, 15, reaches 20")
    session = EVENTS.window(hr.session(50)).aggregate(n=hr.count()).trace(batch_rows=1).why_cti()
    assert reasons(session)[0][1].startswith("an event from 1 on may still change")


def test_sources_that_follow_their_events():
    rows = pa.table({"k": ["a", "b", "a"], "t": [10, 25, 20]})
    found = hr.from_arrow(rows, lifetime=hr.point("t"), progress=hr.advance(delay=5)).trace(batch_rows=1).why_cti()
    assert reasons(found) == [(1, "the latest event is at 25, less the delay 5 ticks")]
    assert found.inputs["k"].to_pylist() == ["b"]
    by_key = hr.from_arrow(rows, lifetime=hr.point("t"), progress=hr.advance(delay=5, per="k", idle=1_000))
    assert reasons(by_key.trace(batch_rows=1).why_cti())[0][1] == 'k = "a" is the farthest behind, at 20'


def test_a_source_without_keys_whose_latest_event_is_at_zero():
    stream = hr.from_arrow(pa.table({"t": [0]}), lifetime=hr.point("t"), progress=hr.advance(delay=5))
    assert reasons(stream.trace(batch_rows=1).why_cti()) == [(1, "the latest event is at 0, less the delay 5 ticks")]


def test_no_promise_and_the_end():
    trace = EVENTS.where(col("k") == "a").trace(batch_rows=1)
    assert reasons(trace.why_cti(batch=0)) == [(1, "no promise was made")]
    assert reasons(trace.why_cti(operator=3, batch=4)) == [(1, "the input has ended")]


def test_the_steps_as_plain_values():
    found = json.loads(json.dumps(EVENTS.final().trace(batch_rows=1).why_cti().as_dict()))
    assert found["batch"] == 3
    assert [(step["operator"], step["cti"], step["below"]) for step in found["steps"]] == [
        (3, 1, [1]),
        (2, 15, [2]),
        (1, 15, []),
    ]
    assert found["steps"][0]["events"][0]["values"] == {"k": "a"}
    assert "#3 Final: 1 (start of the oldest event that waits)" in repr(EVENTS.final().trace(batch_rows=1).why_cti())
