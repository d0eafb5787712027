"""Clients that follow a query in a program of their own: `psql`, and the shell."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tests.services.server.soak.following import Follower
from tests.services.server.soak.rows import END

__all__ = ["PsqlFollower", "ShellFollower"]

_DONE = "-- fetched --"
_BETWEEN = "\x1f"


def typed(row: Mapping[str, str]) -> dict[str, Any]:
    """A row of texts with its numbers as numbers."""
    return {name: int(value) if re.fullmatch(r"-?\d+", value) else value for name, value in row.items()}


class PsqlFollower(Follower):
    """A cursor of `psql`, which is asked for more again and again."""

    def follow(self) -> None:
        arguments = ["-X", "-q", "-A", "-F", _BETWEEN, "-P", "footer=off", "-v", "ON_ERROR_STOP=1"]
        with subprocess.Popen(
            [self.shared.psql, *arguments, self.shared.server.dsn],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as program:  # fmt: skip
            try:
                self._follow(program)
            except BrokenPipeError as error:
                raise ConnectionError from error
            finally:
                program.kill()

    def _follow(self, program: subprocess.Popen[str]) -> None:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stderr is not None
        begin = f"SET subscribe_timeout = '2 s';\nDECLARE c CURSOR FOR {self.wanted.statement(self.cursor)};\n"
        program.stdin.write(begin)
        while not self.shared.ended.is_set():
            program.stdin.write(f"FETCH {self.wanted.rows} FROM c;\n\\echo {_DONE}\n")
            program.stdin.flush()
            names: list[str] = []
            while (line := program.stdout.readline().rstrip("\n")) and line != _DONE:
                values = line.split(_BETWEEN)
                if not names:
                    names = values
                    continue
                row = typed(dict(zip(names, values, strict=True)))
                if not self.take([row], row["_cursor"]):
                    return
            if not line:
                said = program.stderr.read()
                assert program.wait() == 2, f"psql ended with {program.returncode}: {said}"
                raise ConnectionError(said)


class ShellFollower(Follower):
    """`headrace sql --server`, which goes on by itself when the connection breaks; Ctrl-C ends it with a cursor."""

    def follow(self) -> None:
        text = self.wanted.statement(self.cursor)
        with subprocess.Popen(
            [sys.executable, "-m", "headrace", "sql", "--server", self.shared.server.url, "-c", text],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as program:  # fmt: skip
            try:
                self._follow(program)
            finally:
                program.kill()

    def _follow(self, program: subprocess.Popen[str]) -> None:
        assert program.stdout is not None
        assert program.stderr is not None
        rows: list[dict[str, Any]] = []
        names, before = [""], ""
        left = self.chance.randrange(20, 2000) if self.wanted.leaves else sys.maxsize
        for whole in program.stdout:
            line = whole.strip()
            if not whole.endswith("\n"):
                raise AssertionError(f"cut off: {whole!r}; it ended with {program.wait()}: {program.stderr.read()}")
            if not line:
                continue
            if set(line) == {"─"} or set(line) == {"─", " "}:
                names = before.split()
            elif names != [""] and not line.startswith(names[0]):
                values = re.split(r"\s{2,}", line)
                assert len(values) == len(names), f"{names} in {line!r}, after {before!r}"
                rows.append(typed(dict(zip(names, values, strict=True))))
            before = line
            if END in line:
                self.take(rows, "the end")
                return
            left -= 1
            if left == 0 and not self.shared.stopping.is_set():
                program.send_signal(signal.SIGINT)
        said = program.stderr.read()
        if program.wait() != 0:
            assert "does not answer" in said, said
            raise ConnectionError(said)
        ended = re.search(r"ended; to go on: SUBSCRIBE \w+ AS OF '(.*?)'", said)
        if ended is not None:
            self.shared.count("left and returned")
            self.take(rows, ended[1])
