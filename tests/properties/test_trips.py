"""The law of trips: how often a loop goes round in one batch, and what happens between two trips, changes no answer."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.test_driven import Query, deaths, rows
from tests.unit.operators.recurse.loops import EDGES, closure, edges, reached, seeds

import headrace as hr
from headrace import col
from headrace.host.driving import tasks
from headrace.host.local import run_local
from headrace.io.sinks import Memory
from headrace.io.upserts import fold
from headrace.plan.nodes import Output
from headrace.stages.egress import prepared
from headrace.testing import check_output
from headrace.testing.same import assert_same_history
from headrace.time import INFINITY

EXAMPLES = max(5, settings().max_examples // 4)
STRATEGIES = ("hwm", "probing", "hybrid")


@st.composite
def loops(draw: st.DrawFn) -> hr.Stream:
    """A loop that no key keeps inside a bucket, some with operators behind it."""
    links, how = draw(edges(8)), draw(st.sampled_from(STRATEGIES))
    kind = draw(st.sampled_from(["reached", "closure", "bags", "later", "counted"]))
    forward = links.where(col("src") < col("dst"))
    if kind == "reached":
        return reached(draw(seeds(3)), links)
    if kind == "bags":
        return closure(forward, distinct=False, progress=how)
    if kind == "later":
        body = lambda f: f.join(forward, on={"dst": "src"}).select("src", dst=col("dst_right")).shift(1)  # noqa: E731
        return hr.recurse(forward, body, progress=how)
    pairs = closure(links, progress=how)
    return pairs.group_by("src").window(hr.snapshot()).aggregate(n=hr.count()) if kind == "counted" else pairs


@settings(max_examples=EXAMPLES)
@given(loops(), st.integers(2, 3), st.sampled_from([1, 2, 3, None]), st.sampled_from([1, 2]), deaths(), st.booleans())
def test_any_bound_gives_the_same_answer(
    query: hr.Stream, n: int, most: int | None, per_batch: int, dying: list[tuple[int, bool]], twice: bool
):
    expected = query.cht()
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as place:
        undisturbed = Query(query, n, Path(whole), per_batch, max_trips=most)
        assert undisturbed.line.loops
        undisturbed.run()
        assert_same_history(undisturbed.history(), expected)
        assert_same_history(undisturbed.files(), expected)
        check_output(undisturbed.files())
        assert max(undisturbed.trips) <= (most or INFINITY)
        assert undisturbed.sinks[1].batches[-1][1].cti == INFINITY
        disturbed = Query(query, n, Path(place), per_batch, max_trips=most, twice=twice)
        disturbed.run_mortal(dying, forget=twice)
        assert disturbed.batches() == undisturbed.batches()
        assert rows(disturbed.files()) == rows(undisturbed.files())


CHAIN = hr.events([{"le": n, "re": 99, "src": n, "dst": n + 1} for n in range(6)], EDGES, batches=[2, 2, 2])
START = hr.events([{"le": 0, "re": 99, "node": 0}], "node LONG")


def test_a_batch_goes_round_until_nothing_circulates_and_reads_its_input_once(tmp_path: Path):
    query = Query(reached(START, CHAIN), 2, tmp_path, 1)
    query.run()
    assert len(query.trips) == 4, "three files of links, and the end"
    assert query.trips[0] > 2
    record = query.driver.last.record
    assert [counts["rows"] for counts in record["counts"].values()] == [1, 6]
    assert sorted(record["files"].values()) == [1, 3]
    assert record["feedback"] == []
    assert not record["circulating"]


def test_input_is_read_while_something_circulates(tmp_path: Path):
    query = Query(reached(START, CHAIN), 2, tmp_path, 1, max_trips=1)
    query.driver.open()
    read = []
    for _ in range(3):
        query.driver.run(query.driver.plan())
        read.append(max(query.driver.last.record["files"].values()))
        assert query.driver.circulating
    assert read == [1, 2, 3]
    query.run()
    assert_same_history(query.history(), reached(START, CHAIN).cht())


def test_a_query_that_is_being_stopped_commits_after_the_trip_that_runs(tmp_path: Path):
    query = Query(reached(START, CHAIN), 2, tmp_path, 3)
    query.driver.open()
    query.driver.stopping = True
    assert query.driver.run(query.driver.plan()).trips == 1
    assert query.driver.circulating
    query.driver.stopping = False
    query.run()
    assert_same_history(query.history(), reached(START, CHAIN).cht())


def test_a_batch_that_takes_too_long_is_committed(tmp_path: Path):
    query = Query(reached(START, CHAIN), 2, tmp_path, 3)
    query.driver.trip_seconds = 0.0
    query.run()
    assert set(query.trips) == {1}
    assert_same_history(query.history(), reached(START, CHAIN).cht())


def test_what_trips_have_written_is_removed(tmp_path: Path):
    links = [{"le": n, "re": 99, "src": n, "dst": n + 1} for n in range(80)]
    query = Query(reached(START, hr.events(links, EDGES, batches=[20] * 4)), 2, tmp_path, 1)
    query.run()
    assert sum(query.trips) > 80
    log = query.driver.log
    assert log.batches()[-1] == 4, "after which it has cleaned up"
    assert set(query.storage.keys("data")) <= {file for n in log.batches() for file in log.read(n).files}


def test_a_trip_is_read_from_what_the_trip_before_has_written(tmp_path: Path):
    """Tasks in processes that remember nothing find the state of the trip before."""
    query = Query(closure(CHAIN), 2, tmp_path, 3)
    run = query.driver.executor.run

    def forgetful(batch: object) -> object:
        tasks._STAGES.clear()
        return run(batch)

    query.driver.executor.run = forgetful
    query.run()
    assert query.trips[0] > 2
    assert_same_history(query.history(), closure(CHAIN).cht())


@pytest.mark.parametrize("most", [1, 2, None])
def test_upsert_rows_say_once_in_a_batch_what_became_of_a_key(most: int | None, tmp_path: Path):
    pairs = closure(CHAIN)
    sink = hr.files(str(tmp_path / "out"), encoding="upsert", key="src")
    kept = Memory("upsert", ("src",))
    options = {"host": "local", "buckets": 2, "files_per_batch": 1, "max_trips": most}
    running = hr.start_all([(pairs, sink), (pairs, kept)], checkpoint=str(tmp_path / "state"), **options)
    running.finish()
    running.stop()
    found = [kept.rows(), _read(tmp_path / "out")]
    alone = Memory("upsert", ("src",))
    for number, batch in enumerate(hr.Stream(prepared(pairs.node, alone)).run().results["out"].batches):
        alone.add(*batch, number)
    for rows_of in found:
        per_batch = [(row["_batch"], row["src"]) for row in rows_of.to_pylist()]
        assert len(set(per_batch)) == len(per_batch)
        assert rows(fold(rows_of, ["src"])) == rows(fold(alone.rows(), ["src"]))


@settings(max_examples=EXAMPLES)
@given(edges(8), st.sampled_from(["src", "dst"]))
def test_oracle_upsert_rows_of_a_loop_are_the_latest_after_every_batch(links: hr.Stream, key: str):
    pairs, sink = closure(links), Memory("upsert", (key,))
    done = run_local([Output(prepared(pairs.node, sink), "latest"), Output(pairs.node, "pairs")], buckets=2)
    whole, kept = done.results["pairs"].batches, done.results["latest"].batches
    for end in range(1, len(whole) + 1):
        history = Memory(batches=whole[:end]).cht().to_pylist()
        latest = {row[key]: max(one["le"] for one in history if one[key] == row[key]) for row in history}
        until = Memory("upsert", (key,), kept[:end], list(range(end))).cht().to_pylist()
        assert {row[key]: row["le"] for row in until} == latest
        rows_there = [(row["le"], row["src"], row["dst"]) for row in history]
        assert all((row["le"], row["src"], row["dst"]) in rows_there for row in until)


def _read(folder: Path) -> pa.Table:
    files = sorted(folder.glob("batch-*/*.jsonl"))
    return pa.Table.from_pylist([json.loads(line) for file in files for line in file.read_text().splitlines()])
