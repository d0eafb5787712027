"""Tables that live: rows that a program inserts, updates and deletes while queries read them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.api.checks import checked_expr
from headrace.api.stream import Stream
from headrace.display.html import html_preview
from headrace.display.words import columns_text, counted
from headrace.errors import SchemaError, TableError, UnknownColumn
from headrace.expr import Expr, Value, evaluate, lit, predicate_mask
from headrace.frames import frame_table
from headrace.io.live_table import LiveTable, LiveTableRead
from headrace.io.table_log import RowLog
from headrace.io.tables import fitted, is_table
from headrace.schema import RESERVED, Schema, SchemaLike
from headrace.time import TimeLike, ticks

__all__ = ["Table", "new_table", "now", "table"]

_numbers = count(1)


def now() -> int:
    """The time of the clock, in ticks."""
    return time.time_ns() // 1000


@dataclass(frozen=True, eq=False, repr=False)
class Table(Stream):
    """A table whose rows change. As a stream it is the history of its rows: each lasts from the change that inserts it
    to the one that updates or deletes it.
    """

    live: LiveTable

    def __repr__(self) -> str:
        return f"Table {self.live.name} of {columns_text(self.live.schema)}: {counted(len(self.live), 'row')}"

    def _repr_html_(self) -> str:
        return html_preview(self.rows())

    def rows(self) -> pa.Table:
        """The rows that it has now."""
        return self.live.rows

    def insert(self, rows: Any, *, at: TimeLike | None = None) -> int:
        """Insert a row (a dict), several (a list of dicts), or the rows of an Arrow table or a frame of pandas or
        Polars; return how many.

        Columns that are left out have their default, or null. `at` is when the rows begin to hold; by default always,
        or now, if a started query follows the table or an earlier change had a time.
        """
        given = _given(self.live, rows)
        return self.live.insert(self.live.filled(given), _ticks(at), numbers=_is_number(at))

    def update(self, values: Mapping[str, Value], where: Expr | None = None, *, at: TimeLike | None = None) -> int:
        """Give columns new values, `update({"price": col("price") * 2}, where=col("id") == 7)`; return how many rows
        matched.

        Rows whose values stay the same do not change. `at` as for `insert`.
        """
        live = self.live
        for name in values:
            _column(live, name)
        places = self._places(where, "update")
        old = live.rows.take(pa.array(places))
        new = old
        for name, value in values.items():
            expr = value if isinstance(value, Expr) else lit(value)
            found = evaluate(checked_expr(expr, "update", "col(...)"), old, live.schema)
            column = _fitted(live, pa.table({name: found})).column(name)
            new = new.set_column(live.schema.names.index(name), name, column)
        different = changed(old, new)
        live.change(places[different], new.filter(pa.array(different)), _ticks(at), numbers=_is_number(at))
        return len(places)

    def delete(self, where: Expr | None = None, *, at: TimeLike | None = None) -> int:
        """Delete the rows for which the condition is true, by default all; return how many. `at` as for `insert`."""
        places = self._places(where, "delete")
        self.live.change(places, self.live.rows.slice(0, 0), _ticks(at), numbers=_is_number(at))
        return len(places)

    def _places(self, where: Expr | None, what: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        rows = self.live.rows
        if where is None:
            return np.arange(rows.num_rows)
        checked = checked_expr(where, what, f"{what}(where=col(...) == ...)")
        return np.flatnonzero(predicate_mask(checked, rows, self.live.schema))


def table(
    schema: SchemaLike,
    *,
    key: str | Sequence[str] = (),
    required: str | Sequence[str] = (),
    defaults: Mapping[str, Value] | None = None,
    name: str | None = None,
) -> Table:
    """A table whose rows change, empty at first: `hr.table("id LONG, city STRING", key="id")`.

    `key` columns identify a row: no two rows have the same key, and it is never null. `required` columns are never
    null. `defaults` are values of columns that an insert leaves out. A checkpoint knows the table by its `name`; by
    default tables are numbered.
    """
    columns = Schema.of(schema)
    values = {column: value if isinstance(value, Expr) else lit(value) for column, value in (defaults or {}).items()}
    return new_table(name or f"table_{next(_numbers)}", columns, _names(key), _names(required), values)


def new_table(
    name: str, schema: Schema, key: Sequence[str] = (), required: Sequence[str] = (), defaults: Mapping[str, Expr] = {},
    log: RowLog | None = None,
) -> Table:  # fmt: skip
    """A table with these columns and their rules: empty, or with the rows of a log."""
    for column in schema.names:
        if column in RESERVED or column.startswith("__"):
            raise SchemaError(
                f"a column may not be named {column!r}: that is a part of every event",
                given=str(schema),
                allowed=f"any name but {', '.join(RESERVED)} and those that begin with __",
                instead=f"{column.strip('_') or 'column'}_",
            )
    for column in (*key, *required, *defaults):
        if column not in schema:
            raise UnknownColumn.of(column, schema.names, f"table {name}")
    live = LiveTable(name, schema, clock=now, key=key, required=required, defaults=defaults, log=log)
    return Table(LiveTableRead(live).source, live)


def changed(old: pa.Table, new: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which of the rows differ; nulls are equal."""
    different = np.zeros(old.num_rows, bool)
    for before, after in zip(old.columns, new.columns, strict=True):
        one, other = before.combine_chunks(), after.combine_chunks()
        if pa.types.is_nested(one.type):
            unequal = np.array([a != b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)], bool)
        else:
            unequal = np.asarray(pc.fill_null(pc.not_equal(one, other), False))
        different |= unequal | (np.asarray(pc.is_null(one)) != np.asarray(pc.is_null(other)))
    return different


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _ticks(at: TimeLike | None) -> int | None:
    return None if at is None else ticks(at)


def _is_number(at: TimeLike | None) -> bool:
    return at is not None and not isinstance(at, (str, datetime))


def _column(live: LiveTable, name: str) -> None:
    if name not in live.schema:
        raise UnknownColumn.of(name, live.schema.names, str(live))


def _given(live: LiveTable, rows: Any) -> pa.Table:
    """Rows that a user has given, in the types of the table."""
    if is_table(rows):
        return _fitted(live, frame_table(rows))
    several = [rows] if isinstance(rows, Mapping) else rows
    if not isinstance(several, Sequence) or not all(isinstance(row, Mapping) for row in several):
        raise TableError(
            "these are no rows",
            given=type(rows).__name__,
            allowed="a dict, a list of dicts, an Arrow table, a data frame of pandas or Polars",
            instead="insert({'id': 1})",
        )
    names = list(dict.fromkeys(name for row in several for name in row))
    missing = {name: live.default(name).as_py() for name in names if name in live.schema}
    return _fitted(live, pa.table({name: [row.get(name, missing.get(name)) for row in several] for name in names}))


def _fitted(live: LiveTable, rows: pa.Table) -> pa.Table:
    for name in rows.column_names:
        _column(live, name)
    columns = Schema(tuple(live.schema[name] for name in rows.column_names))
    block = fitted(rows, columns, str(live))
    if block.refused.num_rows:
        row = block.refused.slice(0, 1).to_pylist()[0]
        raise TableError(f"{live}: {row['reason']}", given=row["raw"], allowed=str(live.schema))
    return block.table
