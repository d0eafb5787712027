"""Why is this event here? From an event of an operator back to the input events that caused it, step by step.

Each operator says what its output stems from (`operators/reference/lineage`); here its histories are those that the
trace has kept, after one batch. The steps are a graph: an event that caused several others is one step.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from headrace.border import shown
from headrace.changes import Changes
from headrace.display.words import clipped, counted, value_text
from headrace.literals import printable
from headrace.operators.reference.lineage import Histories, Question, WantedEvent, losses, stems
from headrace.operators.reference.rows import Row, row_identity, table_of
from headrace.plan.base import walk
from headrace.plan.nodes import (
    Admit,
    Clip,
    Coalesce,
    Diverted,
    EdgeLifetimes,
    Failures,
    Join,
    Match,
    Orphans,
    PerWindow,
    Recurse,
    Source,
)
from headrace.time import CHRONON, format_ticks
from headrace.tracing.plain import plain_events, plain_table
from headrace.tracing.record import TracedOperator, TraceRecord
from headrace.tracing.wide import beside, wide

__all__ = ["INPUTS", "CausalStep", "Explainer", "Why", "event_text", "wanted_partner"]

#: Where the way back ends: input as it was admitted, and side outputs.
INPUTS = (Source, Admit, Diverted, Failures, Orphans)
#: Operators of which fewer input events may give other events: an unmatched event may find a partner among these.
_NOT_MONOTONE = (Clip, Coalesce, EdgeLifetimes, Join, Match, PerWindow, Recurse)
#: Columns of `inputs` besides those of the events.
_OWN = ("operator", "batch")
#: How many causes of a step a text shows, and how many steps in all.
_MOST_CAUSES, _MOST_STEPS = 12, 200


@dataclass
class CausalStep:
    """An event of an operator, and the events that caused it."""

    operator: TracedOperator
    row: Row
    #: The batch that added the event.
    batch: int
    #: What is between it and its causes: a window, a match.
    through: str = ""
    #: The causes, each with the part that it plays.
    causes: list[tuple[str, CausalStep]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The event, as text for users."""
        return f"#{self.operator.number} {event_text(self.operator, self.row)}, batch {self.batch}"

    def as_dict(self, event: Mapping[str, Any], places: Mapping[int, int]) -> dict[str, Any]:
        """The step as plain values; `places` are those of its causes in the list of steps."""
        return {
            "operator": self.operator.number,
            "text": self.text,
            "batch": self.batch,
            **event,
            "through": self.through,
            "causes": [{"role": role, "step": places[id(cause)]} for role, cause in self.causes],
        }


class Why:
    """The answer to `why`: a graph of steps from an event to its causes among the inputs."""

    def __init__(self, root: CausalStep) -> None:
        self.root = root

    def steps(self) -> Iterator[CausalStep]:
        """Every step once, effects before causes."""
        seen, waiting = set[int](), [self.root]
        while waiting:
            step = waiting.pop()
            if id(step) not in seen:
                seen.add(id(step))
                yield step
                waiting += [cause for _, cause in reversed(step.causes)]

    @property
    def inputs(self) -> pa.Table:
        """The input events that caused it: operator, batch, lifetime and columns."""
        tables = []
        leaves = [step for step in self.steps() if not step.causes]
        for operator in sorted({step.operator.number for step in leaves}):
            own = [step for step in leaves if step.operator.number == operator]
            node = own[0].operator.node
            events = shown(table_of([step.row for step in own], node.schema), dates=node.dates)
            numbers = [operator] * len(own), [step.batch for step in own]
            table = pa.table([pa.array(column, pa.int64()) for column in numbers], names=list(_OWN))
            for name, column in zip(beside(_OWN, events.column_names), events.columns, strict=True):
                table = table.append_column(name, column)
            tables.append(table.sort_by([("batch", "ascending"), ("le", "ascending")]))
        return wide(tables)

    def as_dict(self) -> dict[str, Any]:
        """The graph as plain values, for JSON: `steps`, of which the first is the event, and each names its causes.

        A step has `operator`, `text`, `batch`, `le`, `re`, `values`, `through` and `causes`, which are pairs of a
        `role` and the place of a `step` in the list.
        """
        steps = list(self.steps())
        places = {id(step): place for place, step in enumerate(steps)}
        events: dict[int, dict[str, Any]] = {}
        for number in {step.operator.number for step in steps}:
            own = [step for step in steps if step.operator.number == number]
            node = own[0].operator.node
            plain = plain_events([step.row for step in own], node.schema, dates=node.dates)
            events |= {id(step): event for step, event in zip(own, plain, strict=True)}
        return {"steps": [step.as_dict(events[id(step)], places) for step in steps], "inputs": plain_table(self.inputs)}

    def __repr__(self) -> str:
        lines: list[str] = []
        shown_steps = set[int]()

        def add(step: CausalStep, depth: int, role: str) -> None:
            if len(lines) >= _MOST_STEPS:
                return
            again = id(step) in shown_steps and step.causes
            shown_steps.add(id(step))
            lines.append(f"{'  ' * depth}{role}{step.text}{' (see above)' if again else ''}")
            if again:
                return
            if step.through:
                lines.append(f"{'  ' * depth}  through {step.through}")
            for name, cause in step.causes[:_MOST_CAUSES]:
                add(cause, depth + 1, f"{name}: ")
            if (more := len(step.causes) - _MOST_CAUSES) > 0:
                lines.append(f"{'  ' * (depth + 1)}… and {counted(more, 'cause')} more")

        add(self.root, 0, "")
        return printable("\n".join(lines))


