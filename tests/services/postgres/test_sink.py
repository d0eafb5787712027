"""The sink against a real server: every encoding, every kind of value, exactly once under crashes of both sides."""

from __future__ import annotations

import math
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.fixtures.waiting import until
from tests.services.database import Database

from headrace.adapters.postgres import PostgresSink
from headrace.errors import PlanError, SinkError, Unavailable
from headrace.io.adapter import DeliveryId, patiently
from headrace.schema import Schema
from headrace.time import INFINITY, NEG_INFINITY

pytestmark = pytest.mark.services
NewTable = Callable[..., str]
PAYLOAD = "symbol STRING, price DOUBLE"
SOURCE = Path(__file__).parents[3]


def delivery(batch: int, part: int = 0, query: str = "q") -> DeliveryId:
    return DeliveryId(query, 0, part, batch)


def upserts(batch: int, rows: dict[str, float | None]) -> pa.Table:
    """A price upserts, None deletes."""
    return pa.table({
        "op": pa.array(["delete" if price is None else "upsert" for price in rows.values()], pa.string()),
        "_batch": pa.array([batch] * len(rows), pa.int64()),
        "le": pa.array([batch] * len(rows), pa.int64()),
        "symbol": pa.array(list(rows), pa.string()),
        "price": pa.array(list(rows.values()), pa.float64()),
    })  # fmt: skip


def final(symbols: list[str], le: int = 1, re: int = 5) -> pa.Table:
    return pa.table({
        "le": pa.array([le] * len(symbols), pa.int64()), "re": pa.array([re] * len(symbols), pa.int64()),
        "symbol": pa.array(symbols, pa.string()), "price": pa.array([1.5] * len(symbols), pa.float64()),
    })  # fmt: skip


def selected(database: Database, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.dsn) as connection:
        return connection.execute(query.encode()).fetchall()


def execute(database: Database, statement: str) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.fixture
def sink(database: Database, table: NewTable) -> Callable[..., PostgresSink]:
    """Makes opened sinks for a new table."""

    def make(payload: str = PAYLOAD, *, table_name: str = "", opened: bool = True, **options: Any) -> PostgresSink:
        options = {"create": True, "deliveries": f"{table()}_deliveries", **options}
        made = PostgresSink(dsn=database.dsn, table=table_name or table(), **options)
        if opened:
            made.open("q", 0, Schema.of(payload), -1)
        return made

    return make


def test_upserts_and_deletes_leave_the_latest_rows(database: Database, sink: Callable[..., PostgresSink]):
    one = sink(encoding="upsert", key=("symbol",))
    one.deliver(delivery(0), upserts(0, {"a": 1.0, "b": 2.0, "c": 3.0}))
    one.deliver(delivery(1), upserts(1, {"a": 4.0, "b": None, "d": 5.0}))
    one.deliver(delivery(2), upserts(2, {"x": None, "c": None}))
    assert selected(database, f"SELECT symbol, price FROM {one.table} ORDER BY 1") == [("a", 4.0), ("d", 5.0)]


def test_a_delivery_that_is_recorded_is_not_repeated(database: Database, sink: Callable[..., PostgresSink]):
    one = sink(encoding="final")
    for batch in (0, 1, 1, 0, 2, 1):
        one.deliver(delivery(batch), final([f"batch {batch}"]))
    one.deliver(delivery(1, part=1), final(["another part"]))
    one.deliver(delivery(1, query="other"), final(["another query"]))
    rows = [row[0] for row in selected(database, f"SELECT symbol FROM {one.table} ORDER BY symbol")]
    assert rows == ["another part", "another query", "batch 0", "batch 1", "batch 2"]
    recorded = selected(database, f"SELECT query, output, part, batch FROM {one.deliveries} ORDER BY 1, 3")
    assert recorded == [("other", 0, 0, 1), ("q", 0, 0, 2), ("q", 0, 1, 1)]


