"""The client and HTTP with the real server: what subscribers fold is the history, also when the server starts again."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.fixtures.waiting import PATIENCE

import headrace as hr
from headrace.errors import AccessError, SqlError, SubscriptionError
from headrace.server.client import Client
from headrace.server.core import HeadraceServer
from headrace.server.http import HttpServer, HttpSettings

SCRIPT = """
CREATE STREAM trades (ts DATETIME, symbol STRING, price DOUBLE) ORDER BY ts WITH PROGRESS ADVANCE 30 s;
CREATE STREAM hot AS SELECT symbol, count(*) AS n, max(price) AS high FROM trades [TUMBLING 10 s] GROUP BY symbol;
CREATE TABLE symbols (symbol STRING PRIMARY KEY, name STRING)
"""


def folded(batches: list[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    """The history that physical events amount to."""
    held: dict[tuple[Any, ...], int] = {}
    for row in (row for batch in batches for row in batch.to_pylist()):
        kind, le, re, new, *payload = row.values()
        if kind == "cti":
            continue
        changes = [(re, 1)] if kind == "insert" else [(re, -1), *([(new, 1)] if new is None or new > le else [])]
        for end, weight in changes:
            held[le, end, *payload] = held.get((le, end, *payload), 0) + weight
    assert set(held.values()) <= {0, 1}
    return sorted((row for row, weight in held.items() if weight), key=str)


class Reader(threading.Thread):
    """Reads a subscription until a CTI, across restarts."""

    def __init__(self, client: Client, until: int) -> None:
        super().__init__(daemon=True)
        self.subscriber, self.until = client["hot"].subscribe(rows=3), until
        self.batches: list[pa.RecordBatch] = []

    def run(self) -> None:
        for batch in self.subscriber:
            self.batches.append(batch)
            if self.subscriber.cti is not None and self.subscriber.cti >= self.until:
                return


def test_subscribers_fold_to_the_history_across_restarts(tmp_path: Path):
    numbers = random.Random(7)
    start = 1_704_067_200
    settings = HttpSettings(heartbeat=0.1)
    server = HeadraceServer(tmp_path, durable=False)
    server.start()
    http = HttpServer(server, port=0, settings=settings)
    http.start()
    client = hr.connect(http.url)
    client.sql(SCRIPT)
    readers = []
    for step in range(6):
        if step in (0, 3):
            readers.append(Reader(client, (start + 50) * 1_000_000))
            readers[-1].start()
        rows = [
            {"ts": f"2024-01-01T00:00:{step * 8 + numbers.randrange(12):02d}", "symbol": symbol, "price": 1.0 * step}
            for symbol in "AB"
        ]
        assert client["trades"].insert(rows, key=f"step {step}") == 2
        if step in (1, 4):
            http.stop()
            server.stop()
            server = HeadraceServer(tmp_path, durable=False)
            server.start()
            http = HttpServer(server, port=http.port, settings=settings)
            http.start()
            assert client["trades"].insert(rows, key=f"step {step}") == 2
    client["trades"].insert({"ts": "2024-01-01T00:02:00", "symbol": "A", "price": 0.0})
    for reader in readers:
        reader.join(PATIENCE)
        assert not reader.is_alive()
    wanted = sorted((tuple(row.values()) for row in client["hot"].cht().to_pylist()), key=str)
    assert sum(row[3] for row in wanted) == 12, "each row once"
    for reader in readers:
        assert folded(reader.batches) == wanted
    client.close()
    http.stop()
    server.stop()


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with HeadraceServer(tmp_path, durable=False) as found:
        yield found


def test_tables_statements_and_errors(server: HeadraceServer):
    with HttpServer(server, port=0) as http, hr.connect(http.url) as client:
        client.sql(SCRIPT)
        symbols = client["symbols"]
        assert symbols.insert([{"symbol": "A", "name": "Aa"}, {"symbol": "B", "name": "Bb"}]) == 2
        assert client.sql("SELECT name FROM symbols WHERE symbol = 'B'").to_pylist() == [{"name": "Bb"}]
        assert symbols.to_pandas()["name"].tolist() == ["Aa", "Bb"]
        batches = iter(symbols.subscribe(form="upsert", key=["symbol"]))
        assert sorted(next(batches).column("name").to_pylist()) == ["Aa", "Bb"]
        client.sql("UPDATE symbols SET name = 'Cc' WHERE symbol = 'A'")
        assert next(batches).column("name").to_pylist() == ["Cc"]
        batches.close()  # type: ignore[attr-defined]
        with pytest.raises(SqlError) as caught:
            client.sql("SELECT *\nFROM symbls")
        assert (caught.value.line, caught.value.instead) == (2, "symbols")
        with pytest.raises(SubscriptionError):
            next(iter(client["hot"].subscribe(cursor="1.999")))
        assert [row["query"] for row in client.sql("SHOW QUERIES").to_pylist()] == ["hot"]


def test_roles_hold_over_http(server: HeadraceServer):
    token = server.access.tokens.create("a", "reader")
    with HttpServer(server, port=0) as http, hr.connect(http.url) as local, hr.connect(http.url, token) as client:
        local.sql(SCRIPT)
        assert client.sql("SHOW STREAMS").num_rows > 0
        for text in ("DROP TABLE symbols", "CREATE SECRET s AS 'x'", "QUERY q AS SELECT * FROM hot"):
            with pytest.raises(AccessError):
                client.sql(text)
        with pytest.raises(AccessError):
            client["symbols"].insert({"symbol": "A"})
        server.access.tokens.revoke("a")
        with pytest.raises(AccessError, match="revoked"):
            client.sql("SHOW STREAMS")


def test_twenty_subscribers_see_an_insert(server: HeadraceServer):
    with HttpServer(server, port=0) as http, hr.connect(http.url) as client:
        client.sql(SCRIPT)
        client["symbols"].insert({"symbol": "A", "name": "Aa"})
        seen: list[float] = []

        def read() -> None:
            batches = iter(client["symbols"].subscribe())
            next(batches)
            ready.release()
            next(batches)
            seen.append(time.monotonic())

        ready = threading.Semaphore(0)
        threads = [threading.Thread(target=read, daemon=True) for _ in range(20)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert ready.acquire(timeout=PATIENCE)
        client["symbols"].insert({"symbol": "B", "name": "Bb"})
        for thread in threads:
            thread.join(PATIENCE)
        assert len(seen) == len(threads)
