"""Statements on a server: what they create lasts, and queries run.

A session of a server binds statements as any session does (`sql/session.py`). Where that one creates something, this
one stores it in the catalog first; where that one names a stream, this one runs a query that publishes it.

- `CREATE STREAM x AS …`, `CREATE MATERIALIZED VIEW x AS …`, `QUERY x AS …`: a query that runs, into a log under its
  name, which other queries read and clients subscribe to.
- `CREATE STREAM x (…)` without a SOURCE: clients insert its rows.
- `CREATE TABLE x (…)`: a table whose log is on disk.
- `… INTO FILE (…)` and other sinks: a query that runs into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from headrace.api.stream import Stream
from headrace.api.tables import new_table
from headrace.errors import ServerError, nearest
from headrace.host.live_tables import followed
from headrace.io.live_table import log_columns
from headrace.io.sinks import Sink
from headrace.schema import Schema
from headrace.server.catalog import key_of
from headrace.server.computing import AnalyzeJob, RowsJob
from headrace.server.drop_statements import DropStatements
from headrace.server.interface import Who
from headrace.server.looks import LOOKS, look
from headrace.server.modules.requests import MODULE_COLUMNS, module_lines
from headrace.server.published import ARRIVED, ClientRows, DiskLog, LogSink, PublishedStream, client_columns
from headrace.server.queries import ServedQuery
from headrace.server.query_statements import QueryStatements
from headrace.server.sharing import sharing_explained, sharing_shown
from headrace.server.texts import CreatedStep, DroppedStep, TextChanges
from headrace.sql import changes
from headrace.sql import syntax as s
from headrace.sql.bind import sources
from headrace.sql.bind.catalog import SETTINGS, LiveEntry, StreamEntry, ViewEntry
from headrace.sql.bind.context import Context
from headrace.sql.bind.queries import Queries
from headrace.sql.bind.relations import fitted, plain
from headrace.sql.bind.stored import is_relation
from headrace.sql.outcomes import Done, Outcome, ShownTable, Words
from headrace.sql.printer import to_sql
from headrace.sql.session import SqlSession, without_into
from headrace.sql.view_statements import names_read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.server.catalog import StoredObject
    from headrace.server.computing import ComputeJob, StatementWatch
    from headrace.server.core import HeadraceServer, ServedObject
    from headrace.sql.peek import Computed

__all__ = ["ServerSession"]

#: Settings that change what a statement means: they are stored with it.
_MEANING = ("emit", "tick", "on_error")
#: What the catalog names.
_NAMED = ("schemas", "streams", "tables", "aggregates", "own", "queries", "answers", "delivered")
#: Statements that change the catalog, whatever is in them.
_CHANGE_CATALOG = (
    s.CreateSchema, s.CreateStream, s.CreateTable, s.CreateView, s.CreateAggregate, s.CreateSecret, s.Drop, s.Insert,
    s.Merge, s.Split, s.StartQuery, s.AlterQuery,
)  # fmt: skip
#: Settings that belong to the server.
_OF_SERVER = ("host", "master", "checkpoint")


class ServerSession(QueryStatements, DropStatements, SqlSession):
    """The statements of one client. The catalog is the server's, the settings are the client's own."""

    def __init__(self, server: HeadraceServer, who: Who, watch: StatementWatch) -> None:
        super().__init__()
        self.server, self.who, self.watch = server, who, watch
        defaults = {name: default for name, (default, *_) in SETTINGS.items()}
        self.catalog = replace(server.catalog, settings=defaults)
        #: The rows of CREATE TABLE AS, which are computed before the lock is held.
        self._computed: pa.Table | None = None
        #: What the running text has changed.
        self.text = TextChanges()

    def statement(self, context: Context, part: s.Statement) -> Outcome:
        """Bind one statement; only those that change the catalog hold the lock of the server."""
        if isinstance(part, s.Insert):
            with context.at(part), self._looking():
                if (inserted := self.insert_into_table(context, part)) is not None:
                    return inserted
        elif not _changes_catalog(part):
            with self._looking():
                return super().statement(context, part)
        if isinstance(part, s.CreateTable) and part.query is not None:
            self._compute_rows(context, part, part.query)
        with self.server.lock:
            again = self.server.recovering
            with self.server.modules.binding(again.id if again and again.kind != "view" else None):
                return super().statement(context, part)

    def _compute_rows(self, context: Context, part: s.CreateTable, query: s.Query) -> None:
        with context.at(part), self._looking():
            if not (part.if_not_exists and self._exists(part)):
                self._free(context, part.name)
                self._computed = self._rows(context, query)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Use the catalog as it is now: others may change it meanwhile."""
        shared = self.catalog
        with self.server.lock:
            named: dict[str, Any] = {name: dict(getattr(shared, name)) for name in _NAMED}
            self.catalog = replace(shared, **named)
        try:
            yield
        finally:
            self.catalog = shared

    # --- computing ---------------------------------------------------------------------------------------------------

    def _compute(self, stream: Stream, how: Computed) -> pa.Table:
        job = RowsJob(plain(stream).node, self.options(), how, self.server.limits)
        rows: pa.Table = self.compute(job)
        return rows

    def compute(self, job: ComputeJob) -> Any:
        """The answer of a job: it has what was inserted before it."""
        self.server.catch_up(job.node)
        return self.server.computing.run(job, self.watch)

    def _explain(self, context: Context, part: s.Explain) -> Outcome:
        node = plain(self._derived(context, without_into(part.target))).node
        if part.analyze:
            return Words(part, self.compute(AnalyzeJob(node, self.options(), part.liveliness)))
        name = part.target.text if isinstance(part.target, s.Name) else None
        plan = Stream(node).explain(liveliness=part.liveliness)
        return Words(part, f"{plan}\n{sharing_explained(self.server, name, node)}")

    def _change_rows(self, context: Context, part: s.UpdateTable | s.DeleteFrom | s.Truncate) -> Outcome:
        """Find rows and change them: one statement at a time for each table."""
        served = self.server.objects.get(key_of("table", part.table.text))
        with nullcontext() if served is None else served.changing:
            return SqlSession.statements[type(part)](self, context, part)

    # --- storing what is created -------------------------------------------------------------------------------------

    @contextmanager
    def _storing(self, kind: str, name: str, part: s.Statement) -> Iterator[StoredObject]:
        """Store an object while it is created; if that fails, it is removed."""
        settings = [
            f"SET {setting} = '{value}';\n"
            for setting in _MEANING
            if (value := self.catalog.settings[setting]) != SETTINGS[setting][0]
        ]
        if key_of(kind, name) in self.server.unrecovered and self.server.recovering is None:
            old, why = self.server.unrecovered[key_of(kind, name)]
            raise ServerError(
                f"{old.kind} {old.name} exists, and could not be created again at the start: {why.message}",
                given=name, instead=f"what it needs and a new start, or DROP {old.kind.upper()} {old.name}",
            )  # fmt: skip
        before = self.server.objects.get(key_of(kind, name))
        stored = self.server.add(kind, name, "".join(settings) + to_sql(part), self.who.name)
        try:
            yield stored
        except BaseException:
            self.server.abandon(stored)
            raise
        if stored.state == "creating" and before is None:
            self.text.steps.append(CreatedStep(stored.id, to_sql(s.Drop(kind, s.Name(name, quoted=True)))))
        elif stored.state == "creating" and before is not None:
            self.text.steps.append(DroppedStep(before, ran=False))

    def _serve(self, stored: StoredObject, **parts: Any) -> ServedObject:
        from headrace.server.core import ServedObject  # it imports this module

        # The rows of a table were computed once; all else is bound again at the next start.
        packages = frozenset() if stored.kind == "table" else frozenset(self.server.modules.used)
        served = ServedObject(stored, packages=packages, **parts)
        if served.query is not None and stored.state == "creating":
            try:
                served.query.start()
            except BaseException:
                served.query.stop()
                if served.log is not None:
                    served.log.close()
                raise
            self.server.query_log.note(served.query.name, f"created by {self.who.name}")
        self.server.serve(served, self.text)
        return served

    def _stored(self, kind: str) -> Callable[[Context, Any], Outcome]:
        """A statement of any session, whose object is stored."""
        bind = SqlSession.statements

        def run(context: Context, part: Any) -> Outcome:
            with self._storing(kind, part.name.text, part) as stored:
                outcome = bind[type(part)](self, context, part)
                self._serve(stored)
            return outcome

        return run

    def _create_plain(self, context: Context, part: s.CreateSchema | s.CreateAggregate) -> Outcome:
        return self._stored("schema" if isinstance(part, s.CreateSchema) else "aggregate")(context, part)

    # --- streams and tables ------------------------------------------------------------------------------------------

    def _create_stream(self, context: Context, part: s.CreateStream) -> Outcome:
        name = part.name
        self._free(context, name)
        if part.source is not None:
            return self._stored("stream")(context, part)
        declared = self._columns(context, part.columns, part.like) if part.columns or part.like else None
        if part.derived is not None:
            derived = self._derived(context, part.derived, renames=declared is not None)
            stream = sources.timed(context, self.catalog, part, fitted(context, part, derived, declared))
            published = self._publish("stream", name.text, part, stream)
            self.catalog.streams[name.text] = StreamEntry(
                name.text, published.schema, published.node, to_sql(part), names_read(part)
            )
            return Done(part, f"stream {name.text} ({published.schema})")
        if declared is None:
            raise context.error(
                part, "a stream needs columns, a source, or a query", instead=f"CREATE STREAM {name.text} (…)"
            )
        if ARRIVED in declared:
            raise context.error(
                part, f"a column may not be named {ARRIVED!r}: the server notes there when a row arrived",
                given=ARRIVED, allowed="any other name", instead="arrived",
            )  # fmt: skip
        with self._storing("stream", name.text, part) as stored:
            log = self.server.open_log(stored, client_columns(declared))
            adapter = ClientRows(name.text, declared, str(log.folder), log)
            try:
                stream = sources.fed_by(context, self.catalog, part, adapter)
                sources.late_into(context, self.catalog, part, stream)
            except BaseException:
                log.close()
                raise
            self.catalog.streams[name.text] = StreamEntry(name.text, stream.schema, stream.node, to_sql(part))
            self._serve(stored, log=log)
        return Done(part, f"stream {name.text} ({stream.schema}): clients insert its rows")

    def _free(self, context: Context, name: s.Name) -> None:
        """Refuse a name that is taken: streams, tables, views and queries have different ones."""
        self._free_of_queries(context, name)
        self.catalog.free(context, name, among={**self.catalog.streams, **self.catalog.tables})

    def _free_of_queries(self, context: Context, name: s.Name) -> None:
        taken = self.catalog.key(name.text, self.catalog.queries)
        if taken is not None:
            raise context.error(
                name, f"{taken!r} exists already", given=name.text,
                instead=f"another name, or first {to_sql(s.Drop('query', s.Name(taken)))}",
            )  # fmt: skip

    def _publish(
        self, kind: str, name: str, part: s.CreateStream | s.CreateView | s.Ask, stream: Stream, *,
        relation: bool = False,
    ) -> PublishedStream:  # fmt: skip
        """Run a query into a log under a name."""
        node = plain(stream).node
        with self._storing(kind, name, part) as stored:
            log = self.server.open_log(stored, log_columns(node.schema))
            published = PublishedStream(name, node.schema, log, dates=followed(node).dates)
            query = self._query_of(stored, stream, LogSink(name=name, log=log), isolated=part.isolated)
            self._serve(stored, log=log, query=query, published=published, relation=relation)
        return published

    def _query_of(self, stored: StoredObject, stream: Stream, sink: Sink, *, isolated: bool = False) -> ServedQuery:
        return ServedQuery(stored, plain(stream).node, sink, self.server.runs, isolated=isolated)

    def _create_table(self, context: Context, part: s.CreateTable) -> Outcome:
        name = part.name.text
        self._free(context, part.name)
        if part.source is not None:
            return self._stored("table")(context, part)
        rows: pa.Table | None = None
        bare = part
        if part.query is not None:  # the rows of now: another start must not compute them again
            rows, self._computed = self._computed, None
            assert rows is not None
            columns = tuple(
                s.TypedColumn(s.Name(field.name, quoted=True), s.Name(field.type.value))
                for field in Schema.of(rows.schema)
            )
            bare = s.CreateTable(part.name, columns, at=part.at)
        with self._storing("table", name, bare) as stored:
            schema = self._columns(context, bare.columns, None)
            rules = changes.created(context, self.catalog, bare, schema).live
            log = self.server.open_log(stored, log_columns(schema))
            table = new_table(name, schema, rules.key, rules.required, rules.defaults, DiskLog(log))
            if rows is not None:
                table.insert(rows, at=self.catalog.settings["time"])
            self.catalog.tables[name] = LiveEntry(name, table, to_sql(bare))
            self._serve(stored, log=log, relation=True)
        return Done(part, f"table {name} ({schema})")

    def _create_view(self, context: Context, part: s.CreateView) -> Outcome:
        if not part.materialized:
            self._free_of_queries(context, part.name)
            return self._stored("view")(context, part)
        self._free(context, part.name)
        if part.query.into is not None:
            raise context.error(part.query.into, "a view gives its answers to those who read it", instead="no INTO")
        relation = is_relation(part.query, self.catalog)
        stream = Queries(context, self.catalog).query(part.query)
        published = self._publish("materialized view", part.name.text, part, stream, relation=relation)
        view: Any = _PublishedView(published.node, published)
        self.catalog.tables[part.name.text] = ViewEntry(
            part.name.text, published.schema, lambda: Stream(published.node), to_sql(part), relation,
            names_read(part.query), view,
        )  # fmt: skip
        return Done(part, f"materialized view {part.name.text} ({published.schema})")

    def values(self, context: Context, part: s.InsertValues, name: str, columns: Schema) -> pa.Table:
        """The rows of VALUES for a stream that clients feed."""
        return changes.given_values(context, self.catalog, StreamEntry(name, columns, None), part)

    # --- queries -----------------------------------------------------------------------------------------------------

    def _query(self, context: Context, part: s.Ask) -> Outcome:
        into = part.query.into
        if isinstance(into, s.Name):
            named = s.CreateStream(into, derived=replace(part.query, into=None), at=part.at)
            return self._create_stream(context, named)
        if into is not None:
            return self._deliver(context, part, part.query, into, part.name)
        if part.name is None:
            outcome = super()._query(context, part)
            for names in (self.catalog.queries, self.catalog.answers):
                names.pop(outcome.name, None)  # type: ignore[attr-defined]
            return outcome
        name = part.name.text
        self._free(context, part.name)
        stream = self._emitted(part.query, Queries(context, self.catalog).query(part.query))
        relation = is_relation(part.query, self.catalog)
        published = self._publish("query", name, part, stream, relation=relation)
        self.catalog.queries[name] = to_sql(part.query)
        self.catalog.answers[name] = StreamEntry(
            name, published.schema, published.node, to_sql(part), names_read(part.query), relation
        )
        return Done(part, f"query {name} runs")

    def _deliver(
        self, context: Context, part: s.Statement, query: s.Name | s.Query, into: s.Into, name: s.Name | None
    ) -> Outcome:
        """A query that runs into a sink."""
        source = replace(query, into=None) if isinstance(query, s.Query) else query
        stream = self._derived(context, source)
        sink = sources.sink(context, self.catalog, into)
        if name is None:
            name = s.Name(self._free_number())
        self._free(context, name)
        if not isinstance(query, s.Query):
            query = s.Query(s.Select((s.Entry(s.Star()),), s.FromItem(query)))
        whole = s.Ask(replace(query, into=into), name)
        with self._storing("query", name.text, whole) as stored:
            self._serve(stored, query=self._query_of(stored, stream, sink))
        self.catalog.queries[name.text] = to_sql(whole.query)
        self.catalog.delivered[name.text] = names_read(whole.query)
        return Done(part, f"query {name.text} runs")

    def _free_number(self) -> str:
        number = 1
        while key_of("query", f"query_{number}") in self.server.objects:
            number += 1
        return f"query_{number}"

    def _insert(self, context: Context, part: s.Insert) -> Outcome:
        into = self.insert_into_table(context, part)
        if into is not None:
            return into
        if isinstance(part.target, s.Name):
            raise context.error(
                part.target, "answers go into a stream of their own",
                instead=f"CREATE STREAM {part.target.text} AS SELECT …",
            )  # fmt: skip
        return self._deliver(context, part, part.source, part.target, None)

    def _merge(self, context: Context, part: s.Merge) -> Outcome:
        if isinstance(part.into, s.Name):
            named = s.CreateStream(part.into, derived=replace(part, into=None), at=part.at)
            return self._create_stream(context, named)
        raise context.error(part, "a merged stream needs a name", instead="CREATE STREAM x AS MERGE a, b")

    def _split(self, context: Context, part: s.Split) -> Outcome:
        raise context.error(
            part, "a server creates one stream with each statement",
            instead="CREATE STREAM x AS SELECT … WHERE …, for each branch",
        )  # fmt: skip

    # --- what exists -------------------------------------------------------------------------------------------------

    def _show(self, context: Context, part: s.Show) -> Outcome:
        if part.what in LOOKS:
            return look(self.server, part, self.served_queries(context, part.name))
        if part.what == "queries":
            served = [one for one in self.server.objects.values() if one.query is not None]
            rows = [_query_row(one) for one in served]
            for stored, why in self.server.unrecovered.values():
                text = " ".join(stored.text.split())
                rows.append((stored.name, stored.kind, f"failed: {why.message}", "", stored.owner, text))
            return ShownTable(part, ("query", "kind", "state", "batch", "owner", "text"), tuple(rows))
        if part.what == "sharing":
            return sharing_shown(part, self.server)
        if part.what == "secrets":
            return ShownTable(part, ("secret", "value", "owner"), tuple(self.server.access.secrets.names()))
        if part.what == "modules":
            return ShownTable(
                part, MODULE_COLUMNS, tuple(module_lines(self.server.modules, super()._show(context, part)))
            )
        if part.what == "subscriptions":
            used = self.server.subscriptions.in_use()
            return ShownTable(part, ("subscriptions",), ((str(used),),))
        return super()._show(context, part)

    def _set(self, context: Context, part: s.Set) -> Outcome:
        if part.name.text.lower() in _OF_SERVER:
            raise context.error(
                part.name, f"{part.name.text} belongs to the server", given=to_sql(part),
                instead="headrace serve --host, --master, --data",
            )  # fmt: skip
        return super()._set(context, part)

    def options(self, host: str | None = None) -> dict[str, Any]:
        """Where a query of this client runs that is asked once: in the server's process."""
        found = super().options(host)
        return {**found, "host": "local"}

    statements: ClassVar[Mapping[type[s.Statement], Callable[[Any, Context, Any], Outcome]]] = {
        **SqlSession.statements,
        s.CreateSchema: _create_plain,
        s.CreateAggregate: _create_plain,
        s.CreateStream: _create_stream,
        s.CreateTable: _create_table,
        s.CreateView: _create_view,
        s.Ask: _query,
        s.Insert: _insert,
        s.Merge: _merge,
        s.Split: _split,
        **DropStatements.drop_statements,
        s.Explain: _explain,
        **dict.fromkeys((s.UpdateTable, s.DeleteFrom, s.Truncate), _change_rows),
        s.Show: _show,
        s.Set: _set,
        **QueryStatements.query_statements,
    }


@dataclass(frozen=True, eq=False, repr=False)
class _PublishedView(Stream):
    """A materialized view of a server, as the catalog of statements has it."""

    published: PublishedStream

    def rows(self) -> pa.Table:
        """The rows that hold now."""
        return self.published.rows

    def stop(self) -> None:
        """The server stops its query."""


def _changes_catalog(part: s.Statement) -> bool:
    if isinstance(part, s.Ask):
        return part.name is not None or part.query.into is not None
    return isinstance(part, _CHANGE_CATALOG)


def _query_row(served: ServedObject) -> tuple[str, ...]:
    query = served.query
    assert query is not None
    batch = str(query.report.get("batch", ""))
    error = query.error
    state = query.state if error is None else f"failed: {error}"
    text = " ".join(served.stored.text.split())
    return query.name, served.stored.kind, state, batch, served.stored.owner, text


def unknown_stream(name: str, known: Mapping[str, Any]) -> ServerError:
    """The error of a name that nothing has."""
    return ServerError(
        f"there is no stream, table, view or query {name!r}", given=name, allowed=", ".join(known) or "(none yet)",
        instead=nearest(name, known) or "",
    )  # fmt: skip
