"""Upsert rows: per key the latest value, whatever the order of arrival (encodings of a sink)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.changes import Changes
from headrace.errors import PlanError
from headrace.host.local import run_local
from headrace.io.console import WITHDRAWN, _Screen
from headrace.io.sinks import Console, Memory
from headrace.io.upserts import fold, latest_of, upserts
from headrace.operators.edge import EdgeKernel
from headrace.plan.nodes import EdgeLifetimes, Output, PointAtStart
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.stages.egress import prepared


def _sink(stream: hr.Stream, buckets: int = 1) -> Memory:
    sink = Memory("upsert", ("k",))
    done = run_local([Output(prepared(stream.node, sink), "out")], buckets=buckets)
    for number, batch in enumerate(done.results["out"].batches):
        sink.add(*batch, number)
    return sink


def _upserts(stream: hr.Stream) -> list[dict]:
    return _sink(stream).rows().to_pylist()


def test_of_two_rows_at_the_same_time_the_other_is_left_when_one_goes():
    stream = hr.events("""
        kind    | le | re | re_new | k | v
        insert  | 1  | 5  |        | a | 10
        insert  | 1  | 5  |        | a | 20
        retract | 1  | 5  | 1      | a | 20
        retract | 1  | 5  | 1      | a | 10
    """, batches=[2, 1, 1])  # fmt: skip
    rows = [(row["op"], row["k"], row["v"]) for row in _upserts(stream)]
    assert rows == [("upsert", "a", 20), ("upsert", "a", 10), ("delete", "a", None)]


@pytest.mark.parametrize("order", list(itertools.permutations([10, 20, 30])))
@pytest.mark.parametrize("batches", [[3], [1, 2], [1, 1, 1]])
def test_arrival_does_not_decide(order: tuple[int, ...], batches: list[int]):
    stream = hr.events([{"le": 1, "re": 5, "k": "a", "v": value} for value in order], batches=batches)
    assert _upserts(stream)[-1]["v"] == 30


def test_a_later_row_replaces_and_its_end_brings_the_earlier_one_back():
    stream = hr.events("""
        kind    | le | re | re_new | k | v
        insert  | 1  | 5  |        | a | 1
        insert  | 3  | 5  |        | a | 2
        insert  | 2  | 5  |        | a | 9
        retract | 3  | 5  | 3      | a | 2
    """, batches=[1, 1, 1, 1])  # fmt: skip
    assert [(row["op"], row["le"], row["v"]) for row in _upserts(stream)] == [
        ("upsert", 1, 1), ("upsert", 3, 2), ("upsert", 2, 9),
    ]  # fmt: skip


# --- what is remembered, and how rows are folded --------------------------------------------------------------------


def test_when_rows_after_the_cti_are_gone_the_row_before_it_holds_again():
    stream = hr.events("""
        kind    | le | re | re_new | k | v
        insert  | 1  | 5  |        | a | 1
        cti     | 10 |    |        |   |
        insert  | 20 | 25 |        | a | 2
        insert  | 30 | 35 |        | a | 3
        retract | 20 | 25 | 20     | a | 2
        retract | 30 | 35 | 30     | a | 3
    """, batches=[1, 1, 1, 1, 2])  # fmt: skip
    sink = _sink(stream)
    assert [(row["op"], row["_batch"], row["le"], row["v"]) for row in sink.rows().to_pylist()] == [
        ("upsert", 0, 1, 1), ("upsert", 2, 20, 2), ("upsert", 3, 30, 3), ("delete", 4, 10, None),
    ]  # fmt: skip
    assert [(row["le"], row["k"], row["v"]) for row in sink.cht().to_pylist()] == [(1, "a", 1)]


def test_rows_that_go_one_after_the_other_leave_the_settled_one():
    stream = hr.events("""
        kind    | le | re | re_new | k | v
        insert  | 1  | 5  |        | a | 1
        cti     | 10 |    |        |   |
        insert  | 20 | 25 |        | a | 2
        insert  | 30 | 35 |        | a | 3
        retract | 20 | 25 | 20     | a | 2
        retract | 30 | 35 | 30     | a | 3
    """, batches=[2, 1, 1, 1, 1])  # fmt: skip
    assert [(row["le"], row["v"]) for row in _sink(stream).cht().to_pylist()] == [(1, 1)]


def test_a_settled_row_that_was_never_the_latest_is_remembered_while_later_ones_may_go():
    stream = hr.events("""
        kind    | le | re | re_new | k | v
        insert  | 3  | 6  |        | a | 1
        insert  | 4  | 7  |        | a | 2
        cti     | 4  |    |        |   |
        retract | 4  | 7  | 4      | a | 2
    """, batches=[2, 1, 1])  # fmt: skip
    assert [(row["le"], row["v"]) for row in _sink(stream).cht().to_pylist()] == [(3, 1)]


def test_a_row_that_was_replaced_and_deleted_does_not_hold_again():
    stream = hr.events("""
        kind    | le | re | re_new | k | v
        insert  | 5  | 9  |        | a | 1
        retract | 5  | 9  | 5      | a | 1
        insert  | 6  | 9  |        | a | 2
        cti     | 6  |    |        |   |
        retract | 6  | 9  | 6      | a | 2
    """, batches=[1, 2, 1, 1])  # fmt: skip
    sink = _sink(stream)
    assert [(row["op"], row["_batch"], row["v"]) for row in sink.rows().to_pylist()] == [
        ("upsert", 0, 1), ("upsert", 1, 2), ("delete", 3, None),
    ]  # fmt: skip
    assert sink.cht().num_rows == 0


def test_a_row_that_was_deleted_while_a_later_one_was_the_latest_does_not_hold_again():
    stream = hr.events("""
        kind    | le | re | re_new | k | v
        insert  | 1  | 5  |        | a | 1
        cti     | 10 |    |        |   |
        insert  | 20 | 25 |        | a | 2
        insert  | 30 | 35 |        | a | 3
        retract | 20 | 25 | 20     | a | 2
        cti     | 30 |    |        |   |
        retract | 30 | 35 | 30     | a | 3
    """, batches=[2, 1, 1, 1, 1, 1])  # fmt: skip
    sink = _sink(stream)
    assert [(row["op"], row["le"]) for row in sink.rows().to_pylist()][-1] == ("delete", 10)
    assert [(row["le"], row["v"]) for row in sink.cht().to_pylist()] == [(1, 1)]


#: What, of which key, how far after the CTI, which value or which of the rows that can go; and whether a batch ends.
#: The shares are such that one history in ten has a row that is replaced, deleted and passed by the CTI, in this order.
_STEP = st.tuples(
    st.sampled_from(["insert", "delete", "delete", "cti"]),
    st.sampled_from("aaab"),
    st.integers(0, 4),
    st.integers(0, 2),
    st.booleans(),
)


@st.composite
def _steps(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Batches of inserts, deletions and promises, all of them legal."""
    cti, live, batches = 0, [], [list[dict[str, Any]]()]
    for what, key, ahead, value, ends in draw(st.lists(_STEP, min_size=20, max_size=40)):
        open_ = [event for event in live if event["le"] >= cti]
        if what == "cti":
            cti += 1
            batches[-1].append({"kind": "cti", "le": cti})
        elif what == "delete" and open_:
            event = open_[value % len(open_)]
            live.remove(event)
            batches[-1].append({"kind": "retract", **event, "re_new": event["le"]})
        else:
            event = {"le": cti + ahead, "re": cti + ahead + 3, "k": key, "v": value}
            live.append(event)
            batches[-1].append({"kind": "insert", **event})
        if ends:
            batches.append([])
    return [batch for batch in batches if batch]


