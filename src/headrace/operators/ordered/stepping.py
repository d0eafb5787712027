"""Modules and aggregates in Python that go from tuple to tuple, group by group (rules 7.3 to 7.5).

Here is said when a tuple leaves its window. Without active expiration it leaves when the next one comes that does not
see it, in front of that one. A tuple that no later one can see is taken out as of the CTI too: nobody can tell, and
so nothing is kept of it. With active expiration a tuple of a frame of length d leaves at LE + d, behind all that
come then.
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
        #: Whether the tuples of the window are kept here, and not by the steppers.
        self.counts = not folder.keeps_window and (frame.rows is not None or frame.range is not None)

    def go(self, work: FoldWork) -> FoldResult:
        found, states = _Found(), []
        keep = np.zeros(len(work.le), bool)
        due, alarm = np.full((2, work.groups), INFINITY, np.int64)
        for group, state in enumerate(work.states.to_pylist()):
            one = _Group(self, work, group, state, found)
            states.append(one.run())
            due[group], alarm[group] = one.due, one.alarm
            if self.counts:
                keep[one.oldest : int(work.settle[group])] = True
        return FoldResult(
            np.array(found.row, np.int64),
            np.array(found.time, np.int64),
            self._table(found.values),
            pa.array(states, pa.binary()),
            keep,
            due,
            tuple(found.failures),
            alarm,
            np.array(found.group, np.int64),
        )

    def _table(self, values: list[Any]) -> pa.Table:
        schema = self.answers.arrow
        columns: list[Any] = [values] if self.single else list(zip(*values, strict=True)) or [()] * len(schema)
        arrays = [pa.array(column, one.type) for column, one in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)


@dataclass
class _Found:
    """What was returned, by all groups."""

    group: list[int] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    time: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    failures: list[FoldFailure] = field(default_factory=list)


class _Group:
    """One group: its stepper, and the tuples that are in the window."""

    def __init__(self, how: Stepping, work: FoldWork, group: int, state: bytes | None, found: _Found) -> None:
        self.how, self.work, self.found, self.group = how, work, found, group
        self.first, self.begin = int(work.start[group]), int(work.begin[group])
        self.settle, self.end = int(work.settle[group]), int(work.start[group + 1])
        self.state, self.count, self.broken = state, 0, ""
        self.stepper: Stepper | None = None
        #: The tuple that leaves next, by its number in the line, and the tuples themselves.
        self.oldest = self.first
        self.kept = _rows(work, self.first, self.begin)
        self.came: deque[Item] = deque()
        self.ahead: Item | None = None
        self.next = self.begin
        self.due = self.alarm = INFINITY
        self.saved: bytes | None = None

    def run(self) -> bytes | None:
        """Go through the tuples; the state as of the CTI."""
        if self.state is None and self.begin == self.end:
            return None
        self._load()
        self.arrivals = _rows(self.work, self.begin, self.end)
        self._upto(self.settle, self.work.cti)
        self._settle()
        oldest, self.alarm = self.oldest, add_one(self._leaving(), 1)
        self._upto(self.end, INFINITY if self.work.cti == INFINITY else self.work.seen + 1)
        self.due = self._leaving() if self.how.active else INFINITY
        self.oldest = oldest  # as of the CTI, for what is kept
        return self.saved

    # --- the state ---------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        folder = self.how.folder
        if self.state is None:
            self.stepper = folder.make()
            self.stepper.quiet = not self.how.active
            return
        (self.count,), body = _COUNT.unpack_from(self.state), self.state[_COUNT.size :]
        if body.startswith(_BROKEN):
            self.broken = body[len(_BROKEN) :].decode()
        else:
            self.stepper = folder.load(body)
            self.stepper.quiet = not self.how.active

    def _settle(self) -> None:
        """Take out what no later tuple sees, and save."""
        cti, frame = self.work.cti, self.how.frame
        if cti == INFINITY:
            return
        if not self.how.active and frame.range is not None:
            self._leave(cti)
        elif frame.rows is not None:
            self._leave_counted(self.count)
        if self.settle == self.begin and self.oldest == self.first and not self.how.folder.keeps_window:
            self.saved = self.state  # as it was
            return
        body = _BROKEN + self.broken.encode() if self.stepper is None or self.broken else self.stepper.save()
        self.saved = _COUNT.pack(self.count) + body

    # --- tuples that come --------------------------------------------------------------------------------------------

    def _upto(self, until: int, time: int) -> None:
        """All that come up to a place, and with active expiration all that leaves before a time."""
        frame = self.how.frame
        while self.next < until:
            item = next(self.arrivals)
            le = item[-1]
            if self.how.active:
                self._expire_before(le)
            elif frame.range is not None:
                self._leave(le)
            elif frame.rows is not None:
                self._leave_counted(self.count)
            self._arrive(item, le)
        if self.how.active:
            self._expire_before(time)

    def _arrive(self, item: Item, le: int) -> None:
        number, self.next, self.count = self.next, self.next + 1, self.count + 1
        if not self.broken:
            assert self.stepper is not None
            mark = le if self.how.frame.rows is None else self.count
            returned = self._guarded(self.stepper.arrive, *item[:-1], mark=mark)
            if self.how.single and not returned and not self.how.active:
                returned = [None]
            self._give(number, le, returned)
        if self.broken:
            self.found.failures.append(FoldFailure(self.group, le, number, self.broken))
        if self.how.counts:
            self.came.append(item)

    def _give(self, number: int, time: int, returned: list[Any]) -> None:
        if self.how.single and len(returned) > 1:
            self.broken = several_values(len(returned))
        if self.broken:
            return
        for value in returned:
            self.found.group.append(self.group)
            self.found.row.append(number)
            self.found.time.append(time)
            self.found.values.append(value)

    def _guarded(self, call: Callable[..., list[Any]], *args: Any, **more: Any) -> list[Any]:
        """What a call gives; once one has failed, nothing is known of the group any more."""
        try:
            found = call(*args, **more)
            return found if self.how.folder.typed else self._checked(found)
        except ModuleFailed as error:
            self.broken = error.message
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's code may raise
            self.broken = f"it raised {type(error).__name__}: {error}"
        return []

    def _checked(self, found: list[Any]) -> list[Any]:
        if self.how.single:
            return [self.how.caller.checked(value) for value in found]
        return [row[2:] for row in self.how.caller.checked(found)]

    # --- tuples that leave -------------------------------------------------------------------------------------------

    def _leave(self, time: int) -> None:
        """Those that are out of sight at a time."""
        assert self.how.frame.range is not None
        bound = time - self.how.frame.range
        while (mark := self._oldest_mark()) is not None and mark < bound:
            self._expire()

    def _leave_counted(self, count: int) -> None:
        """Those that the next tuple does not see, when there have been so many."""
        assert self.how.frame.rows is not None
        if self.how.folder.keeps_window:
            while (mark := self._oldest_mark()) is not None and mark <= count - self.how.frame.rows:
                self._expire()
        else:
            while self.next - self.oldest > self.how.frame.rows:
                self._expire()

    def _expire_before(self, time: int) -> None:
        """Those whose time is over before another; what is returned then counts."""
        assert self.how.frame.range is not None
        length = self.how.frame.range
        while (mark := self._oldest_mark()) is not None and (mark + length < time or time == INFINITY):
            left, before = mark + length, self.broken
            self._give(-1, left, self._expire())
            if self.broken and not before:  # of what was broken already, those that come tell
                self.found.failures.append(FoldFailure(self.group, left, -1, self.broken))

    def _leaving(self) -> int:
        """When the oldest tuple leaves by time alone."""
        length, mark = self.how.frame.range, self._oldest_mark()
        return INFINITY if length is None or mark is None else add_one(mark, length)

    def _oldest_mark(self) -> int | None:
        """When the oldest tuple in the window was, or which one; None if there is none."""
        if self.how.folder.keeps_window:
            inside = self.stepper.inwindow if self.stepper is not None and not self.broken else []
            return int(inside[0][-1]) if inside else None
        if self.ahead is None:
            self.ahead = next(self.kept, None) or (self.came.popleft() if self.came else None)
        return None if self.ahead is None else self.ahead[-1]

    def _expire(self) -> list[Any]:
        args: Item = ()
        if not self.how.folder.keeps_window:
            self._oldest_mark()
            assert self.ahead is not None
            args, self.ahead, self.oldest = self.ahead[:-1], None, self.oldest + 1
        if self.broken or self.stepper is None:
            return []
        return self._guarded(self.stepper.expire, *args)


def _rows(work: FoldWork, first: int, last: int) -> Iterator[Item]:
    """Tuples as Python has them, each with its LE behind; some at a time, since not all may be asked for."""
    for begin in range(first, last, _CHUNK):
        end = min(begin + _CHUNK, last)
        columns = [column.to_pylist() for column in work.tuples.slice(begin, end - begin).itercolumns()]
        yield from zip(*columns, work.le[begin:end].tolist(), strict=True)
