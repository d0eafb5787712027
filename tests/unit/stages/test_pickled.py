"""State of users' modules is pickled: it is marked, and loaded only by the operator and query that saved it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace import col
from headrace.api.running import outputs_of
from headrace.errors import CheckpointError
from headrace.host.driving.driver import Driver
from headrace.host.driving.in_process import InProcessExecutor
from headrace.host.driving.plan import Job
from headrace.host.driving.publish import Publisher
from headrace.host.local.run import Runner, SavedRun, batches_of
from headrace.io.sinks import Memory
from headrace.stages.cut import Line, line_of
from headrace.store.storage import LocalStorage
from headrace.trace import Segment

ROWS = [{"le": t, "re": t + 1, "k": "ab"[t % 2], "v": t} for t in range(20)]
STREAM = hr.events(ROWS, progress=hr.ordered())  # state of tuples is kept as of the CTI
LOADED: list[str] = []


class Total:
    """A state that says when it is unpickled."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def __setstate__(self, state: dict[str, int]) -> None:
        LOADED.append("a state")
        self.__dict__.update(state)


class Summed(hr.IncrementalAggregate):
    """A sum with a state of its own."""

    input = "value LONG"
    output = "LONG"

    def initial(self) -> Total:
        return Total()

    def add(self, state: Total, values: list[int]) -> Total:
        return Total(state.value + sum(values))

    def remove(self, state: Total, values: list[int]) -> Total:
        return Total(state.value - sum(values))

    def compute(self, state: Total) -> int:
        return state.value


class Merged(Summed):
    """The same, algebraic."""

    def merge(self, state: Total, other: Total) -> Total:
        return Total(state.value + other.value)


class Listed(hr.IncrementalOperator):
    """Gives the sum of its window."""

    input = "value LONG"
    output = "total LONG"

    def initial(self) -> Total:
        return Total()

    def add(self, state: Total, values: list[int]) -> Total:
        return Total(state.value + sum(values))

    def remove(self, state: Total, values: list[int]) -> Total:
        return Total(state.value - sum(values))

    def compute(self, state: Total) -> list[int]:
        return [state.value]


class Whole(hr.Aggregate):
    """A sum without a state."""

    input = "value LONG"
    output = "LONG"

    def compute(self, values: list[int]) -> int:
        return sum(values)


def windowed(module: Any, stream: hr.Stream = STREAM) -> hr.Stream:
    return stream.group_by("k").window(hr.hopping(8, 2)).aggregate(s=module.of("v"))


def over(module: Any, **frame: Any) -> hr.Stream:
    return STREAM.group_by("k").over(**frame).aggregate(s=module.of("v"))


def line(*streams: hr.Stream) -> Line:
    return line_of(outputs_of({f"out{i}": stream.node for i, stream in enumerate(streams)}))


def half(stream: hr.Stream, *more: hr.Stream) -> SavedRun:
    """What is saved in the middle of a run."""
    runner = Runner(line(stream, *more), 1, None)
    (source,) = runner.line.sources
    for blocks in list(batches_of(source, 5))[:3]:
        runner.round({source.fingerprint: blocks})
    return runner.save()


def saved_traces(saved: SavedRun) -> Iterator[tuple[dict[str, Any], list[pa.Table]]]:
    for stage in saved.stages:
        for state, segments in stage:
            for operator in state["operators"].values():
                for trace in operator["traces"].values():
                    yield trace, [Segment.load(name, segments[name]).table for name in trace["segments"]]


def holds_pickles(tables: list[pa.Table]) -> bool:
    """Whether a value somewhere contains the first bytes of a pickle."""
    for column in (column for table in tables for column in table.columns):
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            texts = [v.encode("latin-1", "replace") if isinstance(v, str) else v for v in column.to_pylist() if v]
            if any(b"\x80\x04\x95" in text or b"\x80\x05\x95" in text for text in texts):
                return True
    return False


PICKLING: dict[str, Callable[[], hr.Stream]] = {
    "windows": lambda: windowed(Summed()),
    "merged from panes": lambda: windowed(Merged()),
    "tuple by tuple": lambda: STREAM.group_by("k").over(rows=3).operate(Listed(), value="v"),
    "tumbles": lambda: over(Summed(), rows=3, slide=4),
    "panes of tuples": lambda: over(Merged(), rows=3, slide=2),
    "in a loop": lambda: hr.recurse(
        STREAM, lambda found: found.group_by("k").window(hr.snapshot()).aggregate(v=Summed().of("v"))
    ),
}
PLAIN: dict[str, Callable[[], hr.Stream]] = {
    "built in": lambda: STREAM.group_by("k").window(hr.hopping(8, 2)).aggregate(s=hr.sum("v")),
    "computed anew": lambda: windowed(Whole()),
    "joined": lambda: STREAM.join(STREAM.shift(1), "k"),
}


