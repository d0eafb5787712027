"""Random requests: each is answered, with JSON and without what a failure would show."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.asking import AppClient
from tests.unit.server.standing_in import StandIn

from headrace.server.access import ROUTES, Limits
from headrace.server.http import HttpSettings, make_app

KINDS = [
    "application/json",
    "application/sql",
    "application/x-ndjson",
    "application/vnd.apache.arrow.stream",
    "text/plain",
]
_WORDS = st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=20)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["n", "sql", "x"]), inner, max_size=3),
    max_leaves=8,
)


def _arrow() -> bytes:
    out = pa.BufferOutputStream()
    table = pa.table({"n": pa.array([1, 2, 3])})
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return bytes(out.getvalue().to_pybytes())


@st.composite
def damaged_arrow(draw: st.DrawFn) -> bytes:
    """An Arrow stream with some bytes changed, or cut off."""
    body = bytearray(_arrow())
    for _ in range(draw(st.integers(0, 4))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return bytes(body[: draw(st.integers(0, len(body)))])


BODIES = (
    st.binary(max_size=200)
    | _VALUES.map(lambda value: json.dumps(value).encode())
    | st.lists(_VALUES, max_size=4).map(lambda lines: b"\n".join(json.dumps(line).encode() for line in lines))
    | damaged_arrow()
)
PATHS = st.sampled_from(
    [path.replace("{name}", "numbers") for _, path in ROUTES if "subscribe" not in path]
) | st.builds(
    "/{}/{}".format,
    st.sampled_from(["sql", "streams", "subscribe", "x"]),
    st.text("abc%/.{}? é\U0001f600", max_size=8),
)
HEADERS = st.dictionaries(
    st.sampled_from([
        "authorization", "idempotency-key", "accept", "origin", "host", "last-event-id", "content-encoding",
        "x-forwarded-for", "sec-fetch-site", "cookie",
    ]), _WORDS, max_size=3,
)  # fmt: skip
CLIENT = AppClient(make_app(StandIn(), HttpSettings(limits=Limits(body_bytes=1000, statement_seconds=20))))


@given(st.sampled_from(["GET", "POST", "PUT", "OPTIONS", "HEAD"]), PATHS, st.sampled_from(KINDS), BODIES, HEADERS)
def test_every_request_is_answered(method: str, path: str, kind: str, body: bytes, headers: dict[str, str]):
    sent = {"content-type": kind} | {name: value.encode("latin-1") for name, value in headers.items()}
    reply = CLIENT.request(method, path, content=body, headers=sent)
    assert reply.status_code < 500, reply.text
    if reply.status_code >= 400 and method != "HEAD":
        assert {"code", "message"} <= set(reply.json())
    assert reply.headers["x-frame-options"] == "DENY"
    assert CLIENT.app.state.ways.connections.in_use() == 0


@given(st.sampled_from(KINDS), BODIES, st.sampled_from(["", "?batch=1", "?batch=2"]))
def test_rows_are_inserted_or_refused(kind: str, body: bytes, query: str):
    server: Any = StandIn()
    client = AppClient(make_app(server))
    reply = client.post(f"/streams/numbers/rows{query}", content=body, headers={"content-type": kind})
    assert reply.status_code in (200, 400, 415), reply.text
    count = len(server.streams["numbers"])
    if reply.status_code == 200:
        lines = [json.loads(line) for line in reply.text.splitlines()]
        assert count == sum(line.get("rows", 0) for line in lines)
    else:
        assert count == 0
