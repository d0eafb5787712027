"""Why is an event not there? From a description of it back through the plan, to where the events were lost.

Each operator says what it lost (`operators/reference/lineage`, `ABSENCE`), and describes the input events that would
have made the wanted one; these are asked for below, down to the sources, which know the rows that were late or refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.display.words import clipped, counted
from headrace.errors import TraceError
from headrace.expr import Expr
from headrace.expr.nodes import Call, Column, Literal
from headrace.expr.pushdown import conjuncts
from headrace.literals import printable, sql_text
from headrace.operators.reference.lineage import Cause, Loss, Question, WantedEvent, losses, rows_of_changes
from headrace.operators.reference.rows import Row, row_identity
from headrace.plan.nodes import Admit, Diverted, Failures, Orphans, Source
from headrace.time import CHRONON
from headrace.tracing.given import check_condition, column_values, given_time, has_type
from headrace.tracing.plain import plain_events, plain_table
from headrace.tracing.record import TracedOperator, TraceRecord
from headrace.tracing.unused import lost_rows, taken_back
from headrace.tracing.why import CausalStep, Explainer, Why, event_text, wanted_partner

__all__ = ["MissingStep", "Reason", "WhyNot", "wanted_row", "why_not"]

#: The most operators that are asked, the most reasons of one operator, and how many events of a reason are shown.
_MOST_STEPS, _MOST_REASONS, _MOST_EVENTS = 400, 6, 4
#: How many near events of the operator that was asked are shown.
_NEAR = 2
#: Of a source: it has no such event.
NOT_READ = "not read"
#: Reasons that say what is there, and not what was lost.
_OBSERVED = ("no events", "other values", "other lifetime", "other times", "nothing", "no answer", "not derived")


@dataclass
class Reason:
    """Why an operator did not give a wanted event."""

    kind: str
    text: str
    #: The events of the operator's inputs that explain it, each with its part.
    events: list[tuple[str, CausalStep]] = field(default_factory=list)
    #: What the operator gives in its place, with the causes.
    instead: list[CausalStep] = field(default_factory=list)


@dataclass
class MissingStep:
    """An operator, what was wanted of it, why it did not give it, and what was asked below."""

    operator: TracedOperator
    wanted: WantedEvent
    #: How many events of the operator fit.
    given: int = 0
    reasons: list[Reason] = field(default_factory=list)
    below: list[MissingStep] = field(default_factory=list)

    @property
    def text(self) -> str:
        """What was wanted of which operator, as text for users."""
        node = self.operator.node
        return f"#{self.operator.number} {clipped(self.operator.text, 70)}: {self.wanted.text(dates=node.dates)}"


class WhyNot:
    """The answer to `why_not`: a graph of steps from the operator that was asked down to the sources."""

    def __init__(self, root: MissingStep) -> None:
        self.root = root

    def steps(self) -> Iterator[MissingStep]:
        """Every step once, readers before what they read."""
        seen, waiting = set[int](), [self.root]
        while waiting:
            step = waiting.pop(0)
            if id(step) not in seen:
                seen.add(id(step))
                yield step
                waiting += step.below

    @property
    def reasons(self) -> list[tuple[MissingStep, Reason]]:
        """Why it is not there, nearest to the answer first; that nothing was read, only if nothing was lost."""
        found = [(step, reason) for step in self.steps() for reason in step.reasons]
        rest = [pair for pair in found if pair[1].kind != NOT_READ]
        return rest if any(reason.kind not in _OBSERVED for _, reason in rest) else found

    @property
    def inputs(self) -> pa.Table:
        """The input events from which the lost ones stem, and the rows that were diverted."""
        roots = [event for _, reason in self.reasons for _, event in reason.events]
        if not roots:
            return pa.table({"operator": pa.array([], pa.int64()), "batch": pa.array([], pa.int64())})
        joined = CausalStep(roots[0].operator, roots[0].row, roots[0].batch, causes=[("event", r) for r in roots])
        return Why(joined).inputs

    def as_dict(self) -> dict[str, Any]:
        """The graph as plain values, for JSON: `steps`, of which the first is the question, `reasons` and `inputs`.

        A step has `operator`, `wanted`, `given` (how many events fit), `reasons`, and the places of the steps `below`
        it. A reason has `kind`, `text`, `events` with a `role` each, and `instead`: events in its place, as `why` has
        them.
        """
        steps = list(self.steps())
        places = {id(step): place for place, step in enumerate(steps)}
        return {
            "steps": [
                {
                    "operator": step.operator.number,
                    "wanted": step.wanted.text(dates=step.operator.node.dates),
                    "given": step.given,
                    "reasons": [_plain_reason(reason) for reason in step.reasons],
                    "below": [places[id(one)] for one in step.below],
                }
                for step in steps
            ],
            "reasons": [{"operator": s.operator.number, "kind": r.kind, "text": r.text} for s, r in self.reasons],
            "inputs": plain_table(self.inputs),
        }

    def __repr__(self) -> str:
        lines = [f"not there: {self.root.text}"]
        last = None
        for step, reason in self.reasons:
            if step is not last:
                lines.append(f"  #{step.operator.number} {clipped(step.operator.text, 70)}")
                last = step
            lines.append(f"    {reason.kind}: {reason.text}")
            lines += [f"      {role}: {event.text}" for role, event in reason.events if role != "diverted"]
            for event in reason.instead:
                lines.append("      instead:")
                lines += [f"        {line}" for line in repr(Why(event)).splitlines()]
        return printable("\n".join(lines))


def _plain_reason(reason: Reason) -> dict[str, Any]:
    def plain(event: CausalStep) -> dict[str, Any]:
        node = event.operator.node
        about = {"operator": event.operator.number, "text": event.text, "batch": event.batch}
        return about | plain_events([event.row], node.schema, dates=node.dates)[0]

    return {
        "kind": reason.kind,
        "text": reason.text,
        "events": [{"role": role, **plain(event)} for role, event in reason.events],
        "instead": [Why(event).as_dict() for event in reason.instead],
    }


def why_not(record: TraceRecord, operator: TracedOperator, wanted: WantedEvent, batch: int) -> WhyNot:
    """Why an operator has no such event after a batch; a `TraceError` if it has one."""
    return _AbsenceSearch(record, batch).of(operator, wanted)


class _AbsenceSearch:
    """Asks operator after operator; each description is asked once."""

    def __init__(self, record: TraceRecord, batch: int) -> None:
        self.record, self.batch = record, batch
        self.explainer = Explainer(record, batch)
        self._steps: dict[tuple[int, str], MissingStep] = {}

    def of(self, operator: TracedOperator, wanted: WantedEvent) -> WhyNot:
        root, waiting = self._step(operator, wanted), list[MissingStep]()
        question = self.explainer.question(operator, wanted)
        if question.given:
            raise TraceError(
                "this event is there",
                given=event_text(operator, question.given[0]),
                instead="trace.why(...), or more columns, le= and re=",
            )
        waiting.append(root)
        while waiting:  # not by recursion: plans may be deep
            step = waiting.pop()
            known = len(self._steps)
            below = self._answer(step, at_root=step is root)
            if known > _MOST_STEPS:
                continue
            for number, description in below:
                fresh = len(self._steps)
                step.below.append(self._step(self.record.operator(number), description))
                if len(self._steps) > fresh:
                    waiting.append(step.below[-1])
        found = WhyNot(root)
        if not any(reason.instead or reason.kind not in (*_OBSERVED, NOT_READ) for _, reason in found.reasons):
            self._add(root, _near(question))
        return found

    def _step(self, operator: TracedOperator, wanted: WantedEvent) -> MissingStep:
        key = operator.number, wanted.text(dates=False)
        if key not in self._steps:
            self._steps[key] = MissingStep(operator, wanted)
        return self._steps[key]

    def _answer(self, step: MissingStep, *, at_root: bool) -> list[tuple[int, WantedEvent]]:
        """The reasons of a step; returns what to ask of which operators below."""
        operator = step.operator
        question = self.explainer.question(operator, step.wanted)
        step.given = len(question.given)
        if isinstance(operator.node, (Source, Admit)):
            self._add(step, self._of_input(question, operator))
            return []
        if isinstance(operator.node, (Diverted, Failures, Orphans)):
            self._add(step, [Loss(NOT_READ, "no such row was diverted")])
            return []
        answer = losses(question)
        found = [*answer.found, *self._failed(operator)]
        if not self.record.has_run(operator, self.batch):
            found.insert(0, Loss("not run", f"it has not run yet in batch {self.batch}"))
        if at_root:
            found += taken_back(self.record, operator, step.wanted, self.batch)
        if not found and not question.given:
            candidates = [
                Cause(at, row, "event") for at, below in answer.below for row in question.candidates(below, at)
            ]
            reason = "it gave nothing for these events"
            found += [Loss("nothing", reason, candidates[:_MOST_EVENTS])] if candidates else []
        self._add(step, found)
        return [*((operator.inputs[position], below) for position, below in answer.below), *_would_remove(step)]

    def _of_input(self, question: Question, operator: TracedOperator) -> list[Loss]:
        """What is known of a source: rows that did not become events, and events that were taken back."""
        wanted = question.wanted
        source = self.record.source_of(operator)
        found = lost_rows(self.record, source, wanted, self.batch)
        found += taken_back(self.record, operator, wanted, self.batch)
        having = "" if wanted.is_empty else f" with {wanted.text(dates=operator.node.dates)}"
        if question.given:
            were = "was" if len(question.given) == 1 else "were"
            none = f"{counted(len(question.given), 'event')} {were} read{having}, and no other"
            return [*found, Loss(NOT_READ, none)]
        return [*found, Loss(NOT_READ, f"no event was read{having}"), *([] if found else _near(question))]

    def _failed(self, operator: TracedOperator) -> list[Loss]:
        """The windows of an operator whose module failed."""
        sides = [one for one in self.record.operators if isinstance(one.node, Failures)]
        own = [self.explainer.changes(side) for side in sides if side.inputs == (operator.number,)]
        rows = [row for changes in own for row in rows_of_changes(changes)]
        return [Loss("failed", f"the module failed: {row[2]['reason']}") for row in rows[:_NEAR]]

    # --- losses as reasons -------------------------------------------------------------------------------------------

    def _add(self, step: MissingStep, found: list[Loss]) -> None:
        step.reasons += [self._reason(step.operator, loss) for loss in found[:_MOST_REASONS]]
        if found[_MOST_REASONS:]:
            kinds = ", ".join(dict.fromkeys(loss.kind for loss in found[_MOST_REASONS:]))
            step.reasons.append(Reason("more", f"{counted(len(found) - _MOST_REASONS, 'more reason')}: {kinds}"))

    def _reason(self, operator: TracedOperator, loss: Loss) -> Reason:
        events = []
        for cause in loss.events[:_MOST_EVENTS]:
            below = (
                self._side(operator) if cause.position < 0 else self.record.operator(operator.inputs[cause.position])
            )
            if below is not None:
                events.append((cause.role, self._explained(below, cause.row)))
        then = self.explainer if loss.until is None else Explainer(self.record, loss.until)
        return Reason(loss.kind, loss.reason, events, [self._explained(operator, row, then) for row in loss.instead])

    def _side(self, operator: TracedOperator) -> TracedOperator | None:
        """The operator that has the diverted rows of a source."""
        source = self.record.source_of(operator)
        sides = [one for one in self.record.operators if isinstance(one.node, Diverted) and one.node.source == source]
        return sides[0] if sides else None

    def _explained(self, operator: TracedOperator, row: Row, explainer: Explainer | None = None) -> CausalStep:
        """An event with its causes, if they are known."""
        explainer = explainer or self.explainer
        try:
            return explainer.why(operator, row).root
        except TraceError:
            return CausalStep(operator, row, explainer.added_in(operator, row))


def _would_remove(step: MissingStep) -> list[tuple[int, WantedEvent]]:
    """Of a partner that should not be there and is an unmatched event itself: the partners that would remove it."""
    partners = [e for reason in step.reasons for role, e in reason.events if role == "partner"]
    found = [(one, wanted_partner(one)) for partner in partners for one in Why(partner).steps()]
    return [(one.operator.inputs[1], wanted) for one, wanted in found if wanted is not None]


def _near(question: Question) -> list[Loss]:
    """Events of the operator that nearly fit: at other times, or with one other value."""
    wanted = question.wanted
    if wanted.untimed() != wanted and (rows := wanted.untimed().find(question.output)):
        start = wanted.span[0] if wanted.span is not None else 0
        rows = sorted(rows, key=lambda row: max(row[0] - start, start - row[1] + 1, 0))[:_NEAR]
        return [Loss("other times", "it is there at another time", (), [row]) for row in rows]
    found: dict[Any, Loss] = {}
    for name, value in wanted.equal.items():
        rest = replace(wanted, equal={other: one for other, one in wanted.equal.items() if other != name})
        for row in [] if rest.is_empty else rest.find(question.output)[:_NEAR]:
            reason = f"the nearest has {name} = {sql_text(row[2][name])}, not {sql_text(value)}"
            found.setdefault(row_identity(row), Loss("other values", reason, (), [row]))
    return list(found.values())[:_NEAR]


def wanted_row(
    operator: TracedOperator, row: Mapping[str, Any] | Expr | None, columns: Mapping[str, Any], at: Any = None
) -> WantedEvent:
    """The description of an event by values of columns, of `le` and `re`, by an instant, or by a condition."""
    is_condition = row is not None and not isinstance(row, Mapping)
    equal = dict(columns) | (dict(row) if isinstance(row, Mapping) else {})
    holds, names = [], operator.node.schema.names
    for part in conjuncts(row) if isinstance(row, Expr) else ():
        pair = _equality(part)
        if pair is not None and pair[0] not in equal and (pair[0] not in names or has_type(operator, *pair)):
            equal[pair[0]] = pair[1]
        else:
            holds.append((part, True))
    times = {name: given_time(operator, name, equal.pop(name)) for name in ("le", "re") if name in equal}
    unknown = [name for name in (*equal, *(n for part, _ in holds for n in part.columns())) if name not in names]
    if unknown and {*unknown} <= {"le", "re"}:
        raise TraceError(
            "of an event that is not there, a time is one that it should have",
            given=clipped(str(row), 100),
            allowed="le = TIME, re = TIME",
            instead="a time at which it should last: at",
        )
    if unknown or not (equal or times or is_condition or at is not None):
        raise TraceError(
            f"operator #{operator.number} has no column {unknown[0]!r}" if unknown else "nothing is said of the event",
            given=", ".join(equal) or "nothing",
            allowed=", ".join(["le", "re", "at", *names]),
        )
    if is_condition:
        check_condition(operator, row)
    equal = column_values(operator, equal)
    instant = None if at is None else given_time(operator, "at", at)
    over = None if instant is None else (instant, instant + CHRONON)
    return WantedEvent(equal, tuple(holds), times.get("le"), times.get("re"), over)


def _equality(part: Expr) -> tuple[str, Any] | None:
    """The column and the value of `column = value`."""
    if not isinstance(part, Call) or part.function != "eq":
        return None
    for one, other in (part.args, part.args[::-1]):
        if isinstance(one, Column) and isinstance(other, Literal):
            return one.name, other.value
    return None
