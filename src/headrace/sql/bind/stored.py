"""Stored tables: queries over them, and tables that are the history of a query.

A table is a stream whose rows hold at every instant, so any aggregate is allowed (rule 7.2), and the answers hold at
every instant too. The current history of a query, as a table, has two more columns: the ticks from and up to which a
row is valid; the latter is NULL for rows without end.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.api.inputs import events
from headrace.api.stream import Stream
from headrace.border import is_shown
from headrace.io.tables import TableRows
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import TableEntry
from headrace.sql.bind.relations import Item, plain
from headrace.sql.bind.scope import Relation
from headrace.time import INFINITY

__all__ = ["so_far", "stored"]

_FROM, _TO = "valid_from", "valid_to"


@cache
def _always() -> Stream:
    """An event that holds as long as the rows of a table do: a table has an answer also if it is empty.

    It is not made before it is needed: reading records loads pandas.
    """
    return events([{"le": 0, "re": INFINITY, "here": True}])


def so_far(stream: Stream, options: Mapping[str, Any]) -> pa.Table:
    """The history of a query over the current rows of its sources."""
    history = plain(stream).cht(**options)
    ends = history["re"]
    if not is_shown(history):  # of dates, the end of a row that nothing has ended is null already
        ends = pc.if_else(pc.equal(ends, INFINITY), pa.scalar(None, pa.int64()), ends)
    return history.drop_columns(["le", "re"]).append_column(_FROM, history["le"]).append_column(_TO, ends)


def stored(entry: TableEntry, part: s.FromItem) -> Item:
    """The current rows of a table as events without end."""
    rows = entry.table if isinstance(entry.table, TableRows) else entry.table.read()
    count, table = rows.table.num_rows, rows.table
    control = pa.table({"kind": ["insert"] * count, "le": [0] * count, "re": [INFINITY] * count})
    for name in control.column_names[::-1]:
        table = table.add_column(0, name, control.column(name))
    stream = events(table, rows.columns)
    assert isinstance(part.stream, s.Name)
    name = (part.alias or part.stream).text
    relation = Relation(name, {column: column for column in stream.schema.names})
    return Item(stream, (relation,), shown=(_always(),))
