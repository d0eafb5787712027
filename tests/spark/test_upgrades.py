"""Upgrades on Spark, and on another host than the one on which the query began."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.host.test_backfill import changes, content, fresh, lowest
from tests.unit.host.test_upgrades import arrive, folder, highest, trades

import headrace as hr
from headrace import Stream, col
from headrace.testing.same import assert_same_history

__all__ = ["folder"]
pytestmark = pytest.mark.usefixtures("spark")


def step(stream: Stream, place: str, host: Any, **options: Any) -> None:
    query = stream.start(changes(place), host=host, checkpoint="state", files_per_batch=1, **options)
    query.process_all_available()
    query.stop()


def test_upgrades_on_any_host(folder: Path):
    arrive(folder, "1.csv")
    step(highest(trades()), "one", "local", buckets=2)
    arrive(folder, "2.csv")
    step(lowest(trades()), "one", "spark", upgrade="backfill")
    arrive(folder, "3.csv")
    step(lowest(trades()), "one", "local")
    assert_same_history(content(lowest(trades()), "one"), fresh(lowest(trades())))
    above = lowest(trades()).where(col("symbol") == "A")
    step(above, "two", "spark", upgrade="keep")
    assert hr.checkpoint("state").verify()["problems"] == []
