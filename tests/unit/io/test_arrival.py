"""Arrival and position: stamped once, the same everywhere, carried up, and used as time (rules 1.5 and 8.1)."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col, errors
from headrace.api.stream import Stream
from headrace.border import as_ticks
from headrace.changes import Changes
from headrace.io.ingress import Channel
from headrace.io.origins import Events
from headrace.optimizer import optimize
from headrace.plan.arrival import ARRIVAL, POSITION, is_stamped, stamped, timed_by
from headrace.plan.nodes import Output, PointAtStart, Source, walk
from headrace.plan.policies import Advance, Arrival, Explicit, Point
from headrace.progress import Progress
from headrace.time import INFINITY

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose

SCHEMA = "k STRING, t LONG, v INT"
Row = dict[str, Any]


def write(folder: Path, name: str, text: str, at: int) -> Path:
    """A file that was last modified at a time in ticks."""
    path = folder / name
    path.write_text(text)
    os.utime(path, ns=(at * 1000, at * 1000))
    return path


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two files; by name the newer one comes first, and the second row of the older one cannot be read."""
    write(tmp_path, "b.csv", "k,t,v\na,10,1\na,11,broken\nb,12,3\n", at=1_000_500)
    write(tmp_path, "a.csv", "k,t,v\nc,20,4\na,9,5\n", at=2_000_500)
    return tmp_path


def points(folder: Path, **options: Any) -> hr.Stream:
    return hr.read_csv(str(folder), SCHEMA, **({"lifetime": hr.point("t")} | options))


def stamps(rows: pa.Table) -> list[tuple[int, int, int]]:
    return sorted(zip(*(rows[name].to_pylist() for name in ("v", ARRIVAL, POSITION)), strict=True))


STAMPED = [(1, 1_000_500, 0), (3, 1_000_500, 2), (4, 2_000_500, 0), (5, 2_000_500, 1)]
#: The same where their arrival is their time: no two rows arrive at once.
APART = [(1, 1_000_500, 0), (3, 1_000_501, 2), (4, 2_000_500, 0), (5, 2_000_501, 1)]


# --- stamps ----------------------------------------------------------------------------------------------------------


def test_rows_of_files_have_the_time_of_their_file_and_their_number_in_it(files: Path):
    stream = Stream(stamped(points(files).node))
    assert stream.schema.names == ("k", "t", "v", ARRIVAL, POSITION)
    assert stamps(stream.cht()) == STAMPED


@pytest.mark.parametrize("rows", [1, 2, None])
def test_batches_and_buckets_do_not_show(files: Path, rows: int | None):
    stream = Stream(stamped(points(files).node))
    assert stamps(stream.cht(batch_rows=rows, buckets=3)) == STAMPED


def test_histories_have_the_same_stamps(files: Path):
    by_arrival = hr.read_csv(str(files), SCHEMA, lifetime=hr.by_arrival())
    for source, expected in ((points(files), STAMPED), (by_arrival, APART)):
        stream = Stream(stamped(source.where(col("v") > 1).select("v", key=col("k")).node))
        assert stamps(stream.cht()) == expected[1:]
        assert hr.same_history(stream.history(engine="duckdb").cht(), stream.cht())


def test_stamps_are_carried_through_operators_that_pass_rows_on(files: Path):
    table = pa.table({"k": ["a", "b"], "w": [7, 8]})
    a, b = points(files), hr.read_csv(str(files), SCHEMA, lifetime=hr.by_arrival())
    whole = (
        a.where(col("v") > 0).union(b).shift("1 s").set_duration(5).extend(2).join_table(table, on="k").select("w", "v")
    )
    carried = Stream(stamped(whole.node))
    assert carried.schema.names == ("w", "v", ARRIVAL, POSITION)
    assert carried.select("w", "v").cht().equals(whole.cht())
    expected = [row for row in STAMPED + APART if row[0] != 4]  # c is not in the table
    assert stamps(carried.cht()) == sorted(expected)
    assert stamped(carried.node) == carried.node


