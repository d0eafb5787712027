"""Every text in `tests/fixtures/sql` on Spark: all as one query, with an output for each history that is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.fixtures.drawn_sql import fixtures

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # a hundred inputs, each with a reader of its own
    pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed"),  # some lose rows on purpose
]
ALL = fixtures()
Answers = dict[str, dict[str, tuple[hr.Stream, str]]]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The streams of every fixture, and what the query calls them."""
    found: Answers = {}
    for fixture in ALL.values():
        folder: Path = tmp_path_factory.mktemp(fixture.name)
        streams = fixture.streams(folder)
        found[fixture.name] = {name: (stream, f"{fixture.name} {name}") for name, stream in streams.items()}
    return found


@pytest.fixture(scope="module")
def finished(spark: SparkSession, asked: Answers) -> hr.Run:  # noqa: ARG001 - the session that the run finds
    """All of them, as one query."""
    every = {called: stream for streams in asked.values() for stream, called in streams.values()}
    return hr.run(every, host="spark", buckets=2)


@pytest.mark.parametrize("fixture", ALL)
def test_the_history_on_spark_is_the_one_that_is_drawn(fixture: str, asked: Answers, finished: hr.Run):
    for name, (stream, called) in asked[fixture].items():
        expected = ALL[fixture].history(name, stream)
        assert not hr.history_diff(expected, finished.cht(called), names=("drawn", "Spark")), ALL[fixture].shows
