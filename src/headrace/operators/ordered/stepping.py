"""Modules and aggregates in Python that go from tuple to tuple, group by group (rules 7.3 to 7.5).

This module decides when a tuple leaves its window. Without active expiration it leaves just before the first tuple that
does not see it. A tuple that no later one can see is also removed as of the CTI: this has no visible effect, and its
state can be forgotten. With active expiration a tuple of a frame of length d leaves at LE + d, after all tuples that
arrive at that time.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import ModuleFailed
from headrace.modules.fold import Stepper
from headrace.modules.folding import FoldFailure, FoldResult, FoldWork, several_values
from headrace.operators.per_window.calling import Caller
from headrace.plan.fold import Fold
from headrace.time import INFINITY, add_one

__all__ = ["Stepping"]

_CHUNK = 4096
_COUNT = struct.Struct("<q")
_BROKEN = b"broken"
Item = tuple[Any, ...]


class Stepping:
    """Drives the steppers of a node's module."""

    pickled = True

    def __init__(self, node: Fold) -> None:
        self.node, self.folder, self.frame, self.answers = node, node.folder, node.frame, node.answers
        self.single, self.active = node.gives_value, node.active
        folder, frame = self.folder, self.frame
        self.caller = Caller(node.module, node.policy)
        #: Whether this class keeps the tuples of the window, and not the steppers.
        self.counts = not folder.keeps_window and (frame.rows is not None or frame.range is not None)

    def go(self, work: FoldWork) -> FoldResult:
        outputs, states = _StepOutputs(), []
        keep = np.zeros(len(work.le), bool)
        due, alarm = np.full((2, work.groups), INFINITY, np.int64)
        for group, state in enumerate(work.states.to_pylist()):
            run = _Group(self, work, group, state, outputs)
            states.append(run.run())
            due[group], alarm[group] = run.due, run.alarm
            if self.counts:
                keep[run.oldest : int(work.settle[group])] = True
        return FoldResult(
            np.array(outputs.row, np.int64),
            np.array(outputs.time, np.int64),
            self._table(outputs.values),
            pa.array(states, pa.binary()),
            keep,
            due,
            tuple(outputs.failures),
            alarm,
            np.array(outputs.group, np.int64),
        )

    def _table(self, values: list[Any]) -> pa.Table:
        schema = self.answers.arrow
        columns: list[Any] = [values] if self.single else list(zip(*values, strict=True)) or [()] * len(schema)
        arrays = [pa.array(column, field_.type) for column, field_ in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)


@dataclass
class _StepOutputs:
    """Outputs and failures of all groups."""

    group: list[int] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    time: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    failures: list[FoldFailure] = field(default_factory=list)


