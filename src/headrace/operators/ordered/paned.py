"""Windows made of panes in one fold (rule 7.5, box 4): a tumble for each pane, and a window over their results.

Tuples go through the fold of slots, whose results are the tuples of the fold of windows. What is kept of a group is the
state of its open pane, and of its window the state and the results of panes: these take the place of tuples in what
the kernel keeps. A window of 40 000 tuples that slides by 10 000 keeps 4 values.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.columnar import Bools, Int64s
from headrace.modules.folding import FoldFailure, FoldResult, FoldWork, PaneCode, nothing_due
from headrace.operators.ordered.tumbling import output_columns
from headrace.plan.nodes import Over

__all__ = ["PanedValues"]


class PanedValues:
    """An aggregate over panes and windows of panes, and expressions over it."""

    pickled = False

    def __init__(self, node: Over, code: PaneCode) -> None:
        self.node, self.panes, self.windows = node, code.panes, code.windows
        self.size, self.width = code.size, code.width

    @property
    def code(self) -> str:
        """The code that runs."""
        return f"{self.panes.code}\n\n{self.windows.code}"  # type: ignore[attr-defined]

    def go(self, work: FoldWork) -> FoldResult:
        of_panes, of_windows = self._split(work.states)
        panes = self.panes.go(replace(work, states=of_panes))
        places = _places(work, panes.row)
        inner = self._over_panes(work, places, panes, of_windows)
        windows = self.windows.go(inner)
        row = places[windows.row]
        keep: Bools = np.zeros(len(work.le), bool)
        keep[places[windows.keep]] = True
        failures = (*panes.failures, *(_moved(one, places) for one in windows.failures))
        states = pc.binary_join_element_wise(
            panes.states.cast(pa.binary()), windows.states.cast(pa.binary()).fill_null(b""), b""
        )
        payload = output_columns(self.node, [windows.payload.column(0)])
        kept = inner.tuples.filter(pa.array(windows.keep))
        due = nothing_due(work.groups)
        return FoldResult(row, work.le[row], payload, states, keep, due, failures, kept=kept)

    def _split(self, states: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The states of panes, whose size is fixed, and of windows."""
        whole = states.cast(pa.binary()).fill_null(bytes(self.width))
        if not len(whole):
            return whole, whole
        offsets = np.frombuffer(whole.buffers()[1], np.int32, len(whole) + 1, whole.offset * 4)
        data = np.frombuffer(whole.buffers()[2], np.uint8, int(offsets[-1]))
        inside = offsets[:-1, None] + np.arange(self.width)
        rest: Bools = np.ones(len(data), bool)
        rest[: offsets[0]] = rest[inside] = False
        sizes = np.diff(offsets) - self.width
        of_panes = _binary(np.full(len(whole), self.width), data[inside].ravel())
        of_windows = _binary(sizes, data[rest])
        return pc.if_else(states.is_valid(), of_panes, None), pc.if_else(pa.array(sizes > 0), of_windows, None)

    def _over_panes(self, work: FoldWork, places: Int64s, panes: FoldResult, states: pa.Array) -> FoldWork:
        """The results of panes as tuples: those that were kept, then those of this call."""
        group = np.searchsorted(work.start, places, "right") - 1
        fresh = places >= work.begin[group]
        start = np.searchsorted(places, work.start)
        kept = np.bincount(group[~fresh], minlength=work.groups)
        settled = np.bincount(group[fresh & (places < work.settle[group])], minlength=work.groups)
        begin = start[:-1] + kept
        values = work.tuples.column(0).combine_chunks()
        answers = panes.payload.column(0).combine_chunks().cast(values.type)
        index = places.copy()
        index[fresh] = len(values) + np.arange(len(panes.row))
        table = pa.table({work.tuples.column_names[0]: pa.concat_arrays([values, answers]).take(pa.array(index))})
        counts = work.counts // self.size
        return replace(
            work, start=start, begin=begin, settle=begin + settled, le=work.le[places], tuples=table, states=states,
            counts=counts,
        )  # fmt: skip


def _places(work: FoldWork, row: Int64s) -> Int64s:
    """The positions of results of panes among tuples: those that were kept, and these."""
    kept: Bools = np.arange(len(work.le)) < np.repeat(work.begin, np.diff(work.start))
    kept[row] = True
    return np.flatnonzero(kept)


def _binary(sizes: Int64s, data: NDArray[np.uint8]) -> pa.Array:
    """Values of these sizes, one after the other."""
    offsets = np.r_[0, np.cumsum(sizes)].astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _moved(failure: FoldFailure, places: Int64s) -> FoldFailure:
    return failure._replace(row=int(places[failure.row]))
