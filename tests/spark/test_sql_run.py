"""Scripts of SQL on Spark: as in process, with checkpoints that go on, and until they are stopped."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.fixtures.waiting import appear
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.cli.loading import find
from headrace.cli.run.live import run_live
from headrace.cli.run.options import HostName, Options, PrintOptions
from headrace.cli.sql.follow import FollowedStarted
from headrace.errors import CheckpointError, SqlError
from headrace.events import history_diff
from headrace.host.driving import query as spark_query
from headrace.io.encode import jsonl_to_physical
from headrace.io.sinks import read_events_output
from headrace.testing.same import read_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")

FIRST = "symbol,ts,price\nA,1,10.0\nB,4,50.0\nA,12,12.0\n"
LATER = "symbol,ts,price\nA,5,11.0\nB,31,54.0\n"
SCRIPT = """
CREATE STREAM ticks (symbol STRING, ts LONG, price DOUBLE) ORDER BY ts SOURCE FILE ('in', ',', TRUE)
    WITH PROGRESS ADVANCE 20;
QUERY sums AS SELECT symbol, sum(price) AS s FROM ticks [TUMBLING 10 us] GROUP BY symbol;
INSERT INTO FILE ('out') SELECT symbol, price FROM ticks WHERE price > 10.0;
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text(FIRST)
    (tmp_path / "job.sql").write_text(SCRIPT)
    return tmp_path / "job.sql"


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["run", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_a_checkpoint_goes_on_and_refuses_another_query(file: Path):
    options = ["--host", "spark", "--checkpoint", file.parent / "state", "--name", "mine", "--output", "jsonl"]
    text = run(file, *options)
    (file.parent / "in" / "1.csv").write_text(LATER)
    later = run(file, *options)
    assert run(file, *options) == ""
    assert '"retract"' in later
    assert (file.parent / "state" / "mine" / "headrace.json").exists()
    sums, dear = find(f"{file}:sums").queries["sums"], find(f"{file}:query_2").queries["query_2"]
    live = [(row["le"], row["symbol"], row["s"]) for row in read_history(
        jsonl_to_physical((text + later).encode(), sums.schema)).to_pylist()]  # fmt: skip
    assert sorted(live) == [(0, "A", 21.0), (0, "B", 50.0), (10, "A", 12.0)]  # the last window is still open
    written = read_events_output(str(file.parent / "out"), dear.schema)
    assert history_diff(read_history(written), dear.cht()) == ""
    file.write_text(SCRIPT.replace("10 us", "20 us"))
    with pytest.raises(CheckpointError, match="belongs to another query") as caught:
        run(file, *options)
    changed = [line.strip() for line in caught.value.message.splitlines()]
    assert any(line.startswith("-") and "tumbling(10 ticks)" in line for line in changed)
    assert any(line.startswith("+") and "tumbling(20 ticks)" in line for line in changed)
    assert not any("Source" in line for line in changed)


def test_a_script_is_followed_until_it_is_stopped(file: Path, capsysbinary: pytest.CaptureFixture[bytes]):
    options = Options(
        history=False, engine=None, late=None, output=PrintOptions.jsonl, to=None, host=HostName.spark, master=None,
        checkpoint=None, name="followed", follow=True, only_sql=False,
    )  # fmt: skip
    asked, stop = find(str(file)), threading.Event()

    def interrupted(query: spark_query.Query) -> bool:
        query.process_all_available()
        appear(file.parent / "in" / "1.csv", LATER)
        deadline = time.monotonic() + 60
        while query.progress().get("batch", 0) < 1 and time.monotonic() < deadline:
            query.process_all_available()
        query.stop()
        stop.set()
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_query.Query, "await_termination", interrupted)
        run_live(asked, options)
    assert stop.is_set()
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert ("retract", {"symbol": "A", "s": 10.0}) in [(line["kind"], line["payload"]) for line in lines]
    assert read_history(read_events_output(str(file.parent / "out"), "symbol STRING, price DOUBLE")).num_rows == 4


def test_a_query_is_watched_on_spark(file: Path):
    followed = FollowedStarted(find(f"{file}:sums").queries["sums"], host="spark", name="watched")
    try:
        deadline = time.monotonic() + 60
        while not followed.result.batches and time.monotonic() < deadline:
            followed.poll()
            time.sleep(0.1)
        assert [row["s"] for row in followed.result.cht().to_pylist()] == [10.0, 50.0]
    finally:
        followed.stop()


def test_a_table_of_sparks_is_a_stream(spark: SparkSession):
    rows = spark.createDataFrame([(1, "a", 2.0), (3, "b", 4.0), (12, "a", 8.0)], "at BIGINT, k STRING, x DOUBLE")
    rows.write.mode("overwrite").saveAsTable("headrace_trades")
    try:
        create = "CREATE STREAM t (at LONG, k STRING, x DOUBLE) SOURCE TABLE ('{}') ORDER BY at;"
        sums = "SELECT k, sum(x) AS s FROM t [TUMBLING 10 us] GROUP BY k"
        found = hr.sql(create.format("headrace_trades") + sums).cht(host="spark").to_pylist()
        assert [(row["le"], row["k"], row["s"]) for row in found] == [(0, "a", 2.0), (0, "b", 4.0), (10, "a", 8.0)]
        with pytest.raises(SqlError, match="not the name of a table"):
            hr.sql(create.format("t; DROP TABLE headrace_trades") + sums)
    finally:
        spark.sql("DROP TABLE headrace_trades")