class _Group:
    """One group: its stepper, and the tuples in the window."""

    def __init__(
        self, driver: Stepping, work: FoldWork, group: int, state: bytes | None, outputs: _StepOutputs
    ) -> None:
        self.driver, self.work, self.outputs, self.group = driver, work, outputs, group
        self.first, self.begin = int(work.start[group]), int(work.begin[group])
        self.settle, self.end = int(work.settle[group]), int(work.start[group + 1])
        self.state, self.count, self.broken = state, 0, ""
        self.stepper: Stepper | None = None
        #: The number of the tuple that leaves next, and the tuples themselves.
        self.oldest = self.first
        self.kept = _rows(work, self.first, self.begin)
        self.arrived: deque[Item] = deque()
        self.oldest_item: Item | None = None
        self.next = self.begin
        self.due = self.alarm = INFINITY
        self.saved: bytes | None = None

    def run(self) -> bytes | None:
        """Go through the tuples; return the state as of the CTI."""
        if self.state is None and self.begin == self.end:
            return None
        self._load()
        self.arrivals = _rows(self.work, self.begin, self.end)
        self._upto(self.settle, self.work.cti)
        self._settle()
        oldest, self.alarm = self.oldest, add_one(self._leaving(), 1)
        self._upto(self.end, INFINITY if self.work.cti == INFINITY else self.work.seen + 1)
        self.due = self._leaving() if self.driver.active else INFINITY
        self.oldest = oldest  # as of the CTI: the tuples to keep
        return self.saved

    # --- the state ---------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        folder = self.driver.folder
        if self.state is None:
            self.stepper = folder.make()
            self.stepper.quiet = not self.driver.active
            return
        (self.count,), body = _COUNT.unpack_from(self.state), self.state[_COUNT.size :]
        if body.startswith(_BROKEN):
            self.broken = body[len(_BROKEN) :].decode()
        else:
            self.stepper = folder.load(body)
            self.stepper.quiet = not self.driver.active

    def _settle(self) -> None:
        """Remove the tuples that no later one sees, and save the state."""
        cti, frame = self.work.cti, self.driver.frame
        if cti == INFINITY:
            return
        if not self.driver.active and frame.range is not None:
            self._leave(cti)
        elif frame.rows is not None:
            self._leave_counted(self.count)
        if self.settle == self.begin and self.oldest == self.first and not self.driver.folder.keeps_window:
            self.saved = self.state  # unchanged
            return
        body = _BROKEN + self.broken.encode() if self.stepper is None or self.broken else self.stepper.save()
        self.saved = _COUNT.pack(self.count) + body

    # --- arriving tuples ---------------------------------------------------------------------------------------------

    def _upto(self, until: int, time: int) -> None:
        """Take in the tuples up to a position; with active expiration, remove those that leave before a time."""
        frame = self.driver.frame
        while self.next < until:
            item = next(self.arrivals)
            le = item[-1]
            if self.driver.active:
                self._expire_before(le)
            elif frame.range is not None:
                self._leave(le)
            elif frame.rows is not None:
                self._leave_counted(self.count)
            self._arrive(item, le)
        if self.driver.active:
            self._expire_before(time)

    def _arrive(self, item: Item, le: int) -> None:
        number, self.next, self.count = self.next, self.next + 1, self.count + 1
        if not self.broken:
            assert self.stepper is not None
            mark = le if self.driver.frame.rows is None else self.count
            returned = self._guard(self.stepper.arrive, *item[:-1], mark=mark)
            if self.driver.single and not returned and not self.driver.active:
                returned = [None]
            self._emit(number, le, returned)
        if self.broken:
            self.outputs.failures.append(FoldFailure(self.group, le, number, self.broken))
        if self.driver.counts:
            self.arrived.append(item)

    def _emit(self, number: int, time: int, returned: list[Any]) -> None:
        if self.driver.single and len(returned) > 1:
            self.broken = several_values(len(returned))
        if self.broken:
            return
        for value in returned:
            self.outputs.group.append(self.group)
            self.outputs.row.append(number)
            self.outputs.time.append(time)
            self.outputs.values.append(value)

    def _guard(self, call: Callable[..., list[Any]], *args: Any, **more: Any) -> list[Any]:
        """The outputs of a call; after a failure the group has no state any more."""
        try:
            returned = call(*args, **more)
            return returned if self.driver.folder.typed else self._check(returned)
        except ModuleFailed as error:
            self.broken = error.message
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code may raise anything
            self.broken = f"it raised {type(error).__name__}: {error}"
        return []

    def _check(self, returned: list[Any]) -> list[Any]:
        if self.driver.single:
            return [self.driver.caller.check(value) for value in returned]
        return [row[2:] for row in self.driver.caller.check(returned)]

    # --- leaving tuples ----------------------------------------------------------------------------------------------

    def _leave(self, time: int) -> None:
        """Remove the tuples that are out of the frame at a time."""
        assert self.driver.frame.range is not None
        bound = time - self.driver.frame.range
        while (mark := self._oldest_mark()) is not None and mark < bound:
            self._expire()

    def _leave_counted(self, count: int) -> None:
        """Remove the tuples that the next tuple does not see, after `count` tuples."""
        assert self.driver.frame.rows is not None
        if self.driver.folder.keeps_window:
            while (mark := self._oldest_mark()) is not None and mark <= count - self.driver.frame.rows:
                self._expire()
        else:
            while self.next - self.oldest > self.driver.frame.rows:
                self._expire()

    def _expire_before(self, time: int) -> None:
        """Remove the tuples that leave before a time, and emit what the stepper returns."""
        assert self.driver.frame.range is not None
        length = self.driver.frame.range
        while (mark := self._oldest_mark()) is not None and (mark + length < time or time == INFINITY):
            left, before = mark + length, self.broken
            self._emit(-1, left, self._expire())
            if self.broken and not before:  # a failure before this one is reported by arriving tuples
                self.outputs.failures.append(FoldFailure(self.group, left, -1, self.broken))

    def _leaving(self) -> int:
        """When the oldest tuple leaves by time alone."""
        length, mark = self.driver.frame.range, self._oldest_mark()
        return INFINITY if length is None or mark is None else add_one(mark, length)

    def _oldest_mark(self) -> int | None:
        """The time or number of the oldest tuple in the window; None if there is none."""
        if self.driver.folder.keeps_window:
            inside = self.stepper.inwindow if self.stepper is not None and not self.broken else []
            return int(inside[0][-1]) if inside else None
        if self.oldest_item is None:
            self.oldest_item = next(self.kept, None) or (self.arrived.popleft() if self.arrived else None)
        return None if self.oldest_item is None else self.oldest_item[-1]

    def _expire(self) -> list[Any]:
        args: Item = ()
        if not self.driver.folder.keeps_window:
            self._oldest_mark()
            assert self.oldest_item is not None
            args, self.oldest_item, self.oldest = self.oldest_item[:-1], None, self.oldest + 1
        if self.broken or self.stepper is None:
            return []
        return self._guard(self.stepper.expire, *args)


def _rows(work: FoldWork, first: int, last: int) -> Iterator[Item]:
    """Tuples as Python values, each followed by its LE; read in chunks, since not all may be needed."""
    for begin in range(first, last, _CHUNK):
        end = min(begin + _CHUNK, last)
        columns = [column.to_pylist() for column in work.tuples.slice(begin, end - begin).itercolumns()]
        yield from zip(*columns, work.le[begin:end].tolist(), strict=True)
