"""Joins, sub-queries and set operations in SQL: at every instant, what a database gives of the rows alive then."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fixtures.snapshots import oracle_snapshots

import headrace as hr
from headrace.testing.strategies import buckets, streams

#: Streams that last, with columns in common.
SCHEMAS = {"a": "k STRING, i LONG, x LONG", "b": "k STRING, i LONG, y LONG", "c": "k STRING, j LONG, z DOUBLE"}
#: A stored table.
TABLES = {"t": pa.table({"k": ["a", "b", "b", None], "n": pa.array([1, 2, 0, 1], pa.int64())})}

JOINS = [
    "SELECT a.x, b.y FROM a, b WHERE a.k = b.k",
    "SELECT a.x, b.y, c.z FROM a, b, c WHERE a.k = b.k AND b.i = c.j AND a.x >= 0",
    "SELECT a.x, b.y, c.z FROM a, b, c WHERE b.k = c.k AND a.x = c.j",
    "SELECT a.x, b.y, c.z FROM a, b, c WHERE b.k = c.k AND a.x > 0",
    "SELECT a.x, b.y FROM a, b WHERE a.i + 1 = b.y AND (a.x < b.i OR b.i IS NULL)",
    "SELECT a.x, b.y FROM a, b WHERE (a.k = b.k AND a.x = 1) OR (a.k = b.k AND b.y = 2 AND a.i < 7)",
    "SELECT a.x, b.y FROM a, b WHERE a.i < b.i",
    "SELECT a.x, c.z FROM a, c WHERE a.x = c.z",
    "SELECT a.k, x, y, b.i FROM a JOIN b ON a.k = b.k AND a.i = b.i AND a.i = b.y",
    "SELECT a.x, b.y, c.z FROM a JOIN b ON a.k = b.k, c WHERE c.j = a.i",
    "SELECT a.x, b.y, c.z FROM a, b LEFT JOIN c ON b.k = c.k AND c.j > 0 WHERE a.i = b.i AND c.z IS NULL",
    "SELECT a.k AS ak, b.k AS bk, x, y FROM a LEFT JOIN b ON a.k = b.k AND b.y > 0 AND a.x > 0",
    "SELECT x, y FROM a LEFT JOIN b ON a.i < b.i",
    "SELECT a.k AS ak, b.k AS bk, x, y FROM a RIGHT JOIN b ON a.k = b.k AND x < y",
    "SELECT a.k AS ak, b.k AS bk, x, y FROM a FULL OUTER JOIN b ON a.k = b.k AND a.i = b.i",
    "SELECT a.k AS ak, b.k AS bk, x, y FROM a FULL JOIN b ON a.i > b.i",
    "SELECT k, i, x, y FROM a JOIN b USING (k, i)",
    "SELECT k, x, y FROM a LEFT JOIN b USING (k)",
    "SELECT k, x, y FROM a RIGHT JOIN b USING (k)",
    "SELECT k, x, y FROM a FULL JOIN b USING (k)",
    "SELECT * FROM a NATURAL JOIN b",
    "SELECT k, i, x, y FROM a NATURAL FULL JOIN b",
    "SELECT a.x, c.z FROM a CROSS JOIN c",
    "SELECT k, i, x FROM a SEMI JOIN b ON a.k = b.k AND a.i <= b.y",
    "SELECT k, i, x FROM a ANTI JOIN b ON a.k = b.k AND a.i <= b.y",
    "SELECT a.x, b.y, c.z FROM a FULL JOIN b ON a.k = b.k, c WHERE c.j = 1 AND (a.x = 1 OR b.y = 1)",
    "SELECT x, y FROM a, b WHERE a.k = b.k AND a.i = 1 AND 1 = 1",
    "SELECT p.x, q.x AS other FROM a p, a q WHERE p.k = q.k AND p.i < q.i",
]
WITH_TABLES = [
    "SELECT a.x, t.n FROM a, t WHERE a.k = t.k",
    "SELECT a.x, t.n FROM a, t WHERE a.k = t.k AND t.n > 0 AND t.n <> a.i",
    "SELECT a.x, t.n FROM t, a WHERE a.k = t.k AND t.n > 0",
    "SELECT a.x, t.n FROM a, t WHERE a.i < t.n",
    "SELECT a.x, t.n FROM a CROSS JOIN t",
    "SELECT a.k AS ak, t.k AS tk, x, n FROM a LEFT JOIN t ON a.k = t.k",
    "SELECT a.k AS ak, t.k AS tk, x, n FROM a LEFT JOIN t ON a.k = t.k AND t.n > a.x",
    "SELECT k, x, n FROM a LEFT JOIN t USING (k)",
    "SELECT x FROM a SEMI JOIN t ON a.k = t.k AND n > 0",
    "SELECT x FROM a ANTI JOIN t ON a.k = t.k",
]


def relations(*names: str) -> st.SearchStrategy[dict[str, hr.Stream]]:
    return st.fixed_dictionaries({name: streams(SCHEMAS[name], max_events=7, odd=False) for name in names})


def _few(n: int) -> settings:
    """A share of the examples of other tests, because there are many queries."""
    return settings(max_examples=max(2, settings().max_examples // n))


@pytest.mark.parametrize("text", JOINS)
@_few(8)
@given(relations("a", "b", "c"), buckets())
def test_oracle_joins(text: str, inputs: dict[str, hr.Stream], n: int):
    oracle_snapshots(text, inputs, buckets=n)


@pytest.mark.parametrize("text", WITH_TABLES)
@_few(8)
@given(relations("a"), buckets())
def test_oracle_joins_with_tables(text: str, inputs: dict[str, hr.Stream], n: int):
    oracle_snapshots(text, inputs, TABLES, buckets=n)
