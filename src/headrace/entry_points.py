"""What installed packages offer by entry points: modules, sources and sinks, each in a group of its own.

A package is imported only when something of it is requested, and one that fails to import affects no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from headrace.errors import HeadraceError

__all__ = ["WHEEL_PREFIX", "EntryPoints", "package_of"]

#: How the names begin under which a server imports the wheels that it installed; the checksum of the wheel follows.
WHEEL_PREFIX = "headrace_wheel_"


@dataclass(frozen=True)
class EntryPoints:
    """The entry points of one group."""

    group: str
    #: What each of them is, as a user calls it: "module".
    what: str
    #: What a package may offer, for errors.
    allowed: str
    error: type[HeadraceError]
    #: Names that Headrace itself has.
    built_in: frozenset[str] = frozenset()
    #: Entries of Headrace itself: they are there without any metadata.
    own: tuple[tuple[str, str], ...] = ()

    def all(self) -> list[metadata.EntryPoint]:
        """All that is installed."""
        own = [metadata.EntryPoint(name, value, self.group) for name, value in self.own]
        # A package that is installed twice, as editable ones may be, has the same entry twice.
        return list(dict.fromkeys([*own, *metadata.entry_points(group=self.group)]))

    def loaded(self, entry: metadata.EntryPoint, among: Sequence[metadata.EntryPoint]) -> Any:
        """The object of an entry; an error if its name is taken or its package cannot be imported."""
        others = [other for other in among if other.name == entry.name and other != entry]
        if others or entry.name in self.built_in:
            owners = {package_of(other) for other in others} | ({"headrace"} if entry.name in self.built_in else set())
            raise self.refused(entry, f"{', '.join(sorted(owners))} has a {self.what} of the same name")
        try:
            return entry.load()
        except Exception as error:
            if entry.dist is None and isinstance(error, HeadraceError):  # ours say what to install
                raise
            extra = f"pip install '{_extra(entry)}'" if isinstance(error, ImportError) and _extra(entry) else ""
            raise self.refused(entry, f"{type(error).__name__}: {error}", extra) from error

    def refused(self, entry: metadata.EntryPoint, why: str, instead: str = "") -> HeadraceError:
        """The error for an entry that cannot be used."""
        package = package_of(entry)
        return self.error(
            f"{package} has a {self.what} {entry.name!r} that cannot be used: {why}",
            given=f"{entry.name} = {entry.value}",
            allowed=self.allowed,
            instead=instead or f"repair or remove the package {package.partition(' ')[0]}",
        )


def package_of(entry: metadata.EntryPoint) -> str:
    """The package of an entry, with its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "headrace"


def _extra(entry: metadata.EntryPoint) -> str:
    """The extra of the package that has the name of the entry, if there is one: `headrace[kafka]`."""
    extras = entry.dist.metadata.get_all("Provides-Extra") or [] if entry.dist is not None else []
    return f"{entry.dist.name}[{entry.name}]" if entry.dist is not None and entry.name in extras else ""
