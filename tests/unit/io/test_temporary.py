"""Temporary directories of killed processes are removed by later ones, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.io.temporary import TemporaryFolder, log_file, remove_leftovers

LATER = time.time() + 3600


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_folder_goes_at_the_end(place: Path):
    with TemporaryFolder("kind") as name:
        assert Path(name).name.startswith(f"headrace-kind-{os.getpid()}-")
        Path(name, "file").write_text("x")
        assert remove_leftovers(now=LATER) == []
    assert list(place.iterdir()) == []


@pytest.mark.slow
def test_what_a_killed_process_has_left_is_removed(place: Path):
    code = "from headrace.io.temporary import TemporaryFolder, log_file; import os\n"
    code += "TemporaryFolder(); TemporaryFolder('table'); log_file('spark'); os._exit(9)"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(place)}, check=False)
    assert len(list(place.iterdir())) == 3
    assert remove_leftovers(now=time.time()) == [], "they are too young"
    assert len(remove_leftovers(now=LATER)) == 2
    (log,) = place.iterdir()
    assert log.suffix == ".log"
    assert remove_leftovers(now=LATER + 8 * 86_400) == [log]


def test_what_may_be_in_use_stays(place: Path):
    """By another container, where its process has a number that is free here; or not made by this module."""
    process = ended_process()
    own = TemporaryFolder()
    held = place / f"headrace-{process}-abc"
    Path(own.name).rename(held)  # as of another process: its lock is held
    for name in (f"headrace-demo-{process}", "headrace-x", f"other-{process}-abc"):
        (place / name).mkdir()
    (place / f"headrace-{process}-link").symlink_to(held)
    (place / f"headrace-{os.getppid()}-abc").mkdir()
    assert remove_leftovers(now=LATER) == []
    own.cleanup()
    assert remove_leftovers(now=LATER) == [held]


def test_a_log_is_a_new_file(place: Path):
    assert log_file("spark") != log_file("spark")
    assert len(list(place.glob(f"headrace-spark-{os.getpid()}-*.log"))) == 2
