"""The dashboard without a server: who may see it, and a trace through its routes."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import httpx
import pytest
from tests.unit.dashboard.test_traces import prices
from tests.unit.server.asking import AppClient
from typer.testing import CliRunner

from headrace.cli import app
from headrace.cli.ui import _target, in_browser
from headrace.errors import PlanError, ServerError
from headrace.server.http.serving import AppServer
from headrace.server.http.ui_app import make_ui_app
from headrace.tracing.debugging import DebugSession
from headrace.tracing.traced import TracedRun

TICKS = "import headrace as hr\nticks = hr.events([{'le': 1, 're': 2, 'k': 'a'}])\n"
TOKEN = {"authorization": "Bearer secret"}


class Target:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def about(self) -> dict[str, Any]:
        return {"mode": "file", "name": "prices", "screens": ["debug"]}

    def trace(self, batch_rows: int | None) -> TracedRun:
        return prices(self.folder).trace(batch_rows=batch_rows)

    def debug(self, batch_rows: int | None) -> DebugSession:
        return prices(self.folder).debug(batch_rows=batch_rows)

    def data(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def client(tmp_path: Path) -> AppClient:
    return AppClient(make_ui_app(Target(tmp_path), "secret"))


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "secret2"}])
@pytest.mark.parametrize("path", ["/ui/data/about", "/ui/data/saved", "/ui/data/traces/k/graph"])
def test_data_needs_the_token(client: AppClient, path: str, headers: dict[str, str]):
    assert client.get(path, headers=headers).status_code == 401
    assert client.post("/ui/data/traces", json={}, headers=headers).status_code == 401


def test_the_page_is_under_its_policy_and_other_sites_are_refused(client: AppClient):
    page = client.get("/ui/")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert client.get("/ui/nothing.js").status_code == 404
    assert client.get("/nothing").status_code == 404
    assert client.get("/ui/", headers={"host": "evil.example"}).status_code == 403
    foreign = {**TOKEN, "origin": "https://evil.example"}
    assert client.get("/ui/data/about", headers=foreign).status_code == 403


def test_a_trace_through_the_routes(client: AppClient):
    assert client.get("/ui/data/about", headers=TOKEN).json()["screens"] == ["debug"]
    trace = client.post("/ui/data/traces", json={"batch_rows": 1}, headers=TOKEN).json()
    assert (trace["output"], trace["batches"]) == (3, 7)
    root = f"/ui/data/traces/{trace['trace']}"
    rows = client.get(f"{root}/changes?operator=3&batch=3", headers=TOKEN).json()["rows"]
    assert [row["weight"] for row in rows] == [-1, 1]
    why = client.get(f"{root}/why?operator=3&batch=3&row=1", headers=TOKEN).json()
    assert why["inputs"] == 2
    wrong = client.get(f"{root}/why?operator=3&batch=3&row=x", headers=TOKEN)
    assert (wrong.status_code, wrong.json()["code"]) == (400, "TRACE")
    gone = client.get("/ui/data/traces/gone/graph", headers=TOKEN)
    assert (gone.status_code, gone.json()["instead"]) == (410, "trace the query again")
    assert client.post("/ui/data/traces", content=b"{", headers=TOKEN).status_code == 400


def test_half_characters_and_numbers_that_json_does_not_have_are_typed_errors(client: AppClient):
    trace = client.post("/ui/data/traces", json={}, headers=TOKEN).json()["trace"]
    half = "\\ud800"
    for part, name, text in (
        ("why_not", "values", f'{{"symbol": "{half}"}}'),
        ("why_not", "values", f'{{"{half}": 1}}'),
        ("stop", "breakpoints", f'[{{"kind": "output", "operator": 3, "when": "symbol = {half}"}}]'),
    ):
        parameters = {"operator": "3", "batch": "0", name: text}
        found = client.get(f"/ui/data/traces/{trace}/{part}", params=parameters, headers=TOKEN)
        assert (found.status_code, found.json()["code"]) == (400, "TRACE"), text
    client.post("/ui/data/debug", json={"action": "open"}, headers=TOKEN)
    for body in (f'{{"action": "{half}"}}', '{"action": "delete", "number": 1e999}'):
        found = client.post("/ui/data/debug", content=body, headers=TOKEN)
        assert (found.status_code, found.json()["code"]) == (400, "TRACE"), body


def test_a_file_that_cannot_be_run_is_named_on_the_page(tmp_path: Path):
    file = tmp_path / "ticks.py"
    file.write_text(TICKS)
    client = AppClient(make_ui_app(_target(str(file), None, None), "secret"))
    assert client.post("/ui/data/traces", json={}, headers=TOKEN).json()["name"] == "ticks"
    for text, reason in (
        ("\n1 // 0\n", "ZeroDivisionError: integer division or modulo by zero (line 2 of ticks.py)"),
        ("def", "SyntaxError: invalid syntax (ticks.py, line 1)"),
        ("import sys; sys.exit('no')", "SystemExit: no (line 1 of ticks.py)"),
    ):
        file.write_text(text)
        for route, body in (("traces", {}), ("debug", {"action": "open"})):
            found = client.post(f"/ui/data/{route}", json=body, headers=TOKEN)
            assert (found.status_code, found.json()["code"]) == (400, "SOURCE")
            assert found.json()["message"] == f"this file cannot be run: {reason}"


def test_the_checkpoint_of_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The script and its files are beside the user, as with `headrace run`; the checkpoint knows their whole paths."""
    monkeypatch.chdir(tmp_path)
    Path("s.csv").write_text("t,x\n1,1\n2,5\n")
    Path("q.sql").write_text("CREATE STREAM s (t LONG, x LONG) ORDER BY t SOURCE FILE ('s.csv', ',');\n"
                             "QUERY large AS SELECT x FROM s WHERE x > 2;\n")  # fmt: skip
    done = CliRunner().invoke(app, ["run", "q.sql:large", "--checkpoint", "kept"])
    assert done.exit_code == 0, done.output
    client = AppClient(make_ui_app(_target("kept/large", None, "q.sql:large"), "secret"))
    trace = client.post("/ui/data/traces", json={}, headers=TOKEN).json()
    assert trace["nodes"][0]["kind"] == "Source"


