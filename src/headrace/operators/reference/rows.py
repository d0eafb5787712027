"""Rows of a history in plain Python: their type, their identity, and expressions over a row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

import pyarrow as pa

from headrace.expr import Expr, evaluate
from headrace.schema import Schema

__all__ = ["Payload", "Row", "bag", "identity", "row_identity", "rows_of", "table_of", "value_of"]

Payload = dict[str, Any]
Row = tuple[int, int, Payload]


def identity(value: Any) -> Hashable:
    """Equal for values that are the same data: null is null, NaN is NaN, -0.0 is 0.0, also within lists and structs."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple(map(identity, value.values()))
    return tuple(map(identity, value)) if isinstance(value, list) else value


def payload_identity(payload: Payload) -> Hashable:
    """`identity` of all fields."""
    return tuple((name, identity(value)) for name, value in payload.items())


def row_identity(row: Row) -> Hashable:
    """Equal for rows that are the same event."""
    return row[0], row[1], payload_identity(row[2])


def bag(rows: Iterable[Row]) -> Counter[Hashable]:
    """A history as a bag, for comparisons."""
    return Counter(map(row_identity, rows))


def rows_of(table: pa.Table) -> list[Row]:
    """The rows of a history table: `le`, `re` and the payload."""
    return [(row.pop("le"), row.pop("re"), row) for row in table.to_pylist()]


def table_of(rows: Iterable[Row], schema: Schema) -> pa.Table:
    """A history table of rows."""
    arrow = pa.schema([("le", pa.int64()), ("re", pa.int64()), *schema.arrow])
    return pa.Table.from_pylist([{"le": le, "re": re, **payload} for le, re, payload in rows], schema=arrow)


def value_of(expr: Expr, payload: Payload, schema: Schema | pa.Schema) -> Any:
    """The value of an expression in one row."""
    arrow = schema.arrow if isinstance(schema, Schema) else schema
    key = (str(expr), str(arrow), payload_identity(payload))
    if key not in _VALUES:
        if len(_VALUES) > 100_000:
            _VALUES.clear()
        table = pa.Table.from_pylist([payload], schema=arrow)
        _VALUES[key] = evaluate(expr, table).to_pylist()[0]
    return _VALUES[key]


_VALUES: dict[Hashable, Any] = {}
