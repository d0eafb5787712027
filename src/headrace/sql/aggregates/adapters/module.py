"""Aggregates written in SQL as modules, created from their text.

Such a module consists of its text. Workers receive the text, and check and compile it once in each process.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

from headrace.errors import SqlError
from headrace.modules import Aggregate, Module, Operator
from headrace.modules.fold import Kind
from headrace.modules.folding import FrameCode, PaneCode
from headrace.plan.ordered import Frame
from headrace.schema import Field, Schema, Type
from headrace.sql import syntax as s
from headrace.sql.aggregates.adapters.folder import SqlFolder
from headrace.sql.aggregates.adapters.steps import RowSteps, Steps
from headrace.sql.aggregates.front.check import check, lines_of, too_deep
from headrace.sql.aggregates.front.definition import AggregateDefinition
from headrace.sql.aggregates.front.stored import MOST_CHARACTERS, Stored, with_stored
from headrace.sql.aggregates.native.fold import NativeFolding
from headrace.sql.aggregates.native.frames import frames_of
from headrace.sql.aggregates.python.compile import Compiled, compile_aggregate
from headrace.sql.aggregates.python.names import field_names
from headrace.sql.bind.context import Context
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql

__all__ = ["SqlAggregate", "SqlRows", "Versions", "completes", "module_of", "modules_of"]

_STORED = re.compile(r"AS STORED '(?:[^']|'')*'")
#: With the rows of stored tables a text may be longer than one written by hand.
_MOST_TEXT = 4 * MOST_CHARACTERS


@dataclass(frozen=True)
class Versions:
    """The compiled versions of an aggregate: for a set of tuples, and for windows that tuples enter and leave.

    There is at least one.
    """

    base: Compiled | None = None
    window: Compiled | None = None

    @property
    def main(self) -> Compiled:
        """The version for a set of tuples: the base version, else the window version without expiry."""
        return self.all[0]

    @property
    def all(self) -> list[Compiled]:
        return [version for version in (self.base, self.window) if version is not None]

    @property
    def algebraic(self) -> bool:
        return any(version.definition.algebraic for version in self.all)


class AggregateText(NamedTuple):
    """A CREATE AGGREGATE statement: its text, and the line numbers of its body in the user's text."""

    text: str
    lines: tuple[int, ...]


@lru_cache(maxsize=256)
def _versions(statements: tuple[AggregateText, ...]) -> Versions:
    """The last of these aggregates; it calls the earlier ones. A window version follows its base version."""
    known = dict[str, Any]()
    for statement in statements:
        (part,) = parse(statement.text, most=_MOST_TEXT).statements
        assert isinstance(part, s.CreateAggregate)
        before = known.get(part.name.text) if part.window else None
        definition = check(Context(statement.text), part, known, statement.lines)
        compiled = compile_aggregate(definition)
        versions = replace(before.versions, window=compiled) if before else Versions(**{_version(part): compiled})
        module = _module(definition, _statements(definition, before, statement))
        module.__dict__["versions"] = versions
        known[part.name.text] = module
    return versions