def _latest(batches: list[list[dict[str, Any]]]) -> dict[str, tuple[int, int]]:
    live: list[dict[str, Any]] = []
    for row in (row for batch in batches for row in batch if row["kind"] != "cti"):
        event = {name: row[name] for name in ("le", "re", "k", "v")}
        if row["kind"] == "insert":
            live.append(event)
        else:
            live.remove(event)
    return {k: max((e["le"], e["v"]) for e in live if e["k"] == k) for k in {event["k"] for event in live}}


@settings(max_examples=max(5, settings().max_examples // 2))
@given(_steps(), st.integers(1, 3), st.randoms())
@pytest.mark.slow
def test_oracle_folded_rows_are_the_latest_after_every_batch(
    batches: list[list[dict[str, Any]]], buckets: int, random: Any
):
    if not any(row["kind"] == "insert" for batch in batches for row in batch):
        return
    rows = [row for batch in batches for row in batch]
    stream = hr.events(rows, "k STRING, v LONG", batches=[len(batch) for batch in batches])
    found = _sink(stream, buckets).rows()
    for number in range(len(batches)):
        order = random.sample(range(found.num_rows), found.num_rows)
        until = found.take(pa.array(order, pa.int64()))
        until = until.filter(pc.less_equal(until["_batch"], number))
        latest = {row["k"]: (row["le"], row["v"]) for row in fold(until, ["k"]).to_pylist()}
        assert latest == _latest(batches[: number + 1])


def test_state_is_bounded_by_the_cti_however_many_keys_there_are():
    many = 500
    rows = [{"le": 10 * i, "re": 10 * i + 5, "k": f"k{i}", "v": i} for i in range(many)]
    stream = hr.events(rows, batches=[10] * (many // 10), progress=hr.advance(delay=50))
    done = run_local([Output(prepared(stream.node, Memory("upsert", ("k",))), "out")])
    held = [max(o["rows"] for s in part for o in s["operators"].values() if "Latest" in o["operator"])
            for part in done.statistics]  # fmt: skip
    assert max(held) <= 20


def test_files_can_be_folded_without_looking_at_their_names(tmp_path: Path):
    rows = [{"le": t, "re": t + 1, "k": k, "v": t} for t in range(6) for k in "ab"]
    sink = hr.files(str(tmp_path), format="parquet", encoding="upsert", key="k")
    hr.run({"out": hr.events(rows, batches=[2] * 6)}, sinks={"out": sink})
    tables = [pq.read_table(path) for path in sorted(tmp_path.glob("batch-*/*.parquet"), reverse=True)]
    assert len(tables) == 6
    assert fold(pa.concat_tables(tables), ["k"]).select(["k", "v"]).sort_by("k").to_pylist() == [
        {"k": "a", "v": 5}, {"k": "b", "v": 5},
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["op", "_batch"])
def test_columns_that_upsert_rows_have_themselves_are_refused(name: str):
    stream = hr.events([{"le": 1, "re": 2, "k": "a", name: 1}])
    with pytest.raises(PlanError, match=f"upsert rows add a column '{name}'"):
        prepared(stream.node, hr.memory(encoding="upsert", key="k"))


# --- a batch of several trips, and a screen ---------------------------------------------------------------------------


def _kernel_logs(*batches: list[tuple[list[tuple[int, int, int]], int]]) -> list[tuple[int, int]]:
    """The folded log of batches of trips; a trip has changes (le, v, weight) of one key, and a CTI."""
    schema = Schema.of("k STRING, v LONG")
    source = hr.events([{"le": 0, "re": 1, "k": "a", "v": 0}], "k STRING, v LONG")
    kernel, log = EdgeKernel(EdgeLifetimes(PointAtStart(source.node), ("k",), latest=True)), []
    for number, trips in enumerate(batches):
        given = []
        for rows, cti in trips:
            le, v, weight = (np.array([row[i] for row in rows], np.int64) for i in range(3))
            payload = pa.table([["a"] * len(rows), v], schema=schema.arrow)
            given.append(kernel.step([Changes(le, le + 1, weight, payload)], [Progress(cti, cti)])[0])
        kernel.end_batch()
        log.append(upserts(latest_of(given, ["k"]), ["k"], number))
        assert log[-1].num_rows <= 1
    return [(row["le"], row["v"]) for row in fold(pa.concat_tables(log), ["k"]).to_pylist()]


def test_a_row_that_is_settled_between_two_trips_holds_again():
    assert _kernel_logs([([(1, 1, 1)], 5), ([(6, 2, 1)], 5)], [([(6, 2, -1)], 6)]) == [(1, 1)]


def test_a_row_that_is_deleted_in_a_trip_before_another_comes_does_not_hold_again():
    assert _kernel_logs([([(5, 1, 1)], 0)], [([(5, 1, -1)], 6), ([(6, 2, 1)], 6)], [([(6, 2, -1)], 6)]) == []


@settings(max_examples=max(5, settings().max_examples // 2))
@given(_steps())
def test_differential_a_screen_shows_what_the_log_comes_to(batches: list[list[dict[str, Any]]]):
    rows = [row for batch in batches for row in batch]
    stream = hr.events(rows, "k STRING, v LONG", batches=[len(batch) for batch in batches])
    sink, screen = _sink(stream), _Screen(Console("upsert", ("k",)))
    for number, batch in enumerate(sink.batches):
        screen.update(number, *batch)
        shown = {row.values["k"]: row.values["le"] for row in screen.shown.values() if row.mark != WITHDRAWN}
        assert shown == {k: le for k, (le, _) in _latest(batches[: number + 1]).items()}
