"""Check an aggregate written in SQL: names, types, and where statements are allowed. Errors point into its body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.errors import SqlError, nearest
from headrace.expr.nodes import Bound
from headrace.schema import Field, Schema, Type
from headrace.sql import syntax as s
from headrace.sql.aggregates.front import definition as d
from headrace.sql.aggregates.front.select import NameScope, SelectReader
from headrace.sql.aggregates.front.stored import decoded
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import SQL_AGGREGATES, SQL_FUNCTIONS
from headrace.sql.printer import to_sql

__all__ = ["check", "lines_of", "too_deep"]

RETURN = "return"


def check(
    context: Context, part: s.CreateAggregate, known: Mapping[str, Any], lines: Sequence[int] = ()
) -> d.AggregateDefinition:
    """The definition of an aggregate; it may call the aggregates in `known`.

    `lines` are the line numbers of its statements, if they come from another text.
    """
    try:
        return _Check(context, part, known, lines or lines_of(context, part)).definition()
    except RecursionError:
        raise too_deep(context, part) from None


def too_deep(context: Context, part: s.CreateAggregate) -> SqlError:
    """The error for expressions that are nested too deep for Python."""
    return context.error(
        part.name, "an expression of this aggregate is nested too deep", instead="several statements, one after another"
    )


def lines_of(context: Context, part: s.CreateAggregate) -> tuple[int, ...]:
    """The line numbers at which the statements of a body begin."""
    return tuple(context.text.count("\n", 0, one.at[0]) + 1 for stage in part.stages for one in stage.statements)


class _Check(SelectReader):
    """One aggregate."""

    def __init__(
        self, context: Context, part: s.CreateAggregate, known: Mapping[str, Any], lines: Sequence[int]
    ) -> None:
        super().__init__(context, part, known)
        every = (one.at for stage in part.stages for one in stage.statements)
        self.lines = dict(zip(every, lines, strict=True))
        self.take(self.columns(part.parameters))

    def definition(self) -> d.AggregateDefinition:
        part = self.part
        self._check_name()
        self.returns = self._returns()
        for table in part.tables:
            self._table(table)
        if part.window:
            self._check_inwindow()
        if part.algebraic:
            self._check_algebraic()
        stages = self._stages()
        if not any(isinstance(one, d.BodyInsert) and one.table is None for body in stages.values() for one in body):
            raise self.context.error(
                part.name, f"{part.name.text} returns nothing", instead="INSERT INTO RETURN … in one of its stages"
            )
        return d.AggregateDefinition(
            part.name.text, self.parameters.fields, self.returns, part.returns is not None, tuple(self.tables.values()),
            stages, self.places, tuple(self.calls.values()), part.algebraic, part.window, self.keeps_window,
        )  # fmt: skip

    def _check_name(self) -> None:
        name = self.part.name
        if name.text.lower() in (*SQL_FUNCTIONS, *SQL_AGGREGATES):
            raise self.context.error(
                name,
                f"{name.text} is built in: a call would not show which one it means",
                given=name.text,
                allowed="names that SHOW FUNCTIONS does not list",
                instead=f"my_{name.text}",
            )

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
        if found.is_decimal:
            raise self.context.error(
                name,
                "an aggregate written in SQL does not compute with DECIMAL",
                given=name.text,
                allowed="the other types",
                instead="LONG, with a count of the smallest unit, or DOUBLE, which rounds",
            )
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
        rows = self._rows(part.rows, schema.fields, text, NameScope())
        stored = None if part.stored is None else decoded(self.context, part, schema)
        self.tables[name] = d.StateTable(text, schema, key, rows, stored, part.limit or d.MOST_ROWS)

    def _check_inwindow(self) -> None:
        part = next((one for one in self.part.tables if one.name.text.lower() == d.INWINDOW), None)
        if part is None:
            return
        kept = self.tables[d.INWINDOW].schema
        if part.key or [field.type for field in kept] != [field.type for field in self.parameters]:
            raise self.context.error(
                part,
                "inwindow has the types of the arguments, and no key",
                given=to_sql(part),
                allowed=str(self.parameters),
            )

    def _check_algebraic(self) -> None:
        """Check that an algebraic aggregate accepts its own answers."""
        takes, gives = [[field.type.value for field in fields] for fields in (self.parameters, self.returns)]
        if takes != gives:
            name = self.part.name.text
            raise self.context.error(
                self.part.name,
                f"{name} is ALGEBRAIC: its answers are aggregated again, so it gives what it takes",
                given=f"{name}({', '.join(takes)}): {', '.join(gives)}",
                allowed="as many columns as arguments, of the same types",
                instead="an aggregate of the parts: total(x) OVER (…) / total(1) OVER (…) for a mean",
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

    def _stages(self) -> dict[str, tuple[d.BodyStatement, ...]]:
        found: dict[str, tuple[d.BodyStatement, ...]] = {}
        for stage in self.part.stages:
            for event in stage.events:
                if event in found:
                    raise self.context.error(stage, f"{event.upper()} is there twice", instead="one, with both bodies")
                if event == "expire" and not self.part.window:
                    raise self.context.error(
                        stage, "tuples expire in windows", allowed="EXPIRE: in CREATE WINDOW AGGREGATE"
                    )
                if event == "terminate" and self.part.window and stage.statements:
                    raise self.context.error(
                        stage,
                        "a window version answers as tuples come and go: it has no end",
                        given="TERMINATE",
                        allowed="INSERT INTO RETURN in INITIALIZE, ITERATE and EXPIRE",
                        instead="CREATE AGGREGATE, whose TERMINATE is done after each tuple",
                    )
                found[event] = tuple(self._statement(one, NameScope(event=event)) for one in stage.statements)
        if "initialize" not in found:
            raise self.context.error(
                self.part.name,
                f"{self.part.name.text} does not say what to do with the first tuple",
                allowed="INITIALIZE: { … }, ITERATE: { … }, TERMINATE: { … }",
                instead="INITIALIZE: ITERATE: { … }, if all tuples are treated alike",
            )
        return found

    def _statement(self, part: s.BodyStatement, around: NameScope) -> d.BodyStatement:
        self.reads = set()
        line = self.lines[part.at]
        with self.context.at(part):
            if isinstance(part, (s.InsertRows, s.InsertSelected)):
                return self._insert(part, around, line)
            if isinstance(part, s.UpdateRows):
                return self._update(part, around, line)
            assert isinstance(part, s.DeleteRows)
            source = self.source(self.named(part.table))
            if source.table.stored is not None:
                self._check_own(part.table, source.table, "")
            where = self.where(part.where, around.within((part.table.text, source)))
            return d.Delete(line, frozenset(self.reads), source, where)

    def _insert(self, part: s.InsertRows | s.InsertSelected, around: NameScope, line: int) -> d.BodyInsert:
        target = None if _is_return(part.target) else self.named(part.target)
        if target is not None:
            self._check_own(part.target, target, "INSERT INTO RETURN, or a table of its own")
        columns = self.returns if target is None else target.schema.fields
        name = part.target.text
        if isinstance(part, s.InsertRows):
            rows = self._rows(part.rows, columns, name, around)
            return d.BodyInsert(line, frozenset(self.reads), target, rows)
        select = self.select(part.select, around, columns, name)
        return d.BodyInsert(line, frozenset(self.reads), target, (), select)

    def _update(self, part: s.UpdateRows, around: NameScope, line: int) -> d.BodyUpdate:
        source = self.source(self.named(part.table))
        self._check_own(part.table, source.table, "DELETE FROM inwindow, or a table of its own")
        inside = around.within((part.table.text, source))
        schema, name = source.table.schema, part.table.text
        values: list[Bound | None] = [None] * len(schema)
        for one in part.assignments:
            index = self._column(schema, one.column, name)
            if values[index] is not None:
                raise self.context.error(one.column, f"{one.column.text} is set twice", given=to_sql(one))
            value = self.expressions(inside).bind(one.value)
            values[index] = self.assigned(one.value, value, schema.fields[index], name)
        where = self.where(part.where, inside)
        return d.BodyUpdate(line, frozenset(self.reads), source, tuple(values), where)

    def _check_own(self, part: s.Name, table: d.StateTable, instead: str) -> None:
        if table.kept_by_system:
            raise self.context.error(
                part,
                "inwindow is kept by the system: tuples enter and leave it with the window",
                given=part.text,
                allowed="SELECT … FROM inwindow, DELETE FROM inwindow",
                instead=instead,
            )
        if table.stored is not None:
            raise self.context.error(
                part,
                f"{table.name} is a stored table, and an aggregate only reads those",
                given=part.text,
                allowed=f"SELECT … FROM {table.name}",
                instead="TABLE of its own, filled by INSERT INTO … SELECT * FROM " + table.name,
            )

    def _rows(
        self, rows: Iterable[s.ValuesRow], columns: tuple[Field, ...], name: str, around: NameScope
    ) -> tuple[tuple[Bound, ...], ...]:
        found = []
        for row in rows:
            self.check_arity(row, len(row.values), columns, name)
            bound = [self.expressions(around).bind(value) for value in row.values]
            fitted = zip(row.values, bound, columns, strict=True)
            found.append(tuple(self.assigned(part, value, column, name) for part, value, column in fitted))
        return tuple(found)


def _is_return(name: s.Name) -> bool:
    return name.text.lower() == RETURN and not name.quoted
