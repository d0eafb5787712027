"""The routes: what they reply, who may use them, and what they refuse."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pytest
from tests.fixtures.waiting import PATIENCE
from tests.unit.server.asking import AppClient
from tests.unit.server.standing_in import StandIn, answer

from headrace.server.access import LOCAL, ROUTES, Limits
from headrace.server.access.needs import ROLES, allows
from headrace.server.http import HttpSettings, make_app
from headrace.server.http.openapi import DESCRIBED

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def server() -> StandIn:
    return StandIn()


def connected(server: StandIn, client: str = "127.0.0.1", url: str = "http://localhost", **settings: Any) -> AppClient:
    return AppClient(make_app(server, HttpSettings(**settings)), client, url)


@pytest.fixture
def client(server: StandIn) -> AppClient:
    return connected(server)


def ask(client: AppClient, text: str, **headers: str) -> Any:
    return client.post("/sql", content=text, headers={"content-type": "application/sql", **headers})


# ---- statements


def test_rows_as_json(client: AppClient):
    reply = client.post("/sql", json={"sql": "SELECT * FROM numbers; INSERT INTO numbers VALUES (1)"})
    assert reply.status_code == 200
    rows, said = reply.json()["replies"]
    assert rows["rows"] == [
        {"n": 1, "at": "1970-01-01T00:00:00.000000Z", "x": 1.5},
        {"n": "9007199254740993", "at": None, "x": "NaN"},
    ]
    assert [column["name"] for column in rows["columns"]] == ["n", "at", "x"]
    assert (rows["tag"], rows["notes"]) == ("SELECT", ["a note"])
    assert said == {"tag": "INSERT", "message": "1 row", "count": 1}


def test_rows_as_arrow(client: AppClient):
    body = io.BytesIO(ask(client, "SELECT * FROM numbers; INSERT INTO numbers VALUES (1)", accept=ARROW).content)
    first = pa.ipc.open_stream(body).read_all()
    assert first.replace_schema_metadata().slice(0, 1).equals(answer().slice(0, 1))
    second = pa.ipc.open_stream(body).read_all()
    assert second.schema.metadata == {
        b"headrace.tag": b"INSERT", b"headrace.message": b"1 row", b"headrace.count": b"1"
    }  # fmt: skip
    assert body.read() == b""


def test_an_error_says_where(client: AppClient):
    reply = ask(client, "SHOW STREAMS;\n  DROP STREAM x")
    assert (reply.status_code, reply.json()) == (400, {
        "code": "SQL", "message": "there is nothing to drop", "given": "x", "allowed": "y", "instead": "",
        "line": 2, "column": 3, "at": [16, 20],
    })  # fmt: skip


def test_an_unexpected_failure_shows_nothing(client: AppClient):
    reply = ask(client, "VERIFY numbers")
    assert reply.status_code == 500
    assert "hunter2" not in reply.text
    assert reply.json()["message"] == "the server failed at this; its log says why"


def test_a_subscription_has_its_own_route(client: AppClient):
    reply = ask(client, "DESCRIBE numbers")
    assert (reply.status_code, reply.json()["instead"]) == (400, "GET /subscribe/NAME?form=events")


def test_names_may_have_slashes(client: AppClient):
    """SQL can quote any name; an address with `%2F` arrives as `/`."""
    reply = client.get("/queries/of%2Fan/batches")
    assert client.get("/subscribe/of%2Fan?form=none").json()["given"] == "none"
    assert "no such route" not in reply.text


def test_a_statement_is_interrupted_in_time(server: StandIn):
    client = connected(server, limits=Limits(statement_seconds=0.05))
    reply = ask(client, "EXPLAIN numbers")
    assert (reply.status_code, reply.json()["code"]) == (504, "LIMIT")
    assert server.cancelled.wait(PATIENCE)


def test_replies_and_bodies_are_bounded(server: StandIn):
    client = connected(server, limits=Limits(reply_rows=1, body_bytes=100, statement_bytes=50))
    assert ask(client, "SELECT * FROM numbers").status_code == 413
    assert ask(client, "x" * 60).json()["allowed"] == "statement_bytes: 50"
    assert ask(client, "x" * 101).json()["allowed"] == "body_bytes: 100"
    parts = iter([b"x" * 60, b"x" * 60])
    assert client.post("/sql", content=parts, headers={"content-type": "application/sql"}).status_code == 413
    assert server.open == []


def test_a_client_has_so_many_connections(server: StandIn):
    client = connected(server, limits=Limits(connections=1))
    with client.app.state.ways.connections.use(LOCAL):
        assert ask(client, "SHOW STREAMS").status_code == 429
    assert ask(client, "SHOW STREAMS").status_code == 200


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"SHOW STREAMS", "application/sql", 200),
        (b"SHOW STREAMS", "application/sql; charset=utf-8", 200),
        (b"SHOW STREAMS", "text/plain", 415),
        (b"SHOW STREAMS", "application/x-www-form-urlencoded", 415),
        (b"SHOW STREAMS", "multipart/form-data", 415),
        (b"\xff", "application/sql", 400),
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"sql": 1}', "application/json", 400),
        (b'{"sql": "SHOW STREAMS", "more": 1}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
    ],
)
def test_what_a_body_may_be(client: AppClient, body: bytes, kind: str, status: int):
    assert client.post("/sql", content=body, headers={"content-type": kind}).status_code == status


def test_no_content_type_and_compression_are_refused(client: AppClient):
    assert client.post("/sql", content=b"SHOW STREAMS").status_code == 415
    assert ask(client, "SHOW STREAMS", **{"content-encoding": "gzip"}).status_code == 415


# ---- rows


def test_rows_come_in_as_json_lines_or_arrow(server: StandIn, client: AppClient):
    stream = io.BytesIO()
    table = pa.table({"n": pa.array([5])})
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    bodies = [
        (b'[{"n": 1}, {"n": 2}]', "application/json", 2),
        (b'{"n": 3}', "application/json", 1),
        (b'{"n": 4}\n\n', "application/x-ndjson", 1),
        (stream.getvalue(), ARROW, 1),
    ]
    for body, kind, count in bodies:
        reply = client.post("/streams/numbers/rows", content=body, headers={"content-type": kind})
        assert reply.json() == {"rows": count, "key": None}
    assert server.streams["numbers"] == [1, 2, 3, 4, 5]


def test_a_key_makes_an_insert_repeatable(server: StandIn, client: AppClient):
    for _ in range(2):
        reply = client.post("/streams/numbers/rows", json=[{"n": 1}], headers={"idempotency-key": "a"})
        assert reply.json() == {"rows": 1, "key": "a"}
    assert server.streams["numbers"] == [1]
    assert client.post("/streams/numbers/rows", json=[], headers={"idempotency-key": "a" * 201}).status_code == 400


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"[1]", "application/json"),
        (b'[{"n": NaN}]', "application/json"),
        (b'{"n": 1}\nnothing', "application/x-ndjson"),
        (b"ARROW1", ARROW),
        (b"", ARROW),
        (b"", "application/json"),
        (b'{"m": 1}', "application/json"),
    ],
)
def test_rows_that_are_none(server: StandIn, client: AppClient, body: bytes, kind: str):
    reply = client.post("/streams/numbers/rows", content=body, headers={"content-type": kind})
    assert (reply.status_code, server.streams["numbers"]) == (400, [])


def test_lines_are_acknowledged_as_they_come(server: StandIn, client: AppClient):
    body = b'{"n": 1}\n{"n": 2}\n{"n": 3}\n\n{"n": 4}'
    for _ in range(2):
        reply = client.post(
            "/streams/numbers/rows?batch=2", content=iter([body[:12], body[12:]]),
            headers={"content-type": "application/x-ndjson", "idempotency-key": "k"},
        )  # fmt: skip
        assert [json.loads(line) for line in reply.text.splitlines()] == [
            {"rows": 2, "total": 2}, {"rows": 1, "total": 3}, {"rows": 1, "total": 4}
        ]  # fmt: skip
    assert server.streams["numbers"] == [1, 2, 3, 4]
    assert sorted(server.keys) == ["k/0", "k/1", "k/2"]


def test_lines_are_acknowledged_up_to_an_error(server: StandIn, client: AppClient):
    headers = {"content-type": "application/x-ndjson"}
    reply = client.post("/streams/numbers/rows?batch=1", content=b'{"n": 1}\n\n\nx\n{"n": 2}', headers=headers)
    first, last = map(json.loads, reply.text.splitlines())
    assert first == {"rows": 1, "total": 1}
    assert (last["total"], last["error"]["code"]) == (1, "BAD_ROW")
    assert last["error"]["message"].startswith("line 4 is not JSON")
    assert server.streams["numbers"] == [1]
    for batch in ("0", "x", "1000000", "²"):
        assert client.post(f"/streams/numbers/rows?batch={batch}", content=b"", headers=headers).status_code == 400


def test_a_stream_that_there_is_not(client: AppClient):
    assert client.post("/streams/none/rows", json=[]).status_code == 404
    assert client.get("/subscribe/none").status_code == 404


@pytest.mark.parametrize("query", ["form=none", "rows=0", "rows=x", "rows=10001"])
def test_what_a_subscription_may_not_ask_for(client: AppClient, query: str):
    assert client.get(f"/subscribe/numbers?{query}").status_code == 400


def test_an_old_cursor_is_gone(server: StandIn, client: AppClient):
    server.first = 5
    reply = client.get("/subscribe/numbers?cursor=2")
    assert (reply.status_code, reply.json()["allowed"]) == (410, "5 or later")
    assert server.open == []


# ---- modules


def test_wheels_come_in_as_zip_files(client: AppClient):
    reply = client.post("/modules", content=b"a wheel", headers={"content-type": "application/zip"})
    assert reply.json() == {"replies": [{"tag": "INSTALL MODULES", "message": "7 bytes", "count": None}]}
    for kind in ("application/octet-stream", "multipart/form-data", "text/plain"):
        assert client.post("/modules", content=b"a wheel", headers={"content-type": kind}).status_code == 415
    assert client.request("DELETE", "/modules/tallies").json()["replies"][0]["message"] == "tallies"


# ---- about the server


def test_health_and_readiness(server: StandIn, client: AppClient):
    assert client.get("/health").json()["queries"]["old"] == "stopped"
    assert client.get("/ready").json() == {"ready": True}
    server.well = False  # a query has failed: a new start would not help
    health = client.get("/health")
    assert (health.status_code, health.json()["ok"]) == (200, False)
    assert client.get("/ready").status_code == 200
    server.alive = False
    assert client.get("/health").status_code == 503
    assert client.get("/ready").status_code == 503
    server.alive = True
    client.app.state.ways.stopping = True
    assert (client.get("/ready").status_code, client.get("/health").status_code) == (503, 200)


def test_health_tells_strangers_nothing(server: StandIn):
    assert connected(server, "10.0.0.1").get("/health").json() == {"alive": True, "ok": True}


def test_the_metrics_have_queries_and_requests(client: AppClient):
    ask(client, "SHOW STREAMS")
    client.post("/streams/numbers/rows", json=[{"n": 1}])
    text = client.get("/metrics").text
    for line in (
        'headrace_requests_total{method="POST",route="/sql",status="200"} 1.0',
        "headrace_inserted_rows_total 1.0",
        'headrace_rows_total{fate="late",query="q",source="numbers"} 1.0',
        'headrace_query_state{query="old",state="stopped"} 1.0',
        'headrace_state_bytes{operator="join",place="0",query="q"} 64.0',
        'headrace_batch_seconds{query="q"} 0.25',
        'headrace_cti{query="q"} 1704067200.0',
    ):
        assert line in text.splitlines()
    assert "headrace_cti_lag_seconds" in text


def test_the_description_has_every_route(client: AppClient):
    assert set(DESCRIBED) == set(ROUTES)
    paths = client.get("/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path, methods in paths.items() for method in methods} == set(ROUTES)
    page = client.get("/docs")
    assert all(path in page.text for path in paths)
    assert "http" not in page.text.replace("http</code>", ""), "the page loads and links nothing"
    assert "'unsafe-inline'" not in page.headers["content-security-policy"]


# ---- who may do what

BODIES: dict[str, dict[str, Any]] = {
    "/sql": {"json": {"sql": "SHOW STREAMS"}},
    "/streams/{name}/rows": {"json": [{"n": 1}]},
    "/subscribe/{name}": {"params": {"form": "none"}},  # refused after the check of the role, and before it goes on
    "/modules": {"content": b"a wheel"},
    "/ui/data/check": {"json": {"sql": "SELECT 1"}},
    "/ui/data/traces": {"json": {"query": 1}},  # refused after the check of the role
}
KINDS = {("POST", "/modules"): "application/zip"}
#: What a route replies with when it is reached: most of them with 200.
REACHED = {"/": 307, "/ui/{name}": 404, "/subscribe/{name}": 400}
REACHED |= dict.fromkeys(("/ui/data/query", "/ui/data/query/plan", "/ui/data/query/checkpoint"), 400)
REACHED |= {"/ui/data/traces": 400, "/ui/data/traces/{name}/{part}": 410}
REACHED |= {"/queries/{name}/trace": 404}  # nothing is traced there


@pytest.mark.parametrize("role", [None, "wrong", *ROLES])
@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
@pytest.mark.parametrize("place", ["here", "here, tokens required", "elsewhere", "elsewhere, plain", "proxy"])
def test_every_route_with_every_role_and_none(route: tuple[str, str], role: str | None, place: str):
    method, path = route
    server = StandIn(required="required" in place)
    client = connected(server, "10.0.0.1" if place.startswith("elsewhere") else "127.0.0.1", plain="," in place)
    headers = {} if role is None else {"authorization": f"Bearer {role}"}
    if place == "proxy":
        headers["x-forwarded-for"] = "10.0.0.1"
    if route in KINDS:
        headers["content-type"] = KINDS[route]
    body = BODIES.get(path, {}) if route != ("GET", "/modules") else {}
    reply = client.request(method, path.replace("{name}", "numbers"), headers=headers, **body)
    needed = ROUTES[route]
    if needed is None:
        wanted = REACHED.get(path, 200)
    elif role == "wrong" or place in ("elsewhere", "proxy") or (role is None and place != "here"):
        wanted = 401
    elif role is not None and not allows(role, needed):  # type: ignore[arg-type]
        wanted = 403
    else:
        wanted = REACHED.get(path, 200)
    assert reply.status_code == wanted, reply.text
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert ("www-authenticate" in reply.headers) == (wanted == 401)


@pytest.mark.parametrize(
    ("text", "role"), [("SHOW STREAMS", "reader"), ("CREATE SCHEMA s (a INT)", "writer"), ("SET host = spark", "admin")]
)
@pytest.mark.parametrize("given", ROLES)
def test_statements_need_their_roles(client: AppClient, text: str, role: str, given: str):
    reply = ask(client, text, authorization=f"Bearer {given}")
    assert reply.status_code == (200 if allows(given, role) else 403)  # type: ignore[arg-type]


def test_a_header_without_a_token(client: AppClient):
    for header in ("", "Bearer", "Bearer  ", "Basic YTpi"):
        assert client.get("/queries", headers={"authorization": header}).status_code == 401


def test_other_machines_come_by_tls(server: StandIn):
    client = connected(server, "10.0.0.1", "https://localhost")
    assert client.get("/queries", headers={"authorization": "Bearer reader"}).status_code == 200


def test_routes_that_there_are_not(client: AppClient):
    assert client.get("/none").json()["instead"] == "GET /docs"
    assert (client.get("/sql").status_code, client.request("PUT", "/queries").status_code) == (405, 405)


def test_parts_of_a_query(client: AppClient):
    reply = client.get("/ui/data/query/plan?name=q")
    assert (reply.status_code, reply.json()) == (200, {"query": "q", "part": "plan", "since": 0})
    assert client.get("/ui/data/query?name=q&since=1.5").json() == {"query": "q", "part": "now", "since": 1.5}
    for wrong in ("", "?name=x/y", "?name=q&since=x", "?name=q&since=inf"):
        assert client.get(f"/ui/data/query{wrong}").status_code == 400
