"""Extremes and rankings over snapshots find the next event in bands of an order, wherever the bands are cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.changes import Changes
from headrace.operators.kernel import Kernel
from headrace.operators.per_window.bands import Bands
from headrace.operators.registry import kernel_of
from headrace.plan.nodes import Top
from headrace.progress import Progress
from headrace.testing.strategies import SCHEMA, batch_sizes, buckets, physical_streams, tables
from headrace.testing.verify.differential import differential_reference
from headrace.time import INFINITY
from headrace.trace import stored_segments

#: The bands stay small for all examples of a test; each test has a share of the examples.
FIXED = settings(
    max_examples=max(3, settings().max_examples // 6), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(params=[(1, 1), (2, 4)], ids=["of one event", "of a few"])
def small_bands(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bands, "size", request.param[0])
    monkeypatch.setattr(Bands, "most", request.param[1])


class Total(hr.IncrementalAggregate):
    """A sum whose windows are read when items are taken back."""

    invertible = False
    input = "i LONG"
    output = "LONG"

    def initial(self) -> int:
        return 0

    def add(self, state: int, items: list[int | None]) -> int:
        return (state + sum(item or 0 for item in items)) % 1000

    def compute(self, state: int) -> int:
        return state


ANSWERS = {
    "min": lambda rows: rows.aggregate(low=hr.min("x"), n=hr.count("x")),
    "both ends": lambda rows: rows.aggregate(low=hr.min("x"), high=hr.max("x"), s=hr.sum("i")),
    "two arguments": lambda rows: rows.aggregate(low=hr.min("x"), high=hr.max("i"), least=hr.min("k")),
    "with a module": lambda rows: rows.aggregate(high=hr.max("i"), t=Total().of("i")),
    "top 2": lambda rows: rows.top(2, ["i", "x"], descending=[True, False]),
    "top 1": lambda rows: rows.top(1, "k", descending=False),
}


@pytest.mark.usefixtures("small_bands")
@pytest.mark.parametrize("answer", ANSWERS)
@FIXED
@given(physical_streams(max_events=16), st.data(), buckets())
def test_differential_in_bands(answer: str, events: Any, data: st.DataObject, n: int):
    stream = hr.events(tables(events), SCHEMA, batches=data.draw(batch_sizes(len(events))))
    key = data.draw(st.sampled_from([None, None, "k"]))
    rows = stream.group_by(key) if key else stream
    node = ANSWERS[answer](rows.window(hr.snapshot())).node
    skip = data.draw(st.integers(0, 3)) if isinstance(node, Top) else 0
    differential_reference(replace(node, skip=skip) if isinstance(node, Top) else node, buckets=n)


def test_a_nan_goes_and_the_others_stay():
    """NaN is counted beside the extremes, and the count goes down."""
    rows = pa.table({
        "kind": ["insert", "retract", "insert", "retract"], "le": [0, 0, 0, 0], "re": [1, 1, 2, 2],
        "re_new": [None, 2, None, 1], "id": [1, 1, 2, 1], "x": [float("nan"), float("nan"), 0.0, float("nan")],
    })  # fmt: skip
    stream = hr.events(rows, "id LONG, x DOUBLE", batches=(1, 1, 1, 1))
    differential_reference(stream.window(hr.snapshot()).aggregate(low=hr.min("x"), high=hr.max("x")).node, buckets=1)


# --- long streams of kernels ----------------------------------------------------------------------------------------


def emptied(kind: str) -> pa.Table:
    times = {name: pa.array([], pa.int64()) for name in ("le", "re", "re_new")}
    return pa.table(
        {"kind": pa.array([], pa.string()), **times, "g": pa.array([], pa.int64()), "v": pa.array([], kind)}
    )


def batches(seed: int, kind: pa.DataType, count: int = 20) -> list[tuple[Changes, int]]:
    """Batches that insert events that last, with equal values, nulls and NaN, and end or take back some of them."""
    rng = np.random.default_rng(seed)
    few = [float("nan")] if kind == pa.float64() else []
    alive: list[tuple[int, int, Any]] = []
    found = []
    for time in range(0, 10 * count, 10):
        rows = []
        for _ in range(rng.integers(1, 12)):
            value = rng.choice([None, *few, *range(20)]) if rng.random() < 0.5 else int(rng.integers(0, 1000))
            alive.append((time + int(rng.integers(0, 10)), int(rng.integers(0, 2)), value))
            rows.append((*alive[-1], INFINITY, 1))
        # Often the least ones go: these are the first of their bands.
        alive.sort(key=lambda event: (event[2] is None, str(event[2]) == "nan", event[2] or 0))
        for _ in range(min(int(rng.integers(0, 14)), len(alive))):
            event = alive.pop(0 if rng.random() < 0.6 else int(rng.integers(0, len(alive))))
            end = max(time, event[0])
            rows += [(*event, INFINITY, -1)] + [(*event, end, 1)] * (end > event[0])
        le, g, v, re, weight = zip(*rows, strict=True)
        payload = pa.table({"g": pa.array(g), "v": pa.array(v, kind, from_pandas=False)})
        delta = Changes(*(np.array(column, np.int64) for column in (le, re, weight)), payload)
        found.append((delta, time))
    return found


def restarted(kernel: Kernel, *without: str) -> Kernel:
    """A new kernel with the saved state, possibly without the traces that an earlier Headrace did not have."""
    saved = {name: trace.saved() for name, trace in kernel.traces.items() if name not in without}
    blocks = {s.name: b"".join(s.save()) for trace in kernel.traces.values() for s in trace.segments}
    new = kernel_of(kernel.node)
    new.restore(dict(kernel.scalars), saved, stored_segments(saved.values(), blocks.__getitem__))
    return new


def history(outputs: list[Changes]) -> dict[Any, int]:
    rows = Changes.concat(outputs).consolidate()
    texts = map(str, rows.payload.to_pylist())
    return dict(zip(zip(rows.le.tolist(), rows.re.tolist(), texts, strict=True), rows.weight.tolist(), strict=True))


def histories(node: Any, seed: int, kind: pa.DataType, *, restarts: bool) -> list[dict[Any, int]]:
    """What is known after each batch."""
    kernel, outputs, result = kernel_of(node), [], []
    for delta, cti in batches(seed, kind):
        outputs.append(kernel.step([delta], [Progress(cti, cti + 9)])[0])
        result.append(history(outputs))
        kernel = restarted(kernel) if restarts else kernel
    return result


@pytest.mark.parametrize("kind", ["double", "int64"])
@pytest.mark.parametrize("answer", ["extremes", "top", "later", "module"])
@FIXED
@given(st.integers(0, 10**6), st.booleans())
def test_differential_bands_and_one_band(kind: str, answer: str, seed: int, grouped: bool):
    stream = hr.events(emptied(kind))
    rows = (stream.group_by("g") if grouped else stream).window(hr.snapshot())
    node = {
        "extremes": lambda: rows.aggregate(low=hr.min("v"), high=hr.max("v"), n=hr.count(), last=hr.max("g")),
        "top": lambda: rows.top(3, "v"),
        "later": lambda: rows.top(2, "v", descending=False),
        "module": lambda: rows.aggregate(t=Total().of("g"), low=hr.min("v")),
    }[answer]().node
    node = replace(node, skip=2) if answer == "later" else node
    arrow = pa.type_for_alias(kind)
    whole = histories(node, seed, arrow, restarts=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bands, "size", 3)
        patch.setattr(Bands, "most", 6)
        assert histories(node, seed, arrow, restarts=True) == whole


def test_a_checkpoint_without_bands_goes_on(monkeypatch: pytest.MonkeyPatch):
    node = hr.events(emptied("double")).window(hr.snapshot()).aggregate(low=hr.min("v"), high=hr.max("g")).node
    outputs, kernel = [], kernel_of(node)
    for number, (delta, cti) in enumerate(batches(1, pa.float64())):
        outputs.append(kernel.step([delta], [Progress(cti, cti + 9)])[0])
        if number == 10:
            assert kernel.traces["bounds"].rows == kernel.traces["bounds1"].rows == 0  # nothing is large so far
            kernel = restarted(kernel, "bounds", "bounds1", "events1")
            monkeypatch.setattr(Bands, "size", 3)
            monkeypatch.setattr(Bands, "most", 6)
    assert kernel.traces["bounds"].rows > 0
    assert history(outputs) == histories(node, 1, pa.float64(), restarts=False)[-1]


@pytest.mark.parametrize("answer", ["min", "top"])
def test_the_next_one_is_found_among_a_few(answer: str, monkeypatch: pytest.MonkeyPatch):
    """The least of 50,000 events goes in every batch; only the first time all of them are read."""
    rows = hr.events(emptied("int64")).window(hr.snapshot())
    node = (rows.aggregate(low=hr.min("v")) if answer == "min" else rows.top(2, "v", descending=False)).node
    kernel, count = kernel_of(node), 50_000
    values = np.random.default_rng(1).permutation(count)
    zero = np.zeros(count, np.int64)
    payload = pa.table({"g": zero, "v": values})
    kernel.step([Changes.inserts(zero, zero + INFINITY, payload)], [Progress(0, 0)])
    found: list[int] = []
    read = Bands._events
    monkeypatch.setattr(Bands, "_events", lambda self, hashes: found.append(len(r := read(self, hashes))) or r)
    for time in range(1, 20):
        gone = pa.table({"g": [0], "v": [time - 1]})
        ends, weights = np.array([INFINITY, time]), np.array([-1, 1])
        delta = Changes(np.zeros(2, np.int64), ends, weights, pa.concat_tables([gone, gone]))
        kernel.step([delta], [Progress(time, time)])
    assert found[0] == count
    assert max(found[1:]) <= Bands.most