def test_other_operators_end_the_carrying(files: Path):
    source = points(files)
    for stream in (
        source.group_by("k").window(hr.tumbling(5)).aggregate(n=hr.count()),
        source.set_duration(5).join(source, on="k"),
        source.union(source.distinct()),
        hr.read_csv(str(files), SCHEMA, lifetime=hr.edge("t", "k")),
    ):
        assert stamped(stream.node) is stream.node
        assert not is_stamped(stream.node)


def test_stamps_that_nobody_reads_are_not_made(files: Path, monkeypatch: pytest.MonkeyPatch):
    stream = Stream(stamped(points(files).node)).select("v")
    (source,) = [n for n in walk(*optimize([Output(stream.node, "out")])) if isinstance(n, Source)]
    assert source.schema.names == ("v",)
    monkeypatch.setattr("headrace.io.reading._stamp", lambda *_: pytest.fail("a stamp was made"))
    assert stream.cht().num_rows == 4


def test_a_stamp_alone_can_be_read(files: Path):
    stream = Stream(stamped(points(files).node)).select(at=col(POSITION))
    assert sorted(stream.cht()["at"].to_pylist()) == [0, 0, 1, 2]  # what is broken is in a column nobody asked for


def test_positions_survive_filters_over_parquet(tmp_path: Path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"t": range(100), "v": pa.array([i % 10 for i in range(100)], pa.int32())}), path)
    source = hr.read_parquet(str(tmp_path), "t LONG, v INT", lifetime=hr.point("t"))
    stream = Stream(stamped(source.where(col("v") == 7).node))
    assert stream.cht()[POSITION].to_pylist() == list(range(7, 100, 10))
    # Without stamps the reader leaves rows out itself.
    plain = source.where(col("v") == 7)
    (pushed,) = [n.pushed for n in walk(*optimize([Output(plain.node, "out")])) if isinstance(n, Source)]
    assert pushed is not None


def test_diverted_rows_do_not_show_stamps(files: Path):
    stream = Stream(stamped(points(files, progress=hr.ordered()).node))
    aside = stream.run().diverted()
    assert len(aside) == 2
    assert not any("__" in row for row in aside["row"].to_pylist())


def test_a_stamped_source_is_another_source(files: Path):
    plain = points(files).node
    assert stamped(plain) != plain
    assert "stamped" in stamped(plain).describe()


def test_users_may_not_name_columns_like_stamps(files: Path):
    with pytest.raises(errors.SchemaError, match="__arrival"):
        points(files).select(__arrival=col("t"))
    with pytest.raises(errors.SchemaError, match="__position"):
        hr.read_csv(str(files), "k STRING, t LONG, __position LONG", lifetime=hr.point("t"))


# --- rows in memory --------------------------------------------------------------------------------------------------

DRAWN = """
    kind   | le | re | v
    insert | 3  | 9  | 1
    insert | 1  | ∞  | 2
    cti    | 5  |    |
    insert | 7  | 8  | 3
"""


def test_events_in_memory_arrive_at_the_latest_time_so_far():
    stream = Stream(stamped(hr.events(DRAWN, progress=hr.explicit("divert")).node))
    assert stamps(stream.cht()) == [(1, 3, 0), (2, 3, 1), (3, 7, 3)]
    assert hr.same_history(stream.history(engine="duckdb").cht(), stream.cht())


def test_events_that_are_retracted_are_not_stamped():
    retracted = hr.events([
        {"kind": "insert", "le": 1, "re": 5, "v": 1},
        {"kind": "retract", "le": 1, "re": 5, "re_new": 3, "v": 1},
    ])  # fmt: skip
    assert stamped(retracted.node) is retracted.node
    (source,) = [node for node in walk(retracted.node) if isinstance(node, Source)]
    assert isinstance(source.origin, Events)
    with pytest.raises(errors.PlanError, match="another row than its insert"):
        source.origin.stamped(source)


