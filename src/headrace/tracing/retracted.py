"""Why was this event taken back? From a removal back to the input events that its batch added or removed.

An operator takes an event back because one of its causes is gone, or because an event was added beside them: a row in
its window, a partner of an unmatched part. The first is known from the causes; the second is found by the twin, which
gives the event over its causes, and no longer gives it with the added event among them. Where other events have a say,
as in the top 2, the twin is asked over all events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from headrace.changes import Changes
from headrace.errors import TraceError
from headrace.expr import Expr
from headrace.operators.reference.lineage import Stem, stems
from headrace.operators.reference.plan import TWINS
from headrace.operators.reference.rows import Row, row_identity
from headrace.tracing.given import chosen_row
from headrace.tracing.record import TracedOperator, TraceRecord
from headrace.tracing.why import INPUTS, CausalStep, Explainer, Why, event_text

__all__ = ["why_removed", "why_retracted"]

#: The most changes of inputs that are tried, and events that they are tried over.
_MOST = 2_000
#: A change of an input: the input, the event, and how many copies were added.
_Moved = tuple[int, Row, int]


def why_retracted(
    record: TraceRecord, operator: TracedOperator, row: Mapping[str, Any] | Expr | None, columns: Mapping[str, Any]
) -> Why:
    """The input events that made an operator take an event back, the last time that it did."""
    removals = [(n, part.filter(part.weight < 0).negated()) for n, part in record.changes_by_batch(operator)]
    gone = Changes.concat([Changes.empty(operator.node.schema), *(part for _, part in removals)])
    among = f"an event that was taken back: one of trace.of({operator.number}) with a weight below 0"
    event = chosen_row(operator, gone, row, columns, among=among)
    batches = [n for n, _ in removals if _RemovalBatch(record, n).net(operator, event) < 0]
    if not batches:
        raise TraceError(
            "this event was added and taken back in one batch",
            given=event_text(operator, event),
            instead="smaller batches: trace(batch_rows=1)",
        )
    return Why(_RemovalBatch(record, max(batches)).step(operator, event))


def why_removed(record: TraceRecord, operator: TracedOperator, row: Row, batch: int) -> Why:
    """The input events that made an operator take an event back in a batch."""
    return Why(_RemovalBatch(record, batch).step(operator, row))


class _RemovalBatch:
    """The batch in which events were taken back."""

    def __init__(self, record: TraceRecord, number: int) -> None:
        self.record, self.number = record, number
        self._before, self._after = Explainer(record, number - 1), Explainer(record, number)

    def step(self, operator: TracedOperator, row: Row) -> CausalStep:
        """Why an operator took an event back."""
        step = CausalStep(operator, row, self.number)
        if isinstance(operator.node, INPUTS):
            moved = [r for r, weight in self._delta(operator) if weight > 0 and r[0] == row[0] and _alike(r, row)]
            step.through = f"corrected to {event_text(operator, moved[0])}" if moved else "deleted"
            return step
        inputs = [self.record.operator(number) for number in operator.inputs]
        stem = stems(operator.node, row, self._before.histories(operator))
        for cause in stem.causes:
            if self.net(inputs[cause.position], cause.row) < 0:
                step.causes.append(("taken back", self.step(inputs[cause.position], cause.row)))
        if not step.causes:
            for position, other, weight in self._culprits(operator, row, stem):
                if weight > 0:
                    step.causes.append(("added", self._after.why(inputs[position], other).root))
                else:
                    step.causes.append(("taken back", self.step(inputs[position], other)))
        return step

    def net(self, operator: TracedOperator, row: Row) -> int:
        """How many copies of an event the batch added; negative if it removed some."""
        return sum(weight for other, weight in self._delta(operator) if row_identity(other) == row_identity(row))

    @lru_cache  # noqa: B019 - it lives as long as the question
    def _delta(self, operator: TracedOperator) -> list[tuple[Row, int]]:
        """What the batch changed in the history of an operator."""
        parts = [part for number, part in self.record.changes_by_batch(operator) if number == self.number]
        left = Changes.concat([Changes.empty(operator.node.schema), *parts]).consolidate()
        payloads = left.payload.to_pylist() or [{} for _ in range(len(left))]
        columns = (left.le.tolist(), left.re.tolist(), payloads, left.weight.tolist())
        return [((le, re, payload), weight) for le, re, payload, weight in zip(*columns, strict=True)]

    def _culprits(self, operator: TracedOperator, row: Row, stem: Stem) -> list[_Moved]:
        """The changes of inputs with which the operator gives an event no more: over its causes, or over all events."""
        node, before = operator.node, self._before.histories(operator)
        inputs = [self.record.operator(number) for number in operator.inputs]
        moved = [(i, r, weight) for i, one in enumerate(inputs) for r, weight in self._delta(one) if weight]
        if type(node) not in TWINS or len(moved) > _MOST:
            raise TraceError(
                "why this operator took the event back is not known", given=node.describe(), instead="smaller batches"
            )
        causes = [before.copies(i, [c.row for c in stem.causes if c.position == i]) for i in range(len(inputs))]
        found = self._breaking(operator, row, causes, [one for one in moved if one[2] > 0])
        if not found:
            events = [before.find(i) for i in range(len(inputs))]
            found = self._breaking(operator, row, events, moved) if sum(map(len, events)) <= _MOST else []
        if not found:
            raise TraceError("why this operator took the event back is not known", given=node.describe())
        return found

    def _breaking(
        self, operator: TracedOperator, row: Row, events: Sequence[Sequence[Row]], moved: Sequence[_Moved]
    ) -> list[_Moved]:
        """The changes of events that take a copy of an event away: those that are enough alone, or else all."""
        node, progress = operator.node, self._after.histories(operator).progress

        def copies(some: Sequence[_Moved]) -> int:
            given = [list(rows) for rows in events]
            for position, one, weight in some:
                given[position] += [one] * weight
                for _ in range(-weight):
                    places = [n for n, other in enumerate(given[position]) if row_identity(other) == row_identity(one)]
                    given[position] = [other for n, other in enumerate(given[position]) if n not in places[:1]]
            found, _ = TWINS[type(node)](node, list(zip(given, progress, strict=True)))
            return sum(row_identity(row) == row_identity(other) for other in found)

        there = copies([])
        return [one for one in moved if copies([one]) < there] or [*moved] if copies(moved) < there else []


def _alike(one: Row, other: Row) -> bool:
    return row_identity((0, 0, one[2])) == row_identity((0, 0, other[2]))
