"""Questions as users ask them: values in other forms, times, conditions, and those that name no event."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace import col
from headrace.api.conditions import condition_of
from headrace.cli import app
from headrace.errors import HeadraceError, PlanError, SqlError, TraceError

TICKS = """symbol,ts,price
A,2024-05-01T12:00:01Z,10.0
A,2024-05-01T12:00:11Z,12.0
A,2024-05-01T12:00:05Z,11.0
A,2024-05-01T12:00:31Z,54.0
A,2024-05-01T12:00:02Z,99.0
A,2024-05-01T12:00:03Z,98.0
"""
QUERY = """
import headrace as hr

ticks = hr.read_csv("ticks.csv", schema="symbol STRING, ts DATETIME, price DOUBLE",
                    lifetime=hr.point("ts"), progress=hr.advance(delay="10 s", late="drop"))
counts = ticks.group_by("symbol").window(hr.tumbling("10 s")).aggregate(n=hr.count())
"""
EVENTS = hr.events(
    """
    kind    | le | re | re_new | k | v
    insert  | 1  | ∞  |        | a | 1
    insert  | 2  | 9  |        | a | 2
    insert  | 3  | 8  |        | b | 3
    retract | 3  | 8  | 3      | b | 3
    """
)


def ticks(folder: Path, late: str = "divert") -> hr.Stream:
    (folder / "ticks.csv").write_text(TICKS)
    return hr.read_csv(
        folder / "ticks.csv", schema="symbol STRING, ts DATETIME, price DOUBLE",
        lifetime=hr.point("ts"), progress=hr.advance(delay="10 s", late=late),
    )  # fmt: skip


@pytest.mark.parametrize("row", ["v > 1", 3, [("v", 1)]])
def test_what_names_no_event(row: Any):
    trace = EVENTS.trace()
    for question in (trace.why, trace.why_not, trace.forward, trace.why_retracted):
        with pytest.raises(TraceError, match="this names no event"):
            question(row)


def test_an_expression_that_is_no_condition():
    trace = EVENTS.where(col("v") > 1).trace()
    for question in (trace.why, trace.why_not):
        with pytest.raises(HeadraceError, match="BOOLEAN"):
            question(col("v") + 1)


def test_a_time_of_a_column_as_text_and_without_a_zone(tmp_path: Path):
    trace = ticks(tmp_path).trace()
    for ts in ("2024-05-01T12:00:05Z", "2024-05-01T12:00:05", datetime(2024, 5, 1, 12, 0, 5)):  # noqa: DTZ001
        assert trace.why(ts=ts).inputs["price"].to_pylist() == [11.0]
        assert trace.forward(ts=ts).num_rows == 1
    with pytest.raises(HeadraceError, match="not a time"):
        trace.why(ts="noon")


def test_one_of_several_answers_by_a_time_at_which_it_lasts(tmp_path: Path):
    counts = ticks(tmp_path).group_by("symbol").window(hr.tumbling("10 s")).aggregate(n=hr.count())
    trace = counts.trace()
    with pytest.raises(TraceError, match=r"2 events .* fit"):
        trace.why(n=1)
    assert trace.why(n=1, at="2024-05-01T12:00:35").inputs["price"].to_pylist() == [54.0]
    with pytest.raises(TraceError, match="no event fits") as caught:
        trace.why(n=1, at="2024-05-01T12:00:05")
    assert "at = 2024-05-01T12:00:05, n = 1" in str(caught.value)


def test_an_event_that_was_taken_back_by_a_condition():
    trace = EVENTS.trace(batch_rows=1)
    assert trace.why_retracted(col("v") == 3).root.through == "deleted"
    assert trace.why_retracted({"k": "b"}).root.through == "deleted"
    with pytest.raises(TraceError, match="no event fits") as caught:
        trace.why_retracted(v=1)
    assert "one of trace.of(2) with a weight below 0" in caught.value.allowed


def test_an_event_that_was_taken_back_is_explained_as_it_was():
    for stream in (EVENTS.select("k").distinct(), EVENTS.join(EVENTS, on="k")):
        missing = stream.trace(batch_rows=1).why_not(k="b")
        (gone,) = [r.instead[0] for s, r in missing.reasons if r.kind == "taken back" and s.operator.number > 2]
        assert gone.causes, "the causes that it had"


def test_rows_that_were_dropped_are_those_that_fit(tmp_path: Path):
    stream = ticks(tmp_path, late="drop")
    dropped = [r.text for _, r in stream.trace(batch_rows=1).why_not(price=98.0).reasons if r.kind == "dropped"]
    assert len(dropped) == 1
    assert "dropped a row in batch 5" in dropped[0]
    (unknown,) = [r.text for _, r in stream.trace().why_not(price=98.0).reasons if r.kind == "dropped"]
    assert "dropped rows in batch 0: 2, of which only the first is known" in unknown


def test_many_late_rows_are_counted(tmp_path: Path):
    lines = ["symbol,ts,price", "A,2024-05-01T13:00:00Z,1.0", *(f"A,2024-05-01T12:00:{i:02}Z,{i}" for i in range(20))]
    stream = ticks(tmp_path)
    (tmp_path / "ticks.csv").write_text("\n".join(lines))
    reasons = [reason for _, reason in stream.trace().why_not(symbol="A", at="2024-05-01T12:00").reasons]
    assert [reason.kind for reason in reasons].count("late") == 1
    more = stream.select("symbol").trace().why_not(symbol="B").reasons
    assert [reason.kind for _, reason in more] == ["not read"]
    late = stream.trace().why_not((col("price") >= 0) & (col("price") != 1.0)).reasons
    assert late[-1][1].text.startswith("14 more reasons: late")


def test_a_number_in_a_row_that_cannot_be_read(tmp_path: Path):
    ticks(tmp_path)
    (tmp_path / "ticks.csv").write_text("symbol,ts,price\nA,noon,5\nA,2024-05-01T12:00:01Z,6\n")
    stream = hr.read_csv(
        tmp_path / "ticks.csv", schema="symbol STRING, ts DATETIME, price DOUBLE", lifetime=hr.point("ts"),
        bad_rows="divert",
    )  # fmt: skip
    assert next(reason.kind for _, reason in stream.trace().why_not(price=5.0).reasons) == "refused"
    assert [reason.kind for _, reason in stream.trace().why_not(price=55.0).reasons] == ["not read"]


@pytest.mark.parametrize("batch_rows", [0, -1, 1.5, "x", True])
def test_rows_of_a_batch(batch_rows: Any):
    for run in (EVENTS.trace, EVENTS.debug):
        with pytest.raises(PlanError, match="batch_rows must be at least 1"):
            run(batch_rows=batch_rows)


@pytest.mark.parametrize("text", ["v > 1 LIMIT 1", "v > 1; CREATE TABLE t (a INT)", "v > 1 UNION ALL SELECT * FROM x"])
def test_nothing_stands_behind_a_condition(text: str):
    with pytest.raises(SqlError, match="cannot stand here"):
        condition_of(EVENTS, text)
    with EVENTS.debug() as session, pytest.raises(SqlError, match="cannot stand here"):
        session.break_at(2, when=text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("le = 1", 1),
        ("re IS NULL", 1),
        ("re = 9", 2),
        ("v > 1 AND le + 1 < re", 2),
        ("(le < 2 OR re < 9) AND k = 'a'", 1),
    ],
)
def test_conditions_look_at_the_times_of_events(text: str, expected: int):
    trace = EVENTS.trace()
    assert trace.why(condition_of(EVENTS, text)).inputs["v"].to_pylist() == [expected]
    touched = trace.forward(condition_of(EVENTS, text), operator=2).to_pylist()
    assert {row["v"] for row in touched} == {expected}
    with EVENTS.debug(batch_rows=1) as session:
        session.break_at(2, when=text)
        assert [row["v"] for hit in session.run().hits for row in hit.rows.to_pylist()] == [expected]


def test_times_of_an_event_that_is_not_there():
    trace = EVENTS.trace()
    missing = trace.why_not(condition_of(EVENTS, "le = 4 AND k = 'a'"))
    assert (missing.root.wanted.le, missing.root.wanted.equal) == (4, {"k": "a"})
    with pytest.raises(TraceError, match="a time is one that it should have"):
        trace.why_not(condition_of(EVENTS, "le > 4 AND k = 'a'"))
    with pytest.raises(TraceError, match="no event fits"):
        trace.why_retracted(condition_of(EVENTS, "le = 2"))
    assert EVENTS.trace(batch_rows=1).why_retracted(condition_of(EVENTS, "re = 8")).root.row[0] == 3


def printed(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[int, str]:
    (folder / "ticks.csv").write_text(TICKS)
    (folder / "query.py").write_text(QUERY)
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, ["trace", "query.py:counts", "--batch-rows", "1", *options])
    return done.exit_code, done.output if done.exception is None else str(done.exception)


def test_the_command_asks_about_an_operator_a_batch_and_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert printed(tmp_path, monkeypatch, "--why", "price = 54", "--operator", "1")[1].startswith("#1 at 2024-05-01T12")
    late = printed(tmp_path, monkeypatch, "--why", "n = 1", "--at", "2024-05-01T12:00:35")[1]
    assert late.startswith("#2 [2024-05-01T12:00:30, 2024-05-01T12:00:40): symbol = A, n = 1")
    assert printed(tmp_path, monkeypatch, "--why", "le = '2024-05-01T12:00:30Z'")[1] == late
    early = printed(tmp_path, monkeypatch, "--why", "n = 1", "--batches", "1")[1]
    assert early.startswith("#2 [2024-05-01T12:00:00, 2024-05-01T12:00:10): symbol = A, n = 1")


def test_the_command_refuses_what_it_would_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    two = printed(tmp_path, monkeypatch, "--why", "n = 2", "--why-cti")
    assert two[0]
    assert "one question at a time" in two[1]
    alone = printed(tmp_path, monkeypatch, "--at", "2024-05-01T12:00:35")
    assert alone[0]
    assert "a time belongs to a question" in alone[1]


def test_the_command_says_why_an_event_was_taken_back_and_what_became_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    status, text = printed(tmp_path, monkeypatch, "--why-retracted", "n = 1", "--operator", "2")
    assert not status, text
    assert text.startswith("#2 [2024-05-01T12:00:00, 2024-05-01T12:00:10): symbol = A, n = 1, batch 2")
    assert "added: #1" in text
    status, text = printed(tmp_path, monkeypatch, "--forward", "price = 54")
    assert not status, text
    assert [line.split(" | ")[0].strip() for line in text.splitlines()] == ["operator", "1", "2"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--compare", "query.py:counts", "--operator", "1"], "is about the whole run"),
        (["--forward", "price = 54", "--batches", "1"], "is about the whole run"),
        (["--why-retracted", "n = 1", "--batches", "1"], "is about the whole run"),
        (["--checkpoint", "state"], "the batches of a checkpoint are those that ran"),
        (["--forward", "price = 54", "--why", "n = 1"], "one question at a time"),
        (["--save", "query.py"], "the tables cannot be written: File exists"),
        (["--batches", "9" * 5000], "not numbers of batches"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_options_that_would_change_nothing_or_cannot_be_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
):
    status, text = printed(tmp_path, monkeypatch, *options)
    assert status
    assert says in text


def test_conditions_are_about_one_event():
    trace = EVENTS.trace()
    many = hr.count() > 2
    with EVENTS.debug() as session:
        for ask in (trace.why, trace.why_not, trace.why_retracted, trace.forward, partial(session.break_at, 2)):
            with pytest.raises(TraceError, match="looks at one event"):
                ask(many)


def test_arguments_of_other_types_are_typed_errors(tmp_path: Path):
    trace, session = EVENTS.trace(), EVENTS.debug()
    change = session.change_input
    wrong: list[Callable[[], Any]] = [
        lambda: trace.of(1, batches=3), lambda: trace.of(1, batches=range(50, 60)), lambda: trace.show(1, batches=1),
        lambda: trace.without({"v": 1}), lambda: trace.without((1, {"v": 1}, 3)), lambda: trace.compare(EVENTS),
        lambda: session.change_query(3), lambda: session.break_at_call(3), lambda: session.delete([1]),
        lambda: change(1, add={"v": 1}), lambda: change(1, add=3), lambda: change(1, replace=({"v": 1},)),
        lambda: change(1, replace="v = 1"), lambda: change(1, batch="x", remove="v = 1"),
        lambda: change(1, add=[{"k": "\ud800"}]),
        *(partial(hr.trace_checkpoint, tmp_path, EVENTS, batches=one) for one in (0, (0,), (0.0, 1), (None, 1), "01")),
    ]  # fmt: skip
    with session:
        for ask in wrong:
            with pytest.raises((PlanError, TraceError)):
                ask()
        assert session.run().finished
