"""Joins, sub-queries, sets and running answers in SQL: at every instant, what a database gives of the rows alive."""

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
TESTS = [
    "SELECT k, i, x FROM a WHERE EXISTS (SELECT * FROM b WHERE b.k = a.k)",
    "SELECT k, i, x FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.y > 0)",
    "SELECT k, i, x FROM a WHERE EXISTS (SELECT * FROM b WHERE b.k = a.k AND b.i <> a.i) AND x >= 0",
    "SELECT k, i, x FROM a WHERE EXISTS (SELECT * FROM b WHERE b.i < a.i) AND NOT EXISTS (SELECT * FROM c WHERE j = i)",
    "SELECT k, i, x FROM a WHERE EXISTS (SELECT * FROM b)",
    "SELECT k, i, x FROM a WHERE NOT EXISTS (SELECT y FROM b WHERE y = 7)",
    "SELECT k, i, x FROM a WHERE EXISTS (SELECT count(*) FROM b WHERE b.k = a.k)",
    "SELECT k, i, x FROM a WHERE EXISTS (SELECT k FROM b WHERE b.k = a.k GROUP BY k HAVING count(*) > 1)",
    "SELECT k, i, x FROM a WHERE EXISTS (SELECT * FROM b, c WHERE b.k = c.k AND b.i = a.i AND c.j < a.x)",
    "SELECT k, i, x FROM a WHERE x IN (SELECT y FROM b)",
    "SELECT k, i, x FROM a WHERE x IN (SELECT y FROM b WHERE b.k = a.k) OR i = 1",
    "SELECT k, i, x FROM a WHERE x NOT IN (SELECT y FROM b)",
    "SELECT k, i, x FROM a WHERE x NOT IN (SELECT y FROM b WHERE y IS NOT NULL)",
    "SELECT k, i, x FROM a WHERE x NOT IN (SELECT y FROM b WHERE b.k = a.k)",
    "SELECT k, i, x FROM a WHERE NOT (x IN (SELECT y FROM b WHERE b.i >= a.i))",
    "SELECT k, i, x FROM a WHERE NOT (x NOT IN (SELECT y FROM b))",
    "SELECT k, i, x FROM a WHERE (x NOT IN (SELECT y FROM b)) IS NULL",
    "SELECT k, i, x FROM a WHERE k IN (SELECT k FROM b GROUP BY k HAVING sum(y) > 0)",
    "SELECT k, i, x FROM a WHERE x IN (SELECT max(y) FROM b WHERE b.k = a.k)",
    "SELECT k, i, x FROM a WHERE x > ANY (SELECT y FROM b WHERE b.k = a.k)",
    "SELECT k, i, x FROM a WHERE x >= ALL (SELECT y FROM b)",
    "SELECT k, i, x FROM a WHERE NOT x < ALL (SELECT y FROM b)",
    "SELECT k, i, x FROM a WHERE (x = ANY (SELECT y FROM b)) = FALSE OR i > 1",
    "SELECT k, i, EXISTS (SELECT * FROM b WHERE b.k = a.k) AS e, x IN (SELECT y FROM b) AS n FROM a",
    "SELECT k, i, x FROM a WHERE EXISTS (SELECT * FROM b WHERE b.k = a.k) OR EXISTS (SELECT * FROM c WHERE j = x)",
    "SELECT k, i, x FROM a WHERE CASE WHEN NOT EXISTS (SELECT * FROM b WHERE b.i = a.i) THEN x > 0 ELSE x < 2 END",
    "SELECT k, i, x FROM a WHERE i IN (SELECT i FROM b WHERE y IN (SELECT j FROM c WHERE c.k = b.k))",
    "SELECT k, count(*) AS n FROM a WHERE x IN (SELECT y FROM b) GROUP BY k",
    "SELECT k, x FROM a WHERE k NOT IN (SELECT k FROM t WHERE n > 1)",
    "SELECT k, n FROM t WHERE NOT EXISTS (SELECT * FROM a WHERE a.k = t.k)",
]
VALUES = [
    "SELECT k, x FROM a WHERE x > (SELECT avg(y) FROM b)",
    "SELECT k, x, (SELECT count(*) FROM b) AS n FROM a",
    "SELECT k, x, (SELECT count(*) FROM b WHERE b.k = a.k) AS n FROM a",
    "SELECT k, x, (SELECT count(*) + coalesce(max(y), a.i) FROM b WHERE b.k = a.k AND b.i = a.i) AS n FROM a",
    "SELECT k, x, (SELECT max(y) FROM b WHERE b.k = a.k HAVING count(*) < 2) AS n FROM a",
    "SELECT k, x FROM a WHERE x < (SELECT sum(y) FROM b WHERE b.k = a.k)",
    "SELECT k, x FROM a WHERE 0 = (SELECT count(*) FROM b WHERE a.k = b.k AND y > 0)",
    "SELECT k, x FROM a WHERE x = (SELECT min(b.y) FROM b, c WHERE b.k = c.k AND b.i = a.i) OR x IS NULL",
    "SELECT k, x, (SELECT k FROM b WHERE b.k = a.k GROUP BY k) AS other FROM a",
    "SELECT k, sum(x) AS s FROM a GROUP BY k HAVING sum(x) > (SELECT avg(y) FROM b)",
    "SELECT k, count(*) AS n, (SELECT count(*) FROM b WHERE b.k = a.k) AS m FROM a GROUP BY k",
    "SELECT k, count(*) AS n FROM a GROUP BY k HAVING k IN (SELECT k FROM b) OR count(*) > (SELECT count(*) FROM b)",
    "SELECT k, sum(x + (SELECT count(*) FROM b WHERE b.i = a.i)) AS s FROM a GROUP BY k",
    "SELECT x FROM a WHERE x + (SELECT 1) > 1",
    "SELECT k, sum(x) AS s FROM a WHERE x < (SELECT 2 * avg(i) FROM a AS other WHERE other.k = a.k) GROUP BY k",
    "WITH m AS (SELECT k, i j FROM b) SELECT x FROM a, m WHERE m.k = a.k AND x = (SELECT max(j) FROM m)",
    "SELECT k, x, (SELECT y FROM b WHERE b.k = a.k AND y IS NOT NULL ORDER BY y DESC LIMIT 1) AS top FROM a",
]
SETS = [
    "SELECT k, i FROM a EXCEPT SELECT k, i FROM b",
    "SELECT k, i FROM a INTERSECT SELECT k, i FROM b",
    "SELECT k FROM a UNION SELECT k FROM b EXCEPT SELECT k FROM c",
    "SELECT k FROM a UNION SELECT k FROM b INTERSECT SELECT k FROM c",
    "(SELECT k FROM a UNION SELECT k FROM b) INTERSECT SELECT k FROM c",
    "SELECT k FROM a EXCEPT (SELECT k FROM b EXCEPT SELECT k FROM c)",
    "SELECT i FROM a UNION ALL (SELECT y FROM b INTERSECT SELECT z FROM c)",
    "SELECT k FROM a INTERSECT SELECT k FROM t",
    "SELECT n FROM (VALUES ('a', 1), ('b', 2), (NULL, 3)) AS v (k, n) WHERE EXISTS (SELECT * FROM a WHERE a.k = v.k)",
    "SELECT x, n FROM a, (VALUES (1, 10), (2, 20)) AS v (i, n) WHERE a.i = v.i",
    "SELECT x FROM a WHERE x IN (VALUES (1), (7))",
    "SELECT x FROM a WHERE k IN (SELECT k FROM b INTERSECT SELECT k FROM c)",
    "SELECT * FROM (SELECT k, i FROM a UNION ALL SELECT k, i FROM b) AS u WHERE i > 0",
    "SELECT k FROM a EXCEPT ALL SELECT k FROM b",
    "SELECT k, i FROM a INTERSECT ALL SELECT k, i FROM b",
    "SELECT k FROM a EXCEPT ALL (SELECT k FROM b INTERSECT ALL SELECT k FROM c)",
    "SELECT i FROM a UNION ALL SELECT i FROM b EXCEPT ALL SELECT j FROM c",
    "SELECT k FROM a INTERSECT ALL SELECT k FROM t",
]
LATERAL = [
    "SELECT x, t.y FROM a, LATERAL (SELECT y FROM b WHERE b.k = a.k AND y IS NOT NULL ORDER BY y DESC LIMIT 1) AS t",
    "SELECT a.x, top.y FROM a LEFT JOIN LATERAL (SELECT y FROM b WHERE b.y < a.x ORDER BY y, i LIMIT 2) AS top ON true",
    "SELECT a.x, t.* FROM a CROSS JOIN LATERAL (SELECT b.k, y, a.i + y AS n FROM b WHERE b.k = a.k AND b.i < a.x) t",
    "SELECT x, n, s FROM a, LATERAL (SELECT count(*) AS n, sum(y) + a.x AS s FROM b WHERE b.k = a.k) AS t",
    "SELECT x, n FROM a, LATERAL (SELECT count(*) AS n FROM b WHERE b.i < a.i HAVING count(*) < 2) AS t",
    "SELECT x, n FROM a LEFT JOIN LATERAL (SELECT count(*) AS n FROM b WHERE b.i < a.i) AS t ON t.n > 1",
    "SELECT x, j, n FROM a LEFT JOIN LATERAL (SELECT i j, count(*) n FROM b WHERE b.k = a.k GROUP BY i) t ON n > 0",
    "SELECT x, s FROM a, LATERAL (SELECT a.x + a.i AS s WHERE a.x > 0) AS t",
    "SELECT x, v FROM a, LATERAL (VALUES (a.x), (a.i), (7)) AS t(v)",
    "SELECT x, u.v, z FROM a, LATERAL (SELECT y FROM b WHERE k = a.k) t, LATERAL (SELECT y v, z FROM c WHERE j = y) u",
    "SELECT x, z, n FROM a, LATERAL (SELECT count(*) AS n FROM b WHERE b.i >= a.i) t, c WHERE c.k = a.k AND n > 0",
    "SELECT x, v FROM a, LATERAL (SELECT y AS v FROM b WHERE b.k = a.k UNION SELECT j FROM c WHERE c.j < a.x) AS t",
    "SELECT x, v FROM a, LATERAL (SELECT DISTINCT y AS v FROM b WHERE b.i < a.i) AS t",
    "SELECT x, y FROM a, LATERAL (SELECT y FROM b FULL JOIN c ON b.k = c.k WHERE b.i = a.i OR c.j = a.x) AS t",
    "SELECT x, n FROM a, LATERAL (SELECT y, count(*) OVER () AS n FROM b WHERE b.i < a.i) AS t",
    "SELECT x, count(*) AS n FROM a, LATERAL (SELECT y FROM b WHERE b.k = a.k) AS t WHERE t.y > 0 GROUP BY x",
    "SELECT x FROM a WHERE EXISTS (SELECT * FROM b, LATERAL (SELECT z FROM c WHERE c.j = b.i AND c.k = a.k) AS t)",
]
DEEP = [
    "SELECT k, x, (SELECT count(*) FROM b WHERE b.i < a.i) AS n FROM a",
    "SELECT k, x, (SELECT max(y) FROM b WHERE b.k = a.k AND b.i <> a.i) AS n FROM a",
    "SELECT k, x, (SELECT sum(y * a.x) FROM b) AS n FROM a",
    "SELECT k, x FROM a WHERE x > (SELECT avg(y) FROM b WHERE b.i >= a.i AND (b.k = a.k OR b.k IS NULL))",
    "SELECT k, x, (SELECT y FROM b WHERE b.i <= a.i AND y IS NOT NULL ORDER BY y DESC LIMIT 1) AS top FROM a",
    "SELECT k, x FROM a WHERE x NOT IN (SELECT max(y) FROM b WHERE b.k = a.k)",
    "SELECT k, x FROM a WHERE EXISTS (SELECT count(*) FROM b WHERE b.k = a.k HAVING count(*) = 0)",
    "SELECT k, x FROM a WHERE EXISTS (SELECT i FROM b WHERE b.i < a.i GROUP BY i HAVING count(*) > 1)",
    "SELECT x FROM a WHERE EXISTS (SELECT * FROM b WHERE NOT EXISTS (SELECT * FROM c WHERE c.j = b.i AND c.k = a.k))",
    "SELECT k, x FROM a WHERE x = (SELECT max(y) FROM b WHERE b.i IN (SELECT j FROM c WHERE c.j < a.x))",
    "SELECT k, x, (SELECT count(*) FROM b WHERE y > (SELECT min(j) FROM c WHERE c.k = a.k)) AS n FROM a",
    "SELECT k, x FROM a WHERE EXISTS (SELECT * FROM (SELECT i FROM b WHERE b.k = a.k) AS t WHERE t.i > 0)",
    "SELECT k, x, (SELECT count(*) FROM (SELECT DISTINCT i FROM b WHERE b.y < a.x) AS t) AS n FROM a",
    "SELECT k, x FROM a WHERE EXISTS (SELECT y FROM b WHERE b.k = a.k EXCEPT SELECT j FROM c WHERE c.k = a.k)",
    "SELECT k, x FROM a WHERE x IN (SELECT y FROM b WHERE b.k = a.k UNION ALL SELECT a.i)",
    "SELECT k, x FROM a WHERE EXISTS (SELECT * FROM b JOIN c ON b.k = c.k AND c.j < a.x)",
    "SELECT k, i, x IN (SELECT y FROM b WHERE b.i < a.i AND EXISTS (SELECT * FROM c WHERE c.j = a.x)) AS e FROM a",
    "SELECT k, sum(x) AS s FROM a GROUP BY k HAVING sum(x) > (SELECT count(*) FROM b WHERE b.k < a.k)",
]
ON = [
    "SELECT a.x, b.y FROM a JOIN b ON a.k = b.k AND EXISTS (SELECT * FROM c WHERE c.j = a.i)",
    "SELECT a.x, b.y FROM a JOIN b ON a.k = b.k AND a.x > (SELECT count(*) FROM c WHERE c.j < b.i)",
    "SELECT a.x, b.y FROM a JOIN b ON a.x IN (SELECT j FROM c WHERE c.k = b.k)",
    "SELECT a.x, b.y FROM a JOIN b ON a.k = b.k AND b.y NOT IN (SELECT j FROM c) FULL JOIN c ON c.k = a.k",
    "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k AND b.y IN (SELECT j FROM c WHERE c.k = b.k)",
    "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k AND a.x > (SELECT count(*) FROM c)",
    "SELECT x, y FROM a FULL JOIN b ON a.k = b.k AND EXISTS (SELECT * FROM c WHERE j = b.i) AND x IN (SELECT j FROM c)",
    "SELECT a.x, b.y FROM a RIGHT JOIN b ON a.k = b.k AND NOT EXISTS (SELECT * FROM c WHERE c.j = b.i)",
    "SELECT a.x, b.y FROM a JOIN b ON a.k IS NOT DISTINCT FROM b.k AND a.i < b.i",
    "SELECT a.x, b.y FROM a FULL JOIN b ON a.k IS NOT DISTINCT FROM b.k AND a.i = b.i",
]
GROUPS = [
    "SELECT k, i, count(*) AS n, sum(x) AS s, grouping(k, i) AS g FROM a GROUP BY ROLLUP (k, i)",
    "SELECT k, i + 1 AS j, max(x) AS m FROM a GROUP BY CUBE (k, i + 1) HAVING count(*) > 1 OR grouping(k) = 1",
    "SELECT coalesce(k, '-') AS k, sum(i) AS s FROM a GROUP BY x, GROUPING SETS ((a.k), ())",
    "SELECT k, i, x FROM a GROUP BY GROUPING SETS ((k, i), ROLLUP ((x, i)), ())",
    "SELECT DISTINCT k, min(x) AS m FROM a WHERE x > 1 GROUP BY CUBE (k, i)",
    "SELECT k, sum(x) AS s, grouping(k) AS g FROM a GROUP BY ROLLUP (k) ORDER BY s, g, k LIMIT 2",
]
LISTS = [
    "SELECT k, string_agg(k, '-' ORDER BY x DESC, i) AS t FROM a GROUP BY k",
    "SELECT string_agg(k, ',' ORDER BY k DESC, x) FILTER (WHERE x > 1) AS t FROM a",
    "SELECT i, string_agg(DISTINCT k, '' ORDER BY k DESC) AS t FROM a GROUP BY i",
    "SELECT k, array_agg(x ORDER BY i DESC, x) FILTER (WHERE x IS NOT NULL) AS t FROM a WHERE x > 0 GROUP BY k",
    "SELECT k, array_agg(z ORDER BY z DESC) AS t FROM c WHERE z IS NOT NULL GROUP BY k",
    "SELECT k, array_agg(DISTINCT x ORDER BY x) AS t FROM a WHERE x IS NOT NULL GROUP BY k",
]
CHOSEN = [
    "SELECT DISTINCT ON (k) k, x FROM a ORDER BY k, x DESC",
    "SELECT DISTINCT ON (k, i % 2) k, i % 2 AS odd, x FROM a WHERE i IS NOT NULL ORDER BY k, i % 2, x",
    "SELECT DISTINCT ON (k) k, max(x) AS m FROM a GROUP BY k, i ORDER BY k, m",
    "SELECT x FROM a ORDER BY x OFFSET 2",
    "SELECT k, count(*) AS n FROM a GROUP BY k ORDER BY n, k OFFSET 1 ROWS",
    "SELECT i, x FROM a QUALIFY row_number() OVER (PARTITION BY k ORDER BY x, i) <= 2 ORDER BY x DESC, i LIMIT 2",
    "SELECT i AS j, rank() OVER (ORDER BY x) AS r FROM a QUALIFY r > 1 ORDER BY r, j LIMIT 3 OFFSET 1",
]
RUNNING = [
    "SELECT k, i, x, sum(x) OVER (PARTITION BY k ORDER BY i) AS s FROM a",
    "SELECT k, i, x, sum(x) OVER (PARTITION BY k ORDER BY i DESC, x) AS s, count(*) OVER (ORDER BY k, i) AS n FROM a",
    "SELECT k, i, x, avg(x) OVER (PARTITION BY k ORDER BY i, x ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS m FROM a",
    "SELECT k, i, x, sum(x) OVER (ORDER BY k, i, x ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS m FROM a",
    "SELECT k, i, x, min(x) OVER (ORDER BY k, i, x ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS m FROM a",
    "SELECT k, i, x, lag(x) OVER w AS b, lead(x, 2, -1) OVER w AS f FROM a WINDOW w AS (PARTITION BY k ORDER BY i, x)",
    "SELECT i, first_value(x) OVER w AS f, last_value(x) OVER w AS l FROM a WINDOW w AS (PARTITION BY k ORDER BY i, x)",
    "SELECT i, x, nth_value(x, 2) OVER (PARTITION BY k ORDER BY i, x) AS n FROM a",
    "SELECT k, i, x, sum(x) OVER (ORDER BY i RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS s FROM a",
    "SELECT k, i, count(*) OVER (PARTITION BY k ORDER BY i DESC RANGE BETWEEN 2 PRECEDING AND 1 PRECEDING) AS s FROM a",
    "SELECT k, j, z, sum(z) OVER (ORDER BY z RANGE BETWEEN 1.5 PRECEDING AND CURRENT ROW) AS s FROM c",
    "SELECT k, count(DISTINCT x) OVER (ORDER BY i) AS n, sum(x) FILTER (WHERE x > 0) OVER (ORDER BY i) AS m FROM a",
    "SELECT k, i, x FROM a QUALIFY x > lag(x) OVER (PARTITION BY k ORDER BY i, x)",
    "SELECT a.k, x, y, lag(y) OVER (PARTITION BY a.k ORDER BY x, y) AS b FROM a JOIN b ON a.k = b.k",
    "SELECT k, x, sum(x) OVER (PARTITION BY k ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS s FROM a",
]
_TUMBLES = """(
    SELECT *, floor(x / 3)::LONG * 3 AS window_start, window_start + 3 AS window_end FROM a WHERE x IS NOT NULL
)"""
_HOPS = """(
    SELECT a.*, (floor(x / 2)::LONG - n) * 2 AS window_start, window_start + 5 AS window_end FROM a, range(3) AS r (n)
    WHERE window_end > x
)"""
#: Windows by a column, which DuckDB has no function for, and what they are there.
WINDOWS = [
    ("SELECT * FROM {}", "TUMBLE(a, x, 3 us)", _TUMBLES),
    ("SELECT window_end, k, sum(i) AS s FROM {} GROUP BY window_end, k", "TUMBLE(a, x, 3 us)", _TUMBLES),
    ("SELECT window_start, count(*) AS n, max(i) AS m FROM {} GROUP BY 1", "HOP(a, x, 2 us, 5 us)", _HOPS),
    ("SELECT k, y, window_start FROM {} JOIN b USING (k)", "HOP(a, x, 2 us, 5 us)", _HOPS),
]


