"""The parent's end of the demo's Spark process: start it, receive its messages, kill it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, Any

from headrace.cli.demo.trades import DemoFolder

__all__ = ["Child"]

_PATIENCE = 20.0  # seconds to wait for a process to end by itself


class Child:
    """A Spark process in a process group of its own, so that Ctrl-C stops only the parent and a kill ends all of it."""

    def __init__(self, place: DemoFolder, master: str | None = None) -> None:
        command = [sys.executable, "-m", "headrace.cli.demo.spark_process", str(place.root)]
        if master:
            command.append(master)
        with place.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _listen(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._messages.put(json.loads(line))
        self._messages.put(None)

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """The next message, or None after the timeout; after the last message, `{"what": "ended"}`."""
        with suppress(queue.Empty):
            return self._messages.get(timeout=timeout) or {"what": "ended"}
        return None

    def finish(self) -> None:
        """Tell it that no more files will come."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(b"finish\n")
            self._process.stdin.flush()

    def wait(self) -> None:
        """Let it end by itself; kill it if it does not."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
        self.kill()

    def pause(self) -> None:
        """Stop the whole group where it is."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let the group go on."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill -9 the whole group: Python, the JVM, and with the JVM its workers."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
