"""Stored tables that an aggregate reads: their rows become part of its text when it is created.

An aggregate is its text, wherever it runs. So all workers see the same rows, and so does a query that is started again;
one that is made again after the table has changed is another aggregate, and a restart finds that out. The rows are
written as JSON, which is exact, the same on every machine, and can be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.errors import SqlError
from headrace.io.tables import TableFiles, TableRows
from headrace.schema import Schema, Type
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context

__all__ = ["MOST_CHARACTERS", "Stored", "decoded", "with_stored"]

Stored = Mapping[str, TableFiles | TableRows]

#: Of one table, written out.
MOST_CHARACTERS = 4_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)


def with_stored(context: Context, part: s.CreateAggregate, stored: Stored) -> s.CreateAggregate:
    """The aggregate with the stored tables that it names added to its own."""
    own = {table.name.text.lower() for table in part.tables}
    tables = {name.lower(): (name, table) for name, table in stored.items()}
    found: dict[str, s.LocalTable] = {}
    for name in _named(part):
        key = name.text.lower()
        if key in tables and key not in own and key not in found:
            found[key] = _written(context, name, *tables[key])
    return replace(part, tables=(*found.values(), *part.tables))


def _named(part: s.Part) -> Iterator[s.Name]:
    """The tables that are named, where they are."""
    if isinstance(part, s.LocalSelect) and part.table is not None:
        yield part.table
        yield from (join.table for join in part.joins)
    elif isinstance(part, (s.InsertRows, s.InsertSelected)):
        yield part.target
    elif isinstance(part, (s.UpdateRows, s.DeleteRows)):
        yield part.table
    for child in part.parts():
        yield from _named(child)


def _written(context: Context, at: s.Name, name: str, table: TableFiles | TableRows) -> s.LocalTable:
    with context.at(at):
        rows = table.read() if isinstance(table, TableFiles) else table
    fields = [field for field in rows.columns if not field.type.is_array]
    if not fields:
        raise context.error(at, f"{name} has no column that an aggregate computes with", given=str(rows.columns))
    columns = [[_plain(value) for value in rows.table[field.name].to_pylist()] for field in fields]
    text = json.dumps(list(zip(*columns, strict=True)), ensure_ascii=False, separators=(",", ":"))
    if len(text) > MOST_CHARACTERS:
        raise context.error(
            at,
            f"{name} is too large to travel with an aggregate",
            given=f"{rows.table.num_rows:,} rows, which are {len(text):,} characters",
            allowed=f"up to {MOST_CHARACTERS:,}",
            instead=f"SELECT … FROM stream JOIN {name} ON …, and what is needed of it as an argument",
        )
    typed = [
        s.TypedColumn(s.Name(field.name, quoted=True, at=at.at), s.Name(field.type.value, at=at.at), at=at.at)
        for field in fields
    ]
    return s.LocalTable(s.Name(name, quoted=True, at=at.at), tuple(typed), stored=text, at=at.at)


def _plain(value: Any) -> Any:
    return (value - _EPOCH) // _TICK if isinstance(value, datetime) else value


def decoded(context: Context, part: s.LocalTable, schema: Schema) -> tuple[tuple[Any, ...], ...]:
    """The rows of a table from its text."""
    assert part.stored is not None
    try:
        return _rows(json.loads(part.stored), [field.type for field in schema])
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise _unreadable(context, part) from None


def _rows(given: Any, kinds: list[Type]) -> tuple[tuple[Any, ...], ...]:
    if not isinstance(given, list) or not all(isinstance(row, list) and len(row) == len(kinds) for row in given):
        raise TypeError
    columns = list(zip(*given, strict=True)) or [()] * len(kinds)
    return tuple(zip(*map(_column, columns, kinds), strict=True))


def _column(values: tuple[Any, ...], kind: Type) -> tuple[Any, ...]:
    whole = kind.is_integer or kind is Type.DATETIME
    wanted = bool if kind is Type.BOOLEAN else int if whole else float if kind.is_floating else str
    if not all(value is None or type(value) is wanted for value in values):
        raise TypeError
    if kind is Type.DATETIME:
        return tuple(None if value is None else _EPOCH + value * _TICK for value in values)
    return values


def _unreadable(context: Context, part: s.LocalTable) -> SqlError:
    return context.error(
        part.name,
        f"the rows of {part.name.text} cannot be read",
        given=f"AS STORED '{(part.stored or '')[:40]}…'",
        allowed="what an aggregate's own text says of a stored table",
        instead="AS VALUES (…), (…)",
    )
