"""`hash` and `uniform`: numbers that look random, and are the same wherever they are computed."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fixtures.esl import made

import headrace as hr
from headrace.errors import SqlError
from headrace.expr import col, evaluate
from headrace.expr.hashing import PRIME, _numbers, hashed
from headrace.schema import Schema

#: Of any release: samples must stay what they are.
PINNED = [1023431594, 1523726075, 1777801431, 944731953, 1111920712]
LONGS = st.integers(-(2**63), 2**63 - 1)


def plain(value: int, seed: int) -> int:
    """The same in plain Python."""
    xor, *rest = islice(_numbers(seed), 10)
    word = value & (2**64 - 1)
    parts = [xor, (word >> 31) & PRIME, word >> 62, rest[6]]
    scale, add = [*rest[0:6:2], rest[7]], [*rest[1:6:2], rest[8]]
    found = word & PRIME
    for part, a, b in zip(parts, scale, add, strict=True):
        found = ((found ^ part) * (a % (PRIME - 2) + 2) + b) % PRIME
    return found


def computed(values: list[Any], seed: int = 0) -> list[Any]:
    table = pa.table({"x": pa.array(values, pa.int64())})
    return evaluate(hashed(col("x"), seed), table, Schema.of("x LONG")).to_pylist()


@given(st.lists(LONGS, min_size=1), LONGS)
def test_it_is_what_plain_python_says(values: list[int], seed: int):
    assert computed([*values, None], seed) == [*(plain(value, seed) for value in values), None]


def test_it_stays_as_it_is():
    assert computed([0, 1, -1, 2**63 - 1, -(2**63)]) == [plain(v, 0) for v in (0, 1, -1, 2**63 - 1, -(2**63))]
    assert computed([0, 1, 2], 7) != computed([0, 1, 2])
    assert computed([0, 1, 2**31, 2**62, -(2**63)], 1) == PINNED


def test_engines_agree_and_so_do_bodies_of_aggregates():
    values = [0, 1, -1, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63), 123456789012345]
    stream = hr.events([{"le": place, "x": value} for place, value in enumerate(values)], "x LONG")
    asked = hr.sql("SELECT x, hash(x) AS h, hash(x, 3) AS g, uniform(x) AS u FROM s", s=stream)
    assert not hr.history_diff(asked.history(engine="duckdb").cht(), asked.cht())
    rows = asked.cht().to_pylist()
    assert [row["h"] for row in rows] == [plain(value, 0) for value in values]
    assert [row["u"] for row in rows] == [plain(value, 0) / PRIME for value in values]
    text = """
    CREATE AGGREGATE f(x LONG): (h LONG, g LONG, u DOUBLE) {
        INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (hash(f.x), hash(f.x, 3), uniform(f.x)); }
    }"""
    assert made(text).compute(values) == [(row["h"], row["g"], row["u"]) for row in rows]
    assert "kernel(" not in made(text).source


@pytest.mark.parametrize("step", [1, 2, 1024, 2**31, 2**40])
def test_it_looks_random(step: int):
    found = np.array(computed((np.arange(20_000, dtype=np.int64) * step).tolist()))
    assert len(set(found.tolist())) > 19_900
    for parts in (found * 16 // PRIME, found % 16):
        assert abs(np.bincount(parts, minlength=16) - 1250).max() < 200


@pytest.mark.parametrize("call", ["hash(k)", "hash(x, y)", "hash()", "hash(x, 1, 2)", "uniform(x / 2)", "hash(x, 'a')"])
def test_refused(call: str):
    stream = hr.events([{"le": 1, "x": 1, "y": 2, "k": "a"}], "x LONG, y LONG, k STRING")
    text = f"SELECT {call} AS h FROM s"
    with pytest.raises(SqlError) as caught:
        hr.sql(text, s=stream)
    assert text[slice(*caught.value.at)] in call