@pytest.mark.parametrize("name", PICKLING)
def test_pickles_are_marked(name: str):
    found = list(saved_traces(half(PICKLING[name]())))
    assert any(holds_pickles(tables) for _, tables in found), "there is something to mark"
    assert all("pickled" in trace for trace, tables in found if holds_pickles(tables))


@pytest.mark.parametrize("name", PLAIN)
def test_other_state_is_not_marked(name: str):
    assert [trace for trace, _ in saved_traces(half(PLAIN[name]())) if "pickled" in trace] == []


# --- whose they are --------------------------------------------------------------------------------------------------


def altered(saved: SavedRun, change: Callable[[dict[str, Any]], None]) -> SavedRun:
    """The same state with other marks."""
    stages = copy.deepcopy([[(state, None) for state, _ in stage] for stage in saved.stages])
    for stage in stages:
        for state, _ in stage:
            for operator in state["operators"].values():
                for trace in operator["traces"].values():
                    if "pickled" in trace:
                        change(trace)
    held = [[segments for _, segments in stage] for stage in saved.stages]
    both = [[(a, b) for (a, _), b in zip(*pair, strict=True)] for pair in zip(stages, held, strict=True)]
    return replace(saved, stages=both)


def test_the_query_that_saved_pickles_loads_them():
    stream = windowed(Summed())
    runner = Runner.restored(line(stream), 1, None, half(stream))
    (source,) = runner.line.sources
    LOADED.clear()
    for blocks in list(batches_of(source, 5))[3:]:
        runner.round({source.fingerprint: blocks})
    runner.end()
    assert LOADED
    assert hr.same_history(runner.done.results["out0"].cht(), stream.cht())


@pytest.mark.parametrize("name", PICKLING)
def test_another_query_does_not_load_them(name: str):
    """Even if it has the same operator, with the same fingerprint."""
    stream, also = PICKLING[name](), STREAM.where(col("v") > 3)
    other = line(stream, also)
    saved = half(stream)
    LOADED.clear()
    with pytest.raises(CheckpointError, match="is pickled and was saved by another query or operator") as caught:
        Runner.restored(other, 1, None, saved)
    assert line(stream).fingerprint in str(caught.value.given)
    assert other.fingerprint in caught.value.allowed
    assert LOADED == []


def test_another_operator_does_not_load_them():
    saved = altered(half(windowed(Summed())), lambda trace: trace["pickled"].update(operator="0123"))
    with pytest.raises(CheckpointError, match="another query or operator"):
        Runner.restored(line(windowed(Summed())), 1, None, saved)


def test_pickles_without_a_mark_are_not_loaded():
    saved = altered(half(windowed(Summed())), lambda trace: trace.pop("pickled"))
    with pytest.raises(CheckpointError, match="does not say which query saved it"):
        Runner.restored(line(windowed(Summed())), 1, None, saved)


def test_a_driver_refuses_them_before_it_runs_anything(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.csv").write_text("t,k,v\n" + "".join(f"{t},a,{t}\n" for t in range(9)))
    rows = hr.read_csv(str(tmp_path / "in"), "t LONG, k STRING, v LONG", lifetime=hr.point("t"))
    stream = rows.group_by("k").window(hr.tumbling(5)).aggregate(s=Summed().of("v"))
    storage = LocalStorage(tmp_path / "store", durable=False)

    def driver(*streams: hr.Stream) -> Driver:
        cut = line(*streams)
        job = Job("job", cut, 1, storage, (None,) * len(cut.outputs))
        publisher = Publisher(cut.outputs, [Memory() for _ in cut.outputs], storage)
        return Driver(job, InProcessExecutor(job), publisher, lambda: 0)

    first = driver(stream)
    first.open()
    plan = first.plan()
    assert plan is not None
    first.run(plan)
    driver(stream).open()
    LOADED.clear()
    with pytest.raises(CheckpointError, match="was upgraded to another one"):
        driver(stream, rows).open()
    assert LOADED == []
