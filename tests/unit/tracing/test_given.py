"""What questions to a trace name: values of the wrong type, times of the wrong kind, events that are not alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace import col
from headrace.errors import TraceError
from headrace.tracing.traced import TracedRun

NUMBERS = hr.events("le | re | k | v\n1 | 5 | x | 1\n6 | 9 | y | 2")
DATES = hr.events("le | re | k\n2024-05-01T12:00:00 | 2024-05-01T13:00:00 | x")


@pytest.mark.parametrize("question", [TracedRun.why, TracedRun.why_not, TracedRun.why_retracted])
@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [("k", 5, "STRING"), ("v", 2**70, "LONG"), ("v", "x", "LONG"), ("v", float("nan"), "LONG")],
)
def test_a_value_of_another_type_is_named(question: Any, column: str, value: Any, kind: str):
    with pytest.raises(TraceError, match=f"no value of column '{column}' of operator #2, which is {kind}") as raised:
        question(NUMBERS.trace(), **{column: value})
    assert repr(value) in str(raised.value)


def test_a_number_that_is_too_large_in_a_condition():
    assert "no event was read" in repr(NUMBERS.trace().why_not(col("v") == 2**62))


DATED = hr.from_arrow(
    pa.table({"t": [0], "ts": [datetime(2024, 5, 1, tzinfo=UTC)], "d": [date(2024, 5, 1)]}), lifetime=hr.point("t")
)


@pytest.mark.parametrize(("column", "value"), [("ts", 5), ("ts", "0000"), ("d", 5), ("d", "2024")])
def test_a_number_is_no_value_of_a_column_of_dates(column: str, value: Any):
    trace = DATED.trace()
    with DATED.debug() as session:
        for ask in (
            trace.why,
            trace.why_not,
            lambda **values: session.change_input(1, remove=values),
            lambda **values: session.change_input(1, replace=({}, values)),
            lambda **values: session.change_input(1, add=[values]),
        ):
            with pytest.raises(TraceError, match=f"the values of column '{column}' are dates"):
                ask(**{column: value})


@pytest.mark.parametrize(
    "values", [{"ts": "2024-05-01"}, {"ts": 1714521600000000}, {"d": "2024-05-01"}, {"d": date(2024, 5, 1)}]
)
def test_dates_of_columns(values: Mapping[str, Any]):
    assert DATED.trace().why(**values).inputs.num_rows == 1
    with DATED.debug() as session:
        session.change_input(1, remove=values)
        session.run()
        assert session.trace.history().num_rows == 0


@pytest.mark.parametrize("stream", [NUMBERS, DATES])
def test_times_of_physical_events_in_an_edit_are_of_their_kind(stream: hr.Stream):
    right, wrong = (1, "2024-05-01") if stream is NUMBERS else ("2024-05-01T12:00:00", 1)
    with stream.debug() as session:
        for edit in ({"remove": {"le": wrong}}, {"replace": ({}, {"re": wrong})}, {"add": [{"le": wrong}]}):
            with pytest.raises(TraceError, match=r"the times of .* are (dates|numbers)"):
                session.change_input(1, **edit)  # type: ignore[arg-type]
        condition = "le = 1" if stream is NUMBERS else "le = '2024-05-01T12:00:00'"
        for remove in ({"le": right}, condition):
            session.change_input(1, remove=remove)
            session.run()
            assert "x" not in session.trace.history()["k"].to_pylist()
            session.change_input(1, add=[{"le": right, "re": None, "k": "x"}])


@pytest.mark.parametrize("time", [2024, "2024", 0])
def test_small_numbers_are_no_dates(time: int | str):
    trace = DATES.trace()
    for ask in (lambda: trace.why_not(k="y", at=time), lambda: trace.why(le=time), lambda: trace.why_not(re=time)):
        with pytest.raises(TraceError, match="the times of operator #2 are dates"):
            ask()


@pytest.mark.parametrize("time", ["2024-05-01", datetime(2024, 5, 1, tzinfo=UTC)])
def test_dates_are_no_numbers(time: Any):
    trace = NUMBERS.trace()
    for ask in (lambda: trace.why_not(k="y", at=time), lambda: trace.why(le=time), lambda: trace.forward(re=time)):
        with pytest.raises(TraceError, match=r"the times of operator #[12] are numbers"):
            ask()


def test_dates_and_their_ticks():
    trace = DATES.trace()
    assert trace.why(le="2024-05-01T12:00:00").root.row == trace.why(le=1_714_564_800_000_000).root.row
    assert "no event was read" in repr(trace.why_not(k="x", re="inf"))


def test_physical_events_of_one_payload_and_start_are_left_out_together():
    trace = hr.events("le | re | k | v\n1 | 5 | x | 1\n1 | 9 | x | 1\n2 | 4 | x | 1").trace()
    with pytest.raises(TraceError, match=r"only together") as raised:
        trace.forward(k="x", v=1, re=5)
    assert "[1, 9)" in str(raised.value)
    with pytest.raises(TraceError, match=r"only together"):
        trace.without((1, {"re": 9}))
    assert trace.without((1, {"re": 5}), (1, {"re": 9})).history().num_rows == 1
    assert set(trace.forward(le=2)["re"].to_pylist()) == {4}


def test_copies_of_an_event_are_one():
    trace = hr.events("le | re | k\n1 | 5 | x\n1 | 5 | x").trace()
    assert set(trace.forward(k="x")["weight"].to_pylist()) == {2}
