"""Lines from a TCP server: a receiver writes them down, and the rest is files (rule 8.1).

What came over a connection cannot be asked for again. So a receiver keeps it: it writes whole lines to files of a
*spool*, a directory, each file at once and under a new name, and a query reads those as it reads any files. A batch
that is run again, a restart and a history see the same rows, at the same arrival: the time of the file. Only what was
sent but not yet written when the process dies is lost.

- A line is whole when its end has come. What is left of one when a connection breaks is not glued to what comes over
  the next; it is *diverted*, as are lines that are too long, and lines of CSV whose quotes do not pair, which would
  swallow the line behind them. Such lines are counted and kept in the spool's `_aside.jsonl`.
- When a query is `buffer_rows` lines behind, the receiver stops reading, and TCP makes the server wait.
- When a connection breaks or is refused it tries again, after pauses that double up to a limit, with some chance in
  them, so that many receivers do not knock at the same moment.
"""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from headrace.errors import SourceError
from headrace.io.files import list_files
from headrace.io.locks import hold
from headrace.io.origins import HostRead

__all__ = ["COUNTED", "Pauses", "Receiver", "Spool", "receive_all"]

#: What a receiver counts: connections made, tries that failed, connections that ended; lines and files written; what
#: was diverted; how often the query was so far behind that it stopped reading.
COUNTED = ("connections", "refused", "ended", "lines", "files", "half", "too_long", "unpaired", "waits")
#: Lines are written down at least this often.
_MOMENT = 0.2
_READ_BYTES = 65_536
_FILE_LINES = 100_000
_CONNECT_SECONDS = 10.0
#: How long a bounded read waits for a server that is not there yet.
_PATIENCE = 10.0
_LONGEST = 1 << 20
_KEPT_ASIDE, _KEPT_CHARACTERS = 10_000, 1000


@dataclass(frozen=True)
class Pauses:
    """How long to wait before the next try, in seconds: doubled each time up to the longest."""

    first: float = 0.1
    longest: float = 30.0

    def before(self, attempt: int) -> float:
        """The pause before a try, of which `attempt` have failed; somewhere in the upper half of its length."""
        length = min(self.longest, self.first * 2.0 ** min(attempt, 30))
        return length * random.uniform(0.5, 1.0)  # noqa: S311 - nothing secret


class Lines:
    """Bytes as they come, cut into lines."""

    def __init__(self, longest: int = _LONGEST) -> None:
        self._longest = longest
        self._left = b""
        self._skips = False

    def take(self, data: bytes) -> tuple[list[bytes], list[bytes]]:
        """The whole lines so far, without their ends and without empty ones; and the beginnings of too long ones."""
        *whole, self._left = (self._left + data).split(b"\n")
        if self._skips and whole:  # here ends the line that was too long
            whole, self._skips = whole[1:], False
        lines = [line.removesuffix(b"\r") for line in whole]
        too_long = [line for line in lines if len(line) > self._longest]
        if len(self._left) > self._longest or (self._skips and self._left):
            too_long += [] if self._skips else [self._left]
            self._left, self._skips = b"", True
        return [line for line in lines if line.strip() and len(line) <= self._longest], too_long

    def half(self) -> bytes:
        """What has come of a line whose end has not."""
        return self._left


