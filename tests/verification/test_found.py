"""Faults that verification has found, each by its smallest stream."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.events import history_diff
from headrace.history.duckdb import DuckDBHistory
from headrace.io.origins import Events
from headrace.plan.nodes import Source
from headrace.schema import Schema
from headrace.testing.intents.text import read_intent
from headrace.testing.verify.campaign import cases_of_intent, try_case


def test_an_event_in_no_window_still_says_how_far_its_group_reaches():
    """Under jumping windows [3, 4) belongs to none, yet [2, 3) is not beyond the last finite end (rule 5.3)."""
    stream = hr.events(
        """
        kind   | le | re | k
        insert | 0  | ∞  | a
        insert | 3  | 4  | a
        """
    )
    query = stream.group_by("k").window(hr.hopping(1, every=2)).aggregate(n=hr.count())
    live = query.cht()
    assert sorted(zip(live["le"].to_pylist(), live["re"].to_pylist(), strict=True)) == [(0, 1), (2, 3)]
    assert history_diff(live, DuckDBHistory().cht(query.node)) == ""


def test_an_endless_event_whose_last_window_has_the_number_minus_one():
    """Sliding sums took its end for the place where totals stand, and gave nothing."""
    stream = hr.events([{"kind": "insert", "le": -1, "re": hr.INFINITY, "p": 1}])
    query = stream.window(hr.hopping(10, every=5)).aggregate(n=hr.count())
    rows = [(row["le"], row["re"], row["n"]) for row in query.cht().to_pylist()]
    assert sorted(rows) == [(-10, 0, 1), (-5, 5, 1)]
    assert query.verify(seeds=0)


def test_a_filter_over_rows_in_memory_is_not_lost():
    """`push_filters` left it to the reader, and the reader of rows in memory forgot it."""
    schema = Schema.of("t LONG, k STRING")
    rows = pa.table([[1, 2], ["a", "b"]], schema=schema.arrow)
    stream = hr.Stream(Source(Events(rows), schema, hr.point("t"), hr.explicit()))
    assert stream.where(hr.col("k") == "a").cht()["k"].to_pylist() == ["a"]


@pytest.mark.parametrize("window", [hr.tumbling(10_000), hr.session(100)], ids=str)
def test_a_history_counts_as_approximately_as_the_live_query(window: Any, tmp_path: Path):
    """It counted exactly, where a live query over rows that nothing takes back has a sketch."""
    pq.write_table(pa.table({"t": range(5000), "v": [f"v{i}" for i in range(5000)]}), tmp_path / "0.parquet")
    rows = hr.read_parquet(str(tmp_path), "t LONG, v STRING", lifetime=hr.point("t"), progress=hr.ordered())
    query = rows.window(window).aggregate(n=hr.approx_distinct("v"))
    (live,), (history,) = query.cht()["n"].to_pylist(), query.history(engine="duckdb").cht()["n"].to_pylist()
    assert live == history != 5000


def test_a_module_whose_states_merge_sees_one_zero():
    """Where states were made before rows are brought together, the module saw -0.0, and 0.0 everywhere else."""

    class Signs(hr.IncrementalAggregate):
        """The signs of its values."""

        input = "x DOUBLE"
        output = "STRING"

        def initial(self) -> str:
            return ""

        def add(self, state: str, values: list[float]) -> str:
            return "".join(sorted([*state, *("-" if str(x).startswith("-") else "+" for x in values)]))

        def merge(self, state: str, other: str) -> str:
            return "".join(sorted(state + other))

        def compute(self, state: str) -> str:
            return state

    schema = Schema.of("t LONG, x DOUBLE")
    rows = pa.table([[1, 2], [-0.0, -1.0]], schema=schema.arrow)
    stream = hr.Stream(Source(Events(rows), schema, hr.point("t"), hr.explicit()))
    query = stream.window(hr.tumbling(10)).aggregate(signs=Signs().of("x"))
    assert "Panes" in str(query.explain())
    assert query.cht()["signs"].to_pylist() == ["+-"]


@pytest.mark.parametrize("number", [428, 445])
def test_a_history_in_which_events_are_there_twice(number: int):
    """Two orders of the same rows disagreed on which of two equal ones came first, and a run went on over a gap."""
    oracle = DuckDBHistory()
    try:
        case = next(islice(cases_of_intent(read_intent("distinct"), 0), number, None))
        assert try_case(case, oracle, shrinking=0) is None
    finally:
        oracle.close()
