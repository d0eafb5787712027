"""The installed packages in the catalog on disk: what was installed by whom, and which objects use it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from headrace.server.access.database import AccessDatabase

if TYPE_CHECKING:
    from headrace.server.modules.wheel import Wheel

__all__ = ["TABLES", "OfferedModule", "Package", "StoredPackages", "User", "package_key"]

#: A row of `packages` makes a package installed: its folder was whole before. `current` is the version that names mean.
TABLES = """
CREATE TABLE IF NOT EXISTS packages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, version TEXT NOT NULL, checksum TEXT NOT NULL UNIQUE,
    folder TEXT NOT NULL, modules TEXT NOT NULL, owner TEXT NOT NULL, installed REAL NOT NULL, current INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS uses (
    object INTEGER NOT NULL, package INTEGER NOT NULL, PRIMARY KEY (object, package)
) WITHOUT ROWID;
"""


def package_key(name: str) -> str:
    """The name of a package as installers compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


class OfferedModule(NamedTuple):
    """A module of a package: its name, its place (`package.file:Class`), and what is shown of it."""

    name: str
    place: str
    kind: str
    summary: str


@dataclass(frozen=True)
class Package:
    """A wheel that is installed."""

    id: int
    name: str
    version: str
    checksum: str
    folder: str
    modules: tuple[OfferedModule, ...]
    owner: str
    current: bool

    def __str__(self) -> str:
        return f"{self.name} {self.version} (sha256 {self.checksum[:16]})"

    @property
    def key(self) -> str:
        return package_key(self.name)


class User(NamedTuple):
    """An object of the catalog that uses a package."""

    package: int
    kind: str
    name: str


class StoredPackages:
    """The packages of a data directory."""

    def __init__(self, database: AccessDatabase) -> None:
        self._database = database

    def all(self) -> list[Package]:
        """All packages, in the order of their installation."""
        rows = self._database.rows(
            "SELECT id, name, version, checksum, folder, modules, owner, current FROM packages ORDER BY id"
        )
        return [
            Package(number, name, version, checksum, folder, tuple(OfferedModule(*one) for one in json.loads(modules)),
                    owner, bool(current))
            for number, name, version, checksum, folder, modules, owner, current in rows
        ]  # fmt: skip

    def install(self, wheel: Wheel, modules: Iterable[OfferedModule], owner: str) -> Package:
        """Add a package, or find it again, as the current version of its name, in one transaction."""
        with self._database.changing() as database:
            database.execute(
                "INSERT OR IGNORE INTO packages (name, version, checksum, folder, modules, owner, installed, current)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
                (
                    wheel.name,
                    wheel.version,
                    wheel.checksum,
                    wheel.folder,
                    json.dumps(list(modules)),
                    owner,
                    time.time(),
                ),
            )
            key = package_key(wheel.name)
            rows = database.execute("SELECT id, name, checksum FROM packages").fetchall()
            same = {checksum: number for number, name, checksum in rows if package_key(name) == key}
            new = same.pop(wheel.checksum)
            database.execute("UPDATE packages SET current = 1 WHERE id = ?", (new,))
            for old in same.values():
                database.execute("UPDATE packages SET current = 0 WHERE id = ?", (old,))
                database.execute(  # views are bound where they are used: with the current version
                    "UPDATE OR REPLACE uses SET package = ?"
                    " WHERE package = ? AND object IN (SELECT id FROM objects WHERE kind = 'view')",
                    (new, old),
                )
        return next(package for package in self.all() if package.id == new)

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove packages."""
        self._database.write("DELETE FROM packages WHERE id = ?", [(number,) for number in numbers])

    def users(self) -> list[User]:
        """The objects that use packages, also those that could not be created again at the start."""
        return [
            User(*row)
            for row in self._database.rows(
                "SELECT package, kind, objects.name FROM uses JOIN objects ON object = objects.id"
                " WHERE state IN ('there', 'stopped') ORDER BY objects.id"
            )
        ]

    def used_by(self, number: int) -> frozenset[int]:
        """The packages that an object uses."""
        return frozenset(row[0] for row in self._database.rows("SELECT package FROM uses WHERE object = ?", [number]))
