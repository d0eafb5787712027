"""Tumbles of modules: of each slot that is not complete there is a state, and none of its tuples (rule 7.5).

A slot of s tuples, of which the last w are looked at, is begun with the first of these. The states of its modules take
in tuples as these are settled. At its last tuple they answer, and the next slot begins with none.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.expr import evaluate
from headrace.modules import ModuleCall
from headrace.modules.base import Window
from headrace.operators.kernel import Kernel
from headrace.operators.ordered.fold import FoldKernel, Folds, fold_kernel
from headrace.operators.ordered.folding import Failed, Went, Work
from headrace.operators.ordered.over import OverKernel
from headrace.operators.windows.calling import Caller, Failure
from headrace.plan.nodes import Fold, Over
from headrace.plan.ordered import Frame, Tuples
from headrace.schema import Field, Schema
from headrace.time import INFINITY

__all__ = ["goes_by_slots", "over_kernel", "returning_kernel"]


def goes_by_slots(node: Over | Fold) -> bool:
    """Whether the frames tumble, and all that is asked of them can be computed tuple by tuple."""
    frame = node.window
    assert isinstance(frame, Frame)
    if not frame.tumbles or not isinstance(frame.slide, Tuples):
        return False
    if isinstance(node, Fold):
        return not node.gives_value and node.module.folder(node.kind) is None and node.module.stepwise() is not None
    calls = node.aggregate.split[0].values()
    return all(isinstance(call, ModuleCall) and call.module.stepwise() is not None for call in calls)


def over_kernel(node: Over) -> Kernel:
    """What keeps as little as possible."""
    if not goes_by_slots(node):
        return OverKernel(node)
    arguments = []
    for number, call in enumerate(node.aggregate.split[0].values()):
        assert isinstance(call, ModuleCall)
        for name, expr in call.mapping.items():
            kind = call.module.fields[name].type
            plain = expr.type(node.input.schema) is kind
            arguments.append((f"arg{number}.{name}", expr if plain else expr.cast(kind)))
    fields = Schema(node.aggregate.schema.fields[len(node.keys) :])
    return FoldKernel(Folds(node, tuple(arguments), fields, beside=True), _Values(node))


def returning_kernel(node: Fold) -> Kernel:
    """As `over_kernel`, of a module that returns rows."""
    kernel = fold_kernel(node)
    return FoldKernel(kernel.folds, _Rows(node)) if goes_by_slots(node) else kernel


@dataclass
class _Slot:
    """Where a group is: how many tuples there were, the modules' states in this slot, and what went wrong in it."""

    count: int = 0
    states: list[bytes | None] = field(default_factory=list)
    failure: str = ""


class _Tumbling:
    """Goes through slots of so many tuples, and of each looks at the last few."""

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

    def go(self, work: Work) -> Went:
        rows: list[int] = []
        answers: list[list[Any]] = []
        failures: list[Failed] = []
        states: list[bytes | None] = []
        for group, state in enumerate(work.states.to_pylist()):
            slot = _Slot() if state is None else _Slot(*pickle.loads(state))  # noqa: S301 - our own bytes
            begin, settle, end = (int(x) for x in (work.begin[group], work.settle[group], work.start[group + 1]))
            self._advance(slot, work, group, begin, settle, rows, answers, failures)
            saved = pickle.dumps((slot.count, slot.states, slot.failure)) if settle > begin else state
            states.append(saved)
            self._advance(slot, work, group, settle, end, rows, answers, failures)
        row = np.array(rows, np.int64)
        never = np.full(work.groups, INFINITY, np.int64)
        nothing = np.zeros(len(work.le), bool)
        payload = self.payload(answers)
        return Went(row, work.le[row], payload, pa.array(states, pa.binary()), nothing, never, never, tuple(failures))

    def _advance(
        self, slot: _Slot, work: Work, group: int, first: int, last: int,
        rows: list[int], answers: list[list[Any]], failures: list[Failed],
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

    def _take(self, slot: _Slot, work: Work, first: int, last: int) -> None:
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
                slot.failure = f"{caller.module.name}: {after.reason}" if len(self.callers) > 1 else after.reason
                return
            slot.states[number] = after

    def _answer(
        self, slot: _Slot, work: Work, group: int, row: int,
        rows: list[int], answers: list[list[Any]], failures: list[Failed],
    ) -> None:  # fmt: skip
        time = int(work.le[row])
        found: list[Any] = []
        for caller, state in zip(self.callers, slot.states, strict=True):
            if not slot.failure:
                assert state is not None
                found.append(caller.read(state, Window(time, time + 1)))
                slot.failure = found[-1].reason if isinstance(found[-1], Failure) else ""
        if slot.failure:
            failures.append(Failed(group, time, row, slot.failure))
        else:
            given = self.answered(found)
            rows += [row] * len(given)
            answers += given


class _Values(_Tumbling):
    """Aggregates, and expressions over them."""

    def __init__(self, node: Over) -> None:
        super().__init__(node)
        self.node, (self.calls, self.outputs) = node, node.aggregate.split

    def payload(self, answers: list[list[Any]]) -> pa.Table:
        below = self.node.input.schema
        fields = [Field(name, call.type(below)) for name, call in self.calls.items()]
        columns = [pa.array([one[i] for one in answers], f.type.arrow) for i, f in enumerate(fields)]
        table = pa.Table.from_arrays(columns, schema=Schema(tuple(fields)).arrow)
        named = Schema(self.node.aggregate.schema.fields[len(self.node.keys) :]).arrow
        return pa.Table.from_arrays([evaluate(self.outputs[name], table) for name in named.names], schema=named)


class _Rows(_Tumbling):
    """A module that returns rows."""

    def __init__(self, node: Fold) -> None:
        super().__init__(node)
        self.schema = node.answers.arrow

    def answered(self, found: list[Any]) -> list[list[Any]]:
        return [list(output[2:]) for output in found[0]]  # behind the times, which it has no say in

    def payload(self, answers: list[list[Any]]) -> pa.Table:
        columns = [pa.array([one[i] for one in answers], f.type) for i, f in enumerate(self.schema)]
        return pa.Table.from_arrays(columns, schema=self.schema)
