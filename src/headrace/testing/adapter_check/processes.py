"""Calls in other processes, some of which are killed.

A process that starts takes a second, so one that has imported Headrace waits, and makes a copy of itself for each call
(`fork`): a process that has never used the adapter. It can be killed from outside at any moment, or kill itself before
a chosen line of the adapter. Nothing is cleaned up then: no `finally`, no rollback, no buffer that is flushed.
"""

from __future__ import annotations

import atexit
import linecache
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from headrace.errors import HostError

__all__ = ["Death", "RemoteCall", "call_elsewhere", "lines_of", "main", "start_call"]

_PATIENCE = 120.0
#: The process that is copied, once it is needed.
_origin: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class Death:
    """A call ended because its process was killed; `where` is the line that it did not reach."""

    where: str


@dataclass
class RemoteCall:
    """A call that runs in another process."""

    folder: tempfile.TemporaryDirectory[str]

    def ready(self) -> None:
        """Wait until its process is there; it waits for `begin`."""
        self._await("ready")

    def begin(self) -> None:
        """Let a process that waits make the call."""
        self._place("begin").touch()

    def kill(self) -> None:
        """Kill the process now."""
        self._await("pid")
        if not self._place("done").exists():
            with suppress(ProcessLookupError):
                os.kill(int(self._place("pid").read_text()), signal.SIGKILL)

    def result(self) -> Any:
        """What the call returned, or `Death`; raises what it raised."""
        self._await("done")
        try:
            if not self._place("result").exists():
                place = self._place("where")
                return Death(place.read_text() if place.exists() else "killed from outside")
            kind, value = pickle.loads(self._place("result").read_bytes())  # noqa: S301 - of our own process
        finally:
            self.folder.cleanup()
        if kind == "raised":
            raise value
        return value

    def _await(self, name: str) -> None:
        _await(self._place(name))

    def _place(self, name: str) -> Path:
        return Path(self.folder.name) / name


def _await(file: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not file.exists():
        if time.monotonic() > deadline:
            raise HostError(f"a call in another process did not go on within {_PATIENCE:.0f} s")
        time.sleep(0.002)


def start_call(
    function: Callable[..., Any], *given: Any, dies_at: int | None = None, waits: bool = False
) -> RemoteCall:
    """Start a call of a function of a module; with `dies_at`, the process dies before that line of the adapter.

    With `waits`, its process makes the call when it is told to begin.
    """
    folder = tempfile.TemporaryDirectory(prefix="headrace-call-", ignore_cleanup_errors=True)
    (Path(folder.name) / "request").write_bytes(pickle.dumps((function, given, dies_at, waits)))
    origin = _running()
    assert origin.stdin is not None
    origin.stdin.write(f"{folder.name}\n".encode())
    origin.stdin.flush()
    return RemoteCall(folder)


def call_elsewhere(function: Callable[..., Any], *given: Any) -> Any:
    """The result of a call in a new process."""
    return start_call(function, *given).result()


def lines_of(function: Callable[..., Any], *given: Any) -> int:
    """How many lines of the adapter a call runs: it is made, in a new process."""
    return int(call_elsewhere(_counted, function, given))


def _running() -> subprocess.Popen[bytes]:
    if not _origin or _origin[0].poll() is not None:
        paths = os.pathsep.join(path for path in sys.path if path)
        _origin[:] = [
            subprocess.Popen(  # noqa: S603 - the running Python
                [sys.executable, "-W", "ignore", "-c", f"from {__name__} import main; main()"],
                stdin=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths},
            )
        ]  # fmt: skip
        atexit.register(_end)
    return _origin[0]


def _end() -> None:
    for origin in _origin:
        assert origin.stdin is not None
        origin.stdin.close()  # which ends it
        origin.wait()
    _origin.clear()


# --- in the other processes ------------------------------------------------------------------------------------------


def main() -> None:
    """The main function of the process that is copied: a copy for each folder that it is given."""
    sys.stdout = sys.stderr  # what an adapter prints
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # copies that have ended are not waited for
    while line := sys.stdin.buffer.readline():
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _watch(Path(line.decode().strip()))


def _watch(folder: Path) -> NoReturn:
    """Make the call in another copy, and say when that has ended, whatever ended it."""
    pid = os.fork()
    if not pid:
        _run(folder)
    (folder / "pid.new").write_text(str(pid))
    (folder / "pid.new").rename(folder / "pid")
    os.waitpid(pid, 0)
    (folder / "done").touch()
    os._exit(0)


def _run(folder: Path) -> NoReturn:
    try:
        function, given, dies_at, waits = pickle.loads((folder / "request").read_bytes())  # noqa: S301 - our parent's
        if waits:
            (folder / "ready").touch()
            _await(folder / "begin")
        if dies_at is not None:
            _Lines(given[0], dies_at, folder / "where").begin()
        result = "returned", function(*given)
    except BaseException as error:  # noqa: BLE001 - the caller raises it
        result = "raised", error
    finally:
        sys.settrace(None)
    try:
        data = pickle.dumps(result)
    except Exception:  # noqa: BLE001 - the text is all that can be sent
        data = pickle.dumps(("raised", HostError(traceback.format_exc(limit=-3))))
    (folder / "result.new").write_bytes(data)
    (folder / "result.new").rename(folder / "result")
    os._exit(0)


def _counted(function: Callable[..., Any], given: tuple[Any, ...]) -> int:
    lines = _Lines(given[0])
    lines.begin()
    try:
        function(*given)
    finally:
        sys.settrace(None)
    return lines.count


class _Lines:
    """Counts the lines of an adapter's modules that run, and ends the process before one of them."""

    def __init__(self, adapter: object, dies_at: int | None = None, note: Path | None = None) -> None:
        modules = {cls.__module__ for cls in type(adapter).__mro__}
        own = {module for module in modules if not module.startswith(("builtins", "headrace.io"))}
        self.packages = tuple(module.rpartition(".")[0] or module for module in own)
        self.count, self.dies_at, self.note = 0, dies_at, note

    def begin(self) -> None:
        """Begin to count, in this thread."""
        sys.settrace(self._called)

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_globals.get("__name__", "")
        watched = any(name == package or name.startswith(f"{package}.") for package in self.packages)
        return self._line if watched and event == "call" else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            if self.count == self.dies_at and self.note is not None:
                file, line = frame.f_code.co_filename, frame.f_lineno
                text = linecache.getline(file, line).strip()
                self.note.write_text(f"{Path(file).name}:{line}, before: {text}")
                os.kill(os.getpid(), signal.SIGKILL)
            self.count += 1
        return self._line
