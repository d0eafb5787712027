"""Statements that create tables and change their rows; `io/live_table.py` says what a table is and when it changes.

A condition with a sub-query is computed by a query over the rows of the table; other expressions directly on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from headrace.api.inputs import events
from headrace.api.tables import Table, changed, new_table
from headrace.display.words import counted
from headrace.expr import Expr, evaluate, lit, predicate_mask
from headrace.io.live_table import NOW
from headrace.plan.nodes import Source
from headrace.schema import Field, Schema, Type
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import Catalog, LiveEntry, StreamEntry
from headrace.sql.bind.conditions import columns_of
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions
from headrace.sql.bind.queries import Queries
from headrace.sql.bind.relations import widens
from headrace.sql.bind.scope import CLOCKS, Relation, Scope, clock_of
from headrace.sql.bind.stored import is_relation, parts_of
from headrace.sql.bind.values import ticks_of
from headrace.sql.peek import Compute
from headrace.sql.printer import to_sql
from headrace.sql.syntax.rewrite import rewritten
from headrace.time import BEGINNING, INFINITY, ticks

__all__ = [
    "answers",
    "column_name",
    "created",
    "deleted",
    "given_values",
    "inserted",
    "inserted_values",
    "moment",
    "updated",
]

P = TypeVar("P", bound=s.Part)
#: The number of a row, beside the columns of its table, in queries for conditions; and new values of an UPDATE.
_PLACE, _SET = "_sql_place", "_sql_set"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_COLUMNS = pa.table([pa.nulls(1)], names=["one"])  # not of a list: that loads pandas


# --- tables ----------------------------------------------------------------------------------------------------------


def created(context: Context, catalog: Catalog, part: s.CreateTable, schema: Schema) -> Table:
    """The empty table of a CREATE TABLE."""
    rules = [column for column in part.columns if isinstance(column, s.TableColumn)]
    inline = [column.name for column in rules if column.key]
    if inline and (part.key or len(inline) > 1):
        raise context.error(
            inline[-1], "a table has one PRIMARY KEY", instead=f"PRIMARY KEY ({', '.join(n.text for n in inline)})"
        )
    key = [_known(context, schema, name, part.name.text) for name in (*inline, *part.key)]
    required = [column.name.text for column in rules if column.not_null]
    defaults = {
        column.name.text: _default(context, catalog, column.default, schema[column.name.text])
        for column in rules
        if column.default is not None
    }
    with context.at(part):
        return new_table(part.name.text, schema, key, required, defaults)


def _default(context: Context, catalog: Catalog, value: s.Expression, field: Field) -> Expr:
    """The value of a column that an insert leaves out, which must fit; `now()` is the time of the insert."""
    expr = _bound(context, value, field, _expressions(context, catalog, None, (Field(NOW, Type.DATETIME),)))
    now = pa.array([0], pa.int64()).cast(Type.DATETIME.arrow)
    _evaluated(context, value, expr, pa.table([now], names=[NOW]), field)
    return expr


def _known(context: Context, schema: Schema, name: s.Name, table: str) -> str:
    """The name of a column."""
    return Scope(context, (Relation(table, {column: column for column in schema.names}),)).column(
        s.Column(name, at=name.at)
    )


# --- INSERT ----------------------------------------------------------------------------------------------------------


def inserted_values(context: Context, catalog: Catalog, entry: LiveEntry, part: s.InsertValues) -> str:
    """Insert the rows of VALUES."""
    live, time = entry.table.live, _time(context, catalog, part)
    given = given_values(context, catalog, entry, part)
    with context.at(part):
        return _inserted(entry, live.insert(live.filled(given, time["at"]), **time))


def given_values(context: Context, catalog: Catalog, entry: LiveEntry | StreamEntry, part: s.InsertValues) -> pa.Table:
    """The rows of VALUES, in the types of their columns."""
    fields = _targets(context, entry, part.columns)
    part = _at_time(part, _time(context, catalog, part)["at"])
    columns: list[list[pa.Array]] = [[] for _ in fields]
    for row in part.rows:
        _check_count(context, row, len(row.values), fields)
        for place, (field, value) in enumerate(zip(fields, row.values, strict=True)):
            expr = _constant(context, catalog, value, field)
            columns[place].append(_evaluated(context, value, expr, _NO_COLUMNS, field))
    return pa.table(
        [pa.chunked_array(column, field.type.arrow) for field, column in zip(fields, columns, strict=True)],
        names=[field.name for field in fields],
    )


def inserted(
    context: Context, catalog: Catalog, entry: LiveEntry, columns: Sequence[s.Name], query: s.Query,
    part: s.Statement, compute: Compute,
) -> str:  # fmt: skip
    """Insert the rows of a query: those that hold now, or all answers of a query over streams."""
    fields, time = _targets(context, entry, columns), _time(context, catalog, part)
    if is_relation(query, catalog):
        query = _at_time(query, time["at"])
    rows = answers(context, catalog, query, compute)
    _check_count(context, query, rows.num_columns, fields)
    values = []
    for field, column in zip(fields, rows.columns, strict=True):
        values.append(_taken(context, query, column, field))
    given = pa.table(values, names=[field.name for field in fields])
    live = entry.table.live
    with context.at(part):
        return _inserted(entry, live.insert(live.filled(given, time["at"]), **time))


def answers(context: Context, catalog: Catalog, query: s.Query, compute: Compute) -> pa.Table:
    """The rows of a query that a statement takes into a table."""
    stream = Queries(context, catalog).query(query)
    if is_relation(query, catalog):
        return compute(stream, "now")
    with context.at(query):
        return compute(stream, "history")


def _inserted(entry: LiveEntry, count: int) -> str:
    return f"{counted(count, 'row')} inserted into {entry.name}"


def _targets(context: Context, entry: LiveEntry | StreamEntry, columns: Sequence[s.Name]) -> list[Field]:
    """The columns that an INSERT names, by default all."""
    schema = entry.schema
    names = [_known(context, schema, name, entry.name) for name in columns]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise context.error(columns[place], f"{name} is named twice", given=name)
    return [schema[name] for name in names] or list(schema)


def column_name(context: Context, part: s.Expression) -> s.Name:
    """The name of a column in `INSERT INTO t (a, b)`, where a name in double quotes was read as a text."""
    if isinstance(part, s.Column) and part.stream is None:
        return part.name
    if isinstance(part, s.Text) and context.text[part.at[0] : part.at[0] + 1] == '"':
        return s.Name(part.value, quoted=True, at=part.at)
    raise context.error(part, "the names of columns stand here", instead="INSERT INTO t (a, b) SELECT …")


def _check_count(context: Context, part: s.Part, count: int, fields: Sequence[Field]) -> None:
    if count != len(fields):
        names = ", ".join(field.name for field in fields)
        raise context.error(
            part,
            f"{counted(count, 'value')} for {counted(len(fields), 'column')}",
            given=to_sql(part),
            allowed=f"a value for each of {names}",
            instead="INSERT INTO t (a, b) VALUES (…, …), which names columns",
        )


def _time(context: Context, catalog: Catalog, part: s.Statement) -> dict[str, Any]:
    """When a statement happens: its AT, else the time of the session, else None."""
    at = part.time if isinstance(part, s.ChangeTable) else None
    time = catalog.settings["time"] if at is None else moment(context, at)
    return {"at": None if time is None else ticks(time), "numbers": isinstance(time, int)}


def _at_time(part: P, at: int | None) -> P:
    """A statement or a query with the time of the statement for `now()` and its like; None: that of the clock."""
    time = datetime.now(UTC) if at is None else _EPOCH + timedelta(microseconds=at)

    def clock(one: s.Part) -> s.Part | None:
        named = clock_of(one) if isinstance(one, s.Call) else one
        if not isinstance(named, s.Column) or named.stream is not None or named.name.text.lower() not in CLOCKS:
            return None
        if named.name.text.lower() == "current_date":
            return s.TypedText("DATE", time.date().isoformat(), at=one.at)
        return s.DateTime(time.replace(tzinfo=None).isoformat(sep=" "), at=one.at)

    return rewritten(part, clock)


def moment(context: Context, part: s.Expression) -> datetime | int:
    """A time that a statement gives: a date, or a number."""
    found = ticks_of(context, part)
    if isinstance(part, (s.Number, s.Unary)):
        return found
    with context.at(part):
        return _EPOCH + timedelta(microseconds=found)


# --- UPDATE and DELETE -----------------------------------------------------------------------------------------------


def updated(context: Context, catalog: Catalog, entry: LiveEntry, part: s.UpdateTable, compute: Compute) -> str:
    """Update the rows for which WHERE is true; those whose values stay the same do not change."""
    live, time = entry.table.live, _time(context, catalog, part)
    part = _at_time(part, time["at"])
    scope = _expressions(context, catalog, entry).scope
    alone = part.source is None and not any(map(_has_query, part.assignments))
    asked = {n: one for n, one in enumerate(part.assignments) if not (alone or _is_own(one.value, scope))}
    entries = [s.Entry(one.value, s.Name(f"{_SET}{n}"), at=one.at) for n, one in asked.items()]
    found = _matched(context, catalog, entry, part, entries, compute)
    places = np.asarray(found[_PLACE], np.int64)
    old = live.rows.take(pa.array(places))
    new, names = old, list[str]()
    for n, assignment in enumerate(part.assignments):
        field = entry.schema[_known(context, entry.schema, assignment.column, entry.name)]
        if field.name in names:
            raise context.error(assignment.column, f"{field.name} is set twice", given=field.name)
        names.append(field.name)
        if n in asked:
            values = _taken(context, assignment.value, found[f"{_SET}{n}"], field)
        else:
            expr = _bound(context, assignment.value, field, _expressions(context, catalog, entry))
            values = _evaluated(context, assignment.value, expr, old, field)
        new = new.set_column(entry.schema.names.index(field.name), field.name, values)
    different = changed(old, new)
    with context.at(part):
        live.change(places[different], new.filter(pa.array(different)), **time)
    return f"{counted(len(places), 'row')} of {entry.name} updated"


def deleted(
    context: Context, catalog: Catalog, entry: LiveEntry, part: s.DeleteFrom | s.Truncate, compute: Compute
) -> str:
    """Delete the rows for which WHERE is true, or all."""
    where, time = part if isinstance(part, s.DeleteFrom) else s.DeleteFrom(part.table), _time(context, catalog, part)
    where = _at_time(where, time["at"])
    places = np.asarray(_matched(context, catalog, entry, where, (), compute)[_PLACE], np.int64)
    with context.at(part):
        entry.table.live.change(places, entry.table.rows().slice(0, 0), **time)
    return f"{counted(len(places), 'row')} of {entry.name} deleted"


def _is_own(value: s.Expression, scope: Scope) -> bool:
    """Whether a value is computed from the row of the table alone."""
    return not _has_query(value) and all(map(scope.knows, columns_of(value)))


def _has_query(part: s.Part) -> bool:
    return any(isinstance(one, s.Query) for one in parts_of(part))


def _matched(
    context: Context, catalog: Catalog, entry: LiveEntry, part: s.UpdateTable | s.DeleteFrom,
    values: Sequence[s.Entry], compute: Compute,
) -> pa.Table:  # fmt: skip
    """The numbers of the rows that a statement is about, each once, and these values for them."""
    rows, where = entry.table.rows(), part.where
    clauses = [*values, *([] if where is None else [where])]
    if part.source is None and not any(map(_has_query, clauses)):
        places = np.arange(rows.num_rows)
        if where is not None:
            predicate = _expressions(context, catalog, entry).predicate(where)
            with context.at(where):
                places = np.flatnonzero(predicate_mask(predicate, rows, entry.schema))
        return pa.table([pa.array(places)], names=[_PLACE])
    for join in part.joins:
        if join.kind in ("right", "full"):
            raise context.error(
                join,
                f"a {join.kind.upper()} JOIN has rows that belong to no row of {entry.name}",
                given=to_sql(join),
                allowed="JOIN, LEFT JOIN, a comma",
                instead="a sub-select with this join",
            )
    name = s.Name(entry.name, quoted=True, at=part.table.at)
    place = s.Entry(s.Column(s.Name(_PLACE), name), s.Name(_PLACE))
    joins = () if part.source is None else (s.Join("cross", part.source, at=part.source.at), *part.joins)
    select = s.Select((place, *values), s.FromItem(name, at=part.table.at), joins, where, distinct=True, at=part.at)
    numbered = StreamEntry(entry.name, Schema((*entry.schema, Field(_PLACE, Type.LONG))), _numbered(rows))
    tables = {key: table for key, table in catalog.tables.items() if key != entry.name}
    over = catalog.with_stream(numbered, tables)
    found = compute(Queries(context, over).query(s.Query(select, at=part.at)), "now").sort_by(_PLACE)
    _check_once(context, entry, part, found)
    return found


def _check_once(context: Context, entry: LiveEntry, part: s.UpdateTable | s.DeleteFrom, found: pa.Table) -> None:
    """Refuse several values for one row: which of them would it be?"""
    places = np.asarray(found[_PLACE])
    twice = np.flatnonzero(places[1:] == places[:-1])
    if len(twice):
        row = entry.table.rows().slice(int(places[twice[0]]), 1).to_pylist()[0]
        given = ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in row.items())
        raise context.error(
            part.source or part,
            f"several rows match a row of {entry.name}, with different values for it",
            given=given,
            allowed="one row for each, or rows with equal values",
            instead="SET column = (SELECT max(…) FROM … WHERE …)",
        )


def _numbered(rows: pa.Table) -> Source:
    """The rows of a table with their numbers, as events that always hold."""
    count = rows.num_rows
    table = rows.append_column(_PLACE, pa.array(np.arange(count)))
    times = {"kind": ["insert"] * count, "le": [BEGINNING] * count, "re": [INFINITY] * count}
    for place, (name, values) in enumerate(times.items()):
        kind = pa.string() if name == "kind" else pa.int64()
        table = table.add_column(place, name, pa.array(values, kind))
    return events(table).node  # type: ignore[return-value]


# --- values ----------------------------------------------------------------------------------------------------------


def _expressions(
    context: Context, catalog: Catalog, entry: LiveEntry | None, clock: tuple[Field, ...] = ()
) -> Expressions:
    """The binder of expressions over the columns of a table, or over none but a `clock`."""
    schema = entry.schema if entry is not None else Schema(clock)
    names = {} if clock else {name: name for name in schema.names}
    times: Mapping[Any, str] = {"arrival": clock[0].name} if clock else {}
    relation = Relation(entry.name if entry is not None else "", names, times=times)
    return Expressions(context, Scope(context, (relation,)), schema, catalog.known)


def _constant(context: Context, catalog: Catalog, value: s.Expression, field: Field) -> Expr:
    """A value for a column, without other columns."""
    return _bound(context, value, field, _expressions(context, catalog, None))


def _bound(context: Context, value: s.Expression, field: Field, expressions: Expressions) -> Expr:
    """A value for a column: as it is if its type fits, a literal text or NULL as the column's type."""
    if isinstance(value, s.Value) and value.value is None:
        return lit(None).cast(field.type)
    expr = expressions.bind(value)
    exact = expr.bind(expressions.schema).exact
    if field.type.is_decimal and exact is not None:  # a number as it is written
        expr = lit(exact)
    found = expr.type(expressions.schema)
    if isinstance(value, s.Text) and not field.type.is_text:
        return expr.cast(field.type)
    if not _assignable(found, field.type):
        raise _unfit(context, value, f"{to_sql(value)}, of type {found.value}", field)
    return expr


