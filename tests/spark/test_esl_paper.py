"""The 18 examples of the paper on ESL on Spark: all as one query, with an output for each history that is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.fixtures.drawn_sql import ESL_PAPER, fixtures

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ALL = fixtures(ESL_PAPER)
Answers = dict[str, dict[str, hr.Stream]]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The streams of every example, by the names of its histories."""
    return {name: example.streams(tmp_path_factory.mktemp(name)) for name, example in ALL.items()}


@pytest.fixture(scope="module")
def finished(spark: SparkSession, asked: Answers) -> hr.Run:  # noqa: ARG001 - the session that the run finds
    """All of them, as one query."""
    every = {f"{example} {name}": stream for example, streams in asked.items() for name, stream in streams.items()}
    return hr.run(every, host="spark", buckets=2)


@pytest.mark.parametrize("example", ALL)
def test_an_example_answers_on_spark_as_it_should(example: str, asked: Answers, finished: hr.Run):
    for name, stream in asked[example].items():
        expected = ALL[example].history(name, stream)
        found = finished.cht(f"{example} {name}")
        assert not hr.history_diff(expected, found, names=("drawn", "Spark")), ALL[example].shows
