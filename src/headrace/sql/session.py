"""Sessions: execute statements in order, over a catalog.

Executing a statement binds it and runs nothing: a script (`scripts.py`) collects the outputs (queries, and `INSERT
INTO` a file or the console). Streams that several outputs read are part of one plan, so they run once. VERIFY is the
exception: it runs at once.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from headrace.adapters.registry import installed_adapters
from headrace.api.analyzed import explain_analyzed
from headrace.api.checks import node_of
from headrace.api.running import Run
from headrace.api.stream import Stream
from headrace.api.tables import Table
from headrace.display.words import counted
from headrace.errors import nearest, without_secrets
from headrace.expr import Udf
from headrace.host.live_tables import until_now
from headrace.io.tables import is_table, table_of
from headrace.literals import sql_text
from headrace.modules import Module
from headrace.modules.registry import modules
from headrace.plan.nodes import DIVERTED, Node, sources_of
from headrace.schema import Field, Schema, Type
from headrace.sql import changes
from headrace.sql import syntax as s
from headrace.sql.aggregates import completes, module_of
from headrace.sql.bind import sources
from headrace.sql.bind.catalog import SETTINGS, Catalog, LiveEntry, StreamEntry, TableEntry, ViewEntry
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import SQL_AGGREGATES, SQL_FUNCTIONS
from headrace.sql.bind.queries import Queries
from headrace.sql.bind.relations import fitted, plain
from headrace.sql.bind.scope import visible
from headrace.sql.bind.stored import is_relation
from headrace.sql.bind.values import constant
from headrace.sql.outcomes import Answers, Delivery, Done, Outcome, ShownTable, Verified, Words
from headrace.sql.parse import parse
from headrace.sql.peek import with_keys
from headrace.sql.printer import to_sql
from headrace.sql.shipped import LIBRARY, about
from headrace.sql.table_statements import TableStatements
from headrace.sql.view_statements import ViewStatements, names_read
from headrace.time import duration

__all__ = ["Answers", "Delivery", "Done", "Outcome", "ShownTable", "SqlSession", "Verified", "Words", "without_into"]


class SqlSession(TableStatements, ViewStatements):
    """Executes statements. The catalog starts with `streams`; Arrow tables and pandas frames among them are tables.
    `functions` are functions and modules by name.

    Relative paths start at `base`; with `roots`, files elsewhere are refused.
    """

    def __init__(
        self,
        streams: Mapping[str, Any] | None = None,
        *,
        functions: Mapping[str, Any] | None = None,
        base: str | Path = "",
        roots: Sequence[str | Path] | None = None,
    ) -> None:
        self.catalog = Catalog(
            own=dict(functions or {}),
            shipped=LIBRARY,
            base=Path(base),
            roots=None if roots is None else tuple(Path(root) for root in roots),
        )
        self._waiting = dict(streams or {})
        for name, stream in self._waiting.items():
            self.add(name, stream)
        self._query_count = 0
        #: The latest run of this session; the code that runs it sets it.
        self.latest: Run | None = None

    def add(self, name: str, stream: Any) -> None:
        """Let statements use a stream, or the rows of a table, under a name."""
        if is_table(stream):
            self.catalog.tables[name] = TableEntry(name, table_of(stream))
            return
        if isinstance(stream, Table):
            self.catalog.tables[name] = LiveEntry(name, stream)
            return
        node = node_of(stream, f"sql(text, {name}=stream), or {name}=table for an Arrow table or a pandas frame")
        schema = Schema(tuple(field for field in node.schema if field.name in visible(node.schema.names)))
        self.catalog.streams[name] = StreamEntry(name, schema, node)

    def table(self, name: str) -> Table:
        """A table whose rows change, by its name."""
        return self.catalog.live(Context(name), s.Name(name, at=(0, len(name)))).table

    def execute(self, text: str) -> list[Outcome]:
        """Bind the statements of a text, in order."""
        context = Context(text)
        outcomes: list[tuple[Outcome, Mapping[str, Node]]] = []
        for part in parse(text).statements:
            outcome = self.statement(context, part)
            outcomes.append((outcome, _over_tables_now(outcome)))
        return [_as_of(outcome, then) for outcome, then in outcomes]

    def statement(self, context: Context, part: s.Statement) -> Outcome:
        """Bind one statement of a text."""
        with context.at(part):
            if getattr(part, "if_not_exists", False) and self._exists(part):
                return Done(part, f"{part.name.text} exists already")  # type: ignore[attr-defined]
            return self.statements[type(part)](self, context, part)

    def _exists(self, part: s.Statement) -> bool:
        """Whether there is already what a CREATE … IF NOT EXISTS would create."""
        catalog = self.catalog
        among = catalog.schemas if isinstance(part, s.CreateSchema) else {**catalog.streams, **catalog.tables}
        return catalog.key(part.name.text, among) is not None  # type: ignore[attr-defined]

    def options(self, host: str | None = None) -> dict[str, Any]:
        """The options of a run by the settings, on another host if one is named."""
        settings = {**self.catalog.settings, **({} if host is None else {"host": host})}
        names = ("host", "buckets", "master" if settings["host"] == "spark" else "batch_rows")
        return {name: settings[name] for name in names if settings[name] is not None}

    @property
    def waits(self) -> dict[str, Any]:
        """How long a started query waits for new rows, and for how long it is recorded, if the script says."""
        settings = self.catalog.settings
        return {name: settings[name] for name in ("timeout", "record") if settings[name] is not None}

    # --- what exists -------------------------------------------------------------------------------------------------

    def _create_schema(self, context: Context, part: s.CreateSchema) -> Outcome:
        self.catalog.free(context, part.name, among=self.catalog.schemas)
        schema = self._columns(context, part.columns, part.like)
        if part.extends is not None:
            parent = self.catalog.schema(context, part.extends)
            with context.at(part.extends):
                schema = Schema((*parent.fields, *schema.fields))
        self.catalog.schemas[part.name.text] = schema
        return Done(part, f"schema {part.name.text} ({schema})")

    def _columns(self, context: Context, columns: Sequence[s.TypedColumn], like: s.Name | None) -> Schema:
        if like is not None:
            return self.catalog.schema(context, like)
        found: list[Field] = []
        for column in columns:
            if any(field.name == column.name.text for field in found):
                raise context.error(column.name, f"column {column.name.text!r} appears twice", given=column.name.text)
            with context.at(column.type):
                found.append(Field(column.name.text, Type.parse(column.type.text)))
        return Schema(tuple(found))

    def _create_stream(self, context: Context, part: s.CreateStream) -> Outcome:
        name = part.name.text
        fed = self.catalog.streams.get(name) if name in self._waiting else None
        if fed is None:
            self.catalog.free(context, part.name, among={**self.catalog.streams, **self.catalog.tables})
        sources.check_sheds(context, part)
        declared = self._columns(context, part.columns, part.like) if part.columns or part.like else None
        stream: Stream | None = None
        if part.derived is not None:
            derived = fitted(
                context, part, self._derived(context, part.derived, renames=declared is not None), declared
            )
            stream = sources.timed(context, self.catalog, part, derived)
        elif part.source is not None:
            stream = sources.shed(context, part, sources.source(context, self.catalog, part, declared))
            declared = plain(stream).schema
            sources.late_into(context, self.catalog, part, stream)
        elif fed is not None:
            del self._waiting[name]
            stream = fitted(context, part, fed.stream, declared)
        elif declared is None:
            raise context.error(
                part, "a stream needs columns, a source, or a query", instead=f"CREATE STREAM {name} (…)"
            )
        schema = declared if declared is not None else stream.schema  # type: ignore[union-attr]
        node = None if stream is None else stream.node
        self.catalog.streams[name] = StreamEntry(name, schema, node, to_sql(part), names_read(part))
        return Done(part, f"stream {name} ({schema})")

    def _derived(
        self, context: Context, part: s.Name | s.Query | s.Merge | s.DivertedFrom, *, renames: bool = False
    ) -> Stream:
        queries = Queries(context, self.catalog, renames)
        if isinstance(part, s.DivertedFrom):
            with context.at(part):
                return queries.named(part.stream).diverted()
        if isinstance(part, s.Name):
            return queries.named(part)
        return queries.query(part) if isinstance(part, s.Query) else self._merged(context, part)

    def _create_aggregate(self, context: Context, part: s.CreateAggregate) -> Outcome:
        name = part.name.text
        if not completes(part, self.catalog.own):
            self.catalog.free(context, part.name, among=self.catalog.own)
        known = ChainMap(self.catalog.own, self.catalog.modules)  # type: ignore[arg-type]  # it is only read
        module = module_of(context, part, known, self.catalog.stored_tables())
        self.catalog.own[name] = module
        self.catalog.aggregates[name] = part
        return Done(part, "aggregate {} ({}): {}".format(*module.summary))

    # --- streams into streams ----------------------------------------------------------------------------------------

    def _insert(self, context: Context, part: s.Insert) -> Outcome:
        into = self.insert_into_table(context, part)
        if into is not None:
            return into
        return self._put(context, part, part.target, self._derived(context, part.source))

    def _put(
        self, context: Context, part: s.Statement, target: s.Name | s.Into, stream: Stream, name: s.Name | None = None
    ) -> Outcome:
        """Send a stream to a sink, or into a stream."""
        if isinstance(target, s.Name):
            return self._feed(context, part, target, stream)
        return Delivery(part, self._numbered(name), plain(stream), sources.sink(context, self.catalog, target))

    def _feed(self, context: Context, part: s.Statement, name: s.Name, stream: Stream) -> Done:
        """Give a stream its source; an undeclared stream takes the columns of the source."""
        known = next((key for key in self.catalog.streams if key.lower() == name.text.lower()), None)
        if known is None:
            self.catalog.free(context, name, among=self.catalog.tables)
            schema = plain(stream).schema
            self.catalog.streams[name.text] = StreamEntry(
                name.text, schema, stream.node, to_sql(part), names_read(part)
            )
            return Done(part, f"stream {name.text} ({schema})")
        entry = self.catalog.streams[known]
        if entry.node is not None:
            raise context.error(
                name,
                f"the stream {entry.name!r} has a source already",
                given=to_sql(part),
                allowed="streams that were created without one",
                instead=f"MERGE {entry.name}, other INTO both",
            )
        shaped = fitted(context, name, stream, entry.schema)
        self.catalog.streams[known] = replace(
            entry, node=shaped.node, text=f"{entry.text};\n{to_sql(part)}", reads=names_read(part)
        )
        return Done(part, f"stream {entry.name} ({entry.schema})")

    def _merge(self, context: Context, part: s.Merge) -> Outcome:
        merged = self._merged(context, part)
        if part.into is not None:
            return self._put(context, part, part.into, merged)
        return Answers(part, self._numbered(None), merged)

    def _merged(self, context: Context, part: s.Merge) -> Stream:
        queries = Queries(context, self.catalog)
        streams = [plain(queries.named(name)) for name in part.streams]
        for name, stream in zip(part.streams, streams, strict=True):
            if stream.schema != streams[0].schema:
                raise context.error(
                    name,
                    "merged streams must have equal schemas",
                    given=f"{name.text} ({stream.schema})",
                    allowed=str(streams[0].schema),
                    instead="SELECT … UNION ALL SELECT …, which widens types",
                )
        return streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]

    def _split(self, context: Context, part: s.Split) -> Outcome:
        queries = Queries(context, self.catalog)
        messages = []
        for branch in part.branches:
            source = s.FromItem(part.stream, at=part.stream.at)
            select = s.Select(branch.entries, source, where=branch.where, at=branch.at)
            stream = queries.query(s.Query(select, at=branch.at))
            messages.append(self._feed(context, part, branch.target, stream).message)
        return Done(part, "; ".join(messages))

    # --- queries -----------------------------------------------------------------------------------------------------

    def _query(self, context: Context, part: s.Ask) -> Outcome:
        query, relation = replace(part.query, into=None), is_relation(part.query, self.catalog)
        peek, order = with_keys(query) if relation and part.query.into is None else (query, ())
        queries = Queries(context, self.catalog)
        if order:  # the answer itself has no order, and LIMIT without one would not say which rows it means
            body = query.body
            assert isinstance(body, s.Select)
            query = replace(query, body=replace(body, order=() if body.limit is None else body.order))
        stream = queries.query(query)
        if part.query.into is not None:
            return self._put(context, part, part.query.into, stream, part.name)
        name = self._numbered(part.name)
        self.catalog.queries[name] = to_sql(part.query)
        reads = names_read(part.query) if part.name is not None else frozenset[str]()  # what DROP must not take away
        self.catalog.answers[name] = StreamEntry(name, stream.schema, stream.node, to_sql(part), reads=reads)
        shown = self._emitted(part.query, queries.query(peek)) if order else None
        return Answers(part, name, self._emitted(part.query, stream), relation, shown, order)

    def _emitted(self, query: s.Query, stream: Stream) -> Stream:
        final = query.emit is None and self.catalog.settings["emit"] == "final"
        return stream.final() if final else stream

    def _numbered(self, name: s.Name | None) -> str:
        self._query_count += 1
        if name is not None:
            return name.text
        while f"query_{self._query_count}" in self.catalog.queries:
            self._query_count += 1
        return f"query_{self._query_count}"

    def _explain(self, context: Context, part: s.Explain) -> Outcome:
        stream = plain(self._derived(context, without_into(part.target)))
        if part.analyze:
            return Words(part, explain_analyzed(stream.node, liveliness=part.liveliness, **self.options()))
        return Words(part, stream.explain(liveliness=part.liveliness))

    def _verify(self, context: Context, part: s.Verify) -> Outcome:
        options: dict[str, Any] = {"seeds": part.seeds, "over": part.over}
        stream = plain(self._derived(context, without_into(part.target)))
        return Verified(part, stream.verify(**{name: value for name, value in options.items() if value is not None}))

    def _show(self, context: Context, part: s.Show) -> Outcome:
        known = _SHOWS
        if part.what == "diverted":
            return self._show_diverted(context, part)
        if part.what not in known:
            raise context.error(
                part,
                f"there is nothing to show of {part.what!r}",
                given=part.what,
                allowed=", ".join(name.upper() for name in [*known, "diverted"]),
                instead=(nearest(part.what, known) or "streams").upper(),
            )
        columns, rows = known[part.what](self.catalog)
        return ShownTable(part, columns, tuple(tuple(map(without_secrets, row)) for row in rows))

    def _show_diverted(self, context: Context, part: s.Show) -> Outcome:
        """The rows that the latest run has not used."""
        if part.name is not None:
            raise context.error(
                part.name, "here diverted rows are those of the latest run; only a server keeps them for each query",
                given=part.name.text, instead="SHOW DIVERTED",
            )  # fmt: skip
        if self.latest is None:
            raise context.error(
                part,
                "no query has run yet, so there are no diverted rows to show",
                given="SHOW DIVERTED",
                allowed="after a query, in the shell or a notebook",
                instead="CREATE STREAM … LATE INTO late_rows, and SELECT * FROM late_rows",
            )
        diverted = self.latest.diverted().select(list(DIVERTED.names))
        rows = [tuple("" if v is None else sql_text(v) for v in row.values()) for row in diverted.to_pylist()]
        shed = {source: counts.get("shed", 0) for source, counts in self.latest.counts.items()}
        rows += [(source, f"{counted(count, 'row')} shed", "", "", "") for source, count in shed.items() if count]
        rows = rows[len(rows) - min(len(rows), part.limit) :] if part.limit is not None else rows
        return ShownTable(part, DIVERTED.names, tuple(rows))

    def _set(self, context: Context, part: s.Set) -> Outcome:
        name = part.name.text.lower()
        null = isinstance(part.value, s.Value) and part.value.value is None
        value: Any
        if name == "time" and not null:
            value = changes.moment(context, part.value)
        else:
            value = to_sql(part.value) if isinstance(part.value, s.Duration) else constant(context, part.value)
        if name not in SETTINGS:
            raise context.error(
                part.name,
                f"there is no setting {name!r}",
                given=name,
                allowed=", ".join(SETTINGS),
                instead=nearest(name, SETTINGS) or "",
            )
        allowed = SETTINGS[name][2]
        value = value.lower() if allowed and isinstance(value, str) else value
        if allowed and value not in allowed:
            raise context.error(
                part.value, f"{name} cannot be {value!r}", given=value, allowed=", ".join(map(str, allowed))
            )
        if name in ("buckets", "batch_rows", "rows") and not (isinstance(value, int) and value > 0):
            raise context.error(part.value, f"{name} must be a number above 0", given=value)
        if name in ("timeout", "record") and value is not None:
            with context.at(part.value):
                duration(value)
        if name == "checkpoint" and value is not None and not self.catalog.may_use_place(str(value)):
            raise context.error(part.value, "this session may not use files there", given=value)
        self.catalog.settings[name] = value
        return Done(part, without_secrets(f"{name} = {sql_text(value)}"))

    def _on_server(self, context: Context, part: s.ServerStatement) -> Outcome:
        raise context.error(
            part,
            "only a server does this: here queries run when they are asked",
            given=to_sql(part).partition("\n")[0],
            instead="headrace serve, and headrace sql --server URL",
        )

    statements: ClassVar[Mapping[type[s.Statement], Callable[[SqlSession, Context, Any], Outcome]]] = {
        s.CreateSchema: _create_schema,
        s.CreateStream: _create_stream,
        s.CreateAggregate: _create_aggregate,
        s.Insert: _insert,
        s.Merge: _merge,
        s.Split: _split,
        s.Ask: _query,
        s.Explain: _explain,
        s.Verify: _verify,
        s.Show: _show,
        s.Set: _set,
        **dict.fromkeys((s.StartQuery, s.AlterQuery, s.Subscribe, s.CreateSecret), _on_server),
        **TableStatements.table_statements,
        **ViewStatements.view_statements,
    }


def _over_tables_now(outcome: Outcome) -> dict[str, Node]:
    """The plans of a query over its tables as they are now, whenever it runs, by the fields of the outcome."""
    if not isinstance(outcome, (Answers, Delivery)):
        return {}
    streams = {"stream": outcome.stream, "peek": outcome.peek if isinstance(outcome, Answers) else None}
    return {name: until_now(stream.node) for name, stream in streams.items() if stream is not None}


def _as_of(outcome: Outcome, then: Mapping[str, Node]) -> Outcome:
    """A query over its tables as they were at its statement, if later statements of its text have changed them."""
    if then == _over_tables_now(outcome):
        return outcome
    return replace(outcome, **{name: Stream(node) for name, node in then.items()})  # type: ignore[arg-type]


def without_into(part: s.Name | s.Query) -> s.Name | s.Query:
    """What is explained or verified: the query, wherever its answers go."""
    return replace(part, into=None) if isinstance(part, s.Query) else part


_Shown = tuple[tuple[str, ...], list[tuple[str, ...]]]


def _show_streams(catalog: Catalog) -> _Shown:
    def source(entry: StreamEntry) -> str:
        if entry.node is None:
            return "(no source yet)"
        return ", ".join(dict.fromkeys(_sources(entry)))

    return ("stream", "columns", "from"), [(e.name, str(e.schema), source(e)) for e in catalog.streams.values()]


def _sources(entry: StreamEntry) -> list[str]:
    assert entry.node is not None
    return [str(source.origin) for source in sources_of(entry.node)]


def _show_kinds(kind: Literal["source", "sink"], own: Mapping[str, sources.PlaceKind]) -> _Shown:
    """The dialect's own sources or sinks, and those of installed adapters."""
    rows: list[tuple[str, ...]] = [(name, ", ".join(one.wanted), "headrace") for name, one in own.items()]
    rows += [(one.name, ", ".join(one.options), one.problem or one.package) for one in installed_adapters(kind)]
    return (kind, "options", "from"), rows


