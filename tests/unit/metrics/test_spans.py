"""Spans of batches, collected by OpenTelemetry's own SDK."""

from __future__ import annotations

import os
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode
from tests.fixtures.spans import Spans, without_provider
from tests.fixtures.waiting import until

import headrace as hr
from headrace.errors import HostError, SourceError
from headrace.host.driving import query as query_module
from headrace.host.driving.driver import Driver
from headrace.host.driving.in_process import InProcessExecutor
from headrace.host.driving.past import PHASES
from headrace.host.driving.query import Query
from headrace.metrics.spans import BatchSpans


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """What is collected; a test decides when that begins."""
    without_provider(monkeypatch)
    return Spans()


def add(folder: Path, *rows: str) -> None:
    """One more file, which appears whole."""
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    draft = folder / f"_{number}"
    draft.write_text("t,k\n" + "".join(f"{row}\n" for row in rows))
    os.utime(draft, (number + 1, number + 1))
    draft.rename(folder / f"{number:03d}.csv")


def counts(folder: Path) -> hr.Stream:
    add(folder / "in", "1,a", "12,b", "nonsense,c")
    rows = hr.read_csv(
        str(folder / "in"), "t LONG, k STRING", lifetime=hr.point("t"), progress=hr.advance(5, late="divert"),
        bad_rows="divert",
    )  # fmt: skip
    return rows.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count())


def started(folder: Path, sink: object = None, **options: object) -> Query:
    given = {"host": "local", "checkpoint": str(folder / "state"), "name": "q"} | options
    return counts(folder).start(sink or hr.memory(), **given)  # type: ignore[arg-type]


