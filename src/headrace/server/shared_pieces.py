"""What the subscriptions to one log share: pieces of it, and its promises.

Subscribers that follow a log get the same rows at the same time. So a piece is read once, and a way in that turns it
into bytes keeps them with the piece. Which promise is in force at an offset is found once for each row, not once for
each subscription.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict

import numpy as np
import pyarrow.compute as pc

from headrace.border import shown
from headrace.columnar import to_numpy
from headrace.server.interface import SubscribedRows
from headrace.server.log import EventLog
from headrace.time import NEG_INFINITY

__all__ = ["SHARED_ROWS", "SharedPieces", "cursor_of"]

#: Rows of a piece that is shared; more are read for each subscriber.
SHARED_ROWS = 1_000
#: Pieces that are kept.
_PIECES = 32
#: Rows of the log that are read at once to find promises.
_STEP = 10_000


def cursor_of(log: EventLog, offset: int) -> str:
    """The cursor of a place in a log."""
    return f"{log.folder.name.partition('-')[0]}.{offset}"


class SharedPieces:
    """The pieces of a log of answers, as events."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._pieces: OrderedDict[tuple[int, int, bool], SubscribedRows] = OrderedDict()
        #: From where up to where promises are known; the offsets from which a later one is in force, and that one.
        self._from, self._known = 0, -1
        self._after, self._promises = array("q"), array("q")

    def piece(self, start: int, end: int, *, dates: bool) -> SubscribedRows:
        """The rows from an offset up to another; `dates` is how their times are shown."""
        key = (start, end, dates)
        with self._lock:
            piece = self._pieces.get(key)
        if piece is None:
            rows = shown(self._log.rows(start, end)[1], dates=dates)
            piece = SubscribedRows(rows, cursor_of(self._log, end), self.promise(end))
            if end - start <= SHARED_ROWS:
                with self._lock:
                    piece = self._pieces.setdefault(key, piece)
                    while len(self._pieces) > _PIECES:
                        self._pieces.popitem(last=False)
        return piece

    def at_hand(self, start: int) -> bool:
        """Whether a piece from here to the end is small, and in memory."""
        end = self._log.end
        known = self._from <= start <= self._known
        return known and end - start <= SHARED_ROWS and self._log.in_memory(start, end)

    def promise(self, offset: int) -> int:
        """The promise in force after the rows before an offset."""
        with self._lock:
            if self._known < 0:
                self._from = self._known = offset
                self._after.append(offset)
                self._promises.append(self._latest_before(offset))
            if offset < self._from:
                return self._latest_before(offset)
            while self._known < offset:
                start = max(self._known, self._log.first)
                self._find(start, min(offset, start + _STEP))
            return self._promises[bisect_right(self._after, offset) - 1]

    def _latest_before(self, offset: int) -> int:
        """The latest promise of the rows before an offset, since promises grow."""
        while offset > self._log.first:
            start = max(self._log.first, offset - _STEP)
            rows = self._log.rows(start, offset)[1]
            found = pc.max(rows.filter(pc.equal(rows["kind"], "cti"))["le"]).as_py()
            if found is not None:
                return int(found)
            offset = start
        return NEG_INFINITY

    def _find(self, start: int, end: int) -> None:
        offsets, rows = self._log.rows(start, end)
        of_promises = to_numpy(pc.equal(rows["kind"], "cti"))
        times, after = to_numpy(rows["le"])[of_promises], offsets[of_promises] + 1
        highest = np.maximum.accumulate(np.r_[self._promises[-1], times])
        grows = highest[1:] > highest[:-1]
        self._after.extend(after[grows].tolist())
        self._promises.extend(times[grows].tolist())
        self._known = max(end, self._known)
