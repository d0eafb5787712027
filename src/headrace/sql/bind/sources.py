"""The sources of streams and tables, and the sinks of answers: `SOURCE …` and `INTO FILE (…)`.

A kind is one of the dialect's words, or the name of an installed adapter, whose fields are the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from headrace.adapters.registry import adapter_names, option_names, sink_class, source_adapter, source_class
from headrace.api import frames, hosts, inputs, lake, outputs, services
from headrace.api.stream import Stream
from headrace.errors import nearest
from headrace.expr import Expr
from headrace.io.adapter import SourceAdapter
from headrace.io.drift import checked_drift
from headrace.io.files import list_files, local_path
from headrace.io.formats import Format, first_row
from headrace.io.origins import Files
from headrace.io.tables import table_of
from headrace.plan.arrival import timed_by
from headrace.plan.policies import Lifetime, Point, ProgressPolicy
from headrace.schema import RESERVED, Field, Schema
from headrace.sql import syntax as s
from headrace.sql.bind.arguments import LIMITS, Given
from headrace.sql.bind.catalog import Catalog, StreamEntry, TableEntry
from headrace.sql.bind.changes import changes
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.bind.values import duration_of, unit_of_lifetime
from headrace.sql.printer import to_sql

__all__ = [
    "SINKS", "SOURCES", "PlaceKind", "check_sheds", "fed_by", "late_into", "shed", "sink", "source", "table", "timed",
]  # fmt: skip

_CLOCK = "current_time"


# --- streams ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reading:
    """How rows become events."""

    schema: Schema
    lifetime: Lifetime
    progress: ProgressPolicy | None
    bad_rows: str

    @property
    def options(self) -> dict[str, Any]:
        return {"lifetime": self.lifetime, "progress": self.progress, "bad_rows": self.bad_rows}


def source(context: Context, catalog: Catalog, part: s.CreateStream, schema: Schema | None) -> Stream:
    """The stream of a CREATE STREAM with a SOURCE; only an adapter that knows its columns needs no schema."""
    assert part.source is not None
    kind = _source_kind(context, part.source.kind)
    arguments = Given.of(context, catalog, part.source, kind.wanted, kind.needed, dotted=kind.dotted)
    if schema is None and not kind.knows_columns:
        raise context.error(
            part, "a stream from a source needs columns", instead=f"CREATE STREAM {part.name.text} (…) …"
        )
    renames = kind.built_in and "rename" in kind.wanted
    if renames and schema is not None:
        with arguments.at():
            schema = schema.renamed(arguments.renames())
    _check_names(context, part, schema or Schema(()), renames)
    if isinstance(part.lifetime, s.ChangesLifetime):
        return _changes(context, catalog, part, schema, kind, arguments)
    if kind.adapter is None:
        assert schema is not None
        return _rows(context, catalog, part, schema, arguments.at(), partial(kind.make, arguments))
    with arguments.at():
        adapter = kind.adapter(arguments, schema)
    if adapter.table_log is not None and part.lifetime is None:
        return _changes(context, catalog, part, schema, kind, arguments, adapter)
    if adapter.table_log is not None and adapter.table_log.op not in (schema or ()):
        raise context.error(
            part.lifetime or part,
            "this source has the changes of a table, and deletions are no rows of it",
            given=to_sql(part.source),
            allowed=f"LIFETIME CHANGES, or a column {adapter.table_log.op}, if the rows are read as a log",
            instead="LIFETIME CHANGES AT column, or cursor => 'id' for rows that are only appended",
        )
    read = partial(_read_adapter, adapter)
    return _rows(context, catalog, part, adapter.schema if schema is None else schema, arguments.at(), read)


def fed_by(context: Context, catalog: Catalog, part: s.CreateStream, adapter: SourceAdapter) -> Stream:
    """The stream of a CREATE STREAM without a SOURCE over an adapter that has its columns."""
    _check_names(context, part, adapter.schema, renames=False)
    return _rows(context, catalog, part, adapter.schema, context.at(part), partial(_read_adapter, adapter))


def _rows(
    context: Context,
    catalog: Catalog,
    part: s.CreateStream,
    schema: Schema,
    place: AbstractContextManager[None],
    read: Callable[[_Reading], Stream],
) -> Stream:
    """A stream whose lifetimes are in its rows."""
    lifetime = _lifetime(context, catalog, part, schema)
    progress = _progress(context, part, unit_of_lifetime(lifetime, schema))
    with place:
        return read(_Reading(schema, lifetime, progress, part.policy.bad_rows or "divert"))


def _changes(
    context: Context,
    catalog: Catalog,
    part: s.CreateStream,
    schema: Schema | None,
    kind: PlaceKind,
    arguments: Given,
    adapter: SourceAdapter | None = None,
) -> Stream:
    """A stream of the rows of a table, by its changes."""
    if kind.log is None and kind.adapter is None:
        assert part.lifetime is not None
        able = [name for name, one in SOURCES.items() if one.log is not None] + adapter_names("source")
        raise context.error(
            part.lifetime,
            f"{arguments.part.kind.text} has no changes of tables",
            given=arguments.part.kind.text,
            allowed=", ".join(able),
        )

    def log(more: Sequence[Field]) -> Any:
        if adapter is not None:
            return adapter
        columns = schema if schema is None else Schema((*schema, *more))
        with arguments.at():
            return kind.log(arguments, columns) if kind.log is not None else kind.adapter(arguments, columns)  # type: ignore[misc]

    with arguments.at():
        return changes(context, catalog, part, schema, log, partial(_progress, context, part))


def _check_names(context: Context, part: s.CreateStream, schema: Schema, renames: bool) -> None:
    physical = isinstance(part.lifetime, s.PhysicalLifetime)
    for name in schema.names:
        if not physical and (name.lower() in RESERVED or name.startswith("__")):
            place = next((column for column in part.columns if column.name.text == name), part.name)
            raise context.error(
                place,
                f"a column may not be named {name!r}: that is a part of every event",
                given=name,
                allowed=f"any name but {', '.join(RESERVED)} and those that begin with __",
                instead=f"{name}_ in the list of columns"
                + (f", and rename => '{name} AS {name}_' in the source" if renames else ""),
            )


def late_into(context: Context, catalog: Catalog, part: s.CreateStream, stream: Stream) -> None:
    """Create the stream of late and malformed rows, if the statement names one."""
    late = part.policy.late
    if isinstance(late, s.Name):
        catalog.free(context, late, among={**catalog.streams, **catalog.tables, part.name.text: part})
        node = stream.diverted().node
        catalog.streams[late.text] = StreamEntry(late.text, node.schema, node, to_sql(part))


def check_sheds(context: Context, part: s.CreateStream) -> None:
    """Refuse shedding without a source: the rows of a derived stream are not read."""
    if part.policy.shedding is not None and part.source is None:
        raise context.error(
            part.policy.shedding,
            "only a stream with a SOURCE sheds rows",
            given=to_sql(part.policy.shedding),
            instead="WITH SHEDDING in the CREATE STREAM of the source",
        )


def shed(context: Context, part: s.CreateStream, stream: Stream) -> Stream:
    """The stream with the shedding of its CREATE STREAM."""
    rule = part.policy.shedding
    if rule is None:
        return stream
    scope = Scope(context, (Relation(part.name.text, {name: name for name in stream.schema.names}),))
    by = None if rule.by is None else scope.column(s.Column(rule.by, at=rule.by.at))
    with context.at(rule):
        return stream.shed(rule.above, by)


def timed(context: Context, catalog: Catalog, part: s.CreateStream, stream: Stream) -> Stream:
    """A derived stream with the time of its CREATE STREAM."""
    if part.lifetime is None:
        if part.progress is not None or part.policy != s.Policy():
            raise context.error(
                part.progress or part.policy, "only a stream with a SOURCE has progress and a policy for late rows"
            )
        return stream
    if not isinstance(part.lifetime, s.PointLifetime):
        raise context.error(part.lifetime, "a derived stream has the lifetimes of its query", instead="ORDER BY column")
    lifetime = _lifetime(context, catalog, part, stream.schema)
    with context.at(part.lifetime):
        at: Expr | Literal["arrival"] = lifetime.at if isinstance(lifetime, Point) else "arrival"
        return Stream(timed_by(stream.node, at, _progress(context, part, unit_of_lifetime(lifetime, stream.schema))))


def _lifetime(context: Context, catalog: Catalog, part: s.CreateStream, schema: Schema) -> Lifetime:
    names = {column: column for column in schema.names}
    scope = Scope(context, (Relation(part.name.text, names),))
    expressions = Expressions(context, scope, schema, catalog.known)
    lifetime = part.lifetime
    if lifetime is None or _is_clock(lifetime, expressions):
        return inputs.by_arrival()
    with context.at(lifetime):
        if isinstance(lifetime, s.PointLifetime):
            return inputs.point(expressions.bind(lifetime.value))
        if isinstance(lifetime, s.IntervalLifetime):
            return inputs.interval(expressions.bind(lifetime.start), expressions.bind(lifetime.end))
        if isinstance(lifetime, s.EdgeLifetime):
            closes: Expr | None = None if lifetime.closes is None else expressions.predicate(lifetime.closes)
            key = [scope.column(s.Column(name, at=name.at)) for name in lifetime.key]
            return inputs.edge(expressions.bind(lifetime.value), key, closes)
        return inputs.physical()


def _is_clock(lifetime: s.Part, expressions: Expressions) -> bool:
    value = lifetime.value if isinstance(lifetime, s.PointLifetime) else None
    if not isinstance(value, s.Column) or value.stream is not None:
        return False
    return value.name.text.lower() == _CLOCK and not expressions.scope.knows(value)


def _progress(context: Context, part: s.CreateStream, unit: int) -> ProgressPolicy | None:
    late: Any = "divert" if isinstance(part.policy.late, s.Name) else part.policy.late or "divert"
    late_policy = part.progress
    if late_policy is None:
        if _by_arrival(part.lifetime):
            return inputs.ordered(late)
        return inputs.explicit(late) if part.policy.late else None

    def ticks(value: s.Duration | s.Number | None, default: int) -> int:
        return default if value is None else duration_of(context, value, unit)

    with context.at(late_policy):
        idle = None if late_policy.idle is None else duration_of(context, late_policy.idle)
        if late_policy.kind == "advance":
            skew = None if late_policy.skew is None else duration_of(context, late_policy.skew, unit)
            per = None if late_policy.per is None else late_policy.per.text
            return inputs.advance(ticks(late_policy.amount, 0), ticks(late_policy.every, 1), late, skew, idle, per)
        if late_policy.kind == "heartbeat":
            return inputs.heartbeat(ticks(late_policy.amount, 1_000_000), ticks(late_policy.delay, 0), late)
        return inputs.ordered(late, idle) if late_policy.kind == "ordered" else inputs.explicit(late, idle)


def _by_arrival(lifetime: s.Part | None) -> bool:
    if isinstance(lifetime, s.ChangesLifetime):
        return lifetime.time is None
    value = lifetime.value if isinstance(lifetime, s.PointLifetime) else None
    return lifetime is None or (isinstance(value, s.Column) and value.name.text.lower() == _CLOCK)


def _csv(arguments: Given, reading: _Reading) -> Stream:
    how = _csv_format(arguments, reading.schema)
    return inputs.read_csv(arguments.path(), reading.schema, **how, **arguments.limits(), **reading.options)


def _csv_format(arguments: Given, schema: Schema) -> dict[str, Any]:
    path, delimiter = arguments.path(), arguments.text("delimiter", ",").replace("\\t", "\t")
    if len(delimiter) != 1:
        raise arguments.context.error(
            arguments.place("delimiter"), "a delimiter is one character", given=delimiter, allowed="',', ';', '\\t'"
        )
    header = arguments.values.get("header")
    if header is not None and not isinstance(header, bool):
        raise arguments.context.error(arguments.place("header"), "header is TRUE or FALSE", given=header)
    if header is None:
        header = _has_header(path, delimiter, schema, arguments.renames())
    return {"delimiter": delimiter, "header": bool(header)}


def _has_header(path: str, delimiter: str, schema: Schema, renames: Mapping[str, str]) -> bool:
    """Whether the first text line of the existing files names the columns; false if there are no files yet."""
    found = list_files(path) if local_path(path) is not None else []
    if not found:
        return False
    names = [renames.get(name, name).lower() for name in first_row(found[0], delimiter)]
    return bool(names) and set(names) >= {name.lower() for name in schema.names}


def _json(arguments: Given, reading: _Reading) -> Stream:
    sparse = arguments.sparse()
    return inputs.read_json(arguments.path(), reading.schema, sparse=sparse, **arguments.limits(), **reading.options)


def _parquet(arguments: Given, reading: _Reading) -> Stream:
    return inputs.read_parquet(arguments.path(), reading.schema, **arguments.limits(), **reading.options)


def _events(arguments: Given, reading: _Reading) -> Stream:
    options = {"progress": reading.progress, "bad_rows": reading.bad_rows, **arguments.limits()}
    return inputs.read_events(arguments.path(), reading.schema, format=arguments.values.get("format"), **options)


def _host(arguments: Given, reading: _Reading) -> Stream:
    host, port, rest = arguments.text("host"), arguments.values["port"], arguments.rest("host", "port", "rename")
    rest |= arguments.limits()
    if "spool" in rest:
        rest["spool"] = arguments.path("spool")
    return hosts.read_host(host, port, reading.schema, **rest, **reading.options)


def _file_log(format: str, arguments: Given, schema: Schema) -> Files:
    """Files that hold the log of a table."""
    how = {**(_csv_format(arguments, schema) if format == "csv" else {}), **arguments.limits()}
    order, sparse = how.pop("order", "time"), inputs.sparse_names(arguments.sparse())
    names, drift = tuple(how.pop("rename").items()), checked_drift(how.pop("on_drift", None))
    return Files(arguments.path(), Format(format, **how, rename=names, sparse=sparse, on_drift=drift), order=order)


def _spark_table(arguments: Given, reading: _Reading) -> Stream:
    return frames.read_spark(
        "table", reading.schema, path=arguments.text("name"), rename=arguments.renames(), **reading.options
    )


def _generator(arguments: Given, reading: _Reading) -> Stream:
    return inputs.generated(arguments.text("name"), reading.schema, **arguments.rest("name"), **reading.options)


def _adapter(name: str, paths: tuple[str, ...] | None, arguments: Given, schema: Schema | None) -> SourceAdapter:
    return source_adapter(name, schema, arguments.options(paths))


def _read_adapter(adapter: SourceAdapter, reading: _Reading) -> Stream:
    return inputs.read_source(adapter, reading.schema, **reading.options)


@dataclass(frozen=True)
class PlaceKind:
    """A kind of sources or sinks: its arguments, how many are required, and the function that makes it."""

    wanted: tuple[str, ...]
    needed: int
    make: Callable[..., Any]
    #: The files of a log of changes, if it can be one.
    log: Callable[[Given, Any], Files] | None = None
    #: The source adapter, if it is one's; `make` is then not used.
    adapter: Callable[[Given, Schema | None], SourceAdapter] | None = None
    #: Whether it is the dialect's own, not an adapter's.
    built_in: bool = True
    #: Whether there may be options of a client, whose names have dots.
    dotted: bool = False
    #: Whether a stream needs no declared columns.
    knows_columns: bool = False


_CSV = ("path", "delimiter", "header", "rename", *LIMITS, "order", "on_drift")
#: The sources of the dialect.
SOURCES: Mapping[str, PlaceKind] = {
    "FILE": PlaceKind(_CSV, 1, _csv, partial(_file_log, "csv")),
    "CSV": PlaceKind(_CSV, 1, _csv, partial(_file_log, "csv")),
    "JSON": PlaceKind(("path", "rename", *LIMITS, "order", "sparse", "on_drift"), 1, _json, partial(_file_log, "json")),
    "PARQUET": PlaceKind(("path", "rename", "order", "on_drift"), 1, _parquet, partial(_file_log, "parquet")),
    "EVENTS": PlaceKind(("path", "format", "rename", *LIMITS, "order", "on_drift"), 1, _events),
    "HOST": PlaceKind(("host", "port", "delimiter", "format", "spool", "rename", "max_line"), 2, _host),
    "TABLE": PlaceKind(("name", "rename"), 1, _spark_table),
    "GENERATOR": PlaceKind(("name", "rows", "seed"), 1, _generator),
}
#: Words of the dialect for adapters.
_ADAPTERS = {"TOPIC": "kafka"}


def _source_kind(context: Context, name: s.Name) -> PlaceKind:
    if name.text.upper() in SOURCES:
        return SOURCES[name.text.upper()]
    _check_known(context, name, "source", [*SOURCES, *_ADAPTERS, *adapter_names("source")])
    own = _ADAPTERS.get(name.text.upper(), name.text)
    with context.at(name):
        adapter = source_class(own)
    names = option_names(adapter)
    return PlaceKind(
        # The columns of the source are those of its stream.
        tuple(option for option in names if option not in ("options", "columns")),
        0,
        _read_adapter,
        adapter=partial(_adapter, own, adapter.paths),
        built_in=False,
        dotted="options" in names,
        knows_columns=adapter.knows_columns,
    )


# --- tables and sinks ------------------------------------------------------------------------------------------------


def table(context: Context, catalog: Catalog, part: s.CreateTable, schema: Schema | None) -> TableEntry:
    """The table of a CREATE TABLE."""
    if part.source is None:
        raise context.error(part, "a table needs a source", instead=f"CREATE TABLE {part.name.text} SOURCE FILE ('…')")
    _check_known(context, part.source.kind, "source of a table", list(_TABLES))
    wanted, read = _TABLES[part.source.kind.text.upper()]
    arguments = Given.of(context, catalog, part.source, wanted, 1)
    with arguments.at():
        return TableEntry(part.name.text, table_of(read(arguments, schema), schema), to_sql(part))


def _table_file(arguments: Given, _: Schema | None) -> str:
    return arguments.path()


def _postgres_table(arguments: Given, schema: Schema | None) -> Any:
    arguments.options(None)  # an error where a session may only use some folders
    table, query = arguments.text("table"), arguments.text("query")
    return services.postgres_table(arguments.text("dsn"), table, query=query, schema=schema)


def _delta_table(arguments: Given, schema: Schema | None) -> Any:
    return lake.delta_table(arguments.path(), version=arguments.values.get("version"), schema=schema)


_Table = tuple[tuple[str, ...], Callable[[Given, Schema | None], Any]]
#: The sources of tables: the arguments, and the rows or the path of a file.
_TABLES: Mapping[str, _Table] = {
    **dict.fromkeys(("FILE", "CSV", "JSON", "PARQUET"), (("path",), _table_file)),
    "DELTA": (("path", "version"), _delta_table),
    "POSTGRES": (("dsn", "table", "query"), _postgres_table),
}


def _file_sink(arguments: Given, format: str) -> Any:
    format = arguments.text("format", format)
    more: dict[str, Any] = {name: arguments.names(name) for name in ("key", "partition_by", "sort_by")}
    more |= {"format": format, "encoding": _encoding(arguments), "compact": arguments.values.get("compact")}
    more |= {"keep": arguments.text("keep") if "keep" in arguments.values else None}
    return outputs.files(arguments.path(), **more)


def _console(arguments: Given) -> Any:
    rows = arguments.values.get("rows", 20)
    return replace(outputs.console(encoding=_encoding(arguments), key=arguments.names("key"), rows=rows), sql=True)


def _encoding(arguments: Given) -> Any:
    return arguments.text("encoding", "events")


def _adapter_sink(name: str, paths: tuple[str, ...] | None, arguments: Given) -> Any:
    key = {"key": arguments.names("key")} if "key" in arguments.values else {}
    return outputs.sink(name, **{**arguments.options(paths), **key})


_FILES = ("path", "format", "encoding", "key", "partition_by", "sort_by", "compact", "keep")
#: The sinks of the dialect.
SINKS: Mapping[str, PlaceKind] = {
    "FILE": PlaceKind(_FILES, 1, lambda given: _file_sink(given, "jsonl")),
    "JSON": PlaceKind(_FILES, 1, lambda given: _file_sink(given, "jsonl")),
    "PARQUET": PlaceKind(_FILES, 1, lambda given: _file_sink(given, "parquet")),
    "CONSOLE": PlaceKind(("encoding", "key", "rows"), 0, _console),
}


def sink(context: Context, catalog: Catalog, part: s.Into) -> Any:
    """The sink behind INTO."""
    kind = _sink_kind(context, part.kind)
    given = Given.of(context, catalog, part, kind.wanted, kind.needed, dotted=kind.dotted)
    with given.at():
        return kind.make(given)


def _sink_kind(context: Context, name: s.Name) -> PlaceKind:
    if name.text.upper() in SINKS:
        return SINKS[name.text.upper()]
    _check_known(context, name, "sink", [*SINKS, *adapter_names("sink")])
    with context.at(name):
        adapter = sink_class(name.text)
    names = option_names(adapter)
    wanted = tuple(option for option in names if option != "options")
    make = partial(_adapter_sink, name.text, adapter.paths)
    return PlaceKind(wanted, 0, make, built_in=False, dotted="options" in names)


def _check_known(context: Context, kind: s.Name, what: str, known: Sequence[str]) -> None:
    if kind.text.upper() not in {name.upper() for name in known}:
        raise context.error(
            kind,
            f"there is no {what} {kind.text!r}",
            given=kind.text,
            allowed=", ".join(known),
            instead=nearest(kind.text, known) or "",
        )
