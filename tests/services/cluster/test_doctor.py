"""`headrace doctor --master` of a real cluster: all is well, a store with other keys, workers with another Python."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures.spark_cluster import SparkCluster, bare_python
from tests.services.cluster.conftest import Drive

pytestmark = pytest.mark.timeout(1200)


def doctor(
    drive: Drive, cluster: SparkCluster, *arguments: str, **options: Any
) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the checks of the cluster by name."""
    process = drive("headrace", "doctor", "--master", cluster.url, *arguments, "--json", **options)
    out, errors = process.communicate(timeout=300)
    assert out.startswith("{"), errors[-4000:]
    names = ("cluster", "workers", "packages there", "clocks there", "storage there")
    return process.returncode, {check["name"]: check for check in json.loads(out)["checks"] if check["name"] in names}


def test_a_cluster_that_is_well(s3: str, drive: Drive, cluster: SparkCluster):
    code, found = doctor(drive, cluster, "--storage", s3)
    assert code == 0, found
    assert found["workers"]["found"].startswith("2 cores, on ")
    assert found["packages there"]["found"].startswith("as here: Python 3.")
    assert found["clocks there"]["ok"]
    assert found["storage there"]["found"] == f"{s3}: workers read and write"


def test_a_store_with_other_keys(s3: str, drive: Drive, cluster: SparkCluster):
    code, found = doctor(drive, cluster, "--storage", s3, AWS_SECRET_ACCESS_KEY="wrong")  # noqa: S106 - it is none
    assert code == 1
    assert [name for name, check in found.items() if not check["ok"]] == ["storage there"]
    assert "SignatureDoesNotMatch" in found["storage there"]["found"]
    assert "an object store with its keys set here" in found["storage there"]["advice"]


def test_workers_with_another_python(drive: Drive, cluster: SparkCluster, tmp_path: Path):
    code, found = doctor(drive, cluster, python=bare_python(tmp_path / "python", claims=(3, 10)))
    assert code == 1
    (check,) = found.values()
    assert check["name"] == "workers"
    assert re.search(r"3\.10", check["found"])
    assert "set PYSPARK_PYTHON" in check["advice"]
