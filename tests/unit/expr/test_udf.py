"""Functions of users: how they are typed, called, guarded and told apart."""

from __future__ import annotations

import math
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.fixtures.waiting import until

import headrace as hr
from headrace import col, lit
from headrace.errors import ExpressionError, ModuleFailed, PlanError
from headrace.expr import Udf, evaluate, split_pushdown, to_arrow_filter, udf
from headrace.expr.sql import to_duckdb, to_spark
from headrace.schema import Schema, Type

TABLE = pa.table(
    {
        "n": pa.array([1, 2, None, -4], pa.int32()),
        "x": [0.5, None, 2.0, 0.0],
        "s": ["a", "b", None, "d"],
        "xs": [[1.0, 2.0], [], None, [None, 3.0]],
    }
)
SCHEMA = Schema.of(TABLE.schema)


@udf
def mid(bid: float, ask: float) -> float:
    """The middle of two prices."""
    return (bid + ask) / 2


def values(expr: Any, table: pa.Table = TABLE) -> list[Any]:
    return evaluate(expr, table).to_pylist()


def made(function: Any, takes: str = "DOUBLE", returns: str = "DOUBLE", **options: Any) -> Udf:
    return udf(function, takes=takes, returns=returns, **options)


# --- types ------------------------------------------------------------------------------------------------------------


def test_a_function_knows_itself():
    assert (mid.name, mid.doc, mid.takes, mid.returns) == (
        "mid",
        "The middle of two prices.",
        (Type.DOUBLE, Type.DOUBLE),
        Type.DOUBLE,
    )
    assert mid.signature == "mid(bid DOUBLE, ask DOUBLE) -> DOUBLE"
    assert mid.function(1.0, 2.0) == 1.5


def test_types_of_annotations():
    @udf
    def every(a: int, b: float, c: str, d: bool, e: datetime, f: list[float], g: int | None) -> list[str] | None:
        return [str((a, b, c, d, e, f, g))]

    kinds = "LONG DOUBLE STRING BOOLEAN DATETIME ARRAY<DOUBLE> LONG"
    assert [kind.value for kind in every.takes] == kinds.split()
    assert every.returns is Type.STRING.array


@pytest.mark.parametrize(
    ("define", "match"),
    [
        (lambda: udf(lambda x: x), "does not say a type for its argument x"),
        (lambda: udf(lambda x: x, takes="INT"), "does not say a type for what it gives"),
        (lambda: udf(lambda *x: sum(x), returns="DOUBLE"), "how many arguments"),
        (lambda: made(lambda x, y: x + y), "cannot take 1 arguments"),
        (lambda: made(lambda: 1.0, takes=()), "takes nothing"),
        (lambda: made(lambda x: x, returns="DUBLE"), "unknown type"),
        (lambda: udf(lambda x: x, returns="INT", vectorised=True), "gets arrays"),
        (lambda: made(lambda x: x, nulls="keep"), "there is no nulls 'keep'"),
        (lambda: made(lambda x: x, on_error="skip"), "there is no on_error 'skip'"),
        (lambda: made(lambda x: x, time_limit=0), "positive number of seconds"),
        (lambda: made(lambda x: x, deterministic=False), "not deterministic"),
        (lambda: made(3), "not a function"),
    ],
)
def test_what_cannot_be_a_function(define: Any, match: str):
    with pytest.raises((ExpressionError, ValueError), match=match):
        define()


def test_functions_that_give_no_value_when_called():
    async def later(x: float) -> float:
        return x

    def many(x: float) -> Any:
        yield x

    for function in (later, many):
        with pytest.raises(ExpressionError, match="returns no value"):
            made(function)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: mid("x"), "missing a required argument: 'ask'"),
        (lambda: mid("x", "x", "x"), "too many"),
        (lambda: mid("x", aks="x"), "aks"),
        (lambda: mid("x", ask=object()), "not a value of a column"),
    ],
)
def test_wrong_arguments_when_the_call_is_built(build: Any, match: str):
    with pytest.raises(ExpressionError, match=match):
        build()


