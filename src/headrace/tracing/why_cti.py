"""Why is a CTI where it is? From the CTI of an operator, step by step, to what holds it back.

The rule of each operator is its liveliness (rule 6.4), and its CTI after each batch was recorded. If an operator passes
on the least CTI of its inputs, that input holds it. Else it holds the CTI itself: because of a window that is open, or
of an event that may still change. At a source, the policy says what it promised, and which event it follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.display.words import clipped
from headrace.literals import printable
from headrace.operators.reference.lineage import WantedEvent
from headrace.operators.reference.rows import Row
from headrace.operators.reference.windows import windows_over
from headrace.plan.nodes import Admit, PerWindow, Source
from headrace.plan.policies import Advance, Heartbeat
from headrace.plan.windows import Grid
from headrace.time import CHRONON, INFINITY, NEG_INFINITY, format_duration, format_ticks
from headrace.tracing.plain import plain_table, plain_time
from headrace.tracing.record import TracedOperator, TraceRecord
from headrace.tracing.why import CausalStep, Explainer, Why

__all__ = ["CtiStep", "WhyCti", "why_cti"]

#: The most events that are named as holding a CTI.
_MOST = 5


@dataclass
class CtiStep:
    """The CTI of an operator after a batch, its rule, and what holds it."""

    operator: TracedOperator
    cti: int
    #: How its CTI follows from those of its inputs, as `explain` says.
    rule: str
    #: What holds it; empty if it passes the CTI of an input on.
    reason: str = ""
    #: The input events that hold it, or that it follows.
    events: list[CausalStep] = field(default_factory=list)
    #: The inputs that hold it.
    below: list[CtiStep] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The step in a line."""
        operator = self.operator
        time = format_ticks(self.cti, dates=operator.node.dates)
        said = f": {self.reason}" if self.reason else ""
        return f"#{operator.number} {clipped(operator.text, 60)}: {time} ({self.rule}){said}"


class WhyCti:
    """The answer to `why_cti`: steps from an operator to the sources and events that hold its CTI."""

    def __init__(self, root: CtiStep, batch: int) -> None:
        self.root, self.batch = root, batch

    def steps(self) -> Iterator[CtiStep]:
        """Every step once, readers first."""
        seen, waiting = set[int](), [self.root]
        while waiting:
            step = waiting.pop(0)
            if id(step) not in seen:
                seen.add(id(step))
                yield step
                waiting += step.below

    @property
    def holders(self) -> list[CtiStep]:
        """The steps that hold the CTI back by themselves, nearest first."""
        return [step for step in self.steps() if step.reason]

    @property
    def inputs(self) -> pa.Table:
        """The input events that hold it, or that it follows."""
        events = [event for step in self.steps() for event in step.events]
        if not events:
            return pa.table({"operator": pa.array([], pa.int64()), "batch": pa.array([], pa.int64())})
        joined = CausalStep(events[0].operator, events[0].row, events[0].batch, causes=[("event", e) for e in events])
        return Why(joined).inputs

    def as_dict(self) -> dict[str, Any]:
        """The steps as plain values, for JSON; each names those `below` it by their places in the list."""
        steps = list(self.steps())
        places = {id(step): place for place, step in enumerate(steps)}
        return {
            "batch": self.batch,
            "steps": [
                {
                    "operator": step.operator.number,
                    "cti": plain_time(step.cti, dates=step.operator.node.dates),
                    "rule": step.rule,
                    "reason": step.reason,
                    "events": [Why(event).as_dict()["steps"][0] | {"causes": []} for event in step.events],
                    "below": [places[id(one)] for one in step.below],
                }
                for step in steps
            ],
            "inputs": plain_table(self.inputs),
        }

    def __repr__(self) -> str:
        lines = [f"after batch {self.batch}:"]
        for step in self.steps():
            lines.append(f"  {step.text}")
            lines += [f"    event: {event.text}" for event in step.events]
        return printable("\n".join(lines))


def why_cti(record: TraceRecord, operator: TracedOperator, batch: int) -> WhyCti:
    """Why the CTI of an operator is where it is after a batch."""
    search = _CtiSearch(record, batch)
    root = search.step(operator)
    waiting = [root]
    while waiting:  # not by recursion: plans may be deep
        step = waiting.pop()
        for below in search.holding(step):
            known = below.number in search.steps
            step.below.append(search.step(below))
            if not known:
                waiting.append(step.below[-1])
    return WhyCti(root, batch)


