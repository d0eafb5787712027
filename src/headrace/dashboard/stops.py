"""Breakpoints in a trace that is there already: where its run would have stopped next.

Pages of servers and of checkpoints have them. Nothing runs again, so a stop costs a look at the changes that are kept.
A condition compares one column with a value: a whole expression of SQL could read files of the server.
"""

from __future__ import annotations

import json
import operator as comparisons
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace.changes import Changes
from headrace.display.words import clipped
from headrace.errors import TraceError
from headrace.expr import Expr, col, lit
from headrace.time import NEG_INFINITY
from headrace.tracing.breakpoints import AtCti, AtLate, AtOutput, AtRetraction, Breakpoint, Hit, OperatorStep
from headrace.tracing.given import given_time
from headrace.tracing.record import TracedOperator, TraceRecord
from headrace.tracing.recording import RecordedBatch

__all__ = ["breakpoints_of", "next_hits"]

_MOST_BREAKPOINTS = 20
_COMPARISON = re.compile(r'\s*("(?:[^"]|"")+"|\w+)\s*(<=|>=|<>|=|<|>)\s*(.+?)\s*', re.DOTALL)
_SIGNS: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "<": comparisons.lt, "<=": comparisons.le, "=": comparisons.eq,
    "<>": comparisons.ne, ">=": comparisons.ge, ">": comparisons.gt,
}  # fmt: skip


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
        return AtOutput(operator, _condition(operator, when) if when else None)
    if kind == "cti" and operator is not None:
        return AtCti(
            operator, given_time(operator, "the CTI", int(when) if re.fullmatch(r"-?\d{1,18}", when) else when)
        )
    raise TraceError(
        "there is no such breakpoint", given=clipped(f"{kind} of {number}", 100),
        allowed="output or cti of an operator, retraction or late of one or any",
    )  # fmt: skip


def _condition(operator: TracedOperator, text: str) -> Expr:
    """A column compared with a value."""
    names = operator.node.schema.names
    parts = _COMPARISON.fullmatch(text)
    name = parts[1] if parts is not None else ""
    name = name[1:-1].replace('""', '"') if name.startswith('"') else name
    if parts is None or name not in names:
        raise TraceError(
            "a breakpoint compares a column of its operator with a value", given=clipped(text, 100),
            allowed=f"one of {', '.join(names)}, then < <= = <> >= or >, then a value", instead=f"{names[0]} = 1",
        )  # fmt: skip
    value = parts[3][1:-1].replace("''", "'") if re.fullmatch(r"'.*'", parts[3], re.DOTALL) else parts[3]
    kind = operator.node.schema[name].type.arrow
    try:
        wanted = pa.scalar(value, pa.string()).cast(kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeEncodeError) as error:
        raise TraceError(f"this is no value of {name}", given=clipped(value, 100), allowed=str(kind)) from error
    return _SIGNS[parts[2]](col(name), lit(wanted))
