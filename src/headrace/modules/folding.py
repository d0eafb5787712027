"""Folds: code that keeps a state along the tuples of a group, in order (rules 7.3 to 7.6).

Aggregates written in SQL under OVER, and Python modules that add and remove items, go from tuple to tuple. The kernel
(`fold.py`) keeps the state of each group as of the CTI, and the tuples from the CTI on, which may still change. When
they change, the fold goes through them again from that state, and the new results replace the old ones. So a fold only
has to continue from a state; one call has all groups.

As of a CTI means: after the last tuple with LE < CTI, and after everything that follows from time alone before it. A
tuple that is in no window with a later tuple has left as of the CTI, so the remaining window is exactly the tuples of
`keep`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from headrace.columnar import Bools, Int64s
from headrace.schema import Schema

__all__ = [
    "FoldFailure", "FoldResult", "FoldWork", "Folding", "FrameAnswers", "FrameCode", "PaneCode", "nothing_due",
    "several_values",
]  # fmt: skip


@dataclass(frozen=True)
class FoldWork:
    """The tuples of some groups, group by group and in order: first those that the last call kept, then those to
    process now.
    """

    #: The first tuple of each group, and the end of the last group: groups + 1 numbers.
    start: Int64s
    #: For each group, its first tuple that is not in its state: its LE is not before the old CTI.
    begin: Int64s
    #: For each group, its first tuple whose LE is not before the new CTI; the new state is the one before it.
    settle: Int64s
    #: The LE of each tuple.
    le: Int64s
    #: The values of each tuple that the fold uses, under its names for them.
    tuples: pa.Table
    #: For each group, its state as bytes; null before the first tuple.
    states: pa.Array
    #: The CTI of the states, and the CTI of the new states.
    since: int
    cti: int
    #: How far time has come (m of rule 5.3): everything due by time alone up to this time is done.
    seen: int
    #: For each group, how many tuples are in its state.
    counts: Int64s

    @property
    def groups(self) -> int:
        return len(self.begin)


class FoldFailure(NamedTuple):
    """A failure of a fold."""

    group: int
    time: int
    row: int
    reason: str


@dataclass(frozen=True)
class FoldResult:
    """Outputs, new states and failures of one call."""

    #: The tuple of each output.
    row: Int64s
    #: The time of each output: the tuple's LE, or a later time for outputs by time alone.
    time: Int64s
    #: The columns of the outputs.
    payload: pa.Table
    #: For each group, its state as of the new CTI; null before the first tuple.
    states: pa.Array
    #: For each tuple, whether it is before the new CTI and needed in the next call.
    keep: Bools
    #: For each group, the time of its next output without a tuple; infinite if there is none.
    due: Int64s
    #: The failures: group, time, tuple (-1 for none) and reason. They have no other output.
    failures: tuple[FoldFailure, ...] = field(default=())
    #: For each group, the CTI at which its state changes without a tuple; infinite if never, and for None.
    alarm: Int64s | None = None
    #: The group of each output; needed if an output has no tuple in this call (`row` is then -1).
    group: Int64s | None = None
    #: For each group, the CTI from which its state is not needed; infinite for None.
    until: Int64s | None = None
    #: The values of the tuples of `keep`, if they are not those of the tuples themselves.
    kept: pa.Table | None = None


class Folding(Protocol):
    """Continues from states. Generated code has its text in `code`."""

    @property
    def pickled(self) -> bool:
        """Whether states are pickled Python values."""
        ...

    def go(self, work: FoldWork) -> FoldResult:
        """Process the tuples from `begin` on."""
        ...


@dataclass(frozen=True, eq=False)
class PaneCode:
    """The fold of the tuples of panes, and the fold of windows over their results."""

    panes: Folding
    windows: Folding
    #: The tuples of a pane, the panes of a window, and the bytes of the state of a pane.
    size: int
    count: int
    width: int
    #: How windows are updated, for `explain`.
    path: str


class FrameAnswers(NamedTuple):
    """What frames give: the last tuple of the frame of each output, the outputs, and failures by last tuple."""

    row: Int64s
    payload: pa.Table
    failures: tuple[tuple[int, str], ...]


class FrameCode(Protocol):
    """Code that computes frames of all groups in one call, each from its tuples."""

    @property
    def path(self) -> str:
        """How frames are computed, for `explain`."""
        ...

    @property
    def code(self) -> str:
        """The generated code."""
        ...

    @property
    def may_fail(self) -> bool:
        """Whether a frame may fail, and have no answer."""
        ...

    def answers(
        self, frame: Any, begin: Int64s, end: Int64s, le: Int64s, tuples: pa.Table, schema: Schema
    ) -> FrameAnswers:
        """The answers of the frames that end with the tuples `end`, in groups that start with the tuples `begin`."""
        ...


def nothing_due(groups: int) -> Int64s:
    """`due` of folds that give nothing by time alone."""
    return np.full(groups, np.iinfo(np.int64).max)


def several_values(count: int) -> str:
    """The error of a module that returns several values at one tuple."""
    return f"it returned {count} values at one tuple, not one"
