"""Tumbles of modules: each incomplete slot has a state, and none of its tuples are kept (rule 7.5).

A slot has s tuples, of which the window is the last w. The states of its modules start with the first of these and take
in tuples as they are settled. At the slot's last tuple the modules answer, and the next slot starts without states.
Modules in native code go through the slots of all groups at once, others group by group.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.columnar import Int64s
from headrace.expr import evaluate
from headrace.modules.base import Window
from headrace.modules.folding import FoldFailure, Folding, FoldResult, FoldWork, nothing_due
from headrace.operators.per_window.calling import Caller, Failure
from headrace.plan.nodes import Fold, Over
from headrace.plan.ordered import NUMBER, Frame, Tuples
from headrace.schema import Field, Schema

__all__ = [
    "NativeValues", "TumbledRows", "TumbledValues", "TupleNumbers", "answer_schema", "native_folds", "output_columns",
    "with_numbers",
]  # fmt: skip


def native_folds(node: Over | Fold) -> list[Folding] | None:
    """The native folds over slots, one for each module; None if a module has none."""
    steps = [module.stepwise() for module in node.modules]
    answers = [node.answers] if isinstance(node, Fold) else [Schema((field,)) for field in answer_schema(node)]
    parts = [
        None if step is None else step.by_slots(node.frame, schema) for step, schema in zip(steps, answers, strict=True)
    ]
    native = [part for part in parts if part is not None]
    return native if len(native) == len(parts) else None


class TupleNumbers:
    """Numbers the tuples of groups; a state is their count."""

    pickled = False

    def __init__(self, node: Over) -> None:
        self.node = node

    def go(self, work: FoldWork) -> FoldResult:
        before = np.array(
            [0 if state is None else int.from_bytes(state, "big") for state in work.states.to_pylist()], np.int64
        )
        sizes = np.diff(work.start)
        number = np.arange(len(work.le)) - np.repeat(work.begin - before, sizes) + 1
        row = np.flatnonzero(np.arange(len(work.le)) >= np.repeat(work.begin, sizes))
        settled = (before + work.settle - work.begin).tolist()
        states = pa.array([count.to_bytes(8, "big") if count else None for count in settled], pa.binary())
        payload, nothing = output_columns(self.node, [pa.array(number[row])]), np.zeros(len(work.le), bool)
        return FoldResult(row, work.le[row], payload, states, nothing, nothing_due(work.groups))


@dataclass
class _Slot:
    """The progress of a group: the count of its tuples, the modules' states in this slot, and why it failed."""

    count: int = 0
    states: list[bytes | None] = field(default_factory=list)
    failure: str = ""


class _Tumbling:
    """Goes through slots of tuples; modules see the last tuples of each."""

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
        """The output columns, from the modules' answers."""
        raise NotImplementedError

    def answer_rows(self, found: list[Any]) -> list[list[Any]]:
        """The rows of the modules' answers."""
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
            after = caller.start_state(items) if before is None else caller.move_state(before, items, [])
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
        values: list[Any] = []
        for caller, state in zip(self.callers, slot.states, strict=True):
            if not slot.failure:
                assert state is not None
                values.append(caller.read(state, Window(time, time + 1)))
                slot.failure = self._reason(caller, values[-1]) if isinstance(values[-1], Failure) else ""
        if slot.failure:
            failures.append(FoldFailure(group, time, row, slot.failure))
        else:
            outputs = self.answer_rows(values)
            rows += [row] * len(outputs)
            answers += outputs


class TumbledValues(_Tumbling):
    """Aggregates, and expressions over them."""

    def __init__(self, node: Over) -> None:
        super().__init__(node)
        self.node = node

    def go(self, work: FoldWork) -> FoldResult:
        result = super().go(work)
        return replace(result, payload=with_numbers(self.node, result.payload, work, result.row))

    def payload(self, answers: list[list[Any]]) -> pa.Table:
        columns = [pa.array([row[i] for row in answers], f.type.arrow) for i, f in enumerate(answer_schema(self.node))]
        return output_columns(self.node, columns)


