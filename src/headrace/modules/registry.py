"""Modules by name: those of installed packages, and those that come with Headrace.

A package offers its modules as entry points of the group `headrace.modules`, in its `pyproject.toml`:

    [project.entry-points."headrace.modules"]
    "finance.vwap" = "headrace_finance:Vwap"

Nothing of a package is imported before somebody asks for it, and one that cannot be imported takes no other down.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib import metadata
from textwrap import shorten
from typing import Any, overload

from headrace.errors import ModuleError, nearest
from headrace.expr import Udf
from headrace.modules.base import Module
from headrace.modules.builtin import TimeWeightedAverage

__all__ = ["GROUP", "Installed", "Modules", "described", "module", "modules", "named"]

GROUP = "headrace.modules"
_BUILT_IN: dict[str, type[Module]] = {"time_weighted_avg": TimeWeightedAverage}
_PROPERTIES = ("time_sensitive", "order_sensitive", "invertible", "algebraic")
_COLUMNS = ("name", "kind", "parameters", "input", "output", "properties", "summary")
_WIDEST = 44


@dataclass(frozen=True)
class Installed:
    """What is known of a module that can be had by name."""

    name: str
    #: `function`, `aggregate`, `incremental aggregate`, `operator`, `incremental operator`, or `broken`.
    kind: str
    #: What it is made with, as `alpha: float = 0.5`.
    parameters: str = ""
    #: The fields it takes.
    input: str = ""
    #: The type of its answer, or the columns of its outputs.
    output: str = ""
    #: What it says about itself (rule 6.5).
    properties: tuple[str, ...] = ()
    #: Its documentation.
    doc: str = ""
    #: The package it comes from, with its version.
    package: str = ""
    #: Why it cannot be used; empty if it can.
    problem: str = ""

    @property
    def summary(self) -> str:
        """The first line of its documentation, or why it cannot be used."""
        return (self.problem or self.doc).partition("\n")[0]

    def as_dict(self) -> dict[str, Any]:
        """Everything about it, for printing as JSON."""
        return asdict(self) | {"properties": list(self.properties), "summary": self.summary}

    def cells(self) -> list[str]:
        """Its row of the table."""
        values = [getattr(self, name) for name in _COLUMNS]
        return [", ".join(value) if isinstance(value, tuple) else str(value) for value in values]


class Modules(Sequence[Installed]):
    """The modules that are installed: a list to go through, and a table to look at."""

    def __init__(self, found: Sequence[Installed]) -> None:
        self._found = tuple(found)

    @overload
    def __getitem__(self, index: int | str) -> Installed: ...
    @overload
    def __getitem__(self, index: slice) -> Modules: ...
    def __getitem__(self, index: int | str | slice) -> Installed | Modules:
        if isinstance(index, slice):
            return Modules(self._found[index])
        if isinstance(index, int):
            return self._found[index]
        for one in self._found:
            if one.name == index:
                return one
        raise _unknown(index, self.names)

    def __iter__(self) -> Iterator[Installed]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that `hr.module` takes."""
        return tuple(one.name for one in self._found)

    def __repr__(self) -> str:
        rows = [list(_COLUMNS), *([shorten(c, _WIDEST, placeholder="…") for c in m.cells()] for m in self)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        rows = ""
        for one in self:
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in one.cells())
            rows += f'<tr title="{escape(one.doc or one.problem)}">{cells}</tr>'
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def modules() -> Modules:
    """What is installed: every module that `hr.module(name)` gives, with its parameters, schemas and documentation."""
    found = [described(name, kind, "headrace") for name, kind in _BUILT_IN.items()]
    entries = _entries()
    for entry in entries:
        try:
            found.append(described(entry.name, _loaded(entry, entries), _package(entry)))
        except ModuleError as error:
            found.append(Installed(entry.name, "broken", package=_package(entry), problem=error.message))
    return Modules(sorted(found, key=lambda one: (one.name, one.package)))


def module(name: str, /, **parameters: Any) -> Any:
    """The module of that name, made with these parameters: `hr.module("finance.ema", alpha=0.2)`.

    A function (`hr.udf`) has no parameters of its own: it comes as it is, to be called with columns.
    """
    found = named(name)
    if not isinstance(found, Udf):
        return found(**parameters)
    if parameters:
        given = ", ".join(f"{key}={value!r}" for key, value in parameters.items())
        call = f"hr.module({name!r})({', '.join(map(repr, found.parameters))})"
        raise ModuleError(f"{name} is a function: it has no parameters", given=given, allowed="none", instead=call)
    return found


