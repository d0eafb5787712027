"""Columns: their names and types (`types.py`), and the forms in which users describe them.

A payload column may not use the names of an event's own parts (`RESERVED`), which stand beside it in every answer. A
reader takes a column `le` or `re` as the lifetime's own end, or asks for another name; it never leaves one out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias, get_origin, get_type_hints

import pyarrow as pa

from headrace.errors import SchemaError, UnknownColumn
from headrace.types import ALLOWED, Type, nearest_type, split_columns

__all__ = ["ARRIVAL", "NUMBERED", "POSITION", "RESERVED", "STAMPS", "Field", "Schema", "SchemaLike", "Type"]

#: The forms in which users describe columns; Any stands for a `StructType` of Spark.
SchemaLike: TypeAlias = "Schema | str | pa.Schema | Mapping[str, Any] | type | Any"

RESERVED = ("kind", "le", "re", "re_new")
#: The stamps of ingress: the arrival of a row in ticks, and its position in its file or table (rule 8.1).
ARRIVAL, POSITION = "__arrival", "__position"


@dataclass(frozen=True)
class Field:
    """A column's name and type."""

    name: str
    type: Type

    def __str__(self) -> str:
        return f"{self.name} {self.type.value}"


@dataclass(frozen=True)
class Schema:
    """An ordered set of columns."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for field in self.fields:
            if field.name in seen:
                raise SchemaError(f"column {field.name!r} appears twice", given=str(self))
            seen.add(field.name)

    @classmethod
    def of(cls, given: SchemaLike) -> Schema:
        """The schema that is described by text such as `"symbol STRING, price DOUBLE"`, by a dict of names and types,
        by a schema of Arrow, Spark or Polars, or by a class with annotations.
        """
        if isinstance(given, Schema):
            return given
        if isinstance(given, pa.Schema):
            # Without metadata: pandas puts a dict there, with which a schema has no hash in Arrow 18.
            return _of_arrow(given.remove_metadata())
        if isinstance(given, str):
            return cls(tuple(_parse_field(part, given) for part in split_columns(given) if part.strip()))
        return cls(tuple(_described_field(name, kind) for name, kind in _described(given)))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([(field.name, field.type.arrow) for field in self.fields])

    @property
    def payload(self) -> Schema:
        """The columns without reserved names."""
        return Schema(tuple(field for field in self.fields if field.name not in RESERVED))

    def renamed(self, names: Mapping[str, str]) -> Schema:
        """With new names for old ones; a schema that has the new name already may say so."""
        for old, new in names.items():
            if old not in self and new not in self:
                raise UnknownColumn.of(old, self.names, "the schema")
        return Schema(tuple(Field(names.get(field.name, field.name), field.type) for field in self.fields))

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __contains__(self, name: object) -> bool:
        return any(field.name == name for field in self.fields)

    def __getitem__(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        raise UnknownColumn.of(name, self.names)

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))


@lru_cache(maxsize=1024)  # every expression over a table asks for its schema
def _of_arrow(columns: pa.Schema) -> Schema:
    return Schema(_fields_of(columns))


def _fields_of(columns: pa.Schema) -> tuple[Field, ...]:
    """Arrow's columns as ours; all those that no type of ours holds are refused together, by name."""
    nearest_types = {column.name: nearest_type(column.type) for column in columns}
    lost = [column for column in columns if not _is_held(column.type)]
    if not lost:
        return tuple(Field(column.name, Type.from_arrow(column.type)) for column in columns)
    readable = [f"{name} {kind.value}" for name, kind in nearest_types.items() if kind is not None]
    raise SchemaError(
        f"no column type holds {', '.join(f'{column.name!r} ({column.type})' for column in lost)}",
        given=", ".join(f"{column.name} {column.type}" for column in columns),
        allowed=ALLOWED,
        instead=f"a schema that says what to read, such as {', '.join(readable)!r}" if readable else "",
    )


def _is_held(arrow: pa.DataType) -> bool:
    try:
        return Type.from_arrow(arrow) is not None
    except SchemaError:
        return False


def _described(given: Any) -> Iterable[tuple[Any, Any]]:
    """The names and types of columns that a dict, a schema of Spark or a class describes."""
    if isinstance(given, Mapping):
        return given.items()
    if hasattr(given, "simpleString") and hasattr(given, "fields"):
        return [(field.name, field.dataType) for field in given.fields]
    if isinstance(given, type) and (hints := _hints(given)):
        return hints.items()
    raise SchemaError(
        "this does not describe columns",
        given=given if isinstance(given, type) else type(given).__name__,
        allowed="text, a dict of names and types, a schema of Arrow, Spark or Polars, a class with annotations",
        instead="'symbol STRING, price DOUBLE', or {'symbol': str, 'price': float}",
    )


def _hints(given: type) -> dict[str, Any]:
    """The annotations of a class that are columns; those of pandera and pydantic have a `Config` of their own."""
    try:
        hints = get_type_hints(given)
    except NameError as error:
        raise SchemaError(f"an annotation of {given.__name__} is unknown: {error}", given=given) from error
    return {n: t for n, t in hints.items() if n[0] != "_" and n != "Config" and get_origin(t) is not ClassVar}


def _described_field(name: Any, kind: Any) -> Field:
    if not isinstance(name, str) or not name:
        raise SchemaError("a column has a name", given=name, allowed="text", instead="{'symbol': str}")
    try:
        return Field(name, Type.of(kind))
    except SchemaError as error:
        raise SchemaError(
            f"column {name!r}: {error.message}", given=error.given, allowed=error.allowed, instead=error.instead
        ) from error


def _parse_field(part: str, text: str) -> Field:
    words = part.split(maxsplit=1)
    if len(words) != 2:
        raise SchemaError(
            f"{part.strip()!r} is not a column",
            given=text,
            allowed="'name TYPE, name TYPE'",
            instead="'symbol STRING, price DOUBLE'",
        )
    return Field(words[0], Type.parse(words[1]))


STAMPS = Schema((Field(ARRIVAL, Type.LONG), Field(POSITION, Type.LONG)))
#: The column with the number of a tuple in its group, where an operator has numbered them.
NUMBERED = Schema((Field("__number", Type.LONG),))