def test_one_of_several_queries_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("s.csv").write_text("t,x\n1,1\n2,5\n")
    Path("q.sql").write_text("CREATE STREAM s (t LONG, x LONG) ORDER BY t SOURCE FILE ('s.csv', ',');\n"
                             "QUERY large AS SELECT x FROM s WHERE x > 4;\n"
                             "QUERY small AS SELECT x FROM s WHERE x < 4;\n")  # fmt: skip
    done = CliRunner().invoke(app, ["run", "q.sql", "--checkpoint", "kept"])
    assert done.exit_code == 0, done.output
    client = AppClient(make_ui_app(_target("kept/q", None, "q.sql:small"), "secret"))
    texts = [node["text"] for node in client.post("/ui/data/traces", json={}, headers=TOKEN).json()["nodes"]]
    assert any("x < 4" in text for text in texts)
    assert not any("x > 4" in text for text in texts)


def test_options_of_the_other_target_and_ports_are_refused(tmp_path: Path):
    file = tmp_path / "ticks.py"
    file.write_text(TICKS)
    with pytest.raises(PlanError, match="belongs to a checkpoint"):
        _target(str(file), None, "other.py")
    with pytest.raises(PlanError, match="are those that ran"):
        _target(str(tmp_path / "checkpoint"), 3, None)
    for port in (-1, 65536):
        with pytest.raises(ServerError, match="no such port"):
            AppServer(make_ui_app(_target(str(file), None, None), "secret"), port=port)


