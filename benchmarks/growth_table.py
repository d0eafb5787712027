"""The growth table: for each operator and each thing that may grow, the CPU time of a changed event at a small and at a
large value.

A run fills the state in large batches, then takes small ones; the mean of ten counts, so that work which is due now and
then has its share. The small and the large run take turns. Where more answers explain the time, the table says so.
`python -m benchmarks.growth_table --page docs/growth.md` writes the table into the page.
"""

from __future__ import annotations

import argparse
import gc
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

import headrace as hr
from benchmarks.growth_lines import DIMENSIONS, EXPLAINED, LINES, Line, Setting
from benchmarks.measure import say
from headrace.host.local.run import run_local
from headrace.io.origins import Events
from headrace.plan.nodes import Output, Source
from headrace.schema import Schema

__all__ = ["Growth", "growth_of", "measured_lines", "note", "stream_of", "table_of"]

DELTA, FILL, WARM, BATCHES = 1_000, 10_000, 4, 10
SCHEMA = "k LONG, v DOUBLE, side INT"
#: Lines that grow by more than this need an explanation.
FLAT = 1.5


@dataclass(frozen=True)
class Growth:
    """Microseconds for each changed event and answers of a batch, small and large."""

    line: str
    dimension: str
    small: float
    large: float
    answers: tuple[float, float]

    @property
    def ratio(self) -> float:
        return self.large / self.small

    @property
    def shown(self) -> str:
        return f"{self.small:.1f} → {self.large:.1f} µs"

    @property
    def more_rows(self) -> float:
        """How many times as many rows a batch has, events and answers."""
        return (DELTA + self.answers[1]) / (DELTA + self.answers[0])


def measured_lines(only: list[str], share: float, rounds: int) -> list[Growth]:
    """The growth of all operators, or of some."""
    chosen = [line for line in LINES if not only or any(word in line.name for word in only)]
    found = []
    for line in chosen:
        for dimension in line.dimensions:
            found.append(growth_of(line, dimension, share, rounds))
            say.print(f"  {line.name}, {dimension}: {found[-1].shown}, ratio {found[-1].ratio:.2f}", highlight=False)
    return found


def growth_of(line: Line, dimension: str, share: float = 1.0, rounds: int = 1) -> Growth:
    """The growth of an operator with one thing."""
    base, grows = replace(Setting(), **line.setting), DIMENSIONS[dimension]
    settings = grows.small(base), grows.large(base, share)
    turns = [[_typical(line, setting) for setting in settings] for _ in range(rounds)]
    (small, few), (large, many) = (min(runs) for runs in zip(*turns, strict=True))
    return Growth(line.name, dimension, small, large, (few, many))


def _typical(line: Line, setting: Setting) -> tuple[float, float]:
    """Microseconds for each changed event, and answers of a batch."""
    stream = line.query(stream_of(setting), setting)
    stamps: list[float] = []

    def clock() -> int:
        stamps.append(time.process_time())  # the host asks for the time once for every batch of a source
        return 0

    gc.collect()
    done = run_local([Output(stream.node, "out")], clock=clock, finish=False, threads=1)
    stamps.append(time.process_time())
    seconds = [after - before for before, after in pairwise(stamps)][-BATCHES:]
    answers = [len(changes) for changes, _ in done.results["out"].batches][-BATCHES:]
    return sum(seconds) / BATCHES / DELTA * 1e6, sum(answers) / BATCHES


def stream_of(setting: Setting) -> hr.Stream:
    """The stream that a query is measured with."""
    return _rows(setting) if setting.retracting is None else _physical(setting)


def _columns(le: np.ndarray, setting: Setting) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    n = len(le)
    columns = {"le": le, "re": le + setting.alive, "k": rng.integers(0, setting.groups, n), "v": rng.random(n)}
    return columns | {"side": (np.arange(n) % 2).astype(np.int32)}


