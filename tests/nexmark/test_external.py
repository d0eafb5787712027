"""NEXMark on a small run whose answers another system's tests state: ours are the same, on every host.

The data set lies beside the project, in `../shared/datasets/nexmark`; it is not part of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from examples.nexmark.queries import QUERIES, build_query
from examples.nexmark.streams import read

import headrace as hr

FOLDER = Path(__file__).parents[3] / "shared" / "datasets" / "nexmark"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the data set is not there: {FOLDER}")

MIDNIGHT = datetime(2015, 7, 15, tzinfo=UTC)
#: Queries that SQL answers with the latest state of a table that changes: the rows that never end.
LATEST = {"q4", "q18", "q19"}
Rows = list[dict[str, Any]]


def outputs() -> dict[str, hr.Stream]:
    """All queries, and the join they build on."""
    house = read(FOLDER)
    # The source ranks the bids of q6 from the lowest on.
    found = {name: build_query(name, house, **({"lowest": True} if name == "q6" else {})) for name in QUERIES}
    # The data set counts in milliseconds: an instant lasts one.
    bids = house.bids.set_duration("1 ms")
    pairs = bids.join(house.auctions, on={"auction": "id"})
    return {**found, "valid_bids": pairs.select("auction", "bidder", "price", "seller", "category")}


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def finished(request: pytest.FixtureRequest) -> hr.Run:
    """Everything, on one host, as one query."""
    if request.param == "spark":
        request.getfixturevalue("spark_with_examples")
    return hr.run(outputs(), host=request.param, buckets=2)


def stated(name: str) -> tuple[list[str], Rows]:
    """The columns and rows of an answer, as its source states them."""
    (file,) = [FOLDER / "expected" / f"{n}.json" for n in (name, f"{name}_group_top1") if n in _index()]
    found = json.loads(file.read_text())
    return found["columns"], found["rows"]


def _index() -> dict[str, Any]:
    return dict(json.loads((FOLDER / "index.json").read_text()))


def answer(name: str, run: hr.Run) -> Rows:
    """Our history as rows of SQL: lifetimes become the columns that name a window."""
    rows = [row for row in run.cht(name).to_pylist() if name not in LATEST or row["re"] is None]
    for row in rows:
        start = row.pop("le")
        row.pop("re")
        if name == "q8":
            row["starttime"] = start
        if name in ("q15", "q16", "q17"):
            row["day"] = f"{start:%Y-%m-%d}"
        if name == "q16":
            row["minute"] = f"{row['minute']:%I:%m}"  # so the source writes HH:mm: the hour of twelve, and the month
    return rows


def bag(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows without order; numbers to twelve digits, because the source counts in decimals."""
    return Counter(tuple(sorted((name, _plain(value)) for name, value in row.items())) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, float):
        return float(f"{value:.12g}")
    return value


def parsed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A stated row with its times as times."""
    times = {name for name in row if name == "expires" or name.endswith(("date_time", "starttime"))}
    return {n: datetime.fromisoformat(v).replace(tzinfo=UTC) if n in times else v for n, v in row.items()}


@pytest.mark.parametrize("name", QUERIES)
def test_the_answer_is_the_one_its_source_states(finished: hr.Run, name: str):
    columns, rows = stated(name)
    ours = answer(name, finished)
    assert {column for row in ours for column in row} == set(columns)
    assert bag(ours) == bag(map(parsed, rows))


@pytest.mark.parametrize("name", ["q5", "q7", "q8", "valid_bids"])
def test_lifetimes_are_those_of_the_stated_history(finished: hr.Run, name: str):
    found = json.loads((FOLDER / "expected_cht.json").read_text())[name]
    rows = found["rows"] if isinstance(found, dict) else found
    expected = [
        {**{name: MIDNIGHT + timedelta(milliseconds=r[name]) for name in ("le", "re")}, **r["payload"]} for r in rows
    ]
    ours = [{column: row[column] for column in expected[0]} for row in finished.cht(name).to_pylist()]
    assert bag(ours) == bag(expected)


def test_nothing_is_diverted(finished: hr.Run):
    assert sorted(counts["accepted"] for counts in finished.counts.values()) == [20, 40, 50]
    assert finished.diverted().num_rows == 0
