"""Physical events, drawn tables, and the canonical history table (rules 1.3 and 1.4).

A *physical stream* is a table with columns `kind, le, re, re_new` and the payload, one row an event:

    insert   [le, re) payload                      an event enters
    retract  [le, re) payload, re -> re_new        its lifetime changes; re_new = le deletes it
    cti      le                                    a promise: nothing later has a sync time before le

The *history* (CHT) is what is left when every retraction has been applied: columns `le, re` and the payload, as a bag.
Two streams with equal histories are the same stream, whatever their physical form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.border import LIFETIME, as_ticks, is_shown, lifetimes
from headrace.changes import Changes, up_to
from headrace.columnar import canonical_floats, sortable, to_numpy
from headrace.drawn import MISSING, read_drawn, read_plain, read_plain_drawn, read_records
from headrace.errors import EventError
from headrace.frames import frame_kind, frame_table
from headrace.progress import Progress
from headrace.schema import RESERVED, Schema, SchemaLike
from headrace.time import INFINITY, NEG_INFINITY, format_ticks

__all__ = [
    "events_and_dates",
    "events_table",
    "history",
    "history_diff",
    "physical_schema",
    "physical_stream",
    "plain_table",
    "same_history",
    "to_changes",
    "to_physical",
]

Flags = np.ndarray[Any, np.dtype[np.bool_]]
#: Window arithmetic needs some room below 64 bits; this is 36 000 years on either side of 1970.
FARTHEST = 2**60
_TOO_FAR = "{} is beyond ±2**60 ticks, about 36 000 years from 1970"
CONTROL = ("kind", "le", "re", "re_new")
_IN_MEMORY = "a drawn table (text), a list of dicts, an Arrow table, a data frame of pandas or Polars"
#: Defaults for missing columns of a record; every other column is null.
_ABSENT = {"kind": "insert", "re": MISSING, "re_new": MISSING}


def physical_schema(payload: Schema) -> pa.Schema:
    """The Arrow schema of a physical stream with this payload."""
    control = [("kind", pa.string()), ("le", pa.int64()), ("re", pa.int64()), ("re_new", pa.int64())]
    return pa.schema([pa.field(n, t) for n, t in control] + list(payload.arrow))


def events_table(data: Any, schema: SchemaLike | None = None) -> pa.Table:
    """A physical stream from a drawn table, a list of dicts, an Arrow table, or a data frame of pandas or Polars."""
    return events_and_dates(data, schema)[0]


def events_and_dates(data: Any, schema: SchemaLike | None = None) -> tuple[pa.Table, bool]:
    """A physical stream as `events_table` returns it, and whether its times are dates."""
    payload = Schema.of(schema).payload if schema is not None else None
    if isinstance(data, str):
        return read_drawn(data, payload)
    if frame_kind(data):
        table = frame_table(data)
        return read_records(_records_of(table), payload or Schema.of(_payload_part(table.schema)))
    if isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        names = _names(data) or (["le"] if payload is not None else [])
        return read_records({name: [row.get(name, _ABSENT.get(name)) for row in data] for name in names}, payload)
    raise EventError("these are not events", given=type(data).__name__, allowed=_IN_MEMORY)


def plain_table(data: Any, schema: Schema | None = None) -> pa.Table:
    """Rows without lifetimes, from what `events_table` accepts; a schema picks columns."""
    if isinstance(data, str):
        return read_plain_drawn(data, schema)
    if frame_kind(data):
        return read_plain(_records_of(frame_table(data)), schema)
    if isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        return read_plain({name: [row.get(name) for row in data] for name in _names(data)}, schema)
    raise EventError("these are not rows", given=type(data).__name__, allowed=_IN_MEMORY)


def _payload_part(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in RESERVED])


def _records_of(table: pa.Table) -> dict[str, Any]:
    return {name: table.column(name) for name in table.column_names}


def _names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def to_changes(table: pa.Table, schema: Schema) -> Changes:
    """The changes of a physical table of inserts and retractions (rule 2.1), without CTIs."""
    kind = table.column("kind")
    moved = table.filter(pc.equal(kind, "retract"))
    new = table.filter(pc.equal(kind, "insert"))
    alive = moved.filter(pc.greater(moved.column("re_new"), moved.column("le")))
    parts = [
        _weighted(new, "re", 1, schema),
        _weighted(moved, "re", -1, schema),
        _weighted(alive, "re_new", 1, schema),
    ]
    return Changes.concat(parts)


def _weighted(table: pa.Table, end: str, weight: int, schema: Schema) -> Changes:
    return Changes(
        to_numpy(table.column("le")),
        to_numpy(table.column(end)),
        np.full(table.num_rows, weight, np.int64),
        table.select(list(schema.names)),
    )


def to_physical(changes: Changes, cti: int | None = None) -> pa.Table:
    """The physical events of one batch of consolidated changes, and the CTI after them (rule 2.3)."""
    pairing = changes.pair()
    rows = np.concatenate([pairing.retract_from, pairing.deletes, pairing.inserts])
    absent = np.zeros(len(pairing.inserts), np.int64)
    re_new = np.concatenate([changes.re[pairing.retract_to], changes.le[pairing.deletes], absent])
    inserted = np.arange(len(rows)) >= len(rows) - len(pairing.inserts)
    schema = Schema.of(changes.payload.schema)
    columns = [
        pa.array(np.where(inserted, "insert", "retract"), pa.string()),
        pa.array(changes.le[rows]),
        pa.array(changes.re[rows]),
        pa.array(re_new, mask=inserted),
        *changes.payload.take(pa.array(rows)).columns,
    ]
    table = pa.Table.from_arrays(columns, schema=physical_schema(schema))
    return table if cti is None else pa.concat_tables([table, cti_row(cti, schema)])


def physical_stream(batches: Iterable[tuple[Changes, Progress]]) -> Iterator[pa.Table]:
    """The physical events of batches, in order; a CTI follows each batch that moves it."""
    reached = NEG_INFINITY
    for changes, progress in batches:
        yield to_physical(changes, progress.cti if progress.cti > reached else None)
        reached = max(reached, progress.cti)


def cti_row(cti: int, schema: Schema) -> pa.Table:
    """A physical table with one CTI."""
    row: dict[str, list[Any]] = {name: [None] for name in physical_schema(schema).names}
    return pa.table({**row, "kind": ["cti"], "le": [cti]}, schema=physical_schema(schema))


def history(changes: Changes, *, dates: bool = False) -> pa.Table:
    """The canonical history table of a stream's changes, in canonical order, with times in ticks.

    `dates`: whether an error shows times as dates.
    """
    left = changes.consolidate()
    if (left.weight < 0).any():
        row = int(np.flatnonzero(left.weight < 0)[0])
        event = left.take(np.array([row]))
        life = f"[{format_ticks(int(event.le[0]), dates=dates)}, {format_ticks(int(event.re[0]), dates=dates)})"
        raise EventError(
            "a retraction names an event that was never inserted",
            given=f"{life} {event.payload.to_pylist()[0]}",
            instead="retract with the lifetime and payload the event has at that moment",
        )
    rows = np.repeat(np.arange(len(left), dtype=np.int64), left.weight)
    left = left.take(rows)
    table = pa.table({"le": left.le, "re": left.re})
    for name, column in zip(left.payload.column_names, left.payload.columns, strict=True):
        table = table.append_column(name, column)
    return table.take(pc.sort_indices(sortable(table), [(name, "ascending") for name in table.column_names]))


def _as_changes(table: pa.Table) -> Changes:
    return Changes.inserts(*lifetimes(table), table.drop_columns(list(LIFETIME)))


def same_history(left: pa.Table, right: pa.Table, *, until: int = INFINITY, digits: int | None = None) -> bool:
    """Whether two histories are equal as bags, up to the CTI `until`; `digits` is the precision for floats.

    Times may be dates on one side and ticks on the other: they are equal if they are the same instants.
    """
    return not history_diff(left, right, until=until, digits=digits)


def history_diff(
    left: pa.Table,
    right: pa.Table,
    *,
    until: int = INFINITY,
    digits: int | None = None,
    names: tuple[str, str] = ("left", "right"),
) -> str:
    """The differences of two histories as text; empty if they are the same."""
    if left.schema.names != right.schema.names:
        return f"columns differ: {names[0]} has {left.schema.names}, {names[1]} has {right.schema.names}"
    dates = is_shown(left) or is_shown(right)
    left, right = as_ticks(left), as_ticks(right)
    if left.schema.types != right.schema.types:
        right = right.cast(left.schema)
    a, b = (_rounded(up_to(_as_changes(t), until), digits) for t in (left, right))
    opposite = b.negated()
    rest = Changes.concat([a, opposite]).consolidate()
    if len(rest) == 0:
        return ""
    order = np.lexsort((rest.weight, rest.re, rest.le))
    lines = [_line(rest.take(order[i : i + 1]), names, dates) for i in range(min(len(order), 20))]
    more = [f"… and {len(order) - 20} more rows"] if len(order) > 20 else []
    head = f"{names[0]} and {names[1]} differ in {len(order)} rows (of {len(a)} and {len(b)}):"
    return "\n".join([head, *lines, *more])


def _line(row: Changes, names: tuple[str, str], dates: bool) -> str:
    weight = int(row.weight[0])
    times = f"× {abs(weight)} " if abs(weight) > 1 else ""
    life = f"[{format_ticks(int(row.le[0]), dates=dates)}, {format_ticks(int(row.re[0]), dates=dates)})"
    return f"  only in {names[0] if weight > 0 else names[1]}: {times}{life} {row.payload.to_pylist()[0]}"


def _rounded(changes: Changes, digits: int | None) -> Changes:
    payload = canonical_floats(changes.payload)
    if digits is not None:
        for i, field in enumerate(payload.schema):
            if pa.types.is_floating(field.type):
                values = payload.column(i).to_numpy().astype(float)
                payload = payload.set_column(
                    i, field, pa.array(_significant(values, digits), field.type, from_pandas=True)
                )
    return changes.with_payload(payload)


def _significant(values: np.ndarray[Any, Any], digits: int) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        size = np.where(np.isfinite(values) & (values != 0), np.ceil(np.log10(np.abs(values))), 0)
        scale = 10.0 ** (digits - size)
        return np.where(np.isfinite(values), np.round(values * scale) / scale, values)


def check_events(table: pa.Table) -> None:
    """Raise for the first row that is not an event: wrong kind, missing or reversed lifetime."""
    bad, reasons = event_problems(table)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise EventError(f"row {row + 1}: {reasons[row]}", given=table.slice(row, 1).to_pylist()[0])


def event_problems(table: pa.Table) -> tuple[Flags, np.ndarray[Any, Any]]:
    """Which rows of a physical table are not events, and why (an empty array if all are)."""
    kind = table.column("kind")
    insert, retract, cti = (_flags(pc.equal(kind, name)) for name in ("insert", "retract", "cti"))
    (le, no_le), (re, no_re), (re_new, no_re_new) = (_nullable(table.column(name)) for name in ("le", "re", "re_new"))
    event = insert | retract
    wrong = (
        (~(event | cti), "kind must be insert, retract or cti"),
        (no_le, "le is missing"),
        (event & ((le == INFINITY) | (le == NEG_INFINITY)), "le must be finite"),
        (event & (np.abs(le) >= FARTHEST), _TOO_FAR.format("le")),
        (event & (re != INFINITY) & (re >= FARTHEST), _TOO_FAR.format("re")),
        (retract & (re_new != INFINITY) & (re_new >= FARTHEST), _TOO_FAR.format("re_new")),
        (event & no_re, "re is missing"),
        (event & (re <= le), "the lifetime is empty or reversed: re must be greater than le"),
        (retract & no_re_new, "re_new is missing"),
        (retract & (re_new < le), "re_new must not be less than le (equal deletes the event)"),
    )
    bad = np.logical_or.reduce([mask for mask, _ in wrong])
    if not bad.any():
        return bad, np.empty(0, object)
    return bad, np.select([mask for mask, _ in wrong], [text for _, text in wrong], "")


def _flags(column: pa.ChunkedArray) -> Flags:
    return to_numpy(pc.fill_null(column, False)).astype(bool)


def _nullable(column: pa.ChunkedArray) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return to_numpy(pc.fill_null(column, 0)), _flags(pc.is_null(column))
