"""Types of PostgreSQL and types of columns.

Reading: a type that holds the same values is chosen by itself. Types that no column type holds exactly (`numeric`,
`bytea`, `interval`, arrays) are read only if the columns are declared: as STRING, in PostgreSQL's text form, or
`numeric` as DOUBLE, which rounds, or LONG.

Writing: a created table has the types of `CREATED`. A table that exists may have any type of `WRITABLE`; the server
checks values as it reads them.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.adapters.postgres.catalog import ColumnInfo
from headrace.errors import SourceError
from headrace.schema import RESERVED, Field, Schema, Type

__all__ = ["CREATED", "TIMES", "check_declared", "derived", "writable"]

TIMES = ("timestamptz", "timestamp")

_TEXTS = ("text", "varchar", "bpchar", "name", "citext", "uuid", "json", "jsonb", "char")
_READ = {
    "int2": Type.SHORT, "int4": Type.INT, "int8": Type.LONG, "oid": Type.LONG, "float4": Type.FLOAT,
    "float8": Type.DOUBLE, "bool": Type.BOOLEAN, "timestamptz": Type.DATETIME, "timestamp": Type.DATETIME,
    "date": Type.DATETIME, **dict.fromkeys(_TEXTS, Type.STRING),
}  # fmt: skip
_WHOLE = (Type.BYTE, Type.SHORT, Type.INT, Type.LONG)
_FLOATS = (Type.FLOAT, Type.DOUBLE)
#: What else a column may be declared as; values that do not fit are refused, row by row.
_DECLARED = {
    "int2": (*_WHOLE, *_FLOATS), "int4": (*_WHOLE, *_FLOATS), "int8": (*_WHOLE, Type.DOUBLE, Type.DATETIME),
    "oid": (Type.LONG,), "float4": _FLOATS, "float8": _FLOATS, "numeric": (*_WHOLE, *_FLOATS),
}  # fmt: skip

CREATED = {
    Type.BYTE: "smallint", Type.SHORT: "smallint", Type.INT: "integer", Type.LONG: "bigint", Type.FLOAT: "real",
    Type.DOUBLE: "double precision", Type.BOOLEAN: "boolean", Type.CHAR: "text", Type.STRING: "text",
    Type.DATETIME: "timestamptz",
}  # fmt: skip
CREATED |= {kind.array: f"{name}[]" for kind, name in list(CREATED.items())}
_NUMBERS = ("int2", "int4", "int8", "numeric", "float4", "float8")
_WRITABLE = {
    Type.BYTE: _NUMBERS, Type.SHORT: _NUMBERS, Type.INT: ("int4", "int8", "numeric", "float8"),
    Type.LONG: ("int8", "numeric"), Type.FLOAT: ("float4", "float8", "numeric"), Type.DOUBLE: ("float8", "numeric"),
    Type.BOOLEAN: ("bool",), Type.CHAR: _TEXTS, Type.STRING: (*_TEXTS, "xml", "inet", "cidr"),
    Type.DATETIME: (*TIMES, "int8"),
}  # fmt: skip
_WRITABLE |= {kind.array: tuple(f"_{name}" for name in names) for kind, names in list(_WRITABLE.items())}


def writable(kind: Type, column: ColumnInfo) -> bool:
    """Whether values of a type may go to a column of a table."""
    return column.type in _WRITABLE[kind] or (column.is_enum and kind.is_text)


def derived(columns: Iterable[ColumnInfo], place: str) -> Schema:
    """The types of a table's columns; those that have none are refused together, by name."""
    columns = list(columns)
    kinds = {column.name: Type.STRING if column.is_enum else _READ.get(column.type) for column in columns}
    unknown = [column for column in columns if kinds[column.name] is None]
    if unknown:
        names = ", ".join(f"{column.name!r} ({column.declared})" for column in unknown)
        pairs = [f"{c.name} {(kinds[c.name] or _nearest(c)).value}" for c in columns]
        raise SourceError(
            f"no column type holds every value of {names} of {place}",
            given=", ".join(f"{column.name} {column.declared}" for column in columns),
            allowed="numeric as DOUBLE, which rounds, or LONG; any type as STRING",
            instead=f"a schema: {', '.join(pairs)!r}, or one without these columns",
        )
    return Schema(tuple(Field(name, kind) for name, kind in kinds.items() if kind is not None))


def _nearest(column: ColumnInfo) -> Type:
    return Type.DOUBLE if column.type == "numeric" else Type.STRING


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
        natural = Type.STRING if column.is_enum else _READ.get(column.type)
        allowed = {Type.STRING, *([natural] if natural else []), *_DECLARED.get(column.type, ())}
        if natural is Type.STRING:
            allowed.add(Type.CHAR)
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
