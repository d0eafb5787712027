"""Starting again with a checkpoint, on Spark: what is refused, what is left as it was, and what a failure says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.errors import CheckpointError, HostError, SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "t LONG, v LONG, unused INT"
OPTIONS = {"spark.sql.adaptive.enabled": "true", "spark.sql.shuffle.partitions": "9"}


def add(folder: Path, *times: int) -> None:
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    path = folder / f"{number}.csv"
    path.write_text("t,v,unused\n" + "".join(f"{t},{t},1\n" for t in times))
    os.utime(path, (number + 1, number + 1))


def counts(folder: Path, schema: str = SCHEMA) -> hr.Stream:
    stream = hr.read_csv(str(folder), schema, lifetime=hr.point("t"), progress=hr.ordered())
    return stream.window(hr.tumbling(10)).aggregate(n=hr.count())


def test_what_a_checkpoint_refuses_and_the_session_keeps(spark: SparkSession, tmp_path: Path):
    data, out = tmp_path / "in", tmp_path / "out"
    add(data, 1, 2)
    add(data, 11)
    given: dict[str, Any] = {"spark": spark, "checkpoint": str(tmp_path / "state")}
    kept = {name: spark.conf.get(name) for name in OPTIONS}
    try:
        for name, value in OPTIONS.items():
            spark.conf.set(name, value)
        before = spark.conf.getAll
        query = counts(data).start(hr.files(str(out)), buckets=2, files_per_batch=1, **given)
        assert spark.conf.getAll == before, "the session has its own options while the query runs"
        with pytest.raises(CheckpointError, match="another query uses this checkpoint, in this process"):
            counts(data).start(hr.files(str(out)), **given)
        query.process_all_available()
        add(data, 21)
        query.process_all_available()
        query.stop()
        counts(data).history().cht()
        assert spark.conf.getAll == before
    finally:
        for name, value in kept.items():
            spark.conf.set(name, value)

    with pytest.raises(CheckpointError, match="another number of buckets"):
        counts(data).start(hr.files(str(out)), buckets=3, **given)
    with pytest.raises(CheckpointError, match="another form"):
        counts(data).start(hr.files(str(out), format="parquet"), **given)
    with pytest.raises(CheckpointError, match="other columns"):
        counts(data, SCHEMA.replace("INT", "STRING")).start(hr.files(str(out)), **given)

    parts = {
        tmp_path / "state" / "store" / "commits" / "000000000001": (CheckpointError, "batches 1 are missing"),
        tmp_path / "state" / "store": (SinkError, "commits were lost"),
        out / "batch-00000001": (SinkError, "batch 1 is missing"),
    }
    for part, (kind, text) in parts.items():
        part.rename(tmp_path / "away")
        with pytest.raises(kind, match=text):
            counts(data).start(hr.files(str(out)), **given)
        if part.is_dir():
            shutil.rmtree(part)  # what the start that failed has left there
        (tmp_path / "away").rename(part)

    add(data, 31)
    query = counts(data).start(hr.files(str(out)), **given)  # as many buckets as it has
    query.finish()
    query.stop()
    assert query.counts == counts(data).run().counts


def test_a_failed_query_says_why_and_may_be_started_again(spark: SparkSession, tmp_path: Path, caplog: Any):
    data, failing = tmp_path / "in", tmp_path / "fails"
    add(data, 1)
    failing.touch()

    def fragile(v: int) -> int:
        if failing.exists():
            os._exit(7)
        return v

    function = hr.udf(fragile, takes="LONG", returns="LONG", name="fragile")
    stream = hr.read_csv(str(data), SCHEMA, lifetime=hr.point("t")).select(v=function("v"))
    given: dict[str, Any] = {"spark": spark, "checkpoint": str(tmp_path / "state"), "buckets": 1}
    query = stream.start(hr.memory(), **given)
    with caplog.at_level("INFO", logger="headrace"), pytest.raises(HostError) as caught:
        query.process_all_available()
    assert caught.value.message.startswith("the query failed: ")
    assert "\n" not in caught.value.message
    assert "Python worker exited unexpectedly" in caught.value.message
    assert caught.value.instead == f"start again with this checkpoint: checkpoint={str(tmp_path / 'state')!r}"
    assert caught.value.__suppress_context__
    assert "Lost task" in caplog.text, "the rest is in the log"
    failing.unlink()
    kept = hr.memory()
    again = stream.start(kept, **given)  # although nobody has stopped the one that failed
    again.process_all_available()
    again.stop()
    query.stop()
    assert kept.cht()["v"].to_pylist() == [1]


DEATH = """
import json, os, sys
import headrace as hr
from pyspark import SparkContext

stream = hr.read_csv(sys.argv[1], "t LONG", lifetime=hr.point("t"))
query = stream.start(hr.memory(), checkpoint=sys.argv[2])
query.process_all_available()
gateway = SparkContext._gateway.proc
os.kill(gateway.pid, 9)
gateway.wait()
found = {"active": query.is_active, "exception": repr(query.exception())}
actions = {
    "wait": query.process_all_available,
    "finish": query.finish,
    "await": lambda: query.await_termination(5),
    "start": lambda: stream.start(hr.memory()),
    "stop": query.stop,
}
for name, action in actions.items():
    try:
        found[name] = action()
    except BaseException as error:
        found[name] = [type(error).__name__, str(error)]
print(json.dumps(found), flush=True)
os._exit(0)
"""


@pytest.mark.spark
def test_the_death_of_the_jvm_is_a_host_error(tmp_path: Path):
    (tmp_path / "in.csv").write_text("t\n1\n")
    command = [sys.executable, "-c", DEATH, str(tmp_path / "in.csv"), str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["active"] is False
    assert found["exception"].startswith("HostError")
    for name in ("wait", "finish", "await", "start"):
        kind, text = found[name]
        assert kind == "HostError", found[name]
        assert "Spark's JVM is gone" in text
    assert "start again with this checkpoint" in found["wait"][1]
    assert found["stop"] is None, "whoever stops it has nothing to mend"
