"""The registry: sources and sinks of installed packages, by name.

A package offers its adapters as entry points of the groups `headrace.sources` and `headrace.sinks`:

    [project.entry-points."headrace.sources"]
    sqlite = "headrace_sqlite:SqliteSource"

Then `hr.read_source("sqlite", ...)` and `SOURCE sqlite (...)` read by this class, and `hr.sink("sqlite", ...)` and
`INTO sqlite (...)` write by the one of the other group. Headrace's own adapters are always there. Names are found in
any case, as SQL needs it. `headrace.entry_points` imports the packages.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import EntryPoint
from typing import Any, Literal

from headrace.entry_points import EntryPoints, package_of
from headrace.errors import PlanError, nearest
from headrace.io.adapter import SinkAdapter, SourceAdapter
from headrace.schema import Schema

__all__ = [
    "InstalledAdapter", "adapter_names", "installed_adapters", "option_names", "sink_adapter", "sink_class",
    "source_adapter", "source_class",
]  # fmt: skip

Kind = Literal["source", "sink"]
_BASES: Mapping[Kind, type[SourceAdapter | SinkAdapter]] = {"source": SourceAdapter, "sink": SinkAdapter}
_READ_SOURCE = frozenset({"adapter", "bad_rows", "lifetime", "progress", "schema"})
_OWN: Mapping[Kind, Mapping[str, str]] = {
    "source": {
        "delta": "headrace.adapters.delta:DeltaSource",
        "kafka": "headrace.adapters.kafka:KafkaSource",
        "postgres": "headrace.adapters.postgres:PostgresChanges",
    },
    "sink": {
        "delta": "headrace.adapters.delta:DeltaSink",
        "kafka": "headrace.adapters.kafka:KafkaSink",
        "postgres": "headrace.adapters.postgres:PostgresSink",
    },
}
_OFFERED: Mapping[Kind, EntryPoints] = {
    kind: EntryPoints(
        f"headrace.{kind}s",
        kind,
        f"package.module:Class, a frozen dataclass derived from {base.__name__}",
        PlanError,
        own=tuple(_OWN[kind].items()),
    )
    for kind, base in _BASES.items()
}


@dataclass(frozen=True)
class InstalledAdapter:
    """The description of an installed adapter."""

    name: str
    kind: Kind
    #: Its options, in the order of arguments in SQL.
    options: tuple[str, ...] = ()
    #: Its documentation.
    doc: str = ""
    #: The package it comes from, with its version.
    package: str = ""
    #: Why it cannot be used; empty if it can.
    problem: str = ""


def installed_adapters(kind: Kind) -> list[InstalledAdapter]:
    """All installed sources, or all sinks."""
    found, entries = [], _OFFERED[kind].all()
    for entry in sorted(entries, key=lambda entry: (entry.name, package_of(entry))):
        try:
            loaded = _loaded(kind, entry, entries)
        except PlanError as error:
            found.append(InstalledAdapter(entry.name, kind, package=package_of(entry), problem=error.message))
        else:
            doc = inspect.cleandoc(loaded.__doc__ or "")
            found.append(InstalledAdapter(entry.name, kind, option_names(loaded), doc, package_of(entry)))
    return found


def adapter_names(kind: Kind) -> list[str]:
    """The names of the installed sources or sinks, without an import of their packages."""
    return sorted({entry.name for entry in _OFFERED[kind].all()})


def source_adapter(name: str, columns: Schema | None, options: Mapping[str, Any]) -> SourceAdapter:
    """The source of this name with these options; `columns` is its option `columns`, if it has one."""
    kind = source_class(name)
    own = {"columns": columns} if columns is not None and "columns" in option_names(kind) else {}
    return kind.from_options({**own, **options})


def sink_adapter(name: str, options: Mapping[str, Any]) -> SinkAdapter:
    """The sink of this name with these options."""
    return sink_class(name).from_options(options)


def source_class(name: str) -> type[SourceAdapter]:
    """The class of a source by its name."""
    found: type[SourceAdapter] = _class("source", name)
    return found


def sink_class(name: str) -> type[SinkAdapter]:
    """The class of a sink by its name."""
    found: type[SinkAdapter] = _class("sink", name)
    return found


def option_names(kind: type[SourceAdapter | SinkAdapter]) -> tuple[str, ...]:
    """The options of an adapter: its fields in their order, its other ones, then those that all sinks have."""
    given = sorted((f for f in fields(kind) if f.init), key=lambda f: bool(f.kw_only))  # type: ignore[arg-type]
    names = [field.name for field in given]
    common = {field.name for field in fields(SinkAdapter)} if issubclass(kind, SinkAdapter) else set()
    own = (*(name for name in names if name not in common), *kind.more_options)
    return (*own, *(name for name in names if name in common))


def _class(kind: Kind, name: str) -> Any:
    entries = _OFFERED[kind].all()
    same = [entry for entry in entries if entry.name == name] or [
        entry for entry in entries if entry.name.lower() == name.lower()
    ]
    if not same:
        known = sorted(entry.name for entry in entries)
        raise PlanError(
            f"there is no {kind} {name!r} installed",
            given=name,
            allowed=", ".join(known) or "(none)",
            instead=nearest(name, known) or "",
        )
    return _loaded(kind, same[0], entries)


def _loaded(kind: Kind, entry: EntryPoint, entries: list[EntryPoint]) -> type[SourceAdapter | SinkAdapter]:
    loaded, base = _OFFERED[kind].loaded(entry, entries), _BASES[kind]
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise _OFFERED[kind].refused(entry, f"{entry.value} is {loaded!r}, which is not derived from {base.__name__}")
    if "__dataclass_fields__" not in vars(loaded) or not is_dataclass(loaded):
        raise _OFFERED[kind].refused(entry, f"{loaded.__name__} is not a dataclass, so it has no options")
    taken = _READ_SOURCE.intersection(option_names(loaded)) if kind == "source" else ()
    if taken:
        raise _OFFERED[kind].refused(entry, f"{', '.join(sorted(taken))} is an option of hr.read_source itself")
    return loaded
