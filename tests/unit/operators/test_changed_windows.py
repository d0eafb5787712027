"""A change costs what it changes: modules are called for windows that differ, with the items that came and went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.changes import Changes
from headrace.operators.kernel import Kernel
from headrace.operators.per_window.cells import cells_meeting, cells_of
from headrace.operators.per_window.grid import GridKernel
from headrace.operators.per_window.kernel import WindowKernel
from headrace.operators.per_window.snapshot import SnapshotWindowKernel
from headrace.operators.registry import kernel_of
from headrace.plan.windows import Hopping
from headrace.progress import Progress
from headrace.time import INFINITY
from headrace.trace import stored_segments

#: What modules were called with, since a test began.
calls: list[tuple[Any, ...]] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


class Seen(hr.Aggregate):
    """How many values there are."""

    input = "v LONG"
    output = "LONG"

    def compute(self, values: list[int]) -> int:
        calls.append(("compute", tuple(values)))
        return len(values)


class SeenEvents(Seen):
    """The same, for events in their windows."""

    time_sensitive = True
    within_window = True

    def compute(self, events: list[Any], window: Any) -> int:
        calls.append(("compute", window.le, [(e.le, e.re) for e in events]))
        return len(events)


class Total(hr.IncrementalAggregate):
    """The sum of the values."""

    input = "v LONG"
    output = "LONG"

    def initial(self) -> int:
        return 0

    def add(self, state: int, items: list[int]) -> int:
        calls.append(("add", tuple(items)))
        return state + sum(items)

    def remove(self, state: int, items: list[int]) -> int:
        calls.append(("remove", tuple(items)))
        return state - sum(items)

    def compute(self, state: int) -> int:
        calls.append(("compute", state))
        return state


SCHEMA = "v LONG"


def changes(*rows: tuple[int, int, int, int]) -> Changes:
    """Changes of `(le, re, v, weight)`."""
    le, re, v, weight = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return Changes(le, re, weight, pa.table({"v": v}))


def stream() -> hr.Stream:
    return hr.events(pa.table({"kind": pa.array([], pa.string()), "le": pa.array([], pa.int64()),
                               "re": pa.array([], pa.int64()), "re_new": pa.array([], pa.int64()),
                               "v": pa.array([], pa.int64())}))  # fmt: skip


def give(kernel: Kernel, *batches: tuple[Changes, int, int]) -> list[Changes]:
    """The outputs for batches of changes, each with a CTI and the highest time."""
    return [kernel.step([delta], [Progress(cti, high)])[0] for delta, cti, high in batches]


def texts(outputs: Changes) -> list[str]:
    outputs = outputs.consolidate()
    values = zip(
        outputs.weight.tolist(), outputs.le.tolist(), outputs.re.tolist(), outputs.payload.to_pylist(), strict=True
    )
    return sorted(f"{w:+} [{le}, {re}) {' '.join(map(str, row.values()))}" for w, le, re, row in values)


NOW = (0, 40)


def test_a_retraction_calls_a_module_only_for_windows_that_see_it():
    node = stream().window(hr.tumbling(5)).aggregate(n=SeenEvents().of("v")).node
    kernel = kernel_of(node)
    give(kernel, (changes((1, 40, 7, 1)), *NOW))
    calls.clear()
    (out,) = give(kernel, (changes((1, 40, 7, -1), (1, 33, 7, 1)), *NOW))
    assert calls == [("compute", 30, [(1, 33)])]
    assert texts(out) == ["-1 [35, 40) 1"]


def test_a_retraction_calls_no_module_that_sees_no_lifetimes():
    kernel = kernel_of(stream().window(hr.tumbling(5)).aggregate(n=Seen().of("v")).node)
    give(kernel, (changes((1, 40, 7, 1)), *NOW))
    calls.clear()
    (out,) = give(kernel, (changes((1, 40, 7, -1), (1, 33, 7, 1)), *NOW))
    assert calls == []
    assert texts(out) == ["-1 [35, 40) 1"]
    assert texts(give(kernel, (changes((1, 33, 7, -1), (1, 34, 7, 1)), *NOW))[0]) == []


@pytest.mark.parametrize("window", [hr.tumbling(100), hr.snapshot()])
def test_an_incremental_module_gets_what_came_and_went(window: Any):
    kernel = kernel_of(stream().window(window).aggregate(t=Total().of("v"), n=hr.count(), low=hr.min("v")).node)
    give(kernel, (changes(*((0, 100, v, 1) for v in range(50))), 0, 200))
    calls.clear()
    (out,) = give(kernel, (changes((0, 100, 60, 1), (0, 100, 61, 1), (0, 100, 20, -1)), 0, 200))
    assert [call for call in calls if call[0] != "compute"] == [("remove", (20,)), ("add", (60, 61))]
    total = sum(range(50))
    assert texts(out) == [f"+1 [0, 100) {total + 101} 51 0", f"-1 [0, 100) {total} 50 0"]
    assert texts(give(kernel, (changes((0, 100, 0, -1)), 0, 200))[0])[0] == f"+1 [0, 100) {total + 101} 50 1"


def test_a_snapshot_that_is_split_or_joined_keeps_its_state():
    kernel = kernel_of(stream().window(hr.snapshot()).aggregate(t=Total().of("v")).node)
    give(kernel, (changes(*((0, INFINITY, v, 1) for v in range(50))), 0, 0))
    calls.clear()
    give(kernel, (changes((10, 20, 60, 1)), 5, 10))
    assert [call for call in calls if call[0] != "compute"] == [("add", (60,))]
    calls.clear()
    (out,) = give(kernel, (changes((10, 20, 60, -1)), 10, 10))
    assert [call for call in calls if call[0] != "compute"] == []
    assert texts(out) == ["+1 [0, 9223372036854775807) 1225", "-1 [0, 10) 1225", "-1 [10, 20) 1285",
                          "-1 [20, 9223372036854775807) 1225"]  # fmt: skip


@pytest.mark.parametrize("window", [hr.tumbling(100), hr.snapshot()])
def test_a_ranking_continues_from_its_outputs(window: Any, monkeypatch: pytest.MonkeyPatch):
    kernel = kernel_of(stream().window(window).top(2, "v").node)
    give(kernel, (changes(*((0, 100, v, 1) for v in range(50))), 0, 200))
    name = "_read_members" if isinstance(kernel, GridKernel) else "_read"
    read, rows = getattr(kernel, name), []
    monkeypatch.setattr(kernel, name, lambda work, some: rows.append(len(some)) or read(work, some))
    (out,) = give(kernel, (changes((0, 100, 60, 1), (0, 100, 3, -1)), 0, 200))
    assert texts(out) == ["+1 [0, 100) 60", "-1 [0, 100) 48"]
    assert rows == [0]
    (out,) = give(kernel, (changes((0, 100, 60, -1)), 0, 200))
    assert texts(out) == ["+1 [0, 100) 48", "-1 [0, 100) 60"]
    assert rows == ([0, 1] if isinstance(kernel, GridKernel) else [0, 0])  # snapshots have their members in order


def test_a_window_whose_module_failed_is_made_again():
    class Brittle(Total):
        def compute(self, state: int) -> int:
            return 100 // (state - 3)

    node = stream().window(hr.tumbling(10), on_error="skip").aggregate(t=Brittle().of("v")).node
    kernel = kernel_of(node)
    first, second = give(kernel, (changes((0, 1, 1, 1), (0, 1, 2, 1)), 0, 20), (changes((0, 1, 2, 1)), 0, 20))
    assert texts(first) == []
    assert texts(second) == ["+1 [0, 10) 50"]


# --- checkpoints of an earlier version ------------------------------------------------------------------------------


def saved_and_restored(old: Kernel, new: Kernel) -> Kernel:
    """The second kernel with the state that the first one saves."""
    traces = {name: trace.saved() for name, trace in old.traces.items()}
    blocks = {s.name: b"".join(s.save()) for trace in old.traces.values() for s in trace.segments}
    new.restore(dict(old.scalars), traces, stored_segments(traces.values(), blocks.__getitem__))
    return new


BATCHES = (
    (changes((1, 40, 7, 1), (2, 3, 1, 1), (2, 3, 1, 1), (4, INFINITY, 9, 1)), 0, 4),
    (changes((6, 18, 2, 1), (1, 40, 7, -1), (1, 33, 7, 1)), 1, 13),
    (changes((6, 18, 2, -1), (6, 24, 2, 1), (14, 15, 5, 1)), 13, 26),
    (changes((27, 60, 4, 1), (1, 33, 7, -1), (1, 31, 7, 1)), 25, 27),
    (changes((30, 31, 4, 1)), 29, 50),
    (changes((51, 52, 4, 1)), INFINITY, 51),
)

QUERIES: dict[str, Callable[[Any], hr.Stream]] = {
    "plain": lambda w: w.aggregate(n=Seen().of("v")),
    "incremental": lambda w: w.aggregate(t=Total().of("v"), n=hr.count()),
    "extremes": lambda w: w.aggregate(low=hr.min("v"), high=hr.max("v"), s=Total().of("v")),
    "top": lambda w: w.top(2, "v"),
    "contents": lambda w: w.contents(),
}


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("window", [hr.tumbling(5), hr.hopping(12, 4), hr.snapshot()], ids=str)
@pytest.mark.parametrize("cut", range(1, len(BATCHES)))
def test_a_state_of_the_general_kernel_is_continued(query: str, window: Any, cut: int):
    node = QUERIES[query](stream().window(window)).node
    general = WindowKernel(node)
    expected = [texts(out) for out in give(WindowKernel(node), *BATCHES)]
    before = give(general, *BATCHES[:cut])
    kernel = saved_and_restored(general, kernel_of(node))
    assert [texts(out) for out in [*before, *give(kernel, *BATCHES[cut:])]] == expected


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("window", [hr.tumbling(5), hr.hopping(12, 4), hr.snapshot()], ids=str)
def test_differential_kernels_agree_over_restarts(query: str, window: Any):
    node = QUERIES[query](stream().window(window)).node
    expected = [texts(out) for out in give(WindowKernel(node), *BATCHES)]
    kernel, found = kernel_of(node), []
    assert isinstance(kernel, (GridKernel, SnapshotWindowKernel)) or query in ("contents", "plain")
    for batch in BATCHES:
        kernel = saved_and_restored(kernel, kernel_of(node))
        found += give(kernel, batch)
    assert [texts(out) for out in found] == expected


# --- cells ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lifetimes", [[(0, 1), (3, 9), (-7, -6), (-5, 200), (17, INFINITY)]])
def test_every_window_of_an_event_finds_its_cell(lifetimes: Sequence[tuple[int, int]]):
    grid = Hopping(3, 2)
    le, re = (np.array(times) for times in zip(*lifetimes, strict=True))
    first, last = grid.first(le), grid.last(le, re)
    level, cell = cells_of(first, last)
    for i in range(len(le)):
        windows = np.arange(first[i], min(last[i], first[i] + 150) + 1)
        row, levels, cells = cells_meeting(windows, 10)
        assert set(row[(levels == level[i]) & (cells == cell[i])]) == set(range(len(windows)))