@pytest.mark.parametrize("wrong", [mid("x", "s"), mid("xs", "x"), made(len, "CHAR", "LONG")("s"), mid(True, "x")])
def test_wrong_types_when_the_query_is_built(wrong: Any):
    stream = hr.events([{"le": 1, "x": 1.0, "s": "a", "xs": [1.0]}])
    with pytest.raises(ExpressionError, match=r" as (DOUBLE|CHAR)"):
        stream.select(y=wrong)


def test_numbers_widen_and_what_is_left_out_has_its_default():
    assert values(mid("n", 3)) == [2.0, 2.5, None, -0.5]

    @udf
    def scaled(x: float, factor: float = 2.0) -> float:
        assert isinstance(x, float)
        return x * factor

    assert values(scaled("n")) == [2.0, 4.0, None, -8.0]
    assert values(scaled(factor="x", x="n")) == [0.5, None, None, 0.0]


# --- calling ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "gives"),
    [
        ("LONG", 2**63 - 1, 2**63 - 1),
        ("LONG", np.int32(4), 4),
        ("BYTE", -128, -128),
        ("DOUBLE", 3, 3.0),
        ("DOUBLE", 2**70, 2.0**70),
        ("FLOAT", 0.5, 0.5),
        ("BOOLEAN", np.True_, True),
        ("CHAR", "é", "é"),
        ("DATETIME", datetime(2024, 5, 1), datetime(2024, 5, 1, tzinfo=UTC)),  # noqa: DTZ001 - naive on purpose
        ("ARRAY<DOUBLE>", (1, None, 2.5), [1.0, None, 2.5]),
        ("ARRAY<LONG>", np.array([1, 2]), [1, 2]),
        ("STRING", None, None),
    ],
)
def test_what_a_function_may_give(kind: str, value: Any, gives: Any):
    assert values(made(lambda _: value, "INT", kind)("n"))[0] == gives


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("LONG", 2.0),
        ("LONG", True),
        ("LONG", 2**63),
        ("BYTE", 128),
        ("DOUBLE", "1.0"),
        ("DOUBLE", 10**400),
        ("BOOLEAN", 1),
        ("STRING", b"a"),
        ("STRING", "\ud800"),
        ("CHAR", "ab"),
        ("DATETIME", "2024-05-01"),
        ("ARRAY<DOUBLE>", 1.0),
        ("ARRAY<DOUBLE>", ["a"]),
        ("ARRAY<CHAR>", ["ab"]),
    ],
)
def test_what_it_may_not_give(kind: str, value: Any):
    with pytest.raises(ModuleFailed, match="which is no"):
        values(made(lambda _: value, "INT", kind)("n"))
    assert values(made(lambda _: value, "INT", kind, on_error="null")("n")) == [None] * 4


def test_nulls_are_skipped_or_passed():
    seen: list[Any] = []

    def note(n: int | None, x: float | None) -> float:
        seen.append((n, x))
        return 1.0

    assert values(made(note, "LONG, DOUBLE")("n", "x")) == [1.0, None, None, 1.0]
    assert seen == [(1, 0.5), (-4, 0.0)]
    seen.clear()
    assert values(made(note, "LONG, DOUBLE", nulls="pass")("n", "x")) == [1.0] * 4
    assert seen == [(1, 0.5), (2, None), (None, 2.0), (-4, 0.0)]
    assert values(made(note, "LONG, DOUBLE")("n", lit(None))) == [None] * 4


def test_a_function_of_constants_is_called_once_and_without_rows_never():
    calls = []
    constant = made(lambda x: calls.append(x) or x)
    assert values(constant(2) + col("n")) == [3.0, 4.0, None, -2.0]
    assert calls == [2.0]
    assert values(constant(2), TABLE.slice(0, 0)) == []
    assert values(constant("x"), TABLE.slice(0, 0)) == []
    assert calls == [2.0]


def test_lists_go_in_and_come_out():
    @udf
    def total(xs: list[float]) -> float:
        return sum(x or 0.0 for x in xs)

    @udf
    def letters(s: str) -> list[str]:
        return list(s)

    assert values(total("xs")) == [3.0, 0.0, None, 3.0]
    assert values(letters("s")) == [["a"], ["b"], None, ["d"]]


