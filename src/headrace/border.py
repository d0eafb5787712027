"""The border between ticks and what users see (rule 1.1): the times of events in tables, files and texts.

Inside, times are 64-bit ticks. Where tables leave the engine, `shown` makes UTC timestamps of the times of a stream of
dates, with null for infinity (an event without an end, or the CTI at the end of a stream), and gives the columns the
names that the user wants. `as_ticks` is the way back, from either form. Plain numbers stay as they are. Both work on
whole columns: timestamps are ticks under another type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.columnar import to_numpy
from headrace.errors import SchemaError
from headrace.time import INFINITY, NEG_INFINITY, format_ticks

__all__ = [
    "DATE", "LIFETIME", "TimeColumns", "as_ticks", "checked_time_columns", "fill_infinity", "is_shown", "lifetimes",
    "refuse_taken", "shown", "shown_time", "with_date_texts",
]  # fmt: skip

#: The names of the columns with the start and the end of an event.
TimeColumns: TypeAlias = tuple[str, str]
LIFETIME: TimeColumns = ("le", "re")
#: The type of dates.
DATE = pa.timestamp("us", "UTC")
_NEW_END = "re_new"


def shown(table: pa.Table, *, dates: bool, time_columns: TimeColumns = LIFETIME) -> pa.Table:
    """A table of events, rows or changes as users see it; `table` has ticks."""
    if dates:
        for name in (*LIFETIME, _NEW_END):
            place = table.schema.get_field_index(name)
            if place >= 0 and table.schema.field(place).type != DATE:
                table = table.set_column(place, pa.field(name, DATE), _dates(table.column(place)))
    return table if time_columns == LIFETIME else _renamed(table, time_columns)


def _dates(ticks: pa.ChunkedArray) -> pa.ChunkedArray:
    infinite = pc.equal(ticks, INFINITY)
    if pc.any(infinite).as_py():
        ticks = pc.if_else(infinite, pa.scalar(None, pa.int64()), ticks)
    return pa.chunked_array([chunk.view(DATE) for chunk in ticks.chunks], DATE)


def _renamed(table: pa.Table, time_columns: TimeColumns) -> pa.Table:
    start, end = time_columns
    new = {"le": start, "re": end, _NEW_END: f"{end}_new"}
    refuse_taken(time_columns, [name for name in table.column_names if name not in new])
    return table.rename_columns([new.get(name, name) for name in table.column_names])


def refuse_taken(time_columns: TimeColumns, payload: Sequence[str]) -> None:
    """Raise if a column of the payload has the name of a column of times."""
    start, end = time_columns
    for name in (start, end, f"{end}_new"):
        if name in payload and time_columns != LIFETIME:
            raise SchemaError(
                f"{name!r} cannot be a column of times: the payload has a column of that name",
                given=", ".join(payload),
                allowed="names that no column has",
                instead="time_columns=('event_start', 'event_end')",
            )


def as_ticks(table: pa.Table, time_columns: TimeColumns = LIFETIME) -> pa.Table:
    """The table with ticks as times, as the engine has it; `table` has either form.

    Where times are dates, null is infinity.
    """
    start, end = time_columns
    old = {start: "le", end: "re", f"{end}_new": _NEW_END}
    if time_columns != LIFETIME:
        table = table.rename_columns([old.get(name, name) for name in table.column_names])
    if not is_shown(table):
        return table
    for name in (*LIFETIME, _NEW_END):
        place = table.schema.get_field_index(name)
        if place >= 0 and not pa.types.is_integer(table.schema.field(place).type):
            ticks = table.column(place).cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
            table = table.set_column(place, name, ticks)
    return fill_infinity(table)


def shown_time(ticks: int, *, dates: bool) -> int | str:
    """One time as a JSON value: ticks, or the ISO text of a date, with `∞` and `-∞` for the infinities."""
    if not dates:
        return ticks
    return format_ticks(ticks, dates=True) + ("" if ticks in (INFINITY, NEG_INFINITY) else "Z")


def with_date_texts(table: pa.Table) -> pa.Table:
    """Events with texts of dates for ticks, for a few rows: Python's dates do not hold all of them."""
    for name in (*LIFETIME, _NEW_END):
        place = table.schema.get_field_index(name)
        if place >= 0 and pa.types.is_integer(table.schema.field(place).type):
            ticks = table.column(place).to_pylist()
            texts = [None if time is None else format_ticks(time, dates=True) for time in ticks]
            table = table.set_column(place, name, pa.array(texts, pa.string()))
    return table


def is_shown(table: pa.Table) -> bool:
    """Whether the times of a table are dates."""
    return any(name in table.column_names and pa.types.is_timestamp(table.schema.field(name).type) for name in LIFETIME)


#: The kinds of physical events of which a time may be infinite; for others, null means that they have no such time.
_INFINITE = {"le": ("cti",), "re": ("insert", "retract"), _NEW_END: ("retract",)}


def fill_infinity(table: pa.Table) -> pa.Table:
    """Events of a stream of dates, with infinity, in ticks, for the times that are null."""
    for name, kinds in _INFINITE.items():
        place = table.schema.get_field_index(name)
        if place < 0 or not table.column(place).null_count or (name == "le" and "kind" not in table.column_names):
            continue
        filled = pc.fill_null(table.column(place), INFINITY)
        if "kind" in table.column_names:
            kind = pc.fill_null(table["kind"].cast(pa.string()), "")
            filled = pc.if_else(pc.is_in(kind, pa.array(kinds)), filled, table.column(place))
        table = table.set_column(place, table.schema.field(place), filled)
    return table


def checked_time_columns(names: Any) -> TimeColumns:
    """Two names for the columns of times; a `SchemaError` says what is wrong with others."""
    parts = names.split(",") if isinstance(names, str) else names if isinstance(names, (tuple, list)) else ()
    pair = tuple(name.strip() if isinstance(name, str) else "" for name in parts)
    taken = ("kind", _NEW_END, "op", "_batch", "_change_type")
    wrong = len(pair) != 2 or pair[0] == pair[1] or not all(pair) or any(name in taken for name in pair)
    if wrong or pair == ("re", "le"):
        raise SchemaError(
            "time_columns are the names of the columns with the start and the end of events",
            given=names,
            allowed=f"two different names, none of them {', '.join(taken)}",
            instead="time_columns=('start', 'end')",
        )
    return pair[0], pair[1]


def lifetimes(table: pa.Table) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]]]:
    """The starts and ends of a history, in ticks."""
    table = as_ticks(table.select(list(LIFETIME)))
    return to_numpy(table["le"]), to_numpy(table["re"])
