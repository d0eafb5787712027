"""Why is this event here? From an event of an operator back to the input events that caused it, step by step.

Each operator says what its output stems from (`operators/reference/lineage`); here its histories are those that the
trace has kept, after one batch. The steps are a graph: an event that caused several others is one step.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.border import shown
from headrace.changes import Changes
from headrace.display.words import clipped, counted, value_text
from headrace.errors import TraceError
from headrace.expr import Expr, evaluate
from headrace.operators.reference.lineage import Histories, rows_of_changes, stems
from headrace.operators.reference.rows import Row, row_identity, table_of
from headrace.plan.nodes import Admit, Diverted, Failures, Orphans, Source
from headrace.time import CHRONON, format_ticks, ticks
from headrace.tracing.record import TracedOperator, TraceRecord

__all__ = ["INPUTS", "CausalStep", "Explainer", "Why", "chosen_row", "event_text"]

#: Where the way back ends: input as it was admitted, and side outputs.
INPUTS = (Source, Admit, Diverted, Failures, Orphans)
#: How many causes of a step a text shows, and how many steps in all.
_MOST_CAUSES, _MOST_STEPS = 12, 200


@dataclass
class CausalStep:
    """An event of an operator, and the events that caused it."""

    operator: TracedOperator
    row: Row
    #: The batch in which the event came.
    batch: int
    #: What is between it and its causes: a window, a match.
    through: str = ""
    #: The causes, each with the part that it plays.
    causes: list[tuple[str, CausalStep]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The event, as text for users."""
        return f"#{self.operator.number} {event_text(self.operator, self.row)}, batch {self.batch}"


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
            table = shown(table_of([step.row for step in own], node.schema), dates=node.dates)
            for place, values in enumerate(([operator] * len(own), [step.batch for step in own])):
                table = table.add_column(place, ("operator", "batch")[place], pa.array(values, pa.int64()))
            tables.append(table.sort_by([("batch", "ascending"), ("le", "ascending")]))
        return pa.concat_tables(tables, promote_options="default")

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
        return "\n".join(lines)


class Explainer:
    """Explains events of a trace as they were after a batch."""

    def __init__(self, record: TraceRecord, batch: int) -> None:
        self.record, self.batch = record, batch
        self._changes: dict[int, Changes] = {}
        self._steps: dict[tuple[int, Hashable], CausalStep] = {}

    def why(self, operator: TracedOperator, row: Row) -> Why:
        """The causes of an event."""
        root = self._step(operator, row)
        waiting = [root]
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
        return Why(root)

    def histories(self, operator: TracedOperator) -> Histories:
        """The histories of an operator's inputs after the batch."""
        producers = [self.record.operator(number) for number in operator.inputs]
        progress = [self.record.progress_of(producer, self.batch) for producer in producers]
        return Histories([partial(self.changes, producer) for producer in producers], progress)

    def changes(self, operator: TracedOperator) -> Changes:
        """The changes of an operator up to the batch."""
        if operator.number not in self._changes:
            self._changes[operator.number] = self.record.changes_until(operator, self.batch)
        return self._changes[operator.number]

    def _step(self, operator: TracedOperator, row: Row) -> CausalStep:
        key = operator.number, row_identity(row)
        if key not in self._steps:
            self._steps[key] = CausalStep(operator, row, self._came(operator, row))
        return self._steps[key]

    def _came(self, operator: TracedOperator, row: Row) -> int:
        """The last batch up to now in which an event was added."""
        found = 0
        for number, changes in self.record.changes_by_batch(operator):
            added = changes.filter((changes.le == row[0]) & (changes.re == row[1]) & (changes.weight > 0))
            if number <= self.batch and len(added) and number > found:
                rows = rows_of_changes(added)
                found = number if row_identity(row) in map(row_identity, rows) else found
        return found


def event_text(operator: TracedOperator, row: Row) -> str:
    """An event of an operator, in a line; of an instant, only its start."""
    le, re = (format_ticks(time, dates=operator.node.dates) for time in row[:2])
    columns = ", ".join(f"{name} = {value_text(value)}" for name, value in row[2].items())
    return f"{f'at {le}' if row[1] == row[0] + CHRONON else f'[{le}, {re})'}: {clipped(columns, 120)}"


def chosen_row(
    operator: TracedOperator, changes: Changes, row: Mapping[str, Any] | Expr | None, columns: Mapping[str, Any]
) -> Row:
    """The one event of a history that has these values, or fulfils a predicate."""
    found = changes
    wanted = dict(columns)
    if isinstance(row, Mapping):
        wanted |= row
    elif row is not None:
        found = found.filter(np.asarray(evaluate(row, found.payload).fill_null(False)))
    unknown = [name for name in wanted if name not in (*operator.node.schema.names, "le", "re")]
    if unknown:
        raise TraceError(
            f"operator #{operator.number} has no column {unknown[0]!r}",
            given=", ".join(wanted),
            allowed=", ".join(["le", "re", *operator.node.schema.names]),
        )
    times = {name: ticks(wanted.pop(name)) for name in ("le", "re") if name in wanted}
    rows = Histories([lambda: found], []).find(0, le=times.get("le"), re=times.get("re"), equal=wanted)
    each = {row_identity(one): one for one in rows}
    if len(each) != 1:
        listed = "; ".join(event_text(operator, one) for one in list(each.values())[:3])
        raise TraceError(
            f"{counted(len(each), 'event')} of operator #{operator.number} fit" if each else "no event fits",
            given=clipped(str(row) if isinstance(row, Expr) else ", ".join(map(str, (times | wanted).items())), 200),
            allowed=f"one event: {listed}" if each else "an event of the history, which trace.history(...) shows",
            instead="more columns, or le= and re=" if each else "",
        )
    return next(iter(each.values()))