def test_breakpoints_through_the_routes(client: AppClient):
    def act(**body: Any) -> Any:
        return client.post("/ui/data/debug", json=body, headers=TOKEN)

    opened = act(action="open", batch_rows=1).json()
    assert (opened["pause"]["reason"], opened["breakpoints"]) == ("start", [])
    assert act(action="add", kind="retraction").json()["breakpoints"][0]["kind"] == "retraction"
    for body in ({"action": ["run"]}, {"action": "add", "kind": "cti", "operator": 3, "when": "²"}):
        assert act(**body).status_code == 400
    assert act(action="open", batch_rows="x").status_code == 400
    assert act(action="open", batch_rows=1).json()["breakpoints"] == []
    act(action="add", kind="retraction")
    stopped = act(action="run").json()
    assert (stopped["pause"]["reason"], stopped["pause"]["batch"], stopped["pause"]["operator"]) == ("breakpoint", 3, 3)
    root = f"/ui/data/traces/{stopped['trace']}"
    rows = client.get(f"{root}/changes?operator=3&batch=3", headers=TOKEN).json()["rows"]
    assert [row["weight"] for row in rows] == [-1, 1]
    assert client.get(f"/ui/data/traces/{opened['trace']}/graph", headers=TOKEN).status_code == 410
    assert act(action="add", kind="output", operator=3, when="price > 50").json()["breakpoints"][1]["operator"] == 3
    assert act(action="run").json()["pause"]["batch"] == 6
    assert act(action="delete", number=1).json()["breakpoints"][0]["number"] == 2
    for wrong in (
        {"action": "fly"},
        {"action": "add", "kind": "none"},
        {"action": "add", "kind": "output", "operator": "x"},
    ):
        assert act(**wrong).status_code == 400
    assert act(action="restart").json()["pause"]["reason"] == "start"
    assert act(action="batch").json()["pause"]["batch"] == 0
    act(action="open", batch_rows=1)


def test_a_run_that_fails_is_at_the_batch_where_it_failed(tmp_path: Path):
    (tmp_path / "bad.py").write_text(
        "import headrace as hr\n\n\n@hr.udf\ndef unlucky(v: int) -> int:\n    return v // (v - 2)\n\n\n"
        "q = hr.events('le | re | v\\n1 | 9 | 1\\n2 | 9 | 2\\n3 | 9 | 3').select(u=unlucky('v'))\n"
    )
    client = AppClient(make_ui_app(_target(f"{tmp_path / 'bad.py'}:q", 1, None), "secret"))
    client.post("/ui/data/debug", json={"action": "open", "batch_rows": 1}, headers=TOKEN)
    stopped = client.post("/ui/data/debug", json={"action": "run"}, headers=TOKEN)
    assert stopped.status_code == 200
    pause = stopped.json()["pause"]
    assert (pause["reason"], pause["batch"]) == ("error", 1)
    assert pause["text"].startswith("failed in batch 1: ")
    assert "unlucky" in pause["error"]
    rows = client.get(f"/ui/data/traces/{stopped.json()['trace']}/changes?operator=3&batch=0", headers=TOKEN).json()
    assert [row["values"] for row in rows["rows"]] == [{"u": -1}]
    again = client.post("/ui/data/debug", json={"action": "batch"}, headers=TOKEN)
    assert (again.status_code, again.json()["message"]) == (400, "this run has failed")
    restarted = client.post("/ui/data/debug", json={"action": "restart"}, headers=TOKEN).json()
    assert restarted["pause"]["reason"] == "start"


@pytest.mark.slow
def test_the_command_prints_its_address_and_ends(tmp_path: Path):
    (tmp_path / "ticks.py").write_text(
        "import headrace as hr\n"
        "ticks = hr.events('''\n  le | re | k\n  1  | 2  | a\n''')\n"
        "counts = ticks.window(hr.tumbling(10)).aggregate(n=hr.count())\n"
    )
    command = [sys.executable, "-m", "headrace", "ui", f"{tmp_path / 'ticks.py'}:counts"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, ExitStack() as stack:
        stack.callback(process.terminate)
        assert process.stdout is not None
        found = re.fullmatch(r"counts: (http://127\.0\.0\.1:\d+)/ui/#token=([\w-]+)\n", process.stdout.readline())
        assert found is not None
        headers = {"authorization": f"Bearer {found[2]}"}
        trace = httpx.post(f"{found[1]}/ui/data/traces", json={}, headers=headers, timeout=60).json()
        assert trace["nodes"][0]["kind"] == "Source"
    assert process.returncode == 0


def test_the_browser_gets_the_token_by_a_file_of_the_user(monkeypatch: pytest.MonkeyPatch):
    given: list[str] = []
    monkeypatch.setattr("webbrowser.open", given.append)
    with in_browser("http://127.0.0.1:1/ui/#token=secret"):
        (address,) = given
        page = Path(url2pathname(urlsplit(address).path))
        assert "secret" not in address
        assert "url=http://127.0.0.1:1/ui/#token=secret" in page.read_text()
        assert (page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert not page.parent.exists()
