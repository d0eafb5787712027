"""Tables of many rows in native code: what Python does with them, and what a plain reading of the text says.

A text of native code is Python as well: most bodies here are not compiled for the machine, which takes seconds, but run
as they are, with numbers that behave as those of the machine do.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from random import Random
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st
from tests.unit.sql.test_aggregates_native import Item, assert_direct, assert_law, native
from tests.unit.sql.test_aggregates_random import (
    ARGUMENTS,
    INWINDOW,
    OLDEST,
    TABLES,
    WHOLE,
    Columns,
    Writer,
    column,
    stored,
    typed,
)

from headrace import stdlib
from headrace.plan.ordered import Frame
from headrace.sql import syntax as s
from headrace.sql.aggregates import modules_of
from headrace.sql.aggregates.native import aggregate as native_module
from headrace.sql.aggregates.native.aggregate import Native, native_of
from headrace.sql.aggregates.native.rows import ROW_FUNCTIONS
from headrace.sql.aggregates.native.scalars import CONSTANTS, FUNCTIONS
from headrace.sql.printer import to_sql

MANY = settings(
    max_examples=max(5, settings().max_examples // 7), deadline=None, phases=[Phase.explicit, Phase.generate]
)


# ---- native code as Python


def _int64(value: Any) -> Any:
    return np.int64((int(value) + 2**63) % 2**64 - 2**63)


def _empty(count: int, kind: Any) -> Any:
    return np.full(int(count), 77, np.int64 if kind is _int64 else kind)  # what is never written may be anything


NUMBERS = SimpleNamespace(**{name: getattr(np, name) for name in dir(np) if not name.startswith("_")})
NUMBERS.int64, NUMBERS.empty = _int64, _empty
NUMBERS.uint64 = lambda value: np.uint64(int(value) % 2**64)


def interpreted(made: Native) -> Any:
    """The function of a text, without a compiler."""
    space: dict[str, Any] = {**CONSTANTS, "np": NUMBERS}
    for name, function in (FUNCTIONS | ROW_FUNCTIONS).items():
        space[name] = FunctionType(function.__code__, {**function.__globals__, "np": NUMBERS}, name)
    for function in FUNCTIONS | ROW_FUNCTIONS:
        space[function].__globals__.update(space)
    exec(compile(made.source, "", "exec"), space)  # noqa: S102 - our own text
    return space[made.source.removeprefix("def ").partition("(")[0]]


@pytest.fixture
def as_python(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(Native, "code", property(interpreted))
    monkeypatch.setattr(native_module, "MOST_LINES", 10_000)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        yield


# ---- bodies at random


class TableWriter(Writer):
    """Writes aggregates with tables of many rows that native code is made of."""

    def keys(self, columns: Columns, *, inside: bool) -> tuple[s.OrderKey, ...]:  # noqa: ARG002 - as its base
        return ()

    def fold(self, table: str, kinds: frozenset[str]) -> s.Expression:
        names = [name for name, kind in self.read[table].items() if kind in kinds]
        if not names or self.maybe(0.2):
            return s.Call((s.Name("count"),), (s.Star(),))
        name = self.one(*names)
        whole = self.read[table][name] in WHOLE
        function = self.one("min", "max", "first", "last", "count", *(["sum", "sum"] if whole else []))
        return s.Call((s.Name(function),), (column(name),))

    def scalar(self, outer: Columns, kinds: frozenset[str]) -> s.ScalarSelect:
        """It may give several rows, which is a failure."""
        found = super().scalar(outer, kinds)
        fails = self.fails and found.select.limit is not None and self.maybe(0.2)
        return s.ScalarSelect(replace(found.select, limit=None)) if fails else found

    def grouping(self, kinds: tuple[str, ...], arguments: Columns) -> s.LocalSelect:
        """One row of all."""
        table = self.one(*self.read)
        entries = tuple(s.Entry(stored(kind, self.fold(table, WHOLE))) for kind in kinds)
        having = s.Binary(">", self.fold(table, WHOLE), s.Number(1)) if self.maybe(0.4) else None
        where = self.where({**arguments, **self.read[table]})
        return s.LocalSelect(entries, s.Name(table), None, where, having=having)

    def plain_select(self, kinds: tuple[str, ...], arguments: Columns) -> s.LocalSelect:
        return replace(super().plain_select(kinds, arguments), distinct=False)

    def join(self, kinds: tuple[str, ...], arguments: Columns) -> s.LocalSelect:
        return replace(super().join(kinds, arguments), distinct=False)

    def tables(self, *, window: bool) -> tuple[s.LocalTable, ...]:
        found = [replace(self.table(name), limit=self.one(None, 3, 40)) for name in TABLES]
        return (*found, *([s.LocalTable(s.Name("inwindow"), typed(INWINDOW))] if window else []))

    def native(self, *, window: bool, value: bool, fails: bool) -> s.CreateAggregate:
        self.fails = fails
        returns = ("DOUBLE",) if value else ("LONG", "DOUBLE")
        first = s.InsertRows(s.Name("state"), (s.ValuesRow((column("v"), column("w"))),))
        both = self.maybe(0.3)
        body = (*self.several(3, ARGUMENTS, returns), *self.answers(value=value))
        begin = body if both else (*([first] if self.maybe() else []), *self.several(2, ARGUMENTS, returns))
        stages = [s.Stage(("initialize", "iterate"), body)] if both else [
            s.Stage(("initialize",), begin), s.Stage(("iterate",), body),
        ]  # fmt: skip
        if window:
            stages.append(s.Stage(("expire",), (self.statement(OLDEST, returns), *self.several(2, OLDEST, returns))))
        else:
            stages.append(s.Stage(("terminate",), tuple(self.several(2, {}, returns))))
        gives: dict[str, Any] = (
            {"returns": s.Name("DOUBLE")} if value else {"columns": typed({"p": "LONG", "q": "DOUBLE"})}
        )
        tables = self.tables(window=window)
        if not fails:
            tables = tuple(replace(one, limit=None) for one in tables)
        head = (s.Name("f"), typed(ARGUMENTS))
        return s.CreateAggregate(*head, **gives, tables=tables, stages=tuple(stages), window=window)

    def tuples(self, most: int) -> list[Item]:
        return [item for _ in range(self.random.randint(0, most)) for item in self.items()]


def assert_windows(seed: int, *, fails: bool) -> None:
    writer = TableWriter(seed)
    tree = writer.native(window=True, value=writer.maybe(0.3), fails=fails)
    text = to_sql(tree)
    for table in native(text).definition.tables:
        event(f"{table.name} {native(text).definition.form(table)}")
    groups = [writer.tuples(3) for _ in range(3)]
    times = sorted(writer.random.choices(range(12), k=len(groups[0])))
    frame = writer.one(Frame(rows=writer.one(0, 1, 3)), Frame(range=writer.one(0, 1, 4)))
    whole = assert_law(seed, text, frame, groups)
    event(f"fails: {any('line' in one for one in whole)}")
    if not fails:
        assert_direct(tree, frame, times, groups[0])
    assert_law(seed, text, Frame(range=writer.one(0, 1, 4)), groups, active=True)


def assert_unbounded(seed: int, *, fails: bool) -> None:
    writer = TableWriter(seed)
    tree = writer.native(window=False, value=writer.maybe(0.3), fails=fails)
    groups = [writer.tuples(3) for _ in range(3)]
    assert_law(seed, to_sql(tree), Frame(), groups)
    if not fails:
        assert_direct(tree, Frame(), list(range(len(groups[0]))), groups[0])


SEEDS = st.integers(0, 2**64)


@pytest.mark.slow
@pytest.mark.usefixtures("as_python")
@pytest.mark.parametrize("fails", [False, True])
@MANY
@given(SEEDS)
def test_over_windows(fails: bool, seed: int):
    assert_windows(seed, fails=fails)


@pytest.mark.slow
@pytest.mark.usefixtures("as_python")
@pytest.mark.parametrize("fails", [False, True])
@MANY
@given(SEEDS)
def test_over_all_that_precedes(fails: bool, seed: int):
    assert_unbounded(seed, fails=fails)


def test_compiled():
    """The first that is short, of each kind."""
    for fails in (False, True):
        seeds = range(10_000 * fails, 10_000 * (fails + 1))
        assert_unbounded(next(seed for seed in seeds if _short(seed, fails=fails)), fails=fails)


def _short(seed: int, *, fails: bool) -> bool:
    writer = TableWriter(seed)
    text = to_sql(writer.native(window=False, value=writer.maybe(0.3), fails=fails))
    found = native_of(modules_of(text)["f"].definition, terminates=True)
    return isinstance(found, Native) and found.source.count("\n") < 250 and "row_of" in found.source


# ---- the library


@pytest.mark.parametrize("name", ["frequent_items", "approx_ones"])
def test_the_library_runs_natively(name: str):
    random = Random(name)
    text = stdlib.LIBRARY[name].text.replace(f" {name}(", " f(")
    items: list[list[Item]] = [[(random.choice([None, 1, 2, 2, 700]), 0.3) for _ in range(60)] for _ in range(3)]
    if name == "approx_ones":
        items = [[(random.random() < 0.5, 20, 2) for _ in range(60)] for _ in range(3)]
    assert_law(1, text, Frame(), items)
    if name == "frequent_items":
        assert len(assert_law(1, text, Frame(rows=9), items)) > 20


# ---- tables


def test_a_key_may_be_null_and_nan_and_rows_keep_their_order():
    text = """
    CREATE AGGREGATE f(x DOUBLE): (x DOUBLE, n INT) {
        TABLE t(x DOUBLE, n INT, KEY (x));
        INITIALIZE: ITERATE: {
            INSERT INTO t VALUES (x, 1 + coalesce((SELECT n FROM t AS old WHERE old.x = f.x), 0));
            DELETE FROM t WHERE t.x = 7.0;
            INSERT INTO RETURN SELECT x, n FROM t;
        }
    }
    """
    values = [None, float("nan"), 0.0, -0.0, 7.0, float("nan"), None, 1.0]
    whole = assert_law(1, text, Frame(), [[(value,) for value in values]])
    last = [one.rpartition(", (")[2] for one in whole[-4:]]
    assert last == ["None, 1))", "nan, 2))", "-0.0, 2))", "1.0, 1))"]


@pytest.mark.slow
def test_many_rows_come_and_go():
    text = """
    CREATE WINDOW AGGREGATE f(x LONG): (n LONG, low LONG, high LONG) {
        TABLE inwindow(x LONG);
        TABLE t(x LONG, n LONG, KEY (x));
        INITIALIZE: ITERATE: {
            INSERT INTO t SELECT f.x, coalesce(max(n), 0) + 1 FROM t WHERE t.x = f.x;
            INSERT INTO RETURN SELECT count(*), min(x), max(x) FROM t;
        }
        EXPIRE: {
            UPDATE t SET n = n - 1 WHERE t.x = oldest().x;
            DELETE FROM t WHERE t.x = oldest().x AND n = 0;
        }
    }
    """
    random = Random(5)
    items: list[list[Item]] = [[(random.randrange(size),) for _ in range(3000)] for size in (5, 800, 10**12)]
    assert_law(5, text, Frame(rows=500), items)


def test_rows_that_a_statement_makes_are_not_seen_by_it():
    text = """
    CREATE AGGREGATE f(x LONG): (n LONG, x LONG) {
        TABLE t(x LONG); TABLE u(x LONG, KEY (x));
        INITIALIZE: { INSERT INTO t VALUES (x), ((SELECT count(*) FROM t)); INSERT INTO u VALUES (x); }
        ITERATE: {
            INSERT INTO t SELECT x + (SELECT count(*) FROM t AS all_of) FROM t LIMIT 2;
            UPDATE t SET x = x + (SELECT max(x) FROM t AS other);
            DELETE FROM t WHERE x = (SELECT min(x) FROM t AS other);
            INSERT INTO u SELECT x + 1 FROM u;
            UPDATE u SET x = x % 3;
            INSERT INTO RETURN SELECT 1, x FROM t;
            INSERT INTO RETURN SELECT 2, x FROM u;
        }
    }
    """
    assert_law(5, text, Frame(), [[(n,) for n in range(6)], [(-1,), (5,)]])
