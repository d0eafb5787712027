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
from headrace.host.live_tables import table_reads
from headrace.io.tables import TableRows
from headrace.plan.instants import has_points
from headrace.schema import Schema
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import Catalog, TableEntry
from headrace.sql.bind.context import Context
from headrace.sql.bind.relations import Item, plain
from headrace.sql.bind.scope import Relation
from headrace.sql.printer import to_sql
from headrace.time import BEGINNING, INFINITY

__all__ = ["always", "check_union", "held_forever", "is_relation", "parts_of", "so_far", "stored"]

_FROM, _TO = "valid_from", "valid_to"


@cache
def _always(start: int = 0) -> Stream:
    """An event that holds as long as the rows of a table do: a table has an answer also if it is empty.

    It is not made before it is needed: reading records loads pandas.
    """
    return events([{"le": start, "re": INFINITY, "here": True}])


def so_far(stream: Stream, options: Mapping[str, Any]) -> pa.Table:
    """The history of a query over the current rows of its sources."""
    history = plain(stream).cht(**options)
    ends = history["re"]
    if not is_shown(history):  # of dates, the end of a row that nothing has ended is null already
        ends = pc.if_else(pc.equal(ends, INFINITY), pa.scalar(None, pa.int64()), ends)
    return history.drop_columns(["le", "re"]).append_column(_FROM, history["le"]).append_column(_TO, ends)


def held_forever(table: pa.Table, columns: Schema) -> Stream:
    """Rows as events without end."""
    count = table.num_rows
    control = pa.table({"kind": ["insert"] * count, "le": [0] * count, "re": [INFINITY] * count})
    for name in control.column_names[::-1]:
        table = table.add_column(0, name, control.column(name))
    return events(table, columns)


def stored(entry: TableEntry, part: s.FromItem) -> Item:
    """The current rows of a table as events without end."""
    rows = entry.table if isinstance(entry.table, TableRows) else entry.table.read()
    stream = held_forever(rows.table, rows.columns)
    assert isinstance(part.stream, s.Name)
    name = (part.alias or part.stream).text
    relation = Relation(name, {column: column for column in stream.schema.names})
    return Item(stream, (relation,), shown=(_always(),))


def always(stream: Stream) -> Stream:
    """An event that holds as long as the rows of tables do that a query reads."""
    return _always(BEGINNING) if table_reads(stream.node) else _always()


def is_relation(query: s.Query, catalog: Catalog) -> bool:
    """Whether a query is about tables alone, without windows: then its answer is what holds now."""
    parts = parts_of(query)
    named = {one.name.text.lower() for one in parts if isinstance(one, s.NamedQuery)}
    for one in parts:
        if isinstance(one, s.FromItem) and one.brackets:
            return False
        name = one.stream if isinstance(one, s.FromItem) else None
        if isinstance(name, s.Name) and name.text.lower() not in named and not catalog.holds_rows(name.text):
            return False
    return True


def parts_of(part: s.Part) -> list[s.Part]:
    """A part and all parts inside it."""
    found, waiting = [], [part]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += one.parts()
    return found


def check_union(context: Context, catalog: Catalog, part: s.SetOperation, left: Stream, right: Stream) -> None:
    """Refuse the union of a stream of instants and a table, as ESL does: the one happens, the other holds."""
    for stream, select, other in ((left, part.left, right), (right, part.right, left)):
        tables = [one for one in parts_of(select) if isinstance(one, s.FromItem)]
        table = bool(tables) and is_relation(s.Query(select), catalog)
        if table and not has_points(stream.node) and has_points(other.node):
            raise context.error(
                part,
                "the rows of a table hold, and those of a stream of instants happen: they have no union",
                given=to_sql(part),
                allowed="two streams, two tables, or rows that last on both sides",
                instead="FROM stream [RANGE UNBOUNDED], whose rows last; or a JOIN with the table",
            )
