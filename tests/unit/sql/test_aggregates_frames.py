"""Base aggregates over frames as native code: what carries over from frame to frame gives what recomputation gives."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st
from tests.unit.sql.test_aggregates_random import Writer

import headrace as hr
from headrace.errors import CheckpointError, ModuleFailed
from headrace.host.local.run import Runner, batches_of
from headrace.plan.nodes import Output
from headrace.plan.ordered import Frame
from headrace.schema import Schema
from headrace.sql.aggregates import modules_of
from headrace.sql.aggregates.native.frames import NativeFrames, frames_of
from headrace.sql.printer import to_sql
from headrace.stages.cut import cut

# Each aggregate is compiled for the machine, which takes a second: few of them, over many frames.
FEW = settings(
    max_examples=max(4, settings().max_examples // 20), deadline=None, phases=[Phase.explicit, Phase.generate]
)
Item = tuple[Any, ...]


def native(text: str) -> NativeFrames:
    found = frames_of(modules_of(text)["f"].compiled.definition)
    assert isinstance(found, NativeFrames), found
    return found


def answers(code: NativeFrames, text: str, frame: Frame, groups: list[list[tuple[int, Item]]]) -> list[Any]:
    """The answers of all frames by native code: the value or rows at each tuple, or the reason of a failure."""
    module = modules_of(text)["f"]
    rows = [one for group in groups for one in group]
    starts = np.cumsum([0, *map(len, groups)])
    begin = np.repeat(starts[:-1], np.diff(starts))
    le = np.array([time for time, _ in rows], np.int64)
    columns = [pa.array([item[n] for _, item in rows], f.type.arrow) for n, f in enumerate(module.fields)]
    table = pa.Table.from_arrays(columns, schema=module.fields.arrow)
    schema = Schema(module.definition.returns)
    got = code.answers(frame, begin, np.arange(len(rows)), le, table, schema)
    found: list[Any] = [[] for _ in rows]
    for row, values in zip(got.row.tolist(), zip(*got.payload.to_pydict().values(), strict=True), strict=True):
        found[row].append(values)
    for row, reason in got.failures:
        found[row] = reason
    return found


def recomputed(text: str, frame: Frame, groups: list[list[tuple[int, Item]]]) -> list[Any]:
    """The same by definition: the Python code of the base version over the tuples of each frame."""
    compiled, found = modules_of(text)["f"].compiled, []
    for group in groups:
        for end, (time, _) in enumerate(group):
            begin = 0 if frame.rows is None else max(0, end - frame.rows)
            inside = [item for at, item in group[begin : end + 1] if frame.range is None or at >= time - frame.range]
            try:
                value = compiled.definition.value
                found.append([(compiled.value(inside),)] if value else compiled.rows(inside))
            except ModuleFailed as error:
                found.append(error.message)
    return found


def assert_same(text: str, frames: list[Frame], groups: list[list[tuple[int, Item]]]) -> None:
    code = native(text)
    for frame in frames:
        assert repr(answers(code, text, frame, groups)) == repr(recomputed(text, frame, groups)), (text, frame)


# --- aggregates whose effect carries over -----------------------------------------------------------------------------

NUMBERS = (None, 0, 1, -1, 2, 5, 2**31 - 1, -(2**31), 3, 3)
LONGS = (*NUMBERS, 2**62, -(2**62), 2**63 - 1, -(2**63), 2**40)
DOUBLES = (None, 0.0, -0.0, 1.5, -2.0, 0.1, math.nan, math.inf, -math.inf, 7.0)
FRAMES = [Frame(rows=0), Frame(rows=1), Frame(rows=2), Frame(rows=7), Frame(rows=40), Frame(range=0), Frame(range=9)]


class Carrying:
    """Writes aggregates at random, each column of a class that carries over."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def one(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def value(self, kind: str) -> str:
        """An expression over the tuple."""
        whole = ["a", "b", "1", "a + 1", "-a", "CASE WHEN w > 1 THEN a ELSE 0 END", "coalesce(a, 7)"]
        if kind == "INT":
            return f"CAST({self.one(*whole)} AS INT)"
        if kind == "LONG":
            return f"CAST({self.one(*whole, 'b * 2')} AS LONG)"
        return str(self.one("w", "w * 0.5", "-w", "coalesce(w, 0.0)", "CAST(a AS DOUBLE)"))

    def condition(self) -> str:
        return str(self.one("a > 0", "w < 1.5", "b IS NOT NULL", "a IS NULL OR w > 0", "a > 1 AND w > 0.0"))

    def change(self, column: str, kind: str) -> str:
        """A statement that changes a column."""
        where = f" WHERE {self.condition()}" if self.random.random() < 0.4 else ""
        value = self.value(kind)
        shape = self.one("total", "total", "latest", "extreme", "compare", "case")
        if shape == "total" and kind != "DOUBLE":
            sign = self.one("+", "+", "-")
            text = f"{column} {sign} {value}" if self.one(True, sign == "-") else f"{value} + {column}"
            return f"UPDATE state SET {column} = CAST({text} AS {kind}){where};"
        if shape == "extreme":
            pair = self.one(f"{column}, {value}", f"{value}, {column}")
            return f"UPDATE state SET {column} = {self.one('greatest', 'least')}({pair}){where};"
        sign = self.one("<", "<=", ">", ">=")
        test = self.one(f"{value} {sign} {column}", f"{column} {sign} {value}")
        if shape == "compare":
            more = f" AND ({self.condition()})" if where else ""
            return f"UPDATE state SET {column} = {value}, beside = b WHERE {test}{more};"
        if shape == "case":
            return f"UPDATE state SET {column} = CASE WHEN {test} THEN {value} ELSE {column} END{where};"
        return f"UPDATE state SET {column} = {value}{where};"

    def text(self) -> str:
        kinds = [self.one("INT", "LONG", "LONG", "DOUBLE") for _ in range(self.one(1, 2, 3))]
        columns = {f"c{n}": kind for n, kind in enumerate(kinds)}
        changes = [self.change(*one) for one in columns.items()]
        while sum("beside" in one for one in changes) > 1:
            changes = [self.change(*one) for one in columns.items()]
        first = ", ".join([*map(self.value, columns.values()), "b"])
        declared = ", ".join(f"{name} {kind}" for name, kind in {**columns, "beside": "LONG"}.items())
        all_ = ", ".join([*columns, "beside"])
        gives = ", ".join(f"o{n} {kind}" for n, kind in enumerate([*columns.values(), "LONG"]))
        return f"""CREATE AGGREGATE f(a INT, b LONG, w DOUBLE): ({gives}) {{
            TABLE state({declared});
            INITIALIZE: {{ INSERT INTO state VALUES ({first}); }}
            ITERATE: {{ {" ".join(changes)} }}
            TERMINATE: {{ INSERT INTO RETURN SELECT {all_} FROM state; }} }}"""

    def groups(self) -> list[list[tuple[int, Item]]]:
        found = []
        for _ in range(self.one(1, 2, 3)):
            big = self.random.random() < 0.3
            times = sorted(self.random.choices(range(60), k=self.one(0, 1, 12, 40)))
            longs = LONGS if big else NUMBERS
            found.append([(t, (self.one(*NUMBERS), self.one(*longs), self.one(*DOUBLES))) for t in times])
        return found