def nanoseconds(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


def assert_phases(spans: Spans, batch: ReadableSpan, *names: str) -> None:
    """The children of a batch are these phases, one after the other, within its time."""
    phases = spans.inside(batch)
    assert [phase.name for phase in phases] == list(names)
    begin, end = nanoseconds(batch)
    moments = [begin, *(moment for phase in phases for moment in nanoseconds(phase)), end]
    assert moments == sorted(moments)
    assert all(nanoseconds(one)[1] == nanoseconds(other)[0] for one, other in pairwise(phases))


def test_a_batch_has_a_span_and_its_phases_are_inside(tmp_path: Path, spans: Spans):
    spans.collect()
    query = started(tmp_path)
    query.process_all_available()
    add(tmp_path / "in", "8,a", "2,a", "40,b")  # the first answer is corrected; one row is late
    query.process_all_available()
    query.stop()
    first, second = spans.outer
    assert [first.name, second.name] == ["batch q", "batch q"]
    assert first.attributes == {
        "headrace.query": "q",
        "headrace.checkpoint": str(tmp_path / "state"),
        "headrace.batch": 0,
        "headrace.rows.read": 3,
        "headrace.rows.accepted": 2,
        "headrace.rows.late": 0,
        "headrace.rows.malformed": 1,
        "headrace.rows.diverted": 1,
        "headrace.rows.dropped": 0,
        "headrace.changes": query.past.batches[0].changes,
        "headrace.corrections": 0,
        "headrace.cti": "7",
    }
    assert second.attributes is not None
    assert second.attributes["headrace.batch"] == 1
    assert second.attributes["headrace.rows.late"] == 1
    assert second.attributes["headrace.corrections"] == query.past.batches[1].removals > 0
    for span, batch in zip(spans.outer, query.past.batches, strict=True):
        assert span.status.status_code is StatusCode.UNSET
        assert_phases(spans, span, *PHASES)
        for phase in spans.inside(span):
            begin, end = nanoseconds(phase)
            assert (end - begin) / 1e9 == pytest.approx(batch.phases[phase.name], abs=1e-5)


def test_numbers_go_on_after_a_restart(tmp_path: Path, spans: Spans):
    spans.collect()
    for _ in range(2):
        query = started(tmp_path)
        query.process_all_available()
        query.stop()
    assert [span.attributes["headrace.batch"] for span in spans.outer if span.attributes is not None] == [0, 1]


def test_a_batch_that_fails_says_why_and_in_which_phase(tmp_path: Path, spans: Spans):
    def refuse(_: object, batch: int) -> None:
        raise ValueError(batch)

    spans.collect()
    query = started(tmp_path, hr.foreach_batch(refuse))
    with pytest.raises(HostError, match="ValueError: 0"):
        query.process_all_available()
    query.stop()
    (batch,) = spans.outer
    assert batch.status.status_code is StatusCode.ERROR
    assert "ValueError: 0" in str(batch.status.description)
    (event,) = batch.events
    assert event.attributes is not None
    assert event.attributes["exception.type"] == "headrace.errors.HostError"
    assert "in refuse" in str(event.attributes["exception.stacktrace"])
    assert_phases(spans, batch, "plan", "run", "commit", "deliver")
    assert [p.status.status_code for p in spans.inside(batch)] == [*[StatusCode.UNSET] * 3, StatusCode.ERROR]


def test_tasks_that_run_again_are_seen_but_are_no_failure(
    tmp_path: Path, spans: Spans, monkeypatch: pytest.MonkeyPatch
):
    run, failures = InProcessExecutor.run, [RuntimeError("lost")]

    def failing(*given: object) -> object:
        if failures:
            raise failures.pop()
        return run(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(InProcessExecutor, "run", failing)
    monkeypatch.setattr(InProcessExecutor, "may_pass", lambda *_: True)
    spans.collect()
    query = started(tmp_path)
    query.process_all_available()
    query.stop()
    (batch,) = spans.outer
    assert batch.status.status_code is StatusCode.UNSET
    assert [str((event.attributes or {})["exception.message"]) for event in batch.events] == ["lost"]


def test_a_failure_between_two_batches_has_a_span_of_its_own(
    tmp_path: Path, spans: Spans, monkeypatch: pytest.MonkeyPatch
):
    def gone(*_: object, **__: object) -> None:
        raise SourceError("the files are gone")

    spans.collect()
    query = started(tmp_path)
    query.process_all_available()
    monkeypatch.setattr(Driver, "plan", gone)
    with pytest.raises(SourceError):
        query.process_all_available()
    query.stop()
    batch, failure = spans.outer
    assert [batch.name, failure.name] == ["batch q", "failure q"]
    assert [batch.status.status_code, failure.status.status_code] == [StatusCode.UNSET, StatusCode.ERROR]
    assert spans.inside(failure) == []


def test_a_batch_that_is_stopped_has_not_failed(tmp_path: Path, spans: Spans):
    entered, stopping = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        entered.set()
        stopping.wait(60)
        raise ValueError("stopped")

    spans.collect()
    query = started(tmp_path, hr.foreach_batch(wait))
    assert entered.wait(60)
    query.end_soon()
    stopping.set()
    query.stop()
    (batch,) = spans.outer
    assert batch.status.status_code is StatusCode.UNSET
    assert "headrace.cti" not in (batch.attributes or {})


def test_an_alarm_is_an_event_of_the_next_batch(tmp_path: Path, spans: Spans, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(query_module, "_JUDGED_EVERY", 0.0)
    spans.collect()
    query = started(tmp_path, alarms=[hr.alarm.diverted_share(0.1, least=1)])
    for _ in range(2):
        until(lambda: query.alarms, "no alarm")
        add(tmp_path / "in", "20,a")
        query.process_all_available()
    (alarm,) = query.alarms
    query.stop()
    first, second, third = spans.outer
    (event,) = second.events
    assert [first.events, third.events] == [(), ()]
    assert event.attributes == {"headrace.alarm": "diverted_share", "headrace.alarm.text": alarm.text}
    assert event.timestamp / 1e9 == pytest.approx(alarm.since.timestamp(), abs=1e-3)


def test_a_provider_may_be_set_while_the_query_runs(tmp_path: Path, spans: Spans):
    current: list[trace.Span] = []
    query = started(tmp_path, hr.foreach_batch(lambda *_: current.append(trace.get_current_span())))
    query.process_all_available()
    spans.collect()
    add(tmp_path / "in", "20,a")
    query.process_all_available()
    query.stop()
    before, after = current
    assert not before.is_recording()
    assert not before.get_span_context().is_valid
    (batch,) = spans.outer
    assert after.get_span_context() == batch.get_span_context(), "the sink's own spans would be inside"


def test_a_query_needs_no_opentelemetry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    query = started(tmp_path, hr.foreach_batch(lambda _, batch: [][batch]))
    with pytest.raises(HostError, match="IndexError"):
        query.process_all_available()
    query.stop()


def test_secrets_of_a_checkpoint_are_hidden(spans: Spans):
    spans.collect()
    one = BatchSpans("q", "s3://key:hidden@bucket/a", PHASES)
    one.begin(0)
    one.end([])
    (span,) = spans.outer
    assert (span.attributes or {})["headrace.checkpoint"] == "s3://***@bucket/a"
