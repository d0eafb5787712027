"""A server: how soon it starts, how many small inserts it takes, how soon subscribers see updates.

Inserts are of one row each, by connections in threads of the server's process; a row counts when it is on disk. Updates
are rows inserted into a stream, each of which is an answer that fifty subscribers follow by HTTP; the latency of an
update is the time from the insert to the moment a subscriber has it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import headrace as hr
from benchmarks.measure import Row, Section
from headrace.server.client import Client
from headrace.server.core import HeadraceServer
from headrace.server.interface import Who

__all__ = ["measure"]

Figure = tuple[str, float, str, str]
SUBSCRIBERS, UPDATES, SECONDS = 50, 100, 10.0


def measure(root: Path, options: argparse.Namespace) -> Section:
    """Measure all three."""
    del options
    section = Section("A server", beside="")
    figures = [*_starts(root / "starts"), *_inserts(root / "inserts"), *_updates(root / "updates")]
    for name, value, unit, goal in figures:
        shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        section.rows.append(Row(name, headrace=f"{shown} {unit}", goal=goal))
        section.figures[name] = value
    return section


class _Server:
    def __init__(self, data: Path) -> None:
        began = time.monotonic()
        arguments = [sys.executable, "-m", "headrace", "serve", "--data", str(data), "--port", "0", "--no-postgres"]
        self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        found = None
        while found is None:
            found = re.search(r"http://\S+", self._process.stdout.readline())
        self.url, self.seconds = found[0], time.monotonic() - began

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _starts(data: Path) -> list[Figure]:
    found = []
    for _ in range(3):
        server = _Server(data)
        found.append(server.seconds)
        with hr.connect(server.url) as client:
            client.sql("SHOW STREAMS")
        server.stop()
    return [("start, with an empty catalog", min(found), "s", "2")]


def _inserts(data: Path) -> list[Figure]:
    rows: list[Figure] = []
    with HeadraceServer(data) as server:
        clients = [server.connect(Who("bench", "admin")) for _ in range(16)]
        list(clients[0].execute("CREATE STREAM s (a LONG, b STRING)"))
        count = [0] * len(clients)
        until = time.monotonic() + SECONDS

        def insert(number: int) -> None:
            while time.monotonic() < until:
                clients[number].insert("s", [{"a": count[number], "b": "x"}])
                count[number] += 1

        with ThreadPoolExecutor(len(clients)) as threads:
            list(threads.map(insert, range(len(clients))))
        rows.append(("inserts in process, one row each, 16 clients", sum(count) / SECONDS, "per s", "10,000"))
    return rows


class _Followers:
    """Subscribers in threads, and when each of them has an update."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.sent: dict[int, float] = {}
        self.late: list[float] = []
        self.stopping = threading.Event()
        self.ready = threading.Barrier(SUBSCRIBERS + 1)

    def follow(self, _: int) -> None:
        """Follow the answers; the first one says that the subscription is there."""
        for batch in hr.connect(self._url)["q"].subscribe():
            now = time.monotonic()
            numbers = [n for n in batch["n"].to_pylist() if n is not None]
            if -1 in numbers:
                self.ready.wait()
            self.late += [now - self.sent[n] for n in numbers if n >= 0]
            if self.stopping.is_set():
                return


def _updates(data: Path) -> list[Figure]:
    server = _Server(data)
    followers = _Followers(server.url)
    try:
        client = hr.connect(server.url)
        client.sql("CREATE STREAM s (n LONG); QUERY q AS SELECT n FROM s")
        with ThreadPoolExecutor(SUBSCRIBERS) as threads:
            running = [threads.submit(followers.follow, number) for number in range(SUBSCRIBERS)]
            client["s"].insert([{"n": -1}])
            followers.ready.wait()
            count = _insert_steadily(client, followers.sent)
            time.sleep(1)
            followers.stopping.set()
            client["s"].insert([{"n": -2}])
            for one in running:
                one.result()
    finally:
        server.stop()
    late = followers.late
    assert len(late) == count * SUBSCRIBERS, (len(late), count)
    return [
        (f"updates to {SUBSCRIBERS} subscribers, in total", len(late) / SECONDS, "per s", "5,000"),
        ("their latency, p50", 1000 * float(np.quantile(late, 0.5)), "ms", ""),
        ("their latency, p99", 1000 * float(np.quantile(late, 0.99)), "ms", "200"),
    ]


def _insert_steadily(client: Client, sent: dict[int, float]) -> int:
    """Insert so many rows a second; return how many."""
    began, count = time.monotonic(), 0
    while (passed := time.monotonic() - began) < SECONDS:
        numbers = range(count, int(passed * UPDATES))
        if numbers:
            sent |= dict.fromkeys(numbers, time.monotonic())
            client["s"].insert([{"n": n} for n in numbers])
            count = numbers.stop
        time.sleep(0.005)
    return count