@pytest.mark.slow
@FEW
@given(st.integers(0, 2**64))
def test_what_carries_over_gives_what_recomputation_gives(seed: int):
    writer = Carrying(seed)
    text = writer.text()
    code = native(text)
    assert not code.recomputed, f"{code.recomputed}: {text}"
    for _ in range(5):
        assert_same(text, FRAMES, writer.groups())


@pytest.mark.slow
@FEW
@given(st.integers(0, 2**64))
def test_any_aggregate_gives_what_python_gives(seed: int):
    writer = Writer(seed)
    text = to_sql(writer.aggregate())
    code = frames_of(modules_of(text)["f"].compiled.definition)
    event("Python" if isinstance(code, str) else "recomputed" if code.recomputed else "carried over")
    if isinstance(code, str):
        return
    items = [item for _ in range(6) for item in writer.items()]
    times = sorted(writer.random.choices(range(30), k=len(items)))
    groups = [list(zip(times, items, strict=True)), list(zip(times[:5], items[5:10], strict=False))]
    assert_same(text, [Frame(rows=0), Frame(rows=3), Frame(range=4)], groups)


# --- what is derived, and what is not ---------------------------------------------------------------------------------

BODY = """CREATE AGGREGATE f(a LONG, w DOUBLE): DOUBLE {{
    TABLE state(n LONG, m LONG, d DOUBLE);
    INITIALIZE: {{ INSERT INTO state VALUES (a, a, w); }}
    ITERATE: {{ {} }}
    TERMINATE: {{ INSERT INTO RETURN SELECT n + m + d FROM state; }} }}"""


