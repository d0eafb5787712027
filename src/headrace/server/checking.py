"""A look at a text before it is carried out: is it right, and what is the plan of its query?

The statements are parsed and bound in order over a copy of the catalog, so that a query may read what the text creates
above it. Nothing is stored, computed, read or reached: of tables only the columns are used, and a statement with a
SOURCE ends the check, because binding it may read the source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.api.stream import Stream
from headrace.api.tables import new_table
from headrace.errors import HeadraceError
from headrace.explain.graph import plan_graph
from headrace.explain.steps import explain_line
from headrace.io.tables import TableFiles, TableRows
from headrace.plan.nodes import Node, Output
from headrace.server.access import check_role, needs
from headrace.server.interface import Who
from headrace.server.problems import error_to_json
from headrace.server.published import ClientRows
from headrace.sql import changes
from headrace.sql import syntax as s
from headrace.sql.bind import sources
from headrace.sql.bind.catalog import SETTINGS, Catalog, LiveEntry, StreamEntry, TableEntry, ViewEntry
from headrace.sql.bind.context import Context
from headrace.sql.bind.queries import Queries
from headrace.sql.bind.relations import plain
from headrace.sql.bind.stored import is_relation, parts_of
from headrace.sql.outcomes import Answers, Done, Outcome
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql
from headrace.sql.session import SqlSession, without_into
from headrace.sql.view_statements import names_read
from headrace.stages.cut import line_of

if TYPE_CHECKING:
    from headrace.server.core import HeadraceServer

__all__ = ["CheckSession", "checked"]

#: What the catalog names, and a check may change in its copy.
_NAMED = ("schemas", "streams", "tables", "aggregates", "own", "queries", "answers", "delivered")
_ELSEWHERE = "This statement reads a source: it and what follows are checked when they are carried out."


def checked(server: HeadraceServer, who: Who, text: str, caret: int | None = None) -> dict[str, Any]:
    """`{"error", "at", "note", "plan", "explain"}`: what is wrong and where, or the plan of a query.

    That is the query at the caret or before it, else the last one. `error` is as `error_to_json` writes it.
    """
    found: dict[str, Any] = {"error": None, "at": None, "note": "", "plan": None, "explain": ""}
    session, context = CheckSession(server, who), Context(text)
    part: s.Statement | None = None
    try:
        for part in parse(text).statements:
            if any(isinstance(one, s.SourceClause) for one in parts_of(part)):
                found["note"] = _ELSEWHERE
                break
            session.statement(context, part)
        node = session.plan_at(caret)
        if node is not None:
            line = line_of([Output(node, "out")])
            found |= {"plan": plan_graph(line), "explain": explain_line(line, liveliness=True)}
    except HeadraceError as error:
        as_json = error_to_json(error)
        found |= {"error": as_json, "at": as_json.get("at") or (None if part is None else list(part.at))}
    return found


class _ColumnsOfTables(Catalog):
    """A catalog whose tables have no rows."""

    def stored_tables(self) -> dict[str, TableFiles | TableRows]:
        return {
            name: entry.table
            if isinstance(entry, TableEntry)
            else TableRows.now(entry.schema.arrow.empty_table(), entry.schema)
            for name, entry in self.tables.items()
            if not isinstance(entry, ViewEntry)
        }


class CheckSession(SqlSession):
    """Binds the statements of a server, and carries out none of them."""

    def __init__(self, server: HeadraceServer, who: Who) -> None:
        super().__init__()
        self._who, self._inside = who, server.inside_roots
        with server.lock:
            parts = {field.name: getattr(server.catalog, field.name) for field in fields(Catalog)}
            named = {name: dict(parts[name]) for name in _NAMED}
        defaults = {name: default for name, (default, *_) in SETTINGS.items()}
        self.catalog = _ColumnsOfTables(**{**parts, **named, "settings": defaults})
        #: The queries of the text: where their statements begin, and their plans.
        self._plans: list[tuple[int, Node]] = []

    def statement(self, context: Context, part: s.Statement) -> Outcome:
        """Bind one statement, if the client may have it carried out."""
        check_role(self._who, needs(part, self._inside), to_sql(part).partition("\n")[0][:80])
        return super().statement(context, part)

    def plan_at(self, caret: int | None) -> Node | None:
        """The plan of the query at a place, or of the last one before it."""
        before = [node for start, node in self._plans if caret is None or start <= caret]
        return before[-1] if before else self._plans[0][1] if self._plans else None

    def _planned(self, part: s.Statement, stream: Stream) -> Stream:
        self._plans.append((part.at[0], plain(stream).node))
        return stream

    def _bound(self, context: Context, part: s.Statement, query: s.Query) -> Stream:
        return self._planned(part, Queries(context, self.catalog).query(replace(query, into=None)))

    def _free(self, context: Context, name: s.Name) -> None:
        taken = {**self.catalog.queries, **self.catalog.streams, **self.catalog.tables}
        self.catalog.free(context, name, among=taken)

    # --- what would be created ---------------------------------------------------------------------------------------

    def _create_stream(self, context: Context, part: s.CreateStream) -> Outcome:
        self._free(context, part.name)
        if part.derived is None and part.columns:
            columns = self._columns(context, part.columns, part.like)
            stream = sources.fed_by(context, self.catalog, part, ClientRows(part.name.text, columns, ""))
            sources.late_into(context, self.catalog, part, stream)
            self.catalog.streams[part.name.text] = StreamEntry(part.name.text, stream.schema, stream.node)
            return Done(part, "")
        outcome = super()._create_stream(context, part)
        entry = self.catalog.streams[part.name.text]
        if entry.node is not None:
            self._planned(part, entry.stream)
        return outcome

    def _create_table(self, context: Context, part: s.CreateTable) -> Outcome:
        if part.query is None:
            return super()._create_table(context, part)
        self._free(context, part.name)
        stream = plain(self._bound(context, part, part.query))
        self.catalog.tables[part.name.text] = LiveEntry(part.name.text, new_table(part.name.text, stream.schema))
        return Done(part, "")

    def _create_view(self, context: Context, part: s.CreateView) -> Outcome:
        stream = self._bound(context, part, part.query)
        if not part.materialized:
            return super()._create_view(context, part)
        self._free(context, part.name)
        relation = is_relation(part.query, self.catalog)
        self.catalog.tables[part.name.text] = ViewEntry(
            part.name.text, plain(stream).schema, lambda: stream, "", relation, names_read(part.query), None
        )
        return Done(part, "")

    def _query(self, context: Context, part: s.Ask) -> Outcome:
        if part.name is not None:
            self._free(context, part.name)
        if part.query.into is not None:
            self._bound(context, part, part.query)
            return Done(part, "")
        outcome = super()._query(context, part)
        assert isinstance(outcome, Answers)
        self._planned(part, outcome.stream)
        return outcome

    def _drop(self, context: Context, part: s.Drop) -> Done:
        if part.kind == "secret":
            return Done(part, "")
        among = self._dropped_from(part.kind)
        key = self.catalog.key(part.name.text, among)
        if key is None and not part.if_exists:
            raise self._no_such(context, part, among)
        kept = ("schemas",) if part.kind == "schema" else ("aggregates", "own") if part.kind == "aggregate" else _NAMED
        for name in kept:
            getattr(self.catalog, name).pop(key, None)
        return Done(part, "")

    # --- what would be computed or changed ---------------------------------------------------------------------------

    def _explain(self, context: Context, part: s.Explain | s.Verify) -> Outcome:
        self._planned(part, plain(self._derived(context, without_into(part.target))))
        return Done(part, "")

    def _insert_values(self, context: Context, part: s.InsertValues) -> Outcome:
        key = self.catalog.key(part.table.text, self.catalog.streams)
        entry = self.catalog.live(context, part.table) if key is None else self.catalog.streams[key]
        changes.given_values(context, self.catalog, entry, part)
        return Done(part, "")

    def _insert_select(self, context: Context, part: s.InsertSelect) -> Outcome:
        self.catalog.live(context, part.table)
        if part.query is not None:
            self._bound(context, part, part.query)
        return Done(part, "")

    def _insert(self, context: Context, part: s.Insert) -> Outcome:
        source = part.source
        self._planned(part, self._derived(context, without_into(source) if isinstance(source, s.Query) else source))
        return Done(part, "")

    def _change_rows(self, context: Context, part: s.UpdateTable | s.DeleteFrom | s.Truncate) -> Outcome:
        self.catalog.live(context, part.table)
        return Done(part, "")

    def _left(self, context: Context, part: s.Statement) -> Outcome:
        """What is right if it parses."""
        del context
        return Done(part, "")

    statements: ClassVar[Mapping[type[s.Statement], Callable[[Any, Context, Any], Outcome]]] = {
        **SqlSession.statements,
        s.CreateStream: _create_stream,
        s.CreateTable: _create_table,
        s.CreateView: _create_view,
        s.Ask: _query,
        s.Drop: _drop,
        s.Explain: _explain,
        s.Verify: _explain,
        s.Insert: _insert,
        s.InsertValues: _insert_values,
        s.InsertSelect: _insert_select,
        **dict.fromkeys((s.UpdateTable, s.DeleteFrom, s.Truncate), _change_rows),
        **dict.fromkeys((s.StartQuery, s.AlterQuery, s.Subscribe, s.CreateSecret, s.Show, s.ShowCreate), _left),
    }
