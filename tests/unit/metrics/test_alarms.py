"""Alarms: each rule with a clock of the test, and queries whose alarms log, call a function, or end them."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures.scraping import scrape
from tests.fixtures.waiting import PATIENCE, until

import headrace as hr
from headrace.errors import AlarmError, PlanError, TimeError
from headrace.host.driving import query as query_module
from headrace.io.sinks import read_events_output
from headrace.metrics import calling
from headrace.metrics.alarms import Alarm, AlarmRule, Alarms
from headrace.metrics.queries import OperatorFigures, QueryFigures, Reached
from headrace.testing.same import assert_same_history
from headrace.time import INFINITY

SECOND = 1_000_000
START = 1_704_067_200.0


class Judged:
    """Alarms of one rule, and what it has passed on; `at` is the seconds since the start."""

    def __init__(self, make: Callable[..., AlarmRule], *arguments: Any, **options: Any) -> None:
        self.passed: list[Alarm] = []
        self.alarms = Alarms("q", [make(*arguments, **options, then=self.passed.append)])

    def at(self, seconds: float, **figures: Any) -> list[str]:
        self.alarms.judge(QueryFigures("q", "running", **figures), seconds, START + seconds)
        return [alarm.name for alarm in self.alarms.active]


def source(name: str, behind: float, seconds: float = 0.0) -> Reached:
    """A source whose CTI is so many seconds behind the clock at a time."""
    cti = int((START + seconds - behind) * SECOND)
    return Reached(name, cti, cti, dates=True)


def rows(**counts: int) -> dict[str, dict[str, int]]:
    return {name: {"rows": count} for name, count in counts.items()}


# --- the rules -------------------------------------------------------------------------------------------------------


def test_a_silent_source_has_no_rows_while_another_has():
    judged = Judged(hr.alarm.silent_source, "10 s")
    join = [
        OperatorFigures("join", 5, 100, "b"),
        OperatorFigures("count", 9, 900, "a"),
        OperatorFigures("x", 0, 999, "b"),
    ]

    def at(seconds: float, a: int, b: int, *, b_reached: float = 0.0) -> list[str]:
        sources = [source("a", 0, seconds), source("b", 0, b_reached)]
        return judged.at(seconds, counts=rows(a=a, b=b), sources=sources, operators=join)

    assert at(0, 1, 1) == []
    assert at(9, 2, 1) == []
    assert at(10, 3, 1) == ["silent_source"]
    assert at(11, 4, 1) == ["silent_source"]  # it has begun once
    (alarm,) = judged.passed
    assert (alarm.source, alarm.operator, alarm.value, alarm.threshold) == ("b", "join", 10, 10)
    assert alarm.text == (
        "source b has had no rows for 10 s, while others have; it holds the state of join (5 rows, 100 bytes)"
    )
    assert (alarm.query, alarm.since, alarm.ended) == ("q", datetime.fromtimestamp(START + 10, UTC), None)
    assert at(12, 5, 2, b_reached=12) == []
    assert judged.passed[1].ended == datetime.fromtimestamp(START + 12, UTC)
    assert at(40, 5, 2) == []  # nobody has rows: nothing says that b is the one
    assert len(judged.passed) == 2


def test_a_silent_source_that_holds_nothing_back_is_none():
    judged = Judged(hr.alarm.silent_source, "10 s")
    for seconds in (0, 20):
        sources = [source("a", 5, seconds), source("b", 0, seconds)]  # a clock moves the CTI of b
        assert judged.at(seconds, counts=rows(a=seconds, b=0), sources=sources) == []
    ended = Reached("b", INFINITY, 0, dates=True)
    assert judged.at(40, counts=rows(a=40, b=0), sources=[source("a", 5, 40), ended]) == []


def test_lag_begins_beyond_its_threshold_and_ends_a_tenth_below():
    judged = Judged(hr.alarm.lag, "100 s")
    expected = [(50, False), (101, True), (99, True), (91, True), (90, False), (100, False), (102, True)]
    for seconds, (behind, lasts) in enumerate(expected):
        assert judged.at(seconds, sources=[source("a", behind, seconds)]) == ["lag"] * lasts, behind
    assert [(alarm.value, alarm.ended is None) for alarm in judged.passed] == [(101, True), (101, False), (102, True)]
    assert judged.passed[0].text == "the CTI of a is 101 s behind the clock"
    assert judged.at(9, sources=[Reached("a", INFINITY, 0, dates=True)]) == []  # the input has ended


def test_a_query_that_reads_its_history_is_not_late():
    judged = Judged(hr.alarm.lag, "100 s")
    assert judged.at(0, sources=[source("a", 1e8)]) == []
    assert judged.at(1, sources=[source("a", 100, 1)]) == []
    assert judged.at(2, sources=[source("a", 1e8, 2)]) == ["lag"]


def test_lag_of_numbers_is_behind_the_highest_time():
    judged = Judged(hr.alarm.lag, 100)
    assert judged.at(0, sources=[Reached("a", 900, 1000, dates=False)]) == []
    assert judged.at(1, sources=[Reached("a", 900, 1001, dates=False)]) == ["lag"]
    assert judged.passed[0].text == "the CTI of a is 101 ticks behind the highest time read"


def test_state_grows_after_the_first_period():
    judged = Judged(hr.alarm.state_growth, 4, within="60 s", least=1000)

    def at(seconds: float, *sizes: int) -> list[str]:
        return judged.at(seconds, operators=[OperatorFigures("join", size // 10, size, "b") for size in sizes])

    assert at(0, 0, 0) == []
    assert at(59, 10**9, 400) == []  # it builds up
    assert at(61, 10**9, 400) == []
    assert at(62, 10**9, 1600) == []
    assert at(90, 10**9, 1601) == ["state_growth"]
    assert (judged.passed[0].operator, judged.passed[0].source) == ("join", "b")
    assert judged.passed[0].text.startswith("the state of join has grown to 1,601 bytes (160 rows)")
    assert at(300, 10**9, 1601) == ["state_growth"]  # it stays as large
    assert at(301, 10**9, 1440) == []
    assert at(302, 10**9, 100) == []
    assert at(400, 10**9, 999) == []  # below the least


def test_state_that_grows_slowly_is_no_alarm():
    judged = Judged(hr.alarm.state_growth, 2, within="60 s", least=1)
    size = 1000.0
    for minute in range(0, 6000, 10):
        size *= 1.05  # 1.34 in a minute
        assert judged.at(minute, operators=[OperatorFigures("join", 1, int(size), None)]) == []


def test_the_share_of_rows_that_are_not_used():
    judged = Judged(hr.alarm.diverted_share, 0.1, within="60 s", least=100)

    def at(seconds: float, read: int, diverted: int, dropped: int = 0) -> list[str]:
        counts = {"a": {"rows": read, "diverted": diverted, "dropped": dropped}}
        return judged.at(seconds, counts=counts, sources=[source("a", 0, seconds)])

    assert at(0, 1000, 900) == []  # before the start
    assert at(1, 1099, 999) == []  # too few rows
    assert at(2, 1100, 905, 6) == ["diverted_share"]
    assert judged.passed[0].text == "11 of 100 rows of a in the last 1 min were diverted or dropped (11%)"
    assert at(30, 1110, 905, 6) == ["diverted_share"]  # just below a tenth
    assert at(62, 1130, 905, 6) == []


#: Numbers that no value passes or reaches.
NO_NUMBERS: tuple[Any, ...] = (float("inf"), float("-inf"), float("nan"), INFINITY, 10**400)
NO_TIMES = NO_NUMBERS[:4]


@pytest.mark.parametrize(
    "make",
    [
        lambda: hr.alarm.lag(0), lambda: hr.alarm.silent_source("0 s"), lambda: hr.alarm.state_growth(1),
        lambda: hr.alarm.state_growth(within=0), lambda: hr.alarm.diverted_share(1),
        lambda: hr.alarm.diverted_share(10),
        lambda: hr.alarm.lag("1 s", then="mail"),  # type: ignore[arg-type]
        lambda: hr.alarm.diverted_share(0.1, within=0),
        lambda: hr.alarm.diverted_share("10 %"),  # type: ignore[arg-type]
        lambda: hr.alarm.diverted_share(0.1, least="many"),  # type: ignore[arg-type]
        lambda: hr.alarm.state_growth("4"),  # type: ignore[arg-type]
        lambda: hr.alarm.state_growth(4, least="1 GB"),  # type: ignore[arg-type]
        lambda: hr.alarm.state_growth(4, least=-1),
        lambda: hr.alarm.state_growth(4, least=True),
        *(partial(hr.alarm.state_growth, number) for number in NO_NUMBERS),
        *(partial(hr.alarm.state_growth, 4, least=number) for number in NO_NUMBERS),
        *(partial(hr.alarm.diverted_share, number) for number in NO_NUMBERS),
        *(partial(hr.alarm.diverted_share, 0.1, least=number) for number in NO_NUMBERS),
        *(partial(make, number) for make in (hr.alarm.lag, hr.alarm.silent_source) for number in NO_TIMES),
        *(partial(hr.alarm.state_growth, within=number) for number in NO_TIMES),
        *(partial(hr.alarm.diverted_share, within=number) for number in NO_TIMES),
    ],
)  # fmt: skip
def test_thresholds_that_make_no_sense_are_refused(make: Callable[[], object]):
    with pytest.raises((PlanError, TimeError)) as caught:
        make()
    assert caught.value.allowed
    assert caught.value.instead


def test_what_is_no_rule_is_refused_before_anything_is_created(tmp_path: Path):
    stream = hr.events("le | v\n1 | 2")
    for given in (["lag"], "lag", [hr.alarm.lag]):
        with pytest.raises(PlanError, match="not a rule"):
            stream.start(hr.memory(), host="local", alarms=given, checkpoint=str(tmp_path / "s"))  # type: ignore[arg-type]
    assert not (tmp_path / "s").exists()


# --- queries ---------------------------------------------------------------------------------------------------------


def add(folder: Path, *times: int | str) -> None:
    """One more file, which appears whole."""
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    draft = folder / f"_{number}"
    draft.write_text("t,k\n" + "".join(f"{t},x\n" for t in times))
    os.utime(draft, (number + 1, number + 1))
    draft.rename(folder / f"{number:04d}.csv")


def read(folder: Path) -> hr.Stream:
    return hr.read_csv(
        str(folder), "t LONG, k STRING", lifetime=hr.interval("t", hr.col("t") + 50), progress=hr.advance(0)
    )


@pytest.fixture
def judged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_module, "_JUDGED_EVERY", 0.0)


@pytest.mark.usefixtures("judged_at_once")
def test_a_silent_source_of_a_join_is_named_until_it_has_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    left, right = tmp_path / "left", tmp_path / "right"
    add(left, 1)
    add(right, 1)
    passed: list[Alarm] = []
    joined = read(left).join(read(right), on="k")
    rules = [hr.alarm.silent_source("300 ms", then=passed.append)]
    query = joined.start(hr.memory(), host="local", alarms=rules, name="q", metrics_port=0)
    at = 1

    def more() -> tuple[Alarm, ...]:
        nonlocal at
        at += 1
        add(left, at)
        query.process_all_available()
        return query.alarms

    with caplog.at_level(logging.INFO, "headrace"):
        until(more, "no alarm")
        (alarm,) = query.alarms
        assert alarm.name == "silent_source"
        assert str(right) in str(alarm.source)
        assert "Join" in str(alarm.operator) or "join" in str(alarm.operator)
        until(lambda: passed == [alarm], "the function was not called")
        more()
        assert query.report["alarms"] == [alarm.to_json()]
        assert f"alarm silent_source: {alarm.text}" in str(query.progress())
        scraped = scrape(query.metrics_url)
        assert scraped.value("headrace_alarm", query="q", rule="silent_source") == 1
        add(right, at)  # not beyond the left one, which would then be the silent one
        query.process_all_available()
        until(lambda: not query.alarms, "it lasts")
        until(lambda: not query.report["alarms"], "the report has it")
    scraped = scrape(query.metrics_url)
    assert scraped.value("headrace_alarm", query="q", rule="silent_source") == 0
    assert scraped.value("headrace_alarms_total", query="q", rule="silent_source") == 1
    query.stop()
    assert [one.ended is None for one in passed] == [True, False]
    logged = [record.getMessage() for record in caplog.records if "silent_source" in record.getMessage()]
    assert logged[0] == f"query q: alarm silent_source: {alarm.text}"
    assert logged[1].startswith("query q: the alarm has ended silent_source")
    assert len(logged) == 2


@pytest.mark.usefixtures("judged_at_once")
def test_an_alarm_that_fails_the_query_loses_nothing(tmp_path: Path):
    folder, state, out = tmp_path / "in", str(tmp_path / "state"), str(tmp_path / "out")
    rows = hr.read_csv(
        str(folder), "t LONG, k STRING", lifetime=hr.point("t"), progress=hr.advance(5), bad_rows="divert"
    )
    sums = rows.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count())
    rules = [hr.alarm.diverted_share(0.5, least=10, then="fail")]
    add(folder, *range(20))
    (folder / "bad.csv").write_text("t,k\n" + "nonsense,x\n" * 60)  # in the first batch
    os.utime(folder / "bad.csv", (2, 2))
    query = sums.start(hr.files(out), host="local", checkpoint=state, alarms=rules)
    until(lambda: query.exception() is not None, "it runs on")
    with pytest.raises(
        AlarmError, match=r"alarm diverted_share: .* rows of csv .* were diverted or dropped"
    ) as failure:
        query.process_all_available()
    assert "a start with the same checkpoint continues" in str(failure.value)
    assert query.state == "failed"
    query.stop()
    add(folder, *range(20, 60))
    query = sums.start(hr.files(out), host="local", checkpoint=state, alarms=rules)  # judges from here on
    query.finish()
    query.stop()
    with pytest.warns(hr.RowsNotUsed):
        expected = sums.run(host="local").cht()
    assert_same_history(read_events_output(out, sums.schema), expected)


def test_a_function_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture):
    def fail(alarm: Alarm) -> None:
        raise ValueError(alarm.name)

    alarms = Alarms("q", [hr.alarm.lag("1 s", then=fail)])
    for seconds, behind in ((0, 0), (1, 2), (2, 0)):
        alarms.judge(QueryFigures("q", "running", sources=[source("a", behind, seconds)]), seconds, START + seconds)
    assert caplog.text.count("query q: the function of the alarm lag failed") == 2
    assert "ValueError: lag" in caplog.text
    assert alarms.by_rule == {"lag": (False, 1)}


@pytest.mark.usefixtures("judged_at_once")
def test_a_function_that_does_not_return_holds_up_no_query_and_may_stop_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    called, opened = threading.Event(), threading.Event()

    def wait(alarm: Alarm) -> None:
        called.set()
        assert opened.wait(PATIENCE), alarm
        query.stop()

    rows = hr.read_csv(str(tmp_path), "t LONG, k STRING", lifetime=hr.point("t"), progress=hr.advance(5))
    add(tmp_path, 1)
    query = rows.start(hr.memory(), host="local", alarms=[hr.alarm.diverted_share(0.5, least=2, then=wait)])
    query.process_all_available()
    add(tmp_path, *["nonsense"] * 9)
    assert called.wait(PATIENCE)
    add(tmp_path, 2, 3)
    query.process_all_available()
    assert query.counts[str(rows.node.origin)]["accepted"] == 3  # type: ignore[attr-defined]
    opened.set()
    assert query.await_termination(PATIENCE)
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("headrace-alarms")], "the thread goes on")
    assert "the function of the alarm" not in caplog.text


def test_calls_that_do_not_return_are_given_up(caplog: pytest.LogCaptureFixture):
    begun, opened, made = threading.Event(), threading.Event(), list[int]()

    def first() -> None:
        begun.set()
        opened.wait(PATIENCE)

    calls = calling.AlarmCalls("q")
    calls(first)
    assert begun.wait(PATIENCE)
    for number in range(2 * calling._MOST):
        calls(partial(made.append, number))
    assert "a function of an alarm does not return" in caplog.text
    calls.settle(0.01)
    assert "has not returned" in caplog.text
    assert made == []
    opened.set()
    calls.close()
    assert made == list(range(calling._MOST))


def test_a_query_has_the_default_rules_unless_it_has_others(tmp_path: Path):
    add(tmp_path / "in", 1)
    names = [rule.name for rule in hr.alarm.defaults()]
    assert names == ["silent_source", "lag", "state_growth", "diverted_share"]
    for given, expected in ((None, names), ([], []), ([hr.alarm.lag("1 s")] * 2, ["lag"])):
        query = read(tmp_path / "in").start(hr.memory(), host="local", alarms=given)
        assert list(query.watch.by_rule) == expected
        query.stop()