def relations(*names: str) -> st.SearchStrategy[dict[str, hr.Stream]]:
    return st.fixed_dictionaries({name: streams(SCHEMAS[name], max_events=7, odd=False) for name in names})


def _few(n: int) -> settings:
    """A share of the examples of other tests, because there are many queries."""
    return settings(max_examples=max(2, settings().max_examples // n))


@pytest.mark.parametrize("text", JOINS)
@_few(12)
@given(relations("a", "b", "c"), buckets())
def test_oracle_joins(text: str, inputs: dict[str, hr.Stream], n: int):
    oracle_snapshots(text, inputs, buckets=n)


@pytest.mark.parametrize("text", WITH_TABLES)
@_few(12)
@given(relations("a"), buckets())
def test_oracle_joins_with_tables(text: str, inputs: dict[str, hr.Stream], n: int):
    oracle_snapshots(text, inputs, TABLES, buckets=n)


@pytest.mark.parametrize("text", [*TESTS, *VALUES, *SETS, *LATERAL, *DEEP, *ON])
@_few(12)
@given(relations("a", "b", "c"), buckets())
def test_oracle_subqueries(text: str, inputs: dict[str, hr.Stream], n: int):
    oracle_snapshots(text, inputs, TABLES if " t" in text else {}, buckets=n)


@pytest.mark.parametrize("text", RUNNING)
@_few(12)
@given(relations("a", "b", "c"), buckets())
def test_oracle_running_answers(text: str, inputs: dict[str, hr.Stream], n: int):
    oracle_snapshots(text, inputs, buckets=n)


@pytest.mark.parametrize(("text", "windows", "instead"), WINDOWS)
@_few(4)
@given(relations("a", "b"), buckets())
def test_oracle_windows_by_a_column(text: str, windows: str, instead: str, inputs: dict[str, hr.Stream], n: int):
    oracle_snapshots(text.format(windows), inputs, buckets=n, instead=text.format(f"{instead} AS w"))


@pytest.mark.parametrize("text", [*LATERAL[:7:2], LATERAL[8], *DEEP[::5]])
@_few(12)
@given(relations("a", "b", "c"), buckets())
def test_oracle_instants_with_subqueries(text: str, inputs: dict[str, hr.Stream], n: int):
    oracle_snapshots(text, {**inputs, "a": inputs["a"].point_at_start()}, buckets=n)


@pytest.mark.parametrize("text", [*LISTS, *CHOSEN])
@_few(12)
@given(relations("a", "c"), buckets())
def test_oracle_lists_and_choices(text: str, inputs: dict[str, hr.Stream], n: int):
    used = {name: stream for name, stream in inputs.items() if f"FROM {name}" in text}
    oracle_snapshots(text, used, buckets=n)


@pytest.mark.parametrize("text", GROUPS)
@_few(12)
@given(relations("a"), buckets())
def test_oracle_groups_of_several_kinds(text: str, inputs: dict[str, hr.Stream], n: int):
    oracle_snapshots(text, inputs, buckets=n)
