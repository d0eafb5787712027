"""Failures of Spark: the first cause in one sentence, what to do, and all the rest in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import HostError, LateEvent, SourceError
from headrace.host.driving.in_process import InProcessExecutor
from headrace.host.driving.plan import Batch
from headrace.host.driving.query import Query
from headrace.host.spark.failures import explaining, failure, is_gone, may_pass
from headrace.io.sinks import FunctionSink, Nowhere, Sink
from headrace.stages.message import Message

HEADER = "[STREAM_FAILED] Query [id = 1-2, runId = 3-4] terminated with exception: "
TASK = "Job aborted due to stage failure: Task 0 in stage 2.0 failed 4 times, most recent failure: Lost task 0.3: "
PLAN = (
    "\n\n=== Streaming Query ===\nIdentifier: q [id = 1-2]\nLogical Plan:\nWriteToMicroBatchDataSource ForeachBatch\n"
)
WRAPPED = """Traceback (most recent call last):
  File "/spark/java_gateway.py", line 5, in call
    return self.func(frame, number)
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/home/me/modules.py", line 7, in compute
    return 1 / x
           ^^^^^
ZeroDivisionError: division by zero
"""
CAUSES = [
    (f"{HEADER}{WRAPPED}{PLAN}", "ZeroDivisionError: division by zero"),
    (
        f"{HEADER}{TASK}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\tat a.B",
        "SparkException: Python worker exited unexpectedly (crashed)",
    ),
    ("java.lang.OutOfMemoryError: Java heap space\n\tat x", "OutOfMemoryError: Java heap space"),
    (f"{HEADER}[PATH_NOT_FOUND] No path /nowhere.{PLAN}", "[PATH_NOT_FOUND] No path /nowhere."),
    ("x" * 9999, "x" * 400 + "…"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "cause"), CAUSES)
def test_the_first_cause_in_one_sentence_and_the_rest_in_the_log(
    text: str, cause: str, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO, logger="headrace"):
        found = failure(RuntimeError(text), instead="start again with this checkpoint")
    assert isinstance(found, HostError)
    assert found.message == f"the query failed: {cause}"
    assert found.instead == "start again with this checkpoint"
    assert text in caplog.text


def test_an_error_of_ours_is_found_again():
    text = (
        f"{HEADER}{TASK}\nheadrace.errors.LateEvent: [LATE_EVENT] csv in: too late\n  given: 3\n\nSQLSTATE: 38000{PLAN}"
    )
    found = failure(RuntimeError(text))
    assert type(found) is LateEvent
    assert found.message.startswith("csv in: too late")
    ours = SourceError("gone")
    assert failure(ours) is ours


class Py4JNetworkError(Exception):
    __module__ = "py4j.protocol"


class Py4JJavaError(Exception):
    __module__ = "py4j.protocol"


def test_a_jvm_that_is_gone_is_a_host_error():
    for error in (
        ConnectionRefusedError(111, "Connection refused"),
        Py4JNetworkError("Answer from Java side is empty"),
    ):
        assert is_gone(error)
        found = failure(error, instead="start again with this checkpoint: checkpoint='state'")
        assert isinstance(found, HostError)
        assert "Spark's JVM is gone" in found.message
        assert found.instead == "start a new process, and start again with this checkpoint: checkpoint='state'"
    assert not is_gone(Py4JJavaError("An error occurred while calling o1.x"))
    assert not is_gone(ValueError("x"))


def test_what_is_raised_does_not_drag_sparks_text_along():
    with pytest.raises(HostError, match="the query failed: x") as caught, explaining(failure):
        raise ValueError("x")
    assert caught.value.__suppress_context__


# --- starting again ---------------------------------------------------------------------------------------------------


CONNECT = f"{HEADER}org.apache.spark.SparkException: Python worker failed to connect back."
Begin = Callable[..., Query]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Starts a query in this process whose tasks fail with these texts, one after the other, and then succeed."""
    (tmp_path / "in.csv").write_text("t\n1\n")
    stream, run = hr.read_csv(str(tmp_path / "in.csv"), "t LONG", lifetime=hr.point("t")), InProcessExecutor.run
    monkeypatch.setattr(InProcessExecutor, "may_pass", lambda _, error: may_pass(error))

    def begun(*texts: str, sink: Sink | None = None) -> Query:
        left = list(texts)

        def failing(executor: InProcessExecutor, batch: Batch) -> list[Message]:
            if left:
                raise RuntimeError(left.pop(0))
            return run(executor, batch)

        monkeypatch.setattr(InProcessExecutor, "run", failing)
        return stream.start(sink or Nowhere(), host="local", checkpoint=str(tmp_path / "state"))

    return begun


def test_a_batch_whose_worker_did_not_connect_is_run_again(begin: Begin, caplog: pytest.LogCaptureFixture):
    assert may_pass(RuntimeError(CONNECT))
    assert may_pass(RuntimeError("Timed out while waiting for the Python worker to connect back."))
    running = begin(CONNECT, CONNECT)
    running.process_all_available()
    running.stop()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "failed to connect back.; it is run again (attempt 3 of 3)" in caplog.text


@pytest.mark.parametrize("wait", ["process_all_available", "await_termination"])
def test_but_not_for_ever_and_not_after_other_failures(begin: Begin, tmp_path: Path, wait: str):
    with pytest.raises(HostError, match="failed to connect back") as caught:
        getattr(begin(*[CONNECT] * 3), wait)()
    assert f"start again with this checkpoint: checkpoint='{tmp_path / 'state'}'" in caught.value.instead
    with pytest.raises(HostError, match="Java heap space"):
        getattr(begin("java.lang.OutOfMemoryError: Java heap space"), wait)()


def test_a_sink_that_fails_after_the_commit_does_not_make_the_batch_run_again(begin: Begin, tmp_path: Path):
    def reset(*_: object) -> None:
        raise ConnectionResetError("Connection reset by peer")

    with pytest.raises(HostError, match="Connection reset by peer"):
        begin(sink=FunctionSink(function=reset)).process_all_available()
    assert [path.name for path in (tmp_path / "state/store/commits").iterdir()] == ["000000000000"]
    batches: list[int] = []
    again = begin(sink=FunctionSink(function=lambda batch, *_: batches.append(batch)))
    again.process_all_available()
    again.stop()
    assert batches == [0]
    assert again.counts[str(again.line.sources[0].origin)]["rows"] == 1
