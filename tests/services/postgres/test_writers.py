"""Readers beside writers: a snapshot and the changes after it always add up to the table."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import psycopg
import pytest
from tests.services.database import Database
from tests.services.postgres.reader import COLUMNS, NewTable, Reader, Run, Sources

from headrace.io.adapter import patiently

pytestmark = pytest.mark.services


class Writer(threading.Thread):
    """Changes random rows in random transactions, some of which roll back, until it is told to stop."""

    def __init__(self, dsn: str, table: str, seed: int) -> None:
        super().__init__()
        self.dsn, self.table, self.chance, self.done = dsn, table, random.Random(seed), threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            try:
                with psycopg.connect(self.dsn) as connection:
                    self._write(connection)
            except (psycopg.OperationalError, psycopg.IntegrityError):
                time.sleep(0.02)  # the server is away, or another writer was faster

    def _write(self, connection: psycopg.Connection[Any]) -> None:
        while not self.done.is_set():
            for _ in range(self.chance.choice((1, 1, 2, 5, 40))):
                connection.execute(self._statement().encode())
            if self.chance.random() < 0.15:
                connection.rollback()
            connection.commit()

    def _statement(self) -> str:
        one, two, price = self.chance.randrange(40), self.chance.randrange(40), self.chance.random()
        return self.chance.choice((
            f"INSERT INTO {self.table} VALUES ({one}, 'n{two}', {price}) ON CONFLICT DO NOTHING",
            f"INSERT INTO {self.table} VALUES ({one}, NULL, {price}) ON CONFLICT (id) DO UPDATE SET price = {price}",
            f"UPDATE {self.table} SET name = 'u{two}', price = {price} WHERE id = {one}",
            f"DELETE FROM {self.table} WHERE id = {one}",
            f"UPDATE {self.table} SET id = {one} WHERE id = {two}",  # fails if that key is taken
        ))  # fmt: skip


def in_table(run: Run, name: str) -> dict[Any, dict[str, Any]]:
    rows = run(f"SELECT id, name, price FROM {name}")
    return {(row[0],): dict(zip(("id", "name", "price"), row, strict=True)) for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_snapshot_beside_writers_and_the_changes_after_it_add_up_to_the_table(
    database: Database, table: NewTable, sources: Sources, run: Run, seed: int
):
    name = table(COLUMNS)
    chance = random.Random(seed)
    run(f"INSERT INTO {name} SELECT g, 'first', g FROM generate_series(0, 30) g")
    writers = [Writer(database.dsn, name, seed * 10 + i) for i in range(3)]
    for writer in writers:
        writer.start()
    try:
        time.sleep(0.2)
        reader = sources(name)
        for _ in range(15):
            reader.batch(chance.choice((1, 10, 1000)), acknowledge=chance.random() < 0.7)
            time.sleep(chance.random() * 0.03)
    finally:
        for writer in writers:
            writer.done.set()
        for writer in writers:
            writer.join()
    reader.all()
    assert reader.rows == in_table(run, name)
    assert reader.refused == []
    check_order(reader)


def check_order(reader: Reader) -> None:
    """An insert is of a new key, an update or a delete of a known one, and commits come in order."""
    known: set[int] = set()
    last = 0
    for _, _, rows in reader.ranges:
        for row in rows:
            assert (row["_change_type"] == "insert") == (row["id"] not in known), row
            assert row["_lsn"] >= last
            last = row["_lsn"]
            (known.discard if row["_change_type"] == "delete" else known.add)(row["id"])


@pytest.mark.slow
def test_a_server_killed_beside_writers_and_readers_loses_nothing(
    database: Database, table: NewTable, sources: Sources
):
    name = table(COLUMNS)
    writers = [Writer(database.dsn, name, 100 + i) for i in range(2)]
    for writer in writers:
        writer.start()
    reader = sources(name)
    chance, stop = random.Random(1), threading.Event()
    failures: list[Exception] = []

    def read() -> None:
        try:
            while not stop.is_set():
                patiently(lambda: reader.batch(200), "test")
        except Exception as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(4):
        time.sleep(chance.uniform(0.3, 0.8))
        database.restart(kill=True)
    time.sleep(0.3)
    for writer in writers:
        writer.done.set()
    for writer in writers:
        writer.join()
    stop.set()
    thread.join()
    assert failures == []
    reader.all()
    with psycopg.connect(database.dsn) as connection:
        rows = connection.execute(f"SELECT id, name, price FROM {name}".encode()).fetchall()
    assert reader.rows == {(r[0],): dict(zip(("id", "name", "price"), r, strict=True)) for r in rows}
    check_order(reader)