@pytest.mark.parametrize(
    "root",
    [
        pc.sqrt,
        lambda x: pa.chunked_array([pc.sqrt(x)]),
        lambda x: np.sqrt(np.asarray(x)),
        lambda x: np.sqrt(np.asarray(x)).astype(np.float32),
        lambda x: np.sqrt(np.asarray(x)).astype(object),
    ],
)
def test_vectorised(root: Any):
    table = pa.table({"x": [4.0, None, 9.0, math.nan]})
    found = values(made(root, vectorised=True)("x"), table)
    assert found[:3] == [2.0, None, 3.0]
    assert math.isnan(found[3])


def test_vectorised_with_nulls_constants_and_lists():
    filled = made(pc.coalesce, "DOUBLE, DOUBLE", vectorised=True, nulls="pass")
    assert values(filled("x", 7)) == [0.5, 7.0, 2.0, 0.0]
    sizes = made(pc.list_value_length, "ARRAY<DOUBLE>", "LONG", vectorised=True)
    assert values(sizes("xs")) == [2, 0, None, 2]
    texts = made(lambda s: np.asarray(s.to_pylist()), "STRING", "CHAR", vectorised=True)
    assert values(texts("s")) == ["a", "b", None, "d"]


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_the_error_names_the_function_the_row_and_the_cause():
    inverse = made(lambda n, x: n / x, "LONG, DOUBLE", name="inverse")
    with pytest.raises(ModuleFailed, match=r"inverse raised ZeroDivisionError: .*, for n=-4, x=0.0") as caught:
        values(inverse("n", "x"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert values(made(inverse.function, "LONG, DOUBLE", on_error="null")("n", "x")) == [2.0, None, None, None]


def test_the_first_failing_row_is_named_whatever_fails_in_it():
    def odd(n: int) -> float:
        if n == 2:
            return "two"  # type: ignore[return-value]
        return 1 / (n + 4)

    with pytest.raises(ModuleFailed, match="gave 'two', which is no DOUBLE, for n=2"):
        values(udf(odd)("n"))
    assert values(udf(odd, on_error="null")("n")) == [0.2, None, None, None]


def test_a_vectorised_failure_is_traced_to_its_row():
    table = pa.table({"n": list(range(100))})

    def picky(n: pa.Array) -> pa.Array:
        if pc.any(pc.equal(n, 67)).as_py():
            raise ValueError("sixty-seven")
        return n.cast(pa.float64())

    with pytest.raises(ModuleFailed, match="raised ValueError: sixty-seven, for n=67"):
        values(made(picky, "LONG", vectorised=True)("n"), table)
    found = values(made(picky, "LONG", vectorised=True, on_error="null")("n"), table)
    assert found == [float(n) if n != 67 else None for n in range(100)]


@pytest.mark.parametrize(
    ("gives", "match"),
    [
        (lambda x: x.slice(1), "gave 0 values for 1 rows"),
        (lambda _: np.zeros(9), "gave 9 values for 1 rows"),
        (lambda _: 1.0, "gave float, which is no array of DOUBLE"),
        (lambda x: x.cast(pa.string()), "gave string, which is no DOUBLE"),
        (lambda x: np.zeros((len(x), 2)), "gave ndarray"),
        (lambda x: np.array(["a"] * len(x), object), "gave 'a', which is no DOUBLE"),
        (lambda x: x.to_pylist(), "gave list"),
    ],
)
def test_what_a_vectorised_function_may_not_give(gives: Any, match: str):
    with pytest.raises(ModuleFailed, match=match):
        values(made(gives, vectorised=True)("x"))


def test_a_vectorised_char_is_one_character():
    with pytest.raises(ModuleFailed, match="longer than one character"):
        values(made(lambda s: pc.binary_repeat(s, 2), "STRING", "CHAR", vectorised=True)("s"))


@pytest.mark.parametrize("vectorised", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_call_has_a_time_limit(vectorised: bool, elsewhere: bool):
    def endless(x: Any) -> Any:
        while vectorised or x == 2.0:
            pass
        return x

    limited = made(endless, time_limit=0.5, vectorised=vectorised, on_error="null")
    caught: list[BaseException] = []

    def run() -> None:
        began = time.monotonic()
        with pytest.raises(ModuleFailed, match=r"did not return within 0.5 s, for x=" + ("0.5" if vectorised else "2")):
            values(limited("x"))
        assert time.monotonic() - began < 60
        caught.append(ModuleFailed("seen"))

    if elsewhere:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        run()
    assert caught
    # The thread that ran it has been stopped.
    until(lambda: not any(thread.name == "headrace-limited" for thread in threading.enumerate()))


@pytest.mark.slow
def test_a_limit_is_for_one_call_not_for_all():
    slow = made(lambda x: time.sleep(0.06) or x, time_limit=1.0)
    table = pa.table({"x": [1.0] * 20})
    assert values(slow("x"), table) == [1.0] * 20
    with pytest.raises(ModuleFailed, match="raised KeyError: 'x'"):
        values(made(lambda x: {0.5: {}}[x]["x"], time_limit=1.0)("x"))


def test_verify_finds_what_is_not_deterministic():
    calls = iter(range(100))
    with pytest.raises(ModuleFailed, match=r"not deterministic: it gave 0, then 3, for x=0.5"):
        values(made(lambda x: next(calls) if x is not None else 0, returns="LONG", verify=True)("x"))
    assert values(made(lambda x: math.nan if x else 1.0, verify=True)("x"))[3] == 1.0


# --- where it goes, and where it does not -----------------------------------------------------------------------------


def test_it_is_not_pushed_into_readers(tmp_path: Path):
    same = made(lambda x: -x)
    assert to_arrow_filter(same("x") > 1.0, SCHEMA) is None
    pushed, rest = split_pushdown((col("n") > 0) & (same("x") > 1.0), SCHEMA)
    assert pushed is not None
    assert str(rest) == str(same("x") > 1.0)
    assert to_arrow_filter(made(lambda _: True, returns="BOOLEAN")("x"), SCHEMA) is None
    (tmp_path / "in.csv").write_text("t,x\n1,-5.0\n2,5.0\n")
    stream = hr.read_csv(str(tmp_path / "in.csv"), "t LONG, x DOUBLE", lifetime=hr.point("t"))
    assert stream.where(same("x") > 1.0).cht()["x"].to_pylist() == [-5.0]


@pytest.mark.parametrize("printed", [to_spark, to_duckdb])
def test_no_sql_engine_has_it(printed: Any):
    with pytest.raises(ExpressionError, match="mid is a Python function, which no SQL engine has"):
        printed(mid("x", 1) + 1, SCHEMA)


@pytest.mark.parametrize("how", [{}, {"batch_rows": 1}, {"batch_rows": 2, "buckets": 3}])
def test_wherever_an_expression_is(how: dict[str, int]):
    events = hr.events("""
        kind    | le | re | re_new | k | x
        insert  | 1  | 9  |        | a | 4.0
        insert  | 2  | 9  |        | b | 6.0
        insert  | 3  | 9  |        | a |
        retract | 1  | 9  | 5      | a | 4.0
        insert  | 4  | 9  |        | c | 8.0
    """)
    half = made(lambda x: x / 2)
    large = made(lambda x: pc.greater(x, 2.5), returns="BOOLEAN", vectorised=True)
    less = made(lambda a, b: a < b, "DOUBLE, DOUBLE", "BOOLEAN")
    upper = made(str.upper, "STRING", "STRING")
    kept = events.where(large(half("x"))).select("k", y=half("x"))
    assert [row["y"] for row in kept.cht(**how).to_pylist()] == [3.0, 4.0]
    pairs = events.join(events.select("k", x2=col("x")), where=less("x", "x2"))
    assert [(row["x"], row["x2"]) for row in pairs.cht(**how).to_pylist()] == [(4.0, 6.0), (4.0, 8.0), (6.0, 8.0)]
    grouped = events.group_by(u=upper("k")).window(hr.tumbling(10))
    found = grouped.aggregate(m=hr.max(half("x")), n=mid(hr.count(), hr.count("x"))).cht(**how).to_pylist()
    assert [(row["u"], row["m"], row["n"]) for row in found] == [("A", 2.0, 1.5), ("B", 3.0, 1.0), ("C", 4.0, 1.0)]


def test_what_is_no_condition():
    stream = hr.events([{"le": 1, "x": 1.0}])
    with pytest.raises(PlanError, match="where needs a BOOLEAN"):
        stream.where(mid("x", "x"))
