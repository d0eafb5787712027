"""Relations at every instant: the CPU time of a batch of 1,000 changes, by the number of rows that live.

The table has an id, a group of ten rows, a value and a side, 0 or 1. Each batch replaces 500 rows: 250 taken at random,
and the 250 that were inserted first, so that the least id leaves all the time.
`python -m benchmarks.relations --rows 10000 1000000 --only top` measures a part.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa

import headrace as hr
from benchmarks.measure import Row, Section, say
from headrace.host.local.run import run_local
from headrace.plan.nodes import Output
from headrace.time import INFINITY

__all__ = ["QUERIES", "measure", "milliseconds", "table_of"]

SCHEMA = "id LONG, k LONG, v DOUBLE, side INT"
REPLACED, FILL, WARM, BATCHES = 500, 50_000, 4, 10
#: A batch of ten times as many rows may take so many times as long.
FLAT = 1.5

QUERIES: Mapping[str, str] = MappingProxyType({
    "grouped sum, count": "SELECT k, sum(v) AS s, count(*) AS n FROM t GROUP BY k",
    "grouped sum, 100 groups": "SELECT id % 100 AS g, sum(v) AS s FROM t GROUP BY id % 100",
    "global sum": "SELECT sum(v) AS s FROM t",
    "grouped min, max": "SELECT k, min(v) AS low, max(v) AS high FROM t GROUP BY k",
    "global min, max": "SELECT min(v) AS low, max(v) AS high FROM t",
    "global min, lost all the time": "SELECT min(id) AS low FROM t",
    "grouped count distinct": "SELECT k, count(DISTINCT side) AS n FROM t GROUP BY k",
    "global count distinct": "SELECT count(DISTINCT k) AS n FROM t",
    "top 3 of each group": (
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM t) WHERE n <= 3"
    ),
    "top 10 of all": "SELECT * FROM t ORDER BY v DESC LIMIT 10",
    "row_number": "SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM t",
    "sum OVER": "SELECT id, v, sum(v) OVER (PARTITION BY k) AS s FROM t",
    "join": "SELECT a.id, b.v FROM t a JOIN t b ON a.id = b.id WHERE a.side = 0",
    "left join": (
        "SELECT a.id, b.v FROM (SELECT * FROM t WHERE side = 0) a LEFT JOIN (SELECT * FROM t WHERE side = 1) b "
        "ON a.k = b.k"
    ),
    "IN": "SELECT * FROM t WHERE side = 0 AND k IN (SELECT k FROM t WHERE side = 1)",
    "NOT EXISTS": "SELECT * FROM t a WHERE side = 0 AND NOT EXISTS (SELECT 1 FROM t b WHERE b.k = a.k AND b.side = 1)",
    "DISTINCT": "SELECT DISTINCT k FROM t",
    "EXCEPT": "SELECT k FROM t WHERE side = 0 EXCEPT SELECT k FROM t WHERE side = 1",
    "INTERSECT": "SELECT k FROM t WHERE side = 0 INTERSECT SELECT k FROM t WHERE side = 1",
    "scalar sub-query": "SELECT id, v FROM t WHERE id = (SELECT max(id) FROM t)",
    "correlated sub-query": "SELECT id FROM t a WHERE v >= (SELECT avg(v) FROM t b WHERE b.k = a.k)",
})  # fmt: skip


def table_of(rows: int, batches: int = WARM + BATCHES, seed: int = 1) -> hr.Stream:
    """A table of so many rows, filled in large batches, then changed in small ones; each ends with a CTI."""
    rng = np.random.default_rng(seed)
    total = rows + REPLACED * batches
    columns = {
        "id": np.arange(total), "k": rng.permutation(total) % max(rows // 10, 1), "v": rng.random(total),
        "side": (np.arange(total) % 2).astype(np.int32),
    }  # fmt: skip
    inserted = np.maximum(np.arange(total, dtype=np.int64) - rows, 0)
    all_rows = pa.table({"le": inserted, "re": np.full(total, INFINITY)} | columns)
    alive, oldest = np.ones(rows, bool), 0
    parts, sizes = [], []
    for start in range(0, rows, FILL):
        some = all_rows.slice(start, min(FILL, rows - start))
        parts += [_kind(some, "insert"), _cti(0)]
        sizes.append(some.num_rows + 1)
    for start in range(rows, total, REPLACED):
        gone = [oldest + np.flatnonzero(alive[oldest:])[: REPLACED // 2]]
        oldest = int(gone[0][-1]) + 1
        alive[gone[0]] = False
        gone.append(np.sort(rng.choice(np.flatnonzero(alive), REPLACED // 2, replace=False)))
        alive[gone[1]] = False
        new = all_rows.slice(start, REPLACED)
        ended = all_rows.take(pa.array(np.stack(gone, 1).ravel()))
        ended = ended.append_column("re_new", pa.array(inserted[start : start + REPLACED]))
        parts += [_kind(ended, "retract"), _kind(new, "insert"), _cti(start + REPLACED - rows)]
        sizes.append(2 * REPLACED + 1)
        alive = np.r_[alive, np.ones(REPLACED, bool)]
    return hr.events(pa.concat_tables(parts, promote_options="default"), SCHEMA, batches=sizes)


def _kind(rows: pa.Table, kind: str) -> pa.Table:
    return rows.append_column("kind", pa.array([kind] * rows.num_rows))


def _cti(time: int) -> pa.Table:
    return pa.table({"kind": pa.array(["cti"]), "le": pa.array([time])})


def milliseconds(text: str, table: hr.Stream) -> list[float]:
    """The CPU time of each of the small batches."""
    stamps: list[float] = []

    def clock() -> int:
        stamps.append(time.process_time())  # the host asks for the time once for every batch of a source
        return 0

    stream = hr.sql(text, t=table)
    gc.collect()
    run_local([Output(stream.node, "out")], clock=clock, finish=False, threads=1)
    stamps.append(time.process_time())
    return [(after - before) * 1e3 for before, after in pairwise(stamps)]


def measure(root: Path, options: argparse.Namespace) -> Section:  # noqa: ARG001
    """Each query with 10,000 rows and 1,000,000, or a share of them."""
    counts = [10_000, max(int(1_000_000 * options.share), 20_000)]
    section = Section(f"CPU time of a batch of {2 * REPLACED} changes", beside=f"{counts[0]:,} rows")
    for name, times in _measured([], counts):
        ratio = times[-1] / times[0]
        section.rows.append(Row(name, f"{times[0]:.1f} ms", f"{times[-1]:.1f} ms", f"{ratio:.2f}", f"≤ {FLAT}"))
        section.figures[name] = ratio
    return section


def _measured(only: Sequence[str], counts: Sequence[int]) -> list[tuple[str, list[float]]]:
    tables = [table_of(count) for count in counts]
    found = []
    for name, text in QUERIES.items():
        if only and not any(word in name for word in only):
            continue
        times = [statistics.median(milliseconds(text, table)[-BATCHES:]) for table in tables]
        shown = ", ".join(f"{count:,}: {ms:.1f} ms" for count, ms in zip(counts, times, strict=True))
        say.print(f"  {name}: {shown}", highlight=False)
        found.append((name, times))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.relations", description=__doc__)
    parser.add_argument("--rows", nargs="+", type=int, default=[10_000, 100_000, 1_000_000], help="rows that live")
    parser.add_argument("--only", nargs="+", default=[], help="queries whose names contain one of these")
    options = parser.parse_args()
    _measured(options.only, options.rows)


if __name__ == "__main__":
    main()
