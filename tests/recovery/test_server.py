"""A server killed at any moment: what was acknowledged is there once, and every subscriber's changes add up."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.fixtures.waiting import PATIENCE, until

from headrace.events import events_table, history, to_changes
from headrace.schema import Schema

SCRIPT = """
CREATE STREAM readings (sensor STRING, reading LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 1 h;
QUERY sums AS SELECT sensor, sum(reading) AS total, count(*) AS n FROM readings [TUMBLING 10 s] GROUP BY sensor;
CREATE STREAM large AS SELECT sensor, total FROM sums WHERE total > 20;
CREATE TABLE sensors (sensor STRING PRIMARY KEY, place STRING);
CREATE MATERIALIZED VIEW places AS SELECT place, count(*) AS sensors FROM sensors GROUP BY place;
"""


class Server:
    """The server as a process of its own."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "serve", "--data", str(self._data), "--port", "0", "--no-postgres",
             "--root", str(self._data.parent / "files")],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        found = None
        while found is None:
            line = self.process.stdout.readline()
            assert line, f"the server ended with {self.process.wait()}"
            found = re.search(r"http://[^\s/]+", line)
        self.url = found[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def sql(self, text: str) -> list[dict[str, Any]]:
        reply = httpx.post(f"{self.url}/sql", json={"sql": text}, timeout=PATIENCE)
        assert reply.status_code == 200, reply.text
        return list(reply.json()["replies"])

    def rows(self, text: str) -> list[dict[str, Any]]:
        return list(self.sql(text)[0]["rows"])


class Writer(threading.Thread):
    """Inserts rows, each insert under a key of its own, again and again until it is acknowledged."""

    def __init__(self, server: Server, seed: int) -> None:
        super().__init__(daemon=True)
        self._server, self._random, self.stopping = server, random.Random(seed), False
        self.rows: list[dict[str, Any]] = []

    def run(self) -> None:
        number = 0
        while not self.stopping:
            seconds = 10 * (number // 20) + self._random.randrange(30)  # late rows correct earlier windows
            row = {"sensor": self._random.choice("abc"), "reading": self._random.randrange(9)}
            row["ts"] = f"2024-01-01T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}Z"
            self._put(f"{number}", row)
            self.rows.append(row)
            number += 1

    def _put(self, key: str, row: dict[str, Any]) -> None:
        while True:
            try:
                reply = httpx.post(
                    f"{self._server.url}/streams/readings/rows",
                    json=[row],
                    headers={"Idempotency-Key": key},
                    timeout=10,
                )
            except httpx.HTTPError:
                time.sleep(0.02)
                continue
            if reply.status_code == 503:
                time.sleep(0.02)
                continue
            assert reply.status_code == 200, reply.text
            return


def expected(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    sums: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        sums.setdefault((row["sensor"], row["ts"][:18]), []).append(row["reading"])
    return sorted((sensor, sum(values), len(values)) for (sensor, _), values in sums.items())


@pytest.mark.slow
def test_a_server_killed_at_any_moment_loses_and_repeats_nothing(tmp_path: Path):
    server = Server(tmp_path / "data")
    try:
        server.sql(SCRIPT)
        server.sql("INSERT INTO sensors VALUES ('a', 'attic'), ('b', 'cellar'), ('c', 'attic')")
        writer = Writer(server, seed=7)
        writer.start()
        moments = random.Random(11)
        events: list[dict[str, Any]] = []
        cursor = None
        for _ in range(3):
            events, cursor = _followed(server, events, cursor, until=time.monotonic() + 0.5 + moments.random())
            server.kill()
            server.start()
        known = len(writer.rows)
        until(lambda: len(writer.rows) > known + 20)
        writer.stopping = True
        writer.join(PATIENCE)
        assert not writer.is_alive()
        far = {"sensor": "z", "reading": 1, "ts": "2024-01-02T00:00:00Z"}  # promises that nothing changes any more
        rows = [far, far | {"ts": "2024-01-02T01:00:00Z"}]
        reply = httpx.post(f"{server.url}/streams/readings/rows", json=rows, timeout=PATIENCE)
        assert reply.status_code == 200, reply.text
        wanted = expected(writer.rows)
        until(lambda: _sums(server) == wanted, lambda: (_sums(server), wanted))

        def is_followed() -> bool:
            nonlocal events, cursor
            events, cursor = _followed(server, events, cursor, until=time.monotonic() + 1)
            return _folded(events) == wanted

        until(is_followed, lambda: (_folded(events), wanted))
        large = sorted((sensor, total) for sensor, total, _ in wanted if total > 20)
        until(lambda: _large(server) == large, lambda: (_large(server), large))
        places = [{"place": "attic", "sensors": 2}, {"place": "cellar", "sensors": 1}]
        until(lambda: server.rows("SELECT * FROM places ORDER BY place") == places)
        assert server.stop() == 0
    finally:
        server.kill()


def _sums(server: Server) -> list[tuple[str, int, int]]:
    rows = server.rows("SELECT sensor, total, n FROM sums")
    return sorted((row["sensor"], row["total"], row["n"]) for row in rows if row["sensor"] != "z")


def _folded(events: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """The sums that a subscriber's events add up to."""
    schema = Schema.of("sensor STRING, total LONG, n LONG")
    rows = history(to_changes(events_table(events, schema), schema)).select(schema.names).to_pylist()
    return sorted((row["sensor"], row["total"], row["n"]) for row in rows if row["sensor"] != "z")


def _large(server: Server) -> list[tuple[str, int]]:
    return sorted((row["sensor"], row["total"]) for row in server.rows("SELECT sensor, total FROM large"))


def _followed(
    server: Server, events: list[dict[str, Any]], cursor: str | None, until: float
) -> tuple[list[dict[str, Any]], str | None]:
    """The events of a subscription up to a moment, and its cursor."""
    events = [] if cursor is None else list(events)  # a snapshot is whole or begins again
    parameters = {} if cursor is None else {"cursor": cursor}
    begun: list[dict[str, Any]] = []
    with (
        contextlib.suppress(httpx.HTTPError),
        httpx.stream(
            "GET", f"{server.url}/subscribe/sums", params=parameters, timeout=httpx.Timeout(PATIENCE, read=2)
        ) as reply,
    ):
        assert reply.status_code == 200
        named = None
        for line in reply.iter_lines():
            if line.startswith("id:"):
                named = line.removeprefix("id:").strip()
            elif line.startswith("data:"):
                begun += json.loads(line.removeprefix("data:"))["rows"]
            elif not line and named:
                events, begun, cursor, named = events + begun, [], named, None
            if time.monotonic() > until:
                break
    return events, cursor


@pytest.mark.slow
def test_a_killed_server_leaves_no_process_behind(tmp_path: Path):
    (tmp_path / "files").mkdir()
    pipe = tmp_path / "files" / "pipe.csv"
    pipe.write_text("k,ts\n1,2\n")
    server = Server(tmp_path / "data")
    try:
        server.sql(f"CREATE STREAM slow (k LONG, ts LONG) SOURCE FILE ('{pipe}', ',')")
        pipe.unlink()
        os.mkfifo(pipe)  # nobody writes into it: a SELECT waits for ever

        def ask() -> None:
            with contextlib.suppress(httpx.HTTPError):
                httpx.post(f"{server.url}/sql", json={"sql": "SELECT * FROM slow"}, timeout=120)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        _wait_for(lambda: len(_below(server.process.pid)) == 2)  # one that forks, and one that reads the pipe
        left = _below(server.process.pid)
        server.kill()
        _wait_for(lambda: not any(map(_lives, left)))
        asking.join(120)
        assert not asking.is_alive()
    finally:
        server.kill()


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _below(process: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    found = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, file.read_text().split()):
            found += [child, *_below(child)]
    return found


def _lives(process: int) -> bool:
    """Whether there is such a process; one that has ended may still be listed, without a command."""
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except OSError:
        return False
