"""Tumbles of modules: of each slot that is not complete there is a state, and none of its tuples (rule 7.5).

A slot of s tuples, of which the last w are looked at, is begun with the first of these. The states of its modules take
in tuples as these are settled. At its last tuple they answer, and the next slot begins with none. Modules that are
native code go through the slots of all groups at once, the others group by group.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.expr import evaluate
from headrace.modules.base import Window
from headrace.modules.folding import FoldFailure, Folding, FoldResult, FoldWork, nothing_due
from headrace.operators.per_window.calling import Caller, Failure
from headrace.plan.nodes import Fold, Over
from headrace.plan.ordered import Frame, Tuples
from headrace.schema import Field, Schema

__all__ = ["Rows", "Together", "TupleNumbers", "Values", "at_once"]


def at_once(node: Over | Fold) -> list[Folding] | None:
    """What goes through the slots of all groups in one call, a part for each module; None if one has no such."""
    steps = [module.stepwise() for module in node.modules]
    answers = [node.answers] if isinstance(node, Fold) else [Schema((field,)) for field in _answers(node)]
    parts = [None if step is None else step.by_slots(node.frame, one) for step, one in zip(steps, answers, strict=True)]
    found = [part for part in parts if part is not None]
    return found if len(found) == len(parts) else None


class TupleNumbers:
    """Numbers the tuples of groups; a state is how many there were."""

    pickled = False

    def __init__(self, node: Over) -> None:
        self.node = node

    def go(self, work: FoldWork) -> FoldResult:
        before = np.array(
            [0 if one is None else int.from_bytes(one, "big") for one in work.states.to_pylist()], np.int64
        )
        sizes = np.diff(work.start)
        number = np.arange(len(work.le)) - np.repeat(work.begin - before, sizes) + 1
        row = np.flatnonzero(np.arange(len(work.le)) >= np.repeat(work.begin, sizes))
        settled = (before + work.settle - work.begin).tolist()
        states = pa.array([one.to_bytes(8, "big") if one else None for one in settled], pa.binary())
        payload, nothing = _computed(self.node, [pa.array(number[row])]), np.zeros(len(work.le), bool)
        return FoldResult(row, work.le[row], payload, states, nothing, nothing_due(work.groups))


@dataclass
class _Slot:
    """Where a group is: how many tuples there were, the modules' states in this slot, and what went wrong in it."""

    count: int = 0
    states: list[bytes | None] = field(default_factory=list)
    failure: str = ""


class _Tumbling:
    """Goes through slots of so many tuples, and of each looks at the last few."""

    pickled = True

    def __init__(self, node: Over | Fold) -> None:
        frame = node.window
        assert isinstance(frame, Frame)
        assert isinstance(frame.slide, Tuples)
        assert frame.rows is not None
        self.slide, self.skipped = frame.slide.count, frame.slide.count - frame.rows - 1
        modules = [module.stepwise() for module in node.modules]
        self.callers = [Caller(module, node.policy) for module in modules if module is not None]

    def payload(self, answers: list[list[Any]]) -> pa.Table:
        """The columns that are given, of what the modules answered."""
        raise NotImplementedError

    def answered(self, found: list[Any]) -> list[list[Any]]:
        """The rows that answers come to."""
        return [found]

    def go(self, work: FoldWork) -> FoldResult:
        rows: list[int] = []
        answers: list[list[Any]] = []
        failures: list[FoldFailure] = []
        states: list[bytes | None] = []
        for group, state in enumerate(work.states.to_pylist()):
            slot = _Slot() if state is None else _Slot(*pickle.loads(state))  # noqa: S301 - our own bytes
            begin, settle, end = (int(x) for x in (work.begin[group], work.settle[group], work.start[group + 1]))
            self._advance(slot, work, group, begin, settle, rows, answers, failures)
            saved = pickle.dumps((slot.count, slot.states, slot.failure)) if settle > begin else state
            states.append(saved)
            self._advance(slot, work, group, settle, end, rows, answers, failures)
        row = np.array(rows, np.int64)
        nothing, never = np.zeros(len(work.le), bool), nothing_due(work.groups)
        payload = self.payload(answers)
        return FoldResult(row, work.le[row], payload, pa.array(states, pa.binary()), nothing, never, tuple(failures))

    def _advance(
        self, slot: _Slot, work: FoldWork, group: int, first: int, last: int,
        rows: list[int], answers: list[list[Any]], failures: list[FoldFailure],
    ) -> None:  # fmt: skip
        """Take in the tuples from `first` on, slot by slot."""
        while first < last:
            place = slot.count % self.slide
            if place == 0:
                slot.states, slot.failure = [None] * len(self.callers), ""
            upto = min(last, first + self.slide - place)
            seen = first + max(self.skipped - place, 0)
            if seen < upto and not slot.failure:
                self._take(slot, work, seen, upto)
            slot.count, first = slot.count + upto - first, upto
            if slot.count % self.slide == 0:
                self._answer(slot, work, group, upto - 1, rows, answers, failures)
                slot.states, slot.failure = [], ""

    def _take(self, slot: _Slot, work: FoldWork, first: int, last: int) -> None:
        table = work.tuples.slice(first, last - first)
        column = 0
        for number, caller in enumerate(self.callers):
            width = len(caller.module.fields)
            values = [table.column(i).to_pylist() for i in range(column, column + width)]
            column += width
            items = [caller.module.item(row) for row in zip(*values, strict=True)]
            before = slot.states[number]
            after = caller.started(items) if before is None else caller.moved(before, items, [])
            if isinstance(after, Failure):
                slot.failure = self._reason(caller, after)
                return
            slot.states[number] = after

    def _reason(self, caller: Caller, failure: Failure) -> str:
        return f"{caller.module.name}: {failure.reason}" if len(self.callers) > 1 else failure.reason

    def _answer(
        self, slot: _Slot, work: FoldWork, group: int, row: int,
        rows: list[int], answers: list[list[Any]], failures: list[FoldFailure],
    ) -> None:  # fmt: skip
        time = int(work.le[row])
        found: list[Any] = []
        for caller, state in zip(self.callers, slot.states, strict=True):
            if not slot.failure:
                assert state is not None
                found.append(caller.read(state, Window(time, time + 1)))
                slot.failure = self._reason(caller, found[-1]) if isinstance(found[-1], Failure) else ""
        if slot.failure:
            failures.append(FoldFailure(group, time, row, slot.failure))
        else:
            given = self.answered(found)
            rows += [row] * len(given)
            answers += given


