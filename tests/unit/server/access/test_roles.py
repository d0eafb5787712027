"""Every statement of the grammar with every role, by every way in: the list follows from the grammar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest
from tests.unit.server.asking import AppClient
from tests.unit.server.postgres.raw_client import RawClient, fields, message, startup

from headrace.errors import AccessError, HeadraceError
from headrace.server.access import STATEMENTS
from headrace.server.access.needs import ROLES, allows
from headrace.server.core import HeadraceServer
from headrace.server.http import HttpSettings
from headrace.server.http.app import make_app
from headrace.server.interface import Role, Who
from headrace.server.postgres import PostgresListener, listening
from headrace.sql import syntax as s
from headrace.sql.parse import parse_statement

#: For each alternative of `statement` in the grammar, statements about what is not there, and the roles that they need.
TRIED: dict[str, list[tuple[str, Role]]] = {
    "create_schema": [("CREATE SCHEMA a EXTENDS nothing", "writer")],
    "create_stream": [
        ("CREATE STREAM a AS SELECT x FROM nothing", "writer"),
        ("CREATE STREAM a (x INT) SOURCE FILE ('/etc/passwd')", "admin"),
    ],
    "create_table": [("CREATE TABLE a AS SELECT x FROM nothing", "writer")],
    "create_view": [
        ("CREATE VIEW a AS SELECT x FROM nothing", "writer"),
        ("CREATE MATERIALIZED VIEW a AS SELECT x FROM nothing", "writer"),
    ],
    "create_aggregate": [
        ("CREATE AGGREGATE a(x INT): INT { TERMINATE: { INSERT INTO RETURN SELECT y FROM nothing; } }", "writer"),
    ],
    "insert": [
        ("INSERT INTO nothing SELECT x FROM nothing", "writer"),
        ("INSERT INTO FILE ('/etc/out') SELECT x FROM nothing", "admin"),
    ],
    "change_table": [
        ("INSERT INTO nothing VALUES (1)", "writer"), ("INSERT INTO nothing AT 1 SELECT x FROM nothing", "writer"),
        ("UPDATE nothing SET x = 1", "writer"), ("DELETE FROM nothing", "writer"), ("TRUNCATE nothing", "writer"),
    ],
    "merge": [("MERGE nothing, nothing INTO a", "writer")],
    "split": [("ON nothing INSERT INTO a SELECT x WHERE x > 1", "writer")],
    "ask": [
        ("SELECT x FROM nothing", "reader"), ("QUERY a AS SELECT x FROM nothing", "writer"),
        ("SELECT x FROM nothing INTO FILE ('/etc/out')", "admin"),
    ],
    "drop": [("DROP TABLE nothing", "writer"), ("DROP SECRET nothing", "admin")],
    "show": [("SHOW STREAMS", "reader"), ("SHOW STATE FOR nothing", "reader"), ("SHOW CREATE nothing", "reader")],
    "describe": [("DESCRIBE nothing", "reader")],
    "explain": [("EXPLAIN SELECT x FROM nothing", "reader")],
    "verify": [("VERIFY nothing", "writer")],
    "set": [("SET rows = 5", "reader"), ("SET time = '2024-01-01'", "writer"), ("SET host = spark", "admin")],
    "start_query": [("START QUERY nothing", "writer")],
    "stop_query": [("STOP QUERY nothing", "writer")],
    "alter_query": [
        ("ALTER QUERY nothing SET trigger = '1 s'", "writer"), ("ALTER TABLE nothing SET retention = '1 h'", "writer"),
    ],
    "subscribe": [("SUBSCRIBE nothing", "reader")],
    "create_secret": [("CREATE SECRET a FROM ENV 'NOTHING_OF_THIS_NAME'", "admin")],
}  # fmt: skip
EACH = [(text, role) for found in TRIED.values() for text, role in found]
#: Classes that others derive from.
ABSTRACT = {s.ServerStatement, s.ChangeTable}


def test_every_alternative_of_the_grammar_is_tried():
    text = files("headrace.sql").joinpath("grammar.lark").read_text("utf-8")
    found = re.search(r"^\?statement: (.*?)\n\n", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    assert {name.strip() for name in found[1].split("|")} == set(TRIED)


def test_every_class_of_statements_is_tried():
    assert {type(parse_statement(text)) for text, _ in EACH} == set(STATEMENTS) - ABSTRACT


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    with HeadraceServer(tmp_path_factory.mktemp("data"), durable=False, tokens_required=True) as found:
        yield found


@pytest.fixture(scope="module")
def tokens(server: HeadraceServer) -> dict[str, str]:
    return {role: server.access.tokens.create(f"the-{role}", role) for role in ROLES}


@pytest.fixture(scope="module")
def postgres(server: HeadraceServer) -> Iterator[PostgresListener]:
    with listening(server, port=0) as found:
        yield found


def clean(server: HeadraceServer) -> None:
    server.access.secrets._database.write("DELETE FROM secrets WHERE name = ?", [("a",)])


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("text", "needed"), EACH)
def test_a_connection(server: HeadraceServer, text: str, needed: Role, role: Role):
    connection = server.connect(Who("x", role))
    for carry_out in (lambda: list(connection.execute(text)), lambda: connection.columns(text)):
        try:
            carry_out()
        except AccessError:
            assert not allows(role, needed)
        except HeadraceError:
            assert allows(role, needed)  # it was looked at
        else:
            assert allows(role, needed)
    clean(server)


@pytest.mark.parametrize("role", [None, *ROLES])
@pytest.mark.parametrize(("text", "needed"), EACH)
def test_http(server: HeadraceServer, tokens: dict[str, str], text: str, needed: Role, role: Role | None):
    headers = {} if role is None else {"authorization": f"Bearer {tokens[role]}"}
    client = AppClient(make_app(server, HttpSettings()), "127.0.0.1")
    status = client.post("/sql", json={"sql": text}, headers=headers).status_code
    assert (status in (401, 403)) == (role is None or not allows(role, needed))
    clean(server)


@pytest.mark.parametrize("role", ROLES)
def test_postgres(server: HeadraceServer, postgres: PostgresListener, tokens: dict[str, str], role: Role):
    with RawClient(postgres.port, startup(user="me")) as client:
        client.until("R")
        client.send(message("p", tokens[role].encode() + b"\0"))
        client.until("Z")
        for text, needed in EACH:
            errors = [fields(body) for kind, body in client.query(text) if kind == "E"]
            refused = any(error["C"] == "42501" for error in errors)
            assert refused == (not allows(role, needed)), (text, errors)
            clean(server)
