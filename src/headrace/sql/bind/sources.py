"""The sources of streams and tables, and the sinks of answers: `SOURCE …` and `INSERT INTO FILE …`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any, Literal

from headrace.api import inputs, outputs
from headrace.api.stream import Stream
from headrace.errors import nearest
from headrace.expr import Expr
from headrace.io.files import list_files, local_path
from headrace.io.formats import first_row
from headrace.io.tables import table_of
from headrace.plan.arrival import timed_by
from headrace.plan.policies import Lifetime, Point, ProgressPolicy
from headrace.schema import RESERVED, Schema
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import Catalog, StreamEntry, TableEntry
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.bind.values import constant, duration_of, unit_of_lifetime
from headrace.sql.printer import to_sql

__all__ = ["SINKS", "SOURCES", "late_into", "sink", "source", "table", "timed"]

_CLOCK = "current_time"
_RENAME = re.compile(r"(.+?)\s+AS\s+(.+)", re.IGNORECASE)
_LIMITS = ("max_line", "max_expansion")


@dataclass(frozen=True)
class _Given:
    """The arguments of a source or a sink, by name."""

    context: Context
    catalog: Catalog
    part: s.SourceClause | s.Into
    values: Mapping[str, Any]

    @classmethod
    def of(
        cls, context: Context, catalog: Catalog, part: s.SourceClause | s.Into, wanted: tuple[str, ...], needed: int
    ) -> _Given:
        """Arguments by position, then by name; the first `needed` are required."""
        if len(part.arguments) > len(wanted):
            raise context.error(
                part.arguments[len(wanted)],
                f"{part.kind.text} takes {len(wanted)} arguments",
                given=to_sql(part),
                allowed=", ".join(wanted),
            )
        values = {name: constant(context, one) for name, one in zip(wanted, part.arguments, strict=False)}
        for one in part.named:
            name = one.name.text.lower()
            if name not in wanted:
                raise context.error(
                    one.name,
                    f"{part.kind.text} has no {name!r}",
                    given=name,
                    allowed=", ".join(wanted),
                    instead=nearest(name, wanted) or "",
                )
            values[name] = constant(context, one.value)
        for name in wanted[:needed]:
            if name not in values:
                raise context.error(part, f"{part.kind.text} needs a {name}", given=to_sql(part), allowed=_call(wanted))
        return cls(context, catalog, part, values)

    def text(self, name: str, default: str = "") -> str:
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise self.context.error(self.part, f"{name} is a text", given=value, allowed="a text in quotes")
        return value

    def renames(self) -> dict[str, str]:
        """`rename => 'old AS new, …'`."""
        pairs = {}
        for pair in filter(str.strip, self.text("rename").split(",")):
            found = _RENAME.fullmatch(pair.strip())
            if found is None:
                raise self.context.error(
                    self.part, "this renames no column", given=pair.strip(), allowed="'old AS new, old AS new'"
                )
            pairs[found[1]] = found[2]
        return pairs

    def limits(self) -> dict[str, Any]:
        """`max_line => n, max_expansion => n, "order" => 'name'`, if present, and the new names."""
        limits = {name: value for name, value in self.values.items() if name in (*_LIMITS, "order")}
        return limits | {"rename": self.renames()}

    def rest(self, *but: str) -> dict[str, Any]:
        """All arguments but these."""
        return {name: value for name, value in self.values.items() if name not in but}

    def path(self, name: str = "path") -> str:
        """A path from the session's base, if the session may use it."""
        given = self.text(name)
        local = local_path(given)
        if local is None:
            if self.catalog.roots is not None:
                raise self._outside(given)
            return given
        path = Path(local)
        if not path.is_absolute() and self.catalog.base != Path():
            path = self.catalog.base / path
        # A directory, or a pattern, may contain links to other places.
        if not self.catalog.may_use(path):
            raise self._outside(given)
        if self.catalog.roots is not None and (path.exists() or has_magic(str(path))):
            for found in list_files(str(path)):
                if not self.catalog.may_use(Path(found)):
                    raise self._outside(found)
        return str(path)

    def _outside(self, path: str) -> Exception:
        roots = ", ".join(map(str, self.catalog.roots or ()))
        return self.context.error(
            self.part, "this session may not use files there", given=path, allowed=roots or "(no files at all)"
        )


def _call(wanted: tuple[str, ...]) -> str:
    return ", ".join(wanted)


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
    kind = part.source.kind.text.upper()
    if kind not in SOURCES:
        raise _unknown(context, part.source.kind, "source", SOURCES)
    wanted, needed, make = SOURCES[kind]
    arguments = _Given.of(context, catalog, part.source, wanted, needed)
    with context.at(part.source):
        schema = schema.renamed(arguments.renames())
    _check_names(context, part, schema, "rename" in wanted)
    lifetime = _lifetime(context, catalog, part, schema)
    reading = _Reading(
        schema,
        lifetime,
        _progress(context, part, unit_of_lifetime(lifetime, schema)),
        part.policy.bad_rows or "divert",
    )
    with context.at(part.source):
        return make(arguments, reading)


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
        if late_policy.kind == "advance":
            skew = None if late_policy.skew is None else duration_of(context, late_policy.skew, unit)
            return inputs.advance(ticks(late_policy.amount, 0), ticks(late_policy.every, 1), late, skew)
        if late_policy.kind == "heartbeat":
            return inputs.heartbeat(ticks(late_policy.amount, 1_000_000), ticks(late_policy.delay, 0), late)
        return inputs.ordered(late) if late_policy.kind == "ordered" else inputs.explicit(late)