@pytest.mark.parametrize(
    ("iterate", "path"),
    [
        ("UPDATE state SET n = n + a - 1, m = 2 - a + m;", "totals"),
        ("UPDATE state SET n = a, d = w WHERE a < n;", "one tuple's values"),
        (
            "UPDATE state SET d = greatest(d, w); UPDATE state SET n = n + 1 WHERE w > 0;",
            "totals and one tuple's values",
        ),
        ("INSERT INTO RETURN SELECT n FROM state WHERE a < 0;", "what the first tuple sets"),
    ],
)
def test_derived(iterate: str, path: str):
    assert native(BODY.format(iterate)).path == f"derived: {path} carried from frame to frame"


@pytest.mark.parametrize(
    ("iterate", "reason"),
    [
        ("UPDATE state SET d = d + w;", "state.d adds DOUBLEs, which do not subtract exactly"),
        ("UPDATE state SET n = n * a;", "state.n is neither a total nor chosen"),
        ("UPDATE state SET n = a - n;", "state.n is neither a total nor chosen"),
        ("UPDATE state SET n = n + m;", "state.n is neither a total nor chosen"),
        ("UPDATE state SET n = n + 1; UPDATE state SET n = n + a;", "state.n changes twice"),
        ("UPDATE state SET n = n + 1 WHERE m > a;", "state.n changes under a condition on tables"),
        ("UPDATE state SET n = a + 1 WHERE a > n;", "state.n changes under a condition on tables"),
        ("UPDATE state SET n = a WHERE a > n OR w > 0;", "state.n changes under a condition on tables"),
        ("UPDATE state SET n = a, m = m + 1 WHERE a > n;", "state.n changes under a condition on tables"),
        ("UPDATE state SET n = CASE WHEN n > a THEN n ELSE a END;", "state.n is neither a total nor chosen"),
        ("UPDATE state SET n = n + (SELECT s.m FROM state AS s);", "state.n is neither a total nor chosen"),
    ],
)
def test_not_derived(iterate: str, reason: str):
    code = native(BODY.format(iterate))
    assert code.recomputed == f"line 4: {reason}"
    assert_same(BODY.format(iterate), FRAMES, [[(n, (n * 7 % 5 - 2, n / 2)) for n in range(12)]])


def test_rows_of_every_tuple_are_not_derived():
    text = """CREATE AGGREGATE f(a LONG): (a LONG) {
        TABLE state(m LONG);
        INITIALIZE: { INSERT INTO state VALUES (a); }
        ITERATE: { INSERT INTO RETURN VALUES (a); UPDATE state SET m = a; }
        TERMINATE: { INSERT INTO RETURN SELECT m FROM state; } }"""
    assert native(text).recomputed == "line 4: every tuple returns rows"
    assert_same(text, FRAMES, [[(n, (n,)) for n in range(9)]])


