"""Queries that run together: who does, what is computed once, and what happens when one fails or leaves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.fixtures.sharing_server import SharingServer, sharing_server

import headrace as hr
from headrace import col
from headrace.events import cti_row
from headrace.host.driving.publish import Publisher
from headrace.host.local.live import LocalHost
from headrace.server.connection import ServerConnection
from headrace.server.core import HeadraceServer
from headrace.server.interface import Who
from headrace.testing.same import assert_same_history
from headrace.testing.strategies import SCHEMA, tables
from headrace.time import INFINITY

EVENTS = [
    {"kind": "insert", "le": time, "re": time + 3, "re_new": None, "k": key, "i": number, "x": 0.5}
    for time, key, number in [(1, "a", 1), (2, "b", 2), (4, "a", 3), (7, "b", 13), (9, "a", 5)]
]


class Superstitious(hr.IncrementalAggregate):
    """A sum that does not take 13."""

    input = "value LONG"
    output = "LONG"

    def initial(self) -> int:
        return 0

    def add(self, state: int, values: list[int]) -> int:
        if 13 in values:
            raise ValueError("thirteen")
        return state + sum(values)

    def remove(self, state: int, values: list[int]) -> int:
        return state - sum(values)

    def compute(self, state: int) -> int:
        return state


def physical(events: list[dict[str, Any]]) -> pa.Table:
    return tables(events, SCHEMA)


def plans() -> dict[str, hr.Stream]:
    stream = hr.events(physical(EVENTS), SCHEMA.arrow)
    sums = stream.group_by("k").window(hr.tumbling(5)).aggregate(i=hr.sum("i"), x=hr.max("x"))
    bad = stream.group_by("k").window(hr.tumbling(5)).aggregate(i=Superstitious().of("i"))
    high = sums.where(col("i") > 2)
    return {"sums": sums, "high": high, "bad": bad, "rows": stream.where(col("i") != 2)}


def start(live: SharingServer) -> None:
    for query in live.queries.values():
        query.start()
    live.catch_up()
    live.runs.look()


def finish(live: SharingServer) -> None:
    live.append(cti_row(INFINITY, SCHEMA))
    live.catch_up()


def test_what_is_equal_is_computed_once():
    with sharing_server({name: plan for name, plan in plans().items() if name != "bad"}) as live:
        live.append(physical(EVENTS[:2]))
        start(live)
        assert live.together() == [["sums", "high", "rows"]]
        (run,) = live.runs.runs
        described = [node.describe() for node in run.query.line.nodes]
        assert sum(text.startswith("Source") for text in described) == 1
        assert sum(text.startswith("Merge") for text in described) == 1, described
        live.append(physical(EVENTS[2:]))
        finish(live)
        for name, plan in live.plans.items():
            assert_same_history(live.answer(name), plan.cht())


def test_a_query_that_fails_is_cut_out():
    with sharing_server(plans()) as live:
        live.append(physical(EVENTS[:2]))
        start(live)
        assert live.together() == [["sums", "high", "bad", "rows"]]
        live.append(physical(EVENTS[2:]))
        live.append(cti_row(INFINITY, SCHEMA))
        deadline = time.monotonic() + 60
        while live.queries["bad"].error is None and time.monotonic() < deadline:
            live.runs.look()
            time.sleep(0.01)
        assert "thirteen" in str(live.queries["bad"].error)
        assert (live.queries["bad"].state, live.queries["sums"].state) == ("failed", "running")
        for query in live.queries.values():
            if query.name != "bad":
                query.process_all_available()
        live.runs.look()
        assert sorted(map(len, live.together())) == [1, 3], live.together()
        for name in ("sums", "high", "rows"):
            live.queries[name].process_all_available()
            assert_same_history(live.answer(name), live.plans[name].cht())


def test_a_query_that_is_stopped_goes_on_from_its_place():
    with sharing_server({name: plan for name, plan in plans().items() if name != "bad"}) as live:
        live.append(physical(EVENTS[:2]))
        start(live)
        live.queries["sums"].stop()
        live.queries["sums"].start()
        live.catch_up()
        live.runs.look()
        assert live.together() == [["high", "rows", "sums"]]
        live.queries["high"].stop()
        assert live.together() == [["rows", "sums"]]
        live.append(physical(EVENTS[2:4]))
        live.catch_up()
        live.again()
        assert live.together() == [["rows", "sums"]]
        live.queries["high"].start()
        live.append(physical(EVENTS[4:]))
        live.catch_up()
        live.runs.look()
        assert live.together() == [["rows", "sums", "high"]]
        finish(live)
        for name, plan in live.plans.items():
            assert_same_history(live.answer(name), plan.cht())
        live.queries["sums"].stop()
        live.runs.forget(live.queries["sums"].stored.id)
        assert live.together() == [["rows", "high"]]
        assert len(list((live.root / "checkpoints").iterdir())) == 1


def test_what_a_killed_process_has_not_delivered_is_delivered(monkeypatch: pytest.MonkeyPatch):
    with sharing_server({name: plan for name, plan in plans().items() if name != "bad"}) as live:
        live.append(physical(EVENTS[:2]))
        start(live)
        with monkeypatch.context() as killed:  # after its commit, before its delivery
            killed.setattr(Publisher, "publish", lambda *_: None)
            shape = live.input.schema.arrow
            live.append(pa.concat_tables([physical(EVENTS[2:]).cast(shape), cti_row(INFINITY, SCHEMA).cast(shape)]))
            live.catch_up()
            for run in live.runs.runs:
                run.query.stop()
        assert live.answer("rows").num_rows < live.plans["rows"].cht().num_rows
        live.runs.runs.clear()
        for name in ("rows", "sums"):  # not as they ran together
            live.queries[name].start()
        live.catch_up()
        live.queries["high"].start()
        live.catch_up()
        for name, plan in live.plans.items():
            assert_same_history(live.answer(name), plan.cht())


def test_a_query_joins_only_if_it_has_the_whole_history():
    with sharing_server({name: plan for name, plan in plans().items() if name != "bad"}) as live:
        live.append(physical(EVENTS[:2]))
        live.queries["sums"].start()
        live.catch_up()
        live.input.divide()
        live.append(physical(EVENTS[2:]))
        live.input.forget(2, physical(EVENTS[:2]).cast(live.input.schema.arrow))
        live.queries["high"].start()
        live.catch_up()
        live.runs.look()
        assert live.together() == [["sums"], ["high"]]
        assert live.queries["high"].why_alone() == "a stream that it reads has lost its beginning"


def test_a_failure_to_bring_queries_together_stops_none(monkeypatch: pytest.MonkeyPatch):
    with sharing_server({name: plan for name, plan in plans().items() if name != "bad"}) as live:
        live.append(physical(EVENTS[:2]))
        for query in live.queries.values():
            query.start()
        live.catch_up()
        with monkeypatch.context() as full:

            def set_places(*_: object) -> None:
                if len(live.runs.runs) == 0:
                    full.undo()
                    raise OSError(28, "No space left on device")

            full.setattr(live.runs.stored, "set_places", set_places)
            live.runs.look()
        assert sorted(map(len, live.together())) == [1, 1, 1]
        live.append(physical(EVENTS[2:]))
        finish(live)
        for name, plan in live.plans.items():
            assert_same_history(live.answer(name), plan.cht())


def test_a_query_keeps_its_buckets(monkeypatch: pytest.MonkeyPatch):
    with sharing_server({name: plan for name, plan in plans().items() if name != "bad"}) as live:
        live.append(physical(EVENTS[:2]))
        start(live)
        monkeypatch.setattr(LocalHost, "buckets", 2)
        live.queries["high"].stop()
        assert live.together() == [["sums", "rows"]]
        live.queries["high"].start()
        live.append(physical(EVENTS[2:]))
        finish(live)
        for name, plan in live.plans.items():
            assert_same_history(live.answer(name), plan.cht())


def rows_of(connection: ServerConnection, text: str) -> list[dict[str, Any]]:
    (reply,) = connection.execute(text)
    return reply.table.to_pylist()  # type: ignore[attr-defined,no-any-return]


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with HeadraceServer(tmp_path / "data", durable=False) as found:
        yield found


MINUTES = "SELECT item, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item"


def test_statements(server: HeadraceServer):
    client = server.connect(Who("me", "admin"))

    def done(text: str) -> None:
        list(client.execute(text))

    done("CREATE STREAM sales (item STRING, amount LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 1 min")
    done(f"QUERY minutes AS {MINUTES}")
    done(f"CREATE STREAM high AS {MINUTES} HAVING sum(amount) > 3")
    done(f"QUERY lone WITH (ISOLATED) AS {MINUTES}")
    done("INSERT INTO sales VALUES ('pear', 2, DATETIME '2024-05-01 12:00:05')")
    deadline = time.monotonic() + 60
    while len(server.runs.runs) > 2 and time.monotonic() < deadline:
        server.runs.look()
    shown = {row["query"]: row for row in rows_of(client, "SHOW SHARING")}
    assert shown["minutes"]["runs with"] == "high"
    assert (shown["minutes"]["operators"], shown["minutes"]["shared"]) == ("3", "3")
    assert shown["lone"]["alone because"] == "it was created WITH (ISOLATED)"
    explained = "\n".join(row["explain"] for row in rows_of(client, "EXPLAIN high"))
    assert "shares with minutes: Source clients of sales" in explained
    explained = "\n".join(row["explain"] for row in rows_of(client, f"EXPLAIN {MINUTES}"))
    assert "would share with high" in explained
    done("ALTER QUERY high SET isolated = true")
    assert len(server.runs.runs) == 3
    server.runs.look()
    assert len(server.runs.runs) == 3
    assert "It runs alone: it is isolated." in [row["explain"] for row in rows_of(client, "EXPLAIN high")]
    done("DROP QUERY minutes")
    assert [row["query"] for row in rows_of(client, "SHOW SHARING")] == ["high", "lone"]
