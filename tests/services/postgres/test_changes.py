"""Changes of a table against a real server: what each becomes, and in which ranges they are."""

from __future__ import annotations

import pickle
import random
from datetime import date
from decimal import Decimal

import psycopg
import pytest
from tests.services.database import Database
from tests.services.postgres.reader import COLUMNS, NewTable, Run, Sources, kinds

from headrace.adapters.postgres import PostgresChanges
from headrace.adapters.postgres import changes as changes_module
from headrace.errors import SourceError

pytestmark = pytest.mark.services


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
        "u uuid, j jsonb, z timestamptz, n timestamp, day date, exact numeric(10, 2)"
    )
    reader = sources(name)
    values = """(-32768)::smallint, 9223372036854775807, 0.1::real, 0.1::float8 + 0.2, {}, {}, 'v', 'ab',
        '6ecd8c99-4036-403d-bf84-cf8400f67836'::uuid, '{{"a": 1}}'::jsonb, '2024-05-01 12:00:00.123456+02',
        '1969-12-31 23:59:59.5', '2024-02-29', -12.5"""
    odd = "E'ž\\n\\t\"''\\\\\\\\.,'"
    insert = [
        f"({i}, {values.format(t, x)})" for i, t, x in ((1, "true", odd), (2, "false", "''"), (3, "NULL", "NULL"))
    ]
    run(f"INSERT INTO {name} VALUES {', '.join(insert)}")
    snapshot = reader.all()
    run(f"DELETE FROM {name}")
    reader.all()
    run(f"INSERT INTO {name} VALUES {', '.join(insert)}, (4, {', '.join(['NULL'] * 14)})")
    changes = reader.all()
    columns = reader.source.columns.names
    assert [[row[c] for c in columns] for row in snapshot] == [[row[c] for c in columns] for row in changes[:3]]
    first = changes[0]
    assert (first["x"], changes[1]["x"], changes[2]["x"]) == ("ž\n\t\"'\\\\.,", "", None)
    assert (first["s"], first["l"], first["d"], first["t"]) == (-32768, 2**63 - 1, 0.1 + 0.2, True)
    assert (str(first["z"]), str(first["n"])) == (
        "2024-05-01 10:00:00.123456+00:00",
        "1969-12-31 23:59:59.500000+00:00",
    )
    assert (first["day"], first["exact"]) == (date(2024, 2, 29), Decimal("-12.50"))
    assert (first["u"], first["j"], first["c"]) == ("6ecd8c99-4036-403d-bf84-cf8400f67836", '{"a": 1}', "ab ")
    assert [changes[3][c] for c in columns] == [4, *[None] * 14]


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
    name = table("id int PRIMARY KEY, amount numeric, wait interval, tags text[], raw bytea")
    with pytest.raises(SourceError) as found:
        sources(name)
    for part in (
        "'amount' (numeric)",
        "'wait' (interval)",
        "'tags' (text[])",
        "'raw' (bytea)",
        "amount DECIMAL(38,10)",
    ):
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