def test_all_kinds_of_values_arrive_as_they_are(database: Database, sink: Callable[..., PostgresSink]):
    payload = Schema.of(
        "b BYTE, s SHORT, i INT, l LONG, f FLOAT, d DOUBLE, t BOOLEAN, c CHAR, x STRING, at DATETIME, "
        "li ARRAY<LONG>, ls ARRAY<STRING>, lt ARRAY<DATETIME>"
    )
    when = datetime(2024, 5, 1, 12, 0, 0, 123456, UTC)
    texts = ["", "a,b", 'quo"te', "line\nend\r\n", "\\.", "\\N", "tab\there", "žluť 🐎", "NULL", "\n\\.\n", " ", None]
    size = len(texts)
    values: dict[str, list[Any]] = {
        "b": [-128] * size, "s": [-32768] * size, "i": [-(2**31)] * size, "l": [2**63 - 1] * size,
        "f": [0.5] * size, "d": [math.inf, -math.inf, 1e-300, 0.1 + 0.2, *[None] * (size - 4)],
        "t": [True, False, None, *[True] * (size - 3)], "c": ["ž"] * size, "x": texts, "at": [when] * size,
        "li": [[1, None, 3], [], None, *[[7]] * (size - 3)], "ls": [[text, 'a"\\,{}', "NULL"] for text in texts],
        "lt": [[when, None]] * size,
    }  # fmt: skip
    one = sink(str(payload), encoding="final")
    rows = pa.table([pa.array(values[field.name], field.type.arrow) for field in payload], schema=payload.arrow)
    rows = rows.add_column(0, "re", pa.array([INFINITY] * size)).add_column(0, "le", pa.array(range(size), pa.int64()))
    one.deliver(delivery(0), rows)
    found = selected(database, f"SELECT {', '.join(values)} FROM {one.table} ORDER BY le")
    assert found == list(zip(*values.values(), strict=True))


def test_nan_arrives(database: Database, sink: Callable[..., PostgresSink]):
    one = sink("price DOUBLE, small FLOAT", encoding="final")
    one.deliver(delivery(0), pa.table({"le": [1], "re": [2], "price": [math.nan],
                                       "small": pa.array([math.nan], pa.float32())}))  # fmt: skip
    assert selected(database, f"SELECT price::text, small::text FROM {one.table}") == [("NaN", "NaN")]


def test_lifetimes_are_times_or_ticks_and_may_be_infinite(database: Database, sink: Callable[..., PostgresSink]):
    rows = pa.table({"le": pa.array([NEG_INFINITY, 1_500_000], pa.int64()), "re": [2_000_000, INFINITY],
                     "symbol": ["a", "b"], "price": [1.0, 2.0]})  # fmt: skip
    one, two = sink(encoding="final", times="timestamp"), sink(encoding="final")
    one.deliver(delivery(0), rows)
    two.deliver(delivery(0), rows)
    times = selected(database, f"SELECT le::text, re::text FROM {one.table} ORDER BY symbol")
    assert times == [("-infinity", "1970-01-01 00:00:02+00"), ("1970-01-01 00:00:01.5+00", "infinity")]
    ticks = selected(database, f"SELECT le, re FROM {two.table} ORDER BY symbol")
    assert ticks == [(NEG_INFINITY, 2_000_000), (1_500_000, INFINITY)]


def test_logs_append_with_their_batch(database: Database, sink: Callable[..., PostgresSink]):
    log = sink(encoding="changes", times="ticks")
    rows = final(["a"]).add_column(0, "_change_type", pa.array(["insert"], pa.string()))
    log.deliver(delivery(3), rows)
    names = "_batch, _change_type, le, re, symbol, price"
    assert selected(database, f"SELECT {names} FROM {log.table}") == [(3, "insert", 1, 5, "a", 1.5)]
    events = sink(encoding="events", times="ticks")
    rows = final(["a"]).add_column(0, "kind", pa.array(["insert"], pa.string()))
    events.deliver(delivery(4), rows.append_column("re_new", pa.nulls(1, pa.int64())))
    names = "_batch, kind, le, re, re_new, symbol"
    assert selected(database, f"SELECT {names} FROM {events.table}") == [(4, "insert", 1, 5, None, "a")]


def test_a_table_that_exists_gets_the_columns_it_has(
    database: Database, table: NewTable, sink: Callable[..., PostgresSink]
):
    name = table("\"Key\" text UNIQUE, price numeric(8, 2), valid_from timestamptz, note text DEFAULT '-'")
    columns = {"symbol": "Key", "le": "valid_from"}
    one = sink(table_name=name, encoding="upsert", key=("symbol",), create=False, columns=columns)
    one.deliver(delivery(0), upserts(0, {"a": 1.25, "b": 2.0}))
    one.deliver(delivery(1), upserts(1, {"a": 3.5, "b": None}))
    found = selected(database, f'SELECT "Key", price::text, extract(epoch FROM valid_from)::text, note FROM {name}')
    assert found == [("a", "3.50", "0.000001", "-")]


