"""Schema registries: a small server on this machine with the two calls that are used.

`tests/services/test_schema_registry.py` makes the same calls to a real one.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import SchemaError, SourceError, Unavailable
from headrace.io.registry import schema_by_id, schema_id
from headrace.io.values import ValueDecoder, ValueFormat, encode_values
from headrace.schema import Schema


class Registry(ThreadingHTTPServer):
    """A registry of schemas, in memory."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.schemas: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.logins: list[str | None] = []
        self.fault: tuple[int, bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/api/"


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self._note()
        number = int(self.path.removeprefix("/api/schemas/ids/"))
        known = 1 <= number <= len(self.server.schemas)
        self._answer(200 if known else 404, self.server.schemas[number - 1] if known else {"error_code": 40403})

    def do_POST(self) -> None:
        self._note()
        schema = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if schema not in self.server.schemas:
            self.server.schemas.append(schema)
        self._answer(200, {"id": self.server.schemas.index(schema) + 1})

    def _note(self) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        self.server.logins.append(self.headers["Authorization"])

    def _answer(self, code: int, answer: Any) -> None:
        code, body = self.server.fault or (code, json.dumps(answer).encode())
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


@contextmanager
def serving() -> Iterator[Registry]:
    server = Registry()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as server:
        yield server


def test_values_of_several_schemas_in_one_batch(registry: Registry):
    first = encode_values(
        pa.table({"l": [1, 2], "s": ["a", "b"]}), ValueFormat("avro", registry=registry.url, subject="t")
    )
    second = encode_values(pa.table({"l": [3.5], "x": [0]}), ValueFormat("avro", registry=registry.url, subject="t"))
    third = encode_values(pa.table({"l": ["text"]}), ValueFormat("avro", registry=registry.url, subject="t"))
    assert first[0].as_py()[:5] == b"\x00\x00\x00\x00\x01"
    values = [first[0], second[0], None, b"", b"\x01\x00\x00\x00\x01", b"\x00\x00\x00\x00\x63x", third[0], first[1]]
    values = [value.as_py() if isinstance(value, pa.Scalar) else value for value in values]
    decoder = ValueDecoder(ValueFormat("avro", registry=registry.url), Schema.of("s STRING, l DOUBLE").fields)
    block = decoder.decode(pa.array(values, pa.binary()), np.arange(8) * 10)
    assert block.rows.tolist() == [0, 10, 70]
    assert block.table.to_pylist() == [{"s": "a", "l": 1.0}, {"s": None, "l": 3.5}, {"s": "b", "l": 2.0}]
    assert block.refused["row"].to_pylist() == [30, 40, 50, 60]
    reasons = block.refused["reason"].to_pylist()
    assert "does not begin with the number of a schema" in reasons[0]
    assert "does not begin with the number of a schema" in reasons[1]
    assert reasons[2] == "the registry has no schema 99"
    assert reasons[3].startswith("schema 3: column 'l'")


def test_a_process_asks_once(registry: Registry):
    schema = '{"type": "long"}'
    assert [schema_id(registry.url, "a/b", schema) for _ in range(3)] == [1, 1, 1]
    assert [schema_by_id(registry.url, 1) for _ in range(3)] == [schema] * 3
    assert registry.requests == ["POST /api/subjects/a%2Fb/versions", "GET /api/schemas/ids/1"]
    assert [schema_by_id(registry.url, 2) for _ in range(2)] == [None, None]  # it may be registered later
    assert len(registry.requests) == 4


def test_a_user_in_the_url_or_in_the_environment(registry: Registry, monkeypatch: pytest.MonkeyPatch):
    def login(user: str, password: str) -> str:
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    schema_by_id(registry.url, 7)
    schema_by_id(registry.url.replace("://", "://me:p%40ss@"), 7)
    monkeypatch.setenv("HEADRACE_REGISTRY_USER", "you")
    monkeypatch.setenv("HEADRACE_REGISTRY_PASSWORD", "secret")
    schema_by_id(registry.url, 7)
    assert registry.logins == [None, login("me", "p@ss"), login("you", "secret")]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ((500, b"oops"), Unavailable),
        ((429, b""), Unavailable),
        ((200, b"no json"), Unavailable),
        ((401, b"who"), SourceError),
    ],
)
def test_faults(registry: Registry, fault: tuple[int, bytes], error: type[Exception]):
    registry.fault = fault
    url = registry.url.replace("://", "://me:hidden@")
    with pytest.raises(error) as raised:
        schema_by_id(url, 1)
    assert "hidden" not in str(raised.value)
    registry.fault = None
    assert schema_by_id(url, 1) is None


def test_a_registry_that_does_not_answer():
    with serving() as server:
        url = server.url.replace("://", "://me:hidden@")
    with pytest.raises(Unavailable, match="does not answer") as raised:
        ValueDecoder(ValueFormat("avro", registry=url), Schema.of("l LONG").fields).decode(
            pa.array([b"\x00\x00\x00\x00\x01"]), np.arange(1)
        )
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    "schema", [{"schema": "x", "schemaType": "JSON"}, {"schema": "{}", "references": [{"name": "x"}]}]
)
def test_schemas_that_are_not_avro_in_one_piece(registry: Registry, schema: dict[str, Any]):
    registry.schemas.append(schema)
    decoder = ValueDecoder(ValueFormat("avro", registry=registry.url), Schema.of("l LONG").fields)
    block = decoder.decode(pa.array([b"\x00\x00\x00\x00\x01"]), np.arange(1))
    assert block.refused["reason"][0].as_py().startswith("schema 1")


def test_a_registry_is_a_url():
    with pytest.raises(SchemaError, match="is a URL"):
        schema_by_id("file:///etc/passwd", 1)
    with pytest.raises(SchemaError, match="under a subject"):
        encode_values(pa.table({"l": [1]}), ValueFormat("avro", registry="http://127.0.0.1:1"))
