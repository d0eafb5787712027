"""Folds: what keeps a state along the tuples of a group, in their order (rules 7.3 to 7.6).

An aggregate written in SQL under OVER, a module in Python that adds and removes items: each goes from tuple to tuple.
The kernel (`fold.py`) keeps the state of each group as of the CTI, with the tuples from the CTI on, which may still
change. When they do, they are gone through again from that state, and what is given now takes the place of what was
given. So a fold only has to say how to go on from a state; all groups are in one call.

As of a CTI means: after the last tuple with LE < CTI, and after all that follows from time alone before it. In windows
of a fold, a tuple that no later one can see together with is gone as of the CTI, so what is left of the window is
what `keep` says, neither more nor less.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from headrace.columnar import Bools, Int64s

__all__ = ["FoldFailure", "FoldResult", "FoldWork", "Folding", "nothing_due", "several_values"]


@dataclass(frozen=True)
class FoldWork:
    """The tuples of some groups, group by group and in their order: first those that the last call wanted to keep, then
    those that are gone through now.
    """

    #: Where the tuples of each group begin, and where the last ends: groups + 1 numbers.
    start: Int64s
    #: For each group, its first tuple that is not in its state: its LE is not before the old CTI.
    begin: Int64s
    #: For each group, its first tuple whose LE is not before the new CTI; the new state is the one before it.
    settle: Int64s
    #: Of each tuple, when it is.
    le: Int64s
    #: Of each tuple, what the fold asks of it, under the names it asks by.
    tuples: pa.Table
    #: For each group, its state as bytes; null if nothing has come yet.
    states: pa.Array
    #: The CTI that the states are as of, and the one that new states are wanted as of.
    since: int
    cti: int
    #: How far time has come (m of rule 5.3): what is due by time alone, up to and with it, is done.
    seen: int

    @property
    def groups(self) -> int:
        return len(self.begin)


class FoldFailure(NamedTuple):
    """Something that went wrong."""

    group: int
    time: int
    row: int
    reason: str


@dataclass(frozen=True)
class FoldResult:
    """What came of it."""

    #: Of each output, the tuple that it is about.
    row: Int64s
    #: Of each output, when it is: the tuple's LE, or a later time by time alone.
    time: Int64s
    #: The columns of the outputs.
    payload: pa.Table
    #: For each group, its state as of the new CTI; null if nothing has come yet.
    states: pa.Array
    #: Of each tuple, whether it is before the new CTI and wanted again in the next call.
    keep: Bools
    #: For each group, the time at which something happens without a tuple; infinite if never.
    due: Int64s
    #: What went wrong: in which group, when, at which tuple (-1 for none), and why. There is no other output for these.
    failures: tuple[FoldFailure, ...] = field(default=())
    #: For each group, the CTI at which its state changes without a tuple; infinite if never, and so if it is left out.
    alarm: Int64s | None = None
    #: Of each output, its group; needed where an output is about no tuple that is here (`row` is -1 then).
    group: Int64s | None = None


class Folding(Protocol):
    """Goes on from states. Where it is code that was made for this, `code` has its text."""

    @property
    def pickled(self) -> bool:
        """Whether states are values of Python, pickled."""
        ...

    def go(self, work: FoldWork) -> FoldResult:
        """Go through the tuples from `begin` on."""
        ...


def nothing_due(groups: int) -> Int64s:
    """For folds in which time alone does nothing."""
    return np.full(groups, np.iinfo(np.int64).max)


def several_values(count: int) -> str:
    """What is wrong where a value is wanted at each tuple and there are more."""
    return f"it returned {count} values at one tuple, not one"
