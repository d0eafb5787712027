"""How evenly rows are divided among buckets: in reports of batches, of runs, and in EXPLAIN ANALYZE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.host.driving.trips import BatchResult
from headrace.io.sinks import Nowhere
from headrace.sql.session import SqlSession, Words
from headrace.stages.load import StageLoad, stage_loads
from headrace.stages.message import STATISTICS, Message

ROWS = 20_000


def events(folder: Path, *, hot: bool, files: int = 2) -> hr.Stream:
    """Rows of 500 keys; if one is hot, it has half of them."""
    folder.mkdir()
    for number in range(files):
        keys = np.arange(ROWS) % 500
        if hot:
            keys[: ROWS // 2] = 7
        times = np.arange(ROWS) + number * ROWS
        pq.write_table(pa.table({"t": times, "k": keys, "v": times * 0.5}), folder / f"{number}.parquet")
    return hr.read_parquet(str(folder), lifetime=hr.point("t"), progress=hr.advance(100))


def in_windows(stream: hr.Stream, **aggregates: Any) -> hr.Stream:
    return stream.group_by("k").window(hr.tumbling(ROWS)).aggregate(**aggregates)


def statistics(*by_bucket: list[list[Any]], level: int = 1) -> list[dict[str, Any]]:
    return [{"level": level, "bucket": b, "arrivals": arrivals} for b, arrivals in enumerate(by_bucket)]


def test_the_fullest_bucket_and_the_key_of_its_largest_input():
    (load,) = stage_loads(statistics([[["k"], 10], [["a", "b"], 30]], [[["k"], 20], [["a", "b"], 0]]))
    assert load == StageLoad(1, 2, rows=60, fullest_bucket=0, fullest_rows=40, by=("a", "b"))
    assert load.fullest_by_mean == pytest.approx(4 / 3)
    assert load.lines() == ["60 rows by a, b in 2 buckets; the fullest has 1.33 × the mean"]
    assert StageLoad.from_json(load.to_json()) == load


def test_batches_are_added_and_one_bucket_is_not_reported():
    batch = statistics([[["k"], 10]], [[["k"], 30]]) + statistics([[[], 5]], level=2)
    (load,) = stage_loads(batch + batch)
    assert (load.rows, load.fullest_bucket, load.fullest_rows) == (80, 1, 60)


def test_no_rows_are_no_line():
    (load,) = stage_loads(statistics([[["k"], 0]], [[["k"], 0]]))
    assert (load.fullest_by_mean, load.lines()) == (1.0, [])


@pytest.mark.parametrize(
    ("by", "words"),
    [(["k"], "rows of one k are in one bucket"), ([], "no key divides the rows"), (None, "the task that read them")],
)
def test_uneven_buckets_with_many_rows_have_advice(by: list[str] | None, words: str):
    (load,) = stage_loads(statistics([[by, 90_000]], [[by, 10_000]]))
    assert load.advice.startswith("the stage waits for bucket 0 with 90,000 rows: ")
    assert words in load.advice
    (few,) = stage_loads(statistics([[by, 900]], [[by, 100]]))
    (even,) = stage_loads(statistics([[by, 60_000]], [[by, 40_000]]))
    assert few.advice == even.advice == ""


def test_rows_of_all_trips_count():
    def report(bucket: int, rows: int) -> Message:
        return Message(bucket, STATISTICS, extra={"level": 1, "bucket": bucket, "arrivals": [[["k"], rows]]})

    batch: Any = None
    result = BatchResult(batch, batch, [report(0, 5), report(1, 1)])
    result.add(batch, [report(0, 0), report(1, 2)])
    assert [part["arrivals"] for part in result.statistics] == [[[["k"], 5]], [[["k"], 3]]]


def test_a_hot_key_is_seen_where_its_rows_are_shuffled_and_not_where_they_are_combined(tmp_path: Path):
    stream = events(tmp_path / "in", hot=True)
    (raw,) = stream.group_by("k").window(hr.session(10)).aggregate(n=hr.count()).run(buckets=4).progress()["stages"]
    assert (raw["rows"], raw["by"], raw["buckets"]) == (2 * ROWS, ["k"], 4)
    assert raw["fullest_rows"] > ROWS
    assert raw["fullest_by_mean"] > 2
    run = in_windows(stream, mean=hr.avg("v")).run(buckets=4)
    (combined,) = run.progress()["stages"]
    assert combined["rows"] == 2 * 500
    assert combined["fullest_by_mean"] < 1.4
    assert "stage 1: 1,000 rows by k in 4 buckets; the fullest has 1." in str(run.progress())
    assert "advice" not in str(run.progress())


def test_a_started_query_reports_the_latest_batch(tmp_path: Path):
    stream = events(tmp_path / "in", hot=True).group_by("k").window(hr.session(10)).aggregate(n=hr.count())
    query = stream.start(Nowhere(), host="local", checkpoint=str(tmp_path / "state"), buckets=4, files_per_batch=1)
    query.process_all_available()
    query.stop()
    (load,) = query.progress()["stages"]
    assert load["rows"] == ROWS
    assert load["fullest_by_mean"] > 2
    shown = str(query.progress())
    assert f"stage 1: {ROWS:,} rows by k in 4 buckets; the fullest has 2." in shown
    assert "stage 1: advice: the stage waits for bucket" in shown


def test_one_bucket_says_nothing(tmp_path: Path):
    run = in_windows(events(tmp_path / "in", hot=True), mean=hr.avg("v")).run(buckets=1)
    assert run.progress()["stages"] == []
    assert "stage" not in str(run.progress())


def test_explain_analyze_shows_the_factor(tmp_path: Path):
    stream = events(tmp_path / "in", hot=True)
    medians = in_windows(stream, middle=hr.median("v"))
    text = medians.explain(analyze=True, buckets=4)
    assert "\n  measured: 41,000 rows by k in 4 buckets; the fullest has 2." in text
    assert "\n  advice: the stage waits for bucket" in text
    assert "× the mean" not in medians.explain(analyze=True)
    session = SqlSession({"ev": stream})
    query = f"EXPLAIN ANALYZE SELECT k, avg(v) AS m FROM ev [TUMBLING {ROWS} us] GROUP BY k"
    [_, outcome] = session.execute(f"SET buckets = 4; {query}")
    assert isinstance(outcome, Words)
    assert "measured: 1,000 rows by k in 4 buckets; the fullest has 1." in outcome.text


def test_a_stage_without_a_key_has_one_bucket_in_use(tmp_path: Path):
    stream = events(tmp_path / "in", hot=False).window(hr.session(10)).aggregate(n=hr.count())
    (load,) = stream.run(buckets=3).progress()["stages"]
    assert (load["by"], load["fullest_by_mean"]) == ([], 3.0)
