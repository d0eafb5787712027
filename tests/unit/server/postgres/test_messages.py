from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.server.postgres import raw_client as raw

from headrace.server.postgres import messages as m

SAMPLES = {
    raw.message("Q", b"SELECT 1\0"): m.QueryMessage("SELECT 1"),
    raw.parse("s", "SELECT $1", [23, 0]): m.ParseMessage("s", "SELECT $1", (23, 0)),
    raw.bind("", "s", [b"1", None], [1], [0, 1]): m.BindMessage("", "s", (1,), (b"1", None), (0, 1)),
    raw.describe("P", "x"): m.DescribeMessage("P", "x"),
    raw.execute("p", 5): m.ExecuteMessage("p", 5),
    raw.message("C", b"Sx\0"): m.CloseMessage("S", "x"),
    raw.message("p", b"secret\0"): m.PasswordMessage("secret"),
    raw.message("S"): m.SyncMessage(),
    raw.message("H"): m.FlushMessage(),
    raw.message("X"): m.TerminateMessage(),
    raw.message("d", b"anything"): m.OtherMessage("d"),
}


@pytest.mark.parametrize(("data", "expected"), SAMPLES.items(), ids=[type(m).__name__ for m in SAMPLES.values()])
def test_a_message_is_read(data: bytes, expected: m.FrontMessage):
    assert m.read_message(data[:1].decode(), data[5:]) == expected


@pytest.mark.parametrize("data", [data for data in SAMPLES if len(data) > 5 and data[:1] != b"d"])
def test_a_message_that_is_cut_or_longer_is_refused(data: bytes):
    for cut in range(5, len(data) - 1):
        with pytest.raises(m.ProtocolError):
            m.read_message(data[:1].decode(), data[5:cut])
    with pytest.raises(m.ProtocolError, match="too many"):
        m.read_message(data[:1].decode(), data[5:] + b"\0\0\0\0" * 3)


def test_the_first_message():
    hello = raw.startup(user="me", database="d")
    assert m.opening(hello[4:]) == m.StartupMessage(0, {"user": "me", "database": "d"})
    assert m.opening(struct.pack("!i", 80877103)) == m.EncryptionMessage(tls=True)
    assert m.opening(struct.pack("!i", 80877104)) == m.EncryptionMessage(tls=False)
    assert m.opening(struct.pack("!iii", 80877102, 7, -8)) == m.CancelMessage(7, -8)
    with pytest.raises(m.ProtocolError, match="version"):
        m.opening(struct.pack("!i", 2 << 16))


@given(st.sampled_from("pQPBDECSHXdcfF?\0z"), st.binary(max_size=80))
@example("B", b"\0\0\0\0\xff\xff")
@example("B", b"\0\0\0\0\0\x01\x7f\xff\xff\xff")
@example("Q", b"\xff\0")
def test_random_bytes_are_a_message_or_refused(letter: str, body: bytes):
    with suppress(m.ProtocolError):
        m.read_message(letter, body)


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda rest: struct.pack("!i", 3 << 16) + rest))
def test_random_bytes_are_a_first_message_or_refused(body: bytes):
    with suppress(m.ProtocolError):
        m.opening(body)
