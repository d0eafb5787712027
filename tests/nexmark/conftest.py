"""The examples are not installed: here they are found in the project's root, and Spark's workers get them by value."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture(scope="module")
def spark_with_examples(spark: object) -> Iterator[object]:
    """The Spark session, whose workers need not find the folder of examples."""
    from examples.nexmark import queries
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(queries)
    yield spark
    cloudpickle.unregister_pickle_by_value(queries)