def _assignable(found: Type, wanted: Type) -> bool:
    """Whether values of a type may be stored in a column: also whole numbers in a narrower one, if they fit."""
    exact = found.is_decimal or found.is_integer
    return found is wanted or widens(found, wanted) or (exact and (wanted.is_integer or wanted.is_decimal))


def _unfit(context: Context, part: s.Part, given: str, field: Field) -> Exception:
    return context.error(
        part,
        f"the column {field.name} has the type {field.type.value}",
        given=given,
        allowed=field.type.value,
        instead=f"CAST(… AS {field.type.value})",
    )


def _evaluated(context: Context, part: s.Expression, expr: Expr, rows: pa.Table, field: Field) -> pa.Array:
    """The values of an expression, in the type of a column."""
    with context.at(part):
        values = evaluate(expr, rows)
    if isinstance(part, s.Text) and not field.type.is_text and values.null_count:
        raise _unfit(context, part, to_sql(part), field)
    return _cast(context, part, values, field)


def _taken(context: Context, part: s.Part, values: pa.Array, field: Field) -> pa.Array:
    """The values of a query, in the type of a column."""
    found = Schema.of(pa.schema([(field.name, values.type)]))[field.name].type
    if not _assignable(found, field.type):
        raise _unfit(context, part, f"{found.value}", field)
    return _cast(context, part, values, field)


def _cast(context: Context, part: s.Part, values: pa.Array, field: Field) -> pa.Array:
    try:
        return values.cast(field.type.arrow)
    except pa.ArrowInvalid as error:
        raise context.error(
            part, f"a value does not fit the column {field.name}", given=str(error), allowed=field.type.value
        ) from error
