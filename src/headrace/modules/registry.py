"""The registry: modules of installed packages and of Headrace, by name.

A package offers its modules as entry points of the group `headrace.modules`, in its `pyproject.toml`:

    [project.entry-points."headrace.modules"]
    "finance.vwap" = "headrace_finance:Vwap"

`headrace.entry_points` finds them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib.metadata import EntryPoint
from textwrap import shorten
from typing import Any, overload

from headrace.entry_points import EntryPoints, package_of
from headrace.errors import ModuleError, nearest
from headrace.expr import Udf
from headrace.modules.base import Module
from headrace.modules.builtin import TimeWeightedAverage

__all__ = [
    "InstalledModule", "Modules", "checked_module", "describe_module", "module", "module_names", "modules",
    "package_offering", "registered_module",
]  # fmt: skip

_BUILT_IN: dict[str, type[Module]] = {"time_weighted_avg": TimeWeightedAverage}
_OFFERED = EntryPoints(
    "headrace.modules",
    "module",
    "package.module:Class, derived from hr.Aggregate, hr.Operator or an incremental one; or an hr.udf",
    ModuleError,
    frozenset(_BUILT_IN),
)
_PROPERTIES = ("time_sensitive", "order_sensitive", "invertible", "algebraic")
_COLUMNS = ("name", "kind", "parameters", "input", "output", "properties", "summary")
_WIDEST = 44


@dataclass(frozen=True)
class InstalledModule:
    """The description of an installed module."""

    name: str
    #: `function`, `aggregate`, `incremental aggregate`, `operator`, `incremental operator`, or `broken`.
    kind: str
    #: Its parameters, as `alpha: float = 0.5`.
    parameters: str = ""
    #: Its input fields.
    input: str = ""
    #: The type of its answer, or the columns of its outputs.
    output: str = ""
    #: Its declared properties (rule 6.5).
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


class Modules(Sequence[InstalledModule]):
    """The installed modules, as a sequence; it prints as a table."""

    def __init__(self, modules: Sequence[InstalledModule]) -> None:
        self._modules = tuple(modules)

    @overload
    def __getitem__(self, index: int | str) -> InstalledModule: ...
    @overload
    def __getitem__(self, index: slice) -> Modules: ...
    def __getitem__(self, index: int | str | slice) -> InstalledModule | Modules:
        if isinstance(index, slice):
            return Modules(self._modules[index])
        if isinstance(index, int):
            return self._modules[index]
        for module in self._modules:
            if module.name == index:
                return module
        raise _unknown(index, self.names)

    def __iter__(self) -> Iterator[InstalledModule]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that `hr.module` takes."""
        return tuple(module.name for module in self._modules)

    def __repr__(self) -> str:
        rows = [list(_COLUMNS), *([shorten(c, _WIDEST, placeholder="…") for c in m.cells()] for m in self)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        rows = ""
        for module in self:
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in module.cells())
            rows += f'<tr title="{escape(module.doc or module.problem)}">{cells}</tr>'
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def package_offering(kind: type) -> str:
    """The package, with its version, that offers modules from the Python package of this class; empty if none does."""
    name = kind.__module__.partition(".")[0]
    return next((package_of(entry) for entry in _OFFERED.all() if entry.module.partition(".")[0] == name), "")


def modules() -> Modules:
    """All installed modules, with their parameters, schemas and documentation; `hr.module(name)` returns one."""
    found = [describe_module(name, kind, "headrace") for name, kind in _BUILT_IN.items()]
    entries = _OFFERED.all()
    for entry in entries:
        try:
            found.append(describe_module(entry.name, _loaded(entry, entries), package_of(entry)))
        except ModuleError as error:
            found.append(InstalledModule(entry.name, "broken", package=package_of(entry), problem=error.message))
    return Modules(sorted(found, key=lambda module: (module.name, module.package)))


def module(name: str, /, **parameters: Any) -> Any:
    """The module of this name with these parameters: `hr.module("finance.ema", alpha=0.2)`.

    A function (`hr.udf`) has no parameters; it is returned as it is, to be called with columns.
    """
    kind = registered_module(name)
    if not isinstance(kind, Udf):
        return kind(**parameters)
    if parameters:
        text = ", ".join(f"{key}={value!r}" for key, value in parameters.items())
        call = f"hr.module({name!r})({', '.join(map(repr, kind.parameters))})"
        raise ModuleError(f"{name} is a function: it has no parameters", given=text, allowed="none", instead=call)
    return kind


def registered_module(name: str) -> type[Module] | Udf:
    """The class or function of a module by its name."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    entries = _OFFERED.all()
    for entry in entries:
        if entry.name == name:
            return _loaded(entry, entries)
    raise _unknown(name, module_names())


def module_names() -> list[str]:
    """The names of all installed modules, without an import of their packages."""
    return [*_BUILT_IN, *(entry.name for entry in _OFFERED.all())]


def describe_module(name: str, kind: type[Module] | Udf, package: str) -> InstalledModule:
    """The description of a module, without an instance."""
    if isinstance(kind, Udf):
        fields = ", ".join(f"{n} {t.value}" for n, t in zip(kind.parameters, kind.takes, strict=True))
        vectorised = ("vectorised",) if kind.vectorised else ()
        return InstalledModule(name, "function", "", fields, kind.returns.value, vectorised, kind.doc, package)
    bare = object.__new__(kind)  # the properties depend on the class alone
    properties = [flag for flag in _PROPERTIES if getattr(bare, flag)]
    if kind.filter_through:
        properties.append(f"filter_through({', '.join(kind.filter_through)})")
    return InstalledModule(
        name,
        f"incremental {kind.kind}" if kind.incremental else kind.kind,
        _parameters(kind),
        str(kind.input),
        str(getattr(kind.output, "value", kind.output)),
        tuple(properties),
        inspect.cleandoc(kind.__doc__ or ""),  # its own, not that of a base class
        package,
    )


def checked_module(loaded: Any, place: str) -> type[Module] | Udf:
    """What an entry point names, if it is a module or a function."""
    if isinstance(loaded, Udf):
        return loaded
    if not (isinstance(loaded, type) and issubclass(loaded, Module)):
        raise ModuleError(f"{place} is {loaded!r}, which is no module", allowed=_OFFERED.allowed)
    loaded._check_definition()  # noqa: SLF001 - the check of an instance, without parameters
    return loaded


def _loaded(entry: EntryPoint, entries: Sequence[EntryPoint]) -> type[Module] | Udf:
    loaded = _OFFERED.loaded(entry, entries)
    try:
        return checked_module(loaded, entry.value)
    except ModuleError as error:
        raise _OFFERED.refused(entry, error.message) from error


def _unknown(name: str, known: Sequence[str]) -> ModuleError:
    close = nearest(name, known) or nearest(name, [other.rpartition(".")[2] for other in known])
    full = next((other for other in known if other == close or other.endswith(f".{close}")), None)
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
    """A parameter as in the source: `str` of a parameter quotes annotations that are texts."""
    kind = parameter.annotation
    name = str(parameter.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty))
    typed = (
        ""
        if kind is inspect.Parameter.empty
        else f": {kind if isinstance(kind, str) else inspect.formatannotation(kind)}"
    )
    return name + typed + ("" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}")
