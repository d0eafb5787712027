"""The demo as people run it: a process of its own, killed Spark and all."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.demo.answers import AnswerFiles
from headrace.cli.demo.trades import DemoFolder

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_demo_survives_its_crash_and_agrees_with_batch(tmp_path: Path):
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "headrace", "demo", "--events", "1000", "--seed", "3", "--keep", str(kept)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    killed = re.search(r"kill -9 of process group \d+, in the middle of batch (\d+)", done.stdout)
    assert killed is not None
    assert f"it knows that batch {int(killed[1]) - 1} was the last one done" in done.stdout
    assert "corrected" in done.stdout
    assert re.search(r"^Equal\.", done.stdout, re.MULTILINE)
    assert AnswerFiles(DemoFolder(kept)).history().num_rows > 0
    assert DemoFolder(kept).diverted() != []
