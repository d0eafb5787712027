"""The shell on a real terminal, as a person uses it."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

MADE = "CREATE STREAM ticks (symbol STRING, ts LONG, price DOUBLE) ORDER BY ts SOURCE FILE ('ticks.csv');"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ticks.csv").write_text("symbol,ts,price\nA,1,10.0\nB,4,50.0\nA,12,12.0\nA,5,11.0\nB,31,54.0\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.mark.slow
def test_a_person_at_a_terminal(place: Path):
    """The real program on a terminal of its own: typing, Tab, Ctrl-C while watching, Ctrl-D."""
    terminal, theirs = pty.openpty()
    # The terminal must be the one that sends Ctrl-C to the program: only the leader of a session can ask for that. And
    # whoever started the tests in the background has made all its children ignore it.
    program = (
        "import fcntl, runpy, signal, sys, termios; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0); sys.argv = ['headrace', 'sql']; "
    )
    program += "runpy.run_module('headrace', run_name='__main__')"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=place, start_new_session=True,
        env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    talk = _Talk(terminal)
    try:
        talk.expect("headrace>")
        talk.say(f"{MADE}\r", "1 stream,")
        talk.say("SELECT symbol\r", "...>")
        talk.say("FROM ti\t", "cks")
        talk.say(";\r", "5 rows")
        talk.say("SELECT x FROM ticks;\r", "^")
        talk.say("\\watch\r", "CTI")
        talk.insist("\x03", "1 stream,")
        talk.say("\x04", "")
        while process.poll() is None:
            talk.read()
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert process.returncode == 0


class _Talk:
    """The other end of a terminal."""

    def __init__(self, terminal: int) -> None:
        self.terminal = terminal
        #: All that was on it.
        self.seen = ""

    def read(self) -> str:
        if not select.select([self.terminal], [], [], 0.05)[0]:
            return ""
        try:
            data = os.read(self.terminal, 65536)
        except OSError:  # the other process has ended
            return ""
        if b"\x1b[6n" in data:  # where is the cursor?
            os.write(self.terminal, b"\x1b[1;1R")
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode(errors="replace"))

    def expect(self, words: str) -> None:
        assert self._sees(words, 60), f"no {words!r} in {self.seen[-3000:]!r}"

    def insist(self, keys: str, words: str) -> None:
        """Press keys until something comes of it: a Ctrl-C at a bad moment may be lost, and people press it again."""
        before = len(self.seen)
        for _ in range(10):
            os.write(self.terminal, keys.encode())
            if self._sees(words, 6) or words in self.seen[before:]:
                return
        raise AssertionError(f"no {words!r} in {self.seen[-3000:]!r}")

    def _sees(self, words: str, seconds: float) -> bool:
        seen, deadline = "", time.monotonic() + seconds
        while words not in seen and time.monotonic() < deadline:
            seen += self.read()
        self.seen += seen
        return words in seen

    def say(self, keys: str, words: str) -> None:
        os.write(self.terminal, keys.encode())
        self.expect(words)
