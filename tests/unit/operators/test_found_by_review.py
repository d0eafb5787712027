"""The smallest streams of what a reader of the first version found."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace import col
from headrace.errors import EventError


@pytest.mark.parametrize("le", [2**61, -(2**61), 2**60])
@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_times_too_far_for_windows_are_no_events(le: int):
    with pytest.raises(EventError, match="36 000 years"):
        hr.events([{"le": le, "re": le + 5, "p": 1}])
    aside = hr.events([{"le": le, "re": le + 5, "p": 1}, {"le": 3, "p": 2}], bad_rows="divert")
    run = aside.window(hr.tumbling(10)).aggregate(n=hr.count()).run()
    assert run.cht().to_pylist() == [{"le": 0, "re": 10, "n": 1}]
    assert run.diverted().num_rows == 1


@pytest.mark.parametrize("delay", [100, 2**63 - 1])
def test_progress_does_not_wrap_around(tmp_path: Path, delay: int):
    (tmp_path / "in.csv").write_text("t\n-1152921504606846970\n-50\n-40\n5\n")
    progress = hr.advance(delay=delay, every=1000, late="raise")
    stream = hr.read_csv(str(tmp_path / "in.csv"), "t LONG", lifetime=hr.point("t"), progress=progress)
    assert stream.cht().num_rows == 4


def test_a_signal_that_was_closed_is_forgotten(tmp_path: Path):
    rows = [f"{t},{t // 2},{t % 2 == 1}" for t in range(400)]
    (tmp_path / "in.csv").write_text("t,k,c\n" + "\n".join(rows) + "\n")
    lifetime = hr.edge("t", key="k", closes=col("c"))
    stream = hr.read_csv(
        str(tmp_path / "in.csv"), "t LONG, k LONG, c BOOLEAN", lifetime=lifetime, progress=hr.advance(10)
    )
    run = stream.run(batch_rows=20)
    held = [op["rows"] for batch in run.statistics for part in batch for op in part["operators"].values()]
    assert max(held) < 60
    assert run.cht().num_rows == 200
