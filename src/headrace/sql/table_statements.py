"""The statements of a session about tables: create them, and change their rows (`changes.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from headrace.api.stream import Stream
from headrace.api.tables import new_table
from headrace.schema import Schema
from headrace.sql import changes
from headrace.sql import syntax as s
from headrace.sql.bind import sources
from headrace.sql.bind.catalog import Catalog, LiveEntry, TableEntry
from headrace.sql.bind.context import Context
from headrace.sql.bind.queries import Queries
from headrace.sql.bind.relations import plain
from headrace.sql.bind.stored import is_relation
from headrace.sql.outcomes import Done, Outcome
from headrace.sql.peek import Computed, computed
from headrace.sql.printer import to_sql

__all__ = ["TableStatements"]


class TableStatements:
    """What a session does with tables."""

    catalog: Catalog
    options: Callable[..., dict[str, Any]]
    _columns: Callable[..., Schema]

    def _create_table(self, context: Context, part: s.CreateTable) -> Outcome:
        self.catalog.free(context, part.name, among={**self.catalog.streams, **self.catalog.tables})
        schema = self._columns(context, part.columns, None) if part.columns else None
        entry: TableEntry | LiveEntry
        if part.query is not None:
            rows = self._rows(context, part.query)
            table = new_table(part.name.text, Schema.of(rows.schema))
            table.insert(rows, at=self.catalog.settings["time"])
            entry = LiveEntry(part.name.text, table, to_sql(part))
        elif part.source is None and schema is not None:
            table = changes.created(context, self.catalog, part, schema)
            entry = LiveEntry(part.name.text, table, to_sql(part))
        else:
            rules = [column for column in part.columns if isinstance(column, s.TableColumn)] or part.key
            if rules:
                raise context.error(
                    rules[0],
                    "only a table without a source has rules for its columns",
                    given=to_sql(rules[0]),
                    instead=f"CREATE TABLE {part.name.text} (…), and INSERT INTO {part.name.text} SELECT …",
                )
            entry = sources.table(context, self.catalog, part, schema)
        self.catalog.tables[part.name.text] = entry
        return Done(part, f"table {entry.name} ({entry.schema})")

    def _rows(self, context: Context, query: s.Query) -> pa.Table:
        """The rows of a query as a table: what holds now, or the history of a query over streams."""
        if is_relation(query, self.catalog):
            return changes.answers(context, self.catalog, query, self._compute)
        return self._compute(Queries(context, self.catalog).query(query), "so far")

    def _compute(self, stream: Stream, how: Computed) -> pa.Table:
        """Compute what a statement takes into a table."""
        return computed(plain(stream).node, how, self.options())

    def _insert_values(self, context: Context, part: s.InsertValues) -> Outcome:
        entry = self.catalog.live(context, part.table)
        return Done(part, changes.inserted_values(context, self.catalog, entry, part))

    def _insert_select(self, context: Context, part: s.InsertSelect) -> Outcome:
        assert part.query is not None
        return self._insert_rows(context, part, self.catalog.live(context, part.table), part.columns, part.query)

    def _insert_rows(
        self, context: Context, part: s.Statement, entry: LiveEntry, columns: Sequence[s.Name], query: s.Query
    ) -> Outcome:
        return Done(part, changes.inserted(context, self.catalog, entry, columns, query, part, self._compute))

    def _update(self, context: Context, part: s.UpdateTable) -> Outcome:
        entry = self.catalog.live(context, part.table)
        return Done(part, changes.updated(context, self.catalog, entry, part, self._compute))

    def _delete(self, context: Context, part: s.DeleteFrom | s.Truncate) -> Outcome:
        entry = self.catalog.live(context, part.table)
        return Done(part, changes.deleted(context, self.catalog, entry, part, self._compute))

    def insert_into_table(self, context: Context, part: s.Insert) -> Outcome | None:
        """INSERT INTO a table; None if its target is a stream or a place."""
        target = part.target
        name = target if isinstance(target, s.Name) else target.kind
        table = self.catalog.tables.get(self.catalog.key(name.text, self.catalog.tables) or "")
        if table is None:
            return None
        given = target.arguments if isinstance(target, s.Into) else ()
        columns = tuple(changes.column_name(context, one) for one in given)
        query = part.source
        if isinstance(query, s.Name):
            query = s.Query(s.Select((s.Entry(s.Star(), at=query.at),), s.FromItem(query, at=query.at), at=query.at))
        return self._insert_rows(context, part, self.catalog.live(context, name), columns, query)

    table_statements: ClassVar[Mapping[type[s.Statement], Callable[[Any, Context, Any], Outcome]]] = {
        s.CreateTable: _create_table,
        s.InsertValues: _insert_values,
        s.InsertSelect: _insert_select,
        s.UpdateTable: _update,
        s.DeleteFrom: _delete,
        s.Truncate: _delete,
    }
