"""The catalog: schemas, streams and tables by name, and the settings of a session."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.api.stream import Stream
from headrace.api.tables import Table
from headrace.errors import nearest
from headrace.io.tables import TableFiles, TableRows
from headrace.plan.nodes import Node
from headrace.schema import Schema
from headrace.sql.bind.context import Context
from headrace.sql.printer.expressions import written_name
from headrace.sql.syntax import CreateAggregate, Name

__all__ = ["SETTINGS", "Catalog", "LiveEntry", "StreamEntry", "TableEntry"]

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


#: What has a name, and a dictionary of the catalog.
_KINDS = ("aggregate", "schema", "stream", "table", "view")


@dataclass(frozen=True)
class StreamEntry:
    """A stream: its name, its columns, and its plan once it has a source."""

    name: str
    schema: Schema
    node: Node | None
    #: The statement that created it.
    text: str = ""

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


@dataclass
class Catalog:
    """Everything that statements may name. Lookup tries the exact spelling first, then ignores case."""

    schemas: dict[str, Schema] = field(default_factory=dict)
    streams: dict[str, StreamEntry] = field(default_factory=dict)
    tables: dict[str, TableEntry | LiveEntry] = field(default_factory=dict)
    #: Aggregates written in SQL: their statements, by name.
    aggregates: dict[str, CreateAggregate] = field(default_factory=dict)
    #: The user's functions and modules, by name, including those aggregates.
    own: dict[str, Any] = field(default_factory=dict)
    #: Aggregates of the library, by name.
    shipped: Mapping[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(
        default_factory=lambda: {name: default for name, (default, *_) in SETTINGS.items()}
    )
    #: The text of the queries, by name.
    queries: dict[str, str] = field(default_factory=dict)
    #: Where relative paths start.
    base: Path = field(default_factory=Path)
    #: Directories that files may be in; None for any.
    roots: tuple[Path, ...] | None = None

    @property
    def known(self) -> Mapping[str, Any]:
        """Functions and modules by name: the user's own, then those of the library."""
        return ChainMap(self.own, self.shipped)  # type: ignore[arg-type]  # it is only read

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
        """The schema of that name; a stream or a table has one too."""
        every: dict[str, Any] = {**self.tables, **self.streams, **self.schemas}
        found = self._found(context, name, every, "schema, stream or table")
        return found if isinstance(found, Schema) else found.schema

    def stream(self, context: Context, name: Name) -> StreamEntry | TableEntry | LiveEntry:
        """The stream or table of that name in FROM."""
        found: StreamEntry | TableEntry | LiveEntry = self._found(
            context, name, {**self.tables, **self.streams}, "stream"
        )
        return found

    def live(self, context: Context, name: Name) -> LiveEntry:
        """The table of that name, whose rows can be changed."""
        found = self._found(context, name, {**self.streams, **self.tables}, "table")
        if isinstance(found, LiveEntry):
            return found
        stored = isinstance(found, TableEntry)
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
        }

    def key(self, name: str, among: Mapping[str, Any]) -> str | None:
        """The key of a name: in its exact case, else in any."""
        return _key(among, name)

    def holds_rows(self, name: str) -> bool:
        """Whether a name in FROM is that of a table."""
        return _key({**self.tables, **self.streams}, name) in self.tables

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
                instead=f"another name, or first {self._drop(taken)}",
            )

    def _drop(self, name: str) -> str:
        """The statement that removes a name."""
        kinds = (kind for kind in _KINDS if name in getattr(self, f"{kind}s", ()))
        return f"DROP {next(kinds, 'stream').upper()} {written_name(Name(name))}"

    def _found(self, context: Context, name: Name, entries: Mapping[str, Any], what: str) -> Any:
        key = _key(entries, name.text)
        if key is None:
            raise context.error(
                name,
                f"there is no {what} {name.text!r}",
                given=name.text,
                allowed=", ".join(entries) or f"(none yet: CREATE {what.partition(',')[0].upper()} …)",
                instead=nearest(name.text, entries) or "",
            )
        return entries[key]


def _key(among: Mapping[str, Any], name: str) -> str | None:
    if name in among:
        return name
    return next((key for key in among if key.lower() == name.lower()), None)