class Values(_Tumbling):
    """Aggregates, and expressions over them."""

    def __init__(self, node: Over) -> None:
        super().__init__(node)
        self.node = node

    def payload(self, answers: list[list[Any]]) -> pa.Table:
        columns = [pa.array([one[i] for one in answers], f.type.arrow) for i, f in enumerate(_answers(self.node))]
        return _computed(self.node, columns)


class Rows(_Tumbling):
    """A module that returns rows."""

    def __init__(self, node: Fold) -> None:
        super().__init__(node)
        self.schema = node.answers.arrow

    def answered(self, found: list[Any]) -> list[list[Any]]:
        return [list(output[2:]) for output in found[0]]  # behind the times, which it has no say in

    def payload(self, answers: list[list[Any]]) -> pa.Table:
        columns = [pa.array([one[i] for one in answers], f.type) for i, f in enumerate(self.schema)]
        return pa.Table.from_arrays(columns, schema=self.schema)


class Together:
    """Aggregates that are native code, and expressions over them. A state is that of the one, or those of all."""

    def __init__(self, node: Over, parts: list[Folding]) -> None:
        self.node, self.parts = node, parts
        self.pickled = len(parts) > 1 or parts[0].pickled
        self.widths = [len(module.fields) for module in node.modules]

    def go(self, work: FoldWork) -> FoldResult:
        columns = np.split(np.arange(sum(self.widths)), np.cumsum(self.widths)[:-1])
        results = [
            part.go(replace(work, tuples=work.tuples.select(mine.tolist()), states=states))
            for part, mine, states in zip(self.parts, columns, self._apart(work.states), strict=True)
        ]
        failures = self._failures(results)
        row = reduce(np.intersect1d, [result.row for result in results])
        found = [result.payload.column(0).take(pa.array(np.searchsorted(result.row, row))) for result in results]
        payload, nothing = _computed(self.node, found), np.zeros(len(work.le), bool)
        states = self._as_one([result.states for result in results])
        return FoldResult(row, work.le[row], payload, states, nothing, nothing_due(work.groups), failures)

    def _failures(self, results: list[FoldResult]) -> tuple[FoldFailure, ...]:
        """Of each slot that failed, the first."""
        found: dict[int, FoldFailure] = {}
        for module, result in zip(self.node.modules, results, strict=True):
            for one in result.failures:
                reason = one.reason if len(results) == 1 else f"{module.name}: {one.reason}"
                found.setdefault(one.row, one._replace(reason=reason))
        return tuple(found.values())

    def _apart(self, states: pa.Array) -> list[pa.Array]:
        if len(self.parts) == 1:
            return [states]
        nothing = (None,) * len(self.parts)
        every = [nothing if one is None else pickle.loads(one) for one in states.to_pylist()]  # noqa: S301 - our own
        return [pa.array([one[place] for one in every], pa.binary()) for place in range(len(self.parts))]

    def _as_one(self, states: list[pa.Array]) -> pa.Array:
        if len(states) == 1:
            return states[0]
        every = zip(*(one.to_pylist() for one in states), strict=True)
        return pa.array([None if set(one) == {None} else pickle.dumps(one) for one in every], pa.binary())


def _answers(node: Over) -> Schema:
    """What the modules of a node answer."""
    below = node.input.schema
    return Schema(tuple(Field(name, call.type(below)) for name, call in node.aggregate.split[0].items()))


def _computed(node: Over, columns: list[Any]) -> pa.Table:
    """The columns that are given, of those that the modules answered."""
    table = pa.Table.from_arrays(columns, schema=_answers(node).arrow)
    outputs = node.aggregate.split[1]
    named = Schema(node.aggregate.schema.fields[len(node.keys) :]).arrow
    return pa.Table.from_arrays([evaluate(outputs[name], table) for name in named.names], schema=named)
