"""Traces of a server's queries."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.errors import HeadraceError, LimitError, TraceError
from headrace.server import tracing
from headrace.server.client import connect
from headrace.server.core import HeadraceServer
from headrace.server.interface import RowsReply, Who
from headrace.server.process import ServerProcess
from headrace.server.tracing import trace_query

CREATED = """
CREATE STREAM sales (item STRING, amount LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 1 min LATE DIVERT;
CREATE TABLE kinds (item STRING PRIMARY KEY, sort STRING);
INSERT INTO kinds VALUES ('pear', 'fruit'), ('leek', 'green');
QUERY minutes AS SELECT item, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item;
QUERY large AS SELECT item, total FROM minutes WHERE total > 2;
QUERY recorded AS SELECT item, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item;
ALTER QUERY recorded SET record = '1 h';
"""
SALES = [
    {"item": "pear", "amount": 2, "ts": "2024-05-01T12:10:00Z"},
    {"item": "leek", "amount": 5, "ts": "2024-05-01T12:10:30Z"},
    {"item": "fig", "amount": 1, "ts": "2024-05-01T12:00:00Z"},  # ten minutes late
    {"item": "pear", "amount": 1, "ts": "2024-05-01T12:10:20Z"},
    {"item": "fig", "amount": 7, "ts": "2024-05-01T12:15:00Z"},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    with HeadraceServer(tmp_path_factory.mktemp("data"), durable=False) as server:
        client = server.connect(Who("ann", "admin"))
        list(client.execute(CREATED))
        for row in SALES:
            client.insert("sales", [row])
            for served in list(server.objects.values()):
                if served.query is not None:
                    served.query.process_all_available()
        yield server


def answer(server: HeadraceServer, text: str) -> object:
    (reply,) = server.connect(Who("ann", "reader")).execute(text)
    assert isinstance(reply, RowsReply)
    return reply.table


def test_the_trace_of_a_stream_that_clients_feed(server: HeadraceServer):
    trace = trace_query(server, "Minutes", batch_rows=1)
    assert [text.split()[0] for text in trace.operators["text"].to_pylist()][:1] == ["Source"]
    assert hr.history_diff(trace.history(), answer(server, "SELECT * FROM minutes")) == ""
    diverted = next(row for row in trace.operators.to_pylist() if row["kind"] == "Diverted")
    assert diverted["changes"] == 1


def test_it_answers_why(server: HeadraceServer):
    trace = trace_query(server, "minutes", batch_rows=1, state=True)
    why = trace.why(item="pear")
    assert why.inputs["amount"].to_pylist() == [2, 1]
    assert trace.forward(item="fig", amount=7).num_rows > 0


def test_the_trace_over_published_answers(server: HeadraceServer):
    trace = trace_query(server, "large")
    assert hr.history_diff(trace.history(), answer(server, "SELECT * FROM large")) == ""


def test_a_query_that_is_not_there(server: HeadraceServer):
    with pytest.raises(TraceError, match="there is no such query") as found:
        trace_query(server, "kinds")
    assert found.value.allowed == "large, minutes, recorded"


def test_too_many_rows(server: HeadraceServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tracing, "MOST_TRACED_ROWS", 4)
    with pytest.raises(LimitError, match="more rows than it may keep"):
        trace_query(server, "minutes")


def test_batches_that_ran(server: HeadraceServer):
    query = server.objects["recorded"].query
    assert query is not None
    last = query.report["batch"]
    trace = trace_query(server, "recorded", (last - 3, last), state=True)
    assert set(trace.batches["batch"].to_pylist()) == {last - 3, last - 2, last - 1, last}
    changes = trace.of(trace.record.output.number)
    whole = trace_query(server, "recorded", batch_rows=1)
    assert (
        changes.drop_columns(["batch"]).to_pylist()
        == whole.of(whole.record.output.number)
        .select([name for name in changes.column_names if name != "batch"])
        .to_pylist()
    )


def test_batches_of_queries_that_run_together(server: HeadraceServer):
    query = server.objects["minutes"].query
    assert query is not None
    last = query.report["batch"]
    with pytest.raises(TraceError) as found:
        trace_query(server, "minutes", (last + 1, last + 2))
    assert f"batches {last + 1}..{last + 2}" in str(found.value)


def test_a_trace_has_the_time_of_a_statement(server: HeadraceServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "limits", replace(server.limits, statement_seconds=1e-9))
    with pytest.raises(LimitError, match="took longer"):
        trace_query(server, "minutes")


def test_a_batch_of_queries_that_run_together(tmp_path: Path):
    with HeadraceServer(tmp_path, durable=False) as server:
        client = server.connect(Who("ann", "admin"))
        list(client.execute(CREATED.partition("CREATE TABLE")[0]))
        list(client.execute("QUERY a AS SELECT item, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item"))
        list(client.execute("QUERY b AS SELECT item FROM sales WHERE amount > 1"))
        queries = [served.query for name in "ab" if (served := server.objects[name]).query is not None]
        client.insert("sales", SALES[:3])
        for query in queries:
            query.process_all_available()
        deadline = time.monotonic() + 60
        while len(server.runs.sharing(queries[1])) < 2 and time.monotonic() < deadline:
            server.runs.look()
        client.insert("sales", SALES[3:])
        queries[0].process_all_available()
        last = queries[0].report["batch"]
        trace = trace_query(server, "b", (last, last))
        assert trace.of(trace.record.output.number)["item"].to_pylist() == ["fig"]
        assert "Aggregate" not in trace.operators["kind"].to_pylist()
        assert trace_query(server, "a", (last, last)).of(1).num_rows == 2


def test_the_total_of_a_table(tmp_path: Path):
    """A total over a whole table has a row of its own, for when the table is empty."""
    with HeadraceServer(tmp_path, durable=False) as server:
        client = server.connect(Who("ann", "admin"))
        list(
            client.execute("""
                CREATE TABLE clicks (id INT PRIMARY KEY, x LONG);
                QUERY total AS SELECT sum(x) AS s, count(*) AS n FROM clicks;
                QUERY fixed AS VALUES (1), (2);
            """)
        )
        empty = trace_query(server, "total")
        (row,) = empty.of(empty.record.output.number).to_pylist()
        assert (row["s"], row["n"]) == (None, 0)
        list(client.execute("INSERT INTO clicks VALUES (1, 10), (2, 20)"))
        trace = trace_query(server, "total")
        last = trace.of(trace.record.output.number).sort_by("batch").to_pylist()[-1]
        assert (last["s"], last["n"]) == (30, 2)
        assert sorted(x for x in trace.why(s=30).inputs["x"].to_pylist() if x is not None) == [10, 20]
        assert trace_query(server, "fixed").of(1).num_rows == 2


def _asked(url: str, *options: str) -> str:
    run = CliRunner().invoke(app, ["trace", "minutes", "--server", url, *options])
    return f"{run.output}{run.exception or ''}"


def test_by_http_and_the_command(tmp_path: Path):
    process = ServerProcess(HeadraceServer(tmp_path / "data", durable=False), port=0, postgres_port=None)
    process.start()
    try:
        client = process.server.connect(Who("ann", "admin"))
        list(client.execute(CREATED))
        client.insert("sales", SALES)
        for name in ("minutes", "recorded"):
            query = process.server.objects[name].query
            assert query is not None
            query.process_all_available()
        assert process.http is not None
        with connect(process.http.url) as there:
            operators, changes = there.trace("minutes")
            assert operators["kind"].to_pylist()[0] == "Source"
            assert changes.num_rows > 5
            with pytest.raises(HeadraceError, match="no such table"):
                there.trace("minutes", ["nothing"])
            with pytest.raises(HeadraceError, match="not numbers of batches"):
                there.trace("minutes", batches="x")
        run = CliRunner().invoke(app, ["trace", "minutes", "--server", process.http.url, "--batch-rows", "2"])
        assert run.output.startswith("minutes: Trace of 3 batches, so far"), run.output
        run = CliRunner().invoke(app, ["trace", "recorded", "--server", process.http.url, "--operator", "1"])
        assert "pear" in run.output
        said = partial(_asked, process.http.url)
        assert "amount = 2" in said("--why", "item = 'pear' AND total >= 3", "--at", "2024-05-01T12:10:00Z")
        assert "late: its sync time" in said("--why-not", "item = 'fig'", "--at", "2024-05-01T12:00:00Z")
        assert "start of the first open window" in said("--why-cti")
        assert "| 3 " in said("--forward", "amount = 2").splitlines()[2]  # the total
        assert "an event that was taken back" in said("--why-retracted", "item = 'pear'")
        assert "this is not an input" in said("--forward", "total = 3", "--operator", "2")
        assert "compares columns of operator" in said("--why", "item IN (SELECT item FROM kinds)")
        assert "belongs to a question" in said("--at", "2024-05-01T12:00:00Z")
        assert "one question at a time" in said("--why", "total = 3", "--why-cti")
        saving = ["--server", process.http.url, "--save", str(tmp_path / "out")]
        assert CliRunner().invoke(app, ["trace", "recorded", *saving]).exit_code == 0
        saved = sorted(file.stem for file in (tmp_path / "out").iterdir())
        assert saved == ["batches", "changes", "edges", "operators"]
    finally:
        process.stop()
