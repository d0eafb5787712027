"""Expressions in the body of an aggregate: over its tables, its arguments, and sub-selects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import SqlError
from headrace.expr import AggregateCall, Expr, UdfCall
from headrace.modules import ModuleCall
from headrace.sql import syntax as s
from headrace.sql.aggregates.front.definition import INWINDOW, Oldest, Scalar
from headrace.sql.aggregates.python.rows import AGGREGATES
from headrace.sql.bind.expressions import Expressions, has_aggregate
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.aggregates.front.select import NameScope, SelectReader

__all__ = ["LocalExpressions", "calls_aggregate"]


def calls_aggregate(part: s.Part, known: Mapping[str, Any]) -> bool:
    """Whether a call in it is about many rows; what stands in sub-selects is their own."""
    if isinstance(part, s.ScalarSelect):
        return False
    if isinstance(part, s.Call) and has_aggregate(replace(part, arguments=(), named=(), over=None), known):
        return True
    return any(calls_aggregate(child, known) for child in part.parts())


@dataclass(frozen=True)
class LocalExpressions(Expressions):
    """Binds expressions of a body. Only what can be made again from the text alone may be called."""

    local: SelectReader = None  # type: ignore[assignment]
    around: NameScope = None  # type: ignore[assignment]

    def _column(self, part: s.Column) -> Expr:
        given = self.local.parameters.names
        is_argument = part.stream is None and part.name.text.lower() in (name.lower() for name in given)
        if is_argument and not self.around.has_tuple and not self.scope.knows(part):
            event = self.around.event.upper() or "A declaration"
            raise self.context.error(
                part,
                f"{event} has no tuple: {part.name.text} is an argument of INITIALIZE and ITERATE",
                given=part.name.text,
                allowed="columns of tables" + (", oldest()" if self.around.event == "expire" else ""),
                instead="keep it in a table",
            )
        return super()._column(part)

    def _scalar(self, part: s.ScalarSelect) -> Expr:
        select = self.local.select(part.select, self.around)
        if len(select.entries) != 1:
            raise self.context.error(part, "a sub-select that is a value has one column", given=to_sql(part))
        return Scalar(select)

    def _member(self, part: s.Member) -> Expr:
        if not _is_oldest(part.call):
            raise self.context.error(part, "only oldest() has columns", given=to_sql(part), instead="oldest().column")
        return self._oldest(part.call, part.name)

    def _oldest(self, part: s.Call, name: s.Name | None) -> Expr:
        if not self.local.part.window:
            raise self.context.error(
                part, "oldest() is the oldest tuple of a window", allowed="oldest() in CREATE WINDOW AGGREGATE"
            )
        if INWINDOW not in self.local.tables:
            raise self.local.undeclared(part)
        self.local.keeps_window |= self.around.event != "expire"
        fields = self.local.tables[INWINDOW].schema.fields
        if name is None and len(fields) > 1:
            raise self.context.error(part, "oldest() has several columns", instead=f"oldest().{fields[0].name}")
        for index, field in enumerate(fields):
            if name is None or field.name.lower() == name.text.lower():
                return Oldest(index, field.type)
        raise self.context.error(
            name or part, "inwindow has no such column", given=to_sql(part), allowed=", ".join(f.name for f in fields)
        )

    def _call(self, part: s.Call) -> Expr:
        name = ".".join(one.text for one in part.name)
        if _is_oldest(part) and name not in self.own:
            return self._oldest(part, None)
        calls_base = self.local.part.window and name in self.own
        if name.lower() == self.local.part.name.text.lower() and not calls_base:
            raise self.context.error(
                part, f"{name} calls itself: that would not end", given=to_sql(part), allowed="aggregates made before"
            )
        found = super()._call(part)
        if isinstance(found, ModuleCall) and hasattr(found.module, "definition"):
            self.local.called(found)
        elif isinstance(found, (ModuleCall, UdfCall)):
            raise self._not_yet(part, name, "functions and modules in Python do not travel with an aggregate's text")
        elif isinstance(found, AggregateCall) and found.function not in AGGREGATES:
            raise self._not_yet(part, name, f"{name} over a table of an aggregate is not there yet")
        return found

    def _not_yet(self, part: s.Call, name: str, why: str) -> SqlError:
        return self.context.error(
            part,
            why,
            given=name,
            allowed=f"{', '.join(AGGREGATES)}, functions of the dialect, aggregates made by CREATE AGGREGATE",
        )

    _bindings: ClassVar[Mapping[type[s.Part], Callable[[Any, Any], Expr]]] = {
        **Expressions._bindings,  # noqa: SLF001 - its own base
        s.Column: _column,
        s.Call: _call,
        s.ScalarSelect: _scalar,
        s.Member: _member,
    }


def _is_oldest(part: s.Call) -> bool:
    return len(part.name) == 1 and part.name[0].text.lower() == "oldest" and not part.arguments and not part.named
