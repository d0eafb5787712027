"""Breakpoints in a trace that is there already: where its run would have stopped next.

Pages of servers and of checkpoints have them. Nothing runs again, so a stop costs a look at the changes that are kept.
Conditions compare columns with values (`tracing/comparisons.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.changes import Changes
from headrace.display.words import clipped
from headrace.errors import TraceError
from headrace.time import NEG_INFINITY
from headrace.tracing.breakpoints import AtCti, AtLate, AtOutput, AtRetraction, Breakpoint, Hit, OperatorStep
from headrace.tracing.comparisons import comparisons_of
from headrace.tracing.given import given_time
from headrace.tracing.record import TracedOperator, TraceRecord
from headrace.tracing.recording import RecordedBatch

__all__ = ["breakpoints_of", "next_hits"]

_MOST_BREAKPOINTS = 20


def breakpoints_of(record: TraceRecord, text: str) -> list[Breakpoint]:
    """The breakpoints of a request: a list in JSON, each with its `kind`, `operator` and `when`."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, list) or len(given) > _MOST_BREAKPOINTS or not all(isinstance(o, dict) for o in given):
        raise TraceError(
            "these are no breakpoints", given=clipped(text, 200), allowed=f"a list of at most {_MOST_BREAKPOINTS}",
            instead='[{"kind": "output", "operator": 3, "when": "price > 100"}]',
        )  # fmt: skip
    found = [_breakpoint(record, one) for one in given]
    for number, one in enumerate(found, 1):
        one.number = number
    return found


def next_hits(record: TraceRecord, breakpoints: Sequence[Breakpoint], after: tuple[int, int]) -> list[Hit]:
    """What stops the run first behind a place, which is a batch and an operator; empty if nothing does."""
    for number, batch in record.until(record.number(None)):
        for operator in record.operators:
            if (number, operator.number) > after:
                step = _step(record, operator, number, batch)
                fits = [(one, one.fitting(step)) for one in breakpoints]
                if hits := [Hit(one, step, changes) for one, changes in fits if changes is not None]:
                    return hits
    return []


def _step(record: TraceRecord, operator: TracedOperator, number: int, batch: RecordedBatch) -> OperatorStep:
    changes = Changes.concat([Changes.empty(operator.node.schema), *batch.changes.get(operator.key, ())])
    before = NEG_INFINITY if number == record.first else record.progress_of(operator, number - 1).cti
    ctis = before, record.progress_of(operator, number).cti
    return OperatorStep(operator, number, changes, ctis, tuple(_notes(operator, batch)))


def _notes(operator: TracedOperator, batch: RecordedBatch) -> Iterator[str]:
    """What ingress did to rows of an input that are not among its changes."""
    for source, reports in batch.reports:
        for name in ("dropped", "adjusted") if source.fingerprint == operator.key else ():
            if count := sum(report.counts[name] for report in reports):
                yield f"{count} {name}"


def _breakpoint(record: TraceRecord, given: Mapping[str, Any]) -> Breakpoint:
    kind, when, number = given.get("kind"), str(given.get("when") or "").strip(), given.get("operator")
    operator = None if number is None else record.operator(number)
    if kind == "retraction":
        return AtRetraction(operator)
    if kind == "late":
        return AtLate(operator)
    if kind == "output" and operator is not None:
        return AtOutput(operator, comparisons_of(operator, when) if when else None)
    if kind == "cti" and operator is not None:
        return AtCti(
            operator, given_time(operator, "the CTI", int(when) if re.fullmatch(r"-?\d{1,18}", when) else when)
        )
    raise TraceError(
        "there is no such breakpoint", given=clipped(f"{kind} of {number}", 100),
        allowed="output or cti of an operator, retraction or late of one or any",
    )  # fmt: skip
