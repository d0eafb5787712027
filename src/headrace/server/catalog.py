"""The catalog on disk: the statements that created what exists, and the state of queries, in SQLite.

An object is stored before anything is created for it, and marked when the text that creates it has ended: a process
that dies in between leaves an object that the next start removes, with its folders. What a text drops is marked at its
end, too, and removed then (`texts.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.errors import ServerError
from headrace.server.access.database import AccessDatabase
from headrace.server.modules.stored import TABLES as PACKAGE_TABLES
from headrace.server.modules.stored import StoredPackages

__all__ = ["ObjectState", "QueryPlace", "StoredCatalog", "StoredObject", "key_of"]

FORMAT = 2
#: `there`: an object without a query, or one whose query runs; `stopped`: its query was stopped by a statement.
ObjectState = Literal["creating", "there", "stopped", "dropped"]
_TABLES = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS objects (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL,
    owner TEXT NOT NULL, created REAL NOT NULL, state TEXT NOT NULL, settings TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE IF NOT EXISTS places (query INTEGER PRIMARY KEY, folder TEXT NOT NULL, output INTEGER NOT NULL,
    outputs INTEGER NOT NULL);
"""


def key_of(kind: str, name: str) -> str:
    """The key of an object: names are unique among streams, tables, views and queries, whatever their case."""
    apart = f"{kind.upper()} " if kind in ("schema", "aggregate") else ""  # no name in lower case begins so
    return f"{apart}{name.lower()}"


@dataclass(frozen=True)
class StoredObject:
    """An object of the catalog: the statement that created it, who did, and its state."""

    id: int
    kind: str
    name: str
    text: str
    owner: str
    created: float
    state: ObjectState
    #: Settings of its query, as JSON.
    settings: str = "{}"

    @property
    def folder(self) -> str:
        """The name of its folders: a name may be used again, a number never is."""
        return f"{self.id:06d}-{''.join(c if c.isalnum() else '_' for c in self.name)[:40]}"


@dataclass(frozen=True)
class QueryPlace:
    """Where the state of a query is: the directory of a checkpoint, and which of how many outputs is its own there."""

    folder: str
    output: int
    outputs: int


class StoredCatalog:
    """The objects of a data directory."""

    def __init__(self, path: Path) -> None:
        self._database = AccessDatabase(path, _TABLES + PACKAGE_TABLES, durable=True)
        self.packages = StoredPackages(self._database)
        self._database.write("INSERT OR IGNORE INTO about VALUES ('format', ?)", [(str(FORMAT),)])
        ((found,),) = self._database.rows("SELECT value FROM about WHERE name = 'format'")
        if int(found) != FORMAT:
            raise ServerError(
                "the data directory was written by another version of Headrace", given=f"{path}: format {found}",
                allowed=f"format {FORMAT}",
            )  # fmt: skip

    def objects(self) -> list[StoredObject]:
        """All objects, in the order of their creation."""
        columns = "id, kind, name, text, owner, created, state, settings"
        return [StoredObject(*row) for row in self._database.rows(f"SELECT {columns} FROM objects ORDER BY id")]  # noqa: S608

    def add(self, kind: str, name: str, text: str, owner: str) -> StoredObject:
        """Store an object that is being created."""
        now = time.time()
        with self._database.changing() as database:
            row = database.execute(
                "INSERT INTO objects (kind, name, text, owner, created, state) VALUES (?, ?, ?, ?, ?, 'creating')",
                (kind, name, text, owner, now),
            )
            assert row.lastrowid is not None
            return StoredObject(row.lastrowid, kind, name, text, owner, now, "creating")

    def mark(self, number: int, state: ObjectState) -> None:
        """Set the state of an object."""
        with self._database.changing() as database:
            database.execute("UPDATE objects SET state = ? WHERE id = ?", (state, number))

    def use(self, number: int, packages: Iterable[int]) -> None:
        """Note the packages that an object uses."""
        with self._database.changing() as database:
            database.executemany("INSERT OR IGNORE INTO uses VALUES (?, ?)", [(number, one) for one in packages])

    def end_text(self, states: Mapping[int, ObjectState], removed: Iterable[int]) -> None:
        """Set the states of all objects that a text has changed, and remove others, or do nothing of it."""
        gone = [(number,) for number in removed]
        with self._database.changing() as database:
            database.executemany(
                "UPDATE objects SET state = ? WHERE id = ?", [(state, number) for number, state in states.items()]
            )
            database.executemany("DELETE FROM objects WHERE id = ?", gone)
            database.executemany("DELETE FROM uses WHERE object = ?", gone)

    def set(self, number: int, settings: str) -> None:
        """Set the settings of a query."""
        with self._database.changing() as database:
            database.execute("UPDATE objects SET settings = ? WHERE id = ?", (settings, number))

    def remove(self, number: int) -> None:
        """Remove an object."""
        with self._database.changing() as database:
            database.execute("DELETE FROM objects WHERE id = ?", (number,))
            database.execute("DELETE FROM uses WHERE object = ?", (number,))

    def places(self) -> dict[int, QueryPlace]:
        """The places of queries that have begun, by the number of the object."""
        return {query: QueryPlace(*place) for query, *place in self._database.rows("SELECT * FROM places")}

    def set_places(self, places: Mapping[int, QueryPlace]) -> None:
        """Record that queries have new places, all of them or none."""
        with self._database.changing() as database:
            rows = [(query, place.folder, place.output, place.outputs) for query, place in places.items()]
            database.executemany("INSERT OR REPLACE INTO places VALUES (?, ?, ?, ?)", rows)

    def forget_place(self, query: int) -> None:
        """Forget the place of a query."""
        with self._database.changing() as database:
            database.execute("DELETE FROM places WHERE query = ?", (query,))

    def close(self) -> None:
        """Close the database."""
        self._database.close()
