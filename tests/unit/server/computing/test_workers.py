"""Statements in processes of their own: the same answers, limits of memory and time, and cancellation."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.postgres.raw_client import RawClient, message

from headrace.errors import LimitError, SqlError, StatementCancelled
from headrace.server.access import Limits
from headrace.server.computing import AskJob, StatementWatch, workers
from headrace.server.connection import ServerConnection
from headrace.server.core import HeadraceServer
from headrace.server.http import HttpServer
from headrace.server.interface import RowsReply, Who
from headrace.server.postgres import listening
from headrace.sql.bind.context import Context
from headrace.sql.outcomes import Answers
from headrace.sql.parse import parse_statement

ADMIN = Who("ada", "admin")
SCRIPT = """
CREATE TABLE t (k LONG PRIMARY KEY, v DOUBLE, x STRING);
INSERT INTO t VALUES (1, 2.0, 'a'), (2, 3.0, 'b'), (3, 4.0, 'b');
CREATE STREAM fed (k LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 10 s LATE DIVERT;
INSERT INTO fed VALUES (1, DATETIME '2024-01-01T00:00:00Z'), (2, DATETIME '2024-01-01T00:01:00Z');
INSERT INTO fed VALUES (3, DATETIME '2024-01-01T00:00:10Z');
CREATE MATERIALIZED VIEW sums AS SELECT x, sum(v) AS s FROM t GROUP BY x;
CREATE STREAM minutes AS SELECT count(*) AS n FROM fed [TUMBLING 1 min];
"""
#: 25 million pairs.
GIGABYTES = "SELECT a.a AS a, b.b AS b FROM generate_series(1, 5000) AS a, generate_series(1, 5000) AS b"
#: Its file is a pipe into which nobody writes.
FOR_EVER = "SELECT * FROM pipe"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    folder: Path = tmp_path_factory.mktemp("workers")
    (folder / "files").mkdir()
    pipe = folder / "files" / "pipe.csv"
    pipe.write_text("k,ts\n1,2\n")
    limits = Limits(statement_memory=200 << 20, statement_seconds=600)
    with HeadraceServer(folder / "data", roots=[str(folder / "files")], durable=False, limits=limits) as running:
        connection = running.connect(ADMIN)
        for _ in connection.execute(f"{SCRIPT} CREATE STREAM pipe (k LONG, ts LONG) SOURCE FILE ('{pipe}', ',');"):
            pass
        pipe.unlink()
        os.mkfifo(pipe)
        yield running


@pytest.fixture
def client(server: HeadraceServer) -> ServerConnection:
    return server.connect(ADMIN)


def asked(client: ServerConnection, text: str) -> list[dict[str, Any]]:
    *_, reply = client.execute(text)
    assert isinstance(reply, RowsReply)
    return list(reply.table.to_pylist())


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_computing(server: HeadraceServer) -> bool:
    return server.computing.running > 0


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("text", [
    "SELECT * FROM t ORDER BY k",
    "SELECT x, sum(v) AS s FROM t GROUP BY x ORDER BY x",
    "SELECT * FROM sums ORDER BY x",
    "SELECT t.k, sums.s FROM t JOIN sums ON t.x = sums.x ORDER BY k",
    "SELECT * FROM fed",
    "SELECT count(*) AS n FROM fed [TUMBLING 1 min]",
    "SELECT * FROM minutes",
    "SELECT k FROM t ORDER BY v DESC LIMIT 2",
])  # fmt: skip
def test_differential_a_process_and_the_server_give_the_same(
    client: ServerConnection, text: str, monkeypatch: pytest.MonkeyPatch
):
    found = {}
    for small in (False, True):
        monkeypatch.setattr(workers, "is_small", lambda _, small=small: small)
        *_, reply = client.execute(text)
        assert isinstance(reply, RowsReply)
        found[small] = reply
    assert found[False].table.equals(found[True].table)
    assert found[False].notes == found[True].notes
    assert found[True].table.num_rows


@pytest.mark.slow
def test_an_answer_of_a_process_has_what_was_inserted_before(client: ServerConnection, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers, "is_small", lambda _: False)
    script = "CREATE TABLE c (k LONG); CREATE MATERIALIZED VIEW many AS SELECT count(*) AS n FROM c"
    for _ in client.execute(script):
        pass
    for number in range(1, 4):
        assert asked(client, f"INSERT INTO c VALUES ({number}); SELECT n FROM many") == [{"n": number}]


@pytest.mark.slow
def test_statements_that_take_rows_into_tables_and_analyze(client: ServerConnection):
    text = "CREATE TABLE twice AS SELECT k, x || x AS x FROM t; INSERT INTO twice SELECT k + 10, x || '!' FROM t;"
    assert asked(client, f"{text} SELECT * FROM twice ORDER BY k")[2:4] == [{"k": 3, "x": "bb"}, {"k": 11, "x": "a!"}]
    for _ in client.execute(
        "UPDATE twice SET x = (SELECT max(x || 'y') FROM t) WHERE k < 3; DELETE FROM twice WHERE k = 3"
    ):
        pass
    assert [row["x"] for row in asked(client, "SELECT * FROM twice ORDER BY k")] == ["by", "by", "a!", "b!", "b!"]
    assert "Source table t" in str(asked(client, "EXPLAIN ANALYZE SELECT x || x AS x FROM t"))


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("text", [GIGABYTES, f"EXPLAIN ANALYZE {GIGABYTES}", f"CREATE TABLE wide AS {GIGABYTES}"])
def test_a_statement_that_needs_gigabytes_is_an_error(server: HeadraceServer, client: ServerConnection, text: str):
    with pytest.raises(LimitError, match="200 MiB of memory") as raised:
        asked(client, text)
    assert raised.value.allowed == "statement_memory: 209,715,200"
    assert "wide" not in server.catalog.tables
    assert asked(client, "SELECT count(*) AS n FROM t") == [{"n": 3}]


@pytest.mark.slow
def test_a_statement_that_runs_for_ever_is_ended_by_its_time(server: HeadraceServer, client: ServerConnection):
    outcome = client.session.statement(Context(FOR_EVER), parse_statement(FOR_EVER))
    assert isinstance(outcome, Answers)
    job = AskJob(outcome.stream.node, {}, relation=False, order=(), limits=server.limits)
    with pytest.raises(LimitError, match="took longer") as raised:
        server.computing.run(job, StatementWatch(Limits(statement_seconds=0.5)))
    assert raised.value.allowed == "statement_seconds: 0.5"
    assert not is_computing(server)


@pytest.mark.slow
def test_others_are_served_while_a_statement_runs_until_it_is_cancelled(
    server: HeadraceServer, client: ServerConnection
):
    other = server.connect(ADMIN)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asked, client, FOR_EVER)
        wait_for(lambda: is_computing(server))
        for number in range(3):
            script = f"CREATE TABLE beside{number} (k LONG); INSERT INTO beside{number} VALUES ({number});"
            assert asked(other, f"{script} SELECT k FROM beside{number}") == [{"k": number}]
        assert not running.done()
        client.cancel()
        with pytest.raises(StatementCancelled):
            running.result(120)
    assert not is_computing(server)
    assert asked(client, "SELECT 1 AS x") == [{"x": 1}]  # it was about that statement


@pytest.mark.slow
def test_statements_wait_for_their_turn_and_can_be_cancelled_there(server: HeadraceServer):
    clients = [server.connect(ADMIN) for _ in range(server.limits.computing + 1)]
    with ThreadPoolExecutor(len(clients)) as pool:
        running = [pool.submit(asked, client, FOR_EVER) for client in clients]
        wait_for(lambda: server.computing.running == server.limits.computing)
        wait_for(lambda: server.computing.waiting == 1)
        for client in clients:
            client.cancel()
        for one in running:
            with pytest.raises(StatementCancelled):
                one.result(120)
    assert not is_computing(server)


@pytest.mark.slow
def test_the_process_that_forks_is_started_again(server: HeadraceServer, client: ServerConnection):
    text = "SELECT x || x AS x FROM t ORDER BY k"
    assert asked(client, text)[0] == {"x": "aa"}
    before = server.computing.process
    assert before is not None
    before.kill()
    before.wait()
    assert asked(client, text)[0] == {"x": "aa"}
    assert server.computing.process is not before


def test_an_error_of_a_process_is_the_same_error(client: ServerConnection, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers, "is_small", lambda _: False)
    with pytest.raises(SqlError, match="there is no column"):
        asked(client, "SELECT nothing FROM t")


# --- ways in ---------------------------------------------------------------------------------------------------------


def outcomes(server: HeadraceServer, statement: str) -> list[str]:
    return [entry.outcome for entry in server.access.audit.entries() if entry.statement.split() == statement.split()]


@pytest.mark.slow
def test_a_client_of_http_that_goes_away_ends_its_statement(server: HeadraceServer):
    statement = "SELECT k, k AS http FROM pipe"
    body = statement.encode()
    lines = ["POST /sql HTTP/1.1", "Host: localhost", "Content-Type: application/sql", f"Content-Length: {len(body)}"]
    with HttpServer(server, port=0) as http:
        with socket.create_connection(("127.0.0.1", http.port), timeout=120) as client:
            client.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            wait_for(lambda: is_computing(server))
        wait_for(lambda: outcomes(server, statement) == ["CANCELLED"])
    assert not is_computing(server)


@pytest.mark.slow
def test_a_client_of_postgres_cancels_and_goes_away(server: HeadraceServer):
    with listening(server, port=0) as listener:
        with RawClient(listener.port) as client:
            client.socket.settimeout(120)
            (key,) = [body for letter, body in client.started if letter == "K"]
            client.send(message("Q", FOR_EVER.encode() + b"\0"))
            wait_for(lambda: is_computing(server))
            cancel = struct.pack("!ii", 16, 80877102) + key
            with socket.create_connection(("127.0.0.1", listener.port), timeout=120) as other:
                other.sendall(cancel)
            (error,) = [body for letter, body in client.until("Z") if letter == "E"]
            assert b"C57014\0" in error
            client.send(message("Q", GIGABYTES.encode() + b"\0"))
            (error,) = [body for letter, body in client.until("Z") if letter == "E"]
            assert b"C53200\0" in error
            client.send(message("Q", b"SELECT k, k AS psql FROM pipe\0"))
            wait_for(lambda: is_computing(server))
        wait_for(lambda: outcomes(server, "SELECT k, k AS psql FROM pipe") == ["CANCELLED"])
    assert not is_computing(server)


def test_a_watch_is_about_the_text_that_runs():
    now = [0.0]
    watch = StatementWatch(Limits(statement_seconds=5), clock=lambda: now[0])
    watch.cancel()
    watch.check()  # nothing ran
    watch.begin()
    called = threading.Event()
    with watch.calling(called.set):
        watch.cancel()
    assert called.is_set()
    with pytest.raises(StatementCancelled):
        watch.check()
    watch.end()
    watch.begin()
    watch.check()
    now[0] = 5.0
    with pytest.raises(LimitError, match="5 s"):
        watch.check()
