"""A query that runs for long remembers no more than at its beginning, as long as CTIs advance."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.store.cleanup import KEPT

pytestmark = pytest.mark.usefixtures("spark")
#: So many keys that segments are large enough to be stored apart from the manifest.
BATCHES, ROWS, KEYS, STEP = 80, 3000, 1500, 10_000


def write_input(folder: Path) -> None:
    folder.mkdir()
    draw = np.random.default_rng(11)
    for number in range(BATCHES):
        times = np.sort(draw.integers(number * STEP, (number + 1) * STEP, ROWS))
        table = pa.table({"t": times, "k": draw.integers(0, KEYS, ROWS), "v": draw.random(ROWS)})
        pq.write_table(table, folder / f"{number:04d}.parquet")
        os.utime(folder / f"{number:04d}.parquet", (number + 1, number + 1))


def held(statistics: list[list[dict[str, Any]]], what: str) -> np.ndarray:
    """How much of `what` all operators of all buckets held after each batch."""
    operators = [[state for part in batch for state in part["operators"].values()] for batch in statistics]
    return np.array([sum(int(state[what]) for state in batch) for batch in operators])


@pytest.mark.slow
def test_state_stays_bounded_over_many_batches(tmp_path: Path):
    write_input(tmp_path / "in")
    stream = hr.read_parquet(str(tmp_path / "in"), lifetime=hr.point("t"), progress=hr.advance(delay=STEP))
    counts = stream.group_by("k").window(hr.hopping(2 * STEP, every=STEP)).aggregate(n=hr.count(), top=hr.max("v"))
    answers, settled = hr.memory(), hr.memory(encoding="final")
    query = counts.start(answers, settled, buckets=2, files_per_batch=1)
    try:
        query.process_all_available()
        store = query.checkpoint.storage
        files = {folder: len(store.keys(folder)) for folder in ("epochs", "plans", "commits", "data", "floors")}
        query.finish()
    finally:
        query.stop()
    rows, segments, size = (held(query.statistics, what)[:-1] for what in ("rows", "segments", "bytes"))
    assert len(rows) == BATCHES
    early, late = slice(5, 25), slice(-20, None)
    assert rows[late].max() <= 1.2 * rows[early].max(), (rows[early], rows[late])
    assert size[late].max() <= 1.5 * size[early].max(), (size[early], size[late])
    assert segments[late].max() <= segments[early].max() + 4, "a trace is a few segments, whatever it has seen"
    assert files["epochs"] == files["floors"] == 1
    assert files["commits"] <= KEPT + 4
    assert files["plans"] <= KEPT + 5
    assert 4 < files["data"] <= segments.max() + 4 * (KEPT + 4), "files that no kept commit names are gone"
    assert held(query.statistics, "rows")[-1] == 0, "at the end of time nothing is remembered"
    expected = counts.cht()
    assert not hr.history_diff(expected, answers.cht(), names=("local", "spark"))
    assert not hr.history_diff(expected, settled.cht(), names=("local", "final on spark"))
