"""What a question names, checked: an event by its values and times, and input events that are to be left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.display.words import clipped, counted
from headrace.errors import TraceError
from headrace.expr import Expr, has_aggregates
from headrace.operators.evaluate import passing_mask
from headrace.operators.reference.lineage import Histories
from headrace.operators.reference.rows import Row, row_identity
from headrace.operators.times import event_times
from headrace.plan.nodes import HeldEventTimes, Node, Where
from headrace.plan.policies import Physical
from headrace.schema import Type
from headrace.time import CHRONON, INFINITY, NEG_INFINITY, TimeLike, format_ticks, ticks
from headrace.tracing.record import TracedOperator, TraceRecord
from headrace.tracing.why import event_text

__all__ = [
    "as_date",
    "check_condition",
    "check_date",
    "chosen_row",
    "column_values",
    "fulfilling",
    "given_time",
    "has_type",
    "time_of",
    "time_value",
    "without_events",
]

#: Where times are dates, smaller numbers are more likely years or seconds than ticks: about 1973.
_LEAST_TICKS = 10**14
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def chosen_row(
    operator: TracedOperator,
    changes: Changes,
    row: Mapping[str, Any] | Expr | None,
    columns: Mapping[str, Any],
    *,
    at: TimeLike | None = None,
    among: str = "an event of the history, which trace.history(...) shows",
) -> Row:
    """The one event of a history that has these values or fulfils a predicate, and lasts at a time."""
    found = changes
    wanted = dict(columns)
    if isinstance(row, Mapping):
        wanted |= row
    elif row is not None:
        check_condition(operator, row)
        found = fulfilling(operator, row, found)
    unknown = [name for name in wanted if name not in (*operator.node.schema.names, "le", "re")]
    if unknown:
        raise TraceError(
            f"operator #{operator.number} has no column {unknown[0]!r}",
            given=", ".join(wanted),
            allowed=", ".join(["le", "re", *operator.node.schema.names]),
        )
    times: dict[str, int] = {
        name: given_time(operator, name, wanted.pop(name)) for name in ("le", "re") if name in wanted
    }
    wanted = column_values(operator, wanted)
    instant = None if at is None else given_time(operator, "at", at)
    over = None if instant is None else (instant, instant + CHRONON)
    rows = Histories([lambda: found], []).find(0, le=times.get("le"), re=times.get("re"), over=over, equal=wanted)
    each = {row_identity(one): one for one in rows}
    if len(each) != 1:
        listed = "; ".join(event_text(operator, one) for one in list(each.values())[:3])
        raise TraceError(
            f"{counted(len(each), 'event')} of operator #{operator.number} fit" if each else "no event fits",
            given=clipped(_question_text(operator, row, times, wanted, instant), 200),
            allowed=f"one event: {listed}" if each else among,
            instead="more columns, or a time at which it lasts" if each else "",
        )
    return next(iter(each.values()))


def _question_text(
    operator: TracedOperator, row: Any, times: Mapping[str, int], values: Mapping[str, Any], at: int | None
) -> str:
    """What was asked for, as text for users."""
    shown_times = times if at is None else {**times, "at": at}
    parts = [str(row)] if isinstance(row, Expr) else []
    parts += [f"{name} = {format_ticks(time, dates=operator.node.dates)}" for name, time in shown_times.items()]
    return ", ".join([*parts, *(f"{name} = {value!r}" for name, value in values.items())]) or "nothing"


def check_condition(operator: TracedOperator, condition: Any) -> None:
    """Raise unless this is a condition on the columns of an operator, and on `le` and `re`."""
    if not isinstance(condition, Expr):
        raise TraceError(
            "this names no event",
            given=f"{clipped(repr(condition), 100)} ({type(condition).__name__})",
            allowed="values of columns, or a condition: an expression",
            instead="symbol='A', {'symbol': 'A'}, or col('price') > 11",
        )
    if has_aggregates(condition):
        raise TraceError(
            "a condition looks at one event, and this is about many",
            given=clipped(str(condition), 100),
            allowed="expressions without aggregates",
        )
    Where(_with_times(operator.node, condition), condition)


def fulfilling(operator: TracedOperator, condition: Expr, changes: Changes) -> Changes:
    """The changes of an operator that fulfil a condition, which is checked."""
    node = _with_times(operator.node, condition)
    timed = event_times(node, changes) if isinstance(node, HeldEventTimes) else changes
    return changes.filter(passing_mask(condition, timed.payload, changes.weight))


def _with_times(node: Node, condition: Expr) -> Node:
    """A node with the times of its events as columns, as far as a condition looks at them."""
    start, end = (name if name in condition.columns() and name not in node.schema else None for name in ("le", "re"))
    return HeldEventTimes(node, start, end) if start or end else node


def column_values(operator: TracedOperator, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of an operator's columns, checked; a date may be a text, and a time without a zone is UTC."""
    found = {}
    for name, given in values.items():
        kind = operator.node.schema[name].type
        check_date(name, kind, given)
        value = _datetime(given) if kind is Type.DATETIME else as_date(given) if kind is Type.DATE else given
        if not has_type(operator, name, value):
            raise TraceError(
                f"this is no value of column {name!r} of operator #{operator.number}, which is {kind.value}",
                given=f"{clipped(repr(given), 100)} ({type(given).__name__})",
                allowed=f"values of {kind.value}, or None",
            )
        found[name] = value
    return found


