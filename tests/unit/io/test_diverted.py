"""Diverted rows keep everything they came with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headrace as hr

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose


@pytest.mark.parametrize("batch_rows", [None, 1, 2])
def test_a_late_row_is_diverted_whole_though_the_query_reads_few_columns(tmp_path: Path, batch_rows: int | None):
    (tmp_path / "in.csv").write_text("t,k,x,note\n100,a,1,first\n5,b,2,late\n101,c,3,last\n6,d,4,later\n")
    stream = hr.read_csv(
        str(tmp_path / "in.csv"),
        "t LONG, k STRING, x LONG, note STRING",
        lifetime=hr.point("t"),
        progress=hr.advance(10),
    )
    run = stream.window(hr.tumbling(10)).aggregate(n=hr.count()).run(batch_rows=batch_rows)
    rows = [json.loads(row) for row in run.diverted()["row"].to_pylist()]
    assert sorted(rows, key=lambda row: row["t"]) == [
        {"t": 5, "k": "b", "x": 2, "note": "late"},
        {"t": 6, "k": "d", "x": 4, "note": "later"},
    ]
