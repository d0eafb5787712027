"""Columns and types: the ten types of the stream dialect, lists of them, and what they are in Arrow and in SQL.

A list, `ARRAY<DOUBLE>`, is what some aggregates give. It travels through every operator, and Python functions may take
it; expressions compute with its elements no further.

A payload column may not use the names of an event's own parts (`RESERVED`), which stand beside it in every answer. A
reader takes a column `le` or `re` as the lifetime's own end, or asks for another name; it never leaves one out.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from importlib import import_module
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa

from headrace.errors import SchemaError, UnknownColumn, nearest

__all__ = ["ARRIVAL", "NUMBERED", "POSITION", "RESERVED", "STAMPS", "Field", "Schema", "SchemaLike", "Type"]

#: The forms in which users describe columns; Any stands for a `StructType` of Spark.
SchemaLike: TypeAlias = "Schema | str | pa.Schema | Mapping[str, Any] | type | Any"

RESERVED = ("kind", "le", "re", "re_new")
#: The stamps of ingress: the arrival of a row in ticks, and its position in its file or table (rule 8.1).
ARRIVAL, POSITION = "__arrival", "__position"
_TIGHT = re.compile(r"\s*([<>(),])\s*")
_COMMA = re.compile(r",(?![^(<]*[)>])")  # not one inside brackets


class Type(enum.Enum):
    """A column's type; the value is its name in SQL."""

    BYTE = "BYTE"
    SHORT = "SHORT"
    INT = "INT"
    LONG = "LONG"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    CHAR = "CHAR"
    STRING = "STRING"
    DATETIME = "DATETIME"
    ARRAY_BYTE = "ARRAY<BYTE>"
    ARRAY_SHORT = "ARRAY<SHORT>"
    ARRAY_INT = "ARRAY<INT>"
    ARRAY_LONG = "ARRAY<LONG>"
    ARRAY_FLOAT = "ARRAY<FLOAT>"
    ARRAY_DOUBLE = "ARRAY<DOUBLE>"
    ARRAY_BOOLEAN = "ARRAY<BOOLEAN>"
    ARRAY_CHAR = "ARRAY<CHAR>"
    ARRAY_STRING = "ARRAY<STRING>"
    ARRAY_DATETIME = "ARRAY<DATETIME>"

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type that holds it."""
        return _ARROW[self]

    @property
    def spark(self) -> str:
        """Its name in Spark SQL."""
        return _SPARK[self]

    @property
    def duckdb(self) -> str:
        """Its name in DuckDB SQL."""
        return _DUCKDB[self]

    @property
    def is_integer(self) -> bool:
        return self in (Type.BYTE, Type.SHORT, Type.INT, Type.LONG)

    @property
    def is_floating(self) -> bool:
        return self in (Type.FLOAT, Type.DOUBLE)

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.is_floating

    @property
    def is_text(self) -> bool:
        return self in (Type.CHAR, Type.STRING)

    @property
    def is_array(self) -> bool:
        return self in _ELEMENTS

    @property
    def element(self) -> Type:
        """The element type of a list; any other type is its own element."""
        return _ELEMENTS.get(self, self)

    @property
    def array(self) -> Type:
        """The type of lists of it."""
        if self.is_array:
            raise SchemaError("a list holds no lists", given=f"ARRAY<{self.value}>", allowed=_ALLOWED)
        return Type(f"ARRAY<{self.value}>")

    @classmethod
    def parse(cls, text: str) -> Type:
        """The type of this name, in any case; common SQL synonyms are allowed."""
        name = _TIGHT.sub(r"\1", text).strip().upper()
        if name.startswith("ARRAY<") and name.endswith(">"):
            return cls.parse(name[len("ARRAY<") : -1]).array
        name = _SYNONYMS.get(name, name)
        if name.startswith(("DECIMAL", "NUMERIC")):
            raise SchemaError(
                f"there is no type {text.strip()}", given=text, allowed=_ALLOWED,
                instead="DOUBLE, which rounds, or LONG with a count of the smallest unit",
            )  # fmt: skip
        if name not in _SCALARS:
            close = nearest(name, _SCALARS)
            raise SchemaError(f"unknown type {text!r}", given=text, allowed=_ALLOWED, instead=close or "STRING")
        return cls[name]

    @classmethod
    def of(cls, given: Any) -> Type:
        """The type that a type of Python, NumPy, Arrow, Spark or Polars means; a text is a name in SQL.

        >>> Type.of(float).value, Type.of("float").value, Type.of(list[int] | None).value
        ('DOUBLE', 'FLOAT', 'ARRAY<LONG>')
        """
        if isinstance(given, (Type, str)):
            return given if isinstance(given, Type) else cls.parse(given)
        if isinstance(given, pa.DataType):
            return cls.from_arrow(given)
        if hasattr(given, "simpleString"):  # a type of Spark
            return cls.parse(_SPARK_DATES.get(given.simpleString(), given.simpleString()))
        frame_type = _of_frame_type(given)
        found = _of_annotation(given) if frame_type is None else cls.from_arrow(frame_type)
        if found is None:
            raise SchemaError(
                f"{getattr(given, '__name__', given)} is not the type of a column",
                given=str(given),
                allowed=f"{_ALLOWED}; str, int, float, bool, datetime, list[...]; types of NumPy, pandas, Polars, "
                "Arrow and Spark",
                instead="str, or 'STRING'",
            )
        return found

    @classmethod
    def from_arrow(cls, arrow: pa.DataType) -> Type:
        """The narrowest type that holds every value of an Arrow type."""
        if pa.types.is_dictionary(arrow):
            return cls.from_arrow(arrow.value_type)
        if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
            return cls.from_arrow(arrow.value_type).array
        for test, found in _FROM_ARROW:
            if test(arrow):
                return found
        raise SchemaError(
            f"no column type holds Arrow's {arrow}",
            given=str(arrow),
            allowed=_ALLOWED,
            instead="cast the column before it enters, or leave it out of the schema",
        )


_ELEMENTS = {kind: Type(kind.value[len("ARRAY<") : -1]) for kind in Type if kind.value.startswith("ARRAY<")}
_SCALARS = tuple(kind.value for kind in Type if kind not in _ELEMENTS)
_ALLOWED = f"{', '.join(_SCALARS)}, and ARRAY<type> of these"
_ARROW = {
    Type.BYTE: pa.int8(),
    Type.SHORT: pa.int16(),
    Type.INT: pa.int32(),
    Type.LONG: pa.int64(),
    Type.FLOAT: pa.float32(),
    Type.DOUBLE: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.CHAR: pa.string(),
    Type.STRING: pa.string(),
    Type.DATETIME: pa.timestamp("us", tz="UTC"),
}
_ARROW |= {kind: pa.list_(_ARROW[element]) for kind, element in _ELEMENTS.items()}
_SPARK = {
    Type.BYTE: "TINYINT", Type.SHORT: "SMALLINT", Type.INT: "INT", Type.LONG: "BIGINT", Type.FLOAT: "FLOAT",
    Type.DOUBLE: "DOUBLE", Type.BOOLEAN: "BOOLEAN", Type.CHAR: "STRING", Type.STRING: "STRING",
    Type.DATETIME: "TIMESTAMP",
}  # fmt: skip
_SPARK |= {kind: f"ARRAY<{_SPARK[element]}>" for kind, element in _ELEMENTS.items()}
_DUCKDB = {
    Type.BYTE: "TINYINT", Type.SHORT: "SMALLINT", Type.INT: "INTEGER", Type.LONG: "BIGINT", Type.FLOAT: "FLOAT",
    Type.DOUBLE: "DOUBLE", Type.BOOLEAN: "BOOLEAN", Type.CHAR: "VARCHAR", Type.STRING: "VARCHAR",
    Type.DATETIME: "TIMESTAMPTZ",
}  # fmt: skip
_DUCKDB |= {kind: f"{_DUCKDB[element]}[]" for kind, element in _ELEMENTS.items()}
_SYNONYMS = {
    "TINYINT": "BYTE", "SMALLINT": "SHORT", "INTEGER": "INT", "BIGINT": "LONG", "REAL": "FLOAT", "BOOL": "BOOLEAN",
    "TEXT": "STRING", "VARCHAR": "STRING", "TIMESTAMP": "DATETIME",
}  # fmt: skip
#: Python's types; a subclass follows its base, so BOOLEAN comes before LONG.
_PYTHON = ((bool, Type.BOOLEAN), (str, Type.STRING), (int, Type.LONG), (float, Type.DOUBLE), (date, Type.DATETIME))
_SPARK_DATES = {"date": "DATETIME", "timestamp_ntz": "DATETIME"}
_FROM_ARROW = (
    (lambda t: t == pa.int8(), Type.BYTE),
    (lambda t: t in (pa.int16(), pa.uint8()), Type.SHORT),
    (lambda t: t in (pa.int32(), pa.uint16()), Type.INT),
    (lambda t: t in (pa.int64(), pa.uint32()), Type.LONG),
    (lambda t: t in (pa.float16(), pa.float32()), Type.FLOAT),
    (lambda t: t == pa.float64(), Type.DOUBLE),
    (pa.types.is_boolean, Type.BOOLEAN),
    (lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t), Type.STRING),
    (lambda t: pa.types.is_timestamp(t) or pa.types.is_date(t), Type.DATETIME),
    (pa.types.is_null, Type.STRING),
)
_READABLE = (
    (pa.types.is_decimal, Type.DOUBLE),
    (lambda t: t == pa.uint64(), Type.LONG),
    (lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t), Type.STRING),
)


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
            return _of_arrow(given)
        if isinstance(given, str):
            return cls(tuple(_parse_field(part, given) for part in _COMMA.split(given) if part.strip()))
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
    nearest_types = {column.name: _nearest_type(column.type) for column in columns}
    lost = [column for column in columns if not _is_held(column.type)]
    if not lost:
        return tuple(Field(column.name, Type.from_arrow(column.type)) for column in columns)
    readable = [f"{name} {kind.value}" for name, kind in nearest_types.items() if kind is not None]
    raise SchemaError(
        f"no column type holds {', '.join(f'{column.name!r} ({column.type})' for column in lost)}",
        given=", ".join(f"{column.name} {column.type}" for column in columns),
        allowed=_ALLOWED,
        instead=f"a schema that says what to read, such as {', '.join(readable)!r}" if readable else "",
    )


def _is_held(arrow: pa.DataType) -> bool:
    try:
        return Type.from_arrow(arrow) is not None
    except SchemaError:
        return False


def _nearest_type(arrow: pa.DataType) -> Type | None:
    """The type that values of an Arrow type can be read as, though perhaps not all of them or not exactly."""
    if _is_held(arrow):
        return Type.from_arrow(arrow)
    return next((kind for test, kind in _READABLE if test(arrow)), None)


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


def _of_annotation(given: Any) -> Type | None:
    """The type that a type of Python means, also one that may be None, a list, or in the brackets of another."""
    origin, arguments = get_origin(given), get_args(given)
    if origin in (Union, UnionType):
        arguments = tuple(part for part in arguments if part is not NoneType)
    if origin is list and arguments:
        return Type.of(arguments[0]).array
    if arguments and (len(arguments) == 1 or origin is Annotated):  # Series[float]
        return Type.of(arguments[0])
    if not isinstance(given, type):
        return None
    return next((found for base, found in _PYTHON if issubclass(given, base)), None)


def _of_frame_type(given: Any) -> pa.DataType | None:
    """What a type of NumPy, pandas or Polars is in Arrow; None for other types."""
    module = (given if isinstance(given, type) else type(given)).__module__
    try:
        if module.startswith("polars."):
            return import_module("polars").Series([], dtype=given).to_arrow().type
        if isinstance(given, np.dtype) or (isinstance(given, type) and issubclass(given, np.generic)):
            dtype = np.dtype(given)
            return pa.string() if dtype.kind == "U" else pa.from_numpy_dtype(dtype)
        if module.startswith("pandas.") and hasattr(given, "construct_array_type"):
            return pa.array(import_module("pandas").array([], dtype=given)).type
    except pa.ArrowNotImplementedError:  # objects of any kind
        pass
    return None


def _parse_field(part: str, text: str) -> Field:
    words = _TIGHT.sub(r"\1", part).split()
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
