"""The queries of kept checkpoints, and their input.

They use only what every Headrace with a segment store has, because earlier versions run this file, too. Nothing here
may change: it is the text of queries whose checkpoints are kept. A query may be added: earlier archives do not have it.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import col

__all__ = ["FILES", "HALF", "QUERIES", "Longest", "run", "write_input"]

SCHEMA = "k STRING, v LONG"
#: The files of the input, one for each batch, and how many of them are there when a kept query stops.
FILES, HALF = 6, 3


class Longest(hr.IncrementalAggregate):
    """The largest distance between two values. Its state is a pickled list of all values."""

    input = "v LONG"
    output = "LONG"

    def initial(self) -> list[int]:
        return []

    def add(self, state: list[int], items: list[int]) -> list[int]:
        return sorted([*state, *items])

    def compute(self, state: list[int]) -> int:
        return state[-1] - state[0]


def write_input(folder: Path, first: int, last: int) -> None:
    """Physical events with corrections and promises; each file has a line that is no JSON, and a late event."""
    draw, alive, cti = random.Random(24), [], 0
    for number in range(FILES):
        rows: list[dict[str, Any]] = []
        for _ in range(12):
            if alive and draw.random() < 0.3:
                event = alive.pop(draw.randrange(len(alive)))
                floor = max(event["le"], cti)
                end = draw.choice([floor, floor + draw.randrange(1, 40)])
                if end != event["re"]:
                    rows.append({**event, "kind": "retract", "re_new": end})
                    alive += [{**event, "re": end}] if end != event["le"] else []
            else:
                le = cti + draw.randrange(30)
                end = le + draw.choice([1, 5, 60])
                event = {"kind": "insert", "le": le, "re": end, "k": draw.choice("abc"), "v": draw.randrange(50)}
                rows.append(event)
                alive.append(event)
        if cti:
            rows.append({"kind": "insert", "le": cti - 3, "re": cti - 1, "k": "late", "v": number})
        cti += draw.randrange(4, 12)
        rows.append({"kind": "cti", "le": cti})
        alive = [event for event in alive if event["re"] >= cti]
        if first <= number < last:
            lines = "\n".join([*map(json.dumps, rows), f"no JSON, in file {number}"])
            _write(folder / "in" / f"{number:03d}.json", lines, number)
            _write(folder / "dated" / f"{number:03d}.csv", _dated(number), number)


def _dated(number: int) -> str:
    """Rows whose times are dates; one of each file is out of order, and one is no date."""
    times = [f"2024-05-01T12:{number:02d}:{second:02d}Z" for second in (5, 50, 20, 40)]
    return "\n".join(["k,ts,v", *(f"{'abc'[i % 3]},{time},{i + number}" for i, time in enumerate(times)), "a,soon,1"])


def _write(path: Path, text: str, number: int) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n")
    os.utime(path, (number + 1, number + 1))


def _stream() -> hr.Stream:
    return hr.read_events("in", SCHEMA, format="json", progress=hr.explicit())


def _window() -> hr.Stream:
    windows = _stream().group_by("k").window(hr.hopping(20, every=10))
    return windows.aggregate(n=hr.count(), s=hr.sum("v"), high=hr.max("v"))


def _two_levels() -> hr.Stream:
    return _window().group_by("n").window(hr.tumbling(40)).aggregate(keys=hr.count(), top=hr.max("s"))


def _session() -> hr.Stream:
    return _stream().group_by("k").window(hr.session(5)).aggregate(n=hr.count(), s=hr.sum("v"))


def _join() -> hr.Stream:
    low = _stream().where(col("v") < 25).select(k=col("k"), low=col("v"))
    return _stream().where(col("v") >= 25).join(low, on="k")


def _pattern() -> hr.Stream:
    rise = hr.pattern("A B+", define={"A": col("v") < 20, "B": col("v") > hr.prev("v")}, within=40)
    return _stream().group_by("k").match(rise, first=hr.first("A.v"), n=hr.count())


def _loop() -> hr.Stream:
    links = _stream().select(src=col("v") % 10, dst=col("v") % 7)
    begin = _stream().where(col("k") == "a").select(node=col("v") % 10)
    return hr.recurse(begin, lambda found: found.join(links, on={"node": "src"}).select(node=col("dst")))


def _module() -> hr.Stream:
    return _stream().group_by("k").window(hr.tumbling(30)).aggregate(longest=Longest().of("v"))


def _dates() -> hr.Stream:
    rows = hr.read_csv(
        "dated", "k STRING, ts DATETIME, v LONG", lifetime=hr.point("ts"), progress=hr.advance(delay="20 s")
    )
    return rows.group_by("k").window(hr.tumbling("1 min")).aggregate(n=hr.count(), s=hr.sum("v"))


def _counts() -> hr.Stream:
    return _stream().group_by("k").window(hr.snapshot()).aggregate(n=hr.count(), s=hr.sum("v"))


QUERIES: dict[str, Callable[[], hr.Stream]] = {
    "window": _window,
    "two_levels": _two_levels,
    "session": _session,
    "join": _join,
    "pattern": _pattern,
    "loop": _loop,
    "module": _module,
    "upsert": _counts,
    "dates": _dates,
}


def run(name: str, host: str = "local") -> dict[str, Any]:
    """Answer what is in the current directory, a file for each batch, and return the counts of rows."""
    sink = hr.files(f"out/{name}", encoding="upsert", key="k") if name == "upsert" else hr.files(f"out/{name}")
    options: dict[str, Any] = {"checkpoint": f"state/{name}", "files_per_batch": 1}
    if host != "spark":  # the first versions have no other
        options["host"] = host
    if not Path(f"state/{name}/headrace.json").exists():
        options["buckets"] = 2
    query = QUERIES[name]().start(sink, **options)
    try:
        query.process_all_available()
        return dict(query.counts)
    finally:
        query.stop()
