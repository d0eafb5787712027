"""A trip round a loop across two buckets: on Spark, where it is a job, and in process; and as a batch of its own.

Each file brings a chain of links that goes on where the last one ended, so that a batch makes a trip for every link.
It measures the time of the median batch by its trips, with the commit.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from pathlib import Path
from typing import Any

import headrace as hr
from benchmarks.measure import Row, Section, say
from headrace import col

__all__ = ["measure"]

LINKS, FILES, WARM = 20, 8, 3
GOAL = {"spark": 0.2}


def measure(root: Path, options: argparse.Namespace) -> Section:  # noqa: ARG001 - it has none
    """Milliseconds a trip, as a section of the report."""
    section = Section("A trip round a loop across two buckets")
    for host in ("spark", "local"):
        for most, what in ((None, "many a batch"), (1, "a batch each")):
            say.print(f"trips: {host}, {what} …")
            found = _seconds(root / f"{host}-{most}", host, most)
            goal = f"≤ {GOAL[host] * 1000:.0f} ms" if most is None and host in GOAL else ""
            section.rows.append(Row(f"{host}, {what}", headrace=f"{found * 1000:.0f} ms", goal=goal))
            section.figures[f"{host}, {what}: ms"] = found * 1000
    return section


def _seconds(root: Path, host: Any, most: int | None) -> float:
    folder = root / "in"
    folder.mkdir(parents=True)
    links = hr.read_events(str(folder), "src LONG, dst LONG", format="json", progress=hr.explicit())
    reached = hr.recurse(
        links.where(col("src") == 0).select(node=col("src")),
        lambda found: found.join(links, on={"node": "src"}).select(node=col("dst")),
    )
    kept = hr.memory()
    query = reached.start(kept, host=host, checkpoint=str(root / "state"), buckets=2, max_trips=most)
    query.driver.trip_seconds = math.inf
    times: list[float] = []
    try:
        for number in range(FILES):
            begun = len(query.batch_seconds)
            _write(folder, number)
            query.process_all_available()
            times.append(sum(query.batch_seconds[begun:]) / sum(query.batch_trips[begun:]))
    finally:
        query.stop()
    assert kept.cht().num_rows == FILES * LINKS + 1
    return statistics.median(times[WARM:])


def _write(folder: Path, number: int) -> None:
    first = number * LINKS
    rows: list[dict[str, Any]] = [
        {"kind": "insert", "le": number, "re": "inf", "src": n, "dst": n + 1} for n in range(first, first + LINKS)
    ]
    draft = folder / f"_{number}"
    draft.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"kind": "cti", "le": number}]))
    os.utime(draft, (number + 1, number + 1))
    draft.rename(folder / f"{number:03d}.json")
