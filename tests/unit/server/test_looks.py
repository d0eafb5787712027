"""What a server shows of its queries: diverted rows, state and logs, by SQL, routes and commands."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.errors import HeadraceError, SqlError
from headrace.host.driving.past import PHASES
from headrace.server.client import connect
from headrace.server.core import HeadraceServer
from headrace.server.interface import RowsReply, Who
from headrace.server.metrics import JsonLines
from headrace.server.process import ServerProcess

CREATED = """
CREATE STREAM sales (item STRING, amount LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 1 s LATE DIVERT;
QUERY minutes AS SELECT item, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item;
QUERY quiet AS SELECT item FROM sales;
"""
LATE = "2024-05-01T12:00:00Z"


def run(server: HeadraceServer, text: str) -> list[Any]:
    replies = list(server.connect(Who("ann", "admin")).execute(text))
    return [reply.table.to_pylist() if isinstance(reply, RowsReply) else reply for reply in replies]


def fill(server: HeadraceServer) -> None:
    """Insert a row in time, then three late ones, each in a batch of its own."""
    run(server, CREATED)
    connection = server.connect(Who("ann", "admin"))
    for item, time in (("a", "2024-05-01T12:10:00Z"), ("x", LATE), ("y", LATE), ("z", LATE)):
        connection.insert("sales", [{"item": item, "amount": 1, "ts": time}])
        for served in server.objects.values():
            if served.query is not None:
                served.query.process_all_available()


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    found = ServerProcess(HeadraceServer(tmp_path_factory.mktemp("data"), durable=False), port=0, postgres_port=None)
    found.start()
    fill(found.server)
    yield found
    found.stop()


def items(rows: list[dict[str, Any]]) -> list[str]:
    return [json.loads(row["row"])["item"] for row in rows]


def test_diverted_rows_have_their_reasons(process: ServerProcess):
    (rows,) = run(process.server, "SHOW DIVERTED FOR minutes")
    assert items(rows) == ["x", "y", "z"]
    assert {row["query"] for row in rows} == {"minutes"}
    assert {row["source"] for row in rows} == {"clients of sales"}
    assert all(row["reason"].startswith("late: its sync time 2024-05-01T12:00:00 is before the CTI") for row in rows)
    (rows,) = run(process.server, "SHOW DIVERTED")
    assert {row["query"] for row in rows} == {"minutes", "quiet"}


def test_a_limit_gives_the_newest_rows(process: ServerProcess):
    reply = next(process.server.connect(Who("ann", "reader")).execute('SHOW DIVERTED FOR "MINUTES" LIMIT 2'))
    assert isinstance(reply, RowsReply)
    assert items(reply.table.to_pylist()) == ["y", "z"]
    assert reply.notes == ("minutes: the newest 2 of 3 diverted rows; LIMIT n shows others",)


def test_state_says_what_holds_it(process: ServerProcess):
    (rows,) = run(process.server, "SHOW STATE")
    (row,) = rows
    assert row["query"] == "minutes"
    assert "sum(amount)" in row["operator"]
    assert row["rows"] == 1
    assert row["bytes"] > 0
    assert "has not closed them" in row["held_by"]


def test_batches_say_what_they_did(process: ServerProcess):
    """Four batches, of which queries that run together have three in common; each has its own part of them."""
    rows = run(process.server, "SHOW BATCHES FOR minutes")[0]
    read = [row for row in rows if row["rows"]]
    assert [(row["rows"], row["accepted"], row["diverted"]) for row in read] == [(1, 1, 0), *[(1, 0, 1)] * 3]
    assert [json.loads(row["sources"]) for row in read][1] == {
        "clients of sales": {"rows": 1, "diverted": 1, "late": 1}
    }
    assert {row["cti"] for row in read} == {"2024-05-01T12:09:59Z"}
    for row in rows:
        assert row["seconds"] == pytest.approx(sum(row[phase] for phase in PHASES), abs=1e-4)
        assert row["lag"] == pytest.approx(row["at"].timestamp() - 1714565399, abs=0.01)
        assert (row["state_rows"] == 1) == (row["state_bytes"] > 0)
    quiet = [row for row in run(process.server, "SHOW BATCHES FOR quiet")[0] if row["rows"]]
    assert [(row["changes"], row["corrections"], row["state_rows"]) for row in quiet] == [(1, 0, 0), *[(0, 0, 0)] * 3]
    assert len(run(process.server, "SHOW BATCHES LIMIT 2")[0]) == 4


def test_rates_are_sums_of_seconds(process: ServerProcess):
    """However many batches a second has."""
    rows = run(process.server, "SHOW RATES FOR minutes")[0]
    batches = run(process.server, "SHOW BATCHES FOR minutes")[0]
    assert sum(row["batches"] for row in rows) == len(batches)
    for name in ("rows", "accepted", "diverted", "changes", "corrections"):
        assert sum(row[name] for row in rows) == sum(row[name] for row in batches)
    assert all(row["at"].microsecond == 0 for row in rows)


def test_corrections_are_counted(tmp_path: Path):
    """An answer that a late row replaces is a removal; a stopped query keeps its batches, a new start has none."""
    with HeadraceServer(tmp_path, durable=False) as server:
        run(server, "CREATE STREAM s (a LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 1 h")
        run(server, "QUERY q AS SELECT sum(a) AS a FROM s [TUMBLING 10 s]")
        query = server.objects["q"].query
        assert query is not None
        for time in (5, 12, 6):
            server.connect(Who("ann", "admin")).insert("s", [{"a": 1, "ts": f"2024-05-01T12:00:{time:02}Z"}])
            query.process_all_available()
        rows = [row for row in run(server, "SHOW BATCHES FOR q")[0] if row["rows"]]
        assert [(row["changes"], row["corrections"]) for row in rows] == [(0, 0), (1, 0), (2, 1)]
        run(server, "STOP QUERY q")
        assert [row for row in run(server, "SHOW BATCHES FOR q")[0] if row["rows"]] == rows
    with HeadraceServer(tmp_path, durable=False) as server:
        assert not [row for row in run(server, "SHOW BATCHES FOR q")[0] if row["rows"]]


def test_the_log_of_a_query(process: ServerProcess):
    (rows,) = run(process.server, "SHOW LOG FOR quiet")
    assert rows[0]["message"] == "created by ann"
    assert [row["level"] for row in rows] == ["info", "warning", "losses"]
    assert "1 of 2 rows not used (1 late; 1 diverted)" in rows[1]["message"]
    assert "3 of 4 rows not used (3 late; 3 diverted)" in rows[2]["message"]
    assert {row["query"] for row in rows} == {"quiet"}


def test_a_query_that_is_not_there(process: ServerProcess):
    with pytest.raises(SqlError, match="there is no query 'minute'") as caught:
        run(process.server, "SHOW STATE FOR minute")
    assert caught.value.instead == "minutes"


@pytest.mark.parametrize("what", ["batches", "diverted", "log", "rates", "state"])
def test_routes(process: ServerProcess, what: str):
    assert process.http is not None
    with connect(process.http.url) as client:
        shown = client.transport.request("GET", f"/queries/minutes/{what}").json()["replies"][0]
        table = client.sql(f"SHOW {what} FOR minutes")
        assert [column["name"] for column in shown["columns"]] == table.column_names
        assert len(shown["rows"]) == table.num_rows > 0
        missing = client.transport.request("GET", f"/queries/minute/{what}", most=404)
        assert (missing.status_code, missing.json()["instead"]) == (404, "minutes")
    assert table.schema.field("query").type == pa.string()


def test_the_limit_of_a_route(process: ServerProcess):
    assert process.http is not None
    with connect(process.http.url) as client:
        shown = client.transport.request("GET", "/queries/minutes/diverted?limit=1").json()["replies"][0]
        assert items(shown["rows"]) == ["z"]
        assert client.transport.request("GET", "/queries/minutes/diverted?limit=x", most=404).status_code == 404


def test_commands(process: ServerProcess):
    assert process.http is not None
    url = process.http.url

    def shown(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments, "--server", url])
        assert result.exit_code == 0, result.exception
        return result.stdout

    assert [row["query"] for row in json.loads(shown("queries", "--json"))] == ["minutes", "quiet"]
    assert "running" in shown("queries")
    assert items(json.loads(shown("diverted", "minutes", "--rows", "1", "--json"))) == ["z"]
    assert shown("diverted", "minutes").count("late: its sync time") == 3
    assert json.loads(shown("state", "--json"))[0]["rows"] == 1
    assert json.loads(shown("batches", "minutes", "--rows", "1", "--json"))[0]["diverted"] == 1
    assert sum(row["rows"] for row in json.loads(shown("rates", "minutes", "--json"))) == 4
    assert "has not closed them" in shown("state", "minutes")
    assert "created by ann" in shown("logs", "minutes")
    assert json.loads(shown("logs", "minutes", "--json"))[0]["message"] == "created by ann"


def test_a_stopped_query_and_a_new_start(tmp_path: Path):
    with HeadraceServer(tmp_path, durable=False) as server:
        fill(server)
        (running,) = run(server, "SHOW STATE")
        run(server, "ALTER QUERY minutes SET rows_per_batch = 5; STOP QUERY minutes")
        assert run(server, "SHOW STATE") == [running]
        assert items(run(server, "SHOW DIVERTED FOR minutes")[0]) == ["x", "y", "z"]
    with HeadraceServer(tmp_path, durable=False) as server:
        assert run(server, "SHOW STATE") == [running]
        (rows,) = run(server, "SHOW LOG FOR minutes")
        noted = [row["message"] for row in rows if row["level"] == "info"]
        assert noted == ["created by ann", "rows_per_batch = 5, set by ann", "stopped by ann"]
        (rows,) = run(server, "SHOW LOG FOR quiet")
        assert "the server was started: it goes on" in [row["message"] for row in rows]
        run(server, "DROP QUERY minutes; QUERY minutes AS SELECT item FROM sales")
        (rows,) = run(server, "SHOW LOG FOR minutes")
        assert rows[0]["message"] == "created by ann"


def test_why_a_query_failed(tmp_path: Path):
    with HeadraceServer(tmp_path, durable=False) as server:
        run(server, "CREATE STREAM s (a LONG, ts LONG) ORDER BY ts LATE RAISE WITH PROGRESS ADVANCE 1")
        run(server, "QUERY q AS SELECT a FROM s")
        query = server.objects["q"].query
        assert query is not None
        assert query.running is not None
        server.connect(Who("ann", "admin")).insert("s", [{"a": 1, "ts": 10}, {"a": 2, "ts": 1}])
        with pytest.raises(HeadraceError, match="breaks the promise"):
            query.running.process_all_available()
        logging.getLogger("headrace").error("of nobody")
        (rows,) = run(server, "SHOW LOG FOR q")
        assert [row["level"] for row in rows] == ["info", "error"]
        assert "an event breaks the promise of the CTI 9" in rows[1]["message"]


def test_few_lines_of_a_query_are_kept(tmp_path: Path):
    with HeadraceServer(tmp_path, durable=False) as server:
        run(server, CREATED)
        for number in range(1_300):
            server.query_log.note("quiet", f"line {number}", logging.DEBUG)
        (rows,) = run(server, "SHOW LOG FOR quiet LIMIT 5000")
        assert 1_000 <= len(rows) <= 1_100
        assert rows[-1]["message"] == "line 1299"
        assert run(server, "SHOW LOG FOR minutes")[0][0]["message"] == "created by ann"


def test_lines_of_json_name_the_query():
    record = logging.makeLogRecord({"name": "headrace", "threadName": "headrace-q", "msg": "late rows"})
    assert json.loads(JsonLines().format(record))["query"] == "q"
    record = logging.makeLogRecord({"name": "headrace.server", "threadName": "headrace-http", "msg": "a request"})
    assert "query" not in json.loads(JsonLines().format(record))
