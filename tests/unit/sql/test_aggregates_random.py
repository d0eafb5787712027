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
from headrace.sql.aggregates import SqlAggregate, SqlFolder, SqlStepper, modules_of
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql

# A seed says nothing by its size: there is nothing to shrink to.
QUICK = settings(deadline=None, phases=[Phase.explicit, Phase.generate])

#: Columns by table: one that often has one row, one with a key, one that is a list; of whole numbers and of others.
TABLES = {
    "state": {"a": "LONG", "b": "DOUBLE"},
    "seen": {"k": "INT", "n": "LONG"},
    "log": {"x": "INT", "y": "REAL"},
}
WHOLE, ANY = frozenset({"LONG", "INT"}), frozenset({"LONG", "INT", "DOUBLE", "REAL"})
ARGUMENTS = {"v": "INT", "w": "DOUBLE"}
#: The tuples of a window, as a table and as the one that leaves.
INWINDOW = {"p": "INT", "q": "DOUBLE"}
OLDEST = {"oldest().p": "INT", "oldest().q": "DOUBLE"}
NULL = s.Call((s.Name("nullif"),), (s.Number(1), s.Number(1)))
Columns = dict[str, str]


def column(name: str) -> s.Expression:
    stream, _, plain = name.rpartition(".")
    if stream == "oldest()":
        return s.Member(s.Call((s.Name("oldest"),)), s.Name(plain))
    return s.Column(s.Name(plain), s.Name(stream) if stream else None)


def stored(kind: str, value: s.Expression) -> s.Expression:
    """A value for a column: what may be wider is cut down by a CAST, which a store does not do unasked."""
    return s.Cast(value, s.Name("INT")) if kind == "INT" else value


