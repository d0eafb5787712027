"""An aggregate as native code: one loop over the tuples of all groups, compiled for the machine.

That is for bodies which compute with numbers and keep them in tables of one row. What a table of one row holds becomes
local variables, each a number and whether it is NULL; between two calls they are in a record for each group. The loop
is written as text of Python that Numba compiles, so it can be read: its statements say which line they come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.operators.ordered.line import Bools, Int64s
from headrace.plan.ordered import Frame
from headrace.schema import Type
from headrace.sql.aggregates import definition as d
from headrace.sql.aggregates.native_values import NotNative
from headrace.sql.aggregates.native_writer import Writer

__all__ = ["Column", "Native", "Ran", "Tuples", "native_of"]

#: Values, and where they are NULL.
Column = tuple[NDArray[Any], Bools]


@dataclass(frozen=True)
class Tuples:
    """Where the tuples of each group begin, settle and end, when each tuple is, and how far time is; as in `Work`."""

    begin: Int64s
    settle: Int64s
    end: Int64s
    le: Int64s
    cti: int
    seen: int


@dataclass(frozen=True)
class Ran:
    """What a run gave."""

    #: Of each result, the tuple that it is about, and its time.
    row: Int64s
    time: Int64s
    #: Of each result, how many values there were where one is wanted, if that went wrong; else 0.
    wrong: Int64s
    columns: list[Column]
    #: Of each group, the oldest tuple of its window, as of the CTI and in the end.
    first: Int64s
    last: Int64s


@dataclass(frozen=True, eq=False)
class Native:
    """An aggregate that runs as native code."""

    definition: d.Definition
    #: What it runs as.
    source: str
    #: What it keeps of a group.
    state: np.dtype[np.void]
    #: Whether it looks at tuples that have come before.
    windowed: bool
    #: How many results there are at most when a tuple comes, and when it leaves.
    room: tuple[int, int]

    @cached_property
    def code(self) -> Any:
        """The machine's code; compiled when it is first asked for, once in a process."""
        # Numba takes long to load, so only who runs native code waits for it.
        from headrace.sql.aggregates.native_machine import compiled

        takes = tuple(_stored(field.type, argument=True) for field in self.definition.parameters)
        gives = tuple(_stored(field.type) for field in self.definition.returns)
        return compiled(self.source, self.state, takes, gives)

    def run(
        self, tuples: Tuples, columns: Sequence[Column], states: NDArray[np.void], frame: Frame, *, active: bool
    ) -> Ran:
        """Go through tuples. The states are those before, and are then those as of the CTI."""
        coming = int((tuples.end - tuples.begin).sum())
        room = coming * self.room[0] + (coming + int(states["living"].sum())) * self.room[1] * active
        row, time, wrong = np.empty(room, np.int64), np.empty(room, np.int64), np.zeros(room, np.int64)
        first, last = np.empty((2, len(states)), np.int64)
        outputs = [(np.empty(room, _stored(field.type)), np.empty(room, np.bool_)) for field in self.definition.returns]
        rows, span = (-1 if limit is None else limit for limit in (frame.rows, frame.range))
        k = self.code(
            tuples.begin, tuples.settle, tuples.end, tuples.le, rows, span, active, tuples.cti, tuples.seen, states,
            first, last, row, time, wrong, *chain(*columns), *chain(*outputs),
        )  # fmt: skip
        found = [(values[:k], nulls[:k]) for values, nulls in outputs]
        return Ran(row[:k], time[:k], wrong[:k], found, first, last)


def native_of(definition: d.Definition, *, terminates: bool) -> Native | str:
    """The aggregate as native code, or why there is none; `terminates` if TERMINATE is done after each tuple."""
    try:
        writer = Writer(definition, terminates=terminates)
        return Native(definition, writer.source(), writer.record, writer.windowed, writer.room)
    except NotNative as reason:
        return str(reason)
    except RecursionError:
        return "an expression is nested too deep"


def _stored(kind: Type, *, argument: bool = False) -> np.dtype[Any]:
    """What a column is made of. A FLOAT comes in as any number, and is rounded then."""
    if kind is Type.DATETIME:
        return np.dtype(np.int64)
    if kind is Type.FLOAT and argument:
        return np.dtype(np.float64)
    found: np.dtype[Any] = np.dtype(kind.arrow.to_pandas_dtype())
    return found