class Spool:
    """The directory in which lines are kept: one file a moment, each later than the one before.

    Of the files that are there already, the first `taken` are not waiting for anybody.
    """

    def __init__(self, folder: Path, ending: str, taken: int) -> None:
        self.folder, self._ending = folder, ending
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._locked()
        for draft in folder.glob(f"_*.{ending}"):  # of a process that died while it wrote
            draft.unlink()
        known = [Path(path) for path in list_files(str(folder))]
        self._last = max((path.stat().st_mtime_ns // 1000 for path in known), default=0)
        #: How many lines the files have that are waiting, oldest first, and how many files there were before them.
        self._sizes = deque(path.read_bytes().count(b"\n") for path in known[taken:])
        self._before = taken
        self._aside = 0

    def _locked(self) -> IO[bytes]:
        """Hold the directory: two receivers in one would receive everything twice."""
        file = hold(self.folder / "_lock")
        if file is None:
            raise SourceError(
                "another query receives into this spool",
                given=str(self.folder),
                allowed="a directory of its own for each query",
            )
        return file

    def close(self) -> None:
        """Let others have it."""
        self._lock.close()

    def write(self, lines: Sequence[bytes]) -> None:
        """One more file; it appears whole, and is there after a crash."""
        # A millisecond apart, which is as finely as Spark tells the times of files.
        self._last = max(time.time_ns() // 1000, self._last + 1000)
        path = self.folder / f"{self._last:018d}.{self._ending}"
        draft = path.with_name(f"_{path.name}")
        with draft.open("wb") as file:
            file.write(b"\n".join(lines) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.utime(draft, ns=(self._last * 1000,) * 2)
        draft.rename(path)
        self._sizes.append(len(lines))

    def divert(self, reason: str, line: bytes) -> None:
        """Keep a line that is no row, or its beginning; the first some thousand of them."""
        self._aside += 1
        if self._aside <= _KEPT_ASIDE:
            kept = {"reason": reason, "line": line.decode("utf-8", errors="replace")[:_KEPT_CHARACTERS]}
            with (self.folder / "_aside.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(kept, ensure_ascii=False) + "\n")

    def waiting(self, taken: int) -> int:
        """How many lines are in files that nobody has taken yet."""
        while self._sizes and self._before < taken:
            self._sizes.popleft()
            self._before += 1
        return sum(self._sizes)


class Receiver:
    """A thread that brings lines from a server into a spool.

    `taken` says how many files of the spool the query has taken; without it nothing is waited for. With `once` it ends
    when the server closes the connection.
    """

    def __init__(
        self,
        origin: HostRead,
        folder: Path,
        *,
        taken: Callable[[], int] | None = None,
        once: bool = False,
        pauses: Pauses | None = None,
        longest: int = _LONGEST,
    ) -> None:
        self.origin = origin
        ending = "jsonl" if origin.format.name == "json" else "csv"
        self.spool = Spool(folder, ending, taken() if taken is not None else 0)
        self.counts = dict.fromkeys(COUNTED, 0)
        #: Why it could not go on, if it could not.
        self.failure: Exception | None = None
        #: Called when it cannot go on.
        self.on_failure: Callable[[], object] = lambda: None
        self._taken, self._once, self._pauses, self._longest = taken, once, pauses or Pauses(), longest
        self._pending: list[bytes] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"headrace-receive-{origin.port}", daemon=True)

    def start(self) -> None:
        """Begin to receive."""
        self._thread.start()

    def stop(self) -> None:
        """End it; what has been received is written down."""
        self._stop.set()
        if self._thread.ident is None:
            self.spool.close()
        else:
            self._thread.join()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended; false if that took too long."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    # --- connections -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._connect_again_and_again()
            self._write()
            if self._once and not list_files(str(self.spool.folder)):
                self.spool.write([])  # so that nothing is what is there, and not missing
        except Exception as error:  # noqa: BLE001 - whatever it is, the query must hear of it
            self.failure = error
            self.on_failure()
        finally:
            self.spool.close()

    def _connect_again_and_again(self) -> None:
        failed, began = 0, time.monotonic()
        while not self._ended():
            before = self._received
            connection = self._connected()
            if connection is None and self._once and time.monotonic() - began > _PATIENCE:
                place = f"{self.origin.host}:{self.origin.port}"
                raise SourceError("nobody answers", given=place, allowed="a TCP server that sends lines")
            if connection is not None:
                with connection:
                    self._receive(connection)
                self._write()
                self.counts["ended"] += 1
                if self._once:
                    return
            failed = 0 if self._received > before else failed + 1
            if not self._ended():
                self._stop.wait(self._pauses.before(failed))

    def _connected(self) -> socket.socket | None:
        try:
            connection = socket.create_connection((self.origin.host, self.origin.port), _CONNECT_SECONDS)
        except OSError:
            self.counts["refused"] += 1
            return None
        connection.settimeout(_MOMENT)
        self.counts["connections"] += 1
        return connection

    @property
    def _received(self) -> int:
        return self.counts["lines"] + len(self._pending)

    def _ended(self) -> bool:
        enough = self.origin.limit is not None and self._received >= self.origin.limit
        return enough or self._stop.is_set()

    # --- lines -------------------------------------------------------------------------------------------------------

    def _receive(self, connection: socket.socket) -> None:
        """Take lines until the connection ends."""
        lines, written = Lines(self._longest), time.monotonic()
        while not self._ended():
            data = self._read(connection) if self._has_room() else b""
            if data is None:
                break
            self._take(*lines.take(data))
            if len(self._pending) >= _FILE_LINES or time.monotonic() - written >= _MOMENT:
                self._write()
                written = time.monotonic()
        if lines.half() and not self._ended():
            self._divert("half", "the connection ended within the line", lines.half())

    def _read(self, connection: socket.socket) -> bytes | None:
        """What comes within a moment, perhaps nothing; None when the connection has ended."""
        try:
            return connection.recv(_READ_BYTES) or None
        except TimeoutError:
            return b""
        except OSError:
            return None

    def _has_room(self) -> bool:
        """Whether there is room for more lines; where there is none, waits until the query has taken some."""
        if self._room() > len(self._pending):
            return True
        self._write()
        if self._room() <= 0:
            self.counts["waits"] += 1
            while self._room() <= 0 and not self._stop.wait(_MOMENT / 10):
                pass
        return False

    def _room(self) -> int:
        if self._taken is None:
            return self.origin.buffer_rows
        return self.origin.buffer_rows - self.spool.waiting(self._taken())

    def _take(self, lines: list[bytes], too_long: list[bytes]) -> None:
        for line in too_long:
            self._divert("too_long", f"the line is longer than {self._longest} bytes", line)
        if self.origin.format.name == "csv":
            unpaired = [line for line in lines if line.count(b'"') % 2]
            for line in unpaired:
                self._divert("unpaired", "the quotes of the line do not pair", line)
            lines = [line for line in lines if not line.count(b'"') % 2] if unpaired else lines
        if self.origin.limit is not None:
            lines = lines[: self.origin.limit - self._received]
        self._pending += lines

    def _divert(self, counter: str, reason: str, line: bytes) -> None:
        self.counts[counter] += 1
        self.spool.divert(reason, line)

    def _write(self) -> None:
        """Write down what has come, in files that are no larger than what there is room for."""
        while self._pending:
            room = self._room()
            if room <= 0 and not self._stop.is_set():
                return
            size = len(self._pending) if room <= 0 else min(room, _FILE_LINES)
            self.spool.write(self._pending[:size])
            self.counts["files"] += 1
            self.counts["lines"] += len(self._pending[:size])
            self._pending = self._pending[size:]


def receive_all(spools: Sequence[tuple[HostRead, Path]]) -> list[Receiver]:
    """Receive from servers, all at once, until each has closed its connection or sent as much as was asked for."""
    receivers = [Receiver(origin, folder, once=True) for origin, folder in spools]
    try:
        for receiver in receivers:
            receiver.start()
        for receiver in receivers:
            while not receiver.wait(_MOMENT):  # so that Ctrl-C is heard
                pass
    finally:
        for receiver in receivers:
            receiver.stop()
    for receiver in receivers:
        if receiver.failure is not None:
            raise receiver.failure
    return receivers
