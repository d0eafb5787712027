"""The growth table: its lines run, its page has all of them, and every line that grows has a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.growth_lines import DIMENSIONS, EXPLAINED, LINES, Line, Setting
from benchmarks.growth_table import Growth, growth_of, note, stream_of, table_of
from benchmarks.relations import BATCHES, QUERIES, milliseconds
from benchmarks.relations import table_of as relation_of

PAGE = Path("docs/growth.md")
#: Relations of 20 times as many rows: a batch that read them all would take about so many times as long.
FEW, MANY, MOST = 2_000, 40_000, 4


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_every_query_is_valid(line: Line):
    rows = DIMENSIONS[line.dimensions[0]].small(replace(Setting(), **line.setting))
    assert line.query(stream_of(replace(rows, filled=0)), rows).node.schema.names


def test_a_line_is_measured():
    growth = growth_of(LINES[0], "retractions", share=0.01)
    assert growth.small > 0
    assert growth.answers[0] > 0


def test_explanations_are_of_lines():
    assert set(EXPLAINED) <= {(line.name, dimension) for line in LINES for dimension in line.dimensions}


def test_notes():
    flat, grows = Growth("clip", "state", 1.0, 1.4, (10, 10)), Growth("clip", "history", 1.0, 1.6, (10, 10))
    assert note(flat) == ""
    assert note(grows) == "**not explained**"
    assert note(replace(grows, answers=(0, 1000))) == "answers of a batch: 0 → 1000"
    assert note(replace(grows, dimension="lateness")).startswith("explained: ")


def test_the_page_has_every_line_and_every_reason():
    page = PAGE.read_text()
    for line in LINES:
        for dimension in line.dimensions:
            assert f"| {line.name} | {DIMENSIONS[dimension].what} |" in page
    assert "not explained" not in page
    assert table_of([]).splitlines()[0] in page


@pytest.mark.parametrize("name", ["grouped sum, count", "grouped min, max", "left join", "scalar sub-query"])
def test_a_batch_costs_its_changes_and_not_the_relation(name: str):
    def least(rows: int) -> float:
        return min(milliseconds(QUERIES[name], relation_of(rows))[-BATCHES:])

    assert least(MANY) < MOST * least(FEW)
