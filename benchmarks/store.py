"""The store by itself: how fast state is written and read."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measure import Row, Section, say
from headrace.segments import HASH, TIME, Segment
from headrace.store.blocks import BlockReader, Ledger, write_blocks
from headrace.store.log import Commit
from headrace.store.storage import LocalStorage

__all__ = ["measure"]

_ROWS, _SEGMENTS = 1_000_000, 4


def measure(root: Path, options: argparse.Namespace) -> Section:
    """State in megabytes a second."""
    section = Section("The store")
    _state(section, LocalStorage(root / "state"), options.rounds)
    return section


def _state(section: Section, storage: LocalStorage, rounds: int) -> None:
    """Segments of a grouped query, as a task writes them after a batch and reads them after a restart."""
    say.print("state: writing and reading segments …")
    segments = [_segment(seed) for seed in range(_SEGMENTS)]
    size = sum(segment.table.nbytes for segment in segments) / 1e6
    times: dict[str, list[float]] = {"written": [], "read": []}
    for number in range(max(rounds, 3)):
        commits: list[Commit] = []
        times["written"].append(_seconds(lambda n=number, to=commits: to.append(_write(storage, segments, n))))
        times["read"].append(_seconds(lambda of=commits: _read(storage, segments, of[0])))
    for what, found in times.items():
        rate = size / statistics.median(found)
        title = f"state {what}, {size:,.0f} MB in {_SEGMENTS} segments, checked, MB/s"
        section.rows.append(Row(title, "", f"{rate:,.0f}", "", "≥ 500"))
        section.figures[f"state_{what}_mb_per_second"] = rate


def _segment(seed: int) -> Segment:
    random = np.random.default_rng(seed)
    keys = pa.array([f"SYM{i}" for i in range(10_000)])
    rows = {
        "symbol": keys.take(pa.array(random.integers(0, 10_000, _ROWS))),
        "total": random.random(_ROWS),
        "n": random.integers(0, 100, _ROWS),
        HASH: random.integers(0, 2**63, _ROWS).astype(np.uint64),
        TIME: np.sort(random.integers(0, 2**40, _ROWS)),
    }
    return Segment.of(pa.table(rows))


def _write(storage: LocalStorage, segments: list[Segment], number: int) -> Commit:
    ledger = Ledger()
    ledger.add(write_blocks(storage, number, 1, {segment.name: segment.save() for segment in segments}))
    return Commit(number, 1, {}, ledger.files, ledger.blocks, ledger.inline)


def _read(storage: LocalStorage, segments: list[Segment], commit: Commit) -> None:
    reader = BlockReader(storage, commit)
    for segment in segments:
        if Segment.load(segment.name, reader.block(segment.name)).table.num_rows != _ROWS:
            raise SystemExit("a segment was not read as it was written")


def _seconds(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started
