"""Waiting for what exists now, while rows keep arriving."""

from __future__ import annotations

import sqlite3
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace.adapters import DeliveryId, SinkAdapter
from headrace_sqlite import SqliteSource


@pytest.fixture
def filling(tmp_path: Path) -> Path:
    """A database into which a thread writes rows all the time."""
    database = tmp_path / "shop.db"
    connection = sqlite3.connect(database, check_same_thread=False, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE orders (item TEXT, ts INTEGER)")
    connection.execute("INSERT INTO orders VALUES ('first', 0)")
    ended = threading.Event()

    def fill() -> None:
        number = 1
        while not ended.is_set():
            connection.execute("INSERT INTO orders VALUES ('a', ?)", (number,))
            number += 1

    thread = threading.Thread(target=fill)
    thread.start()
    yield database
    ended.set()
    thread.join()
    connection.close()


def _orders(database: Path) -> hr.Stream:
    adapter = SqliteSource(str(database), "orders", "item STRING, ts LONG")
    return hr.read_source(adapter, lifetime=hr.point("ts"), progress=hr.ordered())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_waiting_ends_although_rows_keep_arriving(filling: Path, tmp_path: Path):
    query = _orders(filling).start(hr.memory(), host="local", checkpoint=str(tmp_path / "state"))
    query.process_all_available()
    first = query.progress()["counts"]["sqlite orders"]["accepted"]
    assert first >= 1
    query.process_all_available()
    query.stop()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_reads_what_was_there_when_it_began(filling: Path):
    history = _orders(filling).cht()
    assert history.num_rows >= 1
    assert history["item"][0].as_py() == "first"


@dataclass(frozen=True)
class _Slow(SinkAdapter):
    """A sink that takes a while for each delivery."""

    delivered: list[tuple[DeliveryId, int]] = field(default_factory=list, compare=False)

    def __str__(self) -> str:
        return "slow"

    def deliver(self, delivery: DeliveryId, rows: pa.Table) -> None:
        time.sleep(0.3)
        self.delivered.append((delivery, rows.num_rows))


def test_a_finished_query_has_delivered_its_last_answers(tmp_path: Path):
    database = tmp_path / "shop.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE orders (item TEXT, ts INTEGER)")
        connection.execute("INSERT INTO orders VALUES ('a', 1), ('b', 2)")
    connection.close()
    counts = _orders(database).group_by("item").window(hr.tumbling(10)).aggregate(n=hr.count())
    sink = _Slow("final")
    query = counts.start(sink, host="local", checkpoint=str(tmp_path / "state"))
    query.finish()  # the only window ends with the input
    assert [rows for _, rows in sink.delivered] == [2]
    query.stop()
