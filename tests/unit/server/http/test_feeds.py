"""Subscriptions and TLS, over sockets."""

from __future__ import annotations

import ipaddress
import json
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from tests.fixtures.waiting import until
from tests.unit.server.standing_in import StandIn

from headrace.errors import ServerError, Unavailable
from headrace.server.access import Limits
from headrace.server.client import connect
from headrace.server.core import HeadraceServer
from headrace.server.http import HttpServer, HttpSettings

ARROW = {"accept": "application/vnd.apache.arrow.stream"}


@pytest.fixture
def server() -> StandIn:
    return StandIn()


@pytest.fixture
def http(server: StandIn) -> Iterator[HttpServer]:
    settings = HttpSettings(heartbeat=0.05, limits=Limits(subscriptions=2))
    with HttpServer(server, port=0, settings=settings) as found:
        yield found


def events(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    """Server-sent events, and comments as `{"": …}`."""
    event: dict[str, Any] = {}
    for line in reply.iter_lines():
        if not line:
            yield event
            event = {}
        else:
            name, _, value = line.partition(": ")
            event[name.rstrip(":")] = json.loads(value) if name == "data" else value


def rows(found: Iterator[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    taken: list[dict[str, Any]] = []
    while sum(len(event["data"]["rows"]) for event in taken) < number:
        event = next(found)
        if "data" in event:
            taken.append(event)
    return taken


def test_a_snapshot_then_changes_then_on_from_the_cursor(server: StandIn, http: HttpServer):
    server.add("numbers", [1, 2, 3])
    with httpx.stream("GET", f"{http.url}/subscribe/numbers?rows=2") as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        found = events(reply)
        first, second = rows(found, 3)
        assert [event["data"]["snapshot"] for event in (first, second)] == [True, True]
        assert ("id" in first, second["id"]) == (False, "3"), "a snapshot is whole or begins again"
        assert first["data"]["rows"][0] == {"kind": "insert", "le": 1, "re": "inf", "re_new": None, "n": 1}
        server.add("numbers", [4])
        (third,) = rows(found, 1)
        assert (third["id"], third["data"]["snapshot"], third["data"]["cti"]) == ("4", False, 4)
        assert any("" in event for event in (next(found) for _ in range(3))), "a heartbeat"
    until(lambda: not server.open)
    server.add("numbers", [5])
    with httpx.stream("GET", f"{http.url}/subscribe/numbers", headers={"last-event-id": "4"}) as reply:
        (last,) = rows(events(reply), 1)
        assert [row["n"] for row in last["data"]["rows"]] == [5]


def test_an_arrow_stream_has_the_cursor_in_its_batches(server: StandIn, http: HttpServer):
    server.add("numbers", [1, 2, 3])
    with httpx.stream("GET", f"{http.url}/subscribe/numbers?cursor=1", headers=ARROW) as reply:
        stream = pa.ipc.open_stream(_Bytes(reply.iter_bytes()))
        batch, about = stream.read_next_batch_with_custom_metadata()
        assert batch.column("n").to_pylist() == [2, 3]
        assert (about[b"headrace.cursor"], about[b"headrace.cti"]) == (b"3", b"3")
        assert stream.read_next_batch().num_rows == 0
        server.add("numbers", [-1])
        while (about := stream.read_next_batch_with_custom_metadata()[1]) is None:
            pass
        assert json.loads(about[b"headrace.error"])["code"] == "SUBSCRIPTION"
        with pytest.raises(StopIteration):
            stream.read_next_batch()


class _Bytes:
    closed = False

    def __init__(self, parts: Iterator[bytes]) -> None:
        self.parts, self.waiting = parts, b""

    def read(self, size: int) -> bytes:
        while len(self.waiting) < size:
            part = next(self.parts, None)
            if part is None:
                break
            self.waiting += part
        taken, self.waiting = self.waiting[:size], self.waiting[size:]
        return taken

    def readable(self) -> bool:
        return True


def test_a_problem_ends_the_events(server: StandIn, http: HttpServer):
    server.add("numbers", [-1])
    with httpx.stream("GET", f"{http.url}/subscribe/numbers") as reply:
        found = [event for event in events(reply) if "data" in event]
    assert [event["event"] for event in found] == ["problem"]


def test_a_client_has_so_many_subscriptions(server: StandIn, http: HttpServer):
    place = f"{http.url}/subscribe/numbers"
    with httpx.stream("GET", place) as one, httpx.stream("GET", place) as two:
        assert (one.status_code, two.status_code) == (200, 200)
        assert httpx.get(place).status_code == 429
        assert "headrace_subscribers 2.0" in httpx.get(f"{http.url}/metrics").text.splitlines()
    until(lambda: not server.open)
    with httpx.stream("GET", place) as reply:
        assert reply.status_code == 200


def test_a_client_that_takes_nothing_is_disconnected(server: StandIn):
    settings = HttpSettings(patience=0.2)
    server.add("numbers", list(range(200_000)))
    with HttpServer(server, port=0, settings=settings) as http, httpx.stream("GET", f"{http.url}/subscribe/numbers"):
        until(lambda: not server.open)  # it was open when the reply began


def test_a_server_that_stops_ends_subscriptions(server: StandIn):
    http = HttpServer(server, port=0)
    http.start()
    with httpx.stream("GET", f"{http.url}/subscribe/numbers") as reply:
        http.stop()
        assert [event for event in events(reply) if "data" in event] == []
    assert server.open == []
    with pytest.raises(ServerError, match="cannot listen"), HttpServer(server, port=0) as other:
        HttpServer(server, port=other.port)


def test_lines_are_acknowledged_before_the_body_ends(server: StandIn, http: HttpServer):
    def lines() -> Iterator[bytes]:
        yield b'{"n": 1}\n\n'
        until(lambda: server.streams["numbers"] == [1])
        yield b'{"n": 2}\n'

    headers = {"content-type": "application/x-ndjson"}
    reply = httpx.post(f"{http.url}/streams/numbers/rows?batch=100", content=lines(), headers=headers)
    assert [json.loads(line)["total"] for line in reply.text.splitlines()] == [1, 2]


def test_tls_with_tokens_and_an_audit_log(tmp_path: Path):
    certificate, key = _certificate(tmp_path)
    with HeadraceServer(tmp_path / "data", tokens_required=True, durable=False) as server:
        access = server.access
        token = access.tokens.create("dashboard", "reader")
        trust = ssl.create_default_context(cafile=str(certificate))
        settings = HttpSettings(audit=access.audit)
        with HttpServer(server, port=0, certificate=certificate, key=key, settings=settings) as http:
            assert http.url.startswith("https://")
            with connect(http.url, token, ca=certificate) as own:
                assert own.sql("SHOW QUERIES").num_rows == 0
            with connect(http.url, token) as stranger, pytest.raises(Unavailable, match="certificate"):
                stranger.sql("SHOW QUERIES")
            with pytest.raises(ServerError, match="the certificates cannot be read"):
                connect(http.url, token, ca=key)
            with httpx.Client(
                base_url=http.url, verify=trust, headers={"authorization": f"Bearer {token}"}, timeout=60
            ) as client:
                assert client.get("/queries").status_code == 200
                assert client.post("/sql", json={"sql": "CREATE SECRET s AS 'hidden'"}).status_code == 403
                assert client.post("/streams/numbers/rows", json=[]).status_code == 403
            assert httpx.get(f"{http.url}/queries", verify=trust, timeout=60).status_code == 401
        noted = [(entry.who, entry.origin, entry.statement, entry.outcome) for entry in access.audit.entries()]
    assert noted[0] == ("(unknown)", "127.0.0.1", "GET /queries", "ACCESS")
    assert noted[1] == ("dashboard", "127.0.0.1", "POST /streams/numbers/rows", "ACCESS")
    assert ("dashboard", "127.0.0.1", "SHOW QUERIES", "done") in noted
    assert "hidden" not in str(noted)


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate that signs itself, for this machine."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    kind = serialization.PrivateFormat.PKCS8
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption()))
    return paths
