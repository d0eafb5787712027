"""The examples of the Editor: each is checked, carried out twice, and its rows are inserted one after another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.server.core import HeadraceServer
from headrace.server.interface import RowsReply, Who

EXAMPLES = json.loads((Path(__file__).parents[3] / "ui" / "src" / "examples.json").read_text())
_ANN = Who("ann", "writer")
#: The rows of the last SELECT, without their times.
LAST = {
    "A table and a view that follows it": [{"items": 1, "highest": 120.0}],
    "A join in time": [{"symbol": "A", "price": 10.1, "bid": 10.0}, {"symbol": "A", "price": 10.4, "bid": 10.5}],
    "A pattern: a price that falls and rises": [{"symbol": "A", "top": 9.0, "bottom": 8.0, "price": 11.0}],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    with HeadraceServer(tmp_path_factory.mktemp("data"), durable=False) as found:
        yield found


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["name"])
def test_example(server: HeadraceServer, example: dict[str, Any]) -> None:
    assert server.check(_ANN, example["sql"])["error"] is None
    assert server.check(_ANN, example["sql"])["plan"] is not None
    connection = server.connect(_ANN)
    for _ in range(2):  # an example may be run again
        replies = list(connection.execute(example["sql"]))
    tables = [reply.table for reply in replies if isinstance(reply, RowsReply)]
    if play := example.get("play"):
        for row in play["rows"]:
            connection.insert(play["stream"], [row])
            query = server.objects[play["answers"]].query
            assert query is not None
            query.process_all_available()
        tables = [reply.table for reply in connection.execute(f"SELECT * FROM {play['answers']}")]  # type: ignore[attr-defined]
    assert tables[-1].num_rows > 0
    rows = [{name: value for name, value in row.items() if name not in ("le", "re")} for row in tables[-1].to_pylist()]
    if example["name"] in LAST:
        assert sorted(rows, key=str) == LAST[example["name"]]
