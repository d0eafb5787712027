"""What a change costs in windows that hold much: users' modules, rankings, contents, snapshots, sessions.

Each line has the CPU milliseconds of a batch of ten events into one window, or one group, that holds a thousand events
and one that holds a hundred thousand. What costs the change does not depend on the content. An *open* window is one
that time has not reached the end of; a *shown* one has answers, which late events correct.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import headrace as hr
from benchmarks.measure import Row, Section, local_batches, say
from headrace.time import INFINITY

__all__ = ["measure"]

_SMALL, _LARGE = 1_000, 100_000
_BATCHES, _EVENTS, _SIZE = 20, 10, 10_000_000
_Query = Callable[[hr.Stream], hr.Stream]


class _Mean(hr.IncrementalAggregate):
    """The arithmetic mean, kept up to date."""

    input = "value DOUBLE"
    output = "DOUBLE"

    def initial(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, state: tuple[float, int], items: list[float]) -> tuple[float, int]:
        return state[0] + sum(items), state[1] + len(items)

    def remove(self, state: tuple[float, int], items: list[float]) -> tuple[float, int]:
        return state[0] - sum(items), state[1] - len(items)

    def compute(self, state: tuple[float, int]) -> float:
        return state[0] / state[1]


class _TimedMean(_Mean):
    """The same for a module that sees lifetimes."""

    time_sensitive = True

    def add(self, state: tuple[float, int], items: list[Any]) -> tuple[float, int]:
        return super().add(state, [item.value for item in items])

    def remove(self, state: tuple[float, int], items: list[Any]) -> tuple[float, int]:
        return super().remove(state, [item.value for item in items])

    def compute(self, state: tuple[float, int], window: Any) -> float:  # noqa: ARG002 - it need not use the window
        return super().compute(state)


class _PlainMean(hr.Aggregate):
    """The arithmetic mean, of all items each time."""

    input = "value DOUBLE"
    output = "DOUBLE"

    def compute(self, values: list[float]) -> float:
        return sum(values) / len(values)


def _events(le: np.ndarray, re: np.ndarray, seed: int) -> pa.Table:
    value = np.random.default_rng(seed).normal(100.0, 10.0, len(le))
    return pa.table(
        {"kind": pa.array(["insert"] * len(le)), "le": le, "re": re, "re_new": pa.nulls(len(le), pa.int64()),
         "k": pa.array(["a"] * len(le)), "value": value}
    )  # fmt: skip


def _points(content: int, last: int) -> hr.Stream:
    """A first batch of so many instants in one window, with one at `last`, and then small batches."""
    rng = np.random.default_rng(1)
    times = np.r_[rng.integers(0, _SIZE, content), last, rng.integers(0, _SIZE, _BATCHES * _EVENTS)]
    table = _events(times, times + 1, 2)
    return hr.events(table, batches=[content + 1, *[_EVENTS] * _BATCHES])


def _lasting(content: int) -> hr.Stream:
    """A relation of so many rows that do not end, to which small batches add some: time goes on with each batch."""
    times = np.r_[np.zeros(content, np.int64), 1 + np.repeat(np.arange(_BATCHES), _EVENTS)]
    table = _events(times, np.full(len(times), INFINITY), 3)
    cti = _events(1 + np.arange(_BATCHES), np.full(_BATCHES, INFINITY), 3)
    cti = cti.set_column(0, "kind", pa.array(["cti"] * _BATCHES))
    parts = [table.slice(0, content)]
    for batch in range(_BATCHES):
        parts += [cti.slice(batch, 1), table.slice(content + batch * _EVENTS, _EVENTS)]
    return hr.events(pa.concat_tables(parts), batches=[content, *[_EVENTS + 1] * _BATCHES])


def _window(*, shown: bool) -> Callable[[int], hr.Stream]:
    return lambda content: _points(content, 2 * _SIZE if shown else _SIZE // 2)


def _of(**outputs: Any) -> _Query:
    return lambda s: s.group_by("k").window(hr.tumbling(_SIZE)).aggregate(**outputs)


def _cases() -> dict[str, tuple[Callable[[int], hr.Stream], _Query]]:
    tumbling, session = hr.tumbling(_SIZE), hr.session(_SIZE)
    shown, opened = _window(shown=True), _window(shown=False)
    timed = _TimedMean().of("value")
    return {
        "built-in average, open": (opened, _of(a=hr.avg("value"))),
        "incremental module, open": (opened, _of(a=_Mean().of("value"))),
        "built-in average, shown": (shown, _of(a=hr.avg("value"))),
        "incremental module, shown": (shown, _of(a=_Mean().of("value"))),
        "incremental module and count, shown": (shown, _of(a=_Mean().of("value"), n=hr.count())),
        "time-sensitive, clipped, shown": (
            shown, lambda s: s.group_by("k").window(tumbling, clipping="full").aggregate(a=timed)
        ),
        "time-sensitive, not clipped, shown": (
            shown, lambda s: s.group_by("k").window(tumbling).aggregate(a=timed)
        ),
        "plain module, open": (opened, _of(a=_PlainMean().of("value"))),
        "plain module, shown (looks at all items)": (shown, _of(a=_PlainMean().of("value"))),
        "top 3, shown": (shown, lambda s: s.group_by("k").window(tumbling).top(3, "value")),
        "contents, shown": (shown, lambda s: s.group_by("k").window(tumbling).contents()),
        "session, incremental module": (
            opened, lambda s: s.group_by("k").window(session).aggregate(a=_Mean().of("value"))
        ),
        "session, count": (opened, lambda s: s.group_by("k").window(session).aggregate(n=hr.count())),
        "snapshot minimum, rows that last": (
            _lasting, lambda s: s.group_by("k").window(hr.snapshot()).aggregate(low=hr.min("value"))
        ),
        "snapshot top 3, rows that last": (
            _lasting, lambda s: s.group_by("k").window(hr.snapshot()).top(3, "value")
        ),
        "snapshot, incremental module, rows that last": (
            _lasting, lambda s: s.group_by("k").window(hr.snapshot()).aggregate(a=_Mean().of("value"))
        ),
    }  # fmt: skip


def measure(root: Path, options: argparse.Namespace) -> Section:  # noqa: ARG001 - it has no files
    """All cases, as a section of the report."""
    section = Section("Ten events into a window that holds 1,000 and 100,000: CPU milliseconds of a batch")
    for name, (source, query) in _cases().items():
        pairs = [tuple(_typical(query(source(n))) for n in (_SMALL, _LARGE)) for _ in range(options.rounds)]
        small, large = (min(pair[i] for pair in pairs) for i in (0, 1))
        shown = f"{small * 1000:.1f} → {large * 1000:.1f} ms"
        say.print(f"  {name}: {shown}, ratio {large / small:.2f}", highlight=False)
        section.rows.append(Row(name, "", shown, f"{large / small:.2f}", "about 1"))
        section.figures[name] = large
        section.figures[f"{name}, ratio"] = large / small
    return section


def _typical(stream: hr.Stream) -> float:
    """CPU seconds of the median small batch."""
    return statistics.median(local_batches(stream)[2:])
