"""Fixtures and settings shared by all tests.

One process has one Spark session: every test that wants it asks for the `spark` fixture, and is marked `spark` by that.
`HEADRACE_EXAMPLES` says how many examples a property test draws (100 unless told).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "100"))
SESSION_MODULE = "headrace.host.spark.session"

# No deadline: the first example pays for imports, and machines differ. A failure prints the blob that repeats it.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=False,
    print_blob=True,
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("ci"), max_examples=10 * EXAMPLES)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of this process, made when the first test asks for it."""
    session = _session()
    yield session
    session.stop()


def _session() -> SparkSession:
    if _exists(SESSION_MODULE):
        return importlib.import_module(SESSION_MODULE).local_session()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the workers run the first python3 on the PATH
    options = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    return SparkSession.builder.master("local[2]").appName("headrace tests").config(map=options).getOrCreate()


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
