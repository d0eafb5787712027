"""Functions that get the rows of every batch: which rows, in which frames, and what they see after a crash."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import headrace as hr
from headrace import col
from headrace.errors import HostError, PlanError

ROWS = """
    kind    | le | re | re_new | k | v
    insert  | 1  | 4  |        | a | 1
    insert  | 2  | ∞  |        | b | 2
    cti     | 2  |    |        |   |
    retract | 2  | ∞  | 5      | b | 2
    insert  | 3  | 6  |        | a | 5
    cti     | 7  |    |        |   |
"""
Calls = list[tuple[int, Any]]


def events() -> hr.Stream:
    return hr.events(ROWS, batches=[2, 1, 1, 2])


def into(calls: Calls, **options: Any) -> Any:
    return hr.foreach_batch(lambda rows, batch: calls.append((batch, rows)), **options)


def folded(calls: Calls) -> Counter[tuple[Any, ...]]:
    """The rows that are there after all changes."""
    left: Counter[tuple[Any, ...]] = Counter()
    for _, rows in calls:
        for row in rows.to_pylist():
            sign = {"insert": 1, "delete": -1}[row.pop("_change_type")]
            left[tuple(row.values())] += sign
    return +left


@pytest.mark.parametrize("place", ["run", "start"])
def test_changes_add_up_to_the_history(place: str, tmp_path: Path):
    calls: Calls = []
    sums = events().group_by("k").window(hr.snapshot()).aggregate(s=hr.sum("v"))
    if place == "run":
        hr.run({"sums": sums}, sinks={"sums": into(calls)})
    else:
        query = sums.start(into(calls), host="local", checkpoint=str(tmp_path / "state"))
        query.finish()
        query.stop()
    assert folded(calls) == Counter(tuple(row.values()) for row in sums.cht().to_pylist())
    numbers = [number for number, _ in calls]
    assert numbers == sorted(set(numbers))
    assert all(rows.num_rows for _, rows in calls)  # a batch without rows is no call


@pytest.mark.parametrize(("frame", "kind"), [("arrow", pa.Table), ("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_frames(frame: Any, kind: type):
    calls: Calls = []
    hr.run({"all": events().where(col("k") == "a")}, sinks={"all": into(calls, frame=frame)})
    assert [type(rows) for _, rows in calls] == [kind] * 2
    assert [list(rows["v"]) if frame != "arrow" else rows["v"].to_pylist() for _, rows in calls] == [[1], [5]]


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"encoding": "events"}, ["kind", "le", "re", "re_new", "k", "v"]),
        ({"encoding": "final"}, ["le", "re", "k", "v"]),
        ({"encoding": "upsert", "key": "k"}, ["op", "_batch", "le", "k", "v"]),
    ],
    ids=str,
)
def test_encodings(options: dict[str, Any], columns: list[str]):
    calls: Calls = []
    hr.run({"all": events()}, sinks={"all": into(calls, **options)})
    assert {tuple(sorted(rows.column_names)) for _, rows in calls} == {tuple(sorted(columns))}


def test_a_failed_batch_comes_again_with_its_number_and_its_rows(tmp_path: Path):
    calls: Calls = []

    def fragile(rows: pa.Table, batch: int) -> None:
        calls.append((batch, rows))
        if len(calls) == 2:
            raise ZeroDivisionError("the disk is full")

    def begin() -> hr.Stream:
        return events().select("k", "v")

    state = str(tmp_path / "state")
    query = begin().start(hr.foreach_batch(fragile), host="local", checkpoint=state, files_per_batch=1)
    with pytest.raises(HostError, match="the disk is full"):
        query.process_all_available()
    query.stop()
    again = begin().start(hr.foreach_batch(fragile), host="local", checkpoint=state, files_per_batch=1)
    again.finish()
    again.stop()
    (failed, rows), (repeated, same) = calls[1:3]
    assert failed == repeated
    assert rows.equals(same)
    once = dict(calls)
    assert folded(list(once.items())) == Counter(tuple(row.values()) for row in begin().cht().to_pylist())


@pytest.mark.parametrize(
    ("options", "text"),
    [({"frame": "panda"}, "frame='pandas'"), ({"spark": 1}, "frame='spark'"), ({"encoding": "upsert"}, "need a key")],
    ids=str,
)
def test_what_is_refused(options: dict[str, Any], text: str):
    with pytest.raises(PlanError) as caught:
        hr.foreach_batch(print, **options)
    assert text in str(caught.value)


def test_a_function_is_no_sink_by_itself():
    with pytest.raises(PlanError, match="calls a function"):
        hr.foreach_batch("print")  # type: ignore[arg-type]
    with pytest.raises(PlanError) as caught:
        events().start(lambda *_: None, host="local")
    assert "hr.foreach_batch(lambda rows, batch: ...)" in caught.value.instead
    with pytest.raises(PlanError) as caught:
        events().start(hr.memory, host="local")
    assert caught.value.instead == "memory()"
