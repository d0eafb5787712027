"""A whole conversation over a socket, with the stand-in of a server."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.fixtures.waiting import until
from tests.unit.server.postgres.raw_client import RawClient, fields, message, startup
from tests.unit.server.postgres.stand_in import StandIn

from headrace.server.postgres import PostgresListener, WireLimits, listening


@pytest.fixture
def server() -> StandIn:
    return StandIn("CREATE TABLE t (id INT PRIMARY KEY, name STRING); INSERT INTO t VALUES (1, 'a'), (2, NULL)")


@pytest.fixture
def listener(server: StandIn) -> Iterator[PostgresListener]:
    with listening(server, port=0) as found:
        yield found


def dsn(listener: PostgresListener, rest: str = "sslmode=prefer") -> str:
    return f"host=127.0.0.1 port={listener.port} user=me dbname=headrace {rest}"


def test_a_client_is_greeted_with_settings(server: StandIn, listener: PostgresListener):
    with RawClient(listener.port) as client:
        assert server.origins == ["127.0.0.1"]  # for the audit log
        statuses = dict(body[:-1].decode().split("\0") for kind, body in client.started if kind == "S")
        assert statuses["client_encoding"] == "UTF8"
        assert statuses["server_version"].startswith("16.0 (Headrace ")
        assert statuses["TimeZone"] == "UTC"
        assert client.started[0] == ("R", b"\0\0\0\0")
        assert client.started[-1] == ("Z", b"I")
        assert "".join(kind for kind, _ in client.started).rstrip("Z").endswith("K")


def test_encryption_that_is_not_there_is_declined(listener: PostgresListener):
    for number in (80877103, 80877104):
        with RawClient(listener.port, struct.pack("!ii", 8, number)) as client:
            assert client.bytes(1) == b"N"
            client.send(startup(user="me"))
            assert client.until("Z")


def test_a_newer_protocol_is_negotiated(listener: PostgresListener):
    with RawClient(listener.port, startup((3 << 16) + 2, user="me", **{"_pq_.x": "1"})) as client:
        assert client.until("Z")[0] == ("v", struct.pack("!ii", 0, 1) + b"_pq_.x\0")


@pytest.mark.parametrize(
    "hello",
    [
        b"GET / HTTP/1.1\r\n\r\n", startup(2 << 16), struct.pack("!ii", 8, 1), struct.pack("!i", 1 << 30),
        startup(user="me", client_encoding="LATIN1"), startup()[:-1] + b"x", struct.pack("!i", -5),
    ],
)  # fmt: skip
def test_what_is_no_first_message_is_refused(listener: PostgresListener, hello: bytes):
    with RawClient(listener.port, hello) as client:
        client.socket.shutdown(socket.SHUT_WR)
        kind, body = client.message()
        found = [(kind, body)] if kind == "E" else [one for one in client.until("E") if one[0] == "E"]
        assert fields(found[-1][1])["S"] == "FATAL"
        assert client.is_closed()


def test_a_token_is_the_password():
    with listening(StandIn("", "secret"), port=0) as listener:
        with psycopg.connect(dsn(listener, "password=secret")) as client:
            assert client.execute("SELECT current_user").fetchone() == ("ann",)
        with pytest.raises(psycopg.OperationalError, match="this token is not known"):
            psycopg.connect(dsn(listener, "password=wrong"))
        with pytest.raises(psycopg.OperationalError, match="no password supplied"):
            psycopg.connect(dsn(listener))
        with RawClient(listener.port, startup(user="me")) as client:
            client.until("R")
            client.send(message("Q", b"SELECT 1\0"))
            assert fields(client.message()[1])["C"] == "08P01"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for this machine, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


def test_tls(certificate: Path):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with listening(StandIn("", "secret"), tls=tls, port=0) as listener:
        with psycopg.connect(dsn(listener, "sslmode=require password=secret")) as client:
            assert client.pgconn.ssl_in_use
            assert client.execute("SELECT 1").fetchone() == (1,)
        with RawClient(listener.port, struct.pack("!ii", 8, 80877103) + startup(user="me")) as client:
            assert fields(client.message()[1])["M"] == "a client sends before its connection is encrypted"


def test_a_token_is_not_taken_where_others_can_read_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headrace.server.postgres.listener._Client._is_loopback", lambda _: False)
    with (
        listening(StandIn("", "secret"), port=0) as listener,
        pytest.raises(psycopg.OperationalError, match=r"(?s)others can read.*TLS"),
    ):
        psycopg.connect(dsn(listener, "password=secret"))


def test_a_statement_is_cancelled_and_the_connection_goes_on(server: StandIn, listener: PostgresListener):
    def cancel() -> None:
        until(lambda: server.sleeping)
        client.cancel_safe()

    with psycopg.connect(dsn(listener), autocommit=True) as client:
        canceller = threading.Thread(target=cancel)
        canceller.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            client.execute("SLEEP")
        canceller.join()
        assert client.execute("SELECT 1").fetchone() == (1,)
    with RawClient(listener.port, struct.pack("!iiii", 16, 80877102, 1, 2)) as stranger:
        assert stranger.is_closed()


def test_a_statement_has_a_limit_of_time(listener: PostgresListener):
    with psycopg.connect(dsn(listener), autocommit=True) as client:
        client.execute("SET statement_timeout = '200 ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            client.execute("SLEEP")


def test_a_client_that_goes_away_interrupts_its_statement(server: StandIn, listener: PostgresListener):
    client = RawClient(listener.port)
    client.send(message("Q", b"SLEEP\0"))
    until(lambda: server.sleeping)
    client.socket.close()
    until(lambda: server.connections[0].closed)


def test_a_client_that_leaves_in_order_has_its_statements_carried_out(server: StandIn, listener: PostgresListener):
    with RawClient(listener.port) as client:
        client.send(message("Q", b"INSERT INTO t VALUES (9, 'z')\0"), message("X"))
        until(lambda: server.connections[0].closed)
    with RawClient(listener.port) as client:
        assert client.rows("SELECT name FROM t WHERE id = 9") == [(b"z",)]


def test_limits_of_messages_and_connections():
    limits = WireLimits(connections=2, message_bytes=1000)
    server = StandIn()
    with listening(server, limits=limits, port=0) as listener, RawClient(listener.port) as client:
        client.send(message("Q", b"x" * 2000))
        assert fields(client.message()[1]) | {"D": ""} == {
            "S": "FATAL", "V": "FATAL", "C": "54000", "M": "a message is too long", "D": "",
        }  # fmt: skip
        hello = startup(user="me")
        with RawClient(listener.port), RawClient(listener.port), RawClient(listener.port, hello) as third:
            assert fields(third.message()[1])["C"] == "53300"
        until(lambda: all(connection.closed for connection in server.connections))
        with RawClient(listener.port) as again:
            assert again.rows("SELECT 1") == [(b"1",)]


def test_a_client_that_does_not_say_who_it_is_has_a_limit_of_time():
    limits = WireLimits(startup_seconds=0.3)
    with listening(StandIn(), limits=limits, port=0) as listener, RawClient(listener.port, b"\0\0") as silent:
        assert silent.is_closed()


def test_the_server_stops_while_clients_work(server: StandIn):
    with listening(server, port=0) as listener:
        idle, busy = RawClient(listener.port), RawClient(listener.port)
        busy.send(message("Q", b"SLEEP\0"))
        until(lambda: server.sleeping)
    with idle, busy:
        assert fields(idle.message()[1])["C"] == "57P01"
        assert busy.is_closed()
    assert all(connection.closed for connection in server.connections)
