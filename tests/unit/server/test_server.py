"""A server: what statements create lasts, queries run, and start again where they were."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.fixtures.waiting import PATIENCE

from headrace.errors import (
    AccessError,
    HeadraceError,
    ServerError,
    SqlError,
    SubscriptionError,
    TableError,
    UnknownColumn,
)
from headrace.server.access import Limits
from headrace.server.connection import ServerConnection
from headrace.server.core import HeadraceServer
from headrace.server.interface import RowsReply, Said, Subscribed, Who

ADMIN = Who("ada", "admin")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], ServerConnection]]:
    """Start the server, again and again; the one before is stopped."""
    running: list[HeadraceServer] = []

    def started() -> ServerConnection:
        while running:
            running.pop().stop()
        running.append(HeadraceServer(tmp_path / "data", roots=[str(tmp_path / "files")], durable=False))
        running[-1].start()
        return running[-1].connect(ADMIN)

    yield started
    while running:
        running.pop().stop()


def said(client: ServerConnection, text: str) -> list[str]:
    return [reply.message for reply in client.execute(text) if isinstance(reply, Said)]


def asked(client: ServerConnection, text: str) -> list[dict[str, Any]]:
    (reply,) = client.execute(text)
    assert isinstance(reply, RowsReply)
    return list(reply.table.to_pylist())


def states(client: ServerConnection) -> dict[str, str]:
    return {row["query"]: row["state"] for row in asked(client, "SHOW QUERIES")}


def folders(client: ServerConnection) -> list[str]:
    data = client.server.data
    return sorted(path.name for folder in ("logs", "checkpoints") for path in (data / folder).glob("*"))


def until(client: ServerConnection, text: str, expected: list[dict[str, Any]]) -> None:
    """Ask until the answer is the expected one."""
    deadline = time.monotonic() + PATIENCE
    while (found := asked(client, text)) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def test_clients_insert_physical_events_with_dates(start: Callable[[], ServerConnection]):
    client = start()
    said(client, "CREATE STREAM orders (kind STRING, le DATETIME, re DATETIME, re_new DATETIME, n LONG) "
                 "LIFETIME PHYSICAL WITH PROGRESS EXPLICIT; QUERY q AS SELECT n FROM orders;")  # fmt: skip
    begin, end, sooner = "2024-01-01T00:00:00Z", "2024-01-01T02:00:00Z", "2024-01-01T01:00:00Z"
    order = {"kind": "insert", "le": begin, "re": end, "n": 1}
    client.insert("orders", [order, {"kind": "insert", "le": begin, "n": 2}])  # the second has no end
    client.insert("orders", [order | {"kind": "retract", "re_new": sooner}, {"kind": "cti", "le": sooner}])
    rows = asked(client, "SELECT * FROM q")
    assert [(row["n"], row["re"] and row["re"].hour) for row in rows] == [(1, 1), (2, None)]


def test_a_table_and_a_view_last(start: Callable[[], ServerConnection]):
    client = start()
    said(client, "CREATE TABLE items (id LONG PRIMARY KEY, class STRING NOT NULL, price LONG DEFAULT 1)")
    assert said(client, "INSERT INTO items VALUES (1, 'a', 10), (2, 'b', 20)") == ["2 rows inserted into items"]
    said(client, "CREATE MATERIALIZED VIEW totals AS SELECT class, sum(price) AS total FROM items GROUP BY class")
    totals = "SELECT * FROM totals ORDER BY class"
    assert asked(client, totals) == [{"class": "a", "total": 10}, {"class": "b", "total": 20}]  # at once
    until(client, totals, [{"class": "a", "total": 10}, {"class": "b", "total": 20}])
    client = start()
    said(client, "UPDATE items SET price = price + 1 WHERE id = 1; DELETE FROM items WHERE id = 2")
    said(client, "INSERT INTO items (id, class) VALUES (3, 'a')")
    until(client, totals, [{"class": "a", "total": 12}])
    client = start()
    until(client, totals, [{"class": "a", "total": 12}])
    assert asked(client, "SELECT id, price FROM items ORDER BY id") == [{"id": 1, "price": 11}, {"id": 3, "price": 1}]
    with pytest.raises(SqlError, match="has a row with this key already"):
        said(client, "INSERT INTO items VALUES (1, 'z', 0)")


def test_queries_are_composed_while_they_run(start: Callable[[], ServerConnection]):
    client = start()
    said(client, "CREATE STREAM trades (symbol STRING, price LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 60 s")
    said(client, "QUERY sums AS SELECT symbol, sum(price) AS total FROM trades [TUMBLING 10 s] GROUP BY symbol")
    rows = [{"symbol": "A", "price": n, "ts": f"2024-01-01T00:00:{n:02d}Z"} for n in (1, 2, 12, 22)]
    assert client.insert("trades", rows) == 4
    totals = "SELECT symbol, total FROM sums"
    deadline = time.monotonic() + PATIENCE
    while len(asked(client, totals)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    said(client, "CREATE STREAM high AS SELECT symbol, total FROM sums WHERE total > 2")  # it begins with the history
    subscription = client.subscribe("high")
    held = [row["total"] for row in _rows_until(subscription, 2) if row["kind"] == "insert"]
    assert sorted(held) == [3, 12]
    said(client, "STOP QUERY high")
    client.insert("trades", [{"symbol": "A", "price": 30, "ts": "2024-01-01T00:00:05Z"}])
    assert states(client) == {"sums": "running", "high": "stopped"}
    cursor = subscription.cursor
    client = start()
    assert states(client) == {"sums": "running", "high": "stopped"}
    said(client, "START QUERY high")
    changes = _rows_until(client.subscribe("high", cursor=cursor), 2)
    assert [(row["kind"], row["total"]) for row in changes if row["kind"] != "cti"] == [("retract", 3), ("insert", 33)]


def _rows_until(subscription: Any, events: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + PATIENCE
    while sum(row["kind"] != "cti" for row in found) < events:
        assert time.monotonic() < deadline, found
        piece = subscription.next(0.1)
        found += [] if piece is None else piece.rows.to_pylist()
    return found


def test_a_text_is_carried_out_as_a_whole_or_not_at_all(start: Callable[[], ServerConnection]):
    client = start()
    said(client, "CREATE TABLE t (a LONG)")
    before = folders(client)
    text = "CREATE STREAM s AS SELECT a FROM t; CREATE VIEW v AS SELECT * FROM s; QUERY q AS SELECT nothing FROM v"
    with pytest.raises(SqlError, match="there is no column 'nothing'"):
        said(client, text)
    assert asked(client, "SHOW STREAMS") == asked(client, "SHOW VIEWS") == asked(client, "SHOW QUERIES") == []
    assert folders(client) == before
    client = start()
    assert asked(client, "SHOW STREAMS") == []
    assert [row["table"] for row in asked(client, "SHOW TABLES")] == ["t"]


def test_what_is_read_cannot_be_dropped(start: Callable[[], ServerConnection]):
    client = start()
    said(client, "CREATE TABLE t (a LONG); QUERY q AS SELECT a + 1 AS b FROM t; CREATE STREAM s AS SELECT b FROM q")
    with pytest.raises(SqlError, match="STREAM s still reads q"):
        said(client, "DROP QUERY q")
    said(client, "DROP STREAM s")
    said(client, "DROP QUERY q")
    said(client, "DROP TABLE t")
    assert not client.server.objects
    assert not folders(client)
    said(client, "CREATE TABLE t (b STRING)")  # the name is free, and has other columns
    client = start()
    assert asked(client, "SELECT * FROM t") == []


def test_inserts_are_idempotent_by_a_key(start: Callable[[], ServerConnection]):
    client = start()
    said(client, "CREATE TABLE t (a LONG); CREATE STREAM s (a LONG)")
    for name in ("t", "s"):
        assert client.insert(name, [{"a": 1}, {"a": 2}], key="x") == 2
        assert client.insert(name, [{"a": 1}, {"a": 2}], key="x") == 2
    client = start()
    for name in ("t", "s"):
        assert client.insert(name, pa.table({"a": [1, 2]}), key="x") == 2
        assert client.insert(name, pa.table({"a": [3]}), key="y") == 1
        assert sorted(row["a"] for row in asked(client, f"SELECT a FROM {name}")) == [1, 2, 3]


def test_a_key_counts_once_also_at_the_same_time(start: Callable[[], ServerConnection]):
    client = start()
    said(client, "CREATE TABLE t (a LONG); CREATE STREAM s (a LONG)")
    clients = [client.server.connect(ADMIN) for _ in range(8)]
    for name in ("t", "s"):
        for number in range(10):
            with ThreadPoolExecutor(8) as threads:
                found = threads.map(lambda one, n=number, to=name: one.insert(to, [{"a": n}], key=f"{n}"), clients)
                assert list(found) == [1] * 8
        assert sorted(row["a"] for row in asked(client, f"SELECT a FROM {name}")) == list(range(10))


@pytest.mark.parametrize(("call", "error", "says"), [
    (lambda c: c.insert("nothing", [{"a": 1}]), ServerError, "there is no stream, table, view or query 'nothing'"),
    (lambda c: c.insert("v", [{"a": 1}]), ServerError, "allowed: t, s"),
    (lambda c: c.insert("s", [{"b": 1}]), UnknownColumn, "'b'"),
    (lambda c: c.insert("s", [{"a": "x"}]), TableError, "s: "),
    (lambda c: c.insert("s", [{"a": 1}, {"a": "x"}]), TableError, "several types"),
    (lambda c: c.subscribe("s"), ServerError, "allowed: t, v"),
    (lambda c: said(c, "SET host = 'spark'"), SqlError, "belongs to the server"),
    (lambda c: said(c, "CREATE TABLE x SOURCE FILE ('/etc/passwd')"), SqlError, "may not use files there"),
    (lambda c: said(c, "QUERY x AS SELECT * FROM t INTO FILE ('/tmp/x')"), SqlError, "may not use files there"),
    (lambda c: said(c, "INSERT INTO v SELECT * FROM t"), SqlError, "a view: its rows are those of its query"),
    (lambda c: said(c, "START QUERY w"), SqlError, "there is no query 'w'"),
    (lambda c: said(c, "ALTER QUERY v SET colour = 1"), SqlError, "has no setting 'colour'"),
    (lambda c: said(c, "CREATE STREAM v (a LONG)"), SqlError, "exists already"),
])  # fmt: skip
def test_mistakes(start: Callable[[], ServerConnection], call: Any, error: type[HeadraceError], says: str):
    client = start()
    said(client, "CREATE TABLE t (a LONG); CREATE STREAM s (a LONG); CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
    with pytest.raises(error) as caught:
        call(client)
    assert says in str(caught.value)


def test_settings_of_a_query(start: Callable[[], ServerConnection]):
    client = start()
    said(client, "CREATE TABLE t (a LONG); QUERY q AS SELECT a FROM t")
    said(client, "ALTER QUERY q SET trigger = '2 s'")
    client = start()
    query = client.server.objects["q"].query
    assert query is not None
    assert query.running is not None
    assert (query.settings, query.running.interval) == ({"trigger": "2 s"}, 2.0)


def test_a_failing_query_takes_no_other_down(start: Callable[[], ServerConnection], tmp_path: Path):
    (tmp_path / "files").mkdir()
    client = start()
    said(client, "CREATE TABLE t (a LONG); QUERY good AS SELECT a FROM t")
    place = tmp_path / "files" / "out"
    said(client, f"QUERY out AS SELECT a FROM t INTO FILE ('{place}')")
    said(client, "INSERT INTO t VALUES (1)")
    until(client, "SELECT a FROM good", [{"a": 1}])
    query = client.server.objects["out"].query
    assert query is not None
    query.stop()
    for path in sorted(place.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    client = start()
    assert states(client)["good"] == "running"
    assert states(client)["out"].startswith("failed")
    assert not client.server.health()["ok"]


def test_what_cannot_be_created_again_does_not_stop_the_server(tmp_path: Path):
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.csv").write_text("x\n1\n")
    with HeadraceServer(tmp_path / "data", roots=[str(files)], durable=False) as server:
        client = server.connect(ADMIN)
        said(client, f"CREATE TABLE old SOURCE FILE ('{files}/a.csv'); CREATE TABLE t (a LONG)")
        said(client, "INSERT INTO t VALUES (1); CREATE VIEW both AS SELECT old.x FROM old, t")
    with HeadraceServer(tmp_path / "data", durable=False) as server:  # without the roots
        client = server.connect(ADMIN)
        assert asked(client, "SELECT a FROM t") == [{"a": 1}]
        failed = {name for name, state in states(client).items() if state.startswith("failed: ")}
        assert failed == {"old", "both"}
        assert not server.health()["ok"]
        with pytest.raises(SqlError, match="could not be created again at the start"):
            said(client, "CREATE TABLE old (x LONG)")
        said(client, "DROP VIEW both")
    with HeadraceServer(tmp_path / "data", roots=[str(files)], durable=False) as server:
        client = server.connect(ADMIN)
        assert asked(client, "SELECT x FROM old") == [{"x": 1}]
        assert server.health()["ok"]


def test_replies(start: Callable[[], ServerConnection]):
    client = start()
    tags = [reply.tag for reply in client.execute("CREATE TABLE t (a LONG); INSERT INTO t VALUES (1); SELECT a FROM t")]
    assert tags == ["CREATE TABLE", "INSERT", "SELECT"]
    (reply,) = client.execute("SUBSCRIBE t WITH UPSERT (a)")
    assert isinstance(reply, Subscribed)
    assert client.columns("SELECT a FROM t") == pa.schema([("a", pa.int64())])
    assert client.columns("SUBSCRIBE t").names == ["kind", "le", "re", "re_new", "a"]  # type: ignore[union-attr]
    assert client.columns("INSERT INTO t VALUES (2)") is None
    assert asked(client, "SELECT count(*) AS n FROM t") == [{"n": 1}]


def test_one_server_for_a_directory(start: Callable[[], ServerConnection], tmp_path: Path):
    start()
    with pytest.raises(ServerError, match="another server uses this data directory"):
        HeadraceServer(tmp_path / "data").start()


def test_roles_secrets_and_the_audit_log(start: Callable[[], ServerConnection]):
    admin = start()
    said(admin, "CREATE SECRET password AS 'hush'; CREATE TABLE t (a LONG)")
    assert asked(admin, "SHOW SECRETS") == [{"secret": "password", "value": "stored", "owner": "ada"}]
    reader, writer = (admin.server.connect(Who(name, name), "127.0.0.1") for name in ("reader", "writer"))  # type: ignore[arg-type]
    assert asked(reader, "SELECT * FROM t") == []
    for client, text in ((reader, "INSERT INTO t VALUES (1)"), (writer, "CREATE SECRET x AS 'y'"),
                         (writer, "CREATE STREAM k (a LONG) SOURCE KAFKA ('topic', secret('password'))")):  # fmt: skip
        with pytest.raises(AccessError, match="needs the role"):
            said(client, text)
    with pytest.raises(AccessError, match="needs the role writer"):
        reader.insert("t", [{"a": 1}])
    admin.server.access.audit.flush()
    noted = admin.server.access.audit.entries()
    assert {entry.outcome for entry in noted if entry.who == "reader"} == {"done", "ACCESS"}
    written = "".join(path.read_text("latin-1") for path in admin.server.data.rglob("*") if path.is_file())
    assert "hush" not in written
    assert "CREATE SECRET" in written


def test_administrators_use_adapters_whose_files_are_not_known(start: Callable[[], ServerConnection]):
    admin = start()
    text = "CREATE STREAM k (a LONG, ts DATETIME) ORDER BY ts SOURCE KAFKA ('localhost:1', 'topic')"
    assert said(admin, text) == ["stream k (a LONG, ts DATETIME)"]
    with pytest.raises(AccessError, match="needs the role admin"):
        said(admin.server.connect(Who("bob", "writer")), text)


def test_limits(tmp_path: Path):
    with HeadraceServer(tmp_path, durable=False, limits=Limits(reply_rows=2, subscriptions=1)) as server:
        client = server.connect(ADMIN)
        said(client, "CREATE TABLE t (a LONG); INSERT INTO t VALUES (1), (2), (3)")
        with pytest.raises(ServerError, match="more rows than the limit"):
            asked(client, "SELECT a FROM t")
        assert len(asked(client, "SELECT a FROM t LIMIT 2")) == 2
        first = client.subscribe("t")
        with pytest.raises(ServerError, match="may not have more"):
            client.subscribe("t")
        first.close()
        client.subscribe("t").close()


def test_a_view_that_cannot_be_replaced_stays(start: Callable[[], ServerConnection]):
    client = start()
    said(
        client,
        "CREATE TABLE t (a INT PRIMARY KEY, b INT); INSERT INTO t VALUES (1, 2); CREATE VIEW v AS SELECT a FROM t",
    )
    said(client, "CREATE VIEW w AS SELECT a FROM v")
    for text in (
        "CREATE OR REPLACE VIEW t AS SELECT 1 AS a FROM v",
        "CREATE OR REPLACE VIEW v AS SELECT nothing FROM t",
        "CREATE OR REPLACE VIEW v AS SELECT b AS a FROM t; SELECT nothing FROM t",
    ):
        with pytest.raises(SqlError):
            said(client, text)
    for _ in range(2):
        assert asked(client, "SELECT * FROM w") == [{"a": 1}]
        assert asked(client, "SELECT * FROM t") == [{"a": 1, "b": 2}]
        client = start()
    said(client, "CREATE OR REPLACE VIEW v AS SELECT b AS a FROM t")
    assert asked(start(), "SELECT * FROM w") == [{"a": 2}]


@pytest.mark.parametrize("text", [
    "QUERY q AS SELECT * FROM t INTO FILE ('{0}')", "QUERY T AS SELECT * FROM t INTO FILE ('{0}')",
    "CREATE VIEW Q AS SELECT * FROM t", "CREATE OR REPLACE VIEW p AS SELECT * FROM t", "CREATE TABLE q (a INT)",
    "CREATE STREAM p (a INT)",
])  # fmt: skip
def test_a_name_is_taken_once(start: Callable[[], ServerConnection], tmp_path: Path, text: str):
    client, files = start(), tmp_path / "files"
    said(client, "CREATE TABLE t (a INT PRIMARY KEY); QUERY p AS SELECT a FROM t")
    said(client, f"QUERY q AS SELECT a FROM t INTO FILE ('{files / 'one'}')")
    with pytest.raises(SqlError, match="exists already"):
        said(client, text.format(files / "two"))
    for _ in range(2):
        assert states(client) == {"p": "running", "q": "running"}
        assert asked(client, "SELECT * FROM t") == []
        client = start()


def test_names_that_look_like_keys(start: Callable[[], ServerConnection]):
    client = start()
    said(client, 'CREATE SCHEMA x (a INT); CREATE TABLE "schema x" (a INT); CREATE TABLE "secret t" (a INT)')
    said(client, 'DROP TABLE "secret t"; DROP SCHEMA x')
    assert [row["table"] for row in asked(start(), "SHOW TABLES")] == ["schema x"]


def test_settings_of_one_object_are_not_those_of_the_next(start: Callable[[], ServerConnection]):
    client = start()
    said(client, "CREATE STREAM s (a INT, ts DATETIME) ORDER BY ts")
    said(client, "SET emit = 'final'; QUERY p AS SELECT a FROM s")
    said(client, "SET emit = 'speculative'; QUERY q AS SELECT a FROM s")
    plans = {name: str(client.server.objects[name].query.node) for name in "pq"}  # type: ignore[union-attr]
    again = start()
    assert {name: str(again.server.objects[name].query.node) for name in "pq"} == plans  # type: ignore[union-attr]


def test_what_a_query_into_a_sink_reads_cannot_be_dropped(start: Callable[[], ServerConnection], tmp_path: Path):
    client = start()
    said(client, f"CREATE TABLE t (a INT PRIMARY KEY); QUERY q AS SELECT a FROM t INTO FILE ('{tmp_path / 'files'}')")
    for _ in range(2):
        with pytest.raises(SqlError, match="QUERY q still reads t"):
            said(client, "DROP TABLE t")
        client = start()
    said(client, "DROP TABLE t CASCADE")
    assert states(start()) == {}


def test_quoted_names_are_dropped_with_what_reads_them(start: Callable[[], ServerConnection]):
    client = start()
    said(client, 'CREATE TABLE "a t" (a INT PRIMARY KEY); CREATE VIEW "a v" AS SELECT a FROM "a t"')
    said(client, 'CREATE MATERIALIZED VIEW "a m" AS SELECT a FROM "a v"; QUERY "a q" AS SELECT a FROM "a m"')
    with pytest.raises(SqlError, match='DROP VIEW "a v" before it'):
        said(client, 'DROP TABLE "a t"')
    said(client, 'DROP TABLE "A t" CASCADE')
    assert client.server.objects == {}


@pytest.mark.parametrize("kind", ["TABLE", "STREAM"])
def test_a_key_that_two_clients_send_at_once_inserts_once(start: Callable[[], ServerConnection], kind: str):
    server = start().server
    said(server.connect(ADMIN), f"CREATE {kind} t (a INT)")
    together = threading.Barrier(8)
    counts: list[int] = []

    def insert() -> None:
        client = server.connect(ADMIN)
        for key in range(20):
            together.wait()
            counts.append(client.insert("t", [{"a": key}, {"a": key}], f"k{key}"))

    threads = [threading.Thread(target=insert) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [2] * 160
    log = server.objects["t"].log
    assert log is not None
    rows = log.rows(0, log.end)[1].to_pylist()
    assert len([row for row in rows if row.get("kind") != "cti"]) == 40


def test_a_subscription_ends_when_its_stream_is_dropped(start: Callable[[], ServerConnection]):
    client = start()
    said(client, "CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1)")
    subscription = client.subscribe("t")
    assert subscription.next(5) is not None
    said(client, "DROP TABLE t")
    with pytest.raises(SubscriptionError, match="dropped"):
        subscription.next(5)


AGGREGATE = """CREATE AGGREGATE twice(x DOUBLE): DOUBLE { TABLE state(s DOUBLE);
    INITIALIZE: { INSERT INTO state VALUES (x); }
    ITERATE: { UPDATE state SET s = s + x; } TERMINATE: { INSERT INTO RETURN SELECT s * 2 FROM state; } }"""


@pytest.mark.parametrize(("texts", "drop", "user"), [
    (["CREATE SCHEMA x (a INT)", "CREATE STREAM u x"], "DROP SCHEMA X", "STREAM u"),
    (["CREATE TABLE x (a INT)", "CREATE STREAM u x"], "DROP TABLE x", "STREAM u"),
    ([AGGREGATE, "CREATE TABLE t (b DOUBLE)", "CREATE MATERIALIZED VIEW u AS SELECT twice(b) AS y FROM t"],
     "DROP AGGREGATE twice", "MATERIALIZED VIEW u"),
])  # fmt: skip
def test_what_a_stored_statement_needs_cannot_be_dropped(
    start: Callable[[], ServerConnection], texts: list[str], drop: str, user: str
):
    client = start()
    said(client, "; ".join(texts))
    with pytest.raises(SqlError, match=f"{user} still needs"):
        said(client, drop)
    client = start()
    said(client, f"DROP {user}; {drop}")
    start()


def test_values_and_cursors_that_are_no_numbers(start: Callable[[], ServerConnection]):
    client = start()
    said(client, "CREATE TABLE t (a LONG)")
    with pytest.raises(TableError, match="64 bits"):
        client.insert("t", [{"a": 1 << 70}])
    said(client, "CREATE STREAM s (a LONG)")
    with pytest.raises(TableError, match="64 bits"):
        client.insert("s", [{"a": 1 << 70}])
    with pytest.raises(SubscriptionError, match="not a cursor"):
        client.subscribe("t", cursor="000001.\u00b2")