class _FromText(Module):
    """The common part of both kinds of aggregates."""

    order_sensitive: ClassVar[bool] = True

    def __init__(self, statements: Iterable[AggregateText]) -> None:
        self.statements = tuple(statements)

    def __getstate__(self) -> dict[str, tuple[AggregateText, ...]]:
        return {"statements": self.statements}

    @cached_property
    def text(self) -> str:
        """Its statements: those of the aggregates that it calls, then its own."""
        return ";\n\n".join(one.text for one in self.statements)

    @cached_property
    def versions(self) -> Versions:
        """Its compiled versions."""
        return _versions(self.statements)

    @property
    def compiled(self) -> Compiled:
        """The version for a set of tuples; `source` is its Python code."""
        return self.versions.main

    @cached_property
    def definition(self) -> AggregateDefinition:
        return replace(self.compiled.definition, algebraic=self.versions.algebraic)

    def folder(self, kind: Kind) -> SqlFolder | None:
        """The folder for OVER; None where the base version is recomputed (rule 7.4)."""
        if kind == "unbounded":
            return SqlFolder(self.compiled, terminates=self.blocking)
        return None if self.versions.window is None else SqlFolder(self.versions.window, terminates=False)

    def by_frames(self) -> FrameCode | str:
        """The base version over finite frames (rule 7.4)."""
        return frames_of(self.compiled.definition)

    @property
    def source(self) -> str:
        """The Python code of all its versions."""
        return "\n\n".join(one.source for one in self.versions.all)

    @property
    def ways(self) -> list[tuple[str, str]]:
        """The ways it may run, each with its code, for aggregates that no query uses."""
        kinds: tuple[Kind, ...] = ("unbounded", "rows")
        folders = [folder for folder in map(self.folder, kinds) if folder is not None]
        under_over = {f"{self} under OVER, {one.path}: {one.language}": one.code for one in folders}
        return [*under_over.items(), (f"{self}, over whole windows: Python", self.compiled.source)]

    @property
    def composes(self) -> bool:
        return self.definition.algebraic

    @property
    def blocking(self) -> bool:
        """Whether it answers only after the last tuple (rule 7.2)."""
        return self.definition.blocking

    @cached_property
    def fields(self) -> Schema:
        # A FLOAT parameter accepts any number and rounds it on entry.
        kinds = [Type.DOUBLE if f.type is Type.FLOAT else f.type for f in self.definition.parameters]
        names = field_names(f.name for f in self.definition.parameters)
        return Schema(tuple(map(Field, names, kinds)))

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def doc(self) -> str:
        """Its text, without the rows of stored tables."""
        return _STORED.sub("AS STORED '…'", self.text)

    @cached_property
    def mark(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:8]

    @property
    def summary(self) -> tuple[str, ...]:
        """Its name, its parameters, its result, and when it answers."""
        takes, gives = self.definition.parameters, self.definition.returns
        result = gives[0].type.value if self.definition.value else ", ".join(map(str, gives))
        answers = "after the last tuple (blocking)" if self.blocking else "at each tuple"
        return self.name, ", ".join(map(str, takes)), result, answers

    def _items(self, items: list[Any]) -> list[tuple[Any, ...]]:
        return [(item,) for item in items] if len(self.fields) == 1 else items

    def __str__(self) -> str:
        return f"{self.name}:{self.mark}"

    __repr__ = __str__


class SqlAggregate(_FromText, Aggregate):
    """An aggregate written in SQL that returns a value: its output at and after the last tuple."""

    input = "value DOUBLE"  # stand-ins: an instance knows its own
    output = "DOUBLE"

    @cached_property
    def gives(self) -> Type:
        return self.definition.returns[0].type

    def stepwise(self) -> Module | None:
        return None if self.versions.base is None else Steps(self)

    def by_panes(self, pane: Frame, window: Frame) -> PaneCode | None:
        folder, answers = self.folder("rows"), Schema((Field("value", self.gives),))
        if folder is None or self.versions.base is None or [field.type for field in self.fields] != [self.gives]:
            return None
        panes, windows = Steps(self).by_slots(pane, answers), folder.folding(window, answers, active=False)
        if not isinstance(panes, NativeFolding) or windows is None or panes.native.state_width is None:
            return None
        assert pane.rows is not None
        assert window.rows is not None
        return PaneCode(panes, windows, pane.rows + 1, window.rows + 1, panes.native.state_width, folder.path)

    def compute(self, items: list[Any]) -> Any:
        """The value over tuples in their order."""
        return self.compiled.value(self._items(items))


class SqlRows(_FromText, Operator):
    """An aggregate written in SQL that returns rows."""

    input = "value DOUBLE"  # as above
    output = "value DOUBLE"

    @cached_property
    def gives(self) -> Schema:
        return Schema(self.definition.returns)

    def stepwise(self) -> Module | None:
        return None if self.versions.base is None else RowSteps(self)

    def compute(self, items: list[Any]) -> list[Any]:
        """The rows over tuples in their order."""
        return self.compiled.rows(self._items(items))


