"""The catalog: schemas, streams and tables by name, and the settings of a session."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from headrace.api.materialized import MaterializedView
from headrace.api.stream import Stream
from headrace.api.tables import Table
from headrace.errors import nearest
from headrace.io.tables import TableFiles, TableRows
from headrace.plan.nodes import Node
from headrace.schema import Schema
from headrace.sql.bind.context import Context
from headrace.sql.printer.expressions import written_name
from headrace.sql.syntax import CreateAggregate, Name

__all__ = ["SETTINGS", "Catalog", "Dependent", "LiveEntry", "StreamEntry", "TableEntry", "ViewEntry"]

#: The settings of a session: default, description, and allowed values.
SETTINGS: Mapping[str, tuple[Any, str, tuple[Any, ...]]] = {
    "host": ("local", "where queries run", ("local", "spark")),
    "master": (None, "a Spark master or Connect URL", ()),
    "checkpoint": (None, "a directory or URL: restarted queries continue from there", ()),
    "emit": ("speculative", "early answers with corrections, or only final ones", ("speculative", "final")),
    "tick": ("tuple", "what ordered windows react to", ("tuple", "time", "batch")),
    "on_error": (
        "fail",
        "a failing module stops the query, or its window or group is diverted",
        ("fail", "skip"),
    ),
    "timeout": (None, "a duration without new rows after which a started query ends", ()),
    "record": (None, "a duration for which a checkpoint keeps batches, so that traces can run them again", ()),
    "buckets": (None, "the number of buckets", ()),
    "batch_rows": (None, "the number of rows per batch; by default all rows of a file", ()),
    "time": (None, "when statements change tables, a DATETIME; by default now, or always (see CREATE TABLE)", ()),
    "rows": (20, "the number of rows that a table shows", ()),
    "view": (
        "auto",
        "how the shell shows answers; auto: of tables the rows that hold now, else the history",
        ("auto", "rows", "events", "changes", "history"),
    ),
}


@dataclass(frozen=True)
class StreamEntry:
    """A stream: its name, its columns, and its plan once it has a source."""

    name: str
    schema: Schema
    node: Node | None
    #: The statement that created it.
    text: str = ""
    #: The names that it reads, in lower case.
    reads: frozenset[str] = frozenset()
    #: Whether its answer is what holds now: a running query over tables alone.
    relation: bool = False

    @property
    def stream(self) -> Stream:
        """The entry as a stream of the Python API."""
        assert self.node is not None
        return Stream(self.node)


@dataclass(frozen=True)
class TableEntry:
    """Stored rows."""

    name: str
    table: TableFiles | TableRows
    text: str = ""

    @property
    def schema(self) -> Schema:
        return self.table.columns


@dataclass(frozen=True)
class LiveEntry:
    """A table whose rows change; in FROM it is the stream of its history."""

    name: str
    table: Table
    text: str = ""

    @property
    def schema(self) -> Schema:
        return self.table.live.schema

    @property
    def node(self) -> Node:
        return self.table.node

    @property
    def stream(self) -> Stream:
        return self.table


@dataclass(frozen=True)
class ViewEntry:
    """A name for a query, which is bound where it is used; of a materialized view, its answer.

    `relation`: it is a query over tables alone, so its answer is what holds now. `reads`: the names that it reads.
    """

    name: str
    schema: Schema
    bind: Callable[[], Stream]
    text: str
    relation: bool
    reads: frozenset[str]
    materialized: MaterializedView | None = None

    @property
    def stream(self) -> Stream:
        return self.bind() if self.materialized is None else self.materialized

    @property
    def node(self) -> Node:
        return self.stream.node

    @property
    def kind(self) -> str:
        return "view" if self.materialized is None else "materialized view"


class Dependent(NamedTuple):
    """What reads something; as a text, what DROP would name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.upper()} {written_name(Name(self.name))}"


