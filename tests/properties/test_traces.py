"""Traces against a plain list: append, look up, forget, save and restore, in any order.

Segments are so small that merges, clean-up and restarts meet each other half done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.pieces import joined
from headrace.segments import Segment
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import EFFORT, SAVED, Trace, stored_segments

KEYS, TIMES = 40, 30
times = st.one_of(st.integers(0, TIMES), st.just(INFINITY))
rows = st.lists(st.tuples(st.integers(0, KEYS), times, st.sampled_from([1, 1, -1])), max_size=12)


def compact(table: pa.Table) -> pa.Table:
    """Equal rows summed, as owners of traces do."""
    merged = table.group_by(["key", "__hash", "__time"], use_threads=False).aggregate([("weight", "sum")])
    merged = merged.rename_columns(["key", "__hash", "__time", "weight"]).select(table.column_names)
    return merged.filter(pa.compute.not_equal(merged["weight"], 0))


def counted(table: pa.Table | None) -> dict[int, int]:
    bag: Counter = Counter()
    for row in table.to_pylist() if table is not None else []:
        bag[row["key"]] += row["weight"]
    return {key: weight for key, weight in bag.items() if weight}


class SmallTrace(Trace):
    """A trace of segments of a few rows."""

    block = 4


def hashes_of(keys: list[int]) -> np.ndarray:
    """Some keys have the same hash; the highest ones do not fit into signed numbers."""
    return np.array([2**64 - 1 - key // 2 if key % 4 == 0 else key // 2 for key in keys], np.uint64)


class Twin(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.trace: Trace = SmallTrace(compact)
        self.rows: list[tuple[int, int, int]] = []
        self.floor = NEG_INFINITY

    def expected(self, wanted: Callable[[tuple], bool] = bool) -> dict[int, int]:
        bag: Counter = Counter()
        for row in self.rows:
            if row[1] > self.floor and wanted(row):
                bag[row[0]] += row[2]
        return {key: weight for key, weight in bag.items() if weight}

    @initialize(most=st.sampled_from([1, 3, 16]), ordered=st.booleans())
    def sizes(self, most: int, ordered: bool):
        """How large segments are, and whether so few rows have an order by time."""
        patch = pytest.MonkeyPatch()
        patch.setattr(SmallTrace, "block", most)
        patch.setattr("headrace.segments._FEW", 1 if ordered else 1024)
        self.patch = patch

    def teardown(self) -> None:
        self.patch.undo()

    @rule(added=rows)
    def append(self, added: list[tuple[int, int, int]]):
        keys = [row[0] for row in added]
        table = pa.table({"key": pa.array(keys, pa.int64()), "weight": pa.array([row[2] for row in added], pa.int64())})
        self.trace.append(table, hashes_of(keys), np.array([row[1] for row in added], np.int64))
        self.rows += [row for row in added if row[1] > self.floor]

    @rule(time=st.integers(0, TIMES))
    def drop(self, time: int):
        self.trace.drop(time)
        self.floor = max(self.floor, time)

    @rule(keys=st.lists(st.integers(0, KEYS + 1), max_size=30))
    def lookup(self, keys: list[int]):
        wanted = hashes_of(keys)
        found = self.trace.lookup(wanted)
        assert counted(found) == self.expected(lambda row: hashes_of([row[0]])[0] in wanted)
        assert self.trace.count(wanted) == (0 if found is None else found.num_rows)

    @rule(time=st.one_of(st.integers(-1, TIMES + 1), st.just(INFINITY)))
    def until(self, time: int):
        assert counted(self.trace.until(time)) == self.expected(lambda row: row[1] <= time)

    @rule()
    def save_and_restore(self):
        stored = {segment.name: joined(segment.save()) for segment in self.trace.segments}
        saved, rows = self.trace.saved(), self.trace.rows
        self.trace = SmallTrace(compact)
        self.trace.restore(saved, stored_segments([saved], stored.__getitem__))
        assert self.trace.rows == rows
        assert self.trace.saved() == saved

    @rule()
    def store_segments(self):
        for segment in self.trace.segments:
            data = joined(segment.save())
            segment.move(lambda data=data: data)

    @invariant()
    def scan(self):
        found = self.trace.scan()
        assert counted(found) == self.expected()
        assert self.trace.rows == (0 if found is None else found.num_rows)

    @invariant()
    def runs_are_few_and_parts_disjoint(self):
        runs = [run.parts for run in self.trace._runs]
        assert len(runs) <= 14
        for parts in runs:
            assert all(before.high < after.low for before, after in pairwise(parts))
            for part in parts:
                hashes, at = (array[part.start :] for array in part.segment.arrays)
                assert (hashes[1:] >= hashes[:-1]).all()
                assert (part.low, part.high) == (int(hashes[0]), int(hashes[-1]))
                assert part.living == np.count_nonzero(at > self.floor) > 0
                assert part.first <= at[at > self.floor].min()


TestTrace = Twin.TestCase
TestTrace.settings = settings(max_examples=max(15, settings().max_examples * 3 // 5), stateful_step_count=40)


def filled(trace: Trace, batches: int, size: int, keys: int = 2**20) -> list[int]:
    """Append batches of rows; how many rows of segments each of them wrote."""
    random, known, written = np.random.default_rng(0), set(), []
    for number in range(batches):
        chosen = random.integers(0, keys, size)
        rows = pa.table({"key": chosen, "weight": np.ones(size, np.int64)})
        trace.append(rows, chosen.astype(np.uint64) << np.uint64(40), np.full(size, number))
        segments = {segment.name: segment for segment in trace.segments}
        written.append(sum(segment.about.rows for name, segment in segments.items() if name not in known))
        known |= set(segments)
    return written


@pytest.mark.parametrize("size", [10, 100, 1000])
def test_work_per_batch_is_bounded_while_state_grows(size: int):
    trace = SmallTrace(lambda rows: rows)
    trace.block = 200
    written = filled(trace, 300, size)
    assert len(trace._runs) <= 20
    assert sum(written) <= 6 * 300 * size
    # However large the runs are, a merge moves EFFORT rows for each row of a batch, and a slice beyond.
    merges = 3
    assert max(written) <= (1 + EFFORT * merges) * size + 2 * merges * trace.block
    assert max(written[200:]) <= 2 * max(written[20:100])


def test_only_segments_that_may_have_rows_are_read():
    trace = SmallTrace(lambda rows: rows)
    trace.block = 100
    filled(trace, 50, 100)
    stored = {segment.name: joined(segment.save()) for segment in trace.segments}
    read = []

    def reading(name: str) -> bytes | pa.Buffer:
        read.append(name)
        return stored[name]

    def restored() -> Trace:
        fresh = SmallTrace(lambda rows: rows)
        fresh.restore(trace.saved(), stored_segments([trace.saved()], reading))
        read.clear()
        return fresh

    assert len(stored) > 30
    assert restored().rows == 5000
    assert not read
    some = trace.segments[0].arrays[0][:2]
    assert restored().lookup(some) is not None
    assert 0 < len(read) <= 2 * len(trace._runs)
    assert restored().until(-1) is None
    restored().drop(-1)
    assert not read
    restored().append(pa.table({"key": [1], "weight": [1]}), np.array([5], np.uint64), np.array([99]))
    assert len(read) <= 3 * len(trace._runs), "only what the next slices merge"


def test_traces_of_earlier_versions_had_a_run_for_each_segment():
    trace = SmallTrace(compact)
    table = pa.table({"key": [1, 2], "weight": [1, 1], "__hash": np.array([1, 2], np.uint64), "__time": [5, 9]})
    segments = {name: Segment.load(name, joined(Segment.of(table).save())) for name in ("a", "b")}
    trace.restore({"floor": 6, "segments": ["a", "b"]}, segments)
    assert trace.rows == 2
    assert counted(trace.scan()) == {2: 2}
    assert set(trace.saved()) == set(SAVED)


def test_a_hash_of_very_many_rows_is_one_segment():
    trace = SmallTrace(lambda rows: rows)
    for _ in range(5):
        trace.append(pa.table({"key": range(100)}), np.zeros(100, np.uint64), np.full(100, 5))
    assert trace.rows == 500
    found = trace.lookup(np.zeros(1, np.uint64))
    assert found is not None
    assert found.column("key").to_pylist() == [*range(100)] * 5, "older rows come first, in their order"
