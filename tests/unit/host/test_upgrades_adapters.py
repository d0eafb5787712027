"""Upgrades of queries that read and write services."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.fixtures.sqlite_place import COLUMNS, SqlitePlace

import headrace as hr
from headrace import Schema, Stream, col
from headrace.errors import CheckpointError, SinkError
from headrace.io.sinks import Memory
from headrace.testing.same import assert_same_history
from headrace_sqlite import SqliteSink, SqliteSource

BEGIN = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlitePlace:
    monkeypatch.chdir(tmp_path)
    return SqlitePlace(tmp_path)


def arrive(place: SqlitePlace, table: str, first: int, count: int = 20) -> None:
    rows = [
        {"k": "ab"[n % 2], "n": n, "x": n / 4, "ok": True, "ts": BEGIN + timedelta(seconds=n)}
        for n in range(first, first + count)
    ]
    place.append(table, pa.Table.from_pylist(rows, schema=Schema.of(COLUMNS).arrow))


def readings(place: SqlitePlace) -> Stream:
    source = SqliteSource(str(place.path), "in_*", COLUMNS)
    return hr.read_source(source, lifetime=hr.point("ts"), progress=hr.advance(delay="1 min"))


def sums(place: SqlitePlace, seconds: int) -> Stream:
    window = hr.tumbling(f"{seconds} s")
    return readings(place).group_by("k").window(window).aggregate(n=hr.sum("n"))


def step(*pairs: tuple[Stream, Any], checkpoint: str = "state", **options: Any) -> None:
    query = hr.start_all(pairs, host="local", checkpoint=checkpoint, **options)
    query.process_all_available()
    query.stop()


def fresh(stream: Stream) -> pa.Table:
    found = Memory()
    step((stream, found), checkpoint=tempfile.mkdtemp(dir="."))
    return found.cht()


def test_backfill_reads_the_offsets_again(place: SqlitePlace):
    arrive(place, "in_a", 0)
    arrive(place, "in_b", 0, 5)
    kept = Memory("changes")
    step((sums(place, 10), kept), rows_per_batch=7)
    arrive(place, "in_b", 5, 5)  # the old query has not read them
    step((sums(place, 4), kept), upgrade="backfill", rows_per_batch=3)
    assert_same_history(kept.cht(), fresh(sums(place, 4)))
    arrive(place, "in_a", 20)
    step((sums(place, 4), kept))
    assert_same_history(kept.cht(), fresh(sums(place, 4)))


def test_rows_that_are_no_longer_stored(place: SqlitePlace):
    arrive(place, "in_a", 0)
    step((sums(place, 10), Memory("changes")))
    place.execute("DELETE FROM in_a WHERE rowid < 5")
    with pytest.raises(CheckpointError, match="has read 20 rows, and 16 are there"):
        step((sums(place, 4), Memory("changes")), upgrade="backfill")


def test_keep_continues_at_the_offsets(place: SqlitePlace):
    arrive(place, "in_a", 0)
    kept, more = Memory("changes"), Memory("changes")
    step((sums(place, 10), kept))
    arrive(place, "in_a", 20)
    step((sums(place, 10), kept), (readings(place).select("n"), more), upgrade="keep")
    assert_same_history(kept.cht(), fresh(sums(place, 10)))
    assert sorted(more.cht()["n"].to_pylist()) == list(range(20, 40))


def test_a_service_gets_no_second_copy(place: SqlitePlace):
    def out(table: str) -> SqliteSink:
        return SqliteSink("changes", (), database=str(place.path), table=table)

    arrive(place, "in_a", 0)
    step((sums(place, 10), out("one")))
    before = place.execute("SELECT count(*) FROM one")
    with pytest.raises(CheckpointError, match="cannot be read back"):
        step((sums(place, 4), out("one")), upgrade="backfill")
    step((sums(place, 10), out("one")), (sums(place, 4), out("two")), upgrade="backfill")
    assert place.execute("SELECT count(*) FROM one") == before
    assert len(place.execute("SELECT * FROM two")) == fresh(sums(place, 4)).num_rows
    with pytest.raises(CheckpointError, match="has changed, and a place holds one stream"):
        step((sums(place, 10).where(col("n") > 0), out("one")), upgrade="keep")
    step((sums(place, 4), out("two")), upgrade="keep")
    arrive(place, "in_a", 20)
    step((sums(place, 4), out("two")))
    kinds = [kind for (kind,) in place.execute("SELECT _change_type FROM two")]
    assert kinds.count("insert") - kinds.count("delete") == fresh(sums(place, 4)).num_rows


@pytest.mark.parametrize("upgrade", ["keep", "backfill"])
def test_a_new_output_creates_its_table(place: SqlitePlace, upgrade: Any):
    def outputs(*names: str, encoding: str = "changes") -> list[tuple[Stream, Any]]:
        return [(sums(place, 10), hr.delta_lake(name, encoding=encoding)) for name in names]

    def count(name: str) -> int:
        kinds = hr.delta_table(name)["_change_type"].to_pylist()
        return kinds.count("insert") - kinds.count("delete")

    arrive(place, "in_a", 0, 90)
    step(*outputs("one"))
    before = count("one")
    arrive(place, "in_a", 90, 60)
    step(*outputs("two", "one"), upgrade=upgrade)
    arrive(place, "in_a", 150)
    step(*outputs("two", "one"))
    assert count("one") == fresh(sums(place, 10)).num_rows
    assert count("two") == count("one") - (before if upgrade == "keep" else 0)
    with pytest.raises(CheckpointError, match=r"has written to delta\(.*one\) before"):
        step(*outputs("two"), *outputs("one", encoding="events"), upgrade=upgrade)
    step(*outputs("two"), upgrade=upgrade)
    with pytest.raises(CheckpointError, match=r"has written to delta\(.*one\) before"):
        step(*outputs("two", "one"), upgrade=upgrade)  # it lacks what has changed since
    step(*outputs("two"))


def test_a_service_that_refuses_leaves_the_old_query(place: SqlitePlace):
    arrive(place, "in_a", 0)
    kept = Memory("changes")
    step((sums(place, 10), kept))
    (place.path.parent / "table").write_text("not a directory")
    with pytest.raises(SinkError):
        step((sums(place, 10), kept), (sums(place, 10), hr.delta_lake("table", encoding="changes")), upgrade="keep")
    arrive(place, "in_a", 20)
    step((sums(place, 10), kept))
    assert_same_history(kept.cht(), fresh(sums(place, 10)))