def _csv(arguments: _Given, reading: _Reading) -> Stream:
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


def _json(arguments: _Given, reading: _Reading) -> Stream:
    return inputs.read_json(arguments.path(), reading.schema, **arguments.limits(), **reading.options)


def _parquet(arguments: _Given, reading: _Reading) -> Stream:
    return inputs.read_parquet(arguments.path(), reading.schema, **arguments.limits(), **reading.options)


def _events(arguments: _Given, reading: _Reading) -> Stream:
    options = {"progress": reading.progress, "bad_rows": reading.bad_rows, **arguments.limits()}
    return inputs.read_events(arguments.path(), reading.schema, format=arguments.values.get("format"), **options)


def _host(arguments: _Given, reading: _Reading) -> Stream:
    host, port, rest = arguments.text("host"), arguments.values["port"], arguments.rest("host", "port", "rename")
    rest |= arguments.limits()
    if "spool" in rest:
        rest["spool"] = arguments.path("spool")
    return inputs.read_host(host, port, reading.schema, **rest, **reading.options)


def _topic(arguments: _Given, reading: _Reading) -> Stream:
    options = {"kafka.bootstrap.servers": arguments.text("servers"), "subscribe": arguments.text("topic")}
    options["startingOffsets"] = arguments.text("start", "earliest")
    return inputs.read_spark("kafka", reading.schema, options=options, **reading.options)


def _spark_table(arguments: _Given, reading: _Reading) -> Stream:
    return inputs.read_spark(
        "table", reading.schema, path=arguments.text("name"), rename=arguments.renames(), **reading.options
    )


def _generator(arguments: _Given, reading: _Reading) -> Stream:
    return inputs.generated(arguments.text("name"), reading.schema, **arguments.rest("name"), **reading.options)


_Make = Callable[[_Given, _Reading], Stream]
#: Kinds of sources: their arguments, how many are required, and the function that reads them.
SOURCES: Mapping[str, tuple[tuple[str, ...], int, _Make]] = {
    "FILE": (("path", "delimiter", "header", "rename", *_LIMITS, "order"), 1, _csv),
    "CSV": (("path", "delimiter", "header", "rename", *_LIMITS, "order"), 1, _csv),
    "JSON": (("path", "rename", *_LIMITS, "order"), 1, _json),
    "PARQUET": (("path", "rename", "order"), 1, _parquet),
    "EVENTS": (("path", "format", "rename", *_LIMITS, "order"), 1, _events),
    "HOST": (("host", "port", "delimiter", "format", "spool", "rename", "max_line"), 2, _host),
    "TOPIC": (("servers", "topic", "start"), 2, _topic),
    "TABLE": (("name", "rename"), 1, _spark_table),
    "GENERATOR": (("name", "rows", "seed"), 1, _generator),
}


# --- tables and sinks ------------------------------------------------------------------------------------------------


def table(context: Context, catalog: Catalog, part: s.CreateTable, schema: Schema | None) -> TableEntry:
    """The table of a CREATE TABLE."""
    if part.source is None:
        raise context.error(part, "a table needs a source", instead=f"CREATE TABLE {part.name.text} SOURCE FILE ('…')")
    kinds = ("FILE", "CSV", "JSON", "PARQUET")
    if part.source.kind.text.upper() not in kinds:
        raise _unknown(context, part.source.kind, "source of a table", dict.fromkeys(kinds))
    arguments = _Given.of(context, catalog, part.source, ("path",), 1)
    with context.at(part.source):
        return TableEntry(part.name.text, table_of(arguments.path(), schema), to_sql(part))


def _file_sink(arguments: _Given, format: str) -> Any:
    format = arguments.text("format", format)
    return outputs.files(arguments.path(), format=format, encoding=_encoding(arguments), key=_keys(arguments))  # type: ignore[arg-type]


def _console(arguments: _Given) -> Any:
    return outputs.console(encoding=_encoding(arguments), key=_keys(arguments), rows=arguments.values.get("rows", 20))


def _encoding(arguments: _Given) -> Any:
    return arguments.text("encoding", "events")


def _keys(arguments: _Given) -> tuple[str, ...]:
    return tuple(key.strip() for key in arguments.text("key").split(",") if key.strip())


_FILES = ("path", "format", "encoding", "key")
SINKS: Mapping[str, tuple[tuple[str, ...], int, Callable[[_Given], Any]]] = {
    "FILE": (_FILES, 1, lambda given: _file_sink(given, "jsonl")),
    "JSON": (_FILES, 1, lambda given: _file_sink(given, "jsonl")),
    "PARQUET": (_FILES, 1, lambda given: _file_sink(given, "parquet")),
    "CONSOLE": (("encoding", "key", "rows"), 0, _console),
}


def sink(context: Context, catalog: Catalog, part: s.Into) -> Any:
    """The sink of an INSERT INTO."""
    kind = part.kind.text.upper()
    if kind not in SINKS:
        raise _unknown(context, part.kind, "sink", SINKS)
    wanted, needed, make = SINKS[kind]
    with context.at(part):
        return make(_Given.of(context, catalog, part, wanted, needed))


def _unknown(context: Context, kind: s.Name, what: str, known: Mapping[str, Any]) -> Exception:
    close = nearest(kind.text, known) or ""
    return context.error(
        kind, f"there is no {what} {kind.text!r}", given=kind.text, allowed=", ".join(known), instead=close
    )
