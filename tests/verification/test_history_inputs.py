"""Histories of stored rows: lifetimes, lateness by every policy, several files, rows that cannot be read (rule 3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import BadRow, EventError, HistoryError, LateEvent
from headrace.events import history_diff
from headrace.history.duckdb import DuckDBHistory
from headrace.testing.strategies import batch_sizes, physical_streams, tables

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose

DUCK = DuckDBHistory()
SCHEMA = "ts LONG, k STRING, x DOUBLE"
#: Three files whose rows overlap in time: some late within a file, some because of an earlier file.
FILES = (
    [(10, "a", 1.0), (14, "b", 2.0), (11, "a", 3.0), (30, "b", 4.0), (12, "a", 5.0)],
    [(22, "a", 6.0), (29, "b", 7.0), (40, "a", 8.0), (41, "b", 9.0), (33, "a", 10.0)],
    [(9, "a", 11.0), (45, "b", 12.0), (44, "a", 13.0), (60, "b", 14.0), (59, "a", 15.0)],
)


def agree(stream: hr.Stream, **options: Any) -> pa.Table:
    """The live history, if the batch one is the same."""
    live = stream.cht()
    assert history_diff(live, DUCK.cht(stream.node, **options), names=("live", "batch")) == ""
    return live


@pytest.fixture
def directory(tmp_path: Path) -> str:
    for number, rows in enumerate(FILES):
        lines = ["ts,k,x", *(",".join(map(str, row)) for row in rows)]
        (tmp_path / f"{number}.csv").write_text("\n".join(lines) + "\n")
    return str(tmp_path)


def read(directory: str, progress: Any, **options: Any) -> hr.Stream:
    return hr.read_csv(directory, SCHEMA, lifetime=hr.point("ts"), progress=progress, **options)


PROGRESS = {
    "ordered": hr.ordered,
    "delay": lambda late: hr.advance(5, late=late),
    "steps": lambda late: hr.advance(3, every=7, late=late),
    "patient": lambda late: hr.advance(1000, late=late),
}


@pytest.mark.parametrize("late", ["drop", "divert"])
@pytest.mark.parametrize("progress", PROGRESS)
def test_rows_that_come_late(directory: str, progress: str, late: str):
    stream = read(directory, PROGRESS[progress](late))
    kept = agree(stream).num_rows
    assert (kept == 15) == (progress == "patient")
    agree(stream.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), x=hr.sum("x")))
    agree(stream.where(col("x") > 3).group_by("k").window(hr.session(8)).aggregate(n=hr.count()))


@pytest.mark.parametrize("progress", ["ordered", "delay", "steps"])
def test_late_rows_that_are_errors(directory: str, progress: str):
    stream = read(directory, PROGRESS[progress]("raise"))
    with pytest.raises(LateEvent):
        stream.cht()
    with pytest.raises(LateEvent, match="breaks a promise"):
        DUCK.cht(stream.node)
    agree(read(directory, PROGRESS["patient"]("raise")))


def test_late_rows_can_be_included(directory: str):
    late, patient = read(directory, hr.ordered("drop")), read(directory, hr.advance(1000))
    counted = [stream.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count()) for stream in (late, patient)]
    assert history_diff(counted[0].history("duckdb", late="include").cht(), counted[1].cht()) == ""
    assert history_diff(counted[0].cht(), counted[1].cht()) != ""


@pytest.mark.parametrize("late", ["drop", "divert", "adjust"])
def test_late_intervals(tmp_path: Path, late: Any):
    rows = [(1, 9, "a"), (6, 8, "b"), (2, 5, "a"), (3, 12, "b"), (4, 7, "a"), (20, 21, "b")]
    pq.write_table(
        pa.table(dict(zip(("from", "to", "k"), zip(*rows, strict=True), strict=True))), tmp_path / "a.parquet"
    )
    stream = hr.read_parquet(str(tmp_path), lifetime=hr.interval("from", "to"), progress=hr.ordered(late))
    assert agree(stream).num_rows == (6 if late == "adjust" else 3) - (late == "adjust")
    agree(stream.window(hr.snapshot()).aggregate(n=hr.count()))


def test_what_a_clock_decided_is_not_stored(directory: str):
    for progress in (hr.heartbeat(10), hr.advance(5, max_skew=10)):
        stream = read(directory, progress)
        with pytest.raises(HistoryError, match="which rows were late is not stored"):
            stream.history("duckdb")
        everything = stream.history("duckdb", late="include").cht()
        assert history_diff(everything, read(directory, hr.advance(1000)).cht()) == ""


def test_what_only_spark_reads():
    kept = hr.read_spark("delta", "ts LONG, k STRING", lifetime=hr.point("ts"), path="somewhere")
    assert "the rows of spark delta somewhere" in kept.history("spark").sql()
    with pytest.raises(HistoryError, match="only Spark can read this"):
        kept.history("duckdb").cht()
    ordered = hr.read_spark("delta", "ts LONG, k STRING", lifetime=hr.point("ts"), progress=hr.ordered())
    with pytest.raises(HistoryError, match="an order that is lost"):
        ordered.history("spark")


def test_rows_that_cannot_be_read(tmp_path: Path):
    (tmp_path / "a.csv").write_text("ts,k,x\n1,a,1.0\nnow,a,2.0\n,b,3.0\n4,b,four\n5,b,5.0\n9223372036854775807,a,1\n")
    (tmp_path / "b.csv").write_text("ts,k,x\n6,a,1.0\n-2000000000000000000,b,1.0\n7,,\n")
    assert agree(read(str(tmp_path), hr.ordered())).num_rows == 4
    stream = read(str(tmp_path), hr.ordered(), bad_rows="raise")
    for run in (stream.cht, stream.history("duckdb").cht):
        with pytest.raises(BadRow):
            run()
    (tmp_path / "a.csv").write_text("ts,k,x\n1,a,1.0\n")
    (tmp_path / "b.csv").write_text("ts,k,x\n,a,1.0\n")
    with pytest.raises(BadRow, match="a row that is no event"):
        stream.history("duckdb").cht()


def test_times_of_every_kind(tmp_path: Path):
    rows = [
        {"At": "2024-05-01T12:00:00Z", "at": 7, "n": 3, "k": "a", "until": "2024-05-01T12:00:09Z"},
        {"At": "1969-12-31T23:59:59.999999Z", "at": 8, "n": -4, "k": "b", "until": "1970-01-01T00:00:00Z"},
        {"At": "2024-05-01T12:00:01Z", "at": 9, "n": None, "k": "a", "until": "2024-05-01T12:00:01Z"},
    ]
    path = tmp_path / "rows.json"
    path.write_text("\n".join(map(json.dumps, rows)))
    schema = "At DATETIME, at LONG, n INT, k STRING, until DATETIME"
    for lifetime in (
        hr.point("At"), hr.point("at"), hr.point(col("at") * 1000 + col("n")), hr.interval("At", "until"),
        hr.interval(col("at") - 1, "at"),
    ):  # fmt: skip
        stream = hr.read_json(str(path), schema, lifetime=lifetime)
        assert agree(stream).num_rows >= 2
        agree(stream.group_by("k").window(hr.tumbling("10 s")).aggregate(n=hr.count(), at=hr.max("at")))


def test_a_column_of_the_lifetime_need_not_be_kept(tmp_path: Path):
    path = tmp_path / "rows.json"
    path.write_text('{"le": 4, "re": 9, "k": "a"}\n{"le": 5, "re": 5, "k": "b"}\n{"le": 1, "re": 2, "k": "c"}\n')
    agree(hr.read_json(str(path), "le LONG, re LONG, k STRING", lifetime=hr.interval("le", "re")))
    agree(hr.read_json(str(path), "le LONG, k STRING", lifetime=hr.point("le"), progress=hr.ordered("drop")))


# ---- signals


@pytest.mark.parametrize("key", ["k", (), ("k", "x")], ids=str)
@pytest.mark.parametrize("late", ["drop", "divert"])
def test_edges(directory: str, key: Any, late: Any):
    for closes in (None, col("x") > 12.0, col("x") == 3.0):
        for progress in (hr.advance(1000), hr.advance(4, late=late)):
            lifetime = hr.edge("ts", key, closes=closes)
            stream = hr.read_csv(directory, SCHEMA, lifetime=lifetime, progress=progress)
            agree(stream)
            agree(stream.window(hr.snapshot()).aggregate(n=hr.count(), x=hr.sum("x")))


def test_samples_of_one_moment(tmp_path: Path):
    (tmp_path / "a.csv").write_text("ts,k,x\n1,a,1.0\n1,a,2.0\n3,a,3.0\n3,a,3.0\n3,,4.0\n5,,5.0\n5,a,9.0\n7,b,1.0\n")
    for closes in (None, col("x") == 9.0, col("x") == 2.0):
        agree(hr.read_csv(str(tmp_path), SCHEMA, lifetime=hr.edge("ts", "k", closes)))
    prices = hr.read_csv(str(tmp_path), SCHEMA, lifetime=hr.edge("ts", "k"))
    agree(read(str(tmp_path), None).left_join(prices, "k"))


# ---- physical events


@pytest.mark.parametrize("late", ["drop", "divert", "adjust"])
def test_physical_events_in_files(tmp_path: Path, late: Any):
    (tmp_path / "a.json").write_text(
        '{"kind": "insert", "le": 1, "re": "inf", "re_new": null, "payload": {"k": "a", "x": 1.0}}\n'
        '{"kind": "cti", "le": 4, "re": null, "re_new": null, "payload": {}}\n'
        '{"kind": "insert", "le": 2, "re": 9, "re_new": null, "payload": {"k": "late", "x": 1.0}}\n'
        '{"kind": "retract", "le": 1, "re": "inf", "re_new": 6, "payload": {"k": "a", "x": 1.0}}\n'
        '{"kind": "insert", "le": 5, "re": 5, "re_new": null, "payload": {"k": "empty", "x": 1.0}}\n'
    )
    (tmp_path / "b.json").write_text(
        '{"kind": "retract", "le": 1, "re": 6, "re_new": 3, "payload": {"k": "a", "x": 1.0}}\n'
        '{"kind": "retract", "le": 1, "re": 6, "re_new": 4, "payload": {"k": "a", "x": 1.0}}\n'
        '{"kind": "insert", "le": 7, "re": 8, "re_new": null, "payload": {"k": "b", "x": null}}\n'
    )
    for progress in (hr.explicit(late), hr.advance(2, late=late)):
        stream = hr.read_events(str(tmp_path), "k STRING, x DOUBLE", format="json", progress=progress)
        agree(stream)
        agree(stream.window(hr.tumbling(2)).aggregate(n=hr.count()))


def test_retractions_without_their_events_count_for_nothing():
    rows = [
        ("insert", 1, 9, None), ("retract", 1, 9, 5), ("retract", 1, 5, 7), ("retract", 1, 8, 2), ("retract", 3, 5, 3),
        ("insert", 3, 5, None), ("retract", 4, 6, 8), ("retract", 4, 8, 9),
    ]  # fmt: skip
    for batches in ((8,), (1, 1, 1, 1, 1, 1, 1, 1), (4, 4), (2, 3, 3)):
        table = [{"kind": kind, "le": le, "re": re, "re_new": new, "k": "a"} for kind, le, re, new in rows]
        stream = hr.events(table, "k STRING", batches=batches, bad_rows="divert")
        agree(stream)
        agree(stream.union(hr.events("le | re | k\n1 | 9 | a")).window(hr.snapshot()).aggregate(n=hr.count()))
    strict = hr.events(table, "k STRING")
    for run in (strict.cht, strict.history("duckdb").cht):
        with pytest.raises(EventError, match="not there"):
            run()


@given(
    physical_streams(max_events=12),
    st.sampled_from(["drop", "divert", "adjust"]),
    st.integers(0, 6),
    st.integers(1, 4),
    st.data(),
)
@settings(max_examples=max(15, settings().max_examples * 3 // 5))
def test_differential_late_physical_events(drawn: Any, late: Any, delay: int, every: int, data: st.DataObject):
    sizes = data.draw(batch_sizes(len(drawn)))
    for progress in (hr.advance(delay, every, late), hr.explicit(late)):
        agree(hr.events(tables(drawn), progress=progress, bad_rows="divert", batches=sizes))
        shifted = [{**e, "le": e["le"] - 3} if e["kind"] == "cti" else e for e in drawn[::-1]]
        agree(hr.events(tables(shifted), progress=progress, bad_rows="divert", batches=sizes))


@given(
    st.lists(
        st.lists(st.tuples(st.integers(-20, 60), st.sampled_from("ab")), min_size=1, max_size=6), min_size=1, max_size=4
    ),
    st.sampled_from(["drop", "divert", "adjust"]),
    st.integers(0, 12),
    st.integers(1, 9),
)
@settings(max_examples=max(8, settings().max_examples // 4))
def test_differential_late_rows_of_files(
    tmp_path_factory: pytest.TempPathFactory, files: list[Any], late: Any, delay: int, every: int
):
    place = tmp_path_factory.mktemp("rows")
    for number, rows in enumerate(files):
        (place / f"{number}.csv").write_text("".join(f"{ts},{ts + 9},{k}\n" for ts, k in rows))
    stream = hr.read_csv(
        str(place), "ts LONG, te LONG, k STRING", lifetime=hr.interval("ts", "te"), header=False,
        progress=hr.advance(delay, every, late),
    )  # fmt: skip
    agree(stream)
    agree(stream.group_by("k").window(hr.hopping(4, 2)).aggregate(n=hr.count()))
