"""The 18 examples of the paper on ESL: in process, in any batches, and as batch SQL over history."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.fixtures.drawn_sql import ESL_PAPER, Fixture, fixtures

import headrace as hr
from headrace.errors import SqlError
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql

ALL = fixtures(ESL_PAPER)
every_example = pytest.mark.parametrize("example", ALL.values(), ids=ALL.keys())


def test_there_are_all_of_them():
    assert [int(name.split("_")[1]) for name in ALL] == list(range(1, 19))


@pytest.mark.slow
@every_example
@pytest.mark.parametrize(("buckets", "batch_rows"), [(1, None), (2, 1)], ids=["at once", "row by row"])
def test_an_example_answers_as_it_should(example: Fixture, tmp_path: Path, buckets: int, batch_rows: int | None):
    for name, stream in example.streams(tmp_path).items():
        found = stream.run(buckets=buckets, batch_rows=batch_rows).cht()
        assert not hr.history_diff(example.history(name, stream), found, names=("drawn", "live")), example.shows


@every_example
def test_oracle_batch_sql_says_the_same(example: Fixture, tmp_path: Path):
    for name, stream in example.streams(tmp_path).items():
        found = stream.history(engine="duckdb").cht()
        assert not hr.history_diff(example.history(name, stream), found, names=("drawn", "batch SQL")), example.shows


@every_example
def test_the_text_printed_and_read_again_means_the_same(example: Fixture):
    tree = parse(example.text)
    assert parse(to_sql(tree)) == tree


def test_a_blocking_aggregate_needs_a_window(tmp_path: Path):
    """What the paper says of example 7 on a stream."""
    example = ALL["example_07_average"]
    inputs = {name: hr.events(drawn, columns) for name, (columns, drawn) in example.inputs.items()}
    unwindowed = re.sub(r" \[TUMBLING .*\]", "", example.text)
    instants = {name: stream.point_at_start() for name, stream in inputs.items()}
    with pytest.raises(SqlError, match="blocking"):
        hr.script(unwindowed, base=tmp_path, **instants)
