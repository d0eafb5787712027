"""Waiting for a query: it tells why one failed, and Ctrl-C ends one without noise."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.fixtures.waiting import SAYS_THAT_IT_WAITS

import headrace as hr
from headrace.errors import LateEvent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER = """
import signal, sys
import headrace as hr
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with it ignored
query = hr.read_csv(sys.argv[1], "t LONG", lifetime=hr.point("t")).start(hr.memory())
query.process_all_available()
print("up", flush=True)
try:
    query.await_termination()
except KeyboardInterrupt:
    print("stopped", not query.is_active, flush=True)
"""


def test_waiting_ends_with_the_query_and_tells_why_it_failed(spark: SparkSession, tmp_path: Path):
    (tmp_path / "in.csv").write_text("t\n9\n1\n")
    stream = hr.read_csv(str(tmp_path / "in.csv"), "t LONG", lifetime=hr.point("t"), progress=hr.ordered("raise"))
    query = stream.start(hr.memory(), spark=spark)
    with pytest.raises(LateEvent, match="breaks the promise") as caught:
        query.await_termination(60)
    assert "SQLSTATE" not in str(caught.value)
    query.stop()


def test_waiting_ends_when_it_is_stopped_or_the_time_is_up(spark: SparkSession, tmp_path: Path):
    (tmp_path / "in.csv").write_text("t\n1\n")
    query = hr.read_csv(str(tmp_path / "in.csv"), "t LONG", lifetime=hr.point("t")).start(hr.memory(), spark=spark)
    assert not query.await_termination(0.2)
    query.stop()
    assert query.await_termination(60)


@pytest.mark.spark
def test_control_c_stops_a_query_without_noise(tmp_path: Path):
    (tmp_path / "in.csv").write_text("t\n1\n")
    command = [sys.executable, "-c", SAYS_THAT_IT_WAITS + DRIVER, str(tmp_path / "in.csv")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert process.stdout.readline() == "it waits\n"
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert out == "stopped True\n"
    assert "Traceback" not in errors


def descriptions(spark: SparkSession) -> list[str]:
    """What Spark's pages call its jobs."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = [jobs.apply(i).description() for i in range(jobs.size())]
    return [text.get() for text in found if text.isDefined()]


def test_stopping_does_not_wait_for_the_batch(spark: SparkSession, tmp_path: Path):
    """And the batch is run by the next start, as it was planned."""
    (tmp_path / "in.csv").write_text("t\n1\n")
    gate = tmp_path / "gate"

    @hr.udf(takes="LONG", returns="LONG")
    def slow(t: int) -> int:
        deadline = time.monotonic() + 60
        while not gate.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return t

    rows = hr.read_csv(str(tmp_path / "in.csv"), "t LONG", lifetime=hr.point("t")).select(t=slow(hr.col("t")))
    out, state = str(tmp_path / "out"), str(tmp_path / "state")
    query = rows.start(hr.files(out), checkpoint=state, spark=spark, name="slow one")
    deadline = time.monotonic() + 60
    while "slow one: batch 0" not in descriptions(spark):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < 30
    assert query.exception() is None
    gate.touch()
    query = rows.start(hr.files(out), checkpoint=state, spark=spark)
    query.process_all_available()
    query.stop()
    assert query.counts[str(query.line.sources[0].origin)]["rows"] == 1
