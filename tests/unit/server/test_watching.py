"""What the dashboard is sent of queries: all of them, and the parts of one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.errors import ServerError
from headrace.server.core import HeadraceServer
from headrace.server.interface import Who

CREATED = """
CREATE STREAM sales (item STRING, amount LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 1 s LATE DIVERT;
QUERY minutes AS SELECT item, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item;
QUERY large AS SELECT item, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item HAVING sum(amount) > 5;
QUERY alone WITH (ISOLATED) AS SELECT item FROM sales;
QUERY stopped AS SELECT item FROM sales;
STOP QUERY stopped;
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    with HeadraceServer(tmp_path_factory.mktemp("data"), durable=False) as found:
        client = found.connect(Who("ann", "admin"))
        list(client.execute(CREATED))
        for time in ("12:00:30", "12:01:30", "11:00:00"):
            client.insert("sales", [{"item": "a", "amount": 3, "ts": f"2024-05-01T{time}Z"}])
            for served in found.objects.values():
                if served.query is not None:
                    served.query.process_all_available()
        yield found


def overview(server: HeadraceServer) -> dict[str, dict[str, Any]]:
    found = server.watch()
    json.dumps(found)  # plain values
    return {query["name"]: query for query in found["queries"]}


def test_all_queries(server: HeadraceServer):
    found = overview(server)
    assert {name: query["state"] for name, query in found.items()} == {
        "minutes": "running", "large": "running", "alone": "running", "stopped": "stopped"
    }  # fmt: skip
    assert [found[name]["diverted"] for name in ("minutes", "alone", "stopped")] == [1, 1, None]
    assert found["minutes"]["cti"] == "2024-05-01T12:01:00Z"
    assert found["minutes"]["lag"] > 0
    assert found["minutes"]["state_bytes"] > 0
    assert len(found["minutes"]["curve"]) == 60
    assert found["minutes"]["published"]
    assert (found["stopped"]["cti"], found["stopped"]["lag"]) == ("-∞", None)
    assert all(query["error"] is None for query in found.values())


@pytest.mark.parametrize("name", ["minutes", "alone", "stopped"])
def test_the_plan_of_a_query(server: HeadraceServer, name: str):
    """Its own operators, with its output, whichever queries run with it."""
    found = server.watch(name, "plan")
    json.dumps(found)
    assert found["sql"].startswith(f"QUERY {name}")
    outputs = [node for node in found["graph"]["nodes"] if node["kind"] == "Output"]
    assert [node["text"] for node in outputs] == [name]
    assert "intake" in found["explain"]


@pytest.mark.parametrize("name", ["minutes", "alone"])
def test_batches_since_a_time(server: HeadraceServer, name: str):
    whole = server.watch(name)
    json.dumps(whole)
    read = [batch for batch in whole["batches"] if batch["rows"]]
    assert [batch["diverted"] for batch in read] == [1, 0, 0]  # the newest first
    assert sum(whole["points"]["rows"]) == 3
    later = server.watch(name, since=read[0]["at"])
    assert [batch["at"] for batch in later["batches"]] == [
        b["at"] for b in whole["batches"] if b["at"] >= read[0]["at"]
    ]
    assert later["points"]["at"][0] == int(read[0]["at"])
    assert server.watch(name, since=read[0]["at"] + 1_000)["batches"] == []


def test_operators_have_live_values(server: HeadraceServer):
    nodes = {node["title"]: node["fingerprint"] for node in server.watch("minutes", "plan")["graph"]["nodes"]}
    live = server.watch("minutes")["nodes"]
    assert live[nodes["Source"]]["lag"] > 0
    assert live[nodes["Source"]]["rate"] >= 0
    assert live[nodes["Merge"]]["state_rows"] > 0
    assert "has not closed them" in live[nodes["Merge"]]["held_by"]
    assert live[nodes["Output"]]["rate"] >= 0
    assert live[nodes["Output"]]["cti"] == "2024-05-01T12:01:00Z"


def test_the_checkpoint_hides_places(server: HeadraceServer):
    saved = server.watch("minutes", "checkpoint")
    assert str(server.data) not in json.dumps(saved)
    assert saved["operators"][0]["rows"] > 0
    assert {sink["cti"] for sink in saved["sinks"] if sink["sink"] == "log of minutes"} == {"2024-05-01T12:01:00Z"}


def test_a_query_that_is_not_there(server: HeadraceServer):
    with pytest.raises(ServerError, match="there is no query 'minute'") as caught:
        server.watch("minute")
    assert caught.value.instead == "minutes"