def check_date(name: str, kind: Type, value: Any) -> None:
    """Raise for a number as a value of a DATE or DATETIME column; large ones are microseconds since 1970."""
    least = {Type.DATE: INFINITY, Type.DATETIME: _LEAST_TICKS}.get(kind)
    if least is None or isinstance(value, bool) or not is_number(value) or abs(int(value)) >= least:
        return
    raise TraceError(
        f"the values of column {name!r} are dates",
        given=f"{name} = {clipped(repr(value), 100)}",
        allowed="dates" if kind is Type.DATE else "dates, or their microseconds since 1970",
        instead=f"{name}='2024-05-01'" if kind is Type.DATE else f"{name}='2024-05-01T12:00:05'",
    )


def is_number(value: Any) -> bool:
    """Whether a time is a number, also as a text."""
    return isinstance(value, int | np.integer) or (
        isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,100}", value.strip()) is not None
    )


def as_date(given: Any) -> Any:
    """A text as a value of a DATE column; as it was given if it is none."""
    with suppress(ValueError):
        return date.fromisoformat(given.strip()) if isinstance(given, str) else given
    return given


def _datetime(given: Any) -> Any:
    """A time as a value of a column; as it was given if no column can have it."""
    if isinstance(given, bool) or not isinstance(given, (str, datetime, int, np.integer)):
        return given
    try:
        return _EPOCH + timedelta(microseconds=ticks(int(given) if isinstance(given, np.integer) else given))
    except OverflowError:
        return given


def has_type(operator: TracedOperator, name: str, value: Any) -> bool:
    """Whether a value is one of a column's type as it is."""
    try:
        pa.scalar(value, operator.node.schema[name].type.arrow)
    except (TypeError, ValueError, OverflowError, NotImplementedError):  # Arrow's errors are of these kinds
        return False
    return True


def given_time(operator: TracedOperator, name: str, value: Any) -> int:
    """A time of a question in ticks; raise for a number where times are dates, or a date where they are numbers."""
    return time_of(f"operator #{operator.number}", name, value, dates=operator.node.dates)


def time_of(owner: str, name: str, value: Any, *, dates: bool) -> int:
    """A time in ticks; raise for a number where the times of its owner are dates, or a date where they are numbers."""
    time = ticks(value)
    fits = not is_number(value) or abs(time) >= _LEAST_TICKS if dates else is_number(value)
    if not fits and time not in (INFINITY, NEG_INFINITY):
        raise TraceError(
            f"the times of {owner} are {'dates' if dates else 'numbers'}",
            given=f"{name} = {value!r}",
            allowed="dates, or their microseconds since 1970" if dates else "numbers",
            instead=f"{name}='2024-05-01T12:00:05'" if dates else f"{name}=5",
        )
    return time


def time_value(operator: TracedOperator, name: str, given: str) -> datetime | int:
    """A time of a question as a value with which expressions compare `le` and `re`."""
    time = given_time(operator, name, given)
    if not operator.node.dates:
        return time
    try:
        return _EPOCH + timedelta(microseconds=time)
    except OverflowError as error:
        raise TraceError("no date is like this", given=f"{name} = {given}", allowed="the years 1 to 9999") from error


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
