"""Ingress against a twin that takes one row at a time: rows become events, and broken promises are caught.

How the rows of a channel are cut into blocks and batches must not show: not in what is late, nor in any count.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import BadRow, LateEvent
from headrace.events import physical_schema
from headrace.io.ingress import COUNTERS, Channel, resolve
from headrace.plan.nodes import Source
from headrace.plan.policies import LATE, Advance, Explicit, Heartbeat, Interval, Physical, Point
from headrace.plan.source import RE_NEW
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.testing.strategies import batch_sizes
from headrace.time import INFINITY, NEG_INFINITY

PAYLOAD = Schema.of("n LONG")
Rows = list[dict[str, Any]]


@dataclass
class Twin:
    """Rules 3.1 to 3.3, row by row."""

    policy: Any
    cti: int = NEG_INFINITY
    high: int = NEG_INFINITY
    #: The greatest finite CTI.
    promised: int = NEG_INFINITY
    accepted: Rows = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))

    def take(self, row: dict[str, Any]) -> None:
        self.counts["rows"] += 1
        if bad(row):
            self.counts["malformed"] += 1
            self.counts["diverted"] += 1
        elif row["kind"] == "cti":
            self.counts["ctis"] += 1
            self.counts["accepted"] += 1
            self.cti = max(self.cti, row["le"])
            self.promised = max(self.promised, row["le"]) if row["le"] != INFINITY else self.promised
        else:
            self._event(row)

    def _event(self, row: dict[str, Any]) -> None:
        sync = row["le"] if row["kind"] == "insert" else min(row["re"], row["re_new"])
        if sync < self.cti:
            self.counts["late"] += 1
            self._late(dict(row))
        else:
            self._accept(row)
        if self._is_trusted(row["le"]):
            self.high = max(self.high, row["le"])
        if isinstance(self.policy, Advance):
            self.cti = max(self.cti, (self.high - self.policy.delay) // self.policy.every * self.policy.every)

    def _is_trusted(self, time: int) -> bool:
        known = max(self.high, self.promised)
        skew = getattr(self.policy, "max_skew", None)
        return skew is None or known == NEG_INFINITY or time <= known + skew

    def _accept(self, row: dict[str, Any]) -> None:
        self.counts["accepted"] += 1
        self.accepted.append(row)

    def _late(self, row: dict[str, Any]) -> None:
        if self.policy.late == "divert":
            self.counts["diverted"] += 1
            return
        if self.policy.late == "drop":
            self.counts["dropped"] += 1
            return
        if row["kind"] == "insert":
            row["le"] = self.cti
            left = row["le"] < row["re"]
        else:  # the part of the correction that a promise does not protect
            left = row["re"] >= self.cti
            row["re_new"] = max(row["re_new"], self.cti)
            left = left and row["re_new"] != row["re"]
        self.counts["adjusted" if left else "diverted"] += 1
        if left:
            self._accept(row)


def bad(row: dict[str, Any]) -> bool:
    kind, le, re, re_new = row["kind"], row["le"], row["re"], row["re_new"]
    if kind not in ("insert", "retract", "cti") or le is None:
        return True
    if kind == "cti":
        return False
    if le in (INFINITY, NEG_INFINITY) or re is None or re <= le:
        return True
    return kind == "retract" and (re_new is None or re_new < le)


times = st.sampled_from([None, INFINITY, *range(25), *range(25)])
rows = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["insert", "insert", "retract", "cti", "oops", None]),
            "le": times,
            "re": times,
            "re_new": times,
            "n": st.integers(0, 3),
        }
    ),
    max_size=15,
)
policies = st.one_of(
    st.builds(Explicit, late=st.sampled_from(["divert", "drop", "adjust"])),
    st.builds(
        Advance,
        late=st.sampled_from(["divert", "drop", "adjust"]),
        delay=st.integers(0, 5),
        every=st.integers(1, 4),
    ),
    st.builds(Heartbeat, late=st.sampled_from(["divert", "drop", "adjust"])),
)


def table(some: Rows) -> pa.Table:
    return pa.Table.from_pylist(some, schema=physical_schema(PAYLOAD))


def source_of(policy: Any, lifetime: Any = None, bad_rows: str = "divert") -> Source:
    columns = Schema.of(physical_schema(PAYLOAD)) if lifetime is None else Schema.of("t LONG, u LONG, n LONG")
    return Source("rows", columns, lifetime or Physical(), policy, bad_rows)


def run(source: Source, some: pa.Table, sizes: tuple[int, ...], blocks: int = 1) -> tuple[list, dict, Progress, int]:
    """What one channel a batch accepts of rows, its counts, its progress at the end and how many rows it diverted."""
    progress, counts, accepted, diverted, start = Progress(), dict.fromkeys(COUNTERS, 0), [], 0, 0
    for size in sizes:
        channel = Channel(source, progress)
        for first in range(start, start + size, blocks):
            changes, side = channel.take(some.slice(first, min(blocks, start + size - first)))
            accepted += events_of(changes)
            diverted += len(side)
        start += size
        progress = resolve(source.policy, progress, [channel.report])
        counts = {name: counts[name] + channel.report.counts[name] for name in COUNTERS}
    return accepted, counts, progress, diverted


def events_of(changes: Any) -> list[tuple]:
    payload = changes.payload.to_pylist()
    times = zip(changes.le.tolist(), changes.re.tolist(), payload, strict=True)
    return [(le, re, row.pop(RE_NEW, None), row.get("n")) for le, re, row in times]


@given(rows, policies, st.integers(1, 4), st.data())
def test_differential_lateness_row_by_row(some: Rows, policy: Any, blocks: int, data: st.DataObject):
    twin = Twin(policy)
    for row in some:
        twin.take(row)
    sizes = data.draw(batch_sizes(len(some)))
    accepted, counts, progress, diverted = run(source_of(policy), table(some), sizes, blocks)
    expected = [(r["le"], r["re"], r["re_new"] if r["kind"] == "retract" else None, r["n"]) for r in twin.accepted]
    assert accepted == expected
    assert counts == twin.counts
    assert counts["rows"] == counts["accepted"] + counts["diverted"] + counts["dropped"]
    assert diverted == counts["diverted"]
    assert progress.cti == twin.cti
    assert progress.high == max(twin.high, twin.promised, twin.cti if twin.cti != INFINITY else NEG_INFINITY)


@given(st.lists(st.tuples(times, times, st.integers(0, 3)), max_size=12), policies, st.booleans(), st.data())
def test_differential_points_and_intervals(some: list[tuple], policy: Any, points: bool, data: st.DataObject):
    points = points and policy.late != "adjust"
    twin = Twin(policy)
    for t, u, n in some:
        end = u if not points else (None if t in (None, INFINITY) else t + 1)
        twin.take({"kind": "insert", "le": t, "re": end, "re_new": None, "n": n})
    lifetime = Point(col("t")) if points else Interval(col("t"), col("u"))
    raw = pa.table({"t": [r[0] for r in some], "u": [r[1] for r in some], "n": [r[2] for r in some]},
                   schema=Schema.of("t LONG, u LONG, n LONG").arrow)  # fmt: skip
    accepted, counts, progress, _ = run(source_of(policy, lifetime), raw, data.draw(batch_sizes(len(some))))
    assert accepted == [(r["le"], r["re"], None, r["n"]) for r in twin.accepted]
    assert counts == twin.counts
    assert progress.cti == twin.cti


@given(st.lists(st.integers(0, 100), min_size=1, max_size=12), st.integers(0, 40))
def test_differential_skew_guard_by_the_median_of_the_batch(starts: list[int], skew: int):
    policy = Advance(delay=3, max_skew=skew)
    raw = pa.table({"t": starts, "u": starts, "n": starts}, schema=Schema.of("t LONG, u LONG, n LONG").arrow)
    _, _, progress, _ = run(source_of(policy, Point(col("t"))), raw, (len(starts),), blocks=len(starts))
    trusted = [t for t in starts if t <= int(statistics.median(starts)) + skew]
    assert progress == Progress(max(trusted) - 3, max(trusted))


@given(rows, st.integers(0, 12), st.integers(0, 5), st.integers(1, 4), st.data())
def test_differential_skew_guard_by_what_was_trusted(
    some: Rows, skew: int, delay: int, blocks: int, data: st.DataObject
):
    """Once a time is trusted, batches and blocks do not show; the first row here is alone in its batch."""
    policy = Advance("drop", delay, max_skew=skew)
    some = [{"kind": "insert", "le": 3, "re": 4, "re_new": None, "n": 0}, *some]
    twin = Twin(policy)
    for row in some:
        twin.take(row)
    sizes = (1, *data.draw(batch_sizes(len(some) - 1)))
    _, counts, progress, _ = run(source_of(policy), table(some), sizes, blocks)
    assert counts == twin.counts
    assert progress.cti == twin.cti
    assert progress.high == max(twin.high, twin.promised, twin.cti if twin.cti != INFINITY else NEG_INFINITY)


def test_a_future_row_alone_in_its_batch_does_not_move_the_promise():
    starts = [100, 110, 10**9, 120, 10**9 + 1, 130]
    raw = pa.table({"t": starts, "u": starts, "n": starts}, schema=Schema.of("t LONG, u LONG, n LONG").arrow)
    source = source_of(Advance(delay=0, max_skew=50), Point(col("t")))
    accepted, counts, progress, _ = run(source, raw, (1,) * len(starts))
    assert [le for le, *_ in accepted] == starts
    assert counts["late"] == 0
    assert progress == Progress(130, 130)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=12), st.integers(0, 100), st.integers(0, 40), st.data())
def test_differential_skew_guard_by_a_clock(starts: list[int], now: int, skew: int, data: st.DataObject):
    policy = Advance(delay=0, max_skew=skew)
    raw = pa.table({"t": starts, "u": starts, "n": starts}, schema=Schema.of("t LONG, u LONG, n LONG").arrow)
    source, progress, start = source_of(policy, Point(col("t"))), Progress(), 0
    for size in data.draw(batch_sizes(len(starts))):
        channel = Channel(source, progress, clock=now)
        channel.take(raw.slice(start, size))
        start += size
        progress = resolve(policy, progress, [channel.report])
    trusted = [t for t in starts if t <= now + skew]
    assert progress.high == max(trusted, default=NEG_INFINITY)
    assert progress.cti == max(trusted, default=NEG_INFINITY)


def test_malformed_rows_do_not_weigh_in_the_median():
    some = [{"kind": "insert", "le": t, "re": re, "re_new": None, "n": 0}
            for t, re in [(1000, 1001), (1010, 1011), (None, 3), (None, 3), (5, 1)]]  # fmt: skip
    _, _, progress, _ = run(source_of(Advance(delay=0, max_skew=50)), table(some), (5,), blocks=5)
    assert progress.high == 1010


@pytest.mark.parametrize("late", LATE)
def test_late_rows_meet_their_policy(late: str):
    some = table([{"kind": "cti", "le": 5, "re": None, "re_new": None, "n": None},
                  {"kind": "insert", "le": 3, "re": 9, "re_new": None, "n": 1}])  # fmt: skip
    if late == "raise":
        with pytest.raises(LateEvent, match="5"):
            run(source_of(Explicit(late)), some, (2,))
        return
    accepted, counts, _, diverted = run(source_of(Explicit(late)), some, (1, 1))
    assert accepted == ([(5, 9, None, 1)] if late == "adjust" else [])
    assert diverted == (late == "divert")
    assert counts["late"] == 1


def test_bad_rows_can_be_errors():
    some = table([{"kind": "insert", "le": 3, "re": 3, "re_new": None, "n": 1}])
    with pytest.raises(BadRow, match="lifetime"):
        run(source_of(Explicit(), bad_rows="raise"), some, (1,))


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=8), st.integers(1, 7), st.integers(0, 4))
def test_differential_heartbeat_follows_a_scripted_clock(steps: list[tuple[int, int]], every: int, delay: int):
    """One row a batch; the clock moves before each. The promise of a batch binds the next one."""
    clock, now = [], 0
    for _, pause in [*steps, (0, 0)]:
        now += pause
        clock.append(now)
    ticking = {"batch": 0}
    some = [{"kind": "insert", "le": t, "re": t + 1, "n": t} for t, _ in steps]
    stream = hr.events(some, PAYLOAD.arrow, progress=Heartbeat("drop", every, delay), batches=[1] * len(some))
    cti, kept = NEG_INFINITY, 0
    for number, (t, _) in enumerate(steps):
        kept += t >= cti
        cti = max(cti, (clock[number] - delay) // every * every)

    def tick() -> int:
        ticking["batch"] += 1
        return clock[min((ticking["batch"] - 1) // 2, len(clock) - 1)]  # asked once by the intake and once by the host

    if some:
        assert stream.cht(clock=tick).num_rows == kept


@given(st.lists(st.integers(0, 30), max_size=12), st.data())
def test_an_ordered_input_promises_its_last_time(starts: list[int], data: st.DataObject):
    raw = pa.table({"t": starts, "u": starts, "n": starts}, schema=Schema.of("t LONG, u LONG, n LONG").arrow)
    source = source_of(hr.ordered(late="drop"), Point(col("t")))
    accepted, counts, progress, _ = run(source, raw, data.draw(batch_sizes(len(starts))))
    highest = NEG_INFINITY
    kept = [t for t in starts if t >= highest and [highest := max(highest, t)]]
    assert [le for le, *_ in accepted] == kept
    assert counts["late"] == len(starts) - len(kept)
    assert progress.cti == max(starts, default=NEG_INFINITY)
