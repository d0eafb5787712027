"""What is late, what becomes of it, and which rows make a promise (rules 3.2 and 3.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col, errors

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose


def written(folder: Path) -> str:
    path = folder / "a.csv"
    path.write_text("t,k\n5,a\n1,b\n")
    return str(path)


def counts_of(run: hr.Run) -> dict[str, int]:
    return next(iter(run.counts.values()))


@pytest.mark.parametrize("lifetime", [hr.point("t"), hr.edge("t", "k"), hr.by_arrival()], ids=str)
def test_nothing_is_left_of_an_instant_that_is_adjusted(tmp_path: Path, lifetime: Any):
    path = written(tmp_path)
    with pytest.raises(errors.PlanError, match="nothing is left of an instant") as raised:
        hr.read_csv(path, "t LONG, k STRING", lifetime=lifetime, progress=hr.ordered("adjust"))
    assert raised.value.instead == "late='divert'"
    lasting = hr.read_csv(
        path, "t LONG, k STRING", lifetime=hr.interval("t", col("t") + 9), progress=hr.ordered("adjust")
    )
    assert [(row["le"], row["re"]) for row in lasting.cht().to_pylist()] == [(5, 10), (5, 14)]


def test_sql_refuses_to_adjust_instants(tmp_path: Path):
    path = written(tmp_path)
    for order in ("ORDER BY t ", ""):
        create = (
            f"CREATE STREAM s (t LONG, k STRING) {order}SOURCE FILE ('{path}', ',') WITH PROGRESS ORDERED LATE ADJUST"
        )
        with pytest.raises(errors.SqlError, match="nothing is left of an instant"):
            hr.script(create)


@pytest.mark.parametrize("progress", [hr.advance(100), hr.heartbeat(10), hr.explicit()], ids=str)
def test_promises_in_the_data_bind_under_every_policy(progress: Any):
    rows = [{"le": 1, "k": "a"}, {"kind": "cti", "le": 50}, {"le": 20, "k": "late"}, {"le": 60, "k": "b"}]
    for batches in ((4,), (1, 1, 1, 1), (2, 2)):
        stream = hr.events(rows, "k STRING", progress=progress, batches=batches)
        run = stream.run(finish=False)
        assert run.cht()["k"].to_pylist() == ["a", "b"]
        assert run.cti() == 50
        assert counts_of(run) | {"ctis": 1, "late": 1, "diverted": 1, "accepted": 3, "rows": 4} == counts_of(run)
        if not isinstance(progress, type(hr.heartbeat())):
            assert hr.same_history(stream.history(engine="duckdb").cht(), run.cht())


def test_an_event_that_starts_before_all_time_is_refused():
    with pytest.raises(errors.EventError, match="le must be finite"):
        hr.events([{"le": "-inf", "re": 5, "k": "a"}])
    run = hr.events([{"le": "-inf", "re": 5, "k": "a"}, {"le": 1, "k": "b"}], bad_rows="divert").run()
    assert run.cht()["k"].to_pylist() == ["b"]
    assert counts_of(run)["malformed"] == 1
