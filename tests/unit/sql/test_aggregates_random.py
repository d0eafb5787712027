"""Aggregates at random: what is compiled gives what a plain reading of the text gives."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st
from tests.fixtures.direct_aggregates import Direct

from headrace.errors import ModuleFailed
from headrace.sql import syntax as s
from headrace.sql.aggregates import SqlAggregate, modules_of
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql

# A seed says nothing by its size: there is nothing to shrink to.
QUICK = settings(max_examples=150, deadline=None, phases=[Phase.explicit, Phase.generate])

#: Columns by table: one that often has one row, one with a key, one that is a list; of whole numbers and of others.
TABLES = {
    "state": {"a": "LONG", "b": "DOUBLE"},
    "seen": {"k": "INT", "n": "LONG"},
    "log": {"x": "INT", "y": "REAL"},
}
WHOLE, ANY = frozenset({"LONG", "INT"}), frozenset({"LONG", "INT", "DOUBLE", "REAL"})
ARGUMENTS = {"v": "INT", "w": "DOUBLE"}
NULL = s.Call((s.Name("nullif"),), (s.Number(1), s.Number(1)))
Columns = dict[str, str]


def column(name: str) -> s.Expression:
    stream, _, plain = name.rpartition(".")
    return s.Column(s.Name(plain), s.Name(stream) if stream else None)


class Writer:
    """Writes aggregates at random that make sense."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def one(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def maybe(self, often: float = 0.5) -> bool:
        return self.random.random() < often

    def number(self, columns: Columns, kinds: frozenset[str], depth: int, *, inside: bool = True) -> s.Expression:
        """An expression of numbers over some columns; sub-selects stand `inside`."""
        known = sorted(name for name, kind in columns.items() if kind in kinds)
        kind = self.one("leaf", "leaf", "binary", "minus", "coalesce", "case", "select") if depth else "leaf"
        below = partial(self.number, columns, kinds, depth - 1, inside=inside)
        if kind == "binary":
            return s.Binary(self.one(*("+-*%/" if kinds == ANY else "+-*%")), below(), below())
        if kind == "minus" and known:
            return s.Unary("-", column(self.one(*known)))
        if kind == "coalesce":
            return s.Call((s.Name("coalesce"),), (below(), below()))
        if kind == "case":
            return s.Case(((self.condition(columns, depth - 1, inside=inside), below()),), below())
        if kind == "select" and inside:
            return self.scalar(columns, kinds)
        if known and self.maybe(0.7):
            return column(self.one(*known))
        return s.Number(self.one(0, 1, 2, 3, *([0.5, 0.1, 1e300] if kinds == ANY else []))) if self.maybe(0.8) else NULL

    def condition(self, columns: Columns, depth: int, *, inside: bool = True) -> s.Expression:
        value = partial(self.number, columns, ANY, max(depth - 1, 0), inside=inside)
        below = partial(self.condition, columns, depth - 1, inside=inside)
        kind = self.one("compare", "compare", "null", "in", "between", *(["and", "not"] if depth else []))
        if kind == "and":
            return s.Binary(self.one("AND", "OR"), below(), below())
        if kind == "not":
            return s.Unary("NOT", below())
        if kind == "null":
            return s.IsNull(value(), self.maybe())
        if kind == "in":
            return s.In(value(), (value(), value()), self.maybe())
        if kind == "between":
            return s.Between(value(), value(), value(), self.maybe())
        return s.Binary(self.one("=", "<>", "<", "<=", ">", ">="), value(), value())

    def where(self, columns: Columns, depth: int = 1, *, inside: bool = True) -> s.Expression | None:
        if "k" in columns and self.maybe(0.3):
            by_key = s.Binary("=", column("k"), self.number(columns, WHOLE, 0, inside=False))
            more = self.maybe()
            return s.Binary("AND", by_key, self.condition(columns, 0, inside=inside)) if more else by_key
        return self.condition(columns, depth, inside=inside) if self.maybe() else None

    def scalar(self, outer: Columns, kinds: frozenset[str]) -> s.ScalarSelect:
        """A sub-select that gives one value at most."""
        table = self.one(*TABLES)
        columns = within(table, outer)
        where = self.where(columns, 0, inside=False)
        if self.maybe():
            value = self.number(columns, kinds, 0, inside=False)
            keys = self.keys(columns, inside=False)
            return s.ScalarSelect(s.LocalSelect((s.Entry(value),), s.Name(table), None, where, keys, 1))
        return s.ScalarSelect(s.LocalSelect((s.Entry(self.fold(table, kinds)),), s.Name(table), None, where))

    def keys(self, columns: Columns, *, inside: bool) -> tuple[s.OrderKey, ...]:
        some = range(self.one(0, 1, 2))
        return tuple(s.OrderKey(self.number(columns, ANY, 0, inside=inside), self.maybe()) for _ in some)

    def fold(self, table: str, kinds: frozenset[str]) -> s.Expression:
        """An aggregate over a table."""
        names = [name for name, kind in TABLES[table].items() if kind in kinds]
        if not names or self.maybe(0.3):
            return s.Call((s.Name("count"),), (s.Star(),))
        function = self.one("sum", "min", "max", *(["avg"] if kinds == ANY else []))
        return s.Call((s.Name(function),), (column(self.one(*names)),))

    def of(self, kind: str, columns: Columns) -> s.Expression:
        return self.number(columns, WHOLE if kind in WHOLE else ANY, 2)

    def statement(self, arguments: Columns, returns: tuple[str, ...]) -> s.BodyStatement:
        table = self.one(*TABLES)
        inside = within(table, arguments)
        kind = self.one("insert", "select", "update", "update", "delete", "return")
        if kind == "update":
            names = self.random.sample(sorted(TABLES[table]), self.one(1, 2))
            news = tuple(s.Assignment(s.Name(name), self.of(TABLES[table][name], inside)) for name in names)
            return s.UpdateRows(s.Name(table), news, self.where(inside))
        if kind == "delete":
            return s.DeleteRows(s.Name(table), self.where(inside))
        target, kinds = ("RETURN", returns) if kind == "return" else (table, tuple(TABLES[table].values()))
        if kind == "insert":
            rows = [s.ValuesRow(tuple(self.of(one, arguments) for one in kinds)) for _ in range(self.one(1, 1, 2))]
            return s.InsertRows(s.Name(target), tuple(rows))
        source = self.one(*TABLES)
        columns = within(source, arguments)
        entries = tuple(s.Entry(self.of(one, columns)) for one in kinds)
        limit = self.one(None, None, 0, 1, 2)
        where, keys = self.where(columns), self.keys(columns, inside=True)
        return s.InsertSelected(s.Name(target), s.LocalSelect(entries, s.Name(source), None, where, keys, limit))

    def several(self, most: int, arguments: Columns, returns: tuple[str, ...]) -> list[s.BodyStatement]:
        return [self.statement(arguments, returns) for _ in range(self.random.randint(0, most))]

    def table(self, name: str) -> s.LocalTable:
        columns = tuple(s.TypedColumn(s.Name(one), s.Name(kind)) for one, kind in TABLES[name].items())
        rows = (s.ValuesRow((s.Number(1), s.Number(2))),) if self.maybe(0.3) else ()
        return s.LocalTable(s.Name(name), columns, (s.Name("k"),) if name == "seen" else (), rows)

    def answers(self, *, value: bool) -> list[s.BodyStatement]:
        """One value, or all that is in the tables."""
        if value:
            one = s.LocalSelect((s.Entry(self.fold("log", WHOLE)),), s.Name("log"))
            return [s.InsertSelected(s.Name("RETURN"), one)]
        every = [s.LocalSelect((s.Entry(s.Star()),), s.Name(table)) for table in TABLES]
        return [s.InsertSelected(s.Name("RETURN"), one) for one in every]

    def items(self) -> list[tuple[Any, ...]]:
        numbers = (None, 0, 1, 1, 2, 2**31 - 1)
        return [
            (self.one(*numbers), self.one(None, 0.0, 1.5, -2.0, math.nan, math.inf)) for _ in range(self.one(*range(7)))
        ]

    def aggregate(self) -> s.CreateAggregate:
        value = self.maybe(0.2)
        returns = ("DOUBLE",) if value else ("LONG", "DOUBLE")
        first = s.InsertRows(s.Name("state"), (s.ValuesRow((column("v"), column("w"))),))
        stages = [
            s.Stage(("initialize",), (*([first] if self.maybe(0.7) else []), *self.several(2, ARGUMENTS, returns))),
            s.Stage(("iterate",), tuple(self.several(3, ARGUMENTS, returns))),
        ]
        if self.maybe(0.2):
            stages = [s.Stage(("initialize", "iterate"), tuple(self.several(3, ARGUMENTS, returns)))]
        stages.append(s.Stage(("terminate",), (*self.several(1, {}, returns), *self.answers(value=value))))
        gives: dict[str, Any] = (
            {"returns": s.Name("DOUBLE")} if value else {"columns": typed({"p": "LONG", "q": "DOUBLE"})}
        )
        tables = tuple(map(self.table, TABLES))
        return s.CreateAggregate(s.Name("f"), typed(ARGUMENTS), **gives, tables=tables, stages=tuple(stages))


def typed(columns: Columns) -> tuple[s.TypedColumn, ...]:
    return tuple(s.TypedColumn(s.Name(name), s.Name(kind)) for name, kind in columns.items())


def within(table: str, outer: Columns) -> Columns:
    """What can be named in a SELECT over a table: its own columns, then those around it."""
    return {**outer, **TABLES[table]}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and bool(a == b)


@QUICK
@given(st.integers(0, 2**64))
def test_compiled_is_what_the_text_says(seed: int):
    writer = Writer(seed)
    tree, items = writer.aggregate(), writer.items()
    text = to_sql(tree)
    assert parse(text).statements == (tree,)
    module = modules_of(text)["f"]
    for table in module.definition.tables:
        event(f"{table.name} {module.definition.form(table)}")
    steps = Direct(tree).steps(items)
    bare = isinstance(module, SqlAggregate)
    rows = [row[0] if bare else row for step in steps for row in step]
    assert same(module.compiled.rows(items), rows), text
    if bare:
        last = [row[0] for step in steps[-2:] for row in step]
        with nullcontext() if len(last) < 2 else pytest.raises(ModuleFailed):
            assert same(module.compiled.value(items), last[0] if last else None), text
