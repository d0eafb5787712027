"""Modules of a server that is killed: an install is whole or not there, and queries go on with their versions."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from tests.recovery.test_server import Server
from tests.wheels import tallies

BEFORE = "1.0 current for q, v; 3 3; clean"
AFTER = "1.0 kept for q; 2.0 current for v; 30 3; clean"


@pytest.mark.slow
def test_an_install_that_is_killed_at_any_step_is_whole_or_not_there(tmp_path: Path):
    driver = [sys.executable, "-m", "tests.recovery.install_driver", str(tmp_path)]
    ended = subprocess.run(driver, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    assert lines == [BEFORE] * lines.count(BEFORE) + [AFTER] * lines.count(AFTER)
    assert lines.count(BEFORE) > 30
    assert lines.count(AFTER) >= 2  # killed after it was installed, and not killed


@pytest.mark.slow
def test_queries_of_a_killed_server_go_on_with_their_versions(tmp_path: Path):
    server = Server(tmp_path / "data")
    sums = "SELECT tests.tally(n) AS total FROM numbers"
    try:
        server.sql("CREATE TABLE numbers (n LONG); INSERT INTO numbers VALUES (1), (2)")
        install(server, tallies())
        server.sql(f"CREATE MATERIALIZED VIEW old AS {sums}")
        install(server, tallies("value * 10", "2.0"))
        server.sql(f"CREATE MATERIALIZED VIEW new AS {sums}")
        server.kill()
        server.start()
        server.sql("INSERT INTO numbers VALUES (4)")
        for name, total in (("old", 7), ("new", 70)):
            deadline = time.monotonic() + 60
            while (found := server.rows(f"SELECT total FROM {name}")) != [{"total": total}]:
                assert time.monotonic() < deadline, found
                time.sleep(0.05)
        assert server.rows(sums) == [{"total": 70}]
    finally:
        server.kill()


def install(server: Server, wheel: bytes) -> None:
    reply = httpx.post(f"{server.url}/modules", content=wheel, headers={"content-type": "application/zip"}, timeout=60)
    assert reply.status_code == 200, reply.text
