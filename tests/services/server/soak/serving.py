"""The server as a process of its own, that is killed and started again on the same ports and data."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

__all__ = ["Served"]

_STARTS = 20
_SECONDS = 180.0


class Served:
    """A running `headrace serve`. The first start takes free ports, and later ones take the same."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._options = options
        self.data, self.log = folder / "data", folder / "server.log"
        #: Where the process would write temporary files; it should write none.
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        self.port, self.postgres_port = 0, 0
        self.kills = 0
        #: Seconds from a kill until the server listened again.
        self.recoveries: list[float] = []
        self._process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def dsn(self) -> str:
        """The address for clients of PostgreSQL."""
        return f"host=127.0.0.1 port={self.postgres_port} user=soak dbname=headrace connect_timeout=10"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        for _ in range(_STARTS):
            if self._started():
                return
            time.sleep(0.5)  # another process may hold a port for a moment
        raise AssertionError(f"the server does not start:\n{self.log.read_text()[-3000:]}")

    def _started(self) -> bool:
        ports = ["--port", str(self.port), "--postgres-port", str(self.postgres_port)]
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "serve", "--data", str(self.data), *ports, *self._options],
                stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "TMPDIR": str(self.temporary)},
            )  # fmt: skip
        stuck = threading.Timer(_SECONDS, self._process.kill)
        stuck.start()
        try:
            assert self._process.stdout is not None
            text = ""
            while line := self._process.stdout.readline():
                text += line
                if "shell" in line:  # the last line
                    break
        finally:
            stuck.cancel()
        http, postgres = re.search(r"http://127.0.0.1:(\d+)", text), re.search(r"-p (\d+)", text)
        if http is None or postgres is None:
            self._end()
            return False
        self.port, self.postgres_port = int(http[1]), int(postgres[1])
        return True

    def kill(self) -> None:
        """SIGKILL, and a new start."""
        began = time.monotonic()
        assert self._process is not None
        assert self._process.poll() is None, f"the server ended by itself:\n{self.log.read_text()[-3000:]}"
        self._process.kill()
        self._end()
        self.kills += 1
        self.start()
        self.recoveries.append(time.monotonic() - began)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(_SECONDS)
        self._end()
        return code

    def close(self) -> None:
        """End it, whatever it does."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        self._end()

    def _end(self) -> None:
        assert self._process is not None
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def memory(self) -> int:
        """Its resident bytes."""
        assert self._process is not None
        try:
            return int(psutil.Process(self._process.pid).memory_info().rss)
        except psutil.NoSuchProcess:
            return 0

    def disk(self) -> tuple[int, int]:
        """The number of its files, and their bytes."""
        files = [file for file in self.data.rglob("*") if file.is_file()]
        return len(files), sum(file.stat().st_size for file in files)
