"""Failures of Spark: the first cause in one sentence, what to do, and all the rest in the log."""

from __future__ import annotations

import logging

import pytest

from headrace.errors import HostError, LateEvent, SourceError
from headrace.host.driving.driver import Finished
from headrace.host.driving.plan import Plan
from headrace.host.driving.query import Query
from headrace.host.spark.failures import explaining, failure, is_gone, may_pass
from headrace.host.spark.worker import SparkExecutor
from headrace.store.log import Commit

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


class Failing:
    """A driver whose only batch fails with these texts, one after the other, and then succeeds."""

    last, number, busy, circulating = None, 0, False, False

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.done = False

    def plan(self, *, ticks: bool) -> Plan | None:  # noqa: ARG002 - as the loop calls it
        return None if self.done else Plan()

    def run(self, _: Plan) -> Finished:
        if self.texts:
            raise RuntimeError(self.texts.pop(0))
        self.done = True
        record = {"counts": {}, "sources": {}, "plan": {"files": {}}, "time": 0.0, "examples": {}}
        return Finished(Commit(0, 1, record), [], 0.0)


class Place:
    path, temporary = "state", False

    def close(self) -> None:
        """Nothing is there."""


class Answering(SparkExecutor):
    """An executor on a Spark that answers."""

    def __init__(self) -> None:
        self.secrets = ()

    def ping(self) -> None:
        """It does."""

    def interrupt(self) -> None:
        """Nothing runs."""


CONNECT = f"{HEADER}org.apache.spark.SparkException: Python worker failed to connect back."


def query(*texts: str) -> Query:
    """A query that has begun."""
    made = Query("q", None, Place(), (), Failing(*texts), Answering(), {})  # type: ignore[arg-type]
    made.begin()
    return made


def test_a_batch_whose_worker_did_not_connect_is_run_again(caplog: pytest.LogCaptureFixture):
    assert may_pass(RuntimeError(CONNECT))
    assert may_pass(RuntimeError("Timed out while waiting for the Python worker to connect back."))
    running = query(CONNECT, CONNECT)
    running.process_all_available()
    running.stop()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "failed to connect back.; it is run again (attempt 3 of 3)" in caplog.text


@pytest.mark.parametrize("wait", ["process_all_available", "await_termination"])
def test_but_not_for_ever_and_not_after_other_failures(wait: str):
    with pytest.raises(HostError, match="failed to connect back") as caught:
        getattr(query(*[CONNECT] * 3), wait)()
    assert "start again with this checkpoint: checkpoint='state'" in caught.value.instead
    with pytest.raises(HostError, match="Java heap space"):
        getattr(query("java.lang.OutOfMemoryError: Java heap space"), wait)()
