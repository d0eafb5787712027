"""Tools for checkpoints of queries with adapters: show, copy, verify, rescale."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import headrace as hr
from headrace_sqlite import SqliteSink, SqliteSource


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    database = tmp_path / "shop.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE orders (item TEXT, ts INTEGER, amount INTEGER)")
    _add(database, [("a", 1, 1), ("b", 2, 2), ("c", 12, 3), ("d", 14, 4)])
    return database


def _add(database: Path, rows: list[tuple[str, int, int]]) -> None:
    with sqlite3.connect(database) as connection:
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
    connection.close()


def _rows(database: Path, table: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(database) as connection:
        found = connection.execute(f"SELECT * FROM {table}").fetchall()
    connection.close()
    return sorted(found, key=str)


def _run(database: Path, checkpoint: Path, table: str = "log", buckets: int | None = None) -> None:
    adapter = SqliteSource(str(database), "orders", "item STRING, ts LONG, amount LONG")
    orders = hr.read_source(adapter, lifetime=hr.point("ts"), progress=hr.ordered())
    totals = orders.group_by("item").window(hr.tumbling(10)).aggregate(total=hr.sum("amount"))
    sink = SqliteSink("final", database=str(database), table=table)
    query = hr.start_all([(totals, sink)], host="local", checkpoint=str(checkpoint), buckets=buckets)
    query.process_all_available()
    query.stop()


def test_show_has_the_offsets_of_partitions(shop: Path, tmp_path: Path):
    _run(shop, tmp_path / "state")
    shown = hr.checkpoint(tmp_path / "state").show()
    assert "orders: read up to 5" in str(shown)
    assert hr.checkpoint(tmp_path / "state").verify() is not None


def test_a_copy_continues_with_sinks_of_its_own(shop: Path, tmp_path: Path):
    _run(shop, tmp_path / "state")
    assert _rows(shop, "log") == [(0, 10, "a", 1), (0, 10, "b", 2)]
    hr.checkpoint(tmp_path / "state").copy(tmp_path / "copied")
    _add(shop, [("a", 25, 5)])
    _run(shop, tmp_path / "copied")
    assert _rows(shop, "log") == [(0, 10, "a", 1), (0, 10, "b", 2), (10, 20, "c", 3), (10, 20, "d", 4)]


def test_a_rescaled_query_continues(shop: Path, tmp_path: Path):
    _run(shop, tmp_path / "state", buckets=1)
    hr.checkpoint(tmp_path / "state").rescale(3)
    _add(shop, [("a", 25, 5)])
    _run(shop, tmp_path / "state")
    assert _rows(shop, "log") == [(0, 10, "a", 1), (0, 10, "b", 2), (10, 20, "c", 3), (10, 20, "d", 4)]
