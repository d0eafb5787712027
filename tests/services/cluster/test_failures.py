"""Machines of a cluster that are lost inside a stage of a batch: nothing is lost, and nothing is counted twice.

Tasks wait at a gate (`gates.py`), so each loss is known to hit the stage it is meant for. The seed draws the order of
the losses, the stage of each, and whether a gate is only passed before it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from functools import partial
from pathlib import Path

import psutil
import pytest
from tests.fixtures.s3_server import S3Server
from tests.fixtures.spark_cluster import SparkCluster, wait_for
from tests.services.cluster.conftest import Drive
from tests.services.cluster.driver import queries, upload_input
from tests.services.cluster.gates import STAGES, close, waiting_tasks
from tests.services.cluster.test_cluster import check

from headrace.store.objects import ObjectStorage

SEEDS = [int(seed) for seed in os.environ.get("HEADRACE_KILL_SEED", "21").split(",")]
LOSSES = ("python", "executor", "worker", "driver")
NAMES = ("demo", "loop", "gated")


def losses(draw: random.Random) -> list[tuple[str, str]]:
    """What is lost, and in which stage; nothing where a gate is only passed."""
    drawn = []
    for loss in draw.sample(LOSSES, len(LOSSES)):
        drawn += [("nothing", draw.choice(STAGES)) for _ in range(draw.randint(0, 1))]
        drawn.append((loss, draw.choice(STAGES)))
    return drawn


def unfinished(url: str) -> set[int]:
    """The batches that are planned and not committed."""
    store = ObjectStorage(f"{url}/state/store")
    plans, commits = (
        {int(key.rpartition("/")[2]) for key in store.keys(folder) if key[-1].isdigit()}
        for folder in ("plans", "commits")
    )
    return plans - commits


def someone_waits(url: str, turn: int, driver: subprocess.Popen[str]) -> bool:
    assert driver.poll() is None, driver.communicate()[1][-4000:]
    return bool(waiting_tasks(url, turn))


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
@pytest.mark.parametrize("seed", SEEDS)
def test_machines_are_lost_in_the_middle_of_a_stage(
    s3: str, s3_server: S3Server, tmp_path: Path, drive: Drive, cluster: SparkCluster, seed: int
):
    """A Python worker or an executor is killed, a worker is replaced by one with another disk, the driver moves."""
    draw = random.Random(seed)
    turns = losses(draw)
    # A batch for each, and one more. The input is always the same one: the driver takes two files a batch, and of other
    # inputs a few rows are late where a run of one file a batch begins the second.
    upload_input(s3_server, s3, tmp_path / "in", files=2 * len(turns) + 2)
    command = ("tests.services.cluster.driver", s3, ",".join(NAMES))
    close(s3, turns[0][1], 0)
    driver = drive(*command)
    for turn, (loss, _) in enumerate(turns):
        wait_for(partial(someone_waits, s3, turn, driver), f"a task at the gate of turn {turn} of {turns}", 240)
        task = draw.choice(waiting_tasks(s3, turn))
        batches = unfinished(s3)
        assert batches, "the task belongs to a batch that is not committed"
        if loss == "python":
            psutil.Process(task["python"]).kill()
        elif loss == "executor":
            assert task["executor"] in [process.pid for process in cluster.executors()]
            psutil.Process(task["executor"]).kill()
        elif loss == "worker":
            cluster.stop_worker_of(task["executor"])
            cluster.add_workers()
        elif loss == "driver":
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        assert unfinished(s3) == batches, "what was lost was in a batch that nobody has committed meanwhile"
        close(s3, turns[turn + 1][1] if turn + 1 < len(turns) else "", turn + 1)
        if loss == "driver":
            driver = drive(*command)
    _, errors = driver.communicate(timeout=600)
    assert driver.returncode == 0, (turns, errors[-4000:])
    check(s3, {name: stream for name, stream in queries(s3).items() if name in NAMES})
