"""Bytes that no client should send: the server answers or ends the connection, and others never notice."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.postgres import raw_client as raw
from tests.unit.server.postgres.raw_client import RawClient, message, startup
from tests.unit.server.postgres.stand_in import StandIn

from headrace.server.postgres import PostgresListener, WireLimits, listening

TEXTS = st.sampled_from(
    ["SELECT 1", "SELECT $1", "INSERT INTO t VALUES ($1)", "BEGIN", "COMMIT", "ROLLBACK", "", ";", "SELECT", "FETCH c",
     "DECLARE c CURSOR FOR SELECT 1", "CLOSE c", "SET x = 1", "SHOW ALL", "DISCARD ALL", "COPY (SELECT 1) TO STDOUT",
     "SELECT version()", "COPY t FROM STDIN", "DEALLOCATE ALL", "START TRANSACTION"]
)  # fmt: skip
NAMES = st.sampled_from(["", "a", "b"])
BYTES = st.none() | st.binary(max_size=12)
MESSAGES = st.one_of(
    TEXTS.map(lambda text: message("Q", text.encode() + b"\0")),
    st.builds(raw.parse, NAMES, TEXTS, st.lists(st.sampled_from([0, 20, 23, 25, 1184, 9999]), max_size=2)),
    st.builds(raw.bind, NAMES, NAMES, st.lists(BYTES, max_size=2), st.lists(st.integers(-1, 2), max_size=2),
              st.lists(st.integers(-1, 2), max_size=2)),
    st.builds(raw.describe, st.sampled_from("SPX"), NAMES),
    st.builds(raw.execute, NAMES, st.integers(-1, 3)),
    st.sampled_from([raw.SYNC, message("H"), message("d", b"x"), message("c"), message("F"), message("p", b"x\0")]),
    st.builds(message, st.sampled_from("QPBDECSHdcfFz?"), st.binary(max_size=20)),
)  # fmt: skip


@pytest.fixture(scope="module")
def listener() -> Iterator[PostgresListener]:
    limits = WireLimits(message_bytes=100_000, startup_seconds=2)
    with listening(StandIn("CREATE TABLE t (id INT)"), limits=limits, port=0) as found:
        yield found


@pytest.fixture(scope="module")
def bystander(listener: PostgresListener) -> Iterator[RawClient]:
    with RawClient(listener.port) as found:
        yield found


@given(st.lists(MESSAGES, max_size=12))
def test_messages_in_any_order(listener: PostgresListener, bystander: RawClient, messages: list[bytes]):
    with RawClient(listener.port) as client:
        client.send(*messages, raw.SYNC, message("Q", b"ROLLBACK; SELECT 'the last' AS s\0"), message("X"))
        client.socket.settimeout(10)
        answers = b""
        try:
            while part := client.socket.recv(65536):
                answers += part
        except ConnectionError:
            pass
        assert b"the last" in answers or b"FATAL" in answers
    assert bystander.rows("SELECT 1") == [(b"1",)]


@given(st.lists(MESSAGES, min_size=1, max_size=5).map(b"".join), st.data())
def test_messages_that_are_cut(listener: PostgresListener, bystander: RawClient, messages: bytes, data: st.DataObject):
    with RawClient(listener.port) as client:
        client.send(messages[: data.draw(st.integers(0, len(messages)))])
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()
    assert bystander.rows("SELECT 1") == [(b"1",)]


@given(
    st.binary(max_size=60)
    | st.binary(max_size=60).map(lambda rest: struct.pack("!i", len(rest) + 4) + rest)
    | st.binary(max_size=60).map(lambda rest: startup(user="me") + rest)
    | st.binary(max_size=20).map(lambda rest: struct.pack("!ii", 8, 80877103) + rest)
)
def test_any_bytes(listener: PostgresListener, bystander: RawClient, data: bytes):
    with RawClient(listener.port, b"") as client:
        client.send(data)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()
    assert bystander.rows("SELECT 1") == [(b"1",)]
