"""Fixtures and settings shared by all tests.

One process has one Spark session: every test that wants it asks for the `spark` fixture, and is marked `spark` by that.
`HEADRACE_EXAMPLES` says how many examples a property test draws (100 unless told).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests.fixtures.s3_server import BUCKET, S3Server, serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "100"))

# `make test` draws the same examples every time, so that what fails is the doing of a change; `make fuzz` draws others.
# No deadline: the first example pays for imports, and machines differ. A failure prints the blob that repeats it.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    print_blob=True,
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("fuzz", settings.get_profile("ci"), derandomize=False, max_examples=10 * EXAMPLES)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of this process, made when the first test asks for it."""
    from headrace.host.spark.session import get_session

    session = get_session("local[2,4]", app="headrace tests")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The one S3 server of this process, started when the first test asks for it."""
    with serve(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new place on the S3 server, which the environment says how to reach."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HEADRACE_CACHE_MB", "200")
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"
