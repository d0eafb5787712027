"""What tells functions of users apart: their text, which a plan is known by."""

from __future__ import annotations

import functools
import importlib
import math
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

import headrace as hr
from headrace import col
from headrace.expr import Udf, evaluate, udf

TABLE = pa.table({"n": pa.array([1, 2, None, -4], pa.int32()), "x": [0.5, None, 2.0, 0.0]})


@udf
def mid(bid: float, ask: float) -> float:
    """The middle of two prices."""
    return (bid + ask) / 2


def values(expr: Any) -> list[Any]:
    return evaluate(expr, TABLE).to_pylist()


def made(function: Any, takes: str = "DOUBLE", returns: str = "DOUBLE", **options: Any) -> Udf:
    return udf(function, takes=takes, returns=returns, **options)


def defined(source: str, **variables: Any) -> Udf:
    space: dict[str, Any] = {"__name__": "somewhere", **variables}
    exec(source, space)  # noqa: S102 - functions that differ in one thing
    return made(space["f"])


def test_the_text_is_the_name_and_the_mark():
    assert str(mid("x", col("n") * 2)) == f"mid@{mid.mark}(x, n * 2)"
    assert mid("x", "n").name == "mid(x, n)"
    assert mid("x", "n").same(mid(col("x"), "n"))


def test_the_mark_survives_the_way_to_a_worker():
    expr = mid("x", 1)
    copied = pickle.loads(cloudpickle.dumps(expr))  # noqa: S301 - our own
    assert str(copied) == str(expr)
    assert values(copied) == values(expr)
    factor = 3.0
    closed = made(lambda x: x * factor)("x")
    assert str(pickle.loads(cloudpickle.dumps(closed))) == str(closed)  # noqa: S301 - our own


def test_code_that_does_the_same_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert defined("def f(x):\n    return x + 1").mark == defined("def f(x):\n    return x + 1").mark
    plain = "import headrace as hr\n@hr.udf\ndef f(x: float) -> float:\n    return x + 1.0\n"
    dressed = plain.replace("    return x + 1.0", "    'Documented.'\n    return (x +\n        1.0)  # commented")
    other = plain.replace("1.0", "1.5")
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for number, source in enumerate((plain, dressed, other)):
        (tmp_path / f"functions_{number}.py").write_text(source)
        found.append(importlib.import_module(f"functions_{number}").f.mark)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("source", "variables"),
    [
        ("def f(x):\n    return x + 2", {}),
        ("def f(x):\n    return x - 1", {}),
        ("def f(x, y=1):\n    return x + 1", {}),
        ("def f(x):\n    return x + c", {"c": 1}),
        ("def f(x):\n    return x + c", {"c": 2}),
        ("def f(x):\n    return g(x)\ndef g(x):\n    return x", {}),
        ("def f(x):\n    return g(x)\ndef g(x):\n    return x + 1", {}),
        ("def make(c):\n    def f(x):\n        return x + c\n    return f\nf = make(1)", {}),
        ("def make(c):\n    def f(x):\n        return x + c\n    return f\nf = make(2)", {}),
        ("def make(c):\n    def f(x):\n        return x + c\n    return f\nf = make({'a', 'b'})", {}),
        ("def make(c):\n    def f(x):\n        return x + c\n    return f\nf = make({'a', 'c'})", {}),
    ],
)
def test_other_code_has_another_mark(source: str, variables: dict[str, Any], marks: dict[str, str]):
    found = defined(source, **variables).mark
    assert found not in marks.values()
    marks[source + str(variables)] = found


@pytest.fixture(scope="module")
def marks() -> dict[str, str]:
    """The marks of all functions above so far."""
    return {"": defined("def f(x):\n    return x + 1").mark}


def test_functions_on_one_line_and_with_other_types_or_options_differ():
    a, b = made(lambda x: x + 1), made(lambda x: x - 1)
    same = made(lambda x: x)
    others = [
        a, b, same, made(same.function, "LONG"), made(same.function, returns="FLOAT"),
        made(same.function, on_error="null"), made(same.function, nulls="pass"),
    ]  # fmt: skip
    assert len({udf.mark for udf in others}) == len(others)


def test_closures_over_different_values_are_not_mistaken_for_each_other():
    def plus(y: float) -> Udf:
        @udf
        def moved(x: float) -> float:
            return x + y

        return moved

    stream = hr.events([{"le": 1, "x": 1.0}])
    found = stream.window(hr.tumbling(10)).aggregate(a=hr.sum(plus(1.0)("x")), b=hr.sum(plus(2.0)("x"))).cht()
    assert (found["a"].to_pylist(), found["b"].to_pylist()) == ([2.0], [3.0])


def test_what_holds_something_that_cannot_be_stored_is_itself_alone():
    def guarded(lock: Any) -> Udf:
        return made(lambda x: x if lock.acquire(False) else -x)

    lock = threading.Lock()
    assert guarded(lock).mark == guarded(lock).mark != guarded(threading.Lock()).mark


class Model:
    """Something with a state."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def predict(self, x: float) -> float:
        return x * self.factor

    def __call__(self, x: float) -> float:
        return x + self.factor


def test_methods_partial_functions_and_objects_differ_by_what_they_belong_to():
    callables = [
        Model(1.0).predict, Model(2.0).predict, Model(1.0), Model(2.0), {1.0: 2.0}.get, {1.0: 3.0}.get,
        functools.partial(math.pow, 2.0), functools.partial(math.pow, 3.0), logged(mid.function), counted(mid.function),
    ]  # fmt: skip
    takes = ["DOUBLE"] * 8 + ["DOUBLE, DOUBLE"] * 2
    marks = [made(*pair).mark for pair in zip(callables, takes, strict=True)]
    assert len(set(marks)) == len(marks)
    assert made(Model(1.0)).mark == made(Model(1.0)).mark
    assert values(made(Model(3.0).predict)("x")) == [1.5, None, 6.0, 0.0]


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def counted(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args) + len(args)

    return wrapper


@pytest.mark.slow
def test_what_a_function_calls_counts(tmp_path: Path):
    """In processes of their own, where every id is another."""
    source = """
import headrace as hr, pyarrow.compute as pc
class Scale:
    factor = 2.0
    def of(self, x): return x * self.factor
@hr.udf
def inner(x: float) -> float: return x + 1.0
scale = Scale()
@hr.udf
def f(x: float) -> float: return inner.function(scale.of(x))
@hr.udf(takes="DOUBLE", returns="DOUBLE", vectorised=True)
def g(x): return pc.sqrt(x)
print(f.mark, g.mark, hr.udf(pc.sqrt, takes="DOUBLE", returns="DOUBLE", vectorised=True).mark)
"""
    found = []
    for number, changed in enumerate((source, source, source.replace("2.0", "3.0"), source.replace("1.0", "2.0"))):
        path = tmp_path / f"marks_{number}.py"
        path.write_text(changed)
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
        found.append(done.stdout.split())
    assert found[0] == found[1]
    assert len({marks[0] for marks in found}) == 3
    assert len({tuple(marks[1:]) for marks in found}) == 1


def test_builtins_and_ufuncs():
    assert values(made(math.floor, "DOUBLE", "LONG")("x")) == [0, None, 2, 0]
    assert values(made(np.exp2, vectorised=True)("n")) == [2.0, 4.0, None, 0.0625]
    assert made(math.floor).mark != made(math.ceil).mark
