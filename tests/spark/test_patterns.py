"""Patterns on Spark (rule 9.4): random ones over disorder and retractions, in one bucket and, restarted, in three.

A query costs Spark seconds however small it is, so all patterns of a test share one: events are dealt out to them by
the column `c`. Each gives what it gives in process, which the twin has tried by brute force, batch by batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from tests.strategies.patterns import measures, patterns

import headrace as hr
from headrace import col
from headrace.events import history, to_changes
from headrace.expr import Expr
from headrace.io.sinks import read_events_output
from headrace.patterns import Pattern
from headrace.schema import Field, Schema, Type
from headrace.testing import check_output
from headrace.testing.strategies import SCHEMA, physical_streams, tables
from headrace.testing.verify.differential import differential_reference

pytestmark = pytest.mark.usefixtures("spark")
CASES, EVENTS, FILES = 16, 16 * 12, 3
DEALT = Schema((*SCHEMA.fields, Field("c", Type.LONG)))


@dataclass(frozen=True)
class Case:
    """A pattern, and how it is asked for."""

    pattern: Pattern
    rows: Any
    key: str | None
    measures: dict[str, Expr]

    def over(self, stream: hr.Stream) -> hr.Stream:
        """Its matches."""
        grouped: Any = stream
        if self.key is not None:
            grouped = stream.group_by(positive=col("i") > 0) if self.key == "computed" else stream.group_by(self.key)
        return grouped.match(self.pattern, rows=self.rows, **self.measures)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pattern = draw(patterns())
    named = {f"m_{name}": expr for name, expr in draw(measures(pattern)).items()}
    key = draw(st.sampled_from([None, "computed", "k", "x"]))
    return Case(pattern, draw(st.sampled_from(["one", "one", "all"])), key, named)


def drawn(number: int, strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """So many examples, the same for the same number."""
    found: list[Any] = []

    @seed(number)
    @settings(max_examples=count, database=None, phases=[Phase.generate])
    @given(strategy)
    def draw(example: Any) -> None:
        found.append(example)

    draw()
    return found


def dealt(number: int) -> list[dict[str, Any]]:
    """A stream with disorder, retractions and promises; what corrects an event goes to the same case as the event."""
    events = drawn(number, physical_streams(min_events=EVENTS, max_events=EVENTS), 3)[-1]
    return [event | {"c": None if event["id"] is None else event["id"] % CASES} for event in events]


def queries(stream: hr.Stream, asked: list[Case]) -> dict[str, hr.Stream]:
    return {f"m{i}": case.over(stream.where(col("c") == i).select("k", "i", "x")) for i, case in enumerate(asked)}


@pytest.mark.parametrize(("buckets", "lives"), [(1, 1), (3, 2)])
def test_differential_patterns_on_spark(buckets: int, lives: int, tmp_path: Path):
    asked, table = drawn(buckets, cases(), CASES), tables(dealt(buckets), DEALT)
    size = -(-table.num_rows // FILES)
    sizes = [min(size, table.num_rows - at) for at in range(0, table.num_rows, size)]
    (tmp_path / "in").mkdir()
    there = queries(hr.read_events(str(tmp_path / "in"), DEALT, format="parquet"), asked)

    for number in range(FILES):
        path = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(table.slice(sum(sizes[:number]), sizes[number]), path)
        os.utime(path, (number + 1, number + 1))
        if number + lives >= FILES:
            run(there, tmp_path, buckets, last=number == FILES - 1)

    here = queries(hr.events(table, DEALT, batches=sizes), asked)
    matches = 0
    for name, query in here.items():
        expected = differential_reference(query.node, buckets=buckets).results["out"].cht()
        events = read_events_output(str(tmp_path / "out" / name), query.schema)
        check_output(events)
        found = history(to_changes(events, query.schema))
        assert hr.history_diff(expected, found, names=("local", "spark")) == "", query.explain()
        matches += found.num_rows
    assert matches > CASES


def run(streams: dict[str, hr.Stream], folder: Path, buckets: int, *, last: bool) -> None:
    """Answer what is there; at the end, all that is still open."""
    sinks = [(stream, hr.files(str(folder / "out" / name), format="parquet")) for name, stream in streams.items()]
    query = hr.start_all(sinks, checkpoint=str(folder / "state"), files_per_batch=1, buckets=buckets)
    ended: Callable[[], None] = query.finish if last else query.process_all_available
    try:
        ended()
    finally:
        query.stop()
