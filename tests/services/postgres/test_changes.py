"""Changes of a table against a real server: a snapshot and the changes after it always add up to the table."""

from __future__ import annotations

import pickle
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psycopg
import pytest
from tests.services.database import Database

from headrace.adapters.postgres import PostgresChanges
from headrace.adapters.postgres import changes as changes_module
from headrace.errors import SourceError, Unavailable
from headrace.io.adapter import patiently
from headrace.io.decoded import DecodedBlock

pytestmark = pytest.mark.services
NewTable = Callable[..., str]
COLUMNS = "id bigint PRIMARY KEY, name text, price float8"


class Reader:
    """Reads a source as a driver does, and folds its changes into rows by key."""

    def __init__(self, source: PostgresChanges) -> None:
        self.source = source
        self.position: dict[str, int] = {}
        self.rows: dict[Any, dict[str, Any]] = {}
        self.ranges: list[tuple[int, int, list[dict[str, Any]]]] = []
        self.refused: list[dict[str, Any]] = []
        self.lost = 0

    def range(self, rows: int = 1000) -> tuple[int, int] | None:
        """The next range, if there is one."""
        ((partition, available),) = self.source.offsets(self.position).items()
        start = self.position.get(partition, self.source.begin(partition, available))
        if available.end <= start:
            return None
        return start, self.source.limit(partition, start, available.end, rows)

    def read(self, start: int, end: int) -> tuple[list[DecodedBlock], int]:
        blocks, generator = [], self.source.read(self.source.slot, start, end, self.source.schema.names)
        while True:
            try:
                blocks.append(next(generator))
            except StopIteration as done:
                return blocks, end if done.value is None else int(done.value)

    def batch(self, rows: int = 1000, *, acknowledge: bool = True) -> int | None:
        """Read a range and commit it; the number of its rows, or None if there is no range."""
        found = self.range(rows)
        if found is None:
            return None
        blocks, position = self.read(*found)
        new = [row for block in blocks for row in block.table.to_pylist()]
        self.refused += [row for block in blocks for row in block.refused.to_pylist()]
        self.lost += sum(block.lost for block in blocks)
        for row in new:
            key = tuple(row[name] for name in self.source.key)
            if row["_change_type"] == "delete":
                self.rows.pop(key, None)
            else:
                self.rows[key] = {name: row[name] for name in self.source.columns.names}
        self.ranges.append((*found, new))
        self.position = {self.source.slot: position}
        if acknowledge:
            self.source.acknowledge(self.position)
        return len(new)

    def all(self, rows: int = 1000) -> list[dict[str, Any]]:
        """Everything that there is now."""
        before = len(self.ranges)
        while self.batch(rows) is not None:
            pass
        return [row for _, _, new in self.ranges[before:] for row in new]


@pytest.fixture
def sources(database: Database) -> Iterator[Callable[..., Reader]]:
    """Makes readers of tables; their slots are dropped after the test."""
    made: list[PostgresChanges] = []

    def make(table: str, **options: Any) -> Reader:
        made.append(PostgresChanges.of(database.dsn, table, **options))
        return Reader(made[-1])

    yield make
    if not database.running:
        database.start()
    for source in made:
        patiently(source.drop, "test")
        source.close()


