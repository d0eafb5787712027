"""Queries of a server that share work: what fifty cost beside one, and how long the others wait for one that joins.

All read one stream. 45 are filters over the same window, 5 have windows of their own. A batch is one insert; the time
is that from the insert until all queries have their answers.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measure import Row, Section
from headrace.server.connection import ServerConnection
from headrace.server.core import HeadraceServer
from headrace.server.interface import Who

__all__ = ["measure"]

ROWS, BATCHES, QUERIES, ALIKE = 100_000, 20, 50, 45
_BEGIN, _MINUTE = 1_714_521_600_000_000, 60_000_000
_STREAM = "CREATE STREAM sales (item LONG, amount LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 1 min"


def measure(root: Path, options: argparse.Namespace) -> Section:
    """One query and fifty take turns."""
    section = Section("Queries of a server that share work", beside="")
    seconds: dict[int, list[float]] = {1: [], QUERIES: []}
    pauses = []
    for turn in range(options.rounds):
        for count, found in seconds.items():
            batch, pause = _measured(root / f"{count}-{turn}", count)
            found.append(batch)
            pauses += [pause] if count > 1 else []
    one, many = min(seconds[1]), min(seconds[QUERIES])
    waiting = f"{min(pauses) * 1000:.0f} ms: {min(pauses) / many:.1f} batches"
    section.rows += [
        Row("a batch of 100,000 rows, one query", headrace=f"{one * 1000:.0f} ms"),
        Row(f"the same, {QUERIES} queries", headrace=f"{many * 1000:.0f} ms: {many / one:.1f} ×", goal="3 ×"),
        Row("the others wait for one that joins", headrace=waiting, goal="1 batch"),
    ]
    section.figures |= {"fifty / one": many / one, "pause / batch": min(pauses) / many}
    return section


def _measured(data: Path, count: int) -> tuple[float, float]:
    """Seconds of a batch, and the seconds for which the others wait when the last query joins."""
    with HeadraceServer(data) as server:
        client, random = server.connect(Who("bench", "admin")), np.random.default_rng(0)
        _run(client, _STREAM)
        for number in range(count - 1):
            _run(client, f"QUERY q{number} AS {_query(number)}")
        _insert(client, random, 0)
        _settle(server)
        _join(server)
        _run(client, f"QUERY q{count - 1} AS {_query(count - 1)}")
        _settle(server)
        pause = _join(server)
        assert len(server.runs.runs) == 1
        found = []
        for batch in range(1, BATCHES + 1):
            began = time.perf_counter()
            _insert(client, random, batch)
            _settle(server)
            found.append(time.perf_counter() - began)
        return float(np.median(found)), pause


def _query(number: int) -> str:
    if number < ALIKE:
        window = "SELECT item, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item"
        return f"{window} HAVING sum(amount) > {number}"
    return f"SELECT item, max(amount) AS most FROM sales [TUMBLING {number - ALIKE + 2} min] GROUP BY item"  # noqa: S608 - a number


def _run(client: ServerConnection, text: str) -> None:
    for _ in client.execute(text):
        pass


def _insert(client: ServerConnection, random: np.random.Generator, minute: int) -> None:
    times = np.sort(_BEGIN + minute * _MINUTE + random.integers(0, _MINUTE, ROWS))
    client.insert("sales", pa.table({
        "item": random.integers(0, 100, ROWS), "amount": random.integers(0, 100, ROWS),
        "ts": pa.array(times, pa.timestamp("us", "UTC")),
    }))  # fmt: skip


def _settle(server: HeadraceServer) -> None:
    for served in list(server.objects.values()):
        if served.query is not None:
            served.query.process_all_available()


def _join(server: HeadraceServer) -> float:
    """Bring the queries together; the seconds that it takes."""
    began = time.perf_counter()
    while len(server.runs.runs) > 1:
        server.runs.look()
    return time.perf_counter() - began
