"""Traces against a plain list: append, look up, forget, save and restore, in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.pieces import joined
from headrace.time import NEG_INFINITY
from headrace.trace import Segment, Trace

rows = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30), st.sampled_from([1, -1])), max_size=6)


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


class Twin(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.trace = Trace(compact)
        self.rows: list[tuple[int, int, int]] = []
        self.floor = NEG_INFINITY

    def expected(self, wanted: Callable[[tuple], bool] = bool) -> dict[int, int]:
        bag: Counter = Counter()
        for row in self.rows:
            if row[1] > self.floor and wanted(row):
                bag[row[0]] += row[2]
        return {key: weight for key, weight in bag.items() if weight}

    @rule(added=rows)
    def append(self, added: list[tuple[int, int, int]]):
        added = [row for row in added if row[1] > self.floor]
        keys = np.array([row[0] for row in added], np.int64)
        table = pa.table({"key": keys, "weight": pa.array([row[2] for row in added], pa.int64())})
        self.trace.append(table, keys.astype(np.uint64), np.array([row[1] for row in added], np.int64))
        self.rows += added

    @rule(time=st.integers(0, 30))
    def drop(self, time: int):
        self.trace.drop(time)
        self.floor = max(self.floor, time)

    @rule(keys=st.lists(st.integers(0, 6), min_size=1))
    def lookup(self, keys: list[int]):
        found = self.trace.lookup(np.array(keys, np.uint64))
        assert counted(found) == self.expected(lambda row: row[0] in keys)

    @rule(time=st.integers(0, 31))
    def until(self, time: int):
        assert counted(self.trace.until(time)) == self.expected(lambda row: row[1] <= time)

    @rule()
    def save_and_restore(self):
        saved = {segment.name: joined(segment.save()) for segment in self.trace.segments}
        names = [segment.name for segment in self.trace.segments]
        floor = self.trace.floor
        self.trace = Trace(compact)
        self.trace.restore(names, floor, {name: Segment.load(name, data) for name, data in saved.items()})

    @invariant()
    def scan(self):
        assert counted(self.trace.scan()) == self.expected()

    @invariant()
    def segments_are_few_and_sorted(self):
        sizes = [segment.table.num_rows for segment in self.trace.segments]
        assert all(segment.last_time > self.floor for segment in self.trace.segments)
        assert all((np.diff(s.hashes.astype(np.float64)) >= 0).all() for s in self.trace.segments)
        assert len(sizes) <= 12


TestTrace = Twin.TestCase
TestTrace.settings = settings(max_examples=40, stateful_step_count=25)
