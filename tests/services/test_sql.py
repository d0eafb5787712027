"""Scripts of SQL that read and write real servers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from tests.services.broker import Broker
from tests.services.database import Database
from typer.testing import CliRunner

import headrace as hr
from headrace.adapters.postgres import PostgresChanges
from headrace.cli import app
from headrace.errors import SqlError

NewTopic = Callable[..., str]
NewTable = Callable[..., str]
Execute = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(autouse=True)
def _places(broker: Broker, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER", broker.bootstrap)
    monkeypatch.setenv("DSN", database.dsn)


@pytest.fixture
def execute(database: Database) -> Iterator[Execute]:
    """Runs a statement in a transaction of its own."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:

        def one(statement: str) -> list[tuple[Any, ...]]:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

        yield one


@pytest.fixture
def logged(table: NewTable, database: Database) -> Iterator[NewTable]:
    """Makes tables whose slots are dropped after the test."""
    made: list[str] = []

    def create(columns: str) -> str:
        made.append(table(columns))
        return made[-1]

    yield create
    for name in made:
        source = PostgresChanges.of(database.dsn, name)
        source.drop()
        source.close()


def send(broker: Broker, topic: str, values: Sequence[dict[str, Any] | None], key: str = "symbol") -> None:
    """Each value as JSON, with a column of it as the key; None is a tombstone of the value before it."""
    producer, last = Producer({"bootstrap.servers": broker.bootstrap}), ""
    for value in values:
        last = json.dumps({key: value[key]}) if value is not None else last
        producer.produce(topic, None if value is None else json.dumps(value), last)
    assert producer.flush(30) == 0


def trade(second: int, symbol: str, price: float) -> dict[str, Any]:
    return {"symbol": symbol, "ts": f"2024-05-01T12:00:{second:02}Z", "price": price}


def latest(topic: str, wanted: dict[str, int]) -> dict[str, int]:
    """The latest row of each item in a compacted topic of totals, without what was deleted.

    A broker shows the end of a transaction some milliseconds after its commit: so this waits for what is wanted.
    """
    text = """
        CREATE STREAM latest (item STRING, total LONG) LIFETIME CHANGES KEY item ENCODING 'upsert'
            SOURCE TOPIC (env('BROKER'), '{}', key_columns => 'item');
        SELECT * FROM latest;
    """
    for _ in range(60):
        rows = hr.sql(text.format(topic)).cht().to_pylist()
        found = {row["item"]: row["total"] for row in rows if row["re"] is None}
        if found == wanted:
            break
        time.sleep(0.5)
    return found


KAFKA_TO_POSTGRES = """
    CREATE STREAM trades (symbol STRING, ts DATETIME, price DOUBLE, _partition INT) ORDER BY ts
        SOURCE kafka (env('BROKER'), '{topic}', key_columns => 'symbol STRING')
        WITH PROGRESS ORDERED;
    CREATE TABLE names SOURCE postgres (env('DSN'), query => 'SELECT symbol, upper(name) AS label FROM {names}');

    SELECT symbol, avg(price) AS price, count(*) AS trades FROM trades [TUMBLING 10 s] GROUP BY symbol
    INTO postgres (env('DSN'), '{prices}', encoding => 'final', create => TRUE, columns => 'price AS average');

    QUERY labelled AS SELECT label, price, _partition FROM trades JOIN names ON trades.symbol = names.symbol;
"""


def test_a_script_reads_a_topic_and_writes_a_table(
    broker: Broker, topic: NewTopic, table: NewTable, execute: Execute, tmp_path: Path
):
    source, prices, names = topic(1), table(), table("symbol text, name text")
    execute(f"INSERT INTO {names} VALUES ('A', 'apple')")
    send(broker, source, [trade(1, "A", 10.0), trade(4, "B", 50.0), trade(6, "A", 12.0), trade(12, "A", 7.0)])
    script = hr.script(KAFKA_TO_POSTGRES.format(topic=source, names=names, prices=prices))
    query = script.start(hr.memory(), host="local", checkpoint=str(tmp_path / "state"))
    try:
        query.process_all_available()
        rows = f"SELECT symbol, average, trades FROM {prices} ORDER BY 1, 2"
        assert execute(rows) == [("A", 11.0, 2), ("B", 50.0, 1)], "the last window is not over"
        send(broker, source, [trade(30, "B", 1.0)])
        query.process_all_available()
        assert execute(rows) == [("A", 7.0, 1), ("A", 11.0, 2), ("B", 50.0, 1)]
    finally:
        query.stop()
    labelled = script.queries["labelled"].cht().to_pylist()
    assert [(row["label"], row["price"], row["_partition"]) for row in labelled] == [
        ("APPLE", 10.0, 0), ("APPLE", 12.0, 0), ("APPLE", 7.0, 0),
    ]  # fmt: skip


