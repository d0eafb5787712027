"""Lines from a TCP server: a receiver writes them to files, and a query reads the files (rule 8.1).

A server cannot send its lines again. So a receiver stores them: it writes complete lines to files of a *spool*, a
directory, each file atomically and under a new name, and a query reads these like any files. A repeated batch, a
restart and a history see the same rows, with the same arrival: the time of the file. Only lines that the process has
not yet written when it dies are lost.

- A line is complete when its end has come. If a connection breaks within a line, the receiver *diverts* that part and
  does not join it to the next connection's bytes. It also diverts lines that are too long, and lines of CSV with an odd
  number of quotes, which would include the next line. It counts such lines and keeps them in the spool's
  `_aside.jsonl`.
- When `buffer_rows` lines wait for the query, the receiver stops reading, and TCP makes the server wait.
- When a connection breaks or is refused, the receiver tries again, after pauses that double up to a limit. Their length
  is random in part, so that many receivers do not connect at the same moment.
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
from headrace.io.files import ListedFile, list_files, listing
from headrace.io.locks import hold
from headrace.io.origins import HostRead

__all__ = ["RECEIVER_COUNTERS", "Pauses", "Receiver", "Spool", "receive_all"]

#: The counters of a receiver: connections opened, refused and ended; lines and files written; lines diverted, by
#: reason; how often it waited for the query.
RECEIVER_COUNTERS = ("connections", "refused", "ended", "lines", "files", "half", "too_long", "unpaired", "waits")
#: The longest time between two writes, in seconds.
_MOMENT = 0.2
_READ_BYTES = 65_536
_FILE_LINES = 100_000
_CONNECT_SECONDS = 10.0
#: How long a bounded read waits for a server that is not there yet.
_PATIENCE = 10.0
_LONGEST = 1 << 20
_KEPT_ASIDE, _KEPT_CHARACTERS = 10_000, 1000
IsRead = Callable[[ListedFile], bool]


@dataclass(frozen=True)
class Pauses:
    """Pauses before the next attempt, in seconds: doubled each time, up to the longest."""

    first: float = 0.1
    longest: float = 30.0

    def before(self, attempt: int) -> float:
        """The pause after `attempt` failures: a random part of its length, at least half."""
        length = min(self.longest, self.first * 2.0 ** min(attempt, 30))
        return length * random.uniform(0.5, 1.0)  # noqa: S311 - nothing secret


class LineSplitter:
    """Cuts received bytes into lines."""

    def __init__(self, longest: int = _LONGEST) -> None:
        self._longest = longest
        self._left = b""
        self._skips = False

    def take(self, data: bytes) -> tuple[list[bytes], list[bytes]]:
        """The lines that `data` completes, without line ends and empty lines; and the starts of too long lines."""
        *complete, self._left = (self._left + data).split(b"\n")
        if self._skips and complete:  # here ends the line that was too long
            complete, self._skips = complete[1:], False
        lines = [line.removesuffix(b"\r") for line in complete]
        too_long = [line for line in lines if len(line) > self._longest]
        if len(self._left) > self._longest or (self._skips and self._left):
            too_long += [] if self._skips else [self._left]
            self._left, self._skips = b"", True
        return [line for line in lines if line.strip() and len(line) <= self._longest], too_long

    def half(self) -> bytes:
        """The bytes of the incomplete last line."""
        return self._left


class Spool:
    """The directory of the received lines: a file for every moment, each with a later time than the one before.

    The query has taken so many files, by default the first ones. If some of these were removed, `is_read` says which of
    the existing ones it has taken, and `after` is the time of the newest of all, in nanoseconds.
    """

    def __init__(self, folder: Path, ending: str, taken: int, is_read: IsRead | None = None, after: int = 0) -> None:
        self.folder, self._ending = folder, ending
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._locked()
        for draft in folder.glob(f"_*.{ending}"):  # of a process that died while it wrote
            draft.unlink()
        known = listing(str(folder))
        self._last = max([after // 1000, *(file.modified // 1000 for file in known)])
        #: The numbers of lines of the waiting files, oldest first, and how many files precede them.
        waiting = known[taken:] if is_read is None else [file for file in known if not is_read(file)]
        self._sizes = deque(Path(file.path).read_bytes().count(b"\n") for file in waiting)
        self._before = taken
        self._diverted = 0

    def _locked(self) -> IO[bytes]:
        """Lock the directory: two receivers would write every line twice."""
        file = hold(self.folder / "_lock")
        if file is None:
            raise SourceError(
                "another query receives into this spool",
                given=str(self.folder),
                allowed="a directory of its own for each query",
            )
        return file

    def close(self) -> None:
        """Release the directory."""
        self._lock.close()

    def write(self, lines: Sequence[bytes]) -> None:
        """Write a file: atomic, and durable after a crash."""
        # At least a millisecond apart, the resolution of file times in Spark.
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
        """Keep a line that is no row, or its beginning; only the first few thousand."""
        self._diverted += 1
        if self._diverted <= _KEPT_ASIDE:
            kept = {"reason": reason, "line": line.decode("utf-8", errors="replace")[:_KEPT_CHARACTERS]}
            with (self.folder / "_aside.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(kept, ensure_ascii=False) + "\n")

    def waiting(self, taken: int) -> int:
        """The number of lines in files that the query has not taken yet."""
        while self._sizes and self._before < taken:
            self._sizes.popleft()
            self._before += 1
        return sum(self._sizes)


class Receiver:
    """A thread that writes lines from a server to a spool.

    `taken` returns the number of files that the query has taken; without it the receiver never waits. With `once` it
    ends when the server closes the connection. `is_read` and `after`: see `Spool`.
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
        is_read: IsRead | None = None,
        after: int = 0,
    ) -> None:
        self.origin = origin
        ending = "jsonl" if origin.format.name == "json" else "csv"
        self.spool = Spool(folder, ending, taken() if taken is not None else 0, is_read, after)
        self.counts = dict.fromkeys(RECEIVER_COUNTERS, 0)
        #: The error that ended it, if one did.
        self.failure: Exception | None = None
        #: Called when an error ends it.
        self.on_failure: Callable[[], object] = lambda: None
        self._taken, self._once, self._pauses, self._longest = taken, once, pauses or Pauses(), longest
        self._pending: list[bytes] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"headrace-receive-{origin.port}", daemon=True)

    def start(self) -> None:
        """Start to receive."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and write the lines received so far."""
        self._stop.set()
        if self._thread.ident is None:
            self.spool.close()
        else:
            self._thread.join()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of the thread; False after `seconds`."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    # --- connections -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._receive_until_end()
            self._write()
            if self._once and not list_files(str(self.spool.folder)):
                self.spool.write([])  # an empty input, and not a missing one
        except Exception as error:  # noqa: BLE001 - the query reports every failure
            self.failure = error
            self.on_failure()
        finally:
            self.spool.close()

    def _receive_until_end(self) -> None:
        failed, began = 0, time.monotonic()
        while not self._ended():
            before = self._received
            connection = self._connect()
            if connection is None and self._once and time.monotonic() - began > _PATIENCE:
                place = f"{self.origin.host}:{self.origin.port}"
                raise SourceError("no server answers", given=place, allowed="a TCP server that sends lines")
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

    def _connect(self) -> socket.socket | None:
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
        """Receive lines until the connection ends."""
        lines, written = LineSplitter(self._longest), time.monotonic()
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
        """The bytes of the next moment, perhaps none; None if the connection has ended."""
        try:
            return connection.recv(_READ_BYTES) or None
        except TimeoutError:
            return b""
        except OSError:
            return None

    def _has_room(self) -> bool:
        """Whether there is room for more lines; if not, wait until the query has taken some."""
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
        """Write the received lines, in files that fit into the room that there is."""
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
    """Receive from all servers at once, until each has closed its connection or reached its limit."""
    receivers = [Receiver(origin, folder, once=True) for origin, folder in spools]
    try:
        for receiver in receivers:
            receiver.start()
        for receiver in receivers:
            while not receiver.wait(_MOMENT):  # so that Ctrl-C interrupts
                pass
    finally:
        for receiver in receivers:
            receiver.stop()
    for receiver in receivers:
        if receiver.failure is not None:
            raise receiver.failure
    return receivers
