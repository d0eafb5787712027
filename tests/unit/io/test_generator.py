"""The generator does what it says: seeded, within its bounds, true to its facts."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import EventError, HeadraceError, SinkError
from headrace.io import generator as g
from headrace.io.files import list_files
from headrace.io.formats import Format, read_file
from headrace.schema import Schema
from headrace.time import INFINITY, duration

EVERYTHING = g.Ticks(
    5000, seed=7, symbols=12, rate_per_second=200, disorder=0.3, max_delay="2 s", revisions=0.1, lulls=0.2
)
SCHEMA = Schema.of("kind STRING, le LONG, re LONG, re_new LONG, symbol STRING, ts DATETIME, price DOUBLE, quantity INT")


def digest(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return hashlib.sha256(sink.getvalue()).hexdigest()


def test_same_seed_same_bytes():
    house = g.Auctions(1000, disorder=0.2)
    for make, config, other in (
        (g.ticks, EVERYTHING, g.Ticks(5000, seed=8)),
        (g.plain_ticks, EVERYTHING, g.Ticks(5000, seed=8)),
        (g.bids, house, g.Auctions(1000, seed=1)),
        (g.auctions, house, g.Auctions(1000, seed=1)),
        (g.persons, house, g.Auctions(1000, seed=1)),
    ):
        assert digest(make(config)) == digest(make(config))
        assert digest(make(config)) != digest(make(other))


def test_columns():
    assert g.ticks(EVERYTHING).schema == SCHEMA.arrow
    assert g.plain_ticks(EVERYTHING).schema == SCHEMA.payload.arrow


@settings(max_examples=max(8, settings().max_examples * 3 // 10), deadline=None)
@given(
    st.integers(0, 2000), st.integers(0, 99), st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.9), st.integers(1, 10**7)
)
def test_disorder_never_exceeds_the_bound(
    rows: int, seed: int, disorder: float, revisions: float, lulls: float, delay: int
):
    """For each row, sync time >= the highest LE so far - max_delay: nothing is late under advance(delay=max_delay)."""
    config = g.Ticks(rows, seed, disorder=disorder, revisions=revisions, lulls=lulls, max_delay=delay)
    table = g.ticks(config)
    highest = np.maximum.accumulate(table["le"].to_numpy())
    assert (g.sync_times(table) >= highest - delay).all()
    assert g.facts(table, delay).late == 0


def test_late_rows_exceed_it_on_purpose():
    config = g.Ticks(5000, late=0.05, disorder=0.2, max_delay="1 s", rate_per_second=500)
    found = g.facts(g.ticks(config), config.max_delay)
    assert 150 < found.late < 350
    assert duration("1 s") < found.largest_delay <= duration("2 s")


def test_in_order_without_disorder():
    found = g.facts(g.ticks(g.Ticks(1000)))
    assert (found.rows, found.out_of_order, found.late, found.revised) == (1000, 0, 0, 0)
    assert (np.diff(g.ticks(g.Ticks(1000))["le"].to_numpy()) > 0).all()


def test_facts():
    table = g.ticks(EVERYTHING)
    found = g.facts(table, EVERYTHING.max_delay)
    assert found.inserts - found.retractions == 5000
    assert 400 < found.revised < 600
    assert found.out_of_order > 1000
    assert found.first == pc.min(table["le"]).as_py()
    assert g.facts(table.slice(0, 0)).rows == 0


def test_revisions_leave_the_right_trades():
    history = g.expected_cht(g.ticks(EVERYTHING))
    plain = g.plain_ticks(EVERYTHING)
    assert sorted(map(repr, history.drop_columns(["le", "re"]).to_pylist())) == sorted(map(repr, plain.to_pylist()))
    assert pc.all(pc.equal(history["re"], pc.add(history["le"], 1))).as_py()


def test_a_revision_is_a_deletion_after_the_insert_then_a_correction():
    seen: Counter[tuple[object, ...]] = Counter()
    deleted: set[object] = set()
    for row in g.ticks(EVERYTHING).to_pylist():
        key = (row["le"], row["re"], row["symbol"], row["price"], row["quantity"])
        if row["kind"] == "insert":
            seen[key] += 1
        else:
            assert row["re_new"] == row["le"]
            assert seen[key] == 1
            seen[key] -= 1
            deleted.add(row["le"])
    assert all(sum(n for key, n in seen.items() if key[0] == le) == 1 for le in list(deleted)[:50])


def test_lulls_take_their_share_of_the_time():
    quiet = g.plain_ticks(g.Ticks(50_000, lulls=0.5))["ts"].cast(pa.int64()).to_numpy()
    busy = g.plain_ticks(g.Ticks(50_000))["ts"].cast(pa.int64()).to_numpy()
    assert 1.8 < np.ptp(quiet) / np.ptp(busy) < 2.2


def test_prices_wander_by_symbol():
    table = g.plain_ticks(g.Ticks(10_000, symbols=3))
    for symbol in ("S0", "S1", "S2"):
        price = table.filter(pc.equal(table["symbol"], symbol))["price"].to_numpy()
        assert (price > 0).all()
        assert np.abs(np.diff(price) / price[:-1]).max() < 0.01


def test_the_auction_house_hangs_together():
    config = g.Auctions(10_000, disorder=0.1, max_delay="1 s")
    people, items, offers = g.persons(config), g.auctions(config), g.bids(config)
    assert (len(people), len(items), len(offers)) == (200, 600, 9200)
    opened = dict(zip(items["id"].to_pylist(), items["ts"].to_pylist(), strict=True))
    joined = dict(zip(people["id"].to_pylist(), people["ts"].to_pylist(), strict=True))
    assert all(opened[row["auction"]] <= row["ts"] and joined[row["bidder"]] <= row["ts"] for row in offers.to_pylist())
    assert all(joined[row["seller"]] <= row["ts"] < row["expires"] for row in items.to_pylist())
    ts = offers["ts"].cast(pa.int64()).to_numpy()
    behind = np.maximum.accumulate(ts) - ts
    assert 0 < behind.max() <= duration("1 s")


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_few_rows(rows: int):
    assert len(g.ticks(g.Ticks(rows, symbols=1, lulls=0.1, disorder=0.5))) == rows
    house = g.Auctions(rows)
    assert len(g.persons(house)) + len(g.auctions(house)) + len(g.bids(house)) == rows


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": -1}, {"symbols": 0}, {"rate_per_second": 0}, {"rate_per_second": 2e6}, {"disorder": 1.5},
        {"revisions": -0.1}, {"lulls": 1.0}, {"disorder": 0.6, "late": 0.6}, {"max_delay": 0}, {"start": "soon"},
    ],
)  # fmt: skip
def test_configurations_that_make_no_sense(wrong: dict[str, object]):
    with pytest.raises(HeadraceError):
        g.ticks(g.Ticks(**{"rows": 10, **wrong}))


def test_expected_cht_of_the_seed_example():
    """Rule 1.4."""
    table = pa.table({
        "kind": ["insert", "retract", "retract", "insert", "cti"],
        "le": [1, 1, 1, 4, 5],
        "re": [INFINITY, INFINITY, 10, 9, None],
        "re_new": [None, 10, 5, None, None],
        "p": ["P1", "P1", "P1", "P2", None],
    })  # fmt: skip
    assert g.expected_cht(table).to_pydict() == {"le": [1, 4], "re": [5, 9], "p": ["P1", "P2"]}


def test_expected_cht_keeps_duplicates_and_knows_nulls():
    table = pa.table({
        "kind": ["insert", "insert", "insert", "retract"], "le": [1, 1, 1, 1], "re": [2, 2, 2, 2],
        "re_new": pa.array([None, None, None, 1], pa.int64()), "p": [None, None, 5.0, None],
    })  # fmt: skip
    assert g.expected_cht(table).to_pydict() == {"le": [1, 1], "re": [2, 2], "p": [5.0, None]}
    with pytest.raises(EventError, match="without its event"):
        g.expected_cht(table.slice(2, 2))


@pytest.mark.parametrize(
    "format", [Format("csv"), Format("csv", delimiter="\t", header=False), *map(Format, ("json", "parquet", "arrow"))]
)
def test_files_hold_the_stream_in_order(tmp_path: Path, format: Format):
    table = g.ticks(EVERYTHING)
    written = g.write_files(table, str(tmp_path / "out"), 7, format)
    assert list_files(str(tmp_path / "out")) == written == sorted(written)
    times = [Path(name).stat().st_mtime_ns for name in written]
    assert times == sorted(set(times))
    blocks = [block.table for name in written for block in read_file(name, format, SCHEMA)]
    assert pa.concat_tables(blocks).equals(table)


def test_files_with_texts_that_need_quotes(tmp_path: Path):
    table = pa.table({"s": ["a,b", 'c"d', "", None, "e\nf"], "i": pa.array([1, 2, 3, 4, 5], pa.int32())})
    (path,) = g.write_files(table, str(tmp_path), 1, "csv")
    (block,) = read_file(path, Format("csv"), Schema.of("s STRING, i INT"))
    assert block.table.equals(table)


def test_files_where_none_can_be(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SinkError):
        g.write_files(pa.table({"a": [1]}), str(tmp_path / "file"), 1)
    with pytest.raises(SinkError):
        g.write_files(pa.table({"a": [1]}), "s3://bucket/x", 1)
