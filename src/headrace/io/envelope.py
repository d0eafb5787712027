"""Envelopes of Debezium: values that describe a change of a row.

A change is an object with the operation `op`, and the row `before` and `after` the change. It may be wrapped in
`{"schema": …, "payload": …}`. The columns are the members of `after`, or of `before` where the row is deleted (`op` is
`d`). Two more columns can be read: `_op` STRING, which is `c` (created), `u` (updated), `d` (deleted), `r` (read in a
snapshot), `t` (the table was emptied) or another one; and `_ts`, DATETIME or LONG, the time of the change in ticks:
that of the database (`source.ts_us`, `ts_ns`, `ts_ms`), or else that of the connector.

A change is refused if it has no `op`, or lacks the row that its `op` needs. Changes that concern no row, such as `t`,
have nulls. Numbers in DATETIME columns are ticks: a connector must write microseconds (`time.precision.mode=
adaptive_time_microseconds`) or ISO texts (`isostring`). In Avro the type tells the unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import SchemaError
from headrace.io.json import JsonDecoder, member_type, member_value
from headrace.io.records import BrokenRecord, Records
from headrace.schema import Field, Type

__all__ = ["OP", "TIMES", "TS", "DebeziumDecoder", "change_ticks", "check_change_columns", "chosen", "without_image"]

OP, TS = "_op", "_ts"
#: The places of times, the best first, with the number of their units in a tick, or of ticks in their unit if negative.
TIMES: Mapping[tuple[str, ...], int] = {
    ("source", "ts_us"): 1, ("source", "ts_ns"): 1000, ("source", "ts_ms"): -1000, ("ts_us",): 1, ("ts_ns",): 1000,
    ("ts_ms",): -1000,
}  # fmt: skip
_NEEDED = {"c": "after", "r": "after", "u": "after", "d": "before"}
_NO_CHANGE = "the {} is not a change of Debezium: it has no 'op'"


def check_change_columns(fields: Sequence[Field]) -> None:
    """Refuse types that the columns of a change cannot have."""
    for field in fields:
        allowed = {OP: (Type.STRING,), TS: (Type.DATETIME, Type.LONG)}.get(field.name, (field.type,))
        if field.type not in allowed:
            words = " or ".join(kind.value for kind in allowed)
            raise SchemaError(f"column {field.name!r} of a change is {words}", given=str(field), allowed=words)


def chosen(op: pa.Array, after: pa.Array, before: pa.Array) -> pa.Array:
    """The values of the row that a change describes."""
    deleted = pc.equal(op, "d")
    return pc.if_else(deleted, before, after) if pc.any(deleted).as_py() else after


def without_image(op: pa.Array, after: NDArray[np.bool_], before: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which changes lack the row that they need; `after` and `before` tell which rows exist."""
    deleted = _mask(pc.equal(op, "d"))
    if after[~deleted].all() and before[deleted].all():
        return np.zeros(len(after), np.bool_)
    written = _mask(pc.is_in(op, pa.array([name for name, side in _NEEDED.items() if side == "after"])))
    return (written & ~after) | (deleted & ~before)


def change_ticks(times: Mapping[tuple[str, ...], pa.Array]) -> pa.Array:
    """The times of changes in ticks; `pa.ArrowInvalid` if one is too large."""
    ticks = [
        values if unit == 1 else pc.multiply_checked(values, -unit) if unit < 0 else _floor(values, unit)
        for place, unit in TIMES.items()
        if (values := times.get(place)) is not None
    ]
    return pc.coalesce(*ticks)


def _floor(values: pa.Array, divisor: int) -> pa.Array:
    quotient = pc.divide(values, divisor)
    return pc.subtract(quotient, pc.less(values, pc.multiply(quotient, divisor)).cast(pa.int64()))


