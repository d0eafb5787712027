"""Workers and executors that are killed in the middle of a batch, between its stages; tasks that run twice.

The tasks wait at a gate in the second of three stages (`gate.py`), so each kill is known to hit the stage it is meant
for: what the stages before gave is there, and nothing of the batch is committed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from tests.recovery.gate import attempts, check_levels, close, gated, let_pass, wait_until, write_input

import headrace as hr
from headrace.events import history, to_changes
from headrace.io.sinks import read_events_output
from headrace.store.log import DATA, Log, number_of
from headrace.store.storage import LocalStorage

ROOT = Path(__file__).parents[2]
FILES = 5  # the last batch cleans up


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_input(tmp_path / "all", FILES)
    for name in ("in", "gates"):
        (tmp_path / name).mkdir()
    bring(tmp_path, 0)
    return tmp_path


def bring(folder: Path, number: int) -> None:
    shutil.copy2(sorted((folder / "all").iterdir())[number], folder / "in")


def commits(folder: Path) -> int:
    return len(list((folder / "state" / "store" / "commits").glob("*")))


def litter(folder: Path) -> list[str]:
    """Files of the store which no commit names."""
    log = Log(LocalStorage(folder / "state" / "store"))
    named = {file for batch in log.batches() for file in log.read(batch).files}
    return [key for key in log.storage.keys(DATA) if key not in named]


def written(folder: Path, name: str) -> pa.Table:
    schema = gated(folder)[name].schema
    return history(to_changes(read_events_output(str(folder / "out" / name), schema), schema))


def check_answers(folder: Path) -> None:
    """What the sinks have is what a run in this process gives."""
    right = hr.run(gated(folder), finish=False)
    for name in gated(folder):
        assert not hr.history_diff(right.cht(name), written(folder, name), names=("local", "spark")), name


@pytest.mark.usefixtures("spark")
def test_a_worker_killed_in_the_middle_stage(folder: Path):
    sinks = [(stream, hr.files(str(folder / "out" / name))) for name, stream in gated(folder).items()]
    query = hr.start_all(sinks, checkpoint=str(folder / "state"), files_per_batch=1, buckets=2)
    try:
        check_levels(query)
        query.process_all_available()
        close(folder, "middle")
        bring(folder, 1)
        wait_until(lambda: attempts(folder, "middle", 0) and attempts(folder, "middle", 1), "both tasks of the stage")
        assert commits(folder) == 1
        worker = psutil.Process(attempts(folder, "middle", 0)[0]["worker"])
        assert "headrace.host.spark.daemon" in worker.cmdline()
        worker.kill()
        wait_until(lambda: len(attempts(folder, "middle", 0)) == 2, "a second attempt")
        assert commits(folder) == 1
        let_pass(folder, "middle", 1)
        query.process_all_available()
        assert len(attempts(folder, "middle", 1)) == 1, "the other task was not disturbed"
        for number in range(2, FILES):
            bring(folder, number)
        query.process_all_available()
    finally:
        query.stop()
    assert commits(folder) == FILES
    check_answers(folder)


@pytest.fixture
def cluster(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A query in a cluster, in a process of its own."""
    command = [sys.executable, "-m", "tests.recovery.cluster_driver", str(folder)]
    with (folder / "driver.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    yield process
    for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []:
        child.kill()
    process.kill()
    process.wait()


@pytest.mark.timeout(1200)
@pytest.mark.spark
@pytest.mark.slow
def test_an_executor_killed_between_stages_and_a_task_that_goes_on_after_the_commit(
    folder: Path, cluster: subprocess.Popen[bytes]
):
    """Two executors with one core each run the two tasks of the middle stage; one is killed, with what it has shuffled.

    Spark computes what is lost once more, and runs the whole middle stage again. So the task on the other executor,
    which still waits, runs twice. When the batch is committed and published it goes on, and writes its state.
    """

    def answered(turn: int) -> bool:
        assert cluster.poll() is None, (folder / "driver.log").read_text(errors="replace")[-3000:]
        return (folder / f"answered-{turn}").exists()

    # The processes of a cluster start, and compile their loops if nobody has yet.
    wait_until(lambda: answered(1), "the first batch", patience=240)
    close(folder, "middle")
    close(folder, "first")
    for bucket in range(2):
        let_pass(folder, "first", bucket)
    bring(folder, 1)
    (folder / "more-1").touch()
    wait_until(lambda: attempts(folder, "middle", 0) and attempts(folder, "middle", 1), "both tasks of the stage")
    dies, lives = attempts(folder, "middle", 0)[0], attempts(folder, "middle", 1)[0]
    assert dies["executor"] != lives["executor"]
    assert (len(attempts(folder, "first")), commits(folder)) == (2, 1)

    assert "CoarseGrainedExecutorBackend" in " ".join(psutil.Process(dies["executor"]).cmdline())
    os.kill(dies["executor"], signal.SIGKILL)
    wait_until(lambda: answered(2), "the batch")
    assert commits(folder) == 2
    assert len(attempts(folder, "first")) > 2, "the stage before was computed again, in part"
    assert len(attempts(folder, "middle", 1)) == 2, "the task that was not killed has run twice"

    before = litter(folder)
    assert psutil.pid_exists(lives["worker"])
    let_pass(folder, "middle", 1)
    wait_until(lambda: set(litter(folder)) - set(before), "what the first attempt writes after the commit")
    assert {number_of(key) for key in set(litter(folder)) - set(before)} == {1}

    for number in range(2, FILES):
        bring(folder, number)
    (folder / "end").touch()
    (folder / "more-2").touch()
    assert cluster.wait(300) == 0, (folder / "driver.log").read_text(errors="replace")[-3000:]
    assert commits(folder) == FILES
    assert litter(folder) == []
    check_answers(folder)
