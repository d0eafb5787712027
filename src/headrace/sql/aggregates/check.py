"""Checks an aggregate written in SQL: names, types, what may be written where. Errors point into its body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.errors import SqlError, nearest
from headrace.expr import AggregateCall, Column, Expr, Literal
from headrace.expr import nodes as engine
from headrace.expr.nodes import Bound
from headrace.modules import ModuleCall
from headrace.schema import Field, Schema, Type
from headrace.sql import syntax as s
from headrace.sql.aggregates import definition as d
from headrace.sql.aggregates.local import LocalExpressions, calls_aggregate
from headrace.sql.bind.context import Context
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.printer import to_sql

__all__ = ["check"]

RETURN = "return"


def check(
    context: Context, part: s.CreateAggregate, known: Mapping[str, Any], stored: Iterable[str] = ()
) -> d.Definition:
    """What an aggregate is; it may call the aggregates that are `known`; `stored` are the names of stored tables."""
    try:
        return _Check(context, part, known, stored).definition()
    except RecursionError:
        raise too_deep(context, part) from None


def too_deep(context: Context, part: s.CreateAggregate) -> SqlError:
    """The error for expressions that are too long to be computed in one go."""
    return context.error(
        part.name, "an expression of this aggregate is nested too deep", instead="several statements, one after another"
    )


@dataclass(frozen=True)
class Around:
    """What expressions at a place may name: sources, the nearest first, and a tuple's arguments if there is one."""

    sources: tuple[tuple[str, d.Source], ...] = ()
    event: str = ""

    def within(self, name: str, source: d.Source) -> Around:
        """The same, with one more source."""
        return replace(self, sources=((name, source), *self.sources))

    @property
    def has_tuple(self) -> bool:
        return self.event in ("initialize", "iterate")


