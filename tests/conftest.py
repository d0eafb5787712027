"""Fixtures and settings shared by all tests.

One process has one Spark session: every test that wants it asks for the `spark` fixture, and is marked `spark` by that.
Every test in `tests/services` is marked `services`, by where it is: only `make test-services` runs these.

`HYPOTHESIS_PROFILE` says how many examples a property test draws: `DRAWN` below. All but `fuzz` draw the
same examples every time, so that what fails is the doing of a change; `fuzz` draws others. `HEADRACE_EXAMPLES` is the
number itself. A test that wants more or fewer asks for a share of `settings().max_examples`, so that it grows with the
rest; where an example costs half a second, or a test has dozens of parameters, a fourth of it or less.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from tests.fixtures.s3_server import BUCKET, S3Server, serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRAWN = {"unit": 5, "test": 15, "all": 40, "fuzz": 1000}
SERVICES = Path(__file__).parent / "services"
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "test")

# No deadline: the first example pays for imports, and machines differ. A failure prints the blob that repeats it.
for name, drawn in DRAWN.items():
    settings.register_profile(
        name,
        deadline=None,
        derandomize=name != "fuzz",
        print_blob=True,
        max_examples=int(os.environ.get("HEADRACE_EXAMPLES", drawn)),
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile(PROFILE)
if PROFILE != "fuzz":
    # Hypothesis also draws the numbers and texts that stand in the modules which are loaded. These depend on the tests
    # that ran before in the same process, so the examples would not be the same every time.
    providers._get_local_constants = Constants


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.path.is_relative_to(SERVICES):
            item.add_marker(pytest.mark.services)
        volume = item.get_closest_marker("volume")
        if volume is not None and not (len(volume.args) == 1 and isinstance(volume.args[0], str)):
            raise pytest.UsageError(f"{item.nodeid}: volume(...) says what the test shows beyond those of `make test`")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of this process, made when the first test asks for it."""
    from headrace.host.spark.session import get_session

    session = get_session("local[2,4]", app="headrace tests")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.decimalOperations.allowPrecisionLoss", "false")  # as histories run
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