def module_of(
    context: Context, part: s.CreateAggregate, known: Mapping[str, Any], stored: Stored | None = None
) -> SqlAggregate | SqlRows:
    """The module that a statement creates.

    `known` are the functions and modules it may call, by name; `stored` the tables that it may read.
    """
    part = with_stored(context, part, stored or {})
    before = known.get(part.name.text) if completes(part, known) else None
    # A base version never calls its own name; a window version means the base version by it (example 11 of ESL).
    inside = known if before is not None and part.window else {k: v for k, v in known.items() if k != part.name.text}
    definition = check(context, part, inside)
    if before is not None:
        _check_agrees(context, part, definition, before.definition)
    module = _module(definition, _statements(definition, before, AggregateText(to_sql(part), lines_of(context, part))))
    try:
        module.versions  # noqa: B018 - compile now, so that an error can point into the text
    except (SyntaxError, RecursionError, MemoryError):
        raise too_deep(context, part) from None
    found = getattr(module.versions, _version(part)).definition
    alone = len(module.versions.all) == 1
    if alone != (before is None) or [one.text for one in found.calls] != [one.text for one in definition.calls]:
        raise _two_of_one_name(context, part)
    return module


def _two_of_one_name(context: Context, part: s.CreateAggregate) -> SqlError:
    """The error for a text that would call two aggregates of one name."""
    return context.error(
        part.name,
        f"{part.name.text} and the aggregates it calls use one name for two aggregates: a dropped one, and a new one",
        given=part.name.text,
        instead="DROP AGGREGATE and CREATE AGGREGATE for those that call the old one too, or another name",
    )


def completes(part: s.CreateAggregate, known: Mapping[str, Any]) -> bool:
    """Whether an aggregate of that name exists and lacks this version."""
    before = known.get(part.name.text)
    return isinstance(before, _FromText) and getattr(before.versions, _version(part)) is None


def _version(part: s.CreateAggregate) -> Literal["base", "window"]:
    return "window" if part.window else "base"


def _check_agrees(
    context: Context, part: s.CreateAggregate, own: AggregateDefinition, other: AggregateDefinition
) -> None:
    def signature(definition: AggregateDefinition) -> tuple[Any, ...]:
        columns = [] if definition.value else [field.name for field in definition.returns]
        return (
            [field.type for field in definition.parameters],
            [field.type for field in definition.returns],
            definition.value,
            columns,
        )

    if signature(own) != signature(other):
        given = other.returns[0].type.value if other.value else f"({', '.join(map(str, other.returns))})"
        raise context.error(
            part.name,
            f"the two versions of {part.name.text} must have the same signature",
            given=to_sql(replace(part, tables=(), stages=())).partition(" {")[0],
            allowed=f"{part.name.text}({', '.join(map(str, other.parameters))}): {given}",
            instead="another name, if it is another aggregate",
        )


def _module(definition: AggregateDefinition, statements: Iterable[AggregateText]) -> SqlAggregate | SqlRows:
    return (SqlAggregate if definition.value else SqlRows)(statements)


def _statements(definition: AggregateDefinition, before: _FromText | None, own: AggregateText) -> list[AggregateText]:
    """Its statements: those of the aggregates that it calls, then its own, the base version first."""
    called = [statement for module in definition.calls for statement in module.statements]
    versions = [] if before is None else [*before.statements]
    if before is not None and not definition.window:  # the window version came first, and is its last statement
        every = [*called, *versions[:-1], own, versions[-1]]
    else:
        every = [*versions, *called, own]
    found: dict[str, AggregateText] = {}
    for statement in every:
        found.setdefault(statement.text, statement)
    return list(found.values())


def modules_of(text: str, stored: Stored | None = None) -> dict[str, SqlAggregate | SqlRows]:
    """The aggregates of a text of CREATE AGGREGATE statements, by name; `stored` are the tables they may read."""
    if not isinstance(text, str):
        raise SqlError.of("this is not text", "", (0, 0), given=text, allowed="CREATE AGGREGATE statements, as a str")
    context, found = Context(text), dict[str, SqlAggregate | SqlRows]()
    for part in parse(text).statements:
        if not isinstance(part, s.CreateAggregate):
            raise context.error(part, "this is not a CREATE AGGREGATE", given=to_sql(part), instead="hr.script(…)")
        if part.name.text in found and not completes(part, found):
            raise context.error(part.name, f"{part.name.text!r} exists already", instead="another name")
        found[part.name.text] = module_of(context, part, found, stored)
    if not found:
        instead = "CREATE AGGREGATE f(…): … { … }"
        raise SqlError.of("this text has no aggregate", text, (0, len(text)), instead=instead)
    return found
