"""The smallest streams of what a reader of the first version found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import EventError
from headrace.time import INFINITY


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


@pytest.mark.parametrize("window", [hr.tumbling(10), hr.hopping(20, every=10)])
@pytest.mark.parametrize("kind", ["aggregate", "extremes", "top"])
def test_windows_end_after_the_last_time_of_an_event(window: Any, kind: str):
    farthest = 2**60
    stream = hr.events([{"le": farthest - 1, "re": INFINITY, "v": 1}, {"le": farthest - 5, "re": farthest - 2, "v": 2}])
    windowed = stream.window(window)
    queries = {
        "aggregate": lambda: windowed.aggregate(v=hr.count()),
        "extremes": lambda: windowed.aggregate(v=hr.max("v")),
        "top": lambda: windowed.top(1, by="v"),
    }
    query = queries[kind]()
    rows = query.cht().to_pylist()
    assert {row["v"] for row in rows} == {2}
    assert [row["re"] - farthest for row in rows] == ([4] if window == hr.tumbling(10) else [4, 14])
    assert query.history().cht().to_pylist() == rows


def test_clipping_does_not_order_the_items_of_a_module_that_does_not_see_it():
    class Times(hr.Aggregate):
        time_sensitive = True
        input = "v LONG"
        output = "LONG"

        def compute(self, events: list[Any], window: Any) -> int:
            return sum(event.le for event in events) - window.le

    class Listed(hr.Aggregate):
        input = "v LONG"
        output = "STRING"

        def compute(self, values: list[int]) -> str:
            return str(values)

    stream = hr.events([{"le": 1, "re": 20, "v": 2}, {"le": 2, "re": 20, "v": 1}])
    windowed = stream.window(hr.tumbling(10), clipping="left")
    rows = windowed.aggregate(t=Times().of("v"), l=Listed().of("v")).cht().to_pylist()
    assert [row["l"] for row in rows] == ["[2, 1]"] * 2
