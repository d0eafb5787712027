"""What a question names, checked: an event by its values and times, and input events that are to be left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.display.words import clipped, counted
from headrace.errors import TraceError
from headrace.expr import Expr, evaluate
from headrace.operators.reference.lineage import Histories
from headrace.operators.reference.rows import Row, row_identity
from headrace.plan.policies import Physical
from headrace.time import INFINITY, NEG_INFINITY, ticks
from headrace.tracing.record import TracedOperator, TraceRecord
from headrace.tracing.why import event_text

__all__ = ["check_values", "chosen_row", "given_time", "has_type", "without_events"]

#: Where times are dates, smaller numbers are more likely years or seconds than ticks: about 1973.
_LEAST_TICKS = 10**14


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
    times = {name: given_time(operator, name, wanted.pop(name)) for name in ("le", "re") if name in wanted}
    check_values(operator, wanted)
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


def check_values(operator: TracedOperator, values: Mapping[str, Any]) -> None:
    """Raise unless these are values of an operator's columns."""
    for name, value in values.items():
        if not has_type(operator, name, value):
            kind = operator.node.schema[name].type.value
            raise TraceError(
                f"this is no value of column {name!r} of operator #{operator.number}, which is {kind}",
                given=f"{clipped(repr(value), 100)} ({type(value).__name__})",
                allowed=f"values of {kind}, or None",
            )


def has_type(operator: TracedOperator, name: str, value: Any) -> bool:
    """Whether a value is one of a column's type as it is."""
    try:
        pa.scalar(value, operator.node.schema[name].type.arrow)
    except (TypeError, ValueError, OverflowError, NotImplementedError):  # Arrow's errors are of these kinds
        return False
    return True


def given_time(operator: TracedOperator, name: str, value: Any) -> int:
    """A time of a question in ticks; raise for a number where times are dates, or a date where they are numbers."""
    time, dates = ticks(value), operator.node.dates
    is_number = isinstance(value, int | np.integer) or (
        isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value.strip()) is not None
    )
    fits = not is_number or abs(time) >= _LEAST_TICKS if dates else is_number
    if not fits and time not in (INFINITY, NEG_INFINITY):
        raise TraceError(
            f"the times of operator #{operator.number} are {'dates' if dates else 'numbers'}",
            given=f"{name} = {value!r}",
            allowed="dates, or their microseconds since 1970" if dates else "numbers",
            instead=f"{name}='2024-05-01T12:00:05'" if dates else f"{name}=5",
        )
    return time


def without_events(record: TraceRecord, rows: Sequence[tuple[TracedOperator, Row]]) -> TraceRecord:
    """The same run without some input events.

    Physical events name others by payload and start, so that those with the same are left out together, or not at all.
    """
    gone: dict[str, list[Row]] = {}
    for operator, row in rows:
        source = record.source_of(operator)
        gone.setdefault(source.fingerprint, []).append(row)
    for operator, row in rows:
        source = record.source_of(operator)
        if not isinstance(source.lifetime, Physical):
            continue
        history = Histories([lambda one=operator: record.changes_until(one)], [])  # type: ignore[misc]
        alike = {row_identity(one): one for one in history.find(0, le=row[0], equal=row[2])}
        named = set(map(row_identity, gone[source.fingerprint]))
        others = [one for identity, one in alike.items() if identity not in named]
        if row_identity(row) in alike and others:
            raise TraceError(
                "physical events of one payload and start can be left out only together",
                given=event_text(operator, row),
                allowed=f"together with {'; '.join(event_text(operator, one) for one in others[:3])}",
                instead="trace.without(...) with all of them, or a column that tells them apart",
            )
    return record.replayed(gone)