class TumbledRows(_Tumbling):
    """A module that returns rows."""

    def __init__(self, node: Fold) -> None:
        super().__init__(node)
        self.schema = node.answers.arrow

    def answer_rows(self, found: list[Any]) -> list[list[Any]]:
        return [list(output[2:]) for output in found[0]]  # without the times, which it does not choose

    def payload(self, answers: list[list[Any]]) -> pa.Table:
        columns = [pa.array([row[i] for row in answers], f.type) for i, f in enumerate(self.schema)]
        return pa.Table.from_arrays(columns, schema=self.schema)


class NativeValues:
    """Aggregates in native code, and expressions over them. A state is that of one module, or those of all."""

    def __init__(self, node: Over, parts: list[Folding]) -> None:
        self.node, self.parts = node, parts
        self.pickled = len(parts) > 1 or parts[0].pickled
        self.widths = [len(module.fields) for module in node.modules]

    def go(self, work: FoldWork) -> FoldResult:
        columns = np.split(np.arange(sum(self.widths)), np.cumsum(self.widths)[:-1])
        results = [
            part.go(replace(work, tuples=work.tuples.select(own.tolist()), states=states))
            for part, own, states in zip(self.parts, columns, self._split_states(work.states), strict=True)
        ]
        failures = self._failures(results)
        row = reduce(np.intersect1d, [result.row for result in results])
        answers = [result.payload.column(0).take(pa.array(np.searchsorted(result.row, row))) for result in results]
        payload, nothing = output_columns(self.node, answers), np.zeros(len(work.le), bool)
        payload = with_numbers(self.node, payload, work, row)
        states = self._join_states([result.states for result in results])
        return FoldResult(row, work.le[row], payload, states, nothing, nothing_due(work.groups), failures)

    def _failures(self, results: list[FoldResult]) -> tuple[FoldFailure, ...]:
        """The first failure of each slot."""
        failures: dict[int, FoldFailure] = {}
        for module, result in zip(self.node.modules, results, strict=True):
            for failure in result.failures:
                reason = failure.reason if len(results) == 1 else f"{module.name}: {failure.reason}"
                failures.setdefault(failure.row, failure._replace(reason=reason))
        return tuple(failures.values())

    def _split_states(self, states: pa.Array) -> list[pa.Array]:
        if len(self.parts) == 1:
            return [states]
        no_states = (None,) * len(self.parts)
        all_states = [no_states if state is None else pickle.loads(state) for state in states.to_pylist()]  # noqa: S301 - our own
        return [pa.array([state[place] for state in all_states], pa.binary()) for place in range(len(self.parts))]

    def _join_states(self, states: list[pa.Array]) -> pa.Array:
        if len(states) == 1:
            return states[0]
        by_group = zip(*(group_states.to_pylist() for group_states in states), strict=True)
        return pa.array(
            [None if set(group_states) == {None} else pickle.dumps(group_states) for group_states in by_group],
            pa.binary(),
        )


def answer_schema(node: Over) -> Schema:
    """The schema of the answers of a node's modules."""
    below = node.input.schema
    return Schema(tuple(Field(name, call.type(below)) for name, call in node.aggregate.split[0].items()))


def output_columns(node: Over, columns: list[Any]) -> pa.Table:
    """The output columns, from the columns of the modules' answers."""
    table = pa.Table.from_arrays(columns, schema=answer_schema(node).arrow)
    outputs = node.aggregate.split[1]
    named = Schema(node.aggregate.schema.fields[len(node.keys) :]).arrow
    return pa.Table.from_arrays([evaluate(outputs[name], table) for name in named.names], schema=named)


def with_numbers(node: Over, payload: pa.Table, work: FoldWork, row: Int64s) -> pa.Table:
    """The outputs, after the numbers of their tuples if the node has them."""
    if not node.numbers:
        return payload
    group = np.searchsorted(work.start, row, "right") - 1
    return payload.add_column(0, NUMBER, pa.array(work.counts[group] + row - work.begin[group] + 1))