def _mask(values: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


class DebeziumDecoder(JsonDecoder):
    """Decodes changes in JSON."""

    _flat_objects = False

    def __init__(self, fields: Sequence[Field], rename: Mapping[str, str] | None = None, *, unit: str = "line") -> None:
        super().__init__(fields, rename=rename, unit=unit)
        check_change_columns(fields)

    def _members_of(self, row: dict[str, Any]) -> dict[str, Any]:
        body = _body(row)
        image = body.get(_side(body)) if body else None
        return image if isinstance(image, dict) else {}

    def _requested(self, records: Records) -> pa.Schema:
        """The members to request: of a wrapped change if the first one is wrapped. `_flat` checks all of them."""
        times = self._peek(records)
        names = zip(self._members, self.fields, strict=True)
        image = pa.struct(
            [(name, times.get(name) or member_type(field)) for name, field in names if field.name not in (OP, TS)]
        )
        body = [("op", pa.string()), ("after", image), ("before", image)]
        if any(field.name == TS for field in self.fields):
            source = [(place[1], pa.int64()) for place in TIMES if len(place) == 2]
            body += [("source", pa.struct(source))]
            body += [(place[0], pa.int64()) for place in TIMES if len(place) == 1]
        wrapped = b'"payload"' in records[0] and self._is_wrapped(records[0])
        return pa.schema([("op", pa.string()), ("payload", pa.struct(body))] if wrapped else body)

    def _is_wrapped(self, record: bytes) -> bool:
        row = self.parsed(record)
        return isinstance(row, dict) and _body(row) is not row

    def _flat(self, table: pa.Table) -> pa.Table:
        body = _members(table)
        if "payload" in body:
            if body["op"].null_count != len(table):
                raise pa.ArrowInvalid("not all changes are wrapped")
            body = _parts(body["payload"])
        if body["op"].null_count:
            raise pa.ArrowInvalid("not all values are changes")
        present = {side: _mask(pc.is_valid(body[side])) for side in ("after", "before")}
        if without_image(body["op"], present["after"], present["before"]).any():
            raise pa.ArrowInvalid("not all changes have their row")
        after, before = _parts(body["after"]), _parts(body["before"])
        columns = {name: chosen(body["op"], after[name], before[name]) for name in after}
        columns |= {OP: body["op"]}
        if any(field.name == TS for field in self.fields):
            inner = {("source", name): values for name, values in _parts(body["source"]).items()}
            columns[TS] = change_ticks(inner | {(name,): values for name, values in body.items()})
        names = zip(self._members, self.fields, strict=True)
        found = [columns[field.name if field.name in (OP, TS) else name] for name, field in names]
        return pa.table(found, names=[field.name for field in self.fields])

    def _values(self, row: object, raw: str) -> list[Any] | BrokenRecord:
        body = _body(row) if isinstance(row, dict) else None
        if not isinstance(row, dict) or body is None or not isinstance(body.get("op"), str):
            return super()._values(row, raw) if not isinstance(row, dict) else self._refused(raw)
        op, side = body["op"], _side(body)
        image = body.get(side)
        if image is None and op not in _NEEDED:
            image = {}
        if not isinstance(image, dict):
            return BrokenRecord(f"the change has no row {side!r}, which its op {op!r} needs", raw)
        members = zip(self._members, self.fields, strict=True)
        values = [_value(body, image, name, field) for name, field in members]
        wrong = [value.reason for value in values if isinstance(value, BrokenRecord)]
        return BrokenRecord("; ".join(wrong), raw) if wrong else values

    def _refused(self, raw: str) -> BrokenRecord:
        return BrokenRecord(_NO_CHANGE.format(self._unit), raw)


def _body(row: dict[str, Any]) -> dict[str, Any] | None:
    """The change, without its wrapper."""
    body = row if row.get("op") is not None else row.get("payload")
    return body if isinstance(body, dict) else None


def _side(body: dict[str, Any]) -> str:
    return "before" if body.get("op") == "d" else "after"


def _value(body: dict[str, Any], image: dict[str, Any], name: str, field: Field) -> Any:
    if field.name == OP:
        return member_value(body["op"], field)
    if field.name != TS:
        return member_value(image.get(name), field)
    source = body.get("source")
    for place, unit in TIMES.items():
        inner = body if len(place) == 1 else source if isinstance(source, dict) else {}
        time = inner.get(place[-1])
        if isinstance(time, int) and not isinstance(time, bool):
            return member_value(time * -unit if unit < 0 else time // unit, field)
        if time is not None:
            return (
                member_value(time, field)
                if not isinstance(time, str)
                else BrokenRecord(f"column {field.name!r}: {time!r} is not a number of time", "")
            )
    return None


def _members(table: pa.Table) -> dict[str, Any]:
    return {name: pa.chunked_array(table[name]).combine_chunks() for name in table.column_names}


def _parts(values: pa.Array) -> dict[str, pa.Array]:
    """The members of a column of objects; null where the object is."""
    return dict(zip([part.name for part in values.type], values.flatten(), strict=True))
