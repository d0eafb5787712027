"""A fault at every step of a small run on Spark: afterwards the sinks hold, byte for byte, what they should.

A step is a change of files by the driver's process (`steps.py`): the lock, the claims of the checkpoint and of the
sinks, epochs, plans, commits, publishing, clean-up. What workers do is disturbed in `test_store_faults.py`.

There are two runs: one from nothing, and one that goes on after twelve batches, cleans up old commits and goes on.
`make test` disturbs them where something gets or loses the name that others know it by; `make test-all` at each third
of the steps in between, too.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.recovery.small_run import Run, live
from tests.recovery.steps import Death, Steps, die, disk_full

import headrace as hr
from headrace.errors import CheckpointError, SinkError

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
WHICH = pytest.mark.parametrize(
    "which",
    [
        "where names change",
        pytest.param(
            "elsewhere", marks=pytest.mark.volume("the steps in between: drafts, folders, and more of a kind")
        ),
    ],
)


@pytest.fixture(scope="module")
def steps() -> Steps:
    return Steps()


@pytest.fixture(scope="module", params=[(1, 0), (14, 12)], ids=["from nothing", "after twelve batches"])
def run(request: pytest.FixtureRequest, spark: object, tmp_path_factory: pytest.TempPathFactory) -> Run:  # noqa: ARG001 - it must run
    return Run(tmp_path_factory.mktemp("run"), *request.param)


def counted(steps: Steps, run: Run, *, space: bool = False) -> list[str]:
    """The steps of a run that nothing disturbs."""
    run.begin_again()
    steps.watch(*run.watched, space=space)
    live(run.folder)
    steps.rest()
    assert run.right()
    return steps.seen


def where_names_change(found: list[str]) -> set[int]:
    """Of each kind one step that gives something its lasting name or takes that away, and the step behind it."""
    last = {re.sub(r"[0-9]+", "N", step): at for at, step in enumerate(found) if lasting(step)}
    return {place for at in last.values() for place in (at, at + 1)} & set(range(len(found)))


def lasting(step: str) -> bool:
    call, path = step.split()
    return call in ("os.link", "os.rename", "os.remove") and not {"_staging", ".drafts"} & set(Path(path).parts)


def each(steps: Steps, run: Run, which: str, *, space: bool = False) -> Iterator[tuple[int, str]]:
    """Steps of a run, which begins again with each; gives the number of the step, and what to say of it."""
    found = counted(steps, run, space=space)
    chosen = where_names_change(found)
    assert 10 < len(chosen) < len(found) / 2
    for at, step in enumerate(found):
        if at in chosen if which == "where names change" else at not in chosen and at % 3 == 0:
            run.begin_again()
            yield at, f"step {at} of {len(found)}: {step}"
            steps.rest()


@WHICH
def test_a_driver_that_is_given_up_at_any_step(which: str, run: Run, steps: Steps):
    """The driver is a thread here: from a step on it changes no file, and another one goes on.

    Spark and its workers live, with what they have in memory: that is what a driver's death looks like where Spark is
    another process. The death of everything is in the next test, and in `test_kill.py`.
    """
    for at, step in each(steps, run, which):
        steps.watch(*run.watched, at=at, fault=die)
        with suppress(Death, hr.HeadraceError):
            live(run.folder)
        assert steps.happened, step
        steps.rest()
        live(run.folder)
        assert run.right(), step


def test_a_process_that_is_killed_at_steps(tmp_path: Path):
    """Real deaths, by SIGKILL, one after the other; `test_kill.py` has more of them.

    Spark's JVM ends when it finds that its driver is gone, and may still be at work when the next driver begins.
    """
    run = Run(tmp_path, 2)
    for step in ("counts/batch-00000000", "commits/000000000001"):
        assert drive(tmp_path, step) == -signal.SIGKILL, step
    assert drive(tmp_path) == 0
    assert run.right()


def drive(folder: Path, *step: str) -> int:
    """A life in a process of its own; gives how it ended."""
    command = [sys.executable, "-m", "tests.recovery.small_run", str(folder), *step]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=False).returncode


@WHICH
def test_a_disk_that_is_full_from_any_step_on(which: str, run: Run, steps: Steps):
    """Before a batch is planned, what is left behind is what a death leaves: the test above goes on from there."""
    for at, step in each(steps, run, which, space=True):
        steps.watch(*run.watched, at=at, fault=disk_full, space=True)
        with pytest.raises((CheckpointError, SinkError), match="No space left"):
            live(run.folder)
        assert steps.happened, step
        steps.rest()
        if newest_plan(run.folder) >= run.before:
            live(run.folder)
            assert run.right(), step


def newest_plan(folder: Path) -> int:
    plans = (folder / "state" / "store" / "plans").glob("*")
    return max((int(plan.name) for plan in plans), default=-1)
