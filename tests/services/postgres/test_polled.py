"""Tables read by a cursor column, and tables and queries read once, against a real server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.services.database import Database

from headrace.adapters.postgres import PostgresPolled, read_table
from headrace.errors import BadRow, PlanError, SourceError

pytestmark = pytest.mark.services
NewTable = Callable[..., str]


@pytest.fixture
def run(database: Database) -> Callable[[str], None]:
    def execute(statement: str) -> None:
        with psycopg.connect(database.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())

    return execute


def read(source: PostgresPolled, start: int, end: int, columns: tuple[str, ...] = ("id", "name")) -> list[Any]:
    rows = []
    for block in source.read(source.table, start, end, columns):
        rows += zip(block.rows.tolist(), *(column.to_pylist() for column in block.table.columns), strict=True)
    return rows


def test_rows_are_read_once_by_an_id(database: Database, table: NewTable, run: Callable[[str], None]):
    name = table("id bigint PRIMARY KEY, name text")
    source = PostgresPolled.of(database.dsn, name, "id")
    assert source.offsets({}) == {}
    run(f"INSERT INTO {name} VALUES (3, 'c'), (-2, 'a'), (10, NULL)")
    ((partition, available),) = source.offsets({}).items()
    assert (partition, available.first, available.end) == (name, -2, 11)
    assert source.begin(partition, available) == -2
    assert source.limit(partition, -2, 11, 2) == 10
    assert source.limit(partition, -2, 11, 5) == 11
    assert read(source, -2, 10) == [(-2, -2, "a"), (3, 3, "c")]
    assert read(source, 10, 11, ("name",)) == [(10, None)]
    run(f"DELETE FROM {name}")
    assert source.offsets({name: 11})[name].end == 11


def test_a_lag_keeps_away_from_the_end(database: Database, table: NewTable, run: Callable[[str], None]):
    name = table("id int NOT NULL, name text, at timestamptz NOT NULL")
    run(f"INSERT INTO {name} VALUES (1, 'a', now() - interval '1 hour'), (2, 'b', now())")
    run(f"INSERT INTO {name} VALUES (3, 'c', now() + interval '1 day')")
    by_id = PostgresPolled.of(database.dsn, name, "id", lag=1)
    assert by_id.offsets({})[name].end == 3
    with pytest.raises(SourceError, match="is a number"):
        PostgresPolled.of(database.dsn, name, "id", lag="5 s").offsets({})
    by_time = PostgresPolled.of(database.dsn, name, "at", lag="1 min")
    available = by_time.offsets({})[name]
    assert [row[1] for row in read(by_time, available.first, available.end)] == [1]
    now = PostgresPolled.of(database.dsn, name, "at").offsets({name: available.end})[name]
    assert [row[1] for row in read(by_time, available.end, now.end)] == [2]  # what lies in the future is not read yet


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
def test_times_are_ticks_and_rows_of_one_time_stay_together(
    database: Database, table: NewTable, run: Callable[[str], None], kind: str
):
    name = table(f"id int, name text, at {kind} NOT NULL")
    run(f"INSERT INTO {name} SELECT g, 'x', '1970-01-01 00:00:00.000001' FROM generate_series(1, 5) g")
    run(f"INSERT INTO {name} VALUES (6, 'y', '1970-01-01 00:00:00.000007')")
    source = PostgresPolled.of(database.dsn, name, "at")
    available = source.offsets({})[name]
    assert (available.first, available.end) == (1, 8)
    end = source.limit(name, 1, 8, 2)
    assert end == 2
    assert sorted(row[:2] for row in read(source, 1, end)) == [(1, i) for i in range(1, 6)]
    assert read(source, end, 8) == [(7, 6, "y")]


@pytest.mark.parametrize(
    ("cursor", "message", "instead"),
    [
        ("name", "cannot be read by the column 'name'", "cursor='id'"),
        ("nothing", "cannot be read by the column 'nothing'", "cursor='id'"),
        ("loose", "would never be read", "SET NOT NULL"),
    ],
)
def test_a_column_that_cannot_be_a_cursor(database: Database, table: NewTable, cursor: str, message: str, instead: str):
    source = PostgresPolled.of(database.dsn, table("id int NOT NULL, name text, loose int"), cursor)
    with pytest.raises(SourceError, match=message) as found:
        source.offsets({})
    assert instead in str(found.value)


def test_tables_and_queries_are_read_once(database: Database, table: NewTable, run: Callable[[str], None]):
    name = table("id int, name text, ok boolean, at timestamptz, amount numeric")
    run(f"INSERT INTO {name} VALUES (1, 'a,\"b\n', true, '2024-01-01', 1.5), (2, '', false, NULL, 'NaN')")
    run(f"INSERT INTO {name} (id) VALUES (3)")
    with pytest.raises(SourceError, match=r"'amount' \(numeric\)"):
        read_table(database.dsn, name)
    found, schema = read_table(database.dsn, name, columns="id LONG, name STRING, ok BOOLEAN")
    assert str(schema) == "id LONG, name STRING, ok BOOLEAN"
    assert found.to_pylist() == [
        {"id": 1, "name": 'a,"b\n', "ok": True},
        {"id": 2, "name": "", "ok": False},
        {"id": 3, "name": None, "ok": None},
    ]
    query = f"SELECT count(*) AS n, max(name) AS name, 'x'::text AS \"Odd name\", false AS e FROM {name};"
    found, schema = read_table(database.dsn, query=query)
    assert str(schema) == "n LONG, name STRING, Odd name STRING, e BOOLEAN"
    assert found.to_pylist() == [{"n": 3, "name": 'a,"b\n', "Odd name": "x", "e": False}]
    empty, _ = read_table(database.dsn, query=f"SELECT id FROM {name} WHERE false")
    assert (empty.num_rows, empty.schema.field("id").type) == (0, pa.int32())


def test_errors_of_tables_read_once(database: Database, table: NewTable, run: Callable[[str], None]):
    name = table("id int, amount numeric")
    run(f"INSERT INTO {name} VALUES (1, 1.5)")
    with pytest.raises(BadRow, match=r"'1\.5'"):
        read_table(database.dsn, name, columns="amount LONG")
    with pytest.raises(SourceError, match="there is no table nowhere"):
        read_table(database.dsn, "nowhere")
    with pytest.raises(SourceError, match="syntax error"):
        read_table(database.dsn, query="SELEC 1")
    with pytest.raises(PlanError, match="either a table or a query"):
        read_table(database.dsn)