class _CtiSearch:
    """What holds the CTIs of operators after one batch."""

    def __init__(self, record: TraceRecord, batch: int) -> None:
        self.record, self.batch = record, batch
        self.explainer = Explainer(record, batch)
        self.steps: dict[int, CtiStep] = {}

    def step(self, operator: TracedOperator) -> CtiStep:
        if operator.number not in self.steps:
            cti = self.record.progress_of(operator, self.batch).cti
            self.steps[operator.number] = CtiStep(operator, cti, operator.node.liveliness.cti)
        return self.steps[operator.number]

    def holding(self, step: CtiStep) -> list[TracedOperator]:
        """Fill in what holds a step; returns the inputs that do."""
        operator, node = step.operator, step.operator.node
        if isinstance(node, Source):
            self._of_source(step, node)
            return []
        inputs = [self.record.operator(number) for number in operator.inputs]
        ctis = [self.record.progress_of(one, self.batch).cti for one in inputs]
        if step.cti < min(ctis) and step.cti != self._passed_on(operator, inputs):
            self._held_by_itself(step, min(ctis))
        return [one for one, cti in zip(inputs, ctis, strict=True) if cti == min(ctis)]

    def _passed_on(self, operator: TracedOperator, inputs: list[TracedOperator]) -> int | None:
        """The CTI of an operator without state, such as one that moves times."""
        if not operator.node.linear:
            return None
        return operator.node.progress([self.record.progress_of(one, self.batch) for one in inputs]).cti

    def _held_by_itself(self, step: CtiStep, reached: int) -> None:
        """A window that is open, or events that may still change."""
        node = step.operator.node
        now, held = (format_ticks(time, dates=node.dates) for time in (reached, step.cti))
        if step.cti == NEG_INFINITY:
            step.reason = "it has made no promise yet"
            return
        events = self._open_events(step, reached)
        step.events = [self.explainer.why(below, row).root for below, row in events[:_MOST]]
        grid = node.window if isinstance(node, PerWindow) and isinstance(node.window, Grid) else None
        spans = windows_over(grid, step.cti, step.cti + CHRONON) if grid is not None else ()
        ends = [end for start, end in spans if start == step.cti]
        if ends and not getattr(node, "holds_ends", False):
            end = format_ticks(ends[0], dates=node.dates)
            step.reason = f"the window [{held}, {end}) is open until the CTI of its input, {now}, reaches {end}"
        elif events:
            step.reason = f"an event from {held} on may still change: the CTI of its input is {now}"
        else:
            step.reason = f"it holds the CTI at {held}, while that of its input is {now}"

    def _open_events(self, step: CtiStep, reached: int) -> list[tuple[TracedOperator, Row]]:
        """The input events that start at the CTI; else those that last over it and have not ended.

        A trace that does not begin with the first batch has no histories.
        """
        if self.record.first:
            return []
        inputs = [self.record.operator(number) for number in step.operator.inputs]
        histories = self.explainer.histories(step.operator)
        for wanted in (
            WantedEvent(le=step.cti),
            WantedEvent(over=(step.cti, reached), ends=(reached, INFINITY)),
            WantedEvent(over=(step.cti, reached), re=INFINITY),
        ):
            found = [(one, row) for position, one in enumerate(inputs) for row in wanted.find(histories, position)]
            if found:
                return found
        return []

    # --- sources -----------------------------------------------------------------------------------------------------

    def _of_source(self, step: CtiStep, source: Source) -> None:
        """The promise of a source, and the event that it follows."""
        policy, dates = source.policy, source.dates
        now = self.record.progress_of(step.operator, self.batch)
        step.rule = str(policy)
        if step.cti == INFINITY:
            step.reason = "the input has ended"
            return
        if step.cti == NEG_INFINITY:
            step.reason = f"no promise was made{self._silence(source)}"
            return
        channel = self._slowest_channel(source)
        if channel is not None:
            step.reason = f"the channel {channel} is the farthest behind{self._silence(source)}"
        elif isinstance(policy, Advance) and now.keys and policy.cti(min(map(_time, now.keys))) == step.cti:
            key, behind = min(now.keys, key=_time)
            step.reason = f"{policy.per} = {key} is the farthest behind, at {format_ticks(behind, dates=dates)}"
            self._follow(step, behind)
        elif isinstance(policy, Advance) and policy.cti(now.high) == step.cti:
            high = format_ticks(now.high, dates=dates)
            step.reason = f"the latest event is at {high}, less the delay {format_duration(policy.delay)}"
            step.reason += self._silence(source)
            self._follow(step, now.high)
        elif isinstance(policy, Heartbeat):
            step.reason = "the clock"
        else:
            step.reason = f"promised in batch {self._promised_in(step.operator)}{self._silence(source)}"

    def _follow(self, step: CtiStep, high: int) -> None:
        """Name the latest events, as they were admitted; without a history, none."""
        if self.record.first:
            return
        admitted = [one for one in self.record.operators if isinstance(one.node, Admit)]
        own = [one for one in admitted if one.inputs == (step.operator.number,)] or [step.operator]
        found = WantedEvent(le=high).find(self.explainer.question(own[0], WantedEvent()).output)
        step.events = [self.explainer.why(own[0], row).root for row in found[:_MOST]]

    def _slowest_channel(self, source: Source) -> str | None:
        """The partition with the least promise that is not idle, of several."""
        latest: dict[str, tuple[int, bool]] = {}
        for _, recorded in self.record.until(self.batch):
            for one, reports in recorded.reports:
                for report in reports if one.fingerprint == source.fingerprint else ():
                    if report.channel is not None:
                        latest[report.channel] = (report.promise(source.policy), report.idle)
        active = {name: promise for name, (promise, idle) in latest.items() if not idle}
        return min(active, key=lambda name: active[name]) if len(active) > 1 else None

    def _silence(self, source: Source) -> str:
        """Since when a source has been silent, if it has."""
        read = [
            number
            for number, recorded in self.record.until(self.batch)
            if any(len(accepted) or len(side) for accepted, side in recorded.judged.get(source.fingerprint, ()))
        ]
        if not read:
            return "; it has sent nothing"
        return f"; its last rows are of batch {read[-1]}" if read[-1] < self.batch else ""

    def _promised_in(self, operator: TracedOperator) -> int:
        """The batch in which a source made its promise."""
        now = self.record.progress_of(operator, self.batch).cti
        reached = [n for n, _ in self.record.until(self.batch) if self.record.progress_of(operator, n).cti == now]
        return reached[0]


def _time(of_key: tuple[str, int]) -> int:
    """The highest time of a key."""
    return of_key[1]
