"""Inserts of many clients at once: one frame for all of them, and each of them for itself."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError, SchemaError, ServerError, StoreError, TableError, UnknownColumn
from headrace.schema import Schema
from headrace.server.insert_queue import InsertQueue, stream_inserts
from headrace.server.interface import Insert, Inserted
from headrace.server.log import EventLog
from headrace.server.published import ARRIVED, client_columns

COLUMNS = Schema.of("a LONG, b STRING, c DOUBLE, d DATETIME")


def rows_of(log: EventLog) -> list[dict[str, Any]]:
    return log.rows(0, log.end)[1].drop_columns([ARRIVED]).to_pylist()


def open_log(folder: Path) -> EventLog:
    return EventLog(folder, client_columns(COLUMNS), durable=False)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    found = open_log(tmp_path / "log")
    yield found
    found.close()


class HeldQueue:
    """A queue whose first inserts wait until they are let go, so that others gather behind them."""

    def __init__(self, log: EventLog) -> None:
        self.go, self.begun, self._carry_out = threading.Event(), threading.Event(), stream_inserts("s", log)
        self.frames: list[int] = []
        self.workers = ThreadPoolExecutor(2)
        self.queue = InsertQueue(self._held, self.workers)
        self.add([])
        assert self.begun.wait(60)

    def _held(self, calls: Sequence[Sequence[Insert]]) -> list[Inserted]:
        self.begun.set()
        assert self.go.wait(60)
        self.frames.append(len(calls))
        return self._carry_out(calls)

    def add(self, inserts: Sequence[Insert]) -> Future[Inserted]:
        return self.queue.add(inserts, lambda _: None)

    def finish(self, *begun: Future[Inserted]) -> list[Inserted]:
        """Let them go; what each call has inserted."""
        self.go.set()
        found = [one.result(60) for one in begun]
        self.workers.shutdown()
        return found


def test_inserts_that_gather_are_one_frame(log: EventLog):
    queue = HeldQueue(log)
    begun = [queue.add([Insert([{"a": number}])]) for number in range(100)]
    assert queue.finish(*begun) == [Inserted([1])] * 100
    assert queue.frames == [1, 100]
    assert [row["a"] for row in rows_of(log)] == list(range(100))


def test_only_the_wrong_ones_are_refused(log: EventLog):
    queue = HeldQueue(log)
    wrong: dict[int, dict[str, Any]] = {7: {"a": "x"}, 20: {"z": 1}, 21: {"a": 1 << 70}, 50: {"c": [1]}}
    begun = [queue.add([Insert([wrong.get(number, {"a": number})])]) for number in range(64)]
    found = queue.finish(*begun)
    errors = {number: one.error for number, one in enumerate(found) if one.error is not None}
    assert {number: type(error) for number, error in errors.items()} == {
        7: TableError, 20: UnknownColumn, 21: TableError, 50: SchemaError
    }  # fmt: skip
    assert "64 bits" in str(errors[21])
    assert [row["a"] for row in rows_of(log)] == [number for number in range(64) if number not in wrong]


def test_a_call_ends_at_what_is_refused(log: EventLog):
    queue = HeldQueue(log)
    first = queue.add([Insert([{"a": 1}]), Insert([{"a": 2}, {"a": 3}]), Insert([{"a": "x"}]), Insert([{"a": 4}])])
    second = queue.add([Insert([{"a": 5}])])
    found = queue.finish(first, second)
    assert found[0].counts == [1, 2]
    assert isinstance(found[0].error, TableError)
    assert found[1] == Inserted([1])
    assert [row["a"] for row in rows_of(log)] == [1, 2, 3, 5]


def test_keys_of_one_frame(log: EventLog, tmp_path: Path):
    stream_inserts("s", log)([[Insert([{"a": 0}] * 3, "old")]])
    queue = HeldQueue(log)
    begun = [
        queue.add([Insert([{"a": 1}, {"a": 2}], "k")]),
        queue.add([Insert([{"a": "wrong, and not looked at"}], "k")]),
        queue.add([Insert([{"a": "wrong"}], "later")]),
        queue.add([Insert([{"a": 3}], "later"), Insert([{"a": 9}], "old")]),
        queue.add([Insert([], "empty")]),
    ]
    found = queue.finish(*begun)
    assert [one.counts for one in found] == [[2], [2], [], [1, 3], [0]]
    assert [row["a"] for row in rows_of(log)] == [0, 0, 0, 1, 2, 3]
    log.close()
    again = open_log(tmp_path / "log")
    assert [again.marked(f"key {key}") for key in ("old", "k", "later", "empty")] == [3, 2, 1, 0]
    again.close()


def test_what_cannot_be_written_is_acknowledged_to_nobody(log: EventLog, monkeypatch: pytest.MonkeyPatch):
    def full(_: int) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(log, "_flush", full)
    queue = HeldQueue(log)
    found = queue.finish(*[queue.add([Insert([{"a": number}], f"{number}")]) for number in range(5)])
    assert {str(one.error) for one in found} == {"[STORE] the disk is full"}
    assert log.end == 0


def test_a_queue_that_nobody_leads_any_more(log: EventLog):
    queue = HeldQueue(log)
    queue.finish()
    found = queue.add([Insert([{"a": 1}])]).result(60)
    assert isinstance(found.error, ServerError)
    assert InsertQueue(stream_inserts("s", log), queue.workers).add(
        [Insert([{"a": 1}])], lambda _: None, here=True
    ).result(60) == Inserted([1])


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.integers(1 << 52, (1 << 53) + 2), st.floats(-2, 2),
    st.sampled_from([1 << 63, 1 << 70]),
    st.sampled_from(["1", "x", "1.5", "2024-01-01", "2024-01-01T12:00:00+02:00", "true"]),
    st.sampled_from([[1], {"x": 1}]),
)  # fmt: skip
_ROWS = st.lists(st.dictionaries(st.sampled_from("abcdz"), _VALUES, max_size=4), max_size=3)
_TABLES = st.sampled_from([
    pa.table({"a": [1, 2]}), pa.table({"a": ["3"]}), pa.table({"b": [1.5]}), pa.table({"z": [1]}),
    pa.table({"a": [1 << 62]}),
])  # fmt: skip
_CALLS = st.lists(st.lists(st.one_of(_ROWS, _ROWS, _TABLES), max_size=3), max_size=8)


@given(_CALLS)
def test_together_they_are_what_each_alone_is(calls: list[list[Any]]):
    def found(outcomes: list[Inserted]) -> list[tuple[list[int], str]]:
        return [(one.counts, f"{type(one.error).__name__}: {one.error}") for one in outcomes]

    inserts = [[Insert(rows) for rows in call] for call in calls]
    with tempfile.TemporaryDirectory() as folder:
        logs = [open_log(Path(folder) / name) for name in ("together", "alone")]
        together = found(stream_inserts("s", logs[0])(inserts))
        alone = []
        for call in inserts:
            counts: list[int] = []
            error: Exception | None = None
            for insert in call:
                [one] = stream_inserts("s", logs[1])([[insert]])
                counts += one.counts
                if (error := one.error) is not None:
                    break
            alone.append(Inserted(counts, error))
        assert together == found(alone)
        assert rows_of(logs[0]) == rows_of(logs[1])
        for log in logs:
            log.close()


def test_many_clients_in_threads(log: EventLog):
    workers = ThreadPoolExecutor(2)
    queue = InsertQueue(stream_inserts("s", log), workers)
    noted: list[Inserted] = []

    def insert(client: int) -> list[int]:
        counts = []
        for number in range(20):
            wrong = number % 7 == 3
            rows: list[dict[str, Any]] = [{"a": "x" if wrong else client * 100 + number}]
            done = queue.add([Insert(rows, f"{client} {number}")], noted.append, here=client % 2 == 0).result(60)
            assert isinstance(done.error, HeadraceError) == wrong
            counts += done.counts
        return counts

    with ThreadPoolExecutor(16) as clients:
        assert list(clients.map(insert, range(16))) == [[1] * 17] * 16
    assert len(noted) == 16 * 20
    values = [row["a"] for row in rows_of(log)]
    assert sorted(values) == [client * 100 + number for client in range(16) for number in range(20) if number % 7 != 3]
    for client in range(16):
        own = [value for value in values if value // 100 == client]
        assert own == sorted(own)
    workers.shutdown()
