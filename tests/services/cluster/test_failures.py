"""Machines of a cluster that are lost at random moments: nothing is lost, and nothing is counted twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.fixtures.s3_server import S3Server
from tests.fixtures.spark_cluster import SparkCluster, wait_for
from tests.services.cluster.conftest import Drive
from tests.services.cluster.driver import queries, upload_input
from tests.services.cluster.test_cluster import check

from headrace.store.objects import ObjectStorage

SEED = int(os.environ.get("HEADRACE_KILL_SEED", "1"))
#: Batches that the query makes between two failures, and the longest wait within a batch.
BATCHES, SECONDS = (1, 2), 2.0
NAMES = ("demo", "join", "loop", "nested")


class Moments:
    """Random moments in the life of a query: some batches later, while one runs."""

    def __init__(self, url: str, draw: random.Random) -> None:
        self.store, self.draw = ObjectStorage(f"{url}/state/store"), draw

    def numbers(self, folder: str) -> set[int]:
        return {int(key.rpartition("/")[2]) for key in self.store.keys(folder) if key[-1].isdigit()}

    def running(self) -> int:
        """The batch that is planned and not committed; -1 between batches."""
        return max(self.numbers("plans") - self.numbers("commits"), default=-1)

    def wait(self, driver: subprocess.Popen[str]) -> int:
        after = max(self.numbers("commits"), default=-1) + self.draw.randint(*BATCHES)

        def come() -> bool:
            assert driver.poll() is None, driver.communicate()[1][-4000:]
            return self.running() > after

        wait_for(come, f"a batch after {after}", 300)
        time.sleep(self.draw.uniform(0, SECONDS))
        return self.running()


@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_executors_workers_and_drivers_are_lost_at_random_moments(
    s3: str, s3_server: S3Server, tmp_path: Path, drive: Drive, cluster: SparkCluster
):
    """An executor is killed, a worker is replaced by one with another disk, and the driver moves to another folder."""
    upload_input(s3_server, s3, tmp_path / "in", files=12, seed=SEED)
    draw = random.Random(SEED)
    moments = Moments(s3, draw)
    command = ("tests.services.cluster.driver", s3, ",".join(NAMES))
    driver, hit = drive(*command), []
    for loss in draw.sample(["executor", "worker", "driver", "executor"], 4):
        batch = moments.wait(driver)
        hit.append((loss, batch))
        if loss == "executor":
            draw.choice(cluster.executors()).kill()
        elif loss == "worker":
            cluster.stop_worker(draw.randrange(2))
            cluster.add_workers()
        else:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            driver = drive(*command)
    _, errors = driver.communicate(timeout=600)
    assert driver.returncode == 0, (hit, errors[-4000:])
    check(s3, {name: stream for name, stream in queries(s3).items() if name in NAMES})
    assert any(batch >= 0 for _, batch in hit), "losses while a batch runs"
