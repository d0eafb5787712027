"""State larger than memory, on the live host in process: how batches and memory go while state grows tenfold.

Besides: how long it takes with all that state to start again, until the first answer, and to divide it anew.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from tests.fixtures.growing_state import KINDS, run, write_events

import headrace as hr
from benchmarks.measure import Row, Section, say
from headrace.io.sinks import Nowhere

__all__ = ["measure"]

_BATCHES, _ROWS = 100, 200_000


def measure(root: Path, options: argparse.Namespace) -> Section:  # noqa: ARG001 - it has a size of its own
    """Memory, batches early and late, and what follows a stop."""
    section = Section("State larger than memory: an inner join, and sums per key and window")
    say.print("state: writing events …")
    write_events(root / "events", _BATCHES, _ROWS)
    write_events(root / "small", 1, 1000)
    for kind in KINDS:
        say.print(f"state that grows: {kind} …")
        _grow(section, kind, run(kind, root / "events", root / kind))
    _again(section, root)
    return section


def _grow(section: Section, kind: str, batches: list[dict[str, float]]) -> None:
    last = batches[-1]
    ratio = last["state"] / last["anonymous"]
    shown = f"{last['state'] / 1e6:,.0f} ÷ {last['anonymous'] / 1e6:,.0f} MB"
    section.rows.append(Row(f"{kind}: state ÷ most anonymous memory", "", shown, f"{ratio:.1f}", "≥ 3"))
    section.figures[f"{kind}_state_by_memory"] = ratio
    tenth, fifth = _BATCHES // 10, _BATCHES // 5
    for name, least in (("median", statistics.median), ("slowest", max)):
        early, late = (least([b["cpu"] for b in some]) for some in (batches[tenth : tenth + fifth], batches[-fifth:]))
        shown = f"{early * 1000:,.0f} → {late * 1000:,.0f} ms"
        section.rows.append(Row(f"{kind}: CPU of the {name} batch, state tenfold", "", shown, f"{late / early:.2f}"))
        section.figures[f"{kind}_{name}_ratio"] = late / early


def _again(section: Section, root: Path) -> None:
    """Start again with the state, and divide it."""
    say.print("starting again, and dividing the state anew …")
    for file in (root / "small").iterdir():
        file.rename(root / "events" / f"{_BATCHES:05d}.parquet")
    new, old = (_first_answer(root / "events", root / name) for name in ("new", "groups"))
    shown = f"{old:.2f} s, without state {new:.2f} s"
    section.rows.append(Row("start with the state to first answer", "", shown, "", "≤ 2 s more"))
    started = time.monotonic()
    hr.checkpoint(str(root / "groups")).rescale(4)
    taken = time.monotonic() - started
    section.rows.append(Row("the state of 2 buckets divided among 4", "", f"{taken:.1f} s", "", "≤ 20 s for 1 GB"))
    section.figures |= {"restart_seconds": old - new, "rescale_seconds": taken}


def _first_answer(folder: Path, checkpoint: Path) -> float:
    started = time.monotonic()
    query = KINDS["groups"](str(folder)).start(
        Nowhere(), host="local", checkpoint=str(checkpoint), files_per_batch=1, buckets=2
    )
    while not query.batch_seconds:
        query.await_termination(0.001)
    taken = time.monotonic() - started
    query.stop()
    return taken
