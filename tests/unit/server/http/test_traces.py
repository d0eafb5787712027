"""Traces of a server through its routes: what a reader may take, and what is noted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.fixtures.waiting import PATIENCE
from tests.unit.server.asking import AppClient

from headrace.dashboard.traces import TraceData
from headrace.server import tracing
from headrace.server.core import HeadraceServer
from headrace.server.http.app import make_app
from headrace.server.http.ways import HttpSettings, Ways
from headrace.server.interface import Who

_ROUTE = "/ui/data/traces"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    folder = tmp_path_factory.mktemp("traces")
    (folder / "files").mkdir()
    (folder / "files" / "n.csv").write_text("time,a\n" + "".join(f"{i},{i % 3}\n" for i in range(50)))
    with HeadraceServer(folder / "data", durable=False, roots=[str(folder / "files")]) as server:
        created = f"""
            CREATE STREAM n (time LONG, a LONG) ORDER BY time SOURCE FILE ('{folder}/files/n.csv', ',');
            QUERY counted AS SELECT time, a FROM n WHERE a < 2;
        """
        list(server.connect(Who("ann", "admin")).execute(created))
        yield server


@pytest.fixture
def client(server: HeadraceServer) -> AppClient:
    return AppClient(make_app(server, HttpSettings(audit=server.access.audit)))


def traced(client: AppClient, **more: Any) -> Any:
    return client.post(_ROUTE, json={"query": "counted", **more})


def test_rows_of_files_count(client: AppClient, monkeypatch: pytest.MonkeyPatch):
    assert traced(client).json()["rows"] > 50
    monkeypatch.setattr(tracing, "MOST_TRACED_CHANGES", 50)
    refused = traced(client)
    assert (refused.status_code, refused.json()["allowed"]) == (413, "50")
    assert refused.json()["given"].endswith("changes")
    monkeypatch.setattr(tracing, "MOST_TRACED_ROWS", 49)
    refused = traced(client)
    assert (refused.status_code, refused.json()["given"], refused.json()["allowed"]) == (413, "50 rows", "49")


def test_two_traces_run_at_once(server: HeadraceServer, client: AppClient, monkeypatch: pytest.MonkeyPatch):
    begun, go_on, trace = threading.Semaphore(0), threading.Event(), server.trace

    def waits(*given: Any, **options: Any) -> Any:
        begun.release()
        assert go_on.wait(PATIENCE)
        return trace(*given, **options)

    monkeypatch.setattr(server, "trace", waits)
    replies: list[Any] = []
    running = [threading.Thread(target=lambda: replies.append(traced(client))) for _ in range(2)]
    for thread in running:
        thread.start()
    try:
        assert all(begun.acquire(timeout=PATIENCE) for _ in running)
        third = traced(client)
        assert (third.status_code, third.json()["allowed"]) == (429, "traces: 2 for all clients")
        assert client.get("/queries/counted/trace").status_code == 429
    finally:
        go_on.set()
        for thread in running:
            thread.join(PATIENCE)
    assert [reply.status_code for reply in replies] == [200, 200]
    assert traced(client).status_code == 200


@pytest.mark.parametrize("part", ["forward", "why_not", "lines"])
def test_questions_have_the_time_of_a_statement(client: AppClient, monkeypatch: pytest.MonkeyPatch, part: str):
    key = traced(client).json()["trace"]
    asked = threading.Event()

    def late(*_: Any, **__: Any) -> dict[str, Any]:
        asked.wait(PATIENCE)
        return {}

    ways: Ways = client.app.state.ways
    monkeypatch.setattr(TraceData, part, late)
    monkeypatch.setattr(ways, "limits", replace(ways.limits, statement_seconds=0.05))
    reply = client.get(f"{_ROUTE}/{key}/{part}?operator=1&batch=0&row=0")
    asked.set()
    assert (reply.status_code, reply.json()["allowed"]) == (504, "statement_seconds: 0.05")


def test_opening_is_noted(server: HeadraceServer, client: AppClient):
    assert client.post(_ROUTE, json={"query": "nothing"}).status_code == 400
    assert traced(client).status_code == 200
    server.access.audit.flush()
    noted = {(one.statement, one.outcome) for one in server.access.audit.entries()}
    assert noted >= {("TRACE nothing", "TRACE"), ("TRACE counted", "done")}


def test_what_a_request_may_have(client: AppClient):
    for more in ({"batches": [1, 2]}, {"batch_rows": 0}, {"batch_rows": 10**20}, {"batch_rows": True}):
        refused = traced(client, **more)
        assert (refused.status_code, refused.json()["code"]) == (400, "SERVER"), more


def test_files_are_read_whole_and_the_reply_says_so(client: AppClient):
    assert traced(client).json()["notes"] == []
    found = traced(client, batch_rows=10).json()
    assert (found["batches"], found["notes"][0][:23]) == (1, "Each file is read whole")


@pytest.mark.parametrize("number", ["9" * 23, "9" * 5_000, "-1", "1.5", "٣"])
def test_numbers_that_are_none(client: AppClient, number: str):
    key = traced(client).json()["trace"]
    for name in ("operator", "batch", "offset", "limit"):
        given = {"operator": "1", "batch": "0", name: number}
        reply = client.get(f"{_ROUTE}/{key}/changes", params=given)
        assert (reply.status_code, reply.json()["code"]) == (400, "TRACE")
    reply = client.get(f"{_ROUTE}/{key}/why_not", params={"operator": "1", "batch": "0", "at": "9" * 5_000})
    assert reply.status_code == 400


def test_a_page_behind_the_last(client: AppClient):
    key = traced(client).json()["trace"]
    reply = client.get(f"{_ROUTE}/{key}/changes?operator=1&batch=0&offset=999999999999")
    assert (reply.status_code, reply.json()["rows"], reply.json()["total"]) == (200, [], 50)
