"""What operators remember, as tables: under the names that the query knows, without what is forgotten or cancels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
from headrace.host.saved.tables import OperatorState
from headrace.modules import IncrementalAggregate


def state_of(tmp_path: Path, stream: hr.Stream, **more: Any) -> dict[str, OperatorState]:
    query = stream.start(hr.memory(), host="local", checkpoint=str(tmp_path / "state"), **more)
    query.process_all_available()
    query.stop()
    return hr.checkpoint(tmp_path / "state").state()


def find(found: dict[str, OperatorState], begin: str) -> OperatorState:
    (name,) = [name for name in found if name.startswith(begin)]
    return found[name]


def drawn(*rows: str, **more: Any) -> hr.Stream:
    return hr.events("\n".join(["kind | le | re | re_new | k | v", *rows]), **more)


def test_a_join_remembers_both_sides_by_their_columns(tmp_path: Path):
    left = drawn("insert | 1 | 9 | | a | 5", "insert | 2 | 3 | | b | 6", "cti | 4 | | | |")
    right = drawn("insert | 5 | 7 | | a | 8", "cti | 4 | | | |")
    found = state_of(tmp_path, left.join(right, on="k"), buckets=2)
    join = find(found, "Join on k = k")
    (row,) = join.tables["left"].to_pylist()  # the other has ended before the CTI
    bucket = row.pop("bucket")
    assert row == {"k": "a", "v": 5, "le": 1, "re": 9, "weight": 1, "forgotten_at": 9}
    assert join.tables["right"].to_pylist() == [
        {"k": "a", "v": 8, "le": 5, "re": 7, "weight": 1, "forgotten_at": 7, "bucket": bucket}
    ]


def test_rows_that_cancel_are_left_out(tmp_path: Path):
    stream = drawn(
        "insert | 1 | 9 | | a | 5", "insert | 2 | 8 | | a | 6", "retract | 1 | 9 | 1 | a | 5", batches=[2, 1]
    )
    found = state_of(tmp_path, stream.coalesce())
    assert [(row["k"], row["v"]) for row in find(found, "Coalesce").tables["later"].to_pylist()] == [("a", 6)]


def test_columns_of_windows_have_the_names_of_the_query(tmp_path: Path):
    stream = drawn("insert | 1 | 2 | | a | 5", "insert | 3 | 4 | | a | 7")
    found = state_of(tmp_path, stream.group_by("k").window(hr.session(10)).aggregate(top=hr.max(hr.col("v") * 2)))
    sessions = find(found, "Aggregate top = max(v * 2)")
    assert sorted(sessions.tables["events"].select(["k", "v * 2", "le"]).to_pylist(), key=lambda row: row["le"]) == [
        {"k": "a", "v * 2": 10, "le": 1},
        {"k": "a", "v * 2": 14, "le": 3},
    ]
    assert sessions.numbers == {"cti": [hr.NEG_INFINITY], "seen": [3]}


def test_sums_say_what_they_are_sums_of(tmp_path: Path):
    stream = drawn("insert | 1 | 2 | | a | 5", "insert | 3 | 4 | | a | 7")
    found = state_of(tmp_path, stream.group_by("k").window(hr.tumbling(10)).aggregate(s=hr.sum("v")))
    runs = find(found, "Merge for Aggregate s = sum(v)").tables["runs"]
    assert sum(row["v: s0"] for row in runs.to_pylist()) == 12
    assert {row["k"] for row in runs.to_pylist()} == {"a"}


def test_a_column_of_the_query_keeps_its_name_before_ours(tmp_path: Path):
    stream = hr.events("kind | le | re | bucket | forgotten_at\ninsert | 1 | 9 | 7 | 8")
    (row,) = find(state_of(tmp_path, stream.coalesce()), "Coalesce").tables["later"].to_pylist()
    assert (row["bucket"], row["forgotten_at"]) == (7, 8)
    assert (row["__bucket"], row["__time"]) == (0, 1)


def test_two_operators_that_do_the_same_are_told_apart(tmp_path: Path):
    one, two = drawn("insert | 1 | 9 | | a | 5"), drawn("insert | 2 | 8 | | b | 6")
    found = state_of(tmp_path, one.coalesce().union(two.coalesce()))
    assert {"Coalesce", "Coalesce #2"} <= set(found)
    assert len(find({name: found[name] for name in found if name.endswith("#2")}, "Coalesce").tables["later"]) == 1


class Loads(IncrementalAggregate):
    """A state that may not be loaded by those who only look."""

    input = "v LONG"
    output = "LONG"

    def initial(self) -> Any:
        return Bad()

    def add(self, state: Any, items: Any) -> None:
        state.n += len(items)

    def remove(self, state: Any, items: Any) -> None:
        state.n -= len(items)

    def compute(self, state: Any) -> int:
        return int(state.n)


class Bad:
    """Says so when it is loaded."""

    loaded = 0

    def __init__(self) -> None:
        self.n = 0

    def __setstate__(self, state: Any) -> None:
        Bad.loaded += 1
        self.__dict__ = state


def test_pickled_state_is_shown_as_it_is(tmp_path: Path):
    stream = drawn("insert | 1 | 2 | | a | 5", "insert | 3 | 4 | | a | 7")
    found = state_of(tmp_path, stream.group_by("k").window(hr.session(10)).aggregate(n=Loads().of("v")))
    loaded = Bad.loaded
    hr.checkpoint(tmp_path / "state").state()
    assert Bad.loaded == loaded
    pickled = [state for state in found.values() if state.pickled]
    assert [state.pickled for state in pickled] == [("states",)]
    assert any(isinstance(value, bytes) for value in pickled[0].tables["states"].to_pylist()[0].values())
