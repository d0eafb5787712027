"""The answers computed by DuckDB, from the rows that were acknowledged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import duckdb
import pyarrow as pa
from tests.services.server.soak.folding import History, ticks
from tests.services.server.soak.rows import Row

__all__ = ["Expected"]

#: Windows that have ended before the latest row began; times are in microseconds.
_ANSWERS = {
    "raw": "SELECT ts, ts + 1, id, sensor, reading FROM readings",
    "sums": "SELECT w, w + 10000000, sensor, sum(reading)::BIGINT, count(*) FROM tens GROUP BY ALL",
    "peaks": "SELECT w, w + 20000000, sensor, max(reading), count(*) FROM twenties GROUP BY ALL",
    "large": """SELECT w, w + 10000000, sensor, sum(reading)::BIGINT AS total FROM tens GROUP BY ALL
                HAVING total > 100""",
    "thirties": "SELECT w, w + 30000000, sensor, count(*) FROM thirties GROUP BY ALL",
}  # fmt: skip


class Expected:
    """The histories of the queries over `readings`."""

    def __init__(self, rows: Sequence[Row]) -> None:
        used = [row for row in rows if not row.late]
        readings = pa.table({
            "id": [row.id for row in used], "sensor": [row.sensor for row in used],
            "reading": [row.reading for row in used], "ts": [ticks(row.ts) for row in used],
        })  # fmt: skip
        self.late = sorted(row.id for row in rows if row.late)
        self._duckdb = duckdb.connect()
        self._duckdb.register("readings", readings)
        latest = max(ticks(row.ts) or 0 for row in used)
        for name, size, starts in (
            ("tens", 10_000_000, "ts - ts % 10000000"),
            ("thirties", 30_000_000, "ts - ts % 30000000"),
            ("twenties", 20_000_000, "unnest([ts - ts % 10000000, ts - ts % 10000000 - 10000000])"),
        ):
            self._duckdb.execute(
                f"CREATE VIEW {name} AS SELECT * FROM (SELECT *, {starts} AS w FROM readings) "
                f"WHERE w + {size} <= {latest}"
            )

    def history(self, name: str) -> History:
        """The history of a query."""
        return Counter(self._duckdb.execute(_ANSWERS[name]).fetchall())

    def close(self) -> None:
        self._duckdb.close()
