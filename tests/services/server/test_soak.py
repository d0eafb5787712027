"""Twenty clients at once while the server is killed three times; `make soak-server` is the same for ten minutes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.services.server.soak.run import soak
from tests.services.server.test_postgres import programs

SECONDS = 40


@pytest.mark.timeout(900)
def test_twenty_clients_have_the_same_answers_though_the_server_is_killed(tmp_path: Path):
    report = soak(tmp_path / "soak", programs()[-1], SECONDS, seed=1)
    print(report)  # noqa: T201 - shown when it fails, or with -s
    assert report.clients >= 20
    assert report.kills == 3
    assert all(rows for rows, _ in report.changes.values())
