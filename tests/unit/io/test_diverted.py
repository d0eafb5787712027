"""Diverted rows keep everything they came with."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

import headrace as hr
from headrace.io import formats

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


@pytest.mark.parametrize("format", ["csv", "json"])
@pytest.mark.parametrize("late", ["divert", "drop"])
def test_the_time_of_a_malformed_row_follows_from_the_rows_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, late: str
):
    """Not from the blocks or batches in which a file is read."""
    times = [100, "x", 120, 5, "y", "z", 130, "w"]
    rows = [f"{t}" if format == "csv" else f'{{"t": {json.dumps(t)}}}' for t in times]
    (tmp_path / f"in.{format}").write_text("\n".join(["t"] * (format == "csv") + rows))
    read = hr.read_csv if format == "csv" else hr.read_json
    stream = read(str(tmp_path), "t LONG", lifetime=hr.point("t"), progress=hr.advance(10, late=late))
    original = formats.read_csv if format == "csv" else formats.read_json
    for size in (1, 4, 9, 20, 1 << 20):
        monkeypatch.setattr(formats, f"read_{format}", partial(original, size=size))
        for batch_rows in (None, 1, 2, 5):
            diverted = stream.run(batch_rows=batch_rows).diverted()
            found = [(r["le"], r["line"]) for r in diverted.to_pylist() if "late" not in r["reason"]]
            first = 2 if format == "csv" else 1
            assert sorted(found) == [(90, first + 1), (110, first + 4), (110, first + 5), (120, first + 7)]