@dataclass
class Catalog:
    """Everything that statements may name. Lookup tries the exact spelling first, then ignores case."""

    schemas: dict[str, Schema] = field(default_factory=dict)
    streams: dict[str, StreamEntry] = field(default_factory=dict)
    #: Tables and views.
    tables: dict[str, TableEntry | LiveEntry | ViewEntry] = field(default_factory=dict)
    #: Aggregates written in SQL: their statements, by name.
    aggregates: dict[str, CreateAggregate] = field(default_factory=dict)
    #: The user's functions and modules, by name, including those aggregates.
    own: dict[str, Any] = field(default_factory=dict)
    #: Modules that an administrator installed on a server, by name.
    modules: Mapping[str, Any] = field(default_factory=dict)
    #: Aggregates of the library, by name.
    shipped: Mapping[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(
        default_factory=lambda: {name: default for name, (default, *_) in SETTINGS.items()}
    )
    #: The text of the queries, by name.
    queries: dict[str, str] = field(default_factory=dict)
    #: Their answers, which later statements may read; streams and tables of that name come first.
    answers: dict[str, StreamEntry] = field(default_factory=dict)
    #: What queries into sinks read, by their names in `queries`.
    delivered: dict[str, frozenset[str]] = field(default_factory=dict)
    #: Where relative paths start.
    base: Path = field(default_factory=Path)
    #: Directories that files may be in; None for any.
    roots: tuple[Path, ...] | None = None
    #: Whether adapters may be used beside `roots` whose files are not known: a server lets only administrators.
    any_adapter: bool = False
    #: The value of a secret, on a server.
    secret: Callable[[str], str] | None = None

    @property
    def known(self) -> Mapping[str, Any]:
        """Functions and modules by name: the user's own, then those of a server, then those of the library."""
        return ChainMap(self.own, self.modules, self.shipped)  # type: ignore[arg-type]  # it is only read

    def place(self, text: str) -> str:
        """The place that a statement names: a URL unchanged, a path from `base`."""
        return text if "://" in text else str(self.base / text)

    def may_use_place(self, text: str) -> bool:
        """Whether a statement may use this place; a URL only without `roots`."""
        return self.roots is None if "://" in text else self.may_use(self.base / text)

    def may_use(self, path: Path) -> bool:
        """Whether files there may be used."""
        return self.roots is None or any(path.resolve().is_relative_to(root.resolve()) for root in self.roots)

    def schema(self, context: Context, name: Name) -> Schema:
        """The schema of that name; a stream, a table or a view has one too."""
        every: dict[str, Any] = {**self.tables, **self.streams, **self.schemas}
        found = self._found(context, name, every, "schema, stream or table")
        return found if isinstance(found, Schema) else found.schema

    def stream(self, context: Context, name: Name) -> StreamEntry | TableEntry | LiveEntry | ViewEntry:
        """The stream or table of that name in FROM."""
        found: StreamEntry | TableEntry | LiveEntry | ViewEntry = self._found(
            context, name, {**self.answers, **self.tables, **self.streams}, "stream"
        )
        return found

    def live(self, context: Context, name: Name) -> LiveEntry:
        """The table of that name, whose rows can be changed."""
        found = self._found(context, name, {**self.streams, **self.tables}, "table")
        if isinstance(found, LiveEntry):
            return found
        stored = isinstance(found, TableEntry)
        if isinstance(found, ViewEntry):
            raise context.error(
                name, f"{found.name} is a view: its rows are those of its query", given=name.text,
                instead="the statement for a table that it reads",
            )  # fmt: skip
        raise context.error(
            name,
            f"{found.name} is a table with a source: its rows are read, not written"
            if stored
            else f"{found.name} is a stream: its rows come from its source",
            given=name.text,
            allowed=", ".join(e.name for e in self.tables.values() if isinstance(e, LiveEntry))
            or "(no such table yet)",
            instead=f"CREATE TABLE other AS SELECT * FROM {found.name}" if stored else "CREATE TABLE t (…)",
        )

    def stored_tables(self) -> dict[str, TableFiles | TableRows]:
        """The tables as stored rows; of a table that changes, its rows now."""
        return {
            name: entry.table if isinstance(entry, TableEntry) else TableRows.now(entry.table.rows(), entry.schema)
            for name, entry in self.tables.items()
            if not isinstance(entry, ViewEntry)
        }

    def key(self, name: str, among: Mapping[str, Any]) -> str | None:
        """The key of a name: in its exact case, else in any."""
        return _key(among, name)

    def holds_rows(self, name: str) -> bool:
        """Whether a name in FROM is that of a table, or of a view of tables."""
        among: dict[str, Any] = {**self.answers, **self.tables, **self.streams}
        entry = among.get(_key(among, name) or "")
        return entry.relation if isinstance(entry, (ViewEntry, StreamEntry)) else entry is not None

    def views(self) -> list[ViewEntry]:
        """The views, in the order of their creation."""
        return [entry for entry in self.tables.values() if isinstance(entry, ViewEntry)]

    def dependents(self, name: str) -> list[Dependent]:
        """What reads a stream, a table, a view or a named query."""
        found = [Dependent(view.kind, view.name) for view in self.views() if name.lower() in view.reads]
        for kind, entries in (("stream", self.streams), ("query", self.answers)):
            reading = [entry for entry in entries.values() if name.lower() in entry.reads and entry.name != name]
            found += [Dependent(kind, entry.name) for entry in reading]
        return found + [Dependent("query", query) for query, reads in self.delivered.items() if name.lower() in reads]

    def with_stream(self, entry: StreamEntry, tables: Mapping[str, Any]) -> Catalog:
        """The catalog with one more stream, and these tables."""
        return replace(self, streams={**self.streams, entry.name: entry}, tables=dict(tables))

    def free(self, context: Context, name: Name, *, among: Mapping[str, Any]) -> None:
        """Refuse a name that is taken."""
        taken = _key(among, name.text)
        if taken is not None:
            raise context.error(
                name,
                f"{taken!r} exists already",
                given=name.text,
                instead=f"another name, or first DROP {self.kind_of(among[taken])} {written_name(Name(taken))}",
            )

    def kind_of(self, entry: Any) -> str:
        """What an entry is, as DROP names it."""
        if isinstance(entry, ViewEntry):
            return entry.kind.upper()
        if isinstance(entry, (TableEntry, LiveEntry)):
            return "TABLE"
        if isinstance(entry, StreamEntry):
            return "STREAM"
        return "SCHEMA" if isinstance(entry, Schema) else "AGGREGATE"

    def _found(self, context: Context, name: Name, entries: Mapping[str, Any], what: str) -> Any:
        key = _key(entries, name.text)
        if key is None:
            raise context.error(
                name,
                f"there is no {what} {name.text!r}",
                given=name.text,
                allowed=", ".join(_named(entries)) or f"(none yet: CREATE {what.partition(',')[0].upper()} …)",
                instead=nearest(name.text, entries) or "",
            )
        return entries[key]


def _named(entries: Iterable[str]) -> list[str]:
    """The names that people gave; those that queries got by themselves only if there are no others."""
    names = list(entries)
    return [name for name in names if not re.fullmatch(r"query_\d+", name)] or names


def _key(among: Mapping[str, Any], name: str) -> str | None:
    if name in among:
        return name
    return next((key for key in among if key.lower() == name.lower()), None)