def _rows(setting: Setting) -> hr.Stream:
    """Rows with intervals, of which a tenth are late."""
    fills = setting.filled // FILL
    n = fills * FILL + (WARM + BATCHES) * DELTA
    columns, rng = _columns(np.arange(n, dtype=np.int64), setting), np.random.default_rng(2)
    if setting.delay:
        late = np.where(rng.random(n) < 0.1, rng.integers(0, setting.delay, n), 0)
        order = np.argsort(columns["le"] + late, kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
    sizes = (*[FILL] * fills, *[DELTA] * (WARM + BATCHES))
    table = pa.table(columns).rename_columns({"le": "start", "re": "stop"})
    schema = Schema.of(f"start LONG, stop LONG, {SCHEMA}")
    source = Source(Events(table, sizes), schema, hr.interval("start", "stop"), hr.advance(setting.delay))
    return hr.Stream(source).select("k", "v", "side")


def _physical(setting: Setting) -> hr.Stream:
    """Inserts, and retractions of half of them one batch later, or none; every batch ends with a CTI."""
    sizes = [*[FILL] * (setting.filled // FILL), *[DELTA] * (WARM + BATCHES)]
    inserts = [size - size // 3 if setting.retracting else size for size in sizes]
    ends = np.cumsum(inserts)
    columns = pa.table(_columns(np.arange(ends[-1], dtype=np.int64), setting))
    parts, counts = [], []
    for i, (end, count) in enumerate(zip(ends.tolist(), inserts, strict=True)):
        rows = [_kind(columns.slice(end - count, count), "insert")]
        if setting.retracting and i:
            before = columns.slice(ends[i - 1] - inserts[i - 1], inserts[i - 1])
            gone = before.take(pa.array(np.arange(0, inserts[i - 1], 2)[: sizes[i] // 3]))
            rows.append(_kind(gone, "retract").append_column("re_new", gone["le"]))
        rows.append(pa.table({"kind": ["cti"], "le": [max(end - setting.delay, 0)]}))
        parts += rows
        counts.append(sum(part.num_rows for part in rows))
    return hr.events(pa.concat_tables(parts, promote_options="default"), SCHEMA, batches=counts)


def _kind(rows: pa.Table, kind: str) -> pa.Table:
    return rows.append_column("kind", pa.array([kind] * rows.num_rows))


def note(growth: Growth) -> str:
    """Why a line grows, or that it does not."""
    if growth.ratio <= FLAT:
        return ""
    explained = EXPLAINED.get((growth.line, growth.dimension))
    if explained is not None:
        return f"explained: {explained}"
    if growth.ratio <= FLAT * growth.more_rows:
        return f"answers of a batch: {growth.answers[0]:.0f} → {growth.answers[1]:.0f}"
    return "**not explained**"


def table_of(found: list[Growth]) -> str:
    """The lines as a table in Markdown."""
    rows = ["| operator | what grows | time of a changed event | ratio | |", "|---|---|---|---|---|"]
    for growth in found:
        what = DIMENSIONS[growth.dimension].what
        rows.append(f"| {growth.line} | {what} | {growth.shown} | {growth.ratio:.1f} | {note(growth)} |")
    return "\n".join(rows)


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(prog="benchmarks.growth_table", description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="0.1: sizes grow by a tenth as much")
    parser.add_argument("--rounds", type=int, default=1, help="how often small and large runs take turns")
    parser.add_argument("--only", nargs="+", default=[], help="operators whose names contain one of these")
    parser.add_argument("--page", type=Path, help="write the table into this page")
    options = parser.parse_args()
    found = measured_lines(options.only, options.share, options.rounds)
    text = table_of(found)
    say.print(text, markup=False, soft_wrap=True)
    if options.page:
        before, _, rest = options.page.read_text().partition("<!-- growth: made by benchmarks/growth_table.py -->\n")
        after = rest.partition("<!-- growth end -->")[2]
        marked = f"<!-- growth: made by benchmarks/growth_table.py -->\n\n{text}\n\n<!-- growth end -->"
        options.page.write_text(before + marked + after)


if __name__ == "__main__":
    main()
