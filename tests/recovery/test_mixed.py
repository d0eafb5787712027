"""Everything at once: restarts, `kill -9`, workers that are lost, changes of the host, rescaling. No answer changes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.recovery.driver import start, write_input
from tests.recovery.test_kill import DRIVER, check, finish

import headrace as hr
from headrace.errors import CheckpointError

SEED = int(os.environ.get("HEADRACE_KILL_SEED", "1"))
FILES, LIVES = 30, 8
#: How many calls that change something on disk a process makes before it dies, and how many batches others make.
CALLS, BATCHES = (40, 160), (1, 3)


def killed(folder: Path, draw: random.Random) -> str:
    """A life in a process of its own, without Java, which `kill -9` ends."""
    calls = draw.randint(*CALLS)
    done = subprocess.run([sys.executable, str(DRIVER), str(folder), "local", str(calls)], timeout=120, check=False)
    assert done.returncode in (0, -9)
    return f"local, killed before call {calls}" if done.returncode else "local, to the end"


def stopped(folder: Path, draw: random.Random, host: str, *, lose_worker: bool = False) -> str:
    """A life in this process, for some batches; on Spark perhaps with a worker that is lost meanwhile."""
    query = start(folder, host)
    try:
        wanted = query.driver.number + draw.randint(*BATCHES)
        if lose_worker:
            wait(query, wanted)
            victim = draw.choice(workers())
            victim.kill()
            wanted += 1
        wait(query, wanted)
    finally:
        query.stop()
    assert query.exception() is None
    return f"{host}, stopped after batch {query.driver.number - 1}" + (", a worker lost" if lose_worker else "")


def wait(query: Any, batch: int) -> None:
    """Until a batch is planned that comes after so many."""
    deadline = time.monotonic() + 60
    while query.driver.number < batch and query.is_active:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def workers() -> list[psutil.Process]:
    """The processes that run tasks: children of Spark's daemon for Python."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            if "headrace.host.spark.daemon" in process.cmdline() and not process.children():
                found.append(process)
    return found


def rescale(folder: Path, draw: random.Random) -> str:
    """Divide the state anew, unless the last batch has not reached its sinks: the next life publishes it first."""
    buckets = draw.randint(2, 4)
    try:
        hr.checkpoint(folder / "state").rescale(buckets)
    except CheckpointError as error:
        assert "the last batch has not reached" in error.message or "no batch is committed yet" in error.message  # noqa: PT017
        return "not rescaled"
    return f"rescaled to {buckets}"


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(1200)
def test_a_life_of_all_sorts_of_trouble_changes_no_answer(tmp_path: Path):
    draw, story = random.Random(SEED), []
    write_input(tmp_path / "in", SEED, FILES)
    for _ in range(LIVES):
        kind = draw.choice(["killed", "local", "spark", "lost worker"])
        if kind == "killed":
            story.append(killed(tmp_path, draw))
        else:
            story.append(
                stopped(tmp_path, draw, "local" if kind == "local" else "spark", lose_worker=kind == "lost worker")
            )
        if (tmp_path / "state" / "headrace.json").exists() and draw.random() < 0.5:
            story.append(rescale(tmp_path, draw))
        assert hr.checkpoint(tmp_path / "state").verify()["problems"] == []
    assert not (tmp_path / "done.json").exists(), story
    finish(tmp_path, "local")
    check(tmp_path, story, FILES)
