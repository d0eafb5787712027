"""Kill the whole process at any moment, start it again: the output holds the expected history, no more and no less.

On Spark, a driver waits at a moment between the steps of a batch, where it is killed: when it has claimed the query,
when a batch is planned, when rows have been staged, between two trips round a loop, when the batch is committed and
when it is published; and at a random step. In process there is one file system call after the other, and the process
dies before any of them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import headrace as hr
from headrace.events import history, to_changes
from headrace.io.commit import BatchDirectory
from headrace.io.sinks import read_events_output
from headrace.testing import check_output

DRIVER = Path(__file__).with_name("driver.py")
SEED = int(os.environ.get("HEADRACE_KILL_SEED", "1"))
#: What a driver is killed at, one life after the other; the last one lives.
SOME = ("staged", "circulating", "published")
OTHERS = ("claimed", "planned", "committed", "any")
PATIENCE = 300.0


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


driver = load(DRIVER)


def commits(folder: Path) -> int:
    return len(list(folder.glob("state/store/commits/*")))


def wait_for(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> bool:
    """Wait until `ready`; false if the process ended before."""
    deadline = time.monotonic() + PATIENCE
    while not ready():
        if process.poll() is not None:
            return False
        assert time.monotonic() < deadline, "the driver does not move"
        time.sleep(0.01)
    return True


def lives(folder: Path, moments: tuple[str, ...], draw: random.Random) -> Iterator[str]:
    """Start drivers, which wait at a moment each, and kill them there; gives the moments."""
    for moment in moments:
        held, before = folder / "held", commits(folder)
        held.unlink(missing_ok=True)
        with (folder / "driver.log").open("ab") as log:
            times = str(draw.randint(1, driver.TIMES[moment]))
            command = [sys.executable, str(DRIVER), str(folder), "spark", moment, times]
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            reached = wait_for(process, held.exists)
            assert reached, (folder / "driver.log").read_text(errors="replace")[-3000:]
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        yield f"{moment}, at {held.read_text()}, after {commits(folder) - before} batches"


def outputs(folder: Path) -> dict[Path, int]:
    """The files of the sinks, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("out/*/batch-*/*")}


def finish(folder: Path, host: str) -> None:
    """One more life, to the end; what was committed before is never touched again."""
    before = outputs(folder)
    command = [sys.executable, str(DRIVER), str(folder), host]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    assert {path: path.stat().st_mtime_ns for path in before} == before


def check(folder: Path, deaths: list[str], files: int = driver.FILES) -> None:
    """Every sink has what an undisturbed run gives, no more and no less."""
    streams = driver.queries(folder)
    right = hr.run(streams)
    for name, stream in streams.items():
        out = BatchDirectory(str(folder / "out" / name))
        assert out.committed() == sorted(set(out.committed()))
        if name != "reached":  # a loop has batches of its own; the others answer one file, or the end of all, in each
            assert len(out.committed()) <= files + 1, "a batch is never given two numbers"
        events = read_events_output(str(folder / "out" / name), stream.schema)
        check_output(events)
        diff = hr.history_diff(right.cht(name), history(to_changes(events, stream.schema)), names=("expected", "found"))
        assert not diff, f"{diff}\n{deaths}"
        assert not list((folder / "out" / name / "_staging").iterdir())
    assert list(json.loads((folder / "done.json").read_text()).values()) == list(right.counts.values())


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "moments",
    [
        SOME,
        pytest.param(OTHERS, marks=pytest.mark.volume("moments at which test_every_step.py ends a driver in process")),
    ],
    ids=["some", "others"],
)
def test_a_driver_killed_at_any_moment_loses_and_repeats_nothing(moments: tuple[str, ...], tmp_path: Path):
    driver.write_input(tmp_path / "in", SEED)
    deaths = list(lives(tmp_path, moments, random.Random(SEED)))
    assert len(deaths) == len(moments)
    assert outputs(tmp_path), deaths
    finish(tmp_path, "spark")
    check(tmp_path, deaths)


LIVES = 8
#: How many calls that change something on disk a driver makes before it dies: an undisturbed one makes about 1,000.
CALLS = (10, 150)


def test_a_query_in_process_killed_before_any_call_loses_and_repeats_nothing(tmp_path: Path):
    driver.write_input(tmp_path / "in", SEED)
    draw, deaths = random.Random(SEED), []
    for _ in range(LIVES):
        calls = draw.randint(*CALLS)
        command = [sys.executable, str(DRIVER), str(tmp_path), "local", str(calls)]
        died = subprocess.run(command, capture_output=True, timeout=300, check=False)
        assert died.returncode == -signal.SIGKILL, died.stderr.decode(errors="replace")[-3000:]
        deaths.append(
            f"call {calls}, at {max((p.name for p in tmp_path.glob('state/store/commits/*')), default='none')}"
        )
    finish(tmp_path, "local")
    check(tmp_path, deaths)
