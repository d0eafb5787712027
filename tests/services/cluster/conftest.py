"""A cluster of a master and two workers for all tests of this folder. Its machines share an S3 server, and no path."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fixtures.s3_server import S3Server
from tests.fixtures.spark_cluster import SparkCluster, clean_environment, run_cluster

ROOT = Path(__file__).parents[3]
Drive = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with run_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def drive(cluster: SparkCluster, s3_server: S3Server, tmp_path: Path) -> Iterator[Drive]:
    """Starts a module as a driver, with the URL of a master as its first argument, or after `--master`.

    It is a process with a home of its own, which alone has Headrace and the keys of S3.
    """
    begun: list[subprocess.Popen[str]] = []

    def start(
        module: str, *arguments: str, master: str = cluster.url, python: Path = cluster.python, **variables: str
    ) -> subprocess.Popen[str]:
        named = arguments if "--master" in arguments else (master, *arguments)
        home = tmp_path / f"driver-{len(begun)}"
        (home / "tmp").mkdir(parents=True)
        own = {"PYSPARK_PYTHON": str(python), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        environment = clean_environment(home) | s3_server.environment | own | variables
        process = subprocess.Popen(
            [sys.executable, "-m", module, *named], cwd=home, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        begun.append(process)
        return process

    yield start
    for process in begun:
        if process.poll() is None:
            os.killpg(process.pid, 9)
        process.communicate()
