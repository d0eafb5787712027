"""The eight pipelines: short, equal to pandas, and equal to batch SQL over the stored files."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from examples.pipelines.data import write
from examples.pipelines.expected import EXPECTED, difference
from examples.pipelines.queries import PIPELINES

import headrace as hr


@pytest.fixture(scope="module", params=[7, 8], ids=lambda seed: f"seed {seed}")
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipelines")
    write(folder, seed=request.param)
    return folder


def test_there_are_eight():
    assert list(PIPELINES) == list(EXPECTED)
    assert len(PIPELINES) == 8


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_is_short(name: str):
    body = inspect.getsource(PIPELINES[name]).splitlines()
    assert len([line for line in body if line.strip()]) <= 15


@pytest.mark.parametrize("name", PIPELINES)
def test_pandas_agrees(name: str, data: Path):
    answer = PIPELINES[name](data).cht().to_pandas()
    assert len(answer) > 0
    assert difference(answer, EXPECTED[name](data)) == ""


@pytest.mark.parametrize("name", PIPELINES)
def test_batch_sql_agrees(name: str, data: Path):
    stream = PIPELINES[name](data)
    assert hr.history_diff(stream.history(engine="duckdb").cht(), stream.cht()) == ""


def test_a_difference_is_seen(data: Path):
    expected = EXPECTED["top_routes"](data)
    wrong = expected.assign(flights=expected["flights"] + 1)
    assert "not" in difference(wrong, expected)
    assert "rows" in difference(expected.iloc[1:], expected) or "not" in difference(expected.iloc[1:], expected)
