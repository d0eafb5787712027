"""Native code gives what Python gives, bit by bit, however the tuples are split."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st
from tests.fixtures.direct_aggregates import Direct
from tests.unit.sql.test_aggregates_random import ARGUMENTS, INWINDOW, OLDEST, Columns, Writer, column, typed

import headrace as hr
from headrace.expr import Call, Case, Cast, Expr, col, lit
from headrace.modules.folding import Folding, FoldResult, FoldWork
from headrace.operators.ordered.stepping import Stepping
from headrace.plan.fold import Fold
from headrace.plan.ordered import Frame
from headrace.schema import Field, Schema, Type
from headrace.sql import syntax as s
from headrace.sql.aggregates import modules_of
from headrace.sql.aggregates.front.definition import AggregateDefinition, BodyInsert, ColumnOrigin
from headrace.sql.aggregates.native.aggregate import Native, native_of
from headrace.sql.aggregates.native.fold import NativeFolding
from headrace.sql.aggregates.python.compile import compile_aggregate
from headrace.sql.aggregates.python.scalars import instant
from headrace.sql.printer import to_sql
from headrace.time import INFINITY, NEG_INFINITY

# Each aggregate is compiled for the machine, which takes a second: few of them, over many tuples.
FEW = settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.generate])
Item = tuple[Any, ...]


def native(text: str, *, terminates: bool = False) -> Native:
    found = native_of(modules_of(text)["f"].definition, terminates=terminates)
    assert isinstance(found, Native), found
    return found


# ---- tuples through a fold, in batches


@dataclass
class Engine:
    """What the kernel does around a fold: keeps states, and the tuples that windows still hold."""

    folding: Folding
    items: Sequence[Sequence[tuple[int, Item]]]
    schema: Schema
    since: int = NEG_INFINITY
    states: list[bytes | None] = field(default_factory=list)
    kept: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.states = [None] * len(self.items)
        self.kept = [[] for _ in self.items]

    def go(self, visible: Sequence[Sequence[int]], cti: int, seen: int) -> FoldResult:
        """All groups at once, with those tuples that can be seen."""
        fresh = [[i for i in some if of[i][0] >= self.since] for some, of in zip(visible, self.items, strict=True)]
        lines = [kept + new for kept, new in zip(self.kept, fresh, strict=True)]
        start = np.cumsum([0, *map(len, lines)])
        rows = [of[i] for some, of in zip(lines, self.items, strict=True) for i in some]
        le = np.array([time for time, _ in rows], np.int64)
        arrays = [pa.array([item[n] for _, item in rows], f.type.arrow) for n, f in enumerate(self.schema)]
        begin = start[:-1] + [len(kept) for kept in self.kept]
        before = [sum(of[i][0] < cti for i in some) for some, of in zip(lines, self.items, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=self.schema.arrow)
        states = pa.array(self.states, pa.binary())
        went = self.folding.go(
            FoldWork(start, begin, start[:-1] + before, le, table, states, self.since, cti, seen, begin)
        )
        self.states = went.states.to_pylist()
        numbers = [i for some in lines for i in some]
        keep = [[numbers[k] for k in range(a, b) if went.keep[k]] for a, b in pairwise(start)]
        self.kept, self.since, self.numbers, self.start = keep, cti, numbers, start
        return went

    def told(self, went: FoldResult) -> list[str]:
        """What was given: by which group, when, what; and what went wrong."""
        group = np.searchsorted(self.start, went.row, "right") - 1 if went.group is None else went.group
        rows = zip(
            group.tolist(), went.time.tolist(), zip(*went.payload.to_pydict().values(), strict=True), strict=True
        )
        return [*map(repr, rows), *(f"{f.group} {f.time} {f.reason}" for f in went.failures)]


def batches(random: Random, items: Sequence[Sequence[tuple[int, Item]]], last: int) -> Iterator[tuple[Any, int, int]]:
    """What can be seen of the tuples as the CTI moves on: all before it, and some of the rest."""
    cti = NEG_INFINITY
    while cti < last:
        cti = max(cti, 0) + random.choice([0, 1, 2, 5, 20])
        shown = [[i for i, (le, _) in enumerate(of) if le < cti or random.random() < 0.5] for of in items]
        yield shown, cti, cti + random.choice([0, 0, 3])


def assert_law(seed: int, text: str, frame: Frame, items: list[list[Item]], *, active: bool = False) -> list[str]:
    """Native code and Python agree in each batch; what is final is what all tuples in one batch give."""
    random = Random(seed)
    module = modules_of(text)["f"]
    stream = hr.events([], str(module.fields)).node
    mapping = tuple((name, col(name)) for name in module.fields.names)
    names = tuple(f"out_{one.name}" for one in module.definition.returns)
    node = Fold(stream, (), frame, module, mapping, names, active=active)
    made = native_of(node.folder.definition, terminates=node.folder.terminates)
    assert isinstance(made, Native), made
    timed = [list(zip(sorted(random.choices(range(12), k=len(of))), of, strict=True)) for of in items]
    folding = NativeFolding(made, frame, node.answers, active=active)
    one, many, other = (Engine(one, timed, module.fields) for one in (folding, folding, Stepping(node)))
    final: list[str] = []
    for shown, cti, seen in batches(random, timed, 40):
        since = many.since
        went, expected = many.go(shown, cti, seen), other.go(shown, cti, seen)
        assert many.told(went) == other.told(expected), made.source
        if made.windowed and not went.failures:
            assert went.due.tolist() == expected.due.tolist(), made.source
        final += [told for told, time in zip(many.told(went), times(went), strict=True) if since <= time < cti]
    whole = one.told(one.go([range(len(of)) for of in timed], INFINITY, INFINITY))
    assert sorted(final) == sorted(whole), made.source
    return whole


def times(went: FoldResult) -> list[int]:
    return [*went.time.tolist(), *(f.time for f in went.failures)]


# ---- functions

WHOLE = {Type.BYTE: 8, Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
NUMBERS = (*WHOLE, Type.FLOAT, Type.DOUBLE)


def some(kind: Type, random: Random) -> list[Any]:
    """Values of a type: NULL, those at its ends, and others."""
    if kind is Type.BOOLEAN:
        return [None, True, False]
    if kind is Type.DATETIME:
        ends = [-62_135_596_800_000_000, 0, 253_402_300_799_999_999]
        return [None, *map(instant, [*ends, *(random.randrange(-(2**51), 2**52) for _ in range(3))])]
    if kind in WHOLE:
        limit = 1 << (WHOLE[kind] - 1)
        root = math.isqrt(limit)
        near = [-limit, 1 - limit, -root, -root - 1, -2, -1, 0, 1, 2, 3, root, root + 1, limit - 2, limit - 1]
        return [None, *near, *(random.randrange(-limit, limit) for _ in range(6))]
    plain = [0.0, -0.0, 0.5, -0.5, 1.5, -2.0, 3.0, math.nan, math.inf, -math.inf, 5e-324, 1e300, -1e300, 1.7e308]
    plain += [2.0**31, -(2.0**31) - 1, 2.0**63, -(2.0**63), 9.2e18, random.gauss(), random.gauss() * 1e9]
    if kind is Type.FLOAT:
        plain = [float(np.float32(x)) for x in plain if abs(x) < 3e38 or not math.isfinite(x)]
    return [None, *plain]


def assert_same(exprs: Sequence[Expr], types: Sequence[Type]) -> None:
    """Expressions over columns of these types, all in one aggregate, for all values of the columns."""
    schema = Schema(tuple(Field("abc"[place], kind) for place, kind in enumerate(types)))
    bound = [expr.bind(schema) for expr in exprs]
    returns = tuple(Field(f"r{place}", one.type) for place, one in enumerate(bound))
    body = (BodyInsert(1, frozenset(), None, (tuple(bound),)),)
    places = {one.name: ColumnOrigin(index) for index, one in enumerate(schema)}
    made = AggregateDefinition("f", schema.fields, returns, False, (), {"initialize": body, "iterate": body}, places)
    code = native_of(made, terminates=False)
    assert isinstance(code, Native), code
    items = list(product(*(some(kind, Random(1)) for kind in types)))
    engine = Engine(NativeFolding(code, Frame(), Schema(returns)), [list(enumerate(items))], schema)
    mine = engine.go([range(len(items))], INFINITY, INFINITY).payload
    theirs = compile_aggregate(made).rows(items)
    for place, expr in enumerate(exprs):
        expected = pa.array([row[place] for row in theirs], bound[place].type.arrow).to_pylist()
        pairs = zip(items, mine.column(place).to_pylist(), expected, strict=True)
        wrong = [(item, a, b) for item, a, b in pairs if repr(a) != repr(b)]
        assert not wrong, (str(expr), wrong[:3])


A, B, C = col("a"), col("b"), col("c")


@pytest.mark.parametrize(
    "types",
    [(Type.BYTE, Type.INT), (Type.LONG, Type.LONG), (Type.FLOAT, Type.FLOAT), (Type.DOUBLE, Type.LONG)],
    ids=lambda types: " ".join(kind.value for kind in types),
)
def test_functions_of_numbers(types: tuple[Type, ...]):
    two = ("add", "subtract", "multiply", "divide", "modulo", "eq", "ne", "lt", "le", "gt", "ge", "greatest", "least")
    one = ("negate", "abs", "floor", "ceil", "sqrt", "is_null")
    exprs: list[Expr] = [Call(name, (A, B)) for name in two]
    exprs += [Call(name, (column,)) for name in one for column in (A, B)]
    exprs += [Cast(column, kind) for kind in (*NUMBERS, Type.BOOLEAN) for column in (A, B)]
    exprs += [Call("isin", (A, B, lit(1), lit(None))), Call("coalesce", (A, B)), Case(((A < B, A),), lit(None))]
    assert_same(exprs, types)


def test_functions_of_truths_and_times():
    three: list[Expr] = [
        Call(outer, (Call(inner, (A, B)), C)) for outer, inner in product(("and", "or"), repeat=2)
    ]  # fmt: skip
    three += [Call("not", (A,)), Case(((A, lit(1)), (B, lit(2.5))), lit(None)), Call("lt", (A, B)), Cast(A, Type.FLOAT)]
    three += [Cast(A, Type.LONG), Call("coalesce", (A, lit(True))), Call("greatest", (A, B, C))]
    assert_same(three, [Type.BOOLEAN] * 3)
    times = [Call("time_diff", (A, B)), Call("shift_time", (A, C)), Call("lt", (A, B)), Cast(A, Type.LONG)]
    assert_same([*times, Cast(C, Type.DATETIME), Call("least", (A, B))], [Type.DATETIME, Type.DATETIME, Type.LONG])


# ---- bodies

#: Tables of one row: one that INITIALIZE fills, and one that has its row at once.
ROWS = {"state": {"a": "LONG", "b": "DOUBLE"}, "more": {"x": "INT", "y": "REAL"}}


class NativeWriter(Writer):
    """Writes aggregates that native code is made of."""

    def scalar(self, outer: Columns, kinds: frozenset[str]) -> s.ScalarSelect:
        table = self.one(*ROWS)
        columns = {**outer, **ROWS[table]}
        value = self.number(columns, kinds, 0, inside=False)
        where, limit = self.where(columns, 0, inside=False), self.one(None, 0, 1)
        return s.ScalarSelect(s.LocalSelect((s.Entry(value),), s.Name(table), where=where, limit=limit))

    def statement(self, arguments: Columns, returns: tuple[str, ...]) -> s.BodyStatement:
        table = self.one(*ROWS)
        columns = {**arguments, **ROWS[table]}
        if self.maybe(0.7):
            names = self.random.sample(sorted(ROWS[table]), self.one(1, 2))
            news = tuple(s.Assignment(s.Name(name), self.of(ROWS[table][name], columns)) for name in names)
            return s.UpdateRows(s.Name(table), news, self.where(columns))
        return self.answer(arguments, returns)

    def answer(self, arguments: Columns, returns: tuple[str, ...]) -> s.BodyStatement:
        if self.maybe(0.3):
            values = tuple(self.of(one, arguments) for one in returns)
            return s.InsertRows(s.Name("RETURN"), (s.ValuesRow(values),))
        table = self.one(*ROWS)
        columns = {**arguments, **ROWS[table]}
        entries = tuple(s.Entry(self.of(one, columns)) for one in returns)
        return s.InsertSelected(s.Name("RETURN"), s.LocalSelect(entries, s.Name(table), where=self.where(columns)))

    def native(self, *, window: bool, value: bool) -> s.CreateAggregate:
        returns = ("DOUBLE",) if value else ("LONG", "DOUBLE")
        first = s.InsertRows(s.Name("state"), (s.ValuesRow((column("v"), column("w"))),))
        here = {**ARGUMENTS, **OLDEST} if window and self.maybe() else ARGUMENTS
        stages = [
            s.Stage(("initialize",), (first, *self.several(2, here, returns))),
            s.Stage(("iterate",), (*self.several(2, here, returns), self.answer(here, returns))),
        ]
        if window:
            stages.append(s.Stage(("expire",), (self.statement(OLDEST, returns), *self.several(2, OLDEST, returns))))
        else:
            stages.append(s.Stage(("terminate",), tuple(self.several(2, {}, returns))))
        tables = [s.LocalTable(s.Name(name), typed(columns)) for name, columns in ROWS.items()]
        tables[1] = s.LocalTable(s.Name("more"), typed(ROWS["more"]), (), (s.ValuesRow((s.Number(1), s.Number(0.1))),))
        tables += [s.LocalTable(s.Name("inwindow"), typed(INWINDOW))] if window else []
        gives: dict[str, Any] = (
            {"returns": s.Name("DOUBLE")} if value else {"columns": typed({"p": "LONG", "q": "DOUBLE"})}
        )
        head = (s.Name("f"), typed(ARGUMENTS))
        return s.CreateAggregate(*head, **gives, tables=tuple(tables), stages=tuple(stages), window=window)

    def tuples(self, most: int) -> list[Item]:
        return [item for _ in range(self.random.randint(0, most)) for item in self.items()]


def assert_direct(tree: s.CreateAggregate, frame: Frame, times: list[int], items: list[Item]) -> None:
    """Native code gives what a plain reading of the text gives."""
    direct, made = Direct(tree), native(to_sql(tree), terminates=not tree.window)
    if frame.endless:
        steps = direct.unbounded(items)
    elif frame.rows is not None:
        steps = direct.over(items, times, rows=frame.rows)
    else:
        steps = direct.over(items, times, ticks=frame.range)
    folding = NativeFolding(made, frame, Schema(made.definition.returns))
    engine = Engine(folding, [list(zip(times, items, strict=True))], Schema(made.definition.parameters))
    went = engine.go([range(len(items))], INFINITY, INFINITY)
    failed = {one.row for one in went.failures}
    nothing = [(None,)] if made.definition.value else []
    expected = [(n, *row) for n, step in enumerate(steps) if n not in failed for row in step or nothing]
    found = zip(went.row.tolist(), *went.payload.to_pydict().values(), strict=True)
    assert list(map(repr, found)) == list(map(repr, expected)), made.source


@pytest.mark.slow
@FEW
@given(st.integers(0, 2**64))
def test_random_bodies_over_windows(seed: int):
    writer = NativeWriter(seed)
    tree = writer.native(window=True, value=writer.maybe())
    event(f"a value: {tree.returns is not None}")
    groups = [writer.tuples(4) for _ in range(3)]
    times = sorted(writer.random.choices(range(12), k=len(groups[0])))
    for frame in (Frame(rows=writer.one(0, 1, 3)), Frame(range=writer.one(0, 1, 4))):
        assert_law(seed, to_sql(tree), frame, groups)
        assert_direct(tree, frame, times, groups[0])
    assert_law(seed, to_sql(tree), Frame(), groups)
    assert_law(seed, to_sql(tree), Frame(range=writer.one(0, 1, 4)), groups, active=True)


@FEW
@given(st.integers(0, 2**64))
def test_random_bodies_over_all_that_precedes(seed: int):
    writer = NativeWriter(seed)
    tree = writer.native(window=False, value=writer.maybe())
    groups = [writer.tuples(4) for _ in range(3)]
    assert_law(seed, to_sql(tree), Frame(), groups)
    assert_direct(tree, Frame(), list(range(len(groups[0]))), groups[0])


# ---- what it is made of

AVERAGE = """
CREATE WINDOW AGGREGATE f(next DOUBLE): DOUBLE {
    TABLE inwindow(old DOUBLE);
    TABLE state(total DOUBLE, n INT);
    INITIALIZE: { INSERT INTO state VALUES (next, 1); INSERT INTO RETURN VALUES (next); }
    ITERATE: { UPDATE state SET total = total + next, n = n + 1; INSERT INTO RETURN SELECT total / n FROM state; }
    EXPIRE: { UPDATE state SET total = total - oldest(), n = n - 1; }
}
"""


def test_the_text_can_be_read():
    source = native(AVERAGE).source
    assert "# line" in source
    assert "state_total + next" in source
    compile(source, "", "exec")


def test_a_process_compiles_once():
    assert native(AVERAGE).code is native(AVERAGE).code


def test_an_average_over_rows():
    whole = assert_law(1, AVERAGE, Frame(rows=1), [[(1.0,), (2.0,), (4.0,)], [], [(None,), (3.0,)]])
    assert [one.rpartition("(")[2] for one in whole] == ["1.0,))", "1.5,))", "3.0,))", "None,))", "None,))"]


@pytest.mark.parametrize(
    ("frame", "active"),
    [(Frame(rows=2), False), (Frame(range=3), False), (Frame(range=3), True), (Frame(range=0), True), (Frame(), False)],
    ids=str,
)
@settings(max_examples=max(8, settings().max_examples * 3 // 10), deadline=None)
@given(st.integers(0, 2**64))
def test_an_average_however_it_is_split(frame: Frame, active: bool, seed: int):
    random = Random(seed)
    numbers = [None, 0.1, -0.0, 1e300, 2.5, -7.25]
    groups = [[(random.choice(numbers),) for _ in range(random.randrange(12))] for _ in range(4)]
    returns = "INSERT INTO RETURN SELECT total / n FROM state WHERE n > 0; }\n}"
    assert_law(seed, AVERAGE.replace("}\n}", returns), frame, groups, active=active)


def test_names_may_be_those_of_the_code():
    text = """
    CREATE AGGREGATE f(np INT, le INT, k_null INT, k INT): (row INT, time INT, states INT) {
        TABLE state(living INT, started INT, broken INT, living_null INT);
        INITIALIZE: {
            INSERT INTO state VALUES (np, le, k, k_null);
            INSERT INTO RETURN SELECT np, started, k FROM state;
        }
        ITERATE: {
            UPDATE state SET living = living + np, started = le, broken = started;
            INSERT INTO RETURN SELECT living, started, living_null FROM state;
        }
    }
    """
    whole = assert_law(2, text, Frame(), [[(1, 2, 3, 4), (5, 6, 7, 8)]])
    assert [one.rpartition("(")[2] for one in whole] == ["1, 2, 4))", "6, 6, 3))"]


def test_a_group_with_several_values_at_a_tuple_is_broken_from_there_on():
    text = """
    CREATE AGGREGATE f(x INT): INT {
        INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (x); INSERT INTO RETURN SELECT x WHERE x > 1; }
    }
    """
    whole = assert_law(3, text, Frame(), [[(1,), (2,), (1,)], [(0,), (1,)]])
    assert sum("returned 2 values" in one for one in whole) == 2
    assert len(whole) == 5


def test_a_tuple_without_a_value_has_null():
    text = "CREATE AGGREGATE f(x INT): BOOLEAN { INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT TRUE WHERE x > 1; } }"
    whole = assert_law(4, text, Frame(), [[(1,), (2,), (None,)]])
    assert [one.rpartition("(")[2] for one in whole] == ["None,))", "True,))", "None,))"]


def body(statements: str, tables: str = "", argument: str = "x DOUBLE", returns: str = "DOUBLE") -> str:
    return f"CREATE AGGREGATE f({argument}): {returns} {{ {tables} INITIALIZE: ITERATE: {{\n{statements} }} }}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (body("INSERT INTO RETURN VALUES (1);", argument="t STRING"), "the argument t is STRING"),
        (body("INSERT INTO RETURN VALUES ('a');", returns="STRING"), "the result f is STRING"),
        (body("INSERT INTO RETURN VALUES (sin(x));"), "line 2: sin() has no native form"),
        (body("INSERT INTO RETURN VALUES (length('a'));"), "line 2: length() has no native form"),
        (body("INSERT INTO RETURN SELECT var(a) FROM s;", "TABLE s(a INT) AS VALUES (1);"), "line 2: var() over"),
        (body("INSERT INTO RETURN SELECT sum(a) FROM s;", "TABLE s(a REAL) AS VALUES (1);"), "a sum of decimals"),
        (body("INSERT INTO RETURN SELECT a FROM s GROUP BY a;", "TABLE s(a INT) AS VALUES (1);"), "GROUP BY"),
        (body("INSERT INTO RETURN SELECT a FROM s ORDER BY a;", "TABLE s(a INT) AS VALUES (1), (2);"), "ORDER BY"),
        (body("INSERT INTO RETURN VALUES (x);" * 300), "lines of native code"),
        (body("INSERT INTO RETURN VALUES (x);", "TABLE s(a STRING) AS VALUES ('a');"), "s.a is STRING"),
        (AVERAGE.replace("VALUES (next);", "SELECT max(old) FROM inwindow;"), "line 5: inwindow is read"),
        (AVERAGE.replace("VALUES (next);", "SELECT old FROM inwindow LIMIT 1;"), "inwindow is read as a table"),
    ],
)  # fmt: skip
def test_why_not(text: str, reason: str):
    found = native_of(modules_of(text)["f"].definition, terminates=False)
    assert isinstance(found, str)
    assert reason in found
