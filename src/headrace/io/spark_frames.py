"""Spark data frames as inputs: the types of their columns."""

from __future__ import annotations

from typing import Any

from headrace.errors import SchemaError, UnknownColumn
from headrace.schema import Field, Schema, Type

__all__ = ["frame_schema"]


def frame_schema(frame: Any, wanted: Schema | None) -> Schema:
    """The wanted columns of a frame, or all of them; a column that needs a conversion is refused."""
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    if wanted is None:
        return Schema(tuple(Field(field.name, _type(field.name, field.dataType)) for field in frame.schema.fields))
    for field in wanted:
        if field.name not in types:
            raise UnknownColumn.of(field.name, types, "the data frame")
        if field.type.spark.lower() != types[field.name]:
            raise _unfit(field.name, types[field.name], f"{field.type.spark}, as the schema says")
    return wanted


def _type(name: str, kind: Any) -> Type:
    try:
        found = Type.of(kind)
    except SchemaError as error:
        raise _unfit(name, kind.simpleString(), ", ".join(dict.fromkeys(type.spark for type in Type.PLAIN))) from error
    if found.spark.lower() != kind.simpleString():
        raise _unfit(name, kind.simpleString(), found.spark)
    return found


def _unfit(name: str, kind: str, allowed: str) -> SchemaError:
    return SchemaError(
        f"column {name!r} of the data frame has another type",
        given=kind,
        allowed=allowed,
        instead=f"frame.withColumn({name!r}, frame[{name!r}].cast(...)), or frame.drop({name!r})",
    )
