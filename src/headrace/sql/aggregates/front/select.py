"""Check the SELECTs in the body of an aggregate, and resolve their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace.errors import SqlError, nearest
from headrace.expr import AggregateCall, Column, Expr, Literal
from headrace.expr import nodes as engine
from headrace.expr.nodes import Bound
from headrace.expr.signatures import widens
from headrace.modules import ModuleCall
from headrace.schema import Field, Schema, Type
from headrace.sql import syntax as s
from headrace.sql.aggregates.front import definition as d
from headrace.sql.aggregates.front.local import LocalExpressions, calls_aggregate
from headrace.sql.bind.context import Context
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.printer import to_sql

__all__ = ["NameScope", "SelectReader"]

#: The sources of one SELECT, by name.
Level = tuple[tuple[str, d.TableScan], ...]


@dataclass(frozen=True)
class NameScope:
    """The names that expressions at a place may use: sources, the innermost first, and the arguments of a tuple."""

    levels: tuple[Level, ...] = ()
    event: str = ""

    def within(self, *sources: tuple[str, d.TableScan]) -> NameScope:
        """The scope with inner sources."""
        return replace(self, levels=(sources, *self.levels))

    @property
    def has_tuple(self) -> bool:
        return self.event in ("initialize", "iterate")


class SelectReader:
    """Reads the SELECTs of one aggregate."""

    def __init__(self, context: Context, part: s.CreateAggregate, known: Mapping[str, Any]) -> None:
        self.context, self.part, self.known = context, part, known
        self.places: dict[str, d.ColumnOrigin] = {}
        self.types: dict[str, Type] = {}
        self.calls: dict[str, Any] = {}
        self.reads: set[d.StateTable] = set()
        self.keeps_window = False
        self.sources = 0
        self.tables: dict[str, d.StateTable] = {}
        self.parameters = Schema(())

    def take(self, parameters: Schema) -> None:
        """What it takes."""
        self.parameters = parameters
        for index, field in enumerate(parameters):
            self._place(_argument(field.name), d.ColumnOrigin(index), field.type)

    # --- SELECT ------------------------------------------------------------------------------------------------------

    def select(
        self, part: s.LocalSelect, around: NameScope, columns: tuple[Field, ...] | None = None, name: str = ""
    ) -> d.Selected:
        """A SELECT; its results fit the target columns, if there are any."""
        sources = self._from(part)
        inside = around.within(*sources)
        wheres = [self.where(one, inside) for one in (*(join.on for join in part.joins), part.where)]
        groups = tuple(self._group(one, inside) for one in part.group)
        entries = [one for entry in part.entries for one in self._entries(entry, sources)]
        aggregated = self._aggregated(part, entries, sources)
        if columns is not None:
            self.check_arity(part, len(entries), columns, name)
        about_many = aggregated or bool(groups)
        expressions = self.expressions(inside, aggregates=about_many)
        fixed = [group.node for group in groups]
        scans = [source for _, source in sources] if about_many else []
        found = []
        for place, value in enumerate(entries):
            expr = expressions.bind(value)
            self._check_grouped(value, expr, scans, fixed)
            found.append(
                expr.bind(self.schema) if columns is None else self.assigned(value, expr, columns[place], name)
            )
        order = []
        for key in part.order:
            expr = expressions.bind(key.value)
            self._check_grouped(key.value, expr, scans, fixed)
            if key.nulls is not None:
                order.append((expr.is_null().bind(self.schema), key.nulls == "first"))
            order.append((expr.bind(self.schema), key.descending))
        having = None if part.having is None else self._having(part.having, expressions, scans, fixed)
        every = tuple(source for _, source in sources)
        return d.Selected(
            tuple(found), every[0] if every else None, _all_of(wheres), tuple(order), part.limit, aggregated,
            every[1:], groups, having, part.distinct,
        )  # fmt: skip

    def _from(self, part: s.LocalSelect) -> Level:
        joined = [(one.table, one.alias) for one in part.joins]
        named = [] if part.table is None else [(part.table, part.alias), *joined]
        found: dict[str, tuple[str, d.TableScan]] = {}
        for table, alias in named:
            name = alias or table
            if name.text.lower() in found:
                raise self.context.error(
                    name, f"{name.text} is there twice", given=name.text, instead=f"{table.text} AS another_name"
                )
            found[name.text.lower()] = (name.text, self.source(self.named(table)))
        return tuple(found.values())

    def _entries(self, entry: s.Entry, sources: Level) -> list[s.Expression]:
        star = entry.value
        if not isinstance(star, s.Star):
            return [entry.value]
        meant = [one for one in sources if star.stream is None or one[0].lower() == star.stream.text.lower()]
        if not meant:
            raise self.context.error(entry, "* stands for the columns of a table", instead="SELECT * FROM table")
        at = entry.at
        return [
            s.Column(s.Name(column, quoted=True, at=at), s.Name(name, quoted=True, at=at), at=at)
            for name, source in meant
            for column in source.table.schema.names
        ]

    def _aggregated(self, part: s.LocalSelect, entries: list[s.Expression], sources: Level) -> bool:
        """Whether it aggregates all rows to one."""
        about_many = any(calls_aggregate(value, self.known) for value in entries)
        if not sources and (about_many or part.group or part.having):
            raise self.context.error(
                part, "no table is named", given=to_sql(part), allowed="SELECT count(*), max(a) FROM table [WHERE …]"
            )
        if part.group:
            return False
        if part.having is not None and not about_many:
            raise self.context.error(
                part.having, "HAVING is about groups", given=to_sql(part.having), instead="WHERE, or GROUP BY column"
            )
        if about_many and (part.order or part.limit is not None):
            raise self.context.error(
                part,
                "an aggregate gives one row of a table: there is nothing to order",
                given=to_sql(part),
                allowed="SELECT count(*), max(a) FROM table [WHERE …] [GROUP BY column]",
            )
        return about_many

    def _group(self, part: s.Expression, inside: NameScope) -> Bound:
        if any(isinstance(one, s.ScalarSelect) for one in _inside(part)):
            raise self.context.error(part, "rows are grouped by what they hold, not by sub-selects", given=to_sql(part))
        return self.expressions(inside).bind(part).bind(self.schema)

    def _having(
        self, part: s.Expression, expressions: LocalExpressions, scans: list[d.TableScan], fixed: list[Expr]
    ) -> Bound:
        expr = expressions.predicate(part)
        self._check_grouped(part, expr, scans, fixed)
        return expr.bind(self.schema)

    def _check_grouped(self, part: s.Expression, expr: Expr, scans: list[d.TableScan], fixed: list[Expr]) -> None:
        """Refuse columns beside aggregates that are not the same for all rows of a group."""
        if isinstance(expr, AggregateCall) or any(expr.same(one) for one in fixed):
            return
        if isinstance(expr, Column) and self.places[expr.column].source in scans:
            raise self.context.error(
                part,
                "beside an aggregate, a column must stand in one too" + (", or in GROUP BY" if fixed else ""),
                given=to_sql(part),
                instead="max(column)",
            )
        for child in expr.children:
            self._check_grouped(part, child, scans, fixed)

    # --- values for columns ------------------------------------------------------------------------------------------

    def check_arity(self, part: s.Part, given: int, columns: tuple[Field, ...], name: str) -> None:
        """Check that there are as many values as columns."""
        if given != len(columns):
            raise self.context.error(
                part,
                f"{name} has {len(columns)} column{'s' if len(columns) > 1 else ''}, and these are {given} values",
                given=to_sql(part),
                allowed=", ".join(map(str, columns)),
            )

    def assigned(self, part: s.Expression, value: Expr, column: Field, name: str) -> Bound:
        """A value converted for a column: numbers widen, but nothing is lost implicitly."""
        bound = value.bind(self.schema)
        own_type, target_type = bound.type, column.type
        fitting = widens(own_type, target_type) or target_type.is_floating or _holds(target_type, value)
        numbers = own_type.is_numeric and target_type.is_numeric and fitting
        if not (bound.untyped or own_type is target_type or numbers or (own_type.is_text and target_type.is_text)):
            raise self.context.error(
                part,
                f"{column.name} of {name} is {target_type.value}, and this is {own_type.value}",
                given=to_sql(part),
                allowed=target_type.value,
                instead=f"CAST({to_sql(part)} AS {target_type.value})" if target_type is not Type.DATETIME else "",
            )
        if isinstance(value, Literal) and target_type.is_floating:
            return bound.widened(target_type)
        return engine.Cast(value, target_type).bind(self.schema)

    # --- names and expressions ---------------------------------------------------------------------------------------

    def source(self, table: d.StateTable) -> d.TableScan:
        """A new scan of a table."""
        self.reads.add(table)
        self.keeps_window |= table.kept_by_system
        self.sources += 1
        source = d.TableScan(table, self.sources)
        for index, field in enumerate(table.schema):
            self._place(_plan_name(source, field.name), d.ColumnOrigin(index, source), field.type)
        return source

    def _place(self, name: str, place: d.ColumnOrigin, kind: Type) -> None:
        self.places[name] = place
        self.types[name] = kind

    @property
    def schema(self) -> Schema:
        return Schema(tuple(Field(name, kind) for name, kind in self.types.items()))

    def named(self, name: s.Name) -> d.StateTable:
        """The table that is meant."""
        found = self.tables.get(name.text.lower())
        if found is not None:
            return found
        if self.part.window and name.text.lower() == d.INWINDOW:
            raise self.undeclared(name)
        known = [table.name for table in self.tables.values()]
        raise self.context.error(
            name,
            f"{self.part.name.text} has no table {name.text!r}, and none is stored under that name",
            given=name.text,
            allowed=", ".join(known) or "(none is declared: TABLE state(…);)",
            instead=nearest(name.text, known) or "",
        )

    def undeclared(self, part: s.Part) -> SqlError:
        """The error for a use of inwindow, which must be declared so that its columns have names."""
        return self.context.error(
            part,
            "an aggregate that looks at its window declares the table of its tuples",
            given=to_sql(part),
            allowed="TABLE inwindow(…); with the types of the arguments",
            instead=f"TABLE inwindow({', '.join(map(str, self.parameters))});",
        )

    def where(self, part: s.Expression | None, around: NameScope) -> Bound | None:
        """A condition, if there is one."""
        return None if part is None else self.expressions(around).predicate(part).bind(self.schema)

    def expressions(self, around: NameScope, *, aggregates: bool = False) -> LocalExpressions:
        """The binder for expressions at a place."""
        return LocalExpressions(
            self.context, self._scope(around), self.schema, self.known, aggregates, local=self, around=around
        )

    def _scope(self, around: NameScope) -> Scope:
        relations: list[Relation] = []
        taken: set[str] = set()
        every = [
            [(name, {f.name: _plan_name(one, f.name) for f in one.table.schema}) for name, one in level]
            for level in around.levels
        ]
        if around.has_tuple:
            every.append([(self.part.name.text, {one.name: _argument(one.name) for one in self.parameters})])
        for level in every:
            for name, columns in level:
                nearest_ones = {column: theirs for column, theirs in columns.items() if column.lower() not in taken}
                relations += [Relation(name, columns, by_name=True), Relation(name, nearest_ones)]
            taken |= {column.lower() for _, columns in level for column in columns}
        return Scope(self.context, tuple(relations))

    def called(self, expr: ModuleCall) -> None:
        """Record a call of another aggregate."""
        self.calls[expr.module.name] = expr.module


def _holds(kind: Type, value: Expr) -> bool:
    """Whether a literal fits an integer type."""
    if not isinstance(value, Literal) or type(value.value) is not int or not kind.is_integer:
        return False
    limits = np.iinfo(kind.arrow.to_pandas_dtype())
    return bool(limits.min <= value.value <= limits.max)


def _argument(name: str) -> str:
    return f"argument {name}"


def _plan_name(source: d.TableScan, column: str) -> str:
    return f"{source.number} {column}"


def _inside(part: s.Part) -> list[s.Part]:
    return [part, *(one for child in part.parts() for one in _inside(child))]


def _all_of(conditions: list[Bound | None]) -> Bound | None:
    """All conditions as one."""
    found = [one for one in conditions if one is not None]
    if not found:
        return None
    first, *rest = found
    for one in rest:
        first = Bound(engine.Call("and", (first.node, one.node)), Type.BOOLEAN, (first, one))
    return first
