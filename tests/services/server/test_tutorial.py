"""The tutorial of `docs/server.md` by the letter: its commands, with the real `psql`, on free ports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.services.server.test_postgres import programs

PAGE = Path(__file__).parents[3] / "docs" / "server.md"
TITLE = "## Ten minutes: from `pip install` to a live table in `psql`"
SECONDS = 180


def blocks(language: str) -> list[str]:
    """The texts of the tutorial in a language."""
    chapter = PAGE.read_text().partition(TITLE)[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", chapter, re.MULTILINE | re.DOTALL)


class Tutorial:
    """Runs commands in a folder where `headrace` and `psql` are found, on the ports of the server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = {"8080": "0", "5433": "0"}
        for name, target in (("psql", str(programs()[-1])), ("headrace", f"{sys.executable} -m headrace")):
            program = folder / name
            program.write_text(f'#!/bin/sh\nexec {target} "$@"\n')
            program.chmod(0o755)
        self._environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PGCONNECT_TIMEOUT": "30"}

    @contextmanager
    def running(self, command: str) -> Iterator[subprocess.Popen[str]]:
        """A command that runs until the end of the test, with its output."""
        for written, port in self._ports.items():
            command = command.replace(written, port)
        with subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}" if "|" not in command else command], cwd=self.folder, text=True,
            env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True,
        ) as process:  # fmt: skip
            stuck = threading.Timer(SECONDS, os.killpg, (process.pid, 9))
            stuck.start()
            try:
                yield process
            finally:
                stuck.cancel()
                if process.poll() is None:
                    os.killpg(process.pid, 9)

    def run(self, command: str) -> str:
        """The output of a command."""
        with self.running(command) as process:
            found = process.communicate()[0]
        assert process.returncode == 0, found
        return found

    def listens_on(self, http: str, postgres: str) -> None:
        """Use these ports in the commands that follow."""
        self._ports = {"8080": http, "5433": postgres}


def lines_until(process: subprocess.Popen[str], wanted: str) -> str:
    """What a process prints, up to a text."""
    assert process.stdout is not None
    found = ""
    while not re.search(wanted, found):
        line = process.stdout.readline()
        assert line, f"it ended before {wanted!r}:\n{found}"
        found += line
    return found


@pytest.mark.timeout(600)
def test_the_tutorial(tmp_path: Path):
    install, shell, insert, look, watch, late = (block.strip() for block in blocks("bash"))
    assert install.splitlines()[0] == "pip install 'headrace[server]'"
    (script,) = blocks("sql")
    (tmp_path / "script.sql").write_text(script)
    tutorial = Tutorial(tmp_path)
    with tutorial.running(f"{install.splitlines()[1]} --port 8080 --postgres-port 5433") as server:
        printed = lines_until(server, "shell .*\n")
        ports = re.search(r"http://127.0.0.1:(\d+)(?s:.*)-p (\d+)", printed)
        assert ports is not None, printed
        tutorial.listens_on(ports[1], ports[2])
        assert re.search(r"1 +90.0", tutorial.run(f"{shell} -f script.sql"))
        with tutorial.running(f"{shell} -c 'SUBSCRIBE minutes;'") as subscribed:
            assert '"rows":2' in tutorial.run(insert)
            lines_until(subscribed, r"insert .*pear +2")
            tables = tutorial.run(look)
            assert re.search(r"minutes \| materialized view", tables)
            assert re.search(r"pear \| +2\n", tables)
            with tutorial.running(watch) as watched:
                lines_until(watched, r"pear \| +2\n")
                assert '"rows":1' in tutorial.run(late)
                lines_until(watched, r"pear \| +7\n")
            lines_until(subscribed, r"insert .*pear +7")
