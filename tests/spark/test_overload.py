"""Shedding and time-outs on Spark: the rows that are shed are those of the local host, and a query ends by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fixtures.rows_to_shed import answer, read, write_files

import headrace as hr

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_files(tmp_path / "in", 3)


def sorted_answer(stream: hr.Stream, **options: Any) -> tuple[list[dict[str, Any]], dict[str, int]]:
    rows, counts = answer(stream, files_per_batch=2, **options)
    return sorted(rows, key=str), counts


@pytest.mark.parametrize("by", [None, "v"])
def test_the_rows_that_are_shed_are_those_of_the_local_host(data: Path, by: str | None):
    stream = read(data).shed(above=6, by=by) if by else read(data).shed(above=6)
    rows, counts = sorted_answer(stream, host="spark", buckets=2)
    assert (rows, counts) == sorted_answer(stream, host="local")
    assert (counts["rows"], counts["accepted"], counts["shed"]) == (60, 12, 48)


def test_a_query_without_new_rows_ends_after_its_time_out(data: Path):
    total = read(data).window(hr.tumbling(1000)).aggregate(n=hr.count())
    memory = hr.memory()
    query = total.start(memory, host="spark", buckets=2, timeout="1 s")
    assert query.await_termination(60)
    assert memory.cht()["n"].to_pylist() == [60]


def test_both_in_sql(data: Path):
    text = """
        CREATE STREAM s (t LONG, k STRING, v LONG) ORDER BY t SOURCE FILE ('in/*.csv', ',')
          WITH SHEDDING RANDOM ABOVE 6 ROWS;
        SELECT count(*) AS n FROM s [TUMBLING 1 ms]
    """
    memory = hr.memory()
    counted = hr.sql(text, base=data.parent)
    query = counted.start(memory, host="spark", buckets=2, files_per_batch=3, timeout="1 s")
    assert query.await_termination(60)
    assert memory.cht()["n"].to_pylist() == [6]