def test_what_only_spark_can_read_is_not_stamped():
    stream = hr.read_spark("kafka", "v STRING, ts DATETIME", lifetime=hr.point("ts"))
    assert stamped(stream.node) is stream.node
    with pytest.raises(errors.PlanError, match="offset"):
        hr.read_spark("kafka", "v STRING", lifetime=hr.by_arrival())


# --- arrival as time -------------------------------------------------------------------------------------------------


def test_rows_by_arrival_are_points_in_order(files: Path):
    stream = hr.read_csv(str(files), SCHEMA, lifetime=hr.by_arrival())
    assert stream.schema.names == ("k", "t", "v")
    (source,) = [node for node in walk(stream.node) if isinstance(node, Source)]
    assert str(source.policy) == str(Advance())
    run = stream.run()
    assert sorted((row["le"], row["re"], row["v"]) for row in as_ticks(run.cht()).to_pylist()) == [
        (1_000_500, 1_000_501, 1), (1_000_501, 1_000_502, 3), (2_000_500, 2_000_501, 4), (2_000_501, 2_000_502, 5),
    ]  # fmt: skip
    (counts,) = run.counts.values()
    assert (counts["rows"], counts["accepted"], counts["malformed"], counts["late"]) == (5, 4, 1, 0)


def test_a_file_that_comes_late_arrives_now(files: Path):
    """Its rows come behind what has come, column and lifetime alike, and count as accepted."""
    node = stamped(hr.read_csv(str(files), SCHEMA, lifetime=hr.by_arrival()).node)
    assert isinstance(node, Source)
    channel = Channel(node, Progress(5_000_000, 4_999_999))
    rows = pa.table({"k": ["a", "b"], "t": [1, 2], "v": [1, 2], ARRIVAL: [1_000_500, 6_000_000], POSITION: [0, 1]})
    accepted, aside = channel.take(rows)
    assert accepted.le.tolist() == [5_000_000, 6_000_000]
    assert accepted.re.tolist() == [5_000_001, 6_000_001]
    assert accepted.payload[ARRIVAL].to_pylist() == [5_000_000, 6_000_000]
    assert len(aside) == 0
    assert channel.report.counts["accepted"] == 2
    assert channel.report.counts["late"] == 0


def test_after_the_end_of_time_nothing_can_arrive(files: Path):
    node = hr.read_csv(str(files), SCHEMA, lifetime=hr.by_arrival()).node
    assert isinstance(node, Source)
    channel = Channel(node, Progress(INFINITY, 0))
    accepted, aside = channel.take(pa.table({"k": ["a"], "t": [1], "v": [1], ARRIVAL: [7]}))
    assert (len(accepted), len(aside)) == (0, 1)


def _one_by_one(arrivals: list[int], high: int | None = None) -> list[int]:
    """The obvious twin of what becomes of arrivals: each row comes at its time, or a tick after the one before."""
    found = []
    for arrival in arrivals:
        high = arrival if high is None else max(arrival, high + 1)
        found.append(high)
    return found


