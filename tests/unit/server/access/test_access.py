"""Tokens, secrets, limits and the audit log, in one data directory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fixtures.waiting import until

from headrace.errors import AccessError, LimitError, ServerError, SqlError
from headrace.server.access import LOCAL, Access, Limits, Slots
from headrace.server.access.audit import AuditLog, safe_statement
from headrace.server.core import HeadraceServer
from headrace.server.interface import Who


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2024, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(tmp_path: Path, clock: Clock) -> Iterator[Access]:
    found = Access(tmp_path, environment={"PASSWORD": "of the environment"}, clock=clock)
    yield found
    found.close()


# ---- tokens


def test_a_token_says_who_it_is(access: Access):
    token = access.tokens.create("dashboard", "reader")
    assert access.authenticate(token, loopback=False) == Who("dashboard", "reader")
    assert [line.name for line in access.tokens.lines()] == ["dashboard"]


def test_loopback_needs_no_token_unless_required(tmp_path: Path, access: Access):
    assert access.authenticate(None, loopback=True) == LOCAL
    with pytest.raises(AccessError, match="needs a token"):
        access.authenticate(None, loopback=False)
    strict = Access(tmp_path, tokens_required=True)
    with pytest.raises(AccessError, match="needs a token"):
        strict.authenticate(None, loopback=True)
    strict.close()


def test_a_token_that_is_wrong_is_refused_on_loopback_too(access: Access):
    token = access.tokens.create("a", "admin")
    other = token[:-1] + ("A" if token[-1] != "A" else "B")
    for wrong in ("", "x", other, token + "A", token.upper(), "hr_0123456789abcdef_" + "A" * 43):
        with pytest.raises(AccessError, match="not known"):
            access.authenticate(wrong, loopback=True)


def test_a_revoked_token_is_refused_also_by_a_server_that_runs(tmp_path: Path, access: Access):
    token = access.tokens.create("a", "writer")
    other = Access(tmp_path)
    other.tokens.revoke("a")
    other.close()
    with pytest.raises(AccessError, match="revoked"):
        access.authenticate(token, loopback=False)
    with pytest.raises(ServerError, match="no token 'a'"):
        access.tokens.revoke("a")
    assert access.authenticate(access.tokens.create("a", "reader"), loopback=False) == Who("a", "reader")


def test_the_last_use_is_noted_each_minute(access: Access, clock: Clock):
    token = access.tokens.create("a", "reader")
    for seconds in (0, 30, 90):
        clock.now = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        access.authenticate(token, loopback=False)
        (line,) = access.tokens.lines()
        assert line.last_used == datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=90 if seconds == 90 else 0)


def test_no_secret_is_in_the_files(tmp_path: Path, access: Access):
    token = access.tokens.create("a", "reader")
    access.secrets.store("db", "a value of a secret", owner="a")
    access.audit.note(LOCAL, "here", "CREATE SECRET db AS 'a value of a secret'")
    access.close()
    everything = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert token.rsplit("_", 1)[-1].encode() not in everything
    assert b"a value of a secret" not in everything


@pytest.mark.parametrize("name", ["", "local", "1a", "a b", "a" * 101, "a\n"])
def test_names_of_tokens_are_plain(access: Access, name: str):
    with pytest.raises(ServerError, match="no name for a token"):
        access.tokens.create(name, "reader")


def test_a_name_is_of_one_token_and_a_role_of_three(access: Access):
    access.tokens.create("a", "reader")
    with pytest.raises(ServerError, match="there is a token 'a'"):
        access.tokens.create("a", "admin")
    with pytest.raises(ServerError, match="no role 'root'"):
        access.tokens.create("b", "root")  # type: ignore[arg-type]


def test_a_database_that_is_none(tmp_path: Path):
    (tmp_path / "catalog.db").write_text("not a database, " * 100)
    with pytest.raises(ServerError, match="cannot be opened"):
        Access(tmp_path)


# ---- secrets


def test_a_secret_is_read_after_a_restart(tmp_path: Path, access: Access):
    access.secrets.store("db", "välue", owner="a")
    access.secrets.refer("env", "PASSWORD", owner="b")
    again = Access(tmp_path, environment={"PASSWORD": "other"})
    assert (again.secrets.value("db"), again.secrets.value("env")) == ("välue", "other")
    assert again.secrets.names() == [("db", "stored", "a"), ("env", "ENV PASSWORD", "b")]
    again.close()
    assert (tmp_path / "secrets.key").stat().st_mode & 0o777 == 0o600


def test_secrets_that_there_are_not(access: Access):
    access.secrets.refer("password", "MISSING", owner="a")
    with pytest.raises(ServerError, match="MISSING, which the server does not have"):
        access.secrets.value("password")
    with pytest.raises(ServerError, match="there is no secret 'passwort'") as caught:
        access.secrets.value("passwort")
    assert caught.value.instead == "password"
    with pytest.raises(ServerError, match="there is a secret"):
        access.secrets.store("password", "x", owner="a")
    access.secrets.drop("password")
    with pytest.raises(ServerError, match="no secret"):
        access.secrets.drop("password")
    with pytest.raises(ServerError, match="no name for a secret"):
        access.secrets.store("a b", "x", owner="a")
    with pytest.raises(ServerError, match="no name of an environment variable"):
        access.secrets.refer("b", "A=B", owner="a")


def test_another_key_is_an_error_and_so_is_one_that_others_read(tmp_path: Path, access: Access):
    access.secrets.store("db", "value", owner="a")
    key = tmp_path / "secrets.key"
    key.chmod(0o644)
    with pytest.raises(ServerError, match="others than its owner"):
        access.secrets.value("db")
    key.unlink()
    with pytest.raises(ServerError, match="cannot be read"):
        access.secrets.value("db")
    access.secrets.store("other", "value", owner="a")
    with pytest.raises(ServerError, match="another key"):
        access.secrets.value("db")


def test_a_value_cannot_be_moved_to_another_name(tmp_path: Path, access: Access):
    access.secrets.store("a", "value", owner="a")
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        connection.execute("UPDATE secrets SET name = 'b'")
    connection.close()
    with pytest.raises(ServerError, match="another key"):
        access.secrets.value("b")


# ---- the audit log


def test_the_audit_log_has_who_what_and_the_outcome(access: Access):
    access.audit.note(Who("a", "reader"), "10.0.0.1", "SELECT 1")
    access.audit.note(Who("a", "reader"), "10.0.0.1", "DROP TABLE t", AccessError("no"))
    access.audit.note(LOCAL, "127.0.0.1", "SELECT 2", ValueError("x"))
    shown = [(e.who, e.role, e.origin, e.statement, e.outcome) for e in access.audit.entries()]
    assert shown == [
        ("local", "admin", "127.0.0.1", "SELECT 2", "ValueError"),
        ("a", "reader", "10.0.0.1", "DROP TABLE t", "ACCESS"),
        ("a", "reader", "10.0.0.1", "SELECT 1", "done"),
    ]


def test_the_audit_log_is_bounded_and_lasts(tmp_path: Path, access: Access, clock: Clock):
    log = AuditLog(access.database, clock=clock, keep=3)
    for number in range(10):
        log.note(LOCAL, "here", f"SELECT {number}")
    log.close()
    other = Access(tmp_path)
    assert [entry.statement for entry in other.audit.entries()] == ["SELECT 9", "SELECT 8", "SELECT 7"]
    other.close()


def test_entries_are_written_without_a_flush(access: Access, clock: Clock):
    log = AuditLog(access.database, clock=clock, seconds=0.01)
    log.note(LOCAL, "here", "SELECT 1")
    until(lambda: access.database.rows("SELECT statement FROM audit") == [("SELECT 1",)])
    log.close()


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SECRET a AS 'hidden'",
        "create secret a as\n 'hidden",
        "CREATE SECRET a AS 'it''s hidden'; SELECT 'x'",
        "CREATE STREAM s SOURCE KAFKA ('b', sasl.password => 'hidden')",
        "CREATE STREAM s SOURCE KAFKA ('b', \"sasl.password\" => 'hidden')",
        "CREATE STREAM s SOURCE POSTGRES ('postgresql://u:hidden@h/d')",
        "CREATE STREAM s SOURCE FILE ('s3://b/a?secret_key=hidden')",
    ],
)
def test_statements_are_noted_without_secrets(text: str):
    assert "hidden" not in safe_statement(text)


@given(st.text(st.sampled_from("ab' ;"), min_size=1))
def test_no_value_of_a_secret_is_noted(value: str):
    quoted = value.replace("'", "''")
    assert safe_statement(f"CREATE SECRET s AS '{quoted}'; SELECT 1") == "CREATE SECRET s AS '***'; SELECT 1"


# ---- limits


def test_limits_of_a_reply():
    limits = Limits(reply_rows=2, reply_bytes=100, body_bytes=10, statement_bytes=5)
    assert limits.check_reply(pa.table({"a": pa.array([1, 2])})).num_rows == 2
    with pytest.raises(LimitError, match="more rows") as caught:
        limits.check_reply(pa.table({"a": pa.array([1, 2, 3])}))
    assert (caught.value.given, caught.value.allowed) == (3, "reply_rows: 2")
    with pytest.raises(LimitError, match="more bytes"):
        limits.check_reply(pa.table({"a": pa.array(["x" * 200])}))
    with pytest.raises(LimitError, match="the request has more bytes"):
        limits.check_body(11)
    with pytest.raises(LimitError, match="the text of the statements has more bytes"):
        limits.check_text("äää")
    assert "60 s" in Limits().out_of_time().message
    with pytest.raises(LimitError, match="more than 0"):
        Limits(connections=0)


def test_slots_are_counted_for_each_client():
    slots = Slots("subscriptions", 2)
    a, b = Who("a", "reader"), Who("b", "reader")
    with slots.use(a), slots.use(a), slots.use(b):
        assert slots.in_use() == 3
        with pytest.raises(LimitError, match="a has 2 subscriptions"), slots.use(a):
            pass
    assert slots.in_use() == 0
    with pytest.raises(ValueError, match="x"), slots.use(a):
        raise ValueError("x")
    assert slots.in_use() == 0


def test_slots_of_all_clients():
    slots = Slots("traces", 1, shared=True)
    with slots.use(Who("a", "reader")), pytest.raises(LimitError, match="1 traces run"), slots.use(Who("b", "reader")):
        pass
    assert slots.in_use() == 0


def test_what_the_audit_log_of_a_server_has(tmp_path: Path):
    """Texts that are no statements are noted, without secrets; what a way in looks up for itself is not."""
    with HeadraceServer(tmp_path, durable=False) as server:
        client = server.connect(Who("ann", "reader"), "10.0.0.7")
        with pytest.raises(SqlError):
            list(client.execute("SELEC 'hunter2'"))
        with pytest.raises(SqlError):
            list(client.execute("CREATE SECRET s IS hunter2"))
        for _ in client.look_up("SHOW TABLES"):
            pass
        with pytest.raises(SqlError):
            client.columns("SELECT * FROM nothing", guess=True)
        with pytest.raises(AccessError):
            client.columns("DROP TABLE t")
        noted = [(one.origin, one.statement, one.outcome) for one in reversed(server.access.audit.entries())]
        assert noted == [
            ("10.0.0.7", "SELEC '***'", "SQL"),
            ("10.0.0.7", "CREATE SECRET …", "SQL"),
            ("10.0.0.7", "DROP TABLE t", "ACCESS"),
        ]