def test_a_total_that_is_out_of_range_on_the_way_is_null():
    """Recomputation adds from the first tuple on: where a sum on the way does not fit, the total is NULL."""
    text = BODY.format("UPDATE state SET n = n + a;")
    most = 2**63 - 1
    values = [1, most, -most, 5, most, 1, -1, -most, 2, None, 3, 4, 5]
    assert_same(text, FRAMES, [[(n, (value, 0.0)) for n, value in enumerate(values)]])


SEVERAL = """CREATE AGGREGATE several(a LONG): LONG {
    TABLE kept(a LONG);
    INITIALIZE: ITERATE: { INSERT INTO kept VALUES (a); }
    TERMINATE: { INSERT INTO RETURN SELECT a FROM kept WHERE a > 0; } }"""


def test_only_frames_that_fail_are_diverted():
    rows = [{"kind": "insert", "le": n, "re": n + 1, "a": a} for n, a in enumerate([0, 1, 0, 2, 3, 0, 0])]
    query = hr.events(rows, "a LONG").over(rows=1, on_error="skip").aggregate(m=hr.sql_aggregate(SEVERAL).of("a"))
    assert "native code" in query.explain()
    with pytest.warns(hr.RowsNotUsed, match="it returned 2 values where one is wanted"):
        run = query.run(batch_rows=2)
    assert [(row["a"], row["m"]) for row in run.cht().to_pylist()] == [
        (0, None), (1, 1), (0, 1), (2, 2), (0, 3), (0, None),
    ]  # fmt: skip


def test_explain_tells_how_frames_are_computed():
    rows = [{"kind": "insert", "le": 1, "re": 2, "a": 1, "t": "x"}]
    total = hr.sql_aggregate("""CREATE AGGREGATE total(a LONG): LONG {
        TABLE state(s LONG);
        INITIALIZE: { INSERT INTO state VALUES (a); }
        ITERATE: { UPDATE state SET s = s + a; }
        TERMINATE: { INSERT INTO RETURN SELECT s FROM state; } }""")
    frame = hr.events(rows, "a LONG, t STRING").over(rows=1)
    assert (
        "native code; windows (box 2), derived: totals carried from frame to frame"
        in frame.aggregate(m=total.of("a")).explain()
    )
    longest = hr.sql_aggregate("""CREATE AGGREGATE longest(t STRING): STRING {
        TABLE state(s STRING);
        INITIALIZE: { INSERT INTO state VALUES (t); }
        ITERATE: { UPDATE state SET s = t WHERE t > s; }
        TERMINATE: { INSERT INTO RETURN SELECT s FROM state; } }""")
    reason = "the argument t is STRING: native code computes with numbers, BOOLEAN and DATETIME"
    expected = f"Python ({reason}); windows (box 2), computed anew over each frame"
    assert expected in frame.aggregate(m=longest.of("t")).explain()


def test_a_checkpoint_of_the_earlier_kernel_is_refused(monkeypatch: pytest.MonkeyPatch):
    text = BODY.format("UPDATE state SET n = n + a;")
    rows = [{"kind": "insert", "le": n, "re": n + 1, "a": n, "w": 0.5} for n in range(4)]
    query = hr.events(rows, "a LONG, w DOUBLE").over(rows=2).aggregate(m=hr.sql_aggregate(text).of("a", "w"))
    line = cut([Output(query.node, "out")])
    with monkeypatch.context() as earlier:
        earlier.setattr("headrace.operators.ordered.choice.frame_codes", lambda _: "")
        before = Runner(line, 1, None)
        before.round({line.sources[0].fingerprint: next(iter(batches_of(line.sources[0])))})
        saved = before.save()
    with pytest.raises(CheckpointError, match="of an earlier version of Headrace"):
        Runner.restored(line, 1, None, saved)
