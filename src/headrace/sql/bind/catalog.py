"""What exists: schemas, streams and tables by name, and the settings of a session."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.api.stream import Stream
from headrace.errors import nearest
from headrace.io.tables import TableFiles, TableRows
from headrace.plan.nodes import Node
from headrace.schema import Schema
from headrace.sql.bind.context import Context
from headrace.sql.syntax import CreateAggregate, Name

__all__ = ["SETTINGS", "Catalog", "StreamEntry", "TableEntry"]

#: The settings of a session: what they are, and what they may be.
SETTINGS: Mapping[str, tuple[Any, str, tuple[Any, ...]]] = {
    "host": ("local", "where queries run", ("local", "spark")),
    "master": (None, "a Spark master or Connect URL", ()),
    "checkpoint": (None, "a directory or URL: queries go on from there when they are started again", ()),
    "emit": ("speculative", "answers early and corrected, or only what is final", ("speculative", "final")),
    "tick": ("tuple", "what ordered windows react to", ("tuple", "time", "batch")),
    "on_error": (
        "fail",
        "a module that fails stops the query, or its window or group is diverted",
        ("fail", "skip"),
    ),
    "buckets": (None, "how many parts the work is divided into", ()),
    "batch_rows": (None, "how many rows are taken at once; by default a file's", ()),
    "rows": (20, "how many rows a table shows", ()),
    "view": ("history", "what the shell shows of an answer", ("events", "changes", "history")),
}


@dataclass(frozen=True)
class StreamEntry:
    """A stream: what it is called, its columns, and its plan once it has a source."""

    name: str
    schema: Schema
    node: Node | None
    #: The text that made it.
    text: str = ""

    @property
    def stream(self) -> Stream:
        """It, as Python has it."""
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


@dataclass
class Catalog:
    """Everything that statements may name. Names are found as they are written, else in any case."""

    schemas: dict[str, Schema] = field(default_factory=dict)
    streams: dict[str, StreamEntry] = field(default_factory=dict)
    tables: dict[str, TableEntry] = field(default_factory=dict)
    #: Aggregates written in SQL, by name: what made them.
    aggregates: dict[str, CreateAggregate] = field(default_factory=dict)
    #: Functions and modules of the user's own, by name; those aggregates too.
    own: dict[str, Any] = field(default_factory=dict)
    #: Aggregates that come along, by name.
    shipped: Mapping[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(
        default_factory=lambda: {name: default for name, (default, *_) in SETTINGS.items()}
    )
    #: The queries that were asked, by name, as they were written.
    queries: dict[str, str] = field(default_factory=dict)
    #: Where relative paths start.
    base: Path = field(default_factory=Path)
    #: Directories that files may be in; None for any.
    roots: tuple[Path, ...] | None = None

    @property
    def known(self) -> Mapping[str, Any]:
        """Functions and modules by name: the user's own, and what comes along where they have none of that name."""
        return ChainMap(self.own, self.shipped)  # type: ignore[arg-type]  # it is only read

    def place(self, text: str) -> str:
        """Where something is that a statement names: a URL as it is, a path from where relative paths start."""
        return text if "://" in text else str(self.base / text)

    def may_use_place(self, text: str) -> bool:
        """Whether what a statement names may be used: a URL only if any file may."""
        return self.roots is None if "://" in text else self.may_use(self.base / text)

    def may_use(self, path: Path) -> bool:
        """Whether files there may be used."""
        return self.roots is None or any(path.resolve().is_relative_to(root.resolve()) for root in self.roots)

    def schema(self, context: Context, name: Name) -> Schema:
        """The schema of that name; a stream or a table has one too."""
        every: dict[str, Any] = {**self.tables, **self.streams, **self.schemas}
        found = self._found(context, name, every, "schema, stream or table")
        return found if isinstance(found, Schema) else found.schema

    def stream(self, context: Context, name: Name) -> StreamEntry | TableEntry:
        """What stands in FROM under that name."""
        found: StreamEntry | TableEntry = self._found(context, name, {**self.tables, **self.streams}, "stream")
        return found

    def free(self, context: Context, name: Name, *, among: Mapping[str, Any]) -> None:
        """Refuse a name that is taken."""
        taken = _key(among, name.text)
        if taken is not None:
            raise context.error(
                name, f"{taken!r} exists already", given=name.text, instead=f"another name, or DROP {taken} first"
            )

    def _found(self, context: Context, name: Name, among: Mapping[str, Any], what: str) -> Any:
        key = _key(among, name.text)
        if key is None:
            raise context.error(
                name,
                f"there is no {what} {name.text!r}",
                given=name.text,
                allowed=", ".join(among) or f"(none yet: CREATE {what.partition(',')[0].upper()} …)",
                instead=nearest(name.text, among) or "",
            )
        return among[key]


def _key(among: Mapping[str, Any], name: str) -> str | None:
    if name in among:
        return name
    return next((key for key in among if key.lower() == name.lower()), None)
