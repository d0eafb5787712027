"""A function that is not deterministic takes back what it never gave: it is named where that is seen."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import EventError, ModuleFailed

TABLE = """
    kind    | le | re | re_new | k | x
    insert  | 1  | 9  |        | a | 1.0
    insert  | 2  | 9  |        | a | 2.0
    insert  | 12 | 19 |        | a | 2.0
    retract | 1  | 9  | 5      | a | 1.0
    insert  | 21 | 29 |        | a | 2.0
"""


def drifting() -> Any:
    """Gives another value each time."""
    calls = count()
    return hr.udf(lambda x: x + next(calls), takes="DOUBLE", returns="DOUBLE", name="drifting")


def flips() -> Any:
    """Is true every third time."""
    calls = count()
    return hr.udf(lambda x: x > 0 and next(calls) % 3 == 0, takes="DOUBLE", returns="BOOLEAN", name="flips")


QUERIES: dict[str, Callable[[hr.Stream], hr.Stream]] = {
    "select": lambda s: s.select(y=drifting()("x")),
    "inside": lambda s: s.select(y=drifting()(col("x") * 2) + 1),
    "where": lambda s: s.where(flips()("x")),
    "join": lambda s: s.join(s, on="k", where=flips()("x")),
    "key": lambda s: s.group_by(y=drifting()("x")).window(hr.tumbling(10)).aggregate(n=hr.count()),
    "tumbling": lambda s: s.window(hr.tumbling(10)).aggregate(n=hr.sum(drifting()("x"))),
    "median": lambda s: s.window(hr.tumbling(10)).aggregate(n=hr.median(drifting()("x"))),
    "snapshot": lambda s: s.window(hr.snapshot()).aggregate(n=hr.sum(drifting()("x"))),
    "session": lambda s: s.window(hr.session(5)).aggregate(n=hr.max(drifting()("x"))),
    "over an answer": lambda s: s.window(hr.snapshot()).aggregate(n=drifting()(hr.sum("x"))),
}


@pytest.mark.parametrize("name", QUERIES)
def test_what_is_taken_back_is_asked_twice(name: str):
    with pytest.raises(ModuleFailed, match=r"the function (drifting|flips) is not deterministic: it gave .*, then "):
        QUERIES[name](hr.events(TABLE, batches=[1] * 5)).cht()


def test_a_function_that_changes_its_mind_between_batches_is_named_by_the_history():
    calls: list[float] = []

    def slow(x: float) -> float:
        calls.append(x)
        return x + len(calls) // 4

    stream = hr.events(TABLE, batches=[1] * 5).select(y=hr.udf(slow)("x")).where(col("y") > 0)
    with pytest.raises(EventError, match=r"never inserted; the query calls slow: a function that is not deterministic"):
        stream.cht()


def test_what_was_never_inserted_is_no_function_that_nobody_called():
    table = "kind | le | re | re_new | x\nretract | 1 | 9 | 5 | 1.0"
    with pytest.raises(EventError) as caught:
        hr.events(table).cht()
    assert "deterministic" not in str(caught.value)


def test_deterministic_functions_are_not_blamed():
    same = hr.udf(lambda x: float("nan") if x == 1.0 else x, takes="DOUBLE", returns="DOUBLE", name="same")
    nulls = hr.udf(lambda x: None if x == 1.0 else x > 1, takes="DOUBLE", returns="BOOLEAN", name="nulls")
    stream = hr.events(TABLE, batches=[1] * 5)
    assert stream.select(y=same("x")).cht().num_rows == 4
    assert stream.where(nulls("x")).cht().num_rows == 3
