"""Spark data frames as inputs: the types of their columns."""

from __future__ import annotations

from typing import Any

from headrace.errors import SchemaError, UnknownColumn
from headrace.schema import Field, Schema, Type

__all__ = ["frame_schema"]

_TYPES = {kind.spark.lower(): kind for kind in Type}  # text is STRING, which comes after CHAR


def frame_schema(frame: Any, wanted: Schema | None) -> Schema:
    """The wanted columns of a frame, or all of them; a column that needs a conversion is refused."""
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    if wanted is None:
        return Schema(tuple(Field(name, _type(name, kind)) for name, kind in types.items()))
    for field in wanted:
        if field.name not in types:
            raise UnknownColumn.of(field.name, types, "the data frame")
        if field.type.spark.lower() != types[field.name]:
            raise _unfit(field.name, types[field.name], f"{field.type.spark}, as the schema says")
    return wanted


def _type(name: str, kind: str) -> Type:
    if kind not in _TYPES:
        raise _unfit(name, kind, ", ".join(dict.fromkeys(type.spark for type in Type if not type.is_array)))
    return _TYPES[kind]


def _unfit(name: str, kind: str, allowed: str) -> SchemaError:
    return SchemaError(
        f"column {name!r} of the data frame has another type",
        given=kind,
        allowed=allowed,
        instead=f"frame.withColumn({name!r}, frame[{name!r}].cast(...)), or frame.drop({name!r})",
    )
