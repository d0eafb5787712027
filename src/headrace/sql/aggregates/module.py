"""Aggregates written in SQL as modules: made from their text, wherever they are needed.

A module of this kind is its text. Workers get the text, and check and compile it again, once in each process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from headrace.errors import SqlError
from headrace.modules import Aggregate, Module, Operator
from headrace.schema import Field, Schema, Type
from headrace.sql import syntax as s
from headrace.sql.aggregates.check import check, too_deep
from headrace.sql.aggregates.compile import Compiled, compile_aggregate
from headrace.sql.aggregates.definition import Definition
from headrace.sql.aggregates.names import field_names
from headrace.sql.bind.context import Context
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql

__all__ = ["SqlAggregate", "SqlRows", "module_of", "modules_of"]


@lru_cache(maxsize=256)
def _compiled(text: str) -> Compiled:
    """The last aggregate of a text; those before it are what it calls."""
    context, known = Context(text), dict[str, Any]()
    for part in parse(text).statements:
        assert isinstance(part, s.CreateAggregate)
        compiled = compile_aggregate(check(context, part, known))
        made = _made(compiled.definition, part)
        made.__dict__["compiled"] = compiled
        known[part.name.text] = made
    return compiled


class _FromText(Module):
    """What both kinds share."""

    order_sensitive: ClassVar[bool] = True

    def __init__(self, text: str) -> None:
        self.text = text

    def __getstate__(self) -> dict[str, str]:
        return {"text": self.text}

    @cached_property
    def compiled(self) -> Compiled:
        """It, ready to run; `source` is its Python."""
        return _compiled(self.text)

    @property
    def definition(self) -> Definition:
        return self.compiled.definition

    @property
    def source(self) -> str:
        """The Python it runs as."""
        return self.compiled.source

    @property
    def blocking(self) -> bool:
        """Whether it answers only when all tuples are there (rule 7.2)."""
        return self.definition.blocking

    @cached_property
    def fields(self) -> Schema:
        # A FLOAT takes any number; it is rounded where it comes in.
        kinds = [Type.DOUBLE if f.type is Type.FLOAT else f.type for f in self.definition.parameters]
        names = field_names(f.name for f in self.definition.parameters)
        return Schema(tuple(map(Field, names, kinds)))

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def doc(self) -> str:
        return self.text

    @cached_property
    def mark(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:8]

    @property
    def told(self) -> tuple[str, ...]:
        """Its name, what it takes, what it gives, and when it answers."""
        takes, gives = self.definition.parameters, self.definition.returns
        given = gives[0].type.value if self.definition.value else ", ".join(map(str, gives))
        answers = "when all tuples are there (blocking)" if self.blocking else "at each tuple"
        return self.name, ", ".join(map(str, takes)), given, answers

    def _items(self, items: list[Any]) -> list[tuple[Any, ...]]:
        return [(item,) for item in items] if len(self.fields) == 1 else items

    def __str__(self) -> str:
        return f"{self.name}:{self.mark}"

    __repr__ = __str__


class SqlAggregate(_FromText, Aggregate):
    """An aggregate written in SQL that gives a value: what it returns at the last tuple and behind it."""

    input = "value DOUBLE"  # stand-ins: an instance knows its own
    output = "DOUBLE"

    @cached_property
    def gives(self) -> Type:
        return self.definition.returns[0].type

    def compute(self, items: list[Any]) -> Any:
        """The value over tuples in their order."""
        return self.compiled.value(self._items(items))


class SqlRows(_FromText, Operator):
    """An aggregate written in SQL that gives rows: all that it returns."""

    input = "value DOUBLE"  # as above
    output = "value DOUBLE"

    @cached_property
    def gives(self) -> Schema:
        return Schema(self.definition.returns)

    def compute(self, items: list[Any]) -> list[Any]:
        """The rows over tuples in their order."""
        return self.compiled.rows(self._items(items))


def module_of(
    context: Context, part: s.CreateAggregate, known: Mapping[str, Any], stored: Iterable[str] = ()
) -> SqlAggregate | SqlRows:
    """The module that a statement makes; `known` are the functions and modules it may call, by name."""
    definition = check(context, part, known, stored)
    if part.window:
        raise context.error(
            part.name,
            "aggregates with windows of their own, kept up by EXPIRE, do not run yet",
            given=f"CREATE WINDOW AGGREGATE {part.name.text}",
            allowed="CREATE AGGREGATE, which is computed anew over each window",
            instead=f"CREATE AGGREGATE {part.name.text}(…), and {part.name.text}(…) OVER (ROWS 9 PRECEDING)",
        )
    made = _made(definition, part)
    try:
        made.compiled  # noqa: B018 - now, where an error has a place to point at
    except (SyntaxError, RecursionError, MemoryError):
        raise too_deep(context, part) from None
    return made


def _made(definition: Definition, part: s.CreateAggregate) -> SqlAggregate | SqlRows:
    texts = dict.fromkeys(text for module in definition.calls for text in _statements(module.text))
    kind = SqlAggregate if definition.value else SqlRows
    return kind(";\n\n".join([*texts, to_sql(part)]))


def _statements(text: str) -> list[str]:
    return [to_sql(one) for one in parse(text).statements]


def modules_of(text: str) -> dict[str, SqlAggregate | SqlRows]:
    """The aggregates of a text of CREATE AGGREGATE statements, by name."""
    if not isinstance(text, str):
        raise SqlError.of("this is not a text", "", (0, 0), given=text, allowed="CREATE AGGREGATE statements, as a str")
    context, found = Context(text), dict[str, SqlAggregate | SqlRows]()
    for part in parse(text).statements:
        if not isinstance(part, s.CreateAggregate):
            raise context.error(part, "this is no CREATE AGGREGATE", given=to_sql(part), instead="hr.script(…)")
        if part.name.text in found:
            raise context.error(part.name, f"{part.name.text!r} exists already", instead="another name")
        found[part.name.text] = module_of(context, part, found)
    if not found:
        instead = "CREATE AGGREGATE f(…): … { … }"
        raise SqlError.of("this text makes no aggregate", text, (0, len(text)), instead=instead)
    return found