@given(st.lists(st.integers(-50, 50), max_size=40), st.integers(-60, 60), st.integers(0, 5), st.data())
@settings(max_examples=settings().max_examples * 3 // 2)
def test_arrivals_as_one_by_one(arrivals: list[int], cti: int, delay: int, data: st.DataObject):
    table = pa.table({"v": range(len(arrivals))}, schema=pa.schema([("v", pa.int64())]))
    stream = hr.api.inputs.stream_of(Events(table), hr.Schema.of("v LONG"), Arrival(), Advance(delay=delay), "raise")
    source = stamped(stream.node)
    assert isinstance(source, Source)
    rows = table.append_column(ARRIVAL, pa.array(arrivals, pa.int64()))
    rows = rows.append_column(POSITION, pa.array(range(len(arrivals)), pa.int64()))
    channel = Channel(source, Progress(cti, cti))
    cut = data.draw(st.integers(0, len(arrivals)))
    parts = [channel.take(part)[0] for part in (rows.slice(0, cut), rows.slice(cut))]
    found = Changes.concat(parts)
    expected = _one_by_one(arrivals, cti)
    assert found.le.tolist() == expected
    assert found.payload[ARRIVAL].to_pylist() == expected
    assert channel.report.counts["accepted"] == len(arrivals)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.lists(st.integers(0, 3), max_size=4)), min_size=1, max_size=4),
    st.integers(0, 3),
)
@settings(max_examples=max(8, settings().max_examples // 4))
def test_live_and_history_agree_on_arrivals(written: list[tuple[int, list[int]]], delay: int):
    """However many files have the same time, and whatever the promise."""
    with tempfile.TemporaryDirectory() as folder:
        for number, (at, values) in enumerate(written):
            write(Path(folder), f"{number}.csv", "v\n" + "".join(f"{v}\n" for v in values), at=at)
        source = hr.read_csv(folder, "v INT", lifetime=hr.by_arrival(), progress=hr.advance(delay))
        stream = Stream(stamped(source.node))
        files = sorted(enumerate(written), key=lambda one: (one[1][0], one[0]))
        found = [(at, position, v) for _, (at, values) in files for position, v in enumerate(values)]
        seen = _one_by_one([arrival for arrival, _, _ in found])
        expected = sorted((le, position, v) for le, (_, position, v) in zip(seen, found, strict=True))
        rows = as_ticks(stream.cht()).to_pylist()
        assert sorted((row["le"], row[POSITION], row["v"]) for row in rows) == expected
        assert hr.same_history(stream.history(engine="duckdb").cht(), stream.cht())


def test_a_clock_leaves_arrivals_undecided(files: Path):
    stream = hr.read_csv(str(files), SCHEMA, lifetime=hr.by_arrival(), progress=hr.heartbeat())
    with pytest.raises(errors.Undecided):
        stream.history(engine="duckdb").cht()
    assert stream.history(engine="duckdb", late="include").cht().num_rows == 4


# --- another time ----------------------------------------------------------------------------------------------------


def times(node: Any) -> list[tuple[int, int]]:
    return sorted((row["le"], row["v"]) for row in as_ticks(Stream(node).cht()).to_pylist())


def test_another_column_as_time(files: Path):
    source = points(files, progress=hr.advance(delay=50))
    renamed = source.where(col("v") > 1).select(double=col("t") * 2, v=col("v"))
    node = timed_by(renamed.node, col("double") + 1)
    assert times(node) == [(19, 5), (25, 3), (41, 4)]
    (below,) = [n for n in walk(node) if isinstance(n, Source)]
    assert str(below.lifetime) == str(Point(col("t") * 2 + 1))
    assert isinstance(below.policy, Explicit)  # a promise about one time says nothing about another


def test_the_same_time_is_the_same_plan(files: Path):
    source = points(files, progress=hr.advance(delay=50))
    assert timed_by(source.node, col("t")) == source.node


def test_the_arrival_as_time_and_back(files: Path):
    by_arrival = timed_by(points(files).node, "arrival")
    assert by_arrival == hr.read_csv(str(files), SCHEMA, lifetime=hr.by_arrival()).node
    back = timed_by(by_arrival, col("t"))
    assert isinstance(back, Source)
    assert isinstance(back.policy, Explicit)  # that rows were in order of arrival says nothing about another time
    assert times(back) == [(9, 5), (10, 1), (12, 3), (20, 4)]
    assert stamps(Stream(stamped(timed_by(stamped(points(files).node), "arrival"))).cht()) == APART


def test_operators_on_lifetimes_alone_fall_away(files: Path):
    source = points(files)
    moved = source.shift(100).set_duration(7).cap_duration(3).extend(2).point_at_start()
    assert timed_by(moved.node, col("t")) == source.node


def test_each_part_of_a_union_gets_the_time(files: Path):
    source = points(files)
    other = source.select(k=col("k"), t=col("t") + 100, v=col("v"))
    node = timed_by(source.union(other).node, col("t"), hr.advance(delay=5))
    policies = {str(n.policy) for n in walk(node) if isinstance(n, Source)}
    assert policies == {str(hr.advance(delay=5))}


def test_what_cannot_get_another_time_says_why(files: Path):
    source = points(files)
    windows = source.group_by("k").window(hr.tumbling(5)).aggregate(v=hr.max("v"))
    with pytest.raises(errors.PlanError, match="rows as a source gives them"):
        timed_by(windows.node, col("v"))
    with pytest.raises(errors.PlanError, match="rows as a source gives them"):
        timed_by(source.extend(-1).node, col("t"))  # which leaves events out, by their lifetimes
    with pytest.raises(errors.PlanError, match="cannot be a time"):
        timed_by(source.node, col("k"))
    with pytest.raises(errors.UnknownColumn):
        timed_by(source.node, col("nothing"))
    with pytest.raises(errors.PlanError, match="may be retracted"):
        timed_by(hr.read_events(str(files), "v INT", format="csv").node, col("v"))


def test_physical_events_get_another_time_where_that_makes_sense():
    inserts = hr.events(DRAWN, progress=hr.explicit("divert"))
    assert times(timed_by(inserts.node, col("v") * 10)) == [(10, 1), (20, 2), (30, 3)]
    assert times(timed_by(inserts.node, "arrival")) == [(3, 1), (4, 2), (7, 3)]
    # Events that start at their column keep their promises and corrections.
    revised = hr.events([
        {"kind": "insert", "le": 4, "re": 9, "t": 4, "v": 1},
        {"kind": "retract", "le": 4, "re": 9, "re_new": 4, "t": 4, "v": 1},
        {"kind": "insert", "le": 5, "re": 9, "t": 5, "v": 2},
        {"kind": "cti", "le": 6},
    ])  # fmt: skip
    assert isinstance(timed_by(revised.node, col("t")), PointAtStart)
    assert times(timed_by(revised.node, col("t"))) == [(5, 2)]
    with pytest.raises(errors.PlanError, match="retract"):
        timed_by(revised.node, col("v"))


# --- made-up streams -------------------------------------------------------------------------------------------------


def test_generated_streams():
    trades = hr.generated("trades", rows=200, seed=3, disorder=0.3)
    run = trades.run()
    (counts,) = run.counts.values()
    assert (counts["rows"], counts["accepted"]) == (200, 200)
    assert run.cht().equals(hr.generated("trades", rows=200, seed=3, disorder=0.3).cht())
    assert not run.cht().equals(hr.generated("trades", rows=200, seed=4, disorder=0.3).cht())
    picked = hr.generated("bids", "price FLOAT, ts DATETIME", rows=100)
    assert str(picked.schema) == "price FLOAT, ts DATETIME"
    latent = hr.generated("persons", rows=100, lifetime=hr.by_arrival())
    assert np.array_equal(latent.cht()["le"], np.arange(2))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: hr.generated("trade"), "trades"),
        (lambda: hr.generated("trades", disordered=1), "disorder"),
        (lambda: hr.generated("trades", "prise DOUBLE, ts DATETIME"), "price"),
        (lambda: hr.generated("trades", "symbol INT, ts DATETIME"), "symbol"),
    ],
)
def test_generated_streams_say_what_is_wrong(call: Any, says: str):
    with pytest.raises((errors.SchemaError, errors.UnknownColumn), match=says):
        call()


@pytest.mark.slow
def test_queries_over_stamped_rows_can_be_verified(tmp_path: Path):
    write(tmp_path, "a.csv", "k,t,v\na,1,1\nb,2,2\n", at=3)
    stream = Stream(stamped(hr.read_csv(str(tmp_path), SCHEMA, lifetime=hr.by_arrival()).node))
    windows = stream.group_by("k").window(hr.tumbling(10)).aggregate(p=hr.max(POSITION), a=hr.min(ARRIVAL))
    assert not windows.verify(seeds=8).failures