def test_a_key_of_two_columns_and_names_that_need_quotes(
    database: Database, schema: str, sink: Callable[..., PostgresSink]
):
    name = f'{schema}."odd ""name"'
    one = sink("key_part STRING, select LONG, Price DOUBLE", table_name=name, encoding="upsert",
               key=("key_part", "select"))  # fmt: skip
    rows = pa.table({"op": ["upsert", "upsert"], "_batch": [0, 0], "le": [1, 1], "key_part": ["a", "a"],
                     "select": [1, 2], "Price": [1.0, 2.0]})  # fmt: skip
    one.deliver(delivery(0), rows)
    gone = rows.slice(1).set_column(0, "op", pa.array(["delete"]))
    one.deliver(delivery(1), gone)
    assert selected(database, f'SELECT key_part, "select", "Price" FROM {one.table}') == [("a", 1, 1.0)]


def test_null_in_a_key_is_an_error_unless_the_table_takes_nulls_for_equal(
    database: Database, table: NewTable, sink: Callable[..., PostgresSink]
):
    strict = sink(encoding="upsert", key=("symbol",))
    rows = upserts(0, {"a": 1.0})
    with_null = rows.set_column(3, "symbol", pa.array([None], pa.string()))
    with pytest.raises(SinkError, match=r"key of the table .* is null"):
        strict.deliver(delivery(0), with_null)
    name = table("symbol text, price float8, UNIQUE NULLS NOT DISTINCT (symbol)")
    loose = sink(table_name=name, encoding="upsert", key=("symbol",))
    loose.deliver(delivery(1), with_null)
    loose.deliver(delivery(2), with_null)
    assert selected(database, f"SELECT symbol, price FROM {name}") == [(None, 1.0)]
    loose.deliver(delivery(3), with_null.set_column(0, "op", pa.array(["delete"])))
    assert selected(database, f"SELECT symbol, price FROM {name}") == []


