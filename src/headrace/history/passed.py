"""Columns as engines take them: DuckDB has an INTERVAL as its ticks, and Spark a TIME."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

__all__ = ["for_duckdb", "for_spark", "passed_rows", "passing"]

Passed = Callable[[pa.DataType], pa.DataType]


def for_duckdb(kind: pa.DataType) -> pa.DataType:
    """The type that DuckDB gets a column in."""
    return _inside(kind, lambda one: pa.int64() if pa.types.is_duration(one) else one)


def for_spark(kind: pa.DataType) -> pa.DataType:
    """The type that Spark gets a column in."""
    return _inside(kind, lambda one: pa.int64() if pa.types.is_time64(one) else one)


def _inside(kind: pa.DataType, change: Passed) -> pa.DataType:
    """The type with the parts of lists and structs changed; the same object if nothing is."""
    if pa.types.is_list(kind):
        return pa.list_(_inside(kind.value_type, change))
    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return pa.struct([(field.name, _inside(field.type, change)) for field in fields])
    return change(kind)


def passed_rows(rows: Any, change: Passed) -> Any:
    """A table or batch in the types of an engine."""
    schema = pa.schema([(field.name, change(field.type)) for field in rows.schema])
    return rows if schema.types == rows.schema.types else rows.cast(schema)


def passing(call: Callable[..., pa.Array], takes: tuple[pa.DataType, ...], change: Passed) -> Callable[..., pa.Array]:
    """A function of columns in the types of an engine."""
    same = all(change(kind) == kind for kind in takes)

    def changed(*columns: Any) -> pa.Array:
        given = columns if same else [column.cast(kind) for column, kind in zip(columns, takes, strict=True)]
        found = call(*given)
        return found if change(found.type) == found.type else found.cast(change(found.type))

    return changed
