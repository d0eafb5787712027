"""Aggregates written in SQL under OVER, as native code: between the tables of the engine and the arrays of the code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.columnar import Bools, Int64s
from headrace.expr.arrow import cast
from headrace.expr.arrow.columns import from_numpy, to_numpy
from headrace.modules.folding import FoldFailure, FoldResult, FoldWork, nothing_due
from headrace.plan.ordered import Frame
from headrace.schema import Schema, Type
from headrace.sql.aggregates.native.aggregate import Column, Native, NativeResult, NativeTuples, States
from headrace.time import INFINITY, add

__all__ = ["NativeFolding", "array_of", "column_of", "loaded", "saved", "tuples_of"]

_NONE = np.zeros(1, np.int32)


class NativeFolding:
    """Folds tuples into states by native code, all groups in one call; `answers` are the output columns."""

    pickled = False

    def __init__(self, native: Native, frame: Frame, answers: Schema, *, active: bool = False) -> None:
        self.native, self.frame, self.answers, self.active = native, frame, answers, active

    @property
    def code(self) -> str:
        """The code that runs."""
        return self.native.source

    def go(self, work: FoldWork) -> FoldResult:
        end = work.start[1:]
        parameters = self.native.definition.parameters
        columns = [column_of(work.tuples.column(place), field.type) for place, field in enumerate(parameters)]
        ran = self.native.run(tuples_of(work), columns, loaded(work.states), self.frame, active=self.active)
        failures = self._failures(work, ran)
        good = ran.wrong == 0 if failures else slice(None)
        payload = [
            array_of(values[good], nulls[good], field.type)
            for (values, nulls), field in zip(ran.columns, self.answers, strict=True)
        ]
        due, alarm = nothing_due(work.groups), None
        if self.active:
            due = self._leaving(work.le, ran.last, end)
        if self.native.windowed and self.frame.range is not None:
            alarm = add(self._leaving(work.le, ran.first, work.settle), 1)
        return FoldResult(
            ran.row[good],
            ran.time[good],
            pa.Table.from_arrays(payload, schema=self.answers.arrow),
            saved(ran),
            self._keep(work, ran.first),
            due,
            failures,
            alarm,
        )

    def _failures(self, work: FoldWork, ran: NativeResult) -> tuple[FoldFailure, ...]:
        bad = np.flatnonzero(ran.wrong)
        group = np.searchsorted(work.start, ran.row[bad], "right") - 1
        lists = (group.tolist(), ran.time[bad].tolist(), ran.row[bad].tolist(), ran.wrong[bad].tolist())
        return tuple(
            FoldFailure(g, time, row, self.native.reason(count)) for g, time, row, count in zip(*lists, strict=True)
        )

    # --- windows -----------------------------------------------------------------------------------------------------

    def _keep(self, work: FoldWork, first: Int64s) -> Bools:
        """The tuples of windows, as of the CTI; of a window without end, the first if the aggregate reads it."""
        keep = np.zeros(len(work.le), bool)
        if not self.native.windowed:
            return keep
        if self.frame.endless:
            if self.native.definition.keeps_window:
                keep[first[first < work.settle]] = True
            return keep
        sizes = np.diff(work.start)
        index = np.arange(len(work.le))
        return (index >= np.repeat(first, sizes)) & (index < np.repeat(work.settle, sizes))

    def _leaving(self, le: Int64s, oldest: Int64s, until: Int64s) -> Int64s:
        """The time at which the oldest tuple of each group leaves by time alone; infinity if there is none."""
        found = np.full(len(oldest), INFINITY, np.int64)
        there = oldest < until
        if self.native.windowed and self.frame.range is not None:
            found[there] = add(le[oldest[there]], self.frame.range)
        return found


def tuples_of(work: FoldWork) -> NativeTuples:
    """The tuples of some work, as arrays for native code."""
    begin, settle, end, le = map(np.ascontiguousarray, (work.begin, work.settle, work.start[1:], work.le))
    return NativeTuples(begin, settle, end, le, work.cti, work.seen)


def loaded(states: pa.Array) -> States:
    """The words of states that are bytes."""
    array = states.cast(pa.binary())
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4) if len(array) else _NONE
    there = array.is_valid().to_numpy(zero_copy_only=False)
    data = array.buffers()[2]
    words = np.empty(0, np.int64)
    if data is not None and there.any():
        words = np.frombuffer(data, np.int64, int(offsets[-1]) // 8)
    if words.ctypes.data % 8:
        words = words.copy()
    return States(words, np.where(there, offsets[:-1].astype(np.int64) // 8, -1))


def saved(ran: NativeResult) -> pa.Array:
    """The states of a run as bytes; null for groups without tuples."""
    groups = len(ran.at) - 1
    offsets, words = pa.array(ran.at * 8), pa.py_buffer(np.ascontiguousarray(ran.words))
    array = pa.Array.from_buffers(pa.large_binary(), groups, [None, offsets.buffers()[1], words])
    return pc.if_else(pa.array(np.diff(ran.at) > 0), array, None).cast(pa.binary())


def column_of(column: pa.ChunkedArray, kind: Type) -> Column:
    """The values of a column, without a copy where possible, and where they are NULL."""
    wanted = Type.DOUBLE if kind is Type.FLOAT else kind
    array = column.combine_chunks()
    if array.type != wanted.arrow:
        array = cast(array, Type.from_arrow(array.type), wanted)
    nulls = np.zeros(len(array), bool)
    if array.null_count:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(to_numpy(array.cast(pa.int64()) if kind is Type.DATETIME else array)), nulls


def array_of(values: NDArray[Any], nulls: Bools, kind: Type) -> pa.Array:
    """A column of results."""
    if kind is Type.DATETIME:
        return from_numpy(values, ~nulls, pa.int64()).cast(kind.arrow)
    return from_numpy(values, ~nulls if nulls.any() else None, kind.arrow)