@pytest.mark.parametrize(
    ("columns", "message", "instead"),
    [
        (None, "there is no table", "CREATE TABLE"),
        ("symbol text", "no column 'price'", "CREATE TABLE"),
        ("symbol text PRIMARY KEY, price text", "'price' .* is text, and cannot get DOUBLE", "double precision"),
        ("symbol text, price float8", "unique constraint on exactly the key", 'ADD UNIQUE ("symbol")'),
        ("symbol text, price float8, PRIMARY KEY (symbol, price)", "exactly the key", 'ADD UNIQUE ("symbol")'),
        ("symbol text PRIMARY KEY, price float8, must int NOT NULL", "must not be null.*: must", "DROP NOT NULL"),
        ("symbol text PRIMARY KEY, price float8 GENERATED ALWAYS AS (1) STORED", "computes its values", "columns="),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_what_to_write(
    table: NewTable, sink: Callable[..., PostgresSink], columns: str | None, message: str, instead: str
):
    one = sink(table_name=table(columns), encoding="upsert", key=("symbol",), create=False, opened=False)
    with pytest.raises(SinkError, match=message) as found:
        one.open("q", 0, Schema.of(PAYLOAD), -1)
    assert instead in str(found.value)


def test_values_that_the_server_refuses_name_the_column_and_leave_nothing(
    database: Database, table: NewTable, sink: Callable[..., PostgresSink]
):
    name = table("symbol varchar(3) PRIMARY KEY, price float8")
    one = sink(table_name=name, encoding="upsert", key=("symbol",))
    with pytest.raises(SinkError, match=r"too long.*column symbol") as found:
        one.deliver(delivery(0), upserts(0, {"ok": 1.0, "long name": 2.0}))
    assert "ALTER COLUMN" in str(found.value)
    with pytest.raises(SinkError, match="0x00"):
        one.deliver(delivery(0), upserts(0, {"a\0b": 1.0}))
    one.deliver(delivery(0), upserts(0, {"ok": 1.0}))
    assert selected(database, f"SELECT symbol FROM {name}") == [("ok",)]


def test_a_role_without_rights_is_told_so(database: Database, schema: str, sink: Callable[..., PostgresSink]):
    one = sink(encoding="final")
    role = f"role_{schema}"
    execute(database, f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}")
    try:
        dsn = one.dsn.replace("postgres@", f"{role}@")
        other = PostgresSink(dsn=dsn, table=one.table, encoding="final", deliveries=one.deliveries)
        with pytest.raises(SinkError, match="permission denied") as found:
            other.open("q", 0, Schema.of(PAYLOAD), -1)
        assert "GRANT" in str(found.value)
        other.close()
    finally:
        execute(database, f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_checkpoint_older_than_the_table_is_refused(sink: Callable[..., PostgresSink]):
    one = sink(encoding="final")
    one.deliver(delivery(7), final(["a"]))
    one.open("q", 0, Schema.of(PAYLOAD), 7)
    with pytest.raises(SinkError, match="batch 7 of this query, but its checkpoint ends with batch 3"):
        one.open("q", 0, Schema.of(PAYLOAD), 3)


def test_a_delivery_that_waits_for_a_lock_can_be_interrupted(database: Database, sink: Callable[..., PostgresSink]):
    one = sink(encoding="final")
    with psycopg.connect(database.dsn) as other, ThreadPoolExecutor(1) as threads:
        other.execute(f"LOCK TABLE {one.table} IN ACCESS EXCLUSIVE MODE".encode())
        waiting = threads.submit(one.deliver, delivery(0), final(["a"]))
        while not waiting.done():
            one.interrupt()
        with pytest.raises(Unavailable):
            waiting.result()
    one.deliver(delivery(0), final(["a"]))
    assert selected(database, f"SELECT symbol FROM {one.table}") == [("a",)]


def test_a_table_that_was_dropped_is_not_created_again(database: Database, sink: Callable[..., PostgresSink]):
    one = sink(encoding="final")
    execute(database, f"DROP TABLE {one.table}")
    with pytest.raises(SinkError, match="was dropped, with the rows of batches up to 3"):
        one.open("q", 0, Schema.of(PAYLOAD), 3)


def test_neither_passwords_nor_addresses_are_shown():
    sink = PostgresSink(dsn="postgresql://me:hunter2@127.0.0.1:1/db", table="t", encoding="final")
    assert str(sink) == "postgres(t, final)"
    assert "hunter2" not in repr(sink)
    assert pickle.loads(pickle.dumps(sink)) == sink  # noqa: S301 - our own value
    with pytest.raises(Unavailable) as found:
        sink.deliver(delivery(0), final(["a"]))
    assert "hunter2" not in str(found.value)
    for dsn in ("host=x hunter2", "postgresql://me:hunter2@h:port/db?x=hunter2", ""):
        with pytest.raises(PlanError) as wrong:
            PostgresSink(dsn=dsn, table="t", encoding="final")
        assert "hunter2" not in str(wrong.value)


def test_a_database_that_does_not_exist_is_an_error_and_not_away(database: Database):
    sink = PostgresSink(dsn=database.dsn_of("nowhere"), table="t", encoding="final")
    with pytest.raises(SinkError, match='"nowhere" does not exist'):
        sink.deliver(delivery(0), final(["a"]))


def test_parts_run_at_the_same_time(database: Database, sink: Callable[..., PostgresSink]):
    one = sink(encoding="upsert", key=("symbol",))

    def run(part: int) -> None:
        for batch in range(20):
            one.deliver(delivery(batch, part), upserts(batch, {f"{part}-{i}": float(batch) for i in range(50)}))

    threads = [threading.Thread(target=run, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert selected(database, f"SELECT count(*), min(price), max(price) FROM {one.table}") == [(200, 19.0, 19.0)]


def test_two_attempts_at_the_same_part_deliver_it_once(database: Database, sink: Callable[..., PostgresSink]):
    one = sink(encoding="final")
    threads = [threading.Thread(target=one.deliver, args=(delivery(b), final([f"{b}"] * 500))) for b in [0] * 6]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert selected(database, f"SELECT count(*) FROM {one.table}") == [(500,)]


def test_a_deadlock_passes(database: Database, sink: Callable[..., PostgresSink]):
    one = sink(encoding="upsert", key=("symbol",))
    one.deliver(delivery(0), upserts(0, {"a": 1.0, "b": 1.0}))
    outcome: list[Exception | None] = []

    def attempt() -> None:
        try:
            one.deliver(delivery(1), upserts(1, {"a": 2.0, "b": 2.0}))
            outcome.append(None)
        except Unavailable as error:
            outcome.append(error)

    with psycopg.connect(database.dsn) as other:
        other.execute("SET deadlock_timeout = '60s'")  # so that ours is the one that the server ends
        other.execute(f"UPDATE {one.table} SET price = 9 WHERE symbol = 'b'".encode())
        thread = threading.Thread(target=attempt)
        thread.start()
        waits = f"SELECT 1 FROM pg_locks WHERE NOT granted AND pid <> {other.info.backend_pid}"
        until(lambda: selected(database, waits))  # ours has updated a, and waits for b
        other.execute(f"UPDATE {one.table} SET price = 9 WHERE symbol = 'a'".encode())
        thread.join()
    assert len(outcome) == 1
    assert isinstance(outcome[0], Unavailable)
    assert "deadlock" in str(outcome[0])
    one.deliver(delivery(1), upserts(1, {"a": 2.0, "b": 2.0}))
    assert selected(database, f"SELECT DISTINCT price FROM {one.table}") == [(2.0,)]


def test_a_server_killed_in_the_middle_gets_every_batch_once(database: Database, sink: Callable[..., PostgresSink]):
    one = sink(encoding="final")
    latest = sink(encoding="upsert", key=("symbol",), table_name=f"{one.table}_latest")
    batches, chance, killed = 0, random.Random(5), threading.Event()

    def run() -> None:
        nonlocal batches
        while batches < 60 or not killed.is_set():
            batch, batches = batches, batches + 1
            rows = final([f"{batch}-{i}" for i in range(200)])
            patiently(lambda b=batch, r=rows: one.deliver(delivery(b), r), "test")  # type: ignore[misc]
            new = upserts(batch, {f"{i}": None if (i + batch) % 7 == 0 else float(batch) for i in range(200)})
            patiently(lambda b=batch, r=new: latest.deliver(delivery(b, part=1), r), "test")  # type: ignore[misc]

    thread = threading.Thread(target=run)
    thread.start()
    for _ in range(3):
        time.sleep(chance.uniform(0.02, 0.15))
        database.restart(kill=True)
    killed.set()
    thread.join()
    found = selected(database, f"SELECT count(*), count(DISTINCT symbol) FROM {one.table}")
    assert found == [(batches * 200, batches * 200)]
    expected = [(f"{i}", float(batches - 1)) for i in range(200) if (i + batches - 1) % 7]
    assert sorted(selected(database, f"SELECT symbol, price FROM {latest.table}")) == sorted(expected)


def test_a_connection_that_the_server_has_ended_is_not_taken(database: Database, sink: Callable[..., PostgresSink]):
    one = sink(encoding="final")
    one.deliver(delivery(0), final(["before"]))
    database.restart(kill=True)
    one.deliver(delivery(1), final(["after"]))
    assert selected(database, f"SELECT symbol FROM {one.table} ORDER BY 1") == [("after",), ("before",)]


PROGRAM = textwrap.dedent("""
    import pickle, sys
    import pyarrow as pa
    from headrace.io.adapter import DeliveryId
    sink = pickle.load(open(sys.argv[1], "rb"))
    for batch in range(int(sys.argv[2]), 100000):
        rows = pa.table({"le": [batch] * 100, "re": [batch + 1] * 100,
                         "symbol": [f"{batch}-{i}" for i in range(100)], "price": [1.0] * 100})
        print("begin", batch, flush=True)
        sink.deliver(DeliveryId("q", 0, 0, batch), rows)
        print("end", batch, flush=True)
""")


@pytest.mark.slow
def test_a_process_killed_while_it_delivers_leaves_each_batch_once(
    database: Database, sink: Callable[..., PostgresSink], tmp_path: Path
):
    one = sink(encoding="final")
    (tmp_path / "sink").write_bytes(pickle.dumps(one))
    environment = {**os.environ, "PYTHONPATH": str(SOURCE / "src")}
    chance, batch = random.Random(11), 0
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "sink"), str(batch)], stdout=subprocess.PIPE, env=environment
        )
        assert process.stdout is not None
        process.stdout.readline()  # it has begun
        first = process.stdout.readline().decode()  # and delivered
        time.sleep(chance.uniform(0.0, 0.2))
        process.send_signal(signal.SIGKILL)
        lines = [first, *process.stdout.read().decode().split("\n")[:-1]]  # the last one may be cut off
        process.wait()
        process.stdout.close()
        complete = [int(line.split()[1]) for line in lines if line.startswith("end ")]
        batch = max([*complete, batch - 1]) + 1  # the one that was begun is delivered again
    one.deliver(delivery(batch), final([f"{batch}-{i}" for i in range(100)]))
    found = selected(database, f"SELECT count(*), count(DISTINCT symbol) FROM {one.table}")
    assert found == [((batch + 1) * 100, (batch + 1) * 100)]
    assert batch > 5
