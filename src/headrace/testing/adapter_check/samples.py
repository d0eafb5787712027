"""Rows to append and to deliver: odd values first, then numbered ones, so that no two rows are equal."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.schema import Schema, Type
from headrace.time import ticks as to_ticks

__all__ = ["Row", "difference", "plain_rows", "sample_rows", "timed"]

Row = tuple[Any, ...]
_ODD: dict[Type, list[Any]] = {
    Type.STRING: ["a", "", 'it\'s "so"', None, "ü ✓\nsecond line"],
    Type.CHAR: ["a", "'", None],
    Type.LONG: [0, 2**63 - 1, -(2**63), None, 2**53 + 1],
    Type.INT: [0, 2**31 - 1, -(2**31), None],
    Type.SHORT: [0, 2**15 - 1, -(2**15), None],
    Type.BYTE: [0, 127, -128, None],
    Type.DOUBLE: [0.5, -1e300, None, 0.1, 5e-324],
    Type.FLOAT: [0.5, -1.5, None],
    Type.BOOLEAN: [True, False, None],
    Type.DATETIME: [0, 1_714_521_600_000_001, None, -1],
    Type.DATE: [0, 19_844, None, -1],
    Type.TIME: [0, 86_399_999_999, None, 1],
    Type.INTERVAL: [0, 86_400_000_001, None, -1],
}
_NARROW = {Type.BYTE: 100, Type.SHORT: 10_000, Type.DATE: 20_000}


def sample_rows(schema: Schema, start: int, count: int, sample: pa.Table | None = None) -> pa.Table:
    """Rows from number `start` on: of the sample, which is repeated, or invented ones of the schema."""
    if sample is not None:
        places = [place % sample.num_rows for place in range(start, start + count)]
        return sample.take(pa.array(places, pa.int64()))
    columns = [
        pa.array([_value(field.type, number + shift) for number in range(start, start + count)], field.type.arrow)
        for shift, field in enumerate(schema)
    ]
    return pa.table(columns, schema=schema.arrow)


def _value(kind: Type, number: int) -> Any:
    if kind.is_array:
        return None if number % 7 == 3 else [_value(kind.element, number + i) for i in range(number % 3)]
    if kind.is_struct:
        return None if number % 7 == 3 else {name: _value(part, number) for name, part in kind.fields}
    if kind.is_decimal:
        return None if number % 7 == 3 else Decimal(number % 10**kind.precision).scaleb(-kind.scale)
    odd = _ODD[kind]
    if number < len(odd):
        return odd[number]
    if kind is Type.STRING:
        return f"text {number}"
    if kind is Type.CHAR:
        return chr(ord("b") + number % 20)
    return number % 2 == 0 if kind is Type.BOOLEAN else number % _NARROW.get(kind, 2**30)


def timed(rows: pa.Table, column: str, ticks: Sequence[int]) -> pa.Table:
    """The rows, with these times in a column."""
    place = rows.schema.get_field_index(column)
    kind = rows.schema.field(place).type
    return rows.set_column(place, rows.schema.field(place), pa.array(ticks, pa.int64()).cast(kind))


def plain_rows(rows: pa.Table | Iterable[Any], columns: Sequence[str]) -> list[Row]:
    """Rows in a form that can be compared: times are ticks, lists are tuples; an Arrow table, or dicts."""
    if isinstance(rows, pa.Table):
        rows = rows.select([name for name in columns if name in rows.column_names]).to_pylist()
    return [tuple(_plain(row.get(name)) for name in columns) for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return to_ticks(value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC))
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    return repr(value) if value != value else value  # noqa: PLR0124 - a NaN is not equal to itself


def difference(found: Sequence[Row], expected: Sequence[Row]) -> str:
    """How two bags of rows differ; empty if they do not."""
    missing, more = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    lines = [f"missing: {_times(row, count)}" for row, count in sorted(missing.items(), key=repr)]
    lines += [
        f"{'twice' if row in expected else 'not expected'}: {_times(row, count)}"
        for row, count in sorted(more.items(), key=repr)
    ]
    return "\n".join(lines[:6] + ([f"and {len(lines) - 6} more"] if len(lines) > 6 else []))


def _times(row: Row, count: int) -> str:
    return f"{row}" if count == 1 else f"{row}, {count} times"
