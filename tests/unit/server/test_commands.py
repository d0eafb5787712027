"""The shell of a server and `headrace apply`, against a real server."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console
from tests.wheels import tallies
from typer.testing import CliRunner

from headrace.cli import app
from headrace.cli.sql.remote import RemoteShell
from headrace.errors import HeadraceError, PlanError, ServerError, SqlError
from headrace.server.client import connect
from headrace.server.core import HeadraceServer
from headrace.server.process import ServerProcess

SCRIPT = """
CREATE TABLE items (id LONG PRIMARY KEY, class STRING);
CREATE MATERIALIZED VIEW classes AS SELECT class, count(*) AS n FROM items GROUP BY class;
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = HeadraceServer(tmp_path_factory.mktemp("data"), durable=False)
    process = ServerProcess(server, port=0, postgres_port=0)
    process.start()
    assert process.http is not None
    assert "psql -h 127.0.0.1" in str(process)
    yield process.http.url
    process.stop()


@pytest.fixture
def shell(url: str) -> Iterator[RemoteShell]:
    shell = RemoteShell(connect(url), Console(record=True, width=200), Console(record=True, width=200, stderr=True))
    yield shell
    shell.close()


def test_a_script_is_applied_once(url: str, tmp_path: Path):
    file = tmp_path / "script.sql"
    file.write_text(SCRIPT)

    def applied(*options: str) -> tuple[int, list[str]]:
        result = CliRunner().invoke(app, ["apply", str(file), "--server", url, *options])
        if isinstance(result.exception, ServerError):
            return 1, [str(result.exception)]
        return result.exit_code, [line[:1] for line in result.output.splitlines() if line[:1] in "=+~"]

    assert applied("--dry-run") == (0, ["+", "+"])
    assert applied() == (0, ["+", "+"])
    assert applied() == (0, ["=", "="])
    file.write_text(SCRIPT.replace("count(*)", "max(id)"))
    assert "the server has classes in other words" in applied()[1][0]
    file.write_text(f"{SCRIPT} INSERT INTO items VALUES (1, 'a');")
    assert "applied again, it must change nothing" in applied()[1][0]
    with connect(url) as client:
        client.sql("DROP MATERIALIZED VIEW classes; DROP TABLE items")


def test_the_shell_shows_replies(shell: RemoteShell):
    shell.execute("CREATE TABLE fruit (name STRING, price LONG);\nINSERT INTO fruit VALUES ('pear', 3);")
    assert list(shell.session.catalog.streams) == ["fruit"]  # for completion
    shell.execute("SELECT * FROM fruit;\n\\watch 0.01 2\n\\d\n\\d fruit\n\\help\nEXPLAIN SELECT * FROM fruit;")
    shown = shell.console.export_text()
    for expected in ("pear", "fruit", "STRING", "columnar", "\\watch"):
        assert expected in shown
    assert "1 row inserted into fruit" in shell.errors.export_text()
    with pytest.raises(SqlError) as caught:
        shell.execute("\n\nSELECT nothing FROM fruit;")
    assert "3 | SELECT nothing FROM fruit" in str(caught.value)
    with pytest.raises(PlanError, match="no command"):
        shell.execute("\\wach")


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts, also where tests run in the background and do not hear it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_shows_the_cursor_after_what_was_printed(shell: RemoteShell, monkeypatch: pytest.MonkeyPatch):
    statement = "SUBSCRIBE animals WITH FINAL"
    batches = [pa.record_batch({"n": [number]}) for number in (1, 2)]

    def interrupted_by(where: str) -> None:
        """Ctrl-C while a batch is printed, or after its cursor has arrived."""

        class Printing(Console):
            def print(self, *what: Any, **how: Any) -> None:
                if where == "printing":
                    signal.raise_signal(signal.SIGINT)
                super().print(*what, **how)

        class Following:
            cursor: str | None = None

            def __iter__(self) -> Iterator[pa.RecordBatch]:
                for number, batch in enumerate(batches):
                    self.cursor = f"7.{number}"
                    if number == 1:
                        signal.raise_signal(signal.SIGINT)
                    yield batch

        stream = SimpleNamespace(subscribe=lambda *_, **__: Following())
        monkeypatch.setattr(shell.client, "stream", lambda _: stream)
        shell.console = Printing(record=True, width=200)
        shell.execute(f"{statement};")

    for where in ("printing", "waiting"):
        interrupted_by(where)
        assert shell.console.export_text().split()[-1] == "1"
        assert "ended; to go on: SUBSCRIBE animals AS OF '7.0' WITH FINAL" in shell.errors.export_text()


def test_nothing_runs_if_a_port_is_taken(tmp_path: Path, url: str):
    taken = int(url.rpartition(":")[2])
    for ports in ({"port": taken, "postgres_port": 0}, {"port": 0, "postgres_port": taken}):
        process = ServerProcess(HeadraceServer(tmp_path, durable=False), **ports)
        with pytest.raises(ServerError, match="cannot listen on"):
            process.start()
        HeadraceServer(tmp_path, durable=False).__enter__().stop()  # the data directory is free


def test_modules_are_installed_listed_and_removed(url: str, tmp_path: Path):
    def module(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["module", *arguments, "--server", url])
        if isinstance(result.exception, HeadraceError):
            return str(result.exception)
        assert result.exit_code == 0, result.output
        return result.output

    file = tmp_path / "tallies-1.0-py3-none-any.whl"
    assert "there is no file" in module("install", str(file))
    file.write_bytes(tallies())
    assert "is installed: tests.tally, tests.weighted" in module("install", str(file))
    with connect(url) as client:
        client.sql("CREATE TABLE weights (n LONG); CREATE VIEW tallied AS SELECT tests.tally(n) AS n FROM weights")
        shown = module("list")
        assert "tests.tally\n    aggregate · tallies 1.0 · " in shown
        assert "used by tallied" in shown
        assert {"module": "tests.tally", "version": "1.0"}.items() <= json.loads(module("list", "--json"))[0].items()
        assert "view tallied still use tallies" in module("remove", "tallies")
        client.sql("DROP VIEW tallied; DROP TABLE weights")
    assert "tallies 1.0" in module("remove", "tallies")
    assert "there is no package 'tallies'" in module("remove", "tallies")
    file.write_bytes(b"nothing")
    assert "this is no wheel" in module("install", str(file))
