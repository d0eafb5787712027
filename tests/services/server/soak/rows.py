"""The rows that clients insert: who has which, and what was acknowledged.

Rows are out of order by up to `DISORDER` seconds, and the stream promises `ADVANCE` seconds: a row is never late by
accident, since no row is handed out that is too far ahead of one that is not acknowledged yet. Some rows are late on
purpose, by a day; these must be diverted.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

__all__ = ["ADVANCE", "BEGIN", "END", "SCRIPT", "Ledger", "Row", "instant"]

ADVANCE, DISORDER = 240, 30
#: Rows of one second of the data.
_DENSITY = 20
_SENSORS = "abcdefgh"
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
#: The value of the rows by which a subscriber knows that nothing follows.
END = "end"
SCRIPT = f"""
CREATE STREAM readings (id LONG, sensor STRING, reading LONG, ts DATETIME)
    ORDER BY ts WITH PROGRESS ADVANCE {ADVANCE} s LATE INTO late_readings;
QUERY raw AS SELECT id, sensor, reading FROM readings;
QUERY sums AS SELECT sensor, sum(reading) AS total, count(*) AS n FROM readings [TUMBLING 10 s] GROUP BY sensor;
QUERY peaks AS SELECT sensor, max(reading) AS peak, count(*) AS n FROM readings [HOPPING 20 s EVERY 10 s]
    GROUP BY sensor;
CREATE STREAM large AS SELECT sensor, total FROM sums WHERE total > 100;
QUERY diverted AS SELECT row FROM late_readings;
CREATE STREAM orders (kind STRING, le DATETIME, re DATETIME, re_new DATETIME, id LONG, item STRING, amount LONG)
    LIFETIME PHYSICAL WITH PROGRESS EXPLICIT;
QUERY stock AS SELECT item, sum(amount) AS amount, count(*) AS n FROM orders [SNAPSHOT] GROUP BY item;
CREATE TABLE devices (id INT PRIMARY KEY, place STRING, weight LONG);
CREATE MATERIALIZED VIEW places AS SELECT place, count(*) AS devices, sum(weight) AS weight FROM devices GROUP BY place;
"""


@dataclass(frozen=True)
class Row:
    """A row of `readings`; `late` is whether it must be diverted."""

    id: int
    sensor: str
    reading: int
    ts: datetime
    late: bool = False

    def values(self) -> dict[str, object]:
        """The columns of the stream."""
        return {"id": self.id, "sensor": self.sensor, "reading": self.reading, "ts": self.ts}

    def json(self) -> dict[str, object]:
        """The columns with the time as a text."""
        return self.values() | {"ts": instant(self.ts)}

    def sql(self) -> str:
        """The row in VALUES."""
        return f"({self.id}, '{self.sensor}', {self.reading}, TIMESTAMP '{self.ts:%Y-%m-%dT%H:%M:%S}')"


def instant(time: datetime) -> str:
    """A time as clients write it."""
    return f"{time:%Y-%m-%dT%H:%M:%S}Z"


class Ledger:
    """Hands out rows, and remembers which were acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: list[Row] = []
        self._next = 0
        #: Rows on their way, by id.
        self._sent: dict[int, Row] = {}
        self._changed = threading.Condition()

    def take(self, chance: random.Random, count: int, late: float, stopping: threading.Event) -> list[Row]:
        """The next rows for a client, a share of them too late; none when the run stops."""
        with self._changed:
            while not stopping.is_set():
                newest = BEGIN + timedelta(seconds=(self._next + count) // _DENSITY)
                oldest = min((row.ts for row in self._sent.values() if not row.late), default=newest)
                if newest - oldest < timedelta(seconds=ADVANCE - 1):
                    return [self._row(chance, late) for _ in range(count)]
                self._changed.wait(0.5)
        return []

    def _row(self, chance: random.Random, late: float) -> Row:
        self._next += 1
        number = self._next
        time = BEGIN + timedelta(seconds=number // _DENSITY - chance.randrange(DISORDER))
        is_late = number > 1 and chance.random() < late
        row = Row(
            number,
            chance.choice(_SENSORS),
            chance.randrange(10),
            time - timedelta(days=1) if is_late else time,
            is_late,
        )
        self._sent[number] = row
        return row

    def acknowledge(self, rows: Sequence[Row]) -> None:
        """Note that the server has them."""
        with self._changed:
            for row in rows:
                del self._sent[row.id]
            self.acknowledged += rows
            self._changed.notify_all()

    def closing(self, seconds: int, sensor: str) -> Row:
        """A row so many seconds after all others, by which earlier answers become final."""
        newest = max(row.ts for row in self.acknowledged)
        return Row(-len(self.acknowledged) - 1, sensor, 1000, newest + timedelta(seconds=seconds))

    def note(self, row: Row) -> None:
        """Note a row that was not handed out here."""
        with self._changed:
            self.acknowledged.append(row)
