"""On Spark, too, what is reported as lost is what went in and did not come out; and people see it."""

from __future__ import annotations

import io
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from rich.console import Console as Terminal
from tests.fixtures.bad_files import Written, files, written
from tests.fixtures.waiting import appear

import headrace as hr
from headrace.io import console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose


def _places(diverted: pa.Table) -> list[tuple[str, str, int, str]]:
    return sorted((row["source"], row["file"], row["line"], row["reason"]) for row in diverted.to_pylist())


@given(drawn=files())
@settings(
    max_examples=2, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_oracle_losses_are_rows_in_minus_rows_used(spark: SparkSession, drawn: list[Written]):
    with tempfile.TemporaryDirectory() as folder:
        streams, rows = {}, {}
        for format, late in (("csv", "divert"), ("json", "drop"), ("parquet", "divert")):
            some = [one for one in drawn if one.format == format]
            if some:
                streams[format] = written(Path(folder) / format, some, late)
                rows[format] = sum(len(one.rows) for one in some)
        if not streams:
            return
        local, run = hr.run(streams), hr.run(streams, host="spark", spark=spark, buckets=2)
        for format in streams:
            (counts,) = (part for source, part in run.counts.items() if source.startswith(format))
            used = run.cht(format).num_rows
            assert (counts["rows"], counts["accepted"]) == (rows[format], used)
            assert counts["diverted"] + counts["dropped"] == rows[format] - used
        assert run.lost == sum(rows.values()) - sum(run.cht(format).num_rows for format in streams)
        assert run.counts == local.counts
        assert _places(run.diverted()) == _places(local.diverted())


def test_a_running_query_says_it_once_in_the_log_and_below_its_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    text = io.StringIO()
    monkeypatch.setattr(console, "Terminal", lambda: Terminal(file=text, width=200, force_terminal=False))
    folder, state = tmp_path / "in", tmp_path / "state"
    folder.mkdir()
    (folder / "1.csv").write_text("t,k\n1,a\nx,b\n")
    stream = hr.read_csv(str(folder), "t LONG, k STRING", lifetime=hr.point("t"), progress=hr.advance(10))
    latest = hr.files(str(tmp_path / "latest"), encoding="upsert", key="k")
    with caplog.at_level(logging.WARNING, "headrace"):
        query = hr.start_all([(stream, hr.console()), (stream, latest)], spark=spark, checkpoint=str(state), buckets=1)
        try:
            query.process_all_available()
            appear(folder / "2.csv", "t,k\n90,a\n5,b\n")
            query.process_all_available()
        finally:
            query.stop()
    (record,) = caplog.records
    assert f"1 of 2 rows not used (1 malformed; 1 diverted); for example {folder}/1.csv, line 3" in record.getMessage()
    assert "2 of 4 rows not used (1 late, 1 malformed; 2 diverted)" in text.getvalue()
    (example,) = query.progress()["examples"].values()
    assert (example["file"], example["line"]) == (f"{folder}/1.csv", 3)
    assert "line 3: column 't'" in str(query.progress())
    rows = hr.read_json(f"{tmp_path}/latest/*/*.jsonl", "op STRING, _batch LONG, k STRING, t LONG",
                        lifetime=hr.point("t")).cht().to_pylist()  # fmt: skip
    assert [(row["_batch"], row["k"], row["t"]) for row in rows] == [(0, "a", 1), (1, "a", 90)]
