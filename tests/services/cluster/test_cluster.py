"""Queries on a real cluster whose machines share nothing but an object store: the answers of a run in process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyarrow import feather
from tests.fixtures.s3_server import S3Server
from tests.fixtures.spark_cluster import bare_python
from tests.services.broker import Broker
from tests.services.cluster.conftest import Drive
from tests.services.cluster.driver import queries, sums, upload_input
from tests.services.conftest import NewTopic
from tests.services.kafka.writing import write

import headrace as hr
from headrace.events import history, to_changes
from headrace.io.sinks import read_events_output
from headrace.testing import check_output

pytestmark = [pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")]


def check(url: str, streams: dict[str, hr.Stream]) -> None:
    """Every output has what a run in this process gives, no more and no less."""
    right = hr.run(streams)
    for name, stream in streams.items():
        events = read_events_output(f"{url}/out/{name}", stream.schema)
        check_output(events)
        found = history(to_changes(events, stream.schema))
        assert found.num_rows, name
        assert not hr.history_diff(right.cht(name), found, names=("in process", "cluster")), name


def test_a_cluster_gives_the_answers_of_a_run_in_process(
    s3: str, s3_server: S3Server, tmp_path: Path, drive: Drive, broker: Broker, topic: NewTopic
):
    upload_input(s3_server, s3, tmp_path / "in", files=4)
    name = topic(2)
    for partition in range(2):
        write(broker, name, range(partition, 200, 2), partition)
    driver = drive("tests.services.cluster.driver", s3, ",".join(queries(s3)), broker.bootstrap, name)
    out, errors = driver.communicate(timeout=600)
    assert driver.returncode == 0, errors[-4000:]
    assert out.split() == ["buckets", "2"], "as many as the cluster has cores"
    numbers = hr.events([{"le": n, "re": n + 1, "n": n} for n in range(200)], "n LONG")
    check(s3, queries(s3) | {"kafka": sums(numbers)})


def test_histories_on_a_cluster_are_those_of_a_run_in_process(
    s3: str, s3_server: S3Server, tmp_path: Path, drive: Drive
):
    """Batch SQL on workers that have no Headrace, no keys of the store, and not the user's module."""
    upload_input(s3_server, s3, tmp_path / "in", files=3)
    driver = drive("tests.services.cluster.own_history", s3, "demo,own", str(tmp_path))
    _, errors = driver.communicate(timeout=600)
    assert driver.returncode == 0, errors[-4000:]
    right = hr.run({name: stream for name, stream in queries(s3).items() if name in ("demo", "own")})
    for name in ("demo", "own"):
        found = feather.read_table(tmp_path / f"{name}.arrow")
        assert found.num_rows
        assert not hr.history_diff(right.cht(name), found, names=("in process", "batch SQL")), name


def test_workers_with_other_packages_are_refused_at_the_start(
    s3: str, s3_server: S3Server, tmp_path: Path, drive: Drive
):
    upload_input(s3_server, s3, tmp_path / "in", files=1)
    python = bare_python(tmp_path / "python", leave_out=("lark",), versions={"pyarrow": "1.0.0"})
    driver = drive("tests.services.cluster.driver", s3, "own", python=python)
    _, errors = driver.communicate(timeout=300)
    assert driver.returncode == 1
    error = errors[errors.rindex("headrace.errors.") :]
    assert re.match(r"headrace\.errors\.HostError: \[HOST\] the worker on .* cannot run this query", error), error
    assert "pyarrow 1.0.0, and " in error
    assert "no lark, and " in error
    assert "headrace doctor --master URL" in error
