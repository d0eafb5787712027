"""A Connect server in a process of its own, with workers on a cluster: the client brings all modules."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import feather
from tests.fixtures.s3_server import S3Server
from tests.fixtures.spark_cluster import SparkCluster, run_connect_server
from tests.services.cluster.conftest import Drive
from tests.services.cluster.driver import queries, upload_input
from tests.services.cluster.test_cluster import check

import headrace as hr

NAMES = ("demo", "join", "own")


@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_a_connect_server_gives_the_answers_of_a_run_in_process(
    s3: str, s3_server: S3Server, tmp_path: Path, drive: Drive, cluster: SparkCluster
):
    upload_input(s3_server, s3, tmp_path / "in", files=3)
    with run_connect_server(tmp_path / "server", cluster) as url:
        driver = drive("tests.services.cluster.driver", s3, ",".join(NAMES), master=url)
        out, errors = driver.communicate(timeout=600)
        assert driver.returncode == 0, errors[-4000:]
        backfill = drive("tests.services.cluster.own_history", s3, "own", str(tmp_path), master=url)
        _, errors = backfill.communicate(timeout=600)
    assert backfill.returncode == 0, errors[-4000:]
    assert out.split() == ["buckets", "2"]
    streams = {name: stream for name, stream in queries(s3).items() if name in NAMES}
    check(s3, streams)
    found = feather.read_table(tmp_path / "own.arrow")
    assert not hr.history_diff(streams["own"].cht(), found, names=("in process", "batch SQL"))
