"""The protocol with the real server: what a role may not do, and what cursors see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.wheels import tallies

from headrace.server.core import HeadraceServer
from headrace.server.interface import Who
from headrace.server.postgres import PostgresListener, listening


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HeadraceServer]:
    with HeadraceServer(tmp_path, durable=False, tokens_required=True) as found:
        yield found


@pytest.fixture
def listener(server: HeadraceServer) -> Iterator[PostgresListener]:
    with listening(server, port=0) as found:
        yield found


def connected(server: HeadraceServer, listener: PostgresListener, role: str) -> psycopg.Connection:
    token = server.access.tokens.create(f"the_{role}", role)
    parts = {"host": "127.0.0.1", "port": listener.port, "user": "me", "dbname": "headrace", "password": token}
    return psycopg.connect(**parts, autocommit=True)


def test_roles_hold_for_every_statement(server: HeadraceServer, listener: PostgresListener):
    with connected(server, listener, "writer") as writer, connected(server, listener, "reader") as reader:
        writer.execute("CREATE TABLE t (id INT PRIMARY KEY, name STRING)")
        writer.execute("INSERT INTO t VALUES (%s, %s)", [1, "a"])
        assert reader.execute("SELECT id, name FROM t").fetchall() == [(1, "a")]
        assert reader.execute("SELECT relname FROM pg_class WHERE relkind = 'r'").fetchall() == [("t",)]
        assert reader.execute("SELECT current_user").fetchone() == ("the_reader",)
        for text in ("INSERT INTO t VALUES (2, 'b')", "DROP TABLE t", "CREATE TABLE u (x INT)", "DELETE FROM t"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(text)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(f"SELECT 1; {text}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            writer.execute("SELECT id FROM t INTO FILE ('/somewhere/else')")
        assert reader.execute("SELECT count(*) AS n FROM t").fetchone() == (1,)


def test_modules_are_shown(server: HeadraceServer, listener: PostgresListener):
    server.connect(Who("ann", "admin")).install_modules(tallies())
    with connected(server, listener, "reader") as reader:
        shown = reader.execute("SHOW MODULES")
        assert [column.name for column in shown.description or ()] == [
            "module", "kind", "package", "version", "checksum", "state", "used_by", "summary",
        ]  # fmt: skip
        assert next(row[:4] for row in shown.fetchall() if row[4]) == ("tests.tally", "aggregate", "tallies", "1.0")


def test_without_a_token_nobody_enters(server: HeadraceServer, listener: PostgresListener):
    del server
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(host="127.0.0.1", port=listener.port, user="me")
    with pytest.raises(psycopg.OperationalError, match="FATAL"):
        psycopg.connect(host="127.0.0.1", port=listener.port, user="me", password="x")  # noqa: S106 - none of ours


def test_a_cursor_outlives_a_cancelled_fetch(server: HeadraceServer, listener: PostgresListener):
    with connected(server, listener, "writer") as client:
        client.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        client.execute("INSERT INTO t VALUES (1)")
        client.execute("DECLARE c CURSOR FOR SUBSCRIBE t")
        client.execute("SET subscribe_timeout = '200 ms'")
        seen: list[int | None] = []
        while 1 not in seen:
            seen += [row[4] for row in client.execute("FETCH ALL FROM c")]
        client.execute("FETCH ALL FROM c")
        client.execute("SET subscribe_timeout = '120 s'")
        client.execute("SET statement_timeout = '300 ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            client.execute("FETCH ALL FROM c")
        client.execute("SET statement_timeout = 0")
        client.execute("INSERT INTO t VALUES (2)")
        assert 2 in [row[4] for row in client.execute("FETCH ALL FROM c")]
