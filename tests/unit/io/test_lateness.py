"""Histograms of lateness: the same whatever the batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.fixtures.waiting import appear

import headrace as hr
from headrace.io.lateness import BOUNDS, NONE_LATE, histogram, together

SECOND = 1_000_000


def test_classes_end_at_their_bounds():
    behind = np.array([1, BOUNDS[0], BOUNDS[0] + 1, BOUNDS[-1], BOUNDS[-1] + 1, 1 << 60])
    assert histogram(behind) == [2, 1, 0, 0, 0, 0, 0, 0, 1, 2, pytest.approx(float(behind.sum()))]
    assert len(histogram(behind)) == len(NONE_LATE)


def test_histograms_are_added():
    one, other = histogram(np.array([5])), histogram(np.array([SECOND, 7]))
    assert together(one, other) == histogram(np.array([5, SECOND, 7]))
    assert (together(None, one), together(one, None), together(None, None)) == (one, one, None)


@pytest.mark.parametrize("late", ["divert", "drop", "adjust"])
@pytest.mark.parametrize("batches", [1, 3])
def test_a_query_reports_how_late_rows_were(tmp_path: Path, late: str, batches: int):
    rows = ["a,2024-05-01T12:00:10Z,2024-05-01T13:00:00Z", "b,2024-05-01T12:00:05Z,2024-05-01T13:00:00Z",
            "c,2024-05-01T11:58:00Z,2024-05-01T13:00:00Z"]  # fmt: skip
    folder = tmp_path / "in"
    folder.mkdir()
    parts = [rows] if batches == 1 else [[row] for row in rows]
    stream = hr.read_csv(
        str(folder), schema="k STRING, s DATETIME, e DATETIME", lifetime=hr.interval("s", "e"),
        progress=hr.advance(delay="1 s", late=late),
    )  # fmt: skip
    query = stream.start(hr.memory(), host="local", checkpoint=str(tmp_path / "state"))
    try:
        for number, part in enumerate(parts):
            appear(folder / f"{number}.csv", "\n".join(["k,s,e", *part, ""]))
            query.process_all_available()
        (found,) = query.progress()["lateness"].values()
        assert found == histogram(np.array([4 * SECOND, 129 * SECOND]))
    finally:
        query.stop()