@pytest.fixture
def run(database: Database) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    """Runs statements, each its own transaction; several in one text are one."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:

        def execute(statement: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

        yield execute


Run = Callable[..., list[tuple[Any, ...]]]
Sources = Callable[..., Reader]


def kinds(rows: list[dict[str, Any]]) -> list[tuple[str, Any, Any]]:
    return [(row["_change_type"], row["id"], row["name"]) for row in rows]


def test_a_snapshot_and_then_changes(table: NewTable, sources: Sources, run: Run):
    name = table(COLUMNS)
    run(f"INSERT INTO {name} VALUES (1, 'a', 1.5), (2, NULL, NULL)")
    reader = sources(name)
    first = reader.all()
    assert kinds(first) == [("insert", 1, "a"), ("insert", 2, None)]
    assert reader.source.schema.names == ("id", "name", "price", "_change_type", "_commit_time", "_lsn")
    run(f"INSERT INTO {name} VALUES (3, 'c', 1)")
    run(f"UPDATE {name} SET name = 'b' WHERE id = 2; DELETE FROM {name} WHERE id = 1")
    run(f"UPDATE {name} SET id = 4 WHERE id = 3")
    rows = reader.all()
    assert kinds(rows) == [("insert", 3, "c"), ("update", 2, "b"), ("delete", 1, None), ("delete", 3, None),
                           ("insert", 4, "c")]  # fmt: skip
    assert rows[1]["_lsn"] == rows[2]["_lsn"] > rows[0]["_lsn"]
    assert [row["_commit_time"] for row in rows] == sorted(row["_commit_time"] for row in rows)
    assert first[0]["_commit_time"] < rows[0]["_commit_time"]


def test_values_of_all_types(table: NewTable, sources: Sources, run: Run):
    name = table(
        "id int PRIMARY KEY, s smallint, l bigint, f real, d float8, t boolean, x text, v varchar(20), c char(3), "
        "u uuid, j jsonb, z timestamptz, n timestamp, day date"
    )
    reader = sources(name)
    values = """(-32768)::smallint, 9223372036854775807, 0.1::real, 0.1::float8 + 0.2, {}, {}, 'v', 'ab',
        '6ecd8c99-4036-403d-bf84-cf8400f67836'::uuid, '{{"a": 1}}'::jsonb, '2024-05-01 12:00:00.123456+02',
        '1969-12-31 23:59:59.5', '2024-02-29'"""
    odd = "E'ž\\n\\t\"''\\\\\\\\.,'"
    insert = [
        f"({i}, {values.format(t, x)})" for i, t, x in ((1, "true", odd), (2, "false", "''"), (3, "NULL", "NULL"))
    ]
    run(f"INSERT INTO {name} VALUES {', '.join(insert)}")
    snapshot = reader.all()
    run(f"DELETE FROM {name}")
    reader.all()
    run(f"INSERT INTO {name} VALUES {', '.join(insert)}, (4, {', '.join(['NULL'] * 13)})")
    changes = reader.all()
    columns = reader.source.columns.names
    assert [[row[c] for c in columns] for row in snapshot] == [[row[c] for c in columns] for row in changes[:3]]
    first = changes[0]
    assert (first["x"], changes[1]["x"], changes[2]["x"]) == ("ž\n\t\"'\\\\.,", "", None)
    assert (first["s"], first["l"], first["d"], first["t"]) == (-32768, 2**63 - 1, 0.1 + 0.2, True)
    assert (str(first["z"]), str(first["n"]), str(first["day"])) == (
        "2024-05-01 10:00:00.123456+00:00", "1969-12-31 23:59:59.500000+00:00", "2024-02-29 00:00:00+00:00",
    )  # fmt: skip
    assert (first["u"], first["j"], first["c"]) == ("6ecd8c99-4036-403d-bf84-cf8400f67836", '{"a": 1}', "ab ")
    assert [changes[3][c] for c in columns] == [4, *[None] * 13]


def test_infinite_times_and_other_values_that_do_not_fit_are_refused_alone(table: NewTable, sources: Sources, run: Run):
    name = table("id int PRIMARY KEY, z timestamptz")
    run(f"INSERT INTO {name} VALUES (1, 'infinity'), (2, '2024-01-01')")
    reader = sources(name)
    assert [row["id"] for row in reader.all()] == [2]
    run(f"INSERT INTO {name} VALUES (3, '-infinity'), (4, '2024-01-01')")
    assert [row["id"] for row in reader.all()] == [4]
    assert ["'infinity' is not a time" in reader.refused[0]["reason"], "-infinity" in reader.refused[1]["reason"]] == [
        True, True,
    ]  # fmt: skip


def test_types_without_a_column_type_are_refused_by_name_or_declared(table: NewTable, sources: Sources, run: Run):
    name = table("id int PRIMARY KEY, amount numeric(10, 2), wait interval, tags text[], raw bytea")
    with pytest.raises(SourceError) as found:
        sources(name)
    for part in ("'amount' (numeric(10,2))", "'wait' (interval)", "'tags' (text[])", "'raw' (bytea)", "amount DOUBLE"):
        assert part in str(found.value)
    run(f"INSERT INTO {name} VALUES (1, 12.50, '1 hour', '{{a,b}}', '\\x00ff')")
    reader = sources(name, columns="id LONG, amount DOUBLE, wait STRING, tags STRING, raw STRING")
    row = reader.all()[0]
    assert (row["amount"], row["wait"], row["tags"], row["raw"]) == (12.5, "01:00:00", "{a,b}", "\\x00ff")
    with pytest.raises(SourceError, match=r"'id' .* is integer, which cannot be read as BOOLEAN"):
        sources(name, columns="id BOOLEAN", name="other").all()
    with pytest.raises(SourceError, match="no column 'idd'"):
        sources(name, columns="idd LONG", name="third").all()


def test_a_range_read_again_has_the_same_rows(table: NewTable, sources: Sources, run: Run):
    name = table(COLUMNS)
    reader = sources(name)
    reader.all()
    chance = random.Random(3)
    for i in range(60):
        other = chance.randrange(i + 1)
        run(f"INSERT INTO {name} VALUES ({i}, 'x', 0); UPDATE {name} SET price = {i} WHERE id = {other}")
    while reader.batch(7, acknowledge=False) is not None:  # nothing is acknowledged, so all of it can be read again
        pass
    assert len(reader.ranges) > 10
    for start, end, rows in reader.ranges[1:]:
        again = [row for block in reader.read(start, end)[0] for row in block.table.to_pylist()]
        assert again == rows
    assert sum(len(rows) for _, _, rows in reader.ranges) == len(
        {(r["_lsn"], r["id"]) for *_, rows in reader.ranges for r in rows}
    )
    assert len(reader.rows) == 60
    # In other cuts, at every transaction and one byte beside it, each row is in exactly one range.
    everything = [row for _, _, rows in reader.ranges for row in rows]
    start, end = reader.ranges[0][1], reader.position[reader.source.slot]
    for lsn in {row["_lsn"] for row in everything}:
        for cut in (lsn, lsn + 1):
            left, right = (
                [r for block in reader.read(*bounds)[0] for r in block.table.to_pylist()]
                for bounds in ((reader.ranges[1][0], cut), (cut, end))
            )
            assert left + right == everything
            assert all(row["_lsn"] < cut for row in left)
    assert start


def test_a_range_has_about_as_many_rows_as_asked_for_and_whole_transactions(
    table: NewTable, sources: Sources, run: Run
):
    name = table(COLUMNS)
    reader = sources(name)
    reader.all()
    for i in range(40):
        run(f"INSERT INTO {name} SELECT g, 'x', 1 FROM generate_series({i * 100}, {i * 100 + 99}) g")
    sizes = []
    while (size := reader.batch(500)) is not None:
        sizes.append(size)
    assert sum(sizes) == 4000
    assert all(size % 100 == 0 for size in sizes)
    assert len(sizes) >= 6
    assert max(sizes) <= 700


def test_an_idle_table_has_no_ranges_while_other_tables_change(
    table: NewTable, sources: Sources, run: Run, monkeypatch: pytest.MonkeyPatch
):
    name, other = table(COLUMNS), table(COLUMNS)
    reader = sources(name)
    reader.all()
    for i in range(20):
        run(f"INSERT INTO {other} VALUES ({i}, 'x', 1)")
        assert reader.range() is None
    run(f"INSERT INTO {name} VALUES (1, 'x', 1)")
    assert reader.batch() == 1
    assert reader.range() is None
    # After enough of the log, the position moves on, and the server may forget the log of others.
    monkeypatch.setattr(changes_module, "IDLE_LOG", 100_000)
    run(f"INSERT INTO {other} SELECT g, repeat('x', 100), 1 FROM generate_series(100, 3000) g")
    before = reader.position[reader.source.slot]
    assert reader.batch() == 0
    assert reader.position[reader.source.slot] > before + 100_000
    assert reader.range() is None
    confirmed = run(
        f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = '{reader.source.slot}'"
    )
    assert int(confirmed[0][0]) == reader.position[reader.source.slot]


def test_rows_read_but_not_acknowledged_are_not_found_again(table: NewTable, sources: Sources, run: Run):
    name = table(COLUMNS)
    reader = sources(name)
    reader.all()
    run(f"INSERT INTO {name} VALUES (1, 'x', 1)")
    assert reader.batch(acknowledge=False) == 1
    assert reader.range() is None
    run(f"INSERT INTO {name} VALUES (2, 'x', 1)")
    assert reader.batch(acknowledge=False) == 1
    reader.source.acknowledge(reader.position)
    reader.source.acknowledge(reader.position)
    assert reader.range() is None


def test_a_long_transaction_beside_short_ones_is_read_when_it_commits(
    database: Database, table: NewTable, sources: Sources, run: Run
):
    name = table(COLUMNS)
    reader = sources(name)
    reader.all()
    with psycopg.connect(database.dsn) as long:
        long.execute(f"INSERT INTO {name} VALUES (1, 'long', 1)".encode())
        run(f"INSERT INTO {name} VALUES (2, 'short', 1)")
        assert kinds(reader.all()) == [("insert", 2, "short")]
        run(f"INSERT INTO {name} VALUES (3, 'short', 1)")
        long.execute(f"INSERT INTO {name} VALUES (4, 'long', 1)".encode())
        assert kinds(reader.all()) == [("insert", 3, "short")]
    assert kinds(reader.all()) == [("insert", 1, "long"), ("insert", 4, "long")]


def test_transactions_that_roll_back_are_not_read(database: Database, table: NewTable, sources: Sources, run: Run):
    name = table(COLUMNS)
    reader = sources(name)
    reader.all()
    with psycopg.connect(database.dsn) as other:
        other.execute(f"INSERT INTO {name} VALUES (1, 'gone', 1)".encode())
        other.rollback()
    run(f"BEGIN; INSERT INTO {name} VALUES (2, 'a', 1); SAVEPOINT s; INSERT INTO {name} VALUES (3, 'gone', 1); "
        "ROLLBACK TO s; COMMIT")  # fmt: skip
    assert kinds(reader.all()) == [("insert", 2, "a")]


def test_long_values_that_do_not_change_need_the_whole_old_row(table: NewTable, sources: Sources, run: Run):
    name = table(COLUMNS)
    reader = sources(name)
    reader.all()
    long = "(SELECT string_agg(md5(g::text), '') FROM generate_series(1, 500) g)"
    run(f"INSERT INTO {name} VALUES (1, {long}, 1), (2, 'short', 1)")
    assert len(reader.all()[0]["name"]) == 16000
    run(f"UPDATE {name} SET price = 2")
    assert [row["id"] for row in reader.all()] == [2]
    assert "REPLICA IDENTITY FULL" in reader.refused[0]["reason"]
    run(f"BEGIN; INSERT INTO {name} VALUES (3, {long}, 1); UPDATE {name} SET price = 3 WHERE id = 3; COMMIT")
    assert [(len(row["name"]), row["price"]) for row in reader.all()] == [(16000, 3.0)]
    run(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
    run(f"UPDATE {name} SET price = 4 WHERE id = 1")
    assert [(len(row["name"]), row["price"]) for row in reader.all()] == [(16000, 4.0)]
    run(f"DELETE FROM {name} WHERE id = 2")
    assert kinds(reader.all()) == [("delete", 2, "short")]
    assert len(reader.refused) == 1


def test_truncate_is_a_refused_row(table: NewTable, sources: Sources, run: Run):
    name = table(COLUMNS)
    run(f"INSERT INTO {name} VALUES (1, 'a', 1)")
    reader = sources(name)
    reader.all()
    run(f"TRUNCATE {name}")
    assert reader.all() == []
    assert [row["raw"] for row in reader.refused] == ["TRUNCATE"]


def test_columns_that_are_added_and_dropped(table: NewTable, sources: Sources, run: Run):
    name = table(COLUMNS)
    reader = sources(name)
    reader.all()
    run(f"INSERT INTO {name} VALUES (1, 'a', 1)")
    run(f"ALTER TABLE {name} ADD COLUMN more int DEFAULT 7; ALTER TABLE {name} DROP COLUMN price; "
        f"ALTER TABLE {name} ADD COLUMN price float8")  # fmt: skip
    run(f"INSERT INTO {name} (price, id, name) VALUES (2.5, 2, 'b')")
    assert [(row["id"], row["name"], row["price"]) for row in reader.all()] == [(1, "a", 1.0), (2, "b", 2.5)]
    run(f"ALTER TABLE {name} RENAME COLUMN name TO label; INSERT INTO {name} VALUES (3, 'c')")
    with pytest.raises(SourceError, match="no column 'name'"):
        reader.all()


def test_tables_without_a_key_are_refused_before_they_are_published(table: NewTable, sources: Sources, run: Run):
    name = table("id int, name text")
    reader = sources(name)
    with pytest.raises(SourceError, match="no key for deleted rows") as found:
        reader.all()
    assert "ADD PRIMARY KEY" in str(found.value)
    assert run(f"SELECT 1 FROM pg_publication WHERE pubname = '{reader.source.publication}'") == []
    run(f"ALTER TABLE {name} REPLICA IDENTITY FULL; INSERT INTO {name} VALUES (1, 'a')")
    reader = sources(name, key=("id",))
    assert len(reader.all()) == 1
    run(f"UPDATE {name} SET name = 'b'; UPDATE {name} SET id = 2")
    assert kinds(reader.all()) == [("delete", 1, "b"), ("insert", 2, "b")]


def test_a_partitioned_table_is_read_as_one(table: NewTable, sources: Sources, run: Run):
    name = table()
    run(f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text) PARTITION BY RANGE (id); "
        f"CREATE TABLE {name}_low PARTITION OF {name} FOR VALUES FROM (0) TO (10); "
        f"CREATE TABLE {name}_high PARTITION OF {name} FOR VALUES FROM (10) TO (20); "
        f"INSERT INTO {name} VALUES (1, 'a'), (11, 'b')")  # fmt: skip
    reader = sources(name)
    assert len(reader.all()) == 2
    run(f"UPDATE {name} SET id = 12 WHERE id = 1; INSERT INTO {name} VALUES (2, 'c')")
    reader.all()
    assert sorted(reader.rows) == [(2,), (11,), (12,)]


def test_changes_only_from_now_on(table: NewTable, sources: Sources, run: Run):
    name = table(COLUMNS)
    run(f"INSERT INTO {name} VALUES (1, 'before', 1)")
    reader = sources(name, snapshot=False)
    assert reader.all() == []
    run(f"INSERT INTO {name} VALUES (2, 'after', 1)")
    assert kinds(reader.all()) == [("insert", 2, "after")]


def test_a_slot_that_was_dropped_is_an_error_that_says_what_is_lost(table: NewTable, sources: Sources, run: Run):
    name = table(COLUMNS)
    reader = sources(name)
    run(f"INSERT INTO {name} VALUES (1, 'a', 1), (2, 'b', 1)")
    reader.all()
    run(f"SELECT pg_drop_replication_slot('{reader.source.slot}')")
    run(f"UPDATE {name} SET name = 'c' WHERE id = 1; INSERT INTO {name} VALUES (3, 'd', 1)")
    with pytest.raises(SourceError, match=r"was dropped: the changes of .* are lost"):
        reader.all()
    again = Reader(
        PostgresChanges(reader.source.dsn, name, reader.source.columns, reader.source.key, on_gap="continue")
    )
    again.position, again.rows = reader.position, reader.rows
    again.all()
    assert {key: row["name"] for key, row in again.rows.items()} == {(1,): "c", (2,): "b", (3,): "d"}
    assert again.lost > 0
    run(f"DELETE FROM {name} WHERE id = 3")
    again.all()
    assert sorted(again.rows) == [(1,), (2,)]


def test_a_slot_that_another_reader_advances_is_an_error(table: NewTable, sources: Sources, run: Run):
    name = table(COLUMNS)
    reader, other = sources(name), sources(name)
    reader.all()
    other.all()
    run(f"INSERT INTO {name} VALUES (1, 'a', 1)")
    other.all()
    with pytest.raises(SourceError, match=r"advanced to .* by another reader") as found:
        reader.all()
    assert "name=" in str(found.value)


def test_names_and_passwords(database: Database, table: NewTable, sources: Sources):
    name = table(COLUMNS)
    source = sources(name, name="Totals by day").source
    assert source.slot == source.publication == "headrace_" + name.replace(".", "_") + "_totals_by_day"
    assert str(source) == f"postgres changes({name}, Totals by day by id)"
    hidden = PostgresChanges("postgresql://me:hunter2@h/db", "t", source.columns, ("id",))
    assert "hunter2" not in repr(hidden) + str(hidden)
    assert pickle.loads(pickle.dumps(source)) == source  # noqa: S301 - our own value
    with pytest.raises(SourceError, match="there is no table nowhere"):
        PostgresChanges.of(database.dsn, "nowhere")


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


def test_a_server_that_is_away_is_unavailable(database: Database, table: NewTable, sources: Sources):
    reader = sources(table(COLUMNS))
    reader.all()
    database.kill()
    with pytest.raises(Unavailable):
        reader.range()
    with pytest.raises(Unavailable):
        reader.read(1, 2)
    database.start()
    assert reader.range() is None


def test_a_slot_that_has_lost_its_log_is_an_error_or_a_new_snapshot():
    with Database() as other, psycopg.connect(other.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
        connection.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        source = PostgresChanges.of(other.dsn, "t")
        reader = Reader(source)
        reader.all()
        connection.execute("SELECT pg_reload_conf()")
        for _ in range(4):
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("INSERT INTO t SELECT max(id) + 1 FROM (SELECT id FROM t UNION SELECT 0) x")
        connection.execute("CHECKPOINT")
        with pytest.raises(SourceError, match="has lost its log") as found:
            reader.all()
        assert "since" in str(found.value)
        again = Reader(PostgresChanges(source.dsn, "t", source.columns, source.key, on_gap="continue"))
        again.position = reader.position
        assert [row["id"] for row in again.all()] == [1, 2, 3, 4]
        assert again.lost > 0
        source.close()