def named(name: str) -> type[Module] | Udf:
    """The class of the module of that name, or the function."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    entries = _entries()
    for entry in entries:
        if entry.name == name:
            return _loaded(entry, entries)
    raise _unknown(name, [*_BUILT_IN, *(entry.name for entry in entries)])


def described(name: str, kind: type[Module] | Udf, package: str) -> Installed:
    """What can be said of a module without making one."""
    if isinstance(kind, Udf):
        fields = ", ".join(f"{n} {t.value}" for n, t in zip(kind.parameters, kind.takes, strict=True))
        vectorised = ("vectorised",) if kind.vectorised else ()
        return Installed(name, "function", "", fields, kind.returns.value, vectorised, kind.doc, package)
    bare = object.__new__(kind)  # what is asked of it depends on its class alone
    told = [flag for flag in _PROPERTIES if getattr(bare, flag)]
    if kind.filter_through:
        told.append(f"filter_through({', '.join(kind.filter_through)})")
    return Installed(
        name,
        f"incremental {kind.kind}" if kind.incremental else kind.kind,
        _parameters(kind),
        str(kind.input),
        str(getattr(kind.output, "value", kind.output)),
        tuple(told),
        inspect.cleandoc(kind.__doc__ or ""),  # its own: that of a base class would tell nothing
        package,
    )


def _entries() -> list[metadata.EntryPoint]:
    # A package that is installed twice over, as editable ones are at times, offers the same entry twice.
    return list(dict.fromkeys(metadata.entry_points(group=GROUP)))


def _loaded(entry: metadata.EntryPoint, entries: Sequence[metadata.EntryPoint]) -> type[Module] | Udf:
    others = [other for other in entries if other.name == entry.name and other != entry]
    if others or entry.name in _BUILT_IN:
        owners = sorted({_package(other) for other in others} | ({"headrace"} if entry.name in _BUILT_IN else set()))
        raise _refused(entry, f"{', '.join(owners)} has a module of the same name")
    try:
        found = entry.load()
    except Exception as error:
        raise _refused(entry, f"{type(error).__name__}: {error}") from error
    if isinstance(found, Udf):
        return found
    if not (isinstance(found, type) and issubclass(found, Module)):
        raise _refused(entry, f"{entry.value} is {found!r}, which is no module")
    try:
        found._check_whole()  # noqa: SLF001 - what making one would do, without its parameters
    except ModuleError as error:
        raise _refused(entry, error.message) from error
    return found


def _refused(entry: metadata.EntryPoint, why: str) -> ModuleError:
    package = _package(entry)
    return ModuleError(
        f"{package} has a module {entry.name!r} that cannot be used: {why}",
        given=_given(entry),
        allowed="package.module:Class, derived from hr.Aggregate, hr.Operator or an incremental one; or an hr.udf",
        instead=f"mend or remove the package {package.partition(' ')[0]}",
    )


def _given(entry: metadata.EntryPoint) -> str:
    return f"{entry.name} = {entry.value}"


def _package(entry: metadata.EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "a package"


def _unknown(name: str, known: Sequence[str]) -> ModuleError:
    close = nearest(name, known) or nearest(name, [one.rpartition(".")[2] for one in known])
    full = next((one for one in known if one == close or one.endswith(f".{close}")), None)
    return ModuleError(
        f"there is no module {name!r} installed",
        given=name,
        allowed=", ".join(sorted(known)),
        instead=f"hr.module({full!r})" if full else "hr.modules() to see what is there",
    )


def _parameters(kind: type[Module]) -> str:
    if kind.__init__ is object.__init__:
        return ""
    return ", ".join(_parameter(p) for p in list(inspect.signature(kind.__init__).parameters.values())[1:])


def _parameter(parameter: inspect.Parameter) -> str:
    """As it stands in the source: `str` of a parameter puts annotations that are texts in quotes."""
    kind = parameter.annotation
    name = str(parameter.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty))
    typed = (
        ""
        if kind is inspect.Parameter.empty
        else f": {kind if isinstance(kind, str) else inspect.formatannotation(kind)}"
    )
    return name + typed + ("" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}")
