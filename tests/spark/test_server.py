"""A server whose queries run on Spark: the same answers, and the checkpoints go on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.wheels import tallies

from headrace.server.core import HeadraceServer
from headrace.server.interface import RowsReply, Who

pytestmark = pytest.mark.spark


def test_queries_of_a_server_run_on_spark(tmp_path: Path, spark: Any):  # noqa: ARG001 - the session that they run in
    for start in range(2):
        with HeadraceServer(tmp_path / "data", host="spark", durable=False) as server:
            client = server.connect(Who("ada", "admin"))
            if start == 0:
                list(client.execute(
                    "CREATE TABLE t (a LONG); CREATE STREAM s (k STRING, x LONG, ts DATETIME) ORDER BY ts;"
                    "QUERY sums AS SELECT k, sum(x) AS total FROM s [TUMBLING 10 s] GROUP BY k;"
                    "CREATE MATERIALIZED VIEW v AS SELECT sum(a) AS total FROM t"
                ))  # fmt: skip
            rows = [{"k": "a", "x": n, "ts": f"2024-01-01T00:0{start}:{n:02d}Z"} for n in (1, 2, 12, 31)]
            assert client.insert("s", rows) == 4
            assert client.insert("t", [{"a": 5}]) == 1
            expected = [[3, 12], [3, 3, 12, 12, 31]][start]
            deadline = time.monotonic() + 60
            while (found := sorted(_column(client, "SELECT total FROM sums"))) != expected:
                assert time.monotonic() < deadline, found
                time.sleep(0.2)
            assert _column(client, "SELECT total FROM v") == [5 * (start + 1)]


def test_workers_get_the_modules_of_a_server(tmp_path: Path, spark: Any):  # noqa: ARG001 - the session that they run in
    """Two versions at once, in workers that run since before, and again after a new start."""
    query = "SELECT tests.tally(tests.weighted(x)) AS total FROM s [TUMBLING 10 s]"
    for start in range(2):
        with HeadraceServer(tmp_path / "data", host="spark", durable=False) as server:
            client = server.connect(Who("ada", "admin"))
            if start == 0:
                list(client.execute("CREATE STREAM s (x LONG, ts DATETIME) ORDER BY ts"))
                client.install_modules(tallies())
                list(client.execute(f"QUERY old AS {query}"))
                client.install_modules(tallies("value * 10", "2.0"))
                list(client.execute(f"QUERY new AS {query}"))
            client.insert("s", [{"x": n, "ts": f"2024-01-01T00:0{start}:{n:02d}Z"} for n in (1, 2, 12, 31)])
            expected = [[3, 12], [3, 3, 12, 12, 31]][start]
            deadline = time.monotonic() + 120
            for name, factor in (("old", 1), ("new", 100)):
                while sorted(found := _column(client, f"SELECT total FROM {name}")) != [factor * n for n in expected]:
                    assert time.monotonic() < deadline, (name, found)
                    time.sleep(0.2)


def _column(client: Any, text: str) -> list[Any]:
    (reply,) = client.execute(text)
    assert isinstance(reply, RowsReply)
    return list(reply.table["total"].to_pylist())
