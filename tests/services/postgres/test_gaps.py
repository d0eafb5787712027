"""Slots that were dropped, advanced by others or have lost their log, and a server that is away."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from tests.services.database import Database
from tests.services.postgres.reader import COLUMNS, NewTable, Reader, Run, Sources, kinds

import headrace as hr
from headrace.adapters.postgres import PostgresChanges
from headrace.errors import SourceError, Unavailable

pytestmark = pytest.mark.services


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


@pytest.mark.parametrize("how", ["drop", "advance"])
def test_a_query_that_continues_after_a_gap_reads_the_table_again(
    database: Database, table: NewTable, sources: Sources, run: Run, tmp_path: Path, how: str
):
    name = table(COLUMNS)
    slot = sources(name).source.slot
    run(f"INSERT INTO {name} VALUES (1, 'a', 1), (2, 'b', 1)")
    stream = hr.read_postgres(database.dsn, name, on_gap="continue")

    def names() -> tuple[dict[int, str], int]:
        sink = hr.memory()
        query = stream.start(sink, host="local", checkpoint=tmp_path / "state")
        query.process_all_available()
        query.stop()
        (counts,) = query.counts.values()
        rows = [row for changes, _ in sink.batches for row in changes.payload.to_pylist()]
        return {row["id"]: row["name"] for row in rows}, counts["lost_offsets"]

    assert names() == ({1: "a", 2: "b"}, 0)
    run(f"INSERT INTO {name} VALUES (3, 'c', 1)")
    if how == "drop":
        run(f"SELECT pg_drop_replication_slot('{slot}')")
    else:
        run(f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())")
    run(f"INSERT INTO {name} VALUES (4, 'd', 1)")
    found, lost = names()
    assert {3: "c", 4: "d"}.items() <= found.items()
    assert lost > 0


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


def test_a_slot_that_another_session_creates_is_waited_for(
    database: Database, table: NewTable, sources: Sources, run: Run
):
    name = table(COLUMNS)
    reader = sources(name)
    run(f"CREATE PUBLICATION {reader.source.publication} FOR TABLE {name}")
    create = f"SELECT pg_create_logical_replication_slot('{reader.source.slot}', 'pgoutput')"
    with psycopg.connect(database.dsn) as writer, ThreadPoolExecutor(1) as threads:
        writer.execute("SELECT pg_current_xact_id()")  # a transaction that runs, and that the new slot waits for
        created = threads.submit(run, create)
        found = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND confirmed_flush_lsn IS NULL"
        while not writer.execute(found, [reader.source.slot]).fetchone():
            assert not created.done()
        with pytest.raises(Unavailable, match="is being created"):
            reader.all()
        writer.rollback()
        created.result(30)
    reader.all()


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


def test_a_publication_without_all_changes_of_the_table_is_refused(table: NewTable, sources: Sources, run: Run):
    name = table(COLUMNS)
    for i, (form, fault) in enumerate((
        (f"FOR TABLE {name} WITH (publish = 'insert, update')", "leaves out some kinds"),
        (f"FOR TABLE {name} (id, name)", "leaves out columns: price"),
        (f"FOR TABLE {name} WHERE (id > 5)", "leaves out some rows"),
        ("", "does not have the table"),
    )):  # fmt: skip
        reader = sources(name, name=str(i))
        run(f"CREATE PUBLICATION {reader.source.publication} {form}")
        with pytest.raises(SourceError, match=fault):
            reader.all()
    narrow = sources(name, name="1", columns="id LONG, name STRING")
    run(f"INSERT INTO {name} VALUES (1, 'a', 1)")
    assert len(narrow.all()) == 1
    run(f"UPDATE {name} SET name = 'b'")
    assert kinds(narrow.all()) == [("update", 1, "b")]


def test_a_table_that_is_created_anew_is_not_taken_for_the_old_one(table: NewTable, sources: Sources, run: Run):
    name = table(COLUMNS)
    reader = sources(name)
    reader.all()
    run(f"DROP TABLE {name}; CREATE TABLE {name} ({COLUMNS}); INSERT INTO {name} VALUES (1, 'a', 1)")
    with pytest.raises(SourceError, match="created anew"):
        reader.all()
    run(f"DROP TABLE {name}")
    with pytest.raises(SourceError, match="there is no table"):
        reader.all()


def test_roles_without_the_right_to_replicate_are_told_so(
    database: Database, table: NewTable, sources: Sources, run: Run
):
    name = table(COLUMNS)
    reader = sources(name)
    reader.all()
    role = "reader_" + name.split(".")[1]
    schema = name.split(".")[0]
    run(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON {name} TO {role}")
    try:
        source = reader.source
        other = PostgresChanges(database.dsn.replace("postgres@", f"{role}@"), name, source.columns, source.key)
        run(f"INSERT INTO {name} VALUES (1, 'a', 1)")
        with pytest.raises(SourceError, match="permission denied") as found:
            other.offsets(reader.position)
        assert "ALTER ROLE" in str(found.value)
        with pytest.raises(SourceError, match="permission denied"):
            next(other.read(other.slot, 0, 1, ("id",)))  # the lock needs the right to change the table
        other.close()
    finally:
        run(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_server_whose_log_ends_before_the_position_is_another_one(table: NewTable, sources: Sources):
    reader = sources(table(COLUMNS))
    reader.all()
    position = reader.position[reader.source.slot]
    reader.position = {reader.source.slot: position + (1 << 40)}
    with pytest.raises(SourceError, match="this is another server"):
        reader.range()
    with pytest.raises(SourceError, match="this is another server"):
        reader.read(position, position + (1 << 40))
