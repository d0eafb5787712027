"""Every text in `tests/fixtures/sql` gives the history that is drawn in it: in process, in any batches, and as SQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fixtures.drawn_sql import Fixture, fixtures

import headrace as hr
from headrace.plan.nodes import Final
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql

ALL = fixtures()
every_fixture = pytest.mark.parametrize("fixture", ALL.values(), ids=ALL.keys())

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # some lose rows on purpose


@every_fixture
@pytest.mark.parametrize(
    ("buckets", "batch_rows"),
    [pytest.param(1, None, id="at once", marks=pytest.mark.slow), pytest.param(2, 1, id="row by row")],
)
def test_the_history_is_the_one_that_is_drawn(fixture: Fixture, tmp_path: Path, buckets: int, batch_rows: int | None):
    for name, stream in fixture.streams(tmp_path).items():
        run = stream.run(buckets=buckets, batch_rows=batch_rows)
        expected = fixture.history(name, stream)
        assert not hr.history_diff(expected, run.cht(), names=("drawn", "live")), fixture.shows
        if isinstance(stream.node, Final):
            assert "retract" not in run.events()["kind"].to_pylist()


@every_fixture
@pytest.mark.slow
def test_oracle_batch_sql_says_the_same(fixture: Fixture, tmp_path: Path):
    for name, stream in fixture.streams(tmp_path).items():
        found = stream.history(engine="duckdb").cht()
        assert not hr.history_diff(fixture.history(name, stream), found, names=("drawn", "batch SQL")), fixture.shows


@every_fixture
def test_the_text_printed_and_read_again_means_the_same(fixture: Fixture):
    tree = parse(fixture.text)
    assert parse(to_sql(tree)) == tree


@every_fixture
def test_a_fixture_says_what_it_shows(fixture: Fixture):
    assert fixture.shows.endswith((".", "?"))
    assert fixture.expected
    assert fixture.inputs or fixture.files


def test_there_are_fixtures():
    assert len(ALL) > 30
