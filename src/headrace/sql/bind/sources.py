"""The sources of streams and tables, and the sinks of answers: `SOURCE …` and `INTO FILE (…)`.

A kind is one of the dialect's words, or the name of an installed adapter, whose fields are the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from headrace.adapters.registry import adapter_names, option_names, sink_class, source_class
from headrace.api import inputs, outputs
from headrace.api.stream import Stream
from headrace.errors import nearest
from headrace.expr import Expr
from headrace.io.adapter import SinkAdapter, SourceAdapter
from headrace.io.files import list_files, local_path
from headrace.io.formats import first_row
from headrace.io.tables import table_of
from headrace.plan.arrival import timed_by
from headrace.plan.policies import Lifetime, Point, ProgressPolicy
from headrace.schema import RESERVED, Schema
from headrace.sql import syntax as s
from headrace.sql.bind.arguments import LIMITS, Given
from headrace.sql.bind.catalog import Catalog, StreamEntry, TableEntry
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.bind.values import duration_of, unit_of_lifetime
from headrace.sql.printer import to_sql

__all__ = ["SINKS", "SOURCES", "PlaceKind", "late_into", "sink", "source", "table", "timed"]

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


def source(context: Context, catalog: Catalog, part: s.CreateStream, schema: Schema) -> Stream:
    """The stream of a CREATE STREAM with a SOURCE."""
    assert part.source is not None
    kind = _source_kind(context, part.source.kind)
    arguments = Given.of(context, catalog, part.source, kind.wanted, kind.needed, dotted=kind.dotted)
    renames = kind.built_in and "rename" in kind.wanted
    if renames:
        with arguments.at():
            schema = schema.renamed(arguments.renames())
    _check_names(context, part, schema, renames)
    lifetime = _lifetime(context, catalog, part, schema)
    reading = _Reading(
        schema,
        lifetime,
        _progress(context, part, unit_of_lifetime(lifetime, schema)),
        part.policy.bad_rows or "divert",
    )
    with arguments.at():
        stream: Stream = kind.make(arguments, reading)
    return stream


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
        by_arrival = part.lifetime is None or (
            isinstance(part.lifetime, s.PointLifetime)
            and isinstance(part.lifetime.value, s.Column)
            and part.lifetime.value.name.text.lower() == _CLOCK
        )
        if by_arrival:
            return inputs.ordered(late)
        return inputs.explicit(late) if part.policy.late else None

    def ticks(value: s.Duration | s.Number | None, default: int) -> int:
        return default if value is None else duration_of(context, value, unit)

    with context.at(late_policy):
        idle = None if late_policy.idle is None else duration_of(context, late_policy.idle)
        if late_policy.kind == "advance":
            skew = None if late_policy.skew is None else duration_of(context, late_policy.skew, unit)
            return inputs.advance(ticks(late_policy.amount, 0), ticks(late_policy.every, 1), late, skew, idle)
        if late_policy.kind == "heartbeat":
            return inputs.heartbeat(ticks(late_policy.amount, 1_000_000), ticks(late_policy.delay, 0), late)
        return inputs.ordered(late, idle) if late_policy.kind == "ordered" else inputs.explicit(late, idle)


def _csv(arguments: Given, reading: _Reading) -> Stream:
    path, delimiter = arguments.path(), arguments.text("delimiter", ",").replace("\\t", "\t")
    if len(delimiter) != 1:
        raise arguments.context.error(
            arguments.part, "a delimiter is one character", given=delimiter, allowed="',', ';', '\\t'"
        )
    header = arguments.values.get("header")
    if header is None:
        header = _has_header(path, delimiter, reading.schema, arguments.renames())
    how = {"delimiter": delimiter, "header": bool(header), **arguments.limits()}
    return inputs.read_csv(path, reading.schema, **how, **reading.options)


def _has_header(path: str, delimiter: str, schema: Schema, renames: Mapping[str, str]) -> bool:
    """Whether the first text line of the existing files names the columns; false if there are no files yet."""
    found = list_files(path) if local_path(path) is not None else []
    if not found:
        return False
    names = [renames.get(name, name).lower() for name in first_row(found[0], delimiter)]
    return bool(names) and set(names) >= {name.lower() for name in schema.names}


def _json(arguments: Given, reading: _Reading) -> Stream:
    return inputs.read_json(arguments.path(), reading.schema, **arguments.limits(), **reading.options)


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
    return inputs.read_host(host, port, reading.schema, **rest, **reading.options)


def _topic(arguments: Given, reading: _Reading) -> Stream:
    options = {"kafka.bootstrap.servers": arguments.text("servers"), "subscribe": arguments.text("topic")}
    options["startingOffsets"] = arguments.text("start", "earliest")
    return inputs.read_spark("kafka", reading.schema, options=options, **reading.options)


def _spark_table(arguments: Given, reading: _Reading) -> Stream:
    return inputs.read_spark(
        "table", reading.schema, path=arguments.text("name"), rename=arguments.renames(), **reading.options
    )


def _generator(arguments: Given, reading: _Reading) -> Stream:
    return inputs.generated(arguments.text("name"), reading.schema, **arguments.rest("name"), **reading.options)


def _adapter(name: str, paths: tuple[str, ...] | None, arguments: Given, reading: _Reading) -> Stream:
    return inputs.read_source(name, reading.schema, **reading.options, **arguments.options(paths))


@dataclass(frozen=True)
class PlaceKind:
    """A kind of sources or sinks: its arguments, how many are required, and the function that makes it."""

    wanted: tuple[str, ...]
    needed: int
    make: Callable[..., Any]
    #: Whether it is the dialect's own, not an adapter's.
    built_in: bool = True
    #: Whether there may be options of a client, whose names have dots.
    dotted: bool = False

    @classmethod
    def of_adapter(cls, adapter: type[SourceAdapter | SinkAdapter], make: Callable[..., Any]) -> PlaceKind:
        """The kind of an adapter. The columns of a source are those of its stream."""
        names, source = option_names(adapter), issubclass(adapter, SourceAdapter)
        wanted = tuple(name for name in names if name != "options" and not (source and name == "columns"))
        return cls(wanted, 0, make, built_in=False, dotted="options" in names)


#: The sources of the dialect.
SOURCES: Mapping[str, PlaceKind] = {
    "FILE": PlaceKind(("path", "delimiter", "header", "rename", *LIMITS, "order"), 1, _csv),
    "CSV": PlaceKind(("path", "delimiter", "header", "rename", *LIMITS, "order"), 1, _csv),
    "JSON": PlaceKind(("path", "rename", *LIMITS, "order"), 1, _json),
    "PARQUET": PlaceKind(("path", "rename", "order"), 1, _parquet),
    "EVENTS": PlaceKind(("path", "format", "rename", *LIMITS, "order"), 1, _events),
    "HOST": PlaceKind(("host", "port", "delimiter", "format", "spool", "rename", "max_line"), 2, _host),
    "TOPIC": PlaceKind(("servers", "topic", "start"), 2, _topic),
    "TABLE": PlaceKind(("name", "rename"), 1, _spark_table),
    "GENERATOR": PlaceKind(("name", "rows", "seed"), 1, _generator),
}


def _source_kind(context: Context, name: s.Name) -> PlaceKind:
    if name.text.upper() in SOURCES:
        return SOURCES[name.text.upper()]
    _check_known(context, name, "source", [*SOURCES, *adapter_names("source")])
    with context.at(name):
        adapter = source_class(name.text)
    return PlaceKind.of_adapter(adapter, partial(_adapter, name.text, adapter.paths))


# --- tables and sinks ------------------------------------------------------------------------------------------------


def table(context: Context, catalog: Catalog, part: s.CreateTable, schema: Schema | None) -> TableEntry:
    """The table of a CREATE TABLE."""
    if part.source is None:
        raise context.error(part, "a table needs a source", instead=f"CREATE TABLE {part.name.text} SOURCE FILE ('…')")
    _check_known(context, part.source.kind, "source of a table", ("FILE", "CSV", "JSON", "PARQUET"))
    arguments = Given.of(context, catalog, part.source, ("path",), 1)
    with arguments.at():
        return TableEntry(part.name.text, table_of(arguments.path(), schema), to_sql(part))


def _file_sink(arguments: Given, format: str) -> Any:
    format = arguments.text("format", format)
    return outputs.files(arguments.path(), format=format, encoding=_encoding(arguments), key=arguments.names("key"))  # type: ignore[arg-type]


def _console(arguments: Given) -> Any:
    return outputs.console(
        encoding=_encoding(arguments), key=arguments.names("key"), rows=arguments.values.get("rows", 20)
    )


def _encoding(arguments: Given) -> Any:
    return arguments.text("encoding", "events")


def _adapter_sink(name: str, paths: tuple[str, ...] | None, arguments: Given) -> Any:
    key = {"key": arguments.names("key")} if "key" in arguments.values else {}
    return outputs.sink(name, **{**arguments.options(paths), **key})


_FILES = ("path", "format", "encoding", "key")
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
    return PlaceKind.of_adapter(adapter, partial(_adapter_sink, name.text, adapter.paths))


def _check_known(context: Context, kind: s.Name, what: str, known: Sequence[str]) -> None:
    if kind.text.upper() not in {name.upper() for name in known}:
        raise context.error(
            kind,
            f"there is no {what} {kind.text!r}",
            given=kind.text,
            allowed=", ".join(known),
            instead=nearest(kind.text, known) or "",
        )
