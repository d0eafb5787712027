"""Ctrl-C ends quietly: no thread is left, no traceback of a thread is printed, and the exit status is 130."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import headrace as hr
from headrace.meter import Work, working

QUERY = """
import headrace as hr
ticks = hr.read_csv("{folder}/*.csv", "k INT, t LONG", lifetime=hr.point("t"))
counts = ticks.group_by("k").window(hr.hopping(1000, every=10)).aggregate(n=hr.count())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several files that take many seconds."""
    folder = tmp_path_factory.mktemp("long")
    rows = "\n".join(f"{n % 97},{n}" for n in range(400_000))
    for i in range(12):
        (folder / f"{i}.csv").write_text(f"k,t\n{rows}\n")
    (folder / "query.py").write_text(QUERY.format(folder=folder))
    return folder


def interrupted_when_reading(work: Work) -> threading.Thread:
    """Ctrl-C for this process, once some rows are read."""

    def wait() -> None:
        while not work.rows:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"threads": 2}, {"threads": 1}, {"batch_rows": 1000}, {"checkpoint": "state"}])
def test_a_run_ends_with_all_its_threads(
    options: dict[str, object], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    ticks = hr.read_csv(f"{folder}/*.csv", "k INT, t LONG", lifetime=hr.point("t"))
    stream = ticks.group_by("k").window(hr.hopping(1000, every=10)).aggregate(n=hr.count())
    before = set(threading.enumerate())
    with working("interrupted") as work:
        killer = interrupted_when_reading(work)
        with pytest.raises(KeyboardInterrupt):
            stream.run(**options)  # type: ignore[arg-type]
        killer.join()
    assert [t.name for t in threading.enumerate() if t not in before and t.name.startswith("headrace")] == []
    assert work.rows < 12 * 400_000


@pytest.mark.slow
def test_the_command_line_says_nothing_and_exits_with_130(folder: Path):
    command = [sys.executable, "-X", "importtime", "-m", "headrace", "run", f"{folder}/query.py:counts"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "headrace.cli.run.live" in line:  # the last import before the query runs
            break
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert out == ""
    assert [line for line in err.splitlines() if not line.startswith("import time:")] == []


def test_the_command_ends_as_quietly_while_it_is_loaded():
    command = [sys.executable, "-X", "importtime", "-c", "from headrace_command import main; main()"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "numpy" in line:  # the package has begun to load
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert (process.returncode, out) == (130, "")
    assert [line for line in err.splitlines() if not line.startswith("import time:")] == []
