"""Types of PostgreSQL and types of columns.

Reading: a type that holds the same values is chosen by itself. Types that no column type holds exactly (`numeric`,
`bytea`, `interval`, arrays) are read only if the columns are declared: as STRING, in PostgreSQL's text form, or
`numeric` as DOUBLE, which rounds, or LONG.

Writing: a created table has the types of `CREATED`. A table that exists may have any type of `WRITABLE`; the server
checks values as it reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.adapters.postgres.catalog import ColumnInfo
from headrace.errors import SourceError
from headrace.schema import RESERVED, Field, Schema, Type
from headrace.types import DIGITS

__all__ = ["TIMES", "check_declared", "created", "derived", "writable"]

#: A decimal with a precision, and perhaps a scale.
_NUMERIC = re.compile(r"numeric\((\d+)(?:,\s*(\d+))?\)")
TIMES = ("timestamptz", "timestamp")

_TEXTS = ("text", "varchar", "bpchar", "name", "citext", "uuid", "json", "jsonb", "char")
_READ = {
    "int2": Type.SHORT, "int4": Type.INT, "int8": Type.LONG, "oid": Type.LONG, "float4": Type.FLOAT,
    "float8": Type.DOUBLE, "bool": Type.BOOLEAN, "timestamptz": Type.DATETIME, "timestamp": Type.DATETIME,
    "date": Type.DATE, "time": Type.TIME, **dict.fromkeys(_TEXTS, Type.STRING),
}  # fmt: skip
_WHOLE = (Type.BYTE, Type.SHORT, Type.INT, Type.LONG)
_FLOATS = (Type.FLOAT, Type.DOUBLE)
#: What else a column may be declared as; values that do not fit are refused, row by row.
_DECLARED = {
    "int2": (*_WHOLE, *_FLOATS), "int4": (*_WHOLE, *_FLOATS), "int8": (*_WHOLE, Type.DOUBLE, Type.DATETIME),
    "date": (Type.DATETIME,), "oid": (Type.LONG,), "float4": _FLOATS, "float8": _FLOATS, "numeric": (*_WHOLE, *_FLOATS),
}  # fmt: skip

CREATED = {
    Type.BYTE: "smallint", Type.SHORT: "smallint", Type.INT: "integer", Type.LONG: "bigint", Type.FLOAT: "real",
    Type.DOUBLE: "double precision", Type.BOOLEAN: "boolean", Type.CHAR: "text", Type.STRING: "text",
    Type.DATETIME: "timestamptz", Type.DATE: "date", Type.TIME: "time", Type.INTERVAL: "interval",
}  # fmt: skip
CREATED |= {kind.array: f"{name}[]" for kind, name in list(CREATED.items())}
_NUMBERS = ("int2", "int4", "int8", "numeric", "float4", "float8")
_WRITABLE = {
    Type.BYTE: _NUMBERS, Type.SHORT: _NUMBERS, Type.INT: ("int4", "int8", "numeric", "float8"),
    Type.LONG: ("int8", "numeric"), Type.FLOAT: ("float4", "float8", "numeric"), Type.DOUBLE: ("float8", "numeric"),
    Type.BOOLEAN: ("bool",), Type.CHAR: _TEXTS, Type.STRING: (*_TEXTS, "xml", "inet", "cidr"),
    Type.DATETIME: (*TIMES, "int8"), Type.DATE: ("date", *TIMES), Type.TIME: ("time",), Type.INTERVAL: ("interval",),
}  # fmt: skip
_WRITABLE |= {kind.array: tuple(f"_{name}" for name in names) for kind, names in list(_WRITABLE.items())}


def writable(kind: Type, column: ColumnInfo) -> bool:
    """Whether values of a type may go to a column of a table."""
    if kind.element.is_decimal:
        return column.type == ("_numeric" if kind.is_array else "numeric")
    return column.type in _WRITABLE.get(kind, ()) or (column.is_enum and kind.is_text)


def created(kind: Type) -> str:
    """The type of a column that is created for values of a type."""
    if kind.element.is_decimal:
        return f"numeric({kind.element.precision},{kind.element.scale}){'[]' if kind.is_array else ''}"
    return CREATED[kind]


def _natural(column: ColumnInfo) -> Type | None:
    """The type that holds all values of a column, if there is one."""
    if column.is_enum:
        return Type.STRING
    size = _NUMERIC.fullmatch(column.declared)
    if size is not None and int(size[2] or 0) <= int(size[1]) <= DIGITS:
        return Type.DECIMAL(int(size[1]), int(size[2] or 0))
    return _READ.get(column.type)


def derived(columns: Iterable[ColumnInfo], place: str) -> Schema:
    """The types of a table's columns; those that have none are refused together, by name."""
    columns = list(columns)
    kinds = {column.name: _natural(column) for column in columns}
    unknown = [column for column in columns if kinds[column.name] is None]
    if unknown:
        names = ", ".join(f"{column.name!r} ({column.declared})" for column in unknown)
        pairs = [f"{c.name} {(kinds[c.name] or _nearest(c)).value}" for c in columns]
        raise SourceError(
            f"no column type holds every value of {names} of {place}",
            given=", ".join(f"{column.name} {column.declared}" for column in columns),
            allowed="numeric as DECIMAL(38,10), as DOUBLE, which rounds, or LONG; any type as STRING",
            instead=f"a schema: {', '.join(pairs)!r}, or one without these columns",
        )
    return Schema(tuple(Field(name, kind) for name, kind in kinds.items() if kind is not None))


def _nearest(column: ColumnInfo) -> Type:
    return Type.DECIMAL(DIGITS, 10) if column.type == "numeric" else Type.STRING


def check_declared(declared: Schema, columns: Iterable[ColumnInfo], place: str) -> None:
    """Raise unless every declared column exists and can be read as its type."""
    known = {column.name: column for column in columns}
    for field in declared:
        column = known.get(field.name)
        if column is None:
            raise SourceError(
                f"there is no column {field.name!r} in {place}",
                given=str(declared), allowed=", ".join(known), instead="the names of columns that exist",
            )  # fmt: skip
        natural = _natural(column)
        allowed = {Type.STRING, *([natural] if natural else []), *_DECLARED.get(column.type, ())}
        if natural is Type.STRING:
            allowed.add(Type.CHAR)
        if column.type == "numeric" and field.type.is_decimal:
            continue
        if field.type not in allowed:
            names = ", ".join(sorted(kind.value for kind in allowed))
            raise SourceError(
                f"column {field.name!r} of {place} is {column.declared}, which cannot be read as {field.type.value}",
                given=str(field), allowed=names, instead=f"{field.name} {(natural or _nearest(column)).value}",
            )  # fmt: skip


def free_of_reserved(schema: Schema, added: Iterable[str], place: str) -> None:
    """Raise if a column has the name of one that the source adds, or of a part of an event."""
    taken = sorted(set(schema.names) & {*added, *RESERVED} - {"le", "re"})
    if taken:
        raise SourceError(
            f"{place} has columns with names that Headrace uses: {', '.join(taken)}",
            given=str(schema), instead="a view of the table with other names, or a schema without them",
        )  # fmt: skip
