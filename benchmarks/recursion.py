"""Which nodes of a network can be reached, while links are replaced: the cost of a batch beside what it changes.

A random graph of 100,000 links, two for each node, and ten nodes to start from. Every batch replaces some of the links,
0.01 % to 5 %: they end, and others begin. What a batch costs should follow what has changed, which is not the links
alone: a link that goes may take many nodes with it, which come back by longer ways. So each batch is told with the
changes that went round in its loop. The naive way is to find everything anew: what the first batch costs, which brings
the whole graph.

The same number of links replaced in a graph ten times as large must cost no more.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

import headrace as hr
from benchmarks.measure import Row, Section, say
from headrace import col
from headrace.host.local.run import run_local
from headrace.plan.nodes import Output

__all__ = ["measure"]

LINKS, STARTS, BATCHES = 100_000, 10, 8
SHARES = (0.0001, 0.001, 0.01, 0.05)
LARGER = 10


@dataclass(frozen=True)
class Batch:
    """What a batch cost, and what it had to do."""

    seconds: float
    rounds: int
    changes: int


def measure(_root: Path, options: argparse.Namespace) -> Section:
    """All figures, as a section of the report."""
    section = Section(f"Reachability over {LINKS:,} links, some of them replaced: CPU time of a batch in process")
    few = round(LINKS * SHARES[0])
    typical: dict[int, Batch] = {}
    for replaced in (round(LINKS * share) for share in SHARES):
        say.print(f"recursion: {replaced:,} of {LINKS:,} links replaced …")
        first, typical[replaced] = _best(LINKS, replaced, options.rounds)
        _add(section, replaced, first, typical[replaced])
    say.print(f"recursion: {few} of {LINKS * LARGER:,} links replaced …")
    _, large = _best(LINKS * LARGER, few, 1)
    _compare(section, few, typical[few], large)
    return section


def _add(section: Section, replaced: int, first: Batch, batch: Batch) -> None:
    what = f"{replaced:,} links ({replaced / LINKS:.2%}) replaced; all of it anew {first.seconds * 1000:.0f} ms"
    cost = f"{batch.seconds * 1000:.0f} ms, {batch.changes:,} changes in {batch.rounds} rounds"
    ratio = batch.seconds / first.seconds
    say.print(f"  {what}: {cost}, {batch.seconds / batch.changes * 1e6:.0f} µs a change", highlight=False)
    section.rows.append(Row(what, "", cost, f"{ratio:.2f}", ""))
    found = {"ms": batch.seconds * 1000, "changes": batch.changes, "rounds": batch.rounds, "naive_ratio": ratio}
    section.figures |= {f"replaced_{replaced}_{name}": float(value) for name, value in found.items()}


def _compare(section: Section, replaced: int, small: Batch, large: Batch) -> None:
    """By the round: how many rounds there are depends on the links that happen to be replaced."""
    ratio = large.seconds / large.rounds / (small.seconds / small.rounds)
    what = f"{replaced} links replaced, of {LINKS:,} → of {LINKS * LARGER:,}: by the round"
    shown = f"{small.seconds / small.rounds * 1000:.1f} → {large.seconds / large.rounds * 1000:.1f} ms"
    section.rows.append(Row(what, "", shown, f"{ratio:.2f}", "about 1, < 1.5"))
    section.figures["larger_graph_ratio"] = ratio


def _best(links: int, replaced: int, turns: int) -> tuple[Batch, Batch]:
    """The first batch, which has all links, and the typical later one: noise only adds time."""
    table, sizes = _told(links, replaced)
    runs = [_batches(table, sizes) for _ in range(turns)]
    first = min((run[0] for run in runs), key=lambda batch: batch.seconds)
    later = [min(parts, key=lambda batch: batch.seconds) for parts in zip(*(run[1:] for run in runs), strict=True)]
    return first, Batch(
        statistics.median(batch.seconds for batch in later),
        round(statistics.median(batch.rounds for batch in later)),
        round(statistics.median(batch.changes for batch in later)),
    )


def _batches(table: pa.Table, sizes: list[int]) -> list[Batch]:
    links = hr.events(table, "src LONG, dst LONG", batches=sizes)
    rows = [{"kind": "insert", "le": 0, "re": hr.INFINITY, "node": node} for node in range(STARTS)]
    rows.append({"kind": "cti", "le": len(sizes), "re": None, "node": None})
    starts = hr.events(rows, "node LONG", batches=[len(rows)])
    reached = hr.recurse(starts, lambda found: found.join(links, on={"node": "src"}).select(node=col("dst")))
    stamps: list[float] = []

    def clock() -> int:
        stamps.append(time.process_time())  # each source calls this in each batch; the first call is at the start
        return 0

    done = run_local([Output(reached.node, "out")], clock=clock, finish=False)
    seconds = [after - before for before, after in pairwise([stamps[0], *stamps[2:], time.process_time()])]
    rounds_of_batches = [_loop(batch) for batch in done.statistics]
    return [Batch(cost, len(rounds), sum(rounds)) for cost, rounds in zip(seconds, rounds_of_batches, strict=True)]


def _loop(statistics_of_batch: list[dict[str, object]]) -> list[int]:
    """The changes that circulated, by round."""
    report = hr.Run({}, {}, [statistics_of_batch]).progress()
    return [int(n) for n in report["loops"][0]["circulated"]]


def _told(links: int, replaced: int) -> tuple[pa.Table, list[int]]:
    """A random graph, then batches that each replace some of its links; the promise follows."""
    parts = list(_graph(links, replaced))
    return pa.concat_tables(parts), [part.num_rows for part in parts]


def _graph(links: int, replaced: int) -> Iterator[pa.Table]:
    rng = np.random.default_rng(1)
    ends = rng.integers(0, links // 2, (2, links))
    began = np.zeros(links, np.int64)
    yield _events("insert", began, ends)
    for now in range(1, BATCHES + 1):
        at = rng.choice(links, replaced, replace=False)
        gone = _events("retract", began[at], ends[:, at], now)
        ends[:, at] = rng.integers(0, links // 2, (2, replaced))
        began[at] = now
        promise = {"kind": "cti", "le": now, "re": None, "re_new": None, "src": None, "dst": None}
        come = _events("insert", began[at], ends[:, at])
        yield pa.concat_tables([pa.Table.from_pylist([promise], schema=gone.schema), gone, come])


def _events(kind: str, began: np.ndarray, ends: np.ndarray, now: int | None = None) -> pa.Table:
    count = len(began)
    return pa.table(
        {
            "kind": pa.array([kind] * count),
            "le": pa.array(began.copy()),
            "re": pa.array(np.full(count, hr.INFINITY)),
            "re_new": pa.array([now] * count, pa.int64()),
            "src": pa.array(ends[0].copy()),
            "dst": pa.array(ends[1].copy()),
        }
    )
