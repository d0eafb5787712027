"""Workers beside the driver: which differences are refused, which are only reported."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from headrace.cli import cluster
from headrace.errors import HostError
from headrace.host.spark.workers import WorkerFacts, check, differences, own_facts

DRIVER = WorkerFacts("driver", "3.11.7", {"pyarrow": "26.0.1", "numpy": "2.4.6", "obstore": "0.12.1"}, 100.0)
WORKER = replace(DRIVER, host="node-7")


def other(**packages: str | None) -> WorkerFacts:
    merged = {name: version for name, version in {**DRIVER.packages, **packages}.items() if version is not None}
    return replace(WORKER, packages=merged)


@pytest.mark.parametrize(
    ("worker", "text"),
    [
        (replace(WORKER, python="3.12.1"), "Python 3.12.1, and 3.11.7 at the driver"),
        (other(pyarrow="21.0.0"), "pyarrow 21.0.0, and 26.0.1 at the driver"),
        (other(numpy=None), "no numpy, and 2.4.6 at the driver"),
        (replace(WORKER, error="ModuleNotFoundError: No module named 'lark'"), "No module named 'lark'"),
    ],
)
def test_workers_that_cannot_run_a_query_are_refused_by_name(worker: WorkerFacts, text: str):
    with pytest.raises(HostError, match="the worker on node-7 cannot run this query") as caught:
        check(DRIVER, [WORKER, worker])
    assert text in str(caught.value)
    assert "doctor --master" in caught.value.instead
    checks = [cluster.worker_check([worker], 1), *cluster.package_checks(DRIVER, [worker])]
    assert any(not found.ok and text in found.found for found in checks)


@pytest.mark.parametrize("worker", [replace(WORKER, python="3.11.9"), other(pyarrow="26.1.0"), other(obstore=None)])
def test_small_differences_are_logged(worker: WorkerFacts, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, "headrace"):
        check(DRIVER, [worker])
    assert bool(caplog.text) == bool(differences(DRIVER, worker))
    assert all(found.ok for found in cluster.package_checks(DRIVER, [worker]))


def test_this_process_is_like_itself():
    assert {"pyarrow", "numpy"} <= set(own_facts().packages)
    assert differences(own_facts(), own_facts()) == []


@pytest.mark.parametrize(("offset", "verdict"), [(0.3, "✓"), (-7.0, "!"), (900.0, "✗")])
def test_clocks(offset: float, verdict: str):
    assert cluster.clock_check(offset).verdict == verdict