class Explainer:
    """Explains events of a trace as they were after a batch."""

    def __init__(self, record: TraceRecord, batch: int) -> None:
        self.record, self.batch = record, batch
        self._changes: dict[int, Changes] = {}
        self._histories: dict[int, Histories] = {}
        self._steps: dict[tuple[int, Hashable], CausalStep] = {}

    def why(self, operator: TracedOperator, row: Row) -> Why:
        """The causes of an event."""
        root = self._step(operator, row)
        self._follow([root])
        return Why(root)

    def add(self, why: Why, role: str, events: Iterable[tuple[TracedOperator, Row]]) -> None:
        """Add causes of an event that its operator does not name, with the causes of these."""
        known = {id(step) for step in why.steps()}
        more = {id(step): step for step in (self._step(*event) for event in events)}
        new = [step for key, step in more.items() if key not in known]
        why.root.causes += [(role, step) for step in new]
        self._follow(new)

    def _follow(self, waiting: list[CausalStep]) -> None:
        """Find the causes of steps, and of these."""
        while waiting:  # not by recursion: plans may be deep
            step = waiting.pop()
            if isinstance(step.operator.node, INPUTS) or step.causes:
                continue
            stem = stems(step.operator.node, step.row, self.histories(step.operator))
            step.through = stem.through
            for cause in stem.causes:
                below = self._step(self.record.operator(step.operator.inputs[cause.position]), cause.row)
                step.causes.append((cause.role, below))
                waiting.append(below)
            partner = wanted_partner(step)
            if partner is not None:
                kept_away = [self._step(*event) for event in self._keep_away(step.operator.inputs[1], partner)]
                step.causes += [("keeps a partner away", below) for below in kept_away]
                waiting += kept_away

    def question(self, operator: TracedOperator, wanted: WantedEvent) -> Question:
        """The question for what an operator lost."""
        own = Histories([lambda: self.changes(operator)], [])
        return Question(operator.node, wanted, self.histories(operator), own)

    def _keep_away(self, number: int, partner: WantedEvent) -> list[tuple[TracedOperator, Row]]:
        """The events without which an operator would have a partner for an unmatched event.

        The operator may be such that fewer events give more: an anti join, the top, an aggregate.
        """
        waiting = [(self.record.operator(number), partner)]
        seen, found = set[tuple[int, str]](), list[tuple[TracedOperator, Row]]()
        while waiting:
            operator, wanted = waiting.pop()
            key = operator.number, wanted.text(dates=False)
            if key in seen or not any(isinstance(one, _NOT_MONOTONE) for one in walk(operator.node)):
                continue
            seen.add(key)
            inputs = [self.record.operator(number) for number in operator.inputs]
            answer = losses(self.question(operator, wanted))
            for loss in answer.found:
                found += [(inputs[cause.position], cause.row) for cause in loss.events[1:]]
                found += [(operator, row) for row in loss.instead]
            waiting += [(inputs[position], below) for position, below in answer.below]
        return found

    def histories(self, operator: TracedOperator) -> Histories:
        """The histories of an operator's inputs after the batch."""
        if operator.number not in self._histories:
            producers = [self.record.operator(number) for number in operator.inputs]
            progress = [self.record.progress_of(producer, self.batch) for producer in producers]
            changes = [partial(self.changes, producer) for producer in producers]
            self._histories[operator.number] = Histories(changes, progress)
        return self._histories[operator.number]

    def changes(self, operator: TracedOperator) -> Changes:
        """The changes of an operator up to the batch."""
        if operator.number not in self._changes:
            self._changes[operator.number] = self.record.changes_until(operator, self.batch)
        return self._changes[operator.number]

    def copies(self, operator: TracedOperator, rows: Sequence[Row]) -> list[Row]:
        """Events of an operator, each as often as it is there."""
        return Histories([partial(self.changes, operator)], []).copies(0, rows)

    def _step(self, operator: TracedOperator, row: Row) -> CausalStep:
        key = operator.number, row_identity(row)
        if key not in self._steps:
            self._steps[key] = CausalStep(operator, row, self.added_in(operator, row))
        return self._steps[key]

    def added_in(self, operator: TracedOperator, row: Row) -> int:
        """The last batch up to now in which an event was added."""
        places = self.record.places_of(operator).find(row)
        return max((place.batch for place in places if place.batch <= self.batch), default=0)


def wanted_partner(step: CausalStep) -> WantedEvent | None:
    """The description of the partners that an unmatched event of a join does not have; None for other steps."""
    lefts = [cause.row for role, cause in step.causes if role == "unmatched"]
    node = step.operator.node
    if not lefts or not isinstance(node, Join):
        return None
    return WantedEvent({b: lefts[0][2][a] for a, b in node.on}, over=(step.row[0], step.row[1]))


def event_text(operator: TracedOperator, row: Row) -> str:
    """An event of an operator, in a line; of an instant, only its start."""
    le, re = (format_ticks(time, dates=operator.node.dates) for time in row[:2])
    columns = ", ".join(f"{name} = {value_text(value)}" for name, value in row[2].items())
    return f"{f'at {le}' if row[1] == row[0] + CHRONON else f'[{le}, {re})'}: {clipped(columns, 120)}"
