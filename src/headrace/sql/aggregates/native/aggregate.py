"""An aggregate as native code: one loop over the tuples of all groups, compiled for the machine.

That is for bodies which compute with numbers. What a table of one row holds becomes local variables, each a number and
whether it is NULL; other tables become arrays, with an index if they have a key (`rows.py`). Between two calls
all that is kept of a group are words, one after the other. The loop is written as text of Python that Numba compiles,
so it can be read: its statements say which line they come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.columnar import Bools, Int64s
from headrace.modules.folding import several_values
from headrace.plan.ordered import Frame
from headrace.plan.ordered import Tuples as SlideOf
from headrace.schema import Type
from headrace.sql.aggregates.front import definition as d
from headrace.sql.aggregates.native.selects import FAILURES
from headrace.sql.aggregates.native.state import LIVING, StateWriter
from headrace.sql.aggregates.native.values import NotNative
from headrace.sql.aggregates.native.writer import Writer
from headrace.sql.aggregates.python.compile import compile_aggregate, too_many

__all__ = ["Column", "Native", "NativeResult", "NativeTuples", "States", "native_of"]

#: Longer texts are not compiled: that would take a minute, while Python starts at once.
MOST_LINES = 500
#: Values, and where they are NULL.
Column = tuple[NDArray[Any], Bools]


@dataclass(frozen=True)
class States:
    """The states of groups: words, and where those of each group begin; -1 if it has none."""

    words: Int64s
    at: Int64s


@dataclass(frozen=True)
class NativeTuples:
    """Where the tuples of each group begin, settle and end, when each tuple is, and how far time is: as `FoldWork`."""

    begin: Int64s
    settle: Int64s
    end: Int64s
    le: Int64s
    cti: int
    seen: int


@dataclass(frozen=True)
class NativeResult:
    """What a run gave."""

    #: For each result, its tuple and its time.
    row: Int64s
    time: Int64s
    #: For each result, the code of its failure, for `Native.reason`; else 0.
    wrong: Int64s
    columns: list[Column]
    #: The states as of the CTI: words, and where those of each group begin and those of the last end.
    words: Int64s
    at: Int64s
    #: For each group, the oldest tuple of its window, as of the CTI and at the end.
    first: Int64s
    last: Int64s


@dataclass(frozen=True, eq=False)
class Native:
    """An aggregate that runs as native code."""

    definition: d.AggregateDefinition
    #: What it runs as.
    source: str
    #: Whether it answers for slots of tuples, not for each tuple.
    slots: bool
    #: Whether it reads earlier tuples.
    windowed: bool
    #: The most results when a tuple arrives, and when it leaves, unless tables have many rows.
    room: tuple[int, int]
    #: The possible failures, other than several values.
    failures: tuple[str, ...]
    _state: StateWriter

    @cached_property
    def first(self) -> Int64s:
        """The state of a group before its first tuple."""
        made = compile_aggregate(self.definition)
        return self._state.first(made.body(), made.kept)

    @property
    def state_width(self) -> int | None:
        """The bytes of a state; None if they depend on the number of rows."""
        return None if self._state.many else self._state.width * 8

    @cached_property
    def code(self) -> Any:
        """The machine code, compiled on first use, once per process."""
        # Numba takes long to load, so it is imported only to run native code.
        from headrace.sql.aggregates.native.machine import compiled

        takes = tuple(_stored(field.type) for field in self.definition.parameters)
        # Line numbers do not matter to the machine: texts that differ only in them are compiled once.
        lines = [line for line in self.source.splitlines() if not line.lstrip().startswith("#")]
        return compiled("\n".join(lines), takes)

    def run(
        self, tuples: NativeTuples, columns: Sequence[Column], states: States, frame: Frame, *, active: bool = False
    ) -> NativeResult:
        """Process tuples, starting from states."""
        groups = len(states.at)
        coming = int((tuples.end - tuples.begin).sum())
        living = int(states.words[states.at[states.at >= 0] + LIVING].sum()) if active else 0
        room = coming * self.room[0] + (coming + living) * self.room[1] * active
        first, last, at = np.empty(groups, np.int64), np.empty(groups, np.int64), np.empty(groups + 1, np.int64)
        rows, span = (-1 if limit is None else limit for limit in (frame.rows, frame.range))
        slide = frame.slide.count if self.slots and isinstance(frame.slide, SlideOf) else 0
        held = np.r_[self.first, states.words]
        held_at = np.where(states.at < 0, 0, states.at + len(self.first))
        k = -1
        while k < 0:  # tables of many rows may give more results than there is room for
            k, words, row, time, wrong, *outputs = self.code(
                tuples.begin, tuples.settle, tuples.end, tuples.le, rows, span, active, slide, slide - rows - 1,
                tuples.cti, tuples.seen, room, held, held.view(np.float64), held_at, at, first, last, *chain(*columns),
            )  # fmt: skip
            room *= 2
        found = [(values[:k], nulls[:k]) for values, nulls in zip(outputs[::2], outputs[1::2], strict=True)]
        return NativeResult(row[:k], time[:k], wrong[:k], found, words[: at[-1]], at, first, last)

    def reason(self, wrong: int) -> str:
        """What went wrong."""
        count, number = divmod(wrong, FAILURES)
        if number:
            return self.failures[number - 1].replace("{}", str(count), 1)
        return too_many(count) if self.slots else several_values(count)


def native_of(definition: d.AggregateDefinition, *, terminates: bool = False, slots: bool = False) -> Native | str:
    """The aggregate as native code, or the reason why there is none.

    `terminates` if TERMINATE runs after each tuple, `slots` if it runs at the end of each slot.
    """
    try:
        writer = Writer(definition, terminates=terminates, slots=slots)
        source = writer.source()
        if source.count("\n") > MOST_LINES:
            return f"it would be {source.count(chr(10))} lines of native code, which take long to compile"
        return Native(definition, source, slots, writer.windowed, writer.room, writer.failures, writer.state)
    except NotNative as reason:
        return str(reason)
    except RecursionError:
        return "an expression is nested too deep"


def _stored(kind: Type) -> np.dtype[Any]:
    """The stored type of an argument. A FLOAT accepts any number and is rounded on entry."""
    if kind is Type.DATETIME:
        return np.dtype(np.int64)
    if kind is Type.FLOAT:
        return np.dtype(np.float64)
    found: np.dtype[Any] = np.dtype(kind.arrow.to_pandas_dtype())
    return found
