"""The rows of a source that did not become events: late, or refused; and input events that were taken back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.errors import HeadraceError
from headrace.literals import sql_text
from headrace.operators.reference.lineage import Cause, Loss, WantedEvent, rows_of_changes
from headrace.operators.reference.rows import Row, row_identity, value_of
from headrace.plan.nodes import Source
from headrace.plan.policies import Interval, Physical
from headrace.time import CHRONON, INFINITY, ticks
from headrace.tracing.record import TracedOperator, TraceRecord

__all__ = ["lost_rows", "taken_back"]

#: The most events that were taken back that are named.
_MOST = 5
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class _Unused:
    """A row that is no event, with the row of the side output that has it."""

    batch: int
    side: Row

    @property
    def reason(self) -> str:
        return str(self.side[2]["reason"])

    @property
    def text(self) -> str:
        return str(self.side[2]["row"])


def lost_rows(record: TraceRecord, source: Source, wanted: WantedEvent, batch: int) -> list[Loss]:
    """The rows of a source up to a batch that fit a description, and were diverted or dropped."""
    found = []
    for row in _diverted(record, source, batch):
        late = row.reason.startswith("late")
        if _fits(source, row.text, wanted):
            rule = f"late={source.policy.late!r}" if late else f"bad_rows={source.bad_rows!r}"
            reason = f"{row.reason.removeprefix('late: ')}; {rule} diverted the row {row.text} in batch {row.batch}"
            found.append(Loss("late" if late else "refused", reason, [Cause(-1, row.side, "diverted")]))
    return [*found, *_dropped(record, source, wanted, batch)]


def _diverted(record: TraceRecord, source: Source, batch: int) -> Iterator[_Unused]:
    for number, recorded in record.until(batch):
        for _, side in recorded.judged.get(source.fingerprint, ()):
            yield from (_Unused(number, row) for row in rows_of_changes(side))


def _dropped(record: TraceRecord, source: Source, wanted: WantedEvent, batch: int) -> list[Loss]:
    """Rows that were dropped; of each batch, only the first is known. Those that fit come first."""
    fitting, unknown = list[Loss](), list[Loss]()
    for number, recorded in record.until(batch):
        reports = [r for one, of_one in recorded.reports if one.fingerprint == source.fingerprint for r in of_one]
        dropped = sum(report.counts["dropped"] for report in reports)
        examples = [report.example for report in reports if report.example is not None]
        if dropped and examples:
            text, rest = str(examples[0]["row"]), dropped > 1
            of = f": {dropped:,}, of which only the first is known" if rest else ""
            first = f"{text} ({examples[0]['reason'].removeprefix('late: ')})"
            loss = Loss("dropped", f"late='drop' dropped {'rows' if rest else 'a row'} in batch {number}{of}: {first}")
            if _fits(source, text, wanted):
                fitting.append(loss)
            elif rest:
                unknown.append(loss)
    return [*fitting, *unknown]


def _fits(source: Source, text: str, wanted: WantedEvent) -> bool:
    """Whether a row could be a wanted event; of a row that cannot be read, whether it has the values."""
    row = _event(source, text)
    if row is None:
        return all(_has(text, value) for value in wanted.equal.values() if value is not None)
    with suppress(pa.ArrowInvalid, pa.ArrowTypeError):
        return wanted.fits(row, source.schema)
    return True


def _has(text: str, value: Any) -> bool:
    """Whether a row that cannot be read has a value: a number, however it is written, or a text."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return any(float(number) == float(value) for number in _NUMBER.findall(text))
    return sql_text(value) in text


def _event(source: Source, text: str) -> Row | None:
    """The event that a row would have been; None if it is none."""
    try:
        values = json.loads(text)
        payload = {field.name: _typed(values.get(field.name), field.type.arrow) for field in source.columns}
        lifetime = source.lifetime
        if isinstance(lifetime, Physical):
            le, re = (_time(values[name]) for name in ("le", "re"))
        elif isinstance(lifetime, Interval):
            le, re = (_time(value_of(expr, payload, source.columns)) for expr in (lifetime.start, lifetime.end))
        else:
            le = _time(value_of(lifetime.at, payload, source.columns))
            re = le + CHRONON
    except (ValueError, KeyError, AttributeError, TypeError, HeadraceError):  # Arrow's errors are ValueErrors
        return None
    return le, re, {name: payload[name] for name in source.schema.names}


def _time(value: Any) -> int:
    return INFINITY if value in (None, "∞") else ticks(value)


def _typed(value: Any, kind: pa.DataType) -> Any:
    """A value of JSON as one of a column."""
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return pa.scalar(ticks(value), pa.int64()).cast(kind).as_py()
    return pa.scalar(value).cast(kind).as_py()


def taken_back(record: TraceRecord, operator: TracedOperator, wanted: WantedEvent, batch: int) -> list[Loss]:
    """Events of an operator that fit a description, were there after some batch, and are not now."""
    parts = [(number, part) for number, part in record.changes_by_batch(operator) if number <= batch]
    starts = np.unique(np.concatenate([np.empty(0, np.int64), *(part.le[part.weight < 0] for _, part in parts)]))
    if not len(starts):
        return []
    parts = [(number, part.filter(np.isin(part.le, starts))) for number, part in parts]
    now = {row_identity(row) for row in rows_of_changes(Changes.concat([part for _, part in parts]))}
    found: dict[Any, tuple[Row, int, int]] = {}
    for number, of_batch in groupby(parts, itemgetter(0)):
        for row, weight in _weighted(Changes.concat([part for _, part in of_batch])):
            if row_identity(row) in now or not wanted.fits(row, operator.node.schema):
                continue
            _, added, _ = found.get(row_identity(row), (row, number, number))
            found[row_identity(row)] = (row, added, number) if weight < 0 else (row, number, batch + 1)
    return [
        Loss("taken back", f"it was added in batch {added}, and batch {last} took it back", (), [row], last - 1)
        for row, added, last in found.values()
        if added < last <= batch
    ][:_MOST]


def _weighted(changes: Changes) -> Iterator[tuple[Row, int]]:
    """What a batch added in all, and what it removed."""
    net = changes.consolidate()
    yield from ((row, 1) for row in rows_of_changes(net.filter(net.weight > 0)))
    yield from ((row, -1) for row in rows_of_changes(net.filter(net.weight < 0).negated()))
