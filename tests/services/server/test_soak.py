"""Twenty clients at once while the server is killed three times; `make soak-server` is the same for ten minutes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 40


@pytest.mark.timeout(900)
def test_twenty_clients_have_the_same_answers_though_the_server_is_killed(tmp_path: Path):
    folder = tmp_path / "soak"
    arguments = ["--seconds", str(SECONDS), "--seed", "1", "--folder", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.services.server.soak", *arguments],
        cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False,
    )  # fmt: skip
    log = folder / "server.log"
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log.read_text()[-5000:] if log.exists() else ''}"
    assert "22 clients" in done.stdout
    assert "3 kills" in done.stdout