_SHOWS: Mapping[str, Callable[[Catalog], _Shown]] = {
    "streams": _show_streams,
    "sources": lambda _: _show_kinds("source", sources.SOURCES),
    "sinks": lambda _: _show_kinds("sink", sources.SINKS),
    "schemas": lambda c: (("schema", "columns"), [(name, str(schema)) for name, schema in c.schemas.items()]),
    "tables": lambda c: (
        ("table", "columns"),
        [(t.name, str(t.schema)) for t in c.tables.values() if not isinstance(t, ViewEntry)],
    ),
    "views": lambda c: (("view", "kind", "columns"), [(v.name, v.kind, str(v.schema)) for v in c.views()]),
    "aggregates": lambda c: (
        ("aggregate", "takes", "gives", "answers"),
        [c.own[name].summary for name in c.aggregates],
    ),
    "modules": lambda c: (
        ("module", "kind", "summary"),
        [
            *((m.name, m.kind, m.summary) for m in modules()),
            *((f"stdlib.{name}", "SQL aggregate", about(name).partition("\n")[0]) for name in c.shipped),
            *((name, _kind(own), "") for name, own in c.own.items()),
        ],
    ),
    "functions": lambda _: (
        ("function", "kind"),
        [*((name, "function") for name in SQL_FUNCTIONS), *((name, "aggregate") for name in SQL_AGGREGATES)],
    ),
    "queries": lambda c: (("query", "text"), [(name, " ".join(text.split())) for name, text in c.queries.items()]),
    "settings": lambda c: (
        ("setting", "value", "what it is"),
        [(name, sql_text(c.settings[name]), what) for name, (_, what, _) in SETTINGS.items()],
    ),
}


def _kind(own: Any) -> str:
    if isinstance(own, Udf):
        return "function"
    known = isinstance(own, Module) or (isinstance(own, type) and issubclass(own, Module))
    return str(own.kind) if known else "module"
