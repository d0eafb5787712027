"""Progress bars: how far a run, a history or a verification is, on one line of standard error.

`with working("live on local") as work:` shows a line after two seconds, if standard error is a terminal or a notebook's
and the environment variable `HEADRACE_PROGRESS` is not `off`. The code inside counts what it does in `current()`; a
thread draws four times a second and ends with the block. Inside another `working`, nothing more is shown.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FileWork", "Work", "current", "note_bytes", "working"]

_PATIENCE, _PAUSE = 2.0, 0.25  # seconds before the line appears, and between two of them
_BAR = 20  # letters
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@dataclass
class Work:
    """What has been done so far. Several threads may count; what is not known stays None or 0."""

    what: str = ""
    #: Whether somebody may see it: else only what costs nothing is counted.
    shown: bool = False
    total_bytes: int = 0
    total_cases: int = 0
    bytes: int = 0
    rows: int = 0
    cases: int = 0
    batch: int | None = None
    #: Called before a line is drawn: it takes over what is known elsewhere.
    refresh: Callable[[], None] | None = None
    began: float = field(default_factory=time.monotonic)
    _lock: Any = field(default_factory=threading.Lock, repr=False)

    def add(self, *, bytes: int = 0, rows: int = 0) -> None:
        """Count bytes and rows that were read."""
        with self._lock:
            self.bytes += bytes
            self.rows += rows

    def file(self, size: int) -> FileWork:
        """The work of reading a file of this size."""
        return FileWork(self, size)

    def line(self, now: float) -> str:
        """What is known, in one line."""
        seconds = max(now - self.began, 1e-9)
        return f"{_clock(seconds)} " + " · ".join([self.what, *self._shares(), *self._counts(seconds)])

    def _shares(self) -> list[str]:
        if self.total_cases:
            return [f"{_bar(self.cases / self.total_cases)} {self.cases:,} of {self.total_cases:,} cases"]
        if not self.total_bytes:
            return []
        if self.bytes >= self.total_bytes:
            return [f"{_size(self.total_bytes)} read"]
        part = self.bytes / self.total_bytes
        return [f"{_bar(part)} {part:.0%} of {_size(self.total_bytes)}"]

    def _counts(self, seconds: float) -> list[str]:
        if self.total_cases:
            return []
        reading = not 0 < self.total_bytes <= self.bytes
        rows = [f"{self.rows:,} rows"] if self.rows else []
        rows += [f"{_rounded(self.rows / seconds):,} a second"] if self.rows and reading else []
        return rows + ([f"batch {self.batch}"] if self.batch is not None else [])


@dataclass
class FileWork:
    """A file that is being read: its bytes count as they are read, and all at its end."""

    work: Work
    size: int
    counted: int = 0

    @contextmanager
    def here(self) -> Iterator[None]:
        """The bytes that this thread reads now are of this file."""
        token = _FILE.set(self)
        try:
            yield
        finally:
            _FILE.reset(token)

    def add(self, size: int) -> None:
        """Count bytes of the file."""
        more = min(size, self.size - self.counted)  # a compressed file has more bytes than its size
        self.counted += more
        self.work.add(bytes=more)


_WORK: ContextVar[Work | None] = ContextVar("headrace_work", default=None)
_FILE: ContextVar[FileWork | None] = ContextVar("headrace_file", default=None)


def current() -> Work:
    """The work that is shown; where none is, one that nobody sees."""
    return _WORK.get() or Work()


def note_bytes(size: int) -> None:
    """Count bytes of the file that this thread reads."""
    reading = _FILE.get()
    if reading is not None:
        reading.add(size)


@contextmanager
def working(what: str, *, quiet: bool = False) -> Iterator[Work]:
    """Show how far the block is, if it takes long and a person may watch."""
    outer = _WORK.get()
    if outer is not None:
        yield outer
        return
    screen = None if quiet else _screen()
    work = Work(what, shown=screen is not None)
    ended = threading.Event()
    drawing = threading.Thread(target=_draw, args=(work, screen, ended), name="headrace-progress", daemon=True)
    token = _WORK.set(work)
    if screen is not None:
        drawing.start()
    try:
        yield work
    finally:
        _WORK.reset(token)
        ended.set()
        if screen is not None:
            drawing.join()


def _screen() -> Any:
    """Where to draw; None if nobody watches."""
    screen = sys.stderr
    if screen is None or os.environ.get("HEADRACE_PROGRESS", "").lower() in ("off", "0", "no", "false"):
        return None
    watched = screen.isatty() and os.environ.get("TERM") != "dumb"
    return screen if watched or _in_notebook() else None


def _in_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


def _draw(work: Work, screen: Any, ended: threading.Event) -> None:
    pause, shown = _PATIENCE, 0
    while not ended.wait(pause):
        pause = _PAUSE
        if work.refresh is not None:
            work.refresh()
        line = work.line(time.monotonic())[: shutil.get_terminal_size().columns - 1]
        _write(screen, f"\r{line.ljust(shown)}")
        shown = len(line)
    if shown:
        _write(screen, f"\r{' ' * shown}\r")


def _write(screen: Any, text: str) -> None:
    try:
        text.encode(screen.encoding or "utf-8")
    except UnicodeEncodeError:
        text = text.replace("━", "#").replace("─", "-").replace("·", "|").encode("ascii", "replace").decode()
    screen.write(text)
    screen.flush()


def _bar(part: float) -> str:
    full = min(_BAR, int(part * _BAR))
    return "━" * full + "─" * (_BAR - full)


def _size(size: int) -> str:
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"


def _rounded(rate: float) -> int:
    """A rate with two digits: more would only flicker."""
    return int(float(f"{rate:.2g}"))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
