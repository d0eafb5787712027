"""The store fails at any call, of the driver or of a task, and disks are full: the exact answer, or a typed error.

After an error a new start gives the exact answer. Calls of tasks are counted across Spark's workers, in a file; the
storage that fails travels to them with the job.
"""

from __future__ import annotations

import fcntl
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from tests.recovery.small_run import Run, live
from tests.recovery.test_damage import FILES, answer, counts, forget_workers, write_input
from tests.recovery.test_damage import run as live_with_files

import headrace as hr
from headrace.errors import CheckpointError, SinkError, StoreError
from headrace.host.driving import checkpoint
from headrace.pieces import Data
from headrace.store.storage import LocalStorage

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.slow, pytest.mark.timeout(600)]
register_pickle_by_value(sys.modules[__name__])  # workers need not find this module


@dataclass
class Fault:
    """Which calls fail: the `at`-th of the driver or of the tasks, or that one and all that follow."""

    counter: Path
    driver: int
    of_driver: bool
    at: int
    for_good: bool = False

    def call(self, name: str, key: str) -> None:
        """Count a call, and raise if it is to fail."""
        if (os.getpid() == self.driver) != self.of_driver:
            return
        with self.counter.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(f"{name} {key}\n".encode())
            file.flush()
            number = len(self.counter.read_text().splitlines())
        if number == self.at or (self.for_good and number > self.at):
            raise StoreError(f"the store does not answer: {name} {key}")


class Failing(LocalStorage):
    """A storage whose calls fail."""

    def __init__(self, path: Path, fault: Fault, *, durable: bool = True) -> None:
        super().__init__(path, durable=durable)
        self.fault = fault

    def create(self, key: str, data: Data, *, lasting: bool = True) -> bool:
        self.fault.call("create", key)
        return super().create(key, data, lasting=lasting)

    def read(self, key: str) -> pa.Buffer:
        self.fault.call("read", key)
        return super().read(key)

    def length(self, key: str) -> int:
        self.fault.call("length", key)
        return super().length(key)

    def keys(self, folder: str, after: str = "") -> list[str]:
        self.fault.call("keys", folder)
        return super().keys(folder, after)

    def remove(self, key: str) -> None:
        self.fault.call("remove", key)
        super().remove(key)


