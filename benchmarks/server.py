"""A server: how soon it starts, how many small inserts it takes, how soon subscribers see updates.

Inserts are of one row each, and count when they are acknowledged, that is on disk: by threads of the server's process;
by requests of HTTP, each after the reply to the one before; and as lines of HTTP, of which many are on their way, each
acknowledged by a line. Updates are rows inserted into a stream, each of which is an answer that fifty subscribers
follow by HTTP; the latency of an update is the time from the insert to the moment a subscriber has its bytes. Clients
are raw sockets in a process of their own (`server_clients.py`), so that they take little from the server.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

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
        self.port = urlsplit(self.url).port

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
        clients = [server.connect(Who("bench", "admin")) for _ in range(64)]
        list(clients[0].execute("CREATE STREAM s (a LONG, b STRING)"))
        count = [0] * len(clients)
        until = time.monotonic() + SECONDS

        def insert(number: int) -> None:
            while time.monotonic() < until:
                clients[number].insert("s", [{"a": count[number], "b": "x"}])
                count[number] += 1

        with ThreadPoolExecutor(len(clients)) as threads:
            list(threads.map(insert, range(len(clients))))
        rows.append(("inserts of one row, 64 threads in process", sum(count) / SECONDS, "per s", "10,000"))
    served = _Server(data)
    try:
        for name, kind, connections in (
            ("inserts of one row, requests of 64 connections", "requests", 64),
            ("inserts of one row, lines of 4 connections", "lines", 4),
        ):
            with _clients(kind, served, connections) as process:
                assert process.stdout is not None
                rows.append((name, json.loads(process.stdout.readline()), "per s", "10,000"))
    finally:
        served.stop()
    return rows


@contextmanager
def _clients(kind: str, server: _Server, connections: int) -> Iterator[subprocess.Popen[str]]:
    arguments = [kind, str(server.port), str(connections), str(int(SECONDS) + 2 * (kind == "follow"))]
    command = [sys.executable, "-m", "benchmarks.server_clients", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process


def _updates(data: Path) -> list[Figure]:
    server = _Server(data)
    try:
        client = hr.connect(server.url)
        client.sql("CREATE STREAM s (at LONG); QUERY q AS SELECT at FROM s")
        client["s"].insert([{"at": 0}])
        with _clients("follow", server, SUBSCRIBERS) as followers:
            assert followers.stdout is not None
            assert followers.stdout.readline() == "ready\n"
            count = _insert_steadily(client)
            late = json.loads(followers.stdout.readline())
    finally:
        server.stop()
    assert len(late) == count * SUBSCRIBERS, (len(late), count)
    return [
        (f"updates to {SUBSCRIBERS} subscribers, in total", len(late) / SECONDS, "per s", "5,000"),
        ("their latency, p50", 1000 * float(np.quantile(late, 0.5)), "ms", ""),
        ("their latency, p99", 1000 * float(np.quantile(late, 0.99)), "ms", "200"),
    ]


def _insert_steadily(client: Client) -> int:
    """Insert so many rows a second, each with the time in microseconds; return how many."""
    began, count = time.monotonic(), 0
    while (passed := time.monotonic() - began) < SECONDS:
        due = int(passed * UPDATES) + 1 - count
        if due > 0:
            client["s"].insert([{"at": int(time.monotonic() * 1e6)}] * due)
            count += due
        time.sleep(0.002)
    return count