class _Check:
    """One aggregate."""

    def __init__(
        self, context: Context, part: s.CreateAggregate, known: Mapping[str, Any], stored: Iterable[str]
    ) -> None:
        self.context, self.part, self.known = context, part, known
        self.stored = {name.lower() for name in stored}
        self.places: dict[str, d.Place] = {}
        self.types: dict[str, Type] = {}
        self.calls: dict[str, Any] = {}
        self.reads: set[d.Table] = set()
        self.sources = 0
        self.tables: dict[str, d.Table] = {}
        self.parameters = self.columns(part.parameters)
        for index, field in enumerate(self.parameters):
            self._place(f"argument {field.name}", d.Place(index), field.type)

    def definition(self) -> d.Definition:
        part = self.part
        self.returns = self._returns()
        for table in part.tables:
            self._table(table)
        if part.window:
            self._check_inwindow()
        stages = self._stages()
        if not any(isinstance(one, d.Insert) and one.table is None for body in stages.values() for one in body):
            raise self.context.error(
                part.name, f"{part.name.text} returns nothing", instead="INSERT INTO RETURN … in one of its stages"
            )
        return d.Definition(
            part.name.text, self.parameters.fields, self.returns, part.returns is not None, tuple(self.tables.values()),
            stages, self.places, tuple(self.calls.values()), part.algebraic, part.window,
        )  # fmt: skip

    # --- declarations ------------------------------------------------------------------------------------------------

    def columns(self, columns: Iterable[s.TypedColumn]) -> Schema:
        """Columns with their types."""
        found: list[Field] = []
        for column in columns:
            if any(one.name.lower() == column.name.text.lower() for one in found):
                raise self.context.error(column.name, f"{column.name.text!r} is there twice", given=column.name.text)
            found.append(Field(column.name.text, self._type(column.type)))
        return Schema(tuple(found))

    def _type(self, name: s.Name) -> Type:
        with self.context.at(name):
            found = Type.parse(name.text)
        if found.is_array:
            raise self.context.error(name, "an aggregate computes with single values", given=name.text)
        return found

    def _returns(self) -> tuple[Field, ...]:
        if self.part.returns is not None:
            return (Field(self.part.name.text, self._type(self.part.returns)),)
        return self.columns(self.part.columns).fields

    def _table(self, part: s.LocalTable) -> None:
        name, text = part.name.text.lower(), part.name.text
        if name == RETURN:
            raise self.context.error(part.name, "RETURN is where results go", given=text, instead="another name")
        if name in self.tables:
            raise self.context.error(part.name, f"there is a table {text!r} already", given=text)
        if name == d.INWINDOW and (not self.part.window or part.rows):
            raise self.context.error(
                part.name,
                "inwindow is kept by the system, for aggregates with windows of their own",
                given=to_sql(part),
                allowed="TABLE inwindow(…); in CREATE WINDOW AGGREGATE",
                instead="another name",
            )
        schema = self.columns(part.columns)
        key = tuple(self._column(schema, column, text) for column in part.key)
        self.tables[name] = d.Table(text, schema, key, self._rows(part.rows, schema.fields, text, Around()))

    def _check_inwindow(self) -> None:
        part = next((one for one in self.part.tables if one.name.text.lower() == d.INWINDOW), None)
        if part is None:
            raise self.context.error(
                self.part.name,
                "an aggregate with a window of its own declares the table of its tuples",
                allowed="TABLE inwindow(…); with the types of the arguments",
                instead=f"TABLE inwindow({', '.join(map(str, self.parameters))});",
            )
        kept = self.tables[d.INWINDOW].schema
        if part.key or [field.type for field in kept] != [field.type for field in self.parameters]:
            raise self.context.error(
                part,
                "inwindow has the types of the arguments, and no key",
                given=to_sql(part),
                allowed=str(self.parameters),
            )

    def _column(self, schema: Schema, name: s.Name, table: str) -> int:
        for index, field in enumerate(schema):
            if field.name.lower() == name.text.lower():
                return index
        raise self.context.error(
            name,
            f"{table} has no column {name.text!r}",
            given=name.text,
            allowed=", ".join(schema.names),
            instead=nearest(name.text, schema.names) or "",
        )

    # --- stages ------------------------------------------------------------------------------------------------------

    def _stages(self) -> dict[str, tuple[d.Statement, ...]]:
        found: dict[str, tuple[d.Statement, ...]] = {}
        for stage in self.part.stages:
            for event in stage.events:
                if event in found:
                    raise self.context.error(stage, f"{event.upper()} is there twice", instead="one, with both bodies")
                if event == "expire" and not self.part.window:
                    raise self.context.error(
                        stage, "tuples expire in windows", allowed="EXPIRE: in CREATE WINDOW AGGREGATE"
                    )
                found[event] = tuple(self._statement(one, Around(event=event)) for one in stage.statements)
        if "initialize" not in found:
            raise self.context.error(
                self.part.name,
                f"{self.part.name.text} does not say what to do with the first tuple",
                allowed="INITIALIZE: { … }, ITERATE: { … }, TERMINATE: { … }",
                instead="INITIALIZE: ITERATE: { … }, if all tuples are treated alike",
            )
        return found

    def _statement(self, part: s.BodyStatement, around: Around) -> d.Statement:
        self.reads = set()
        line = self.context.text.count("\n", 0, part.at[0]) + 1
        with self.context.at(part):
            if isinstance(part, (s.InsertRows, s.InsertSelected)):
                return self._insert(part, around, line)
            if isinstance(part, s.UpdateRows):
                return self._update(part, around, line)
            assert isinstance(part, s.DeleteRows)
            source = self.source(self._named(part.table))
            where = self._where(part.where, around.within(part.table.text, source))
            return d.Delete(line, frozenset(self.reads), source, where)

    def _insert(self, part: s.InsertRows | s.InsertSelected, around: Around, line: int) -> d.Insert:
        target = None if _is_return(part.target) else self._named(part.target)
        if target is not None and target.kept_by_system:
            raise self._kept(part.target, "INSERT INTO RETURN, or a table of its own")
        columns = self.returns if target is None else target.schema.fields
        name = part.target.text
        if isinstance(part, s.InsertRows):
            rows = self._rows(part.rows, columns, name, around)
            return d.Insert(line, frozenset(self.reads), target, rows)
        select = self.select(part.select, around, columns, name)
        return d.Insert(line, frozenset(self.reads), target, (), select)

    def _update(self, part: s.UpdateRows, around: Around, line: int) -> d.Update:
        source = self.source(self._named(part.table))
        if source.table.kept_by_system:
            raise self._kept(part.table, "DELETE FROM inwindow, or a table of its own")
        inside = around.within(part.table.text, source)
        schema, name = source.table.schema, part.table.text
        values: list[Bound | None] = [None] * len(schema)
        for one in part.assignments:
            index = self._column(schema, one.column, name)
            if values[index] is not None:
                raise self.context.error(one.column, f"{one.column.text} is set twice", given=to_sql(one))
            value = self.expressions(inside).bind(one.value)
            values[index] = self._assigned(one.value, value, schema.fields[index], name)
        where = self._where(part.where, inside)
        return d.Update(line, frozenset(self.reads), source, tuple(values), where)

    def _kept(self, part: s.Name, instead: str) -> SqlError:
        return self.context.error(
            part,
            "inwindow is kept by the system: tuples enter and leave it with the window",
            given=part.text,
            allowed="SELECT … FROM inwindow, DELETE FROM inwindow",
            instead=instead,
        )

    def _rows(
        self, rows: Iterable[s.ValuesRow], columns: tuple[Field, ...], name: str, around: Around
    ) -> tuple[tuple[Bound, ...], ...]:
        found = []
        for row in rows:
            self._check_arity(row, len(row.values), columns, name)
            bound = [self.expressions(around).bind(value) for value in row.values]
            fitted = zip(row.values, bound, columns, strict=True)
            found.append(tuple(self._assigned(part, value, column, name) for part, value, column in fitted))
        return tuple(found)

    def _check_arity(self, part: s.Part, given: int, columns: tuple[Field, ...], name: str) -> None:
        if given != len(columns):
            raise self.context.error(
                part,
                f"{name} has {len(columns)} column{'s' if len(columns) > 1 else ''}, and these are {given} values",
                given=to_sql(part),
                allowed=", ".join(map(str, columns)),
            )

    def _assigned(self, part: s.Expression, value: Expr, column: Field, name: str) -> Bound:
        """A value as a column holds it: numbers are cast, but decimals are not cut off unasked."""
        bound = value.bind(self.schema)
        mine, wanted = bound.type, column.type
        numbers = mine.is_numeric and wanted.is_numeric and not (mine.is_floating and wanted.is_integer)
        if not (bound.untyped or mine is wanted or numbers or (mine.is_text and wanted.is_text)):
            raise self.context.error(
                part,
                f"{column.name} of {name} is {wanted.value}, and this is {mine.value}",
                given=to_sql(part),
                allowed=wanted.value,
                instead=f"CAST({to_sql(part)} AS {wanted.value})" if wanted is not Type.DATETIME else "",
            )
        if isinstance(value, Literal) and wanted.is_floating:
            return bound.widened(wanted)
        return engine.Cast(value, wanted).bind(self.schema)

    # --- SELECT ------------------------------------------------------------------------------------------------------

    def select(
        self, part: s.LocalSelect, around: Around, columns: tuple[Field, ...] | None = None, name: str = ""
    ) -> d.Selected:
        """A SELECT; what it gives fits the columns, if any are wanted."""
        source = None if part.table is None else self.source(self._named(part.table))
        inside = around
        if source is not None and part.table is not None:
            inside = around.within((part.alias or part.table).text, source)
        entries = [one for entry in part.entries for one in self._entries(entry, source)]
        aggregated = any(calls_aggregate(value, self.known) for value in entries)
        if aggregated and (source is None or part.order or part.limit is not None):
            raise self.context.error(
                part,
                "an aggregate gives one row of a table: there is nothing to order" if source else "no table is named",
                given=to_sql(part),
                allowed="SELECT count(*), max(a) FROM table [WHERE …]",
            )
        if columns is not None:
            self._check_arity(part, len(entries), columns, name)
        expressions = self.expressions(inside, aggregates=aggregated)
        found = []
        for place, value in enumerate(entries):
            expr = expressions.bind(value)
            if aggregated:
                self._check_grouped(value, expr, source)
            found.append(
                expr.bind(self.schema) if columns is None else self._assigned(value, expr, columns[place], name)
            )
        where = self._where(part.where, inside)
        keys = self.expressions(inside)
        order = tuple((keys.bind(one.value).bind(self.schema), one.descending) for one in part.order)
        return d.Selected(tuple(found), source, where, order, part.limit, aggregated)

    def _entries(self, entry: s.Entry, source: d.Source | None) -> list[s.Expression]:
        if not isinstance(entry.value, s.Star):
            return [entry.value]
        if source is None:
            raise self.context.error(entry, "* stands for the columns of a table", instead="SELECT * FROM table")
        return [s.Column(s.Name(name, at=entry.at), at=entry.at) for name in source.table.schema.names]

    def _check_grouped(self, part: s.Expression, expr: Expr, source: d.Source | None) -> None:
        if isinstance(expr, AggregateCall):
            return
        if isinstance(expr, Column) and self.places[expr.column].source is source:
            raise self.context.error(
                part, "beside an aggregate, a column must stand in one too", given=to_sql(part), instead="max(column)"
            )
        for child in expr.children:
            self._check_grouped(part, child, source)

    # --- names and expressions ---------------------------------------------------------------------------------------

    def source(self, table: d.Table) -> d.Source:
        """A new way through a table."""
        self.reads.add(table)
        self.sources += 1
        source = d.Source(table, self.sources)
        for index, field in enumerate(table.schema):
            self._place(_plan_name(source, field.name), d.Place(index, source), field.type)
        return source

    def _place(self, name: str, place: d.Place, kind: Type) -> None:
        self.places[name] = place
        self.types[name] = kind

    @property
    def schema(self) -> Schema:
        return Schema(tuple(Field(name, kind) for name, kind in self.types.items()))

    def _named(self, name: s.Name) -> d.Table:
        found = self.tables.get(name.text.lower())
        if found is None and name.text.lower() in self.stored:
            raise self.context.error(
                name,
                f"{name.text} is a stored table, and aggregates cannot read those yet",
                given=name.text,
                allowed="tables of the aggregate's own",
                instead=f"SELECT … FROM stream JOIN {name.text} ON …, and what is needed of it as an argument",
            )
        if found is None:
            known = [table.name for table in self.tables.values()]
            raise self.context.error(
                name,
                f"{self.part.name.text} has no table {name.text!r}",
                given=name.text,
                allowed=", ".join(known) or "(none is declared: TABLE state(…);)",
                instead=nearest(name.text, known) or "",
            )
        return found

    def _where(self, part: s.Expression | None, around: Around) -> Bound | None:
        return None if part is None else self.expressions(around).predicate(part).bind(self.schema)

    def expressions(self, around: Around, *, aggregates: bool = False) -> LocalExpressions:
        """What binds expressions at a place."""
        return LocalExpressions(
            self.context, self._scope(around), self.schema, self.known, aggregates, local=self, around=around
        )

    def _scope(self, around: Around) -> Scope:
        relations: list[Relation] = []
        taken: set[str] = set()
        every = [(name, {f.name: _plan_name(one, f.name) for f in one.table.schema}) for name, one in around.sources]
        if around.has_tuple:
            every.append((self.part.name.text, {field.name: f"argument {field.name}" for field in self.parameters}))
        for name, columns in every:
            nearest_ones = {mine: theirs for mine, theirs in columns.items() if mine.lower() not in taken}
            relations += [Relation("", nearest_ones), Relation(name, columns, by_name=True)]
            taken |= {mine.lower() for mine in columns}
        return Scope(self.context, tuple(relations))

    def called(self, expr: ModuleCall) -> None:
        """Remember that another aggregate is called."""
        self.calls[expr.module.name] = expr.module


def _plan_name(source: d.Source, column: str) -> str:
    return f"{source.number} {column}"


def _is_return(name: s.Name) -> bool:
    return name.text.lower() == RETURN and not name.quoted