class Faults:
    """Makes queries that are started from here on use a storage that fails."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.counter, self.patch = folder / "calls", patch

    def inject(self, *, of_driver: bool, at: int = 0, for_good: bool = False) -> None:
        self.counter.write_bytes(b"")
        fault = Fault(self.counter, os.getpid(), of_driver, at, for_good)
        self.patch.setattr(checkpoint, "LocalStorage", lambda path, durable: Failing(path, fault, durable=durable))

    def end(self) -> list[str]:
        """Inject nothing more; gives the calls that were counted."""
        self.patch.undo()
        return self.counter.read_text().splitlines()


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(tmp_path, monkeypatch)


@pytest.fixture(scope="module", params=[(1, 0), (13, 12)], ids=["from nothing", "after twelve batches"])
def small(request: pytest.FixtureRequest, spark: object, tmp_path_factory: pytest.TempPathFactory) -> Run:  # noqa: ARG001 - it must run
    return Run(tmp_path_factory.mktemp("small"), *request.param)


@pytest.mark.parametrize(
    "which",
    ["one of each kind", pytest.param("the others", marks=pytest.mark.volume("a third of all calls of the same kind"))],
)
def test_any_call_of_the_driver_may_fail(which: str, small: Run, faults: Faults):
    small.begin_again()
    faults.inject(of_driver=True)
    live(small.folder)
    calls = until_idle(faults.end())
    kinds = {re.sub(r"[0-9]+", "N", call): at for at, call in enumerate(calls, 1)}
    assert {kind.split("/")[0] for kind in kinds} >= {"create plans", "create commits", "keys commits"}
    for at, call in enumerate(calls, 1):
        if at not in kinds.values() if which == "one of each kind" else at in kinds.values() or at % 3:
            continue
        small.begin_again()
        faults.inject(of_driver=True, at=at)
        with pytest.raises(StoreError, match="does not answer"):
            live(small.folder)
        faults.end()
        live(small.folder)
        assert small.right(), f"call {at} of {len(calls)}: {call}"


def until_idle(calls: list[str]) -> list[str]:
    """Without the looks of a query that has nothing to do."""
    while len(calls) > 1 and calls[-1] == calls[-2]:
        calls = calls[:-1]
    return calls


@pytest.fixture(scope="module")
def begun(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001 - it must run
    """A query that has files of state, with input that it has not read."""
    folder = tmp_path_factory.mktemp("begun")
    write_input(folder / "in", 0, FILES)
    live_with_files(folder)
    for name in ("state", "out"):
        shutil.copytree(folder / name, folder / "begun" / name)
    write_input(folder / "in", FILES, FILES + 2)
    return folder


@pytest.fixture
def again(begun: Path) -> Path:
    begin_again(begun)
    return begun


def begin_again(folder: Path) -> None:
    forget_workers()
    for name in ("state", "out"):
        shutil.rmtree(folder / name)
        shutil.copytree(folder / "begun" / name, folder / name)


def check_answer(folder: Path, what: str = "") -> None:
    right = counts(folder).run(finish=False).cht()
    assert not hr.history_diff(right, answer(folder), names=("local", "spark")), what


def test_any_call_of_a_task_may_fail_once(again: Path, faults: Faults):
    """Spark runs the task again, and nobody notices.

    How many calls there are depends on which worker runs which task, and so has the state in memory: the first number
    that is not reached ends the test.
    """
    failed: list[str] = []
    while True:
        faults.inject(of_driver=False, at=len(failed) + 1)
        live_with_files(again)
        calls = faults.end()
        if len(calls) <= len(failed):
            break
        failed.append(calls[len(failed)])
        check_answer(again, f"call {len(failed)}: {failed[-1]}")
        begin_again(again)
    assert {call.split()[0] for call in failed} == {"create", "read", "length"}


@pytest.mark.parametrize("at", [1, 5])
def test_calls_of_tasks_may_fail_for_good(at: int, again: Path, faults: Faults):
    faults.inject(of_driver=False, at=at, for_good=True)
    with pytest.raises(StoreError, match="does not answer"):
        live_with_files(again)
    faults.end()
    live_with_files(again)
    check_answer(again)


# --- disks ------------------------------------------------------------------------------------------------------------


def mount(*options: str) -> subprocess.CompletedProcess[str]:
    command = [shutil.which("mount") or "mount", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with little space."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk))
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run([shutil.which("umount") or "umount", "-l", str(disk)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path, tmp_path: Path):
    write_input(tmp_path / "in", 0, FILES)
    for name in ("state", "out"):
        (small_disk / name).mkdir()
        (tmp_path / name).symlink_to(small_disk / name)
    commits = small_disk / "state" / "store" / "commits"
    for _ in range(2):  # and it stays full
        with pytest.raises((CheckpointError, SinkError), match="No space left"):
            live_with_files(tmp_path)
        assert 0 < len(list(commits.iterdir())) < FILES
    assert mount("-o", "remount,size=64m", str(small_disk)).returncode == 0
    live_with_files(tmp_path)
    assert len(list(commits.iterdir())) == FILES
    check_answer(tmp_path)


def limit_workers(size: int) -> None:
    """Let Spark's workers, now and later, write no file larger than this."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            found += [process] if "headrace.host.spark.daemon" in process.cmdline() else []
    assert found
    for process in found:
        with suppress(ProcessLookupError):
            hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, hard))


def test_workers_whose_files_are_cut_off(again: Path):
    """The system lets them write a part of each file and no more: a full disk, as a program sees it."""
    limit_workers(10_000)
    try:
        with pytest.raises((StoreError, SinkError), match="File too large"):
            live_with_files(again)
    finally:
        limit_workers(resource.RLIM_INFINITY)
    live_with_files(again)
    check_answer(again)