class Writer:
    """Writes aggregates at random that make sense."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        #: The tables that SELECT may be about.
        self.read = dict(TABLES)

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
        table = self.one(*self.read)
        columns = {**outer, **self.read[table]}
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
        names = [name for name, kind in self.read[table].items() if kind in kinds]
        if not names or self.maybe(0.3):
            return s.Call((s.Name("count"),), (s.Star(),))
        if self.maybe(0.2):
            return s.Call((s.Name("count"),), (column(self.one(*names)),), distinct=True)
        function = self.one("sum", "min", "max", "first", "last", *(["avg"] if kinds == ANY else []))
        return s.Call((s.Name(function),), (column(self.one(*names)),))

    def of(self, kind: str, columns: Columns) -> s.Expression:
        return stored(kind, self.number(columns, WHOLE if kind in WHOLE else ANY, 2))

    def statement(self, arguments: Columns, returns: tuple[str, ...]) -> s.BodyStatement:
        table = self.one(*TABLES)
        inside = {**arguments, **TABLES[table]}
        kind = self.one("insert", "select", "update", "update", "delete", "return")
        if kind == "update":
            names = self.random.sample(sorted(TABLES[table]), self.one(1, 2))
            news = tuple(s.Assignment(s.Name(name), self.of(TABLES[table][name], inside)) for name in names)
            return s.UpdateRows(s.Name(table), news, self.where(inside))
        if kind == "delete":
            gone = self.one(*self.read)
            return s.DeleteRows(s.Name(gone), self.where({**arguments, **self.read[gone]}))
        target, kinds = ("RETURN", returns) if kind == "return" else (table, tuple(TABLES[table].values()))
        if kind == "insert":
            rows = [s.ValuesRow(tuple(self.of(one, arguments) for one in kinds)) for _ in range(self.one(1, 1, 2))]
            return s.InsertRows(s.Name(target), tuple(rows))
        make = self.one(self.plain_select, self.plain_select, self.join, self.grouping)
        return s.InsertSelected(s.Name(target), make(kinds, arguments))

    def plain_select(self, kinds: tuple[str, ...], arguments: Columns) -> s.LocalSelect:
        source = self.one(*self.read)
        columns = {**arguments, **self.read[source]}
        entries = tuple(s.Entry(self.of(one, columns)) for one in kinds)
        limit = self.one(None, None, 0, 1, 2)
        where, keys = self.where(columns), self.keys(columns, inside=True)
        distinct = self.maybe(0.3)
        return s.LocalSelect(entries, s.Name(source), None, where, keys, limit, distinct=distinct)

    def join(self, kinds: tuple[str, ...], arguments: Columns) -> s.LocalSelect:
        """Two or three tables side by side, which may be the same one."""
        tables = [self.one(*self.read) for _ in range(self.one(2, 2, 3))]
        named = [(s.Name(table), s.Name(f"t{place}")) for place, table in enumerate(tables)]
        columns = dict(arguments)
        for table, alias in named:
            columns |= {f"{alias.text}.{name}": kind for name, kind in self.read[table.text].items()}
        joins = []
        for place, (table, alias) in enumerate(named[1:], 1):
            mine, before = (self.one(*self.read[tables[at]]) for at in (place, place - 1))
            equal = s.Binary("=", column(f"t{place}.{mine}"), column(f"t{place - 1}.{before}"))
            joins.append(s.LocalJoin(table, alias, equal if self.maybe(0.7) else None))
        entries = tuple(s.Entry(self.of(one, columns)) for one in kinds)
        where = self.condition(columns, 1) if self.maybe() else None
        limit = self.one(None, 5, 5)
        return s.LocalSelect(
            entries, *named[0], where, self.keys(columns, inside=False), limit, tuple(joins), distinct=self.maybe(0.2)
        )

    def grouping(self, kinds: tuple[str, ...], arguments: Columns) -> s.LocalSelect:
        """A row for each group, of one table."""
        source = self.one(*self.read)
        columns = {**arguments, **self.read[source]}
        keys = tuple(column(name) for name in self.random.sample(sorted(self.read[source]), self.one(1, 2)))
        if self.maybe(0.3):
            keys = (self.number(columns, ANY, 1, inside=False),)
        fixed = {name: kind for name, kind in self.read[source].items() if column(name) in keys}
        values = [self.grouped(source, {**arguments, **fixed}, one) for one in kinds]
        having = s.Binary(">", self.fold(source, ANY), s.Number(1)) if self.maybe(0.4) else None
        order = (s.OrderKey(self.fold(source, ANY), self.maybe()),) if self.maybe(0.4) else ()
        where = self.where(columns)
        limit = self.one(None, None, 2)
        entries = tuple(map(s.Entry, values))
        return s.LocalSelect(entries, s.Name(source), None, where, order, limit, (), keys, having, self.maybe(0.2))

    def grouped(self, source: str, fixed: Columns, kind: str) -> s.Expression:
        kinds = WHOLE if kind in WHOLE else ANY
        own = {name: one for name, one in fixed.items() if name not in self.read[source] or self.maybe(0.8)}
        return stored(kind, self.fold(source, kinds) if self.maybe() else self.number(own, kinds, 1, inside=False))

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
        every = [s.LocalSelect((s.Entry(s.Star()),), s.Name(table)) for table in self.read]
        every += [self.grouping(("LONG", "DOUBLE"), {}), self.join(("LONG", "DOUBLE"), {})]
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

    def window_aggregate(self) -> s.CreateAggregate:
        """One for windows; it may look at the tuples in them as a table, or only at those that leave."""
        returns = ("LONG", "DOUBLE")
        looks = self.maybe()
        if looks:
            self.read["inwindow"] = INWINDOW
        here = {**ARGUMENTS, **OLDEST} if looks and self.maybe() else ARGUMENTS
        first = s.InsertRows(s.Name("state"), (s.ValuesRow((column("v"), column("w"))),))
        stages = [
            s.Stage(("initialize",), (*([first] if self.maybe(0.7) else []), *self.several(2, here, returns))),
            s.Stage(("iterate",), (*self.several(3, here, returns), *self.answers(value=False))),
            s.Stage(("expire",), (*self.several(3, OLDEST, returns), *(self.answers(value=False)[:1]))),
        ]
        tables = (*map(self.table, TABLES), s.LocalTable(s.Name("inwindow"), typed(INWINDOW)))
        gives = typed({"p": "LONG", "q": "DOUBLE"})
        stages = stages[: self.one(2, 3, 3, 3)]
        head = (s.Name("f"), typed(ARGUMENTS))
        return s.CreateAggregate(*head, columns=gives, tables=tables, stages=tuple(stages), window=True)


def typed(columns: Columns) -> tuple[s.TypedColumn, ...]:
    return tuple(s.TypedColumn(s.Name(name), s.Name(kind)) for name, kind in columns.items())


def same(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and bool(a == b)


@pytest.mark.slow
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


# ---- windows


class Driver:
    """Lets tuples come into a window and leave it, and saves the state and goes on from there now and then."""

    def __init__(self, folder: SqlFolder, random: Random) -> None:
        self.folder, self.random = folder, random
        self.stepper: SqlStepper = folder.make()
        self.window: list[tuple[int, tuple[Any, ...]]] = []

    def arrive(self, number: int, item: tuple[Any, ...]) -> list[Any]:
        if self.random.random() < 0.3:
            self.stepper = self.folder.load(self.stepper.save())
        self.window.append((number, item))
        return self.stepper.arrive(*item, mark=number)

    def numbers(self) -> list[int]:
        """Which tuples are in the window."""
        if self.folder.keeps_window:
            return [row[-1] for row in self.stepper.inwindow]
        return [number for number, _ in self.window]

    def expire(self) -> list[Any]:
        """The oldest leaves."""
        if self.folder.keeps_window:
            return self.stepper.expire()
        _, item = self.window.pop(0)
        return self.stepper.expire(*item)


def windowed(seed: int) -> tuple[Writer, Direct, Any, str]:
    writer = Writer(seed)
    tree = writer.window_aggregate()
    text = to_sql(tree)
    assert parse(text).statements == (tree,)
    module = modules_of(text)["f"]
    assert module.folder("rows") == module.folder("range")
    event(f"keeps its window: {module.definition.keeps_window}")
    return writer, Direct(tree), module, text


@pytest.mark.slow
@QUICK
@given(st.integers(0, 2**64))
def test_window_versions_are_what_the_text_says(seed: int):
    writer, direct, module, text = windowed(seed)
    items = writer.items() + writer.items()
    times = sorted(writer.random.choices(range(12), k=len(items)))
    size = writer.one(0, 1, 2, 3)
    frame = writer.one("rows", "ticks")
    driver = Driver(module.folder("rows"), writer.random)
    found = []
    for number, item in enumerate(items):
        for old in driver.numbers():
            if (number - old if frame == "rows" else times[number] - times[old]) > size and old in driver.numbers():
                driver.expire()
        found.append(driver.arrive(number, item))
    assert same(found, direct.over(items, times, **{frame: size})), text
    assert same(module.compiled.rows(items), [row for step in direct.steps(items) for row in step]), text


@pytest.mark.slow
@QUICK
@given(st.integers(0, 2**64))
def test_active_expiration_is_what_the_text_says(seed: int):
    writer, direct, module, text = windowed(seed)
    items = writer.items() + writer.items()
    times = sorted(writer.random.choices(range(12), k=len(items)))
    ticks = writer.one(0, 1, 2, 5)
    driver = Driver(module.folder("range"), writer.random)
    found: list[tuple[int, int, Any]] = []
    for now in range(12 + ticks):
        come = [number for number, time in enumerate(times) if time == now]
        found += [(number, now, driver.arrive(number, items[number])) for number in come]
        while (there := driver.numbers()) and times[there[0]] + ticks == now:
            found.append((there[0], now, driver.expire()))
    assert same(found, direct.active(items, times, ticks)), text


@pytest.mark.slow
@QUICK
@given(st.integers(0, 2**64))
def test_over_all_that_precedes_the_end_comes_after_each_tuple(seed: int):
    writer = Writer(seed)
    tree, items = writer.aggregate(), writer.items()
    folder = modules_of(to_sql(tree))["f"].folder("unbounded")
    assert folder is not None
    driver = Driver(folder, writer.random)
    steps = Direct(tree).unbounded(items)
    bare = folder.definition.value
    expected = [[row[0] if bare else row for row in step] for step in steps]
    assert same([driver.arrive(number, item) for number, item in enumerate(items)], expected), to_sql(tree)