POSTGRES_TO_KAFKA = """
    CREATE STREAM orders SOURCE postgres (env('DSN'), '{orders}');

    SELECT item, sum(amount) AS total FROM orders [SNAPSHOT] GROUP BY item
    INTO kafka (env('BROKER'), '{totals}', encoding => 'upsert', key => 'item', ended => 'delete', create => TRUE);
"""


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # see `latest`
def test_a_script_reads_changes_of_a_table_and_writes_a_compacted_topic(
    broker: Broker, topic: NewTopic, logged: NewTable, execute: Execute, tmp_path: Path
):
    orders, totals = logged("id bigint PRIMARY KEY, item text, amount bigint"), f"{topic()}-totals"
    execute(f"INSERT INTO {orders} VALUES (1, 'bread', 3), (2, 'milk', 1), (3, 'bread', 4)")
    text = POSTGRES_TO_KAFKA.format(orders=orders, totals=totals)
    assert hr.script(text).streams["orders"].schema == hr.Schema.of("id LONG, item STRING, amount LONG")
    query = hr.script(text).start(host="local", checkpoint=str(tmp_path / "state"))
    try:
        query.process_all_available()
        first, second = {"bread": 7, "milk": 1}, {"bread": 9}
        assert latest(totals, first) == first
        execute(f"UPDATE {orders} SET amount = 5 WHERE id = 1")
        execute(f"DELETE FROM {orders} WHERE id = 2")
        query.process_all_available()
        assert latest(totals, second) == second
    finally:
        query.stop()
    assert broker.topics()[totals] >= 1


def test_headrace_run_runs_a_script(
    logged: NewTable, table: NewTable, execute: Execute, tmp_path: Path, database: Database
):
    orders, copy = logged("id bigint PRIMARY KEY, item text, amount bigint"), table()
    execute(f"INSERT INTO {orders} VALUES (1, 'bread', 3), (2, 'milk', 1)")
    script = tmp_path / "copy.sql"
    script.write_text(f"""
        CREATE STREAM orders (id LONG, amount LONG, _commit_time DATETIME) LIFETIME CHANGES AT _commit_time KEY id
            SOURCE postgres (env('DSN'), '{orders}') WITH PROGRESS ORDERED;
        SELECT id, amount FROM orders
        INTO postgres (env('DSN'), '{copy}', encoding => 'upsert', key => 'id', ended => 'delete', create => TRUE);
    """)
    shown = CliRunner().invoke(app, ["run", str(script)], catch_exceptions=False)
    assert shown.exit_code == 0
    assert execute(f"SELECT id, amount FROM {copy} ORDER BY 1") == [(1, 3), (2, 1)]
    assert database.dsn not in shown.output


def test_the_same_streams_as_in_python(logged: NewTable, database: Database):
    orders = logged("id bigint PRIMARY KEY, item text, ts timestamptz NOT NULL")
    streams = {
        f"SOURCE postgres (env('DSN'), '{orders}')": hr.read_postgres(database.dsn, orders),
        f"(id LONG, item STRING) SOURCE postgres (env('DSN'), '{orders}', name => 'other', snapshot => FALSE)":
            hr.read_postgres(database.dsn, orders, "id LONG, item STRING", name="other", snapshot=False),
        f"LIFETIME CHANGES AT ts SOURCE postgres (env('DSN'), '{orders}') WITH PROGRESS ADVANCE 10 s":
            hr.read_postgres(database.dsn, orders, at="ts", progress=hr.advance("10 s")),
        f"LIFETIME CHANGES KEY item SOURCE postgres (env('DSN'), '{orders}')":
            hr.read_changes(PostgresChanges.of(database.dsn, orders), key="item"),
        f"ORDER BY ts SOURCE postgres (env('DSN'), '{orders}', cursor => 'id')":
            hr.read_postgres(database.dsn, orders, cursor="id", lifetime=hr.point("ts")),
    }  # fmt: skip
    for clauses, stream in streams.items():
        assert hr.sql(f"CREATE STREAM t {clauses}; SELECT * FROM t").node == stream.node
    table = hr.script(f"CREATE TABLE t SOURCE postgres (env('DSN'), '{orders}')").session.catalog.tables["t"]
    assert table.schema == hr.Schema.of("id LONG, item STRING, ts DATETIME")


@pytest.mark.parametrize(("clauses", "message"), [
    ("SOURCE postgres (env('DSN'), 'no_such_table')", "there is no table no_such_table"),
    ("ORDER BY ts SOURCE postgres (env('DSN'), '{}')", "this source has the changes of a table"),
    ("(id LONG, nobody LONG) SOURCE postgres (env('DSN'), '{}')", "nobody"),
])  # fmt: skip
def test_errors_point_at_the_place_and_show_no_addresses(
    clauses: str, message: str, logged: NewTable, database: Database
):
    orders = logged("id bigint PRIMARY KEY, ts timestamptz")
    with pytest.raises((SqlError, hr.HeadraceError), match=message) as caught:
        hr.sql(f"CREATE STREAM t\n{clauses.format(orders)};\nSELECT * FROM t").cht()
    assert database.dsn not in str(caught.value)


def test_rows_of_a_table_by_a_cursor(table: NewTable, execute: Execute):
    log = table("id bigserial PRIMARY KEY, ts timestamptz NOT NULL, v int")
    execute(f"INSERT INTO {log} (ts, v) VALUES ('2024-05-01 12:00:01Z', 1), ('2024-05-01 12:00:04Z', 2)")
    rows = hr.sql(f"""
        CREATE STREAM log (ts DATETIME, v INT) ORDER BY ts SOURCE postgres (env('DSN'), '{log}', cursor => 'id')
            WITH PROGRESS ORDERED;
        SELECT v FROM log
    """).cht()
    assert rows["v"].to_pylist() == [1, 2]
