"""How trees are written: few quotes, few parentheses, one clause a line."""

from __future__ import annotations

import pytest

from headrace.sql import syntax as s
from headrace.sql.parse import parse, parse_expression, parse_statement
from headrace.sql.printer import to_sql


@pytest.mark.parametrize(
    "text",
    [
        "a OR b AND NOT c",
        "(a OR b) AND c",
        "NOT (a AND b)",
        "a - b - c",
        "a - (b - c)",
        "(a = b) = c",
        "(a IS NULL) IS NULL",
        "a BETWEEN b + 1 AND (c AND d)",
        "-a * (b + c)",
        "-(a + b)",
        "- -a",
        "+ +a",
        "-~a",
        "(NOT a) + 1",
        "a IN (b, c OR d)",
        "a || 'it''s' LIKE '%'",
        'size + every + "select" + "a b" + s."from"',
        "1 h 30 min",
        "0.00001 s",
        "CASE a WHEN 1 THEN 2 ELSE 3 END",
        "CAST(a AS INT)",
        '"cast"(a)',
        "m.f(a, k => 10 s) OVER (PARTITION BY a ROWS 5 PRECEDING SLIDE 2)",
        "DATETIME '2024-05-01'",
        "1e+30",
        "'two\nlines'",
    ],
)
def test_canonical_expressions_stay(text: str):
    assert to_sql(parse_expression(text)) == text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("((a))", "a"),
        ("(a * b) + c", "a * b + c"),
        ("a==b", "a = b"),
        ("a!=b", "a <> b"),
        ('"a"', "a"),
        ("`b`", "b"),
        ("a RLIKE 'x'", "a REGEXP 'x'"),
        ("try_cast(a AS int)", "CAST(a AS int)"),
        ("TIMESTAMP '2024'", "DATETIME '2024'"),
        ("sum(a) over ()", "sum(a) OVER ()"),
    ],
)
def test_other_expressions_become_canonical(text: str, written: str):
    assert to_sql(parse_expression(text)) == written


CANONICAL = """\
CREATE SCHEMA base (symbol STRING, ts DATETIME);

CREATE STREAM ticks base
    ORDER BY ts
    SOURCE FILE ('ticks.csv', header => TRUE)
    WITH PROGRESS ADVANCE 10 s
    LATE DIVERT BAD ROWS DIVERT;

CREATE STREAM high AS
SELECT *
FROM ticks
WHERE price > 100;

SELECT DISTINCT symbol, avg(price) AS p
FROM ticks [SIZE 60 ON ts EVERY 10 PARTITIONED BY symbol WHERE price > 1 CLIP LEFT] AS t
LEFT JOIN (
    SELECT *
    FROM b [RANGE 10 s]
    WHERE c = 'two
lines'
) AS u ON t.a = u.a
JOIN c USING (a, b)
WHERE price > 0
GROUP BY symbol
HAVING count(*) > 1
ORDER BY p DESC
LIMIT 3 BY symbol
INTO out
EMIT FINAL
TICK TIME;

QUERY both AS
SELECT a
FROM s
UNION ALL
SELECT a
FROM t;

ON ticks
INSERT INTO large SELECT * WHERE price > 10
INSERT INTO small SELECT symbol;

INSERT INTO CONSOLE AS ticks;

EXPLAIN
SELECT a
FROM s;

VERIFY ticks SEEDS 10 OVER 'late';

WITH RECURSIVE r(a, b) AS (
    SELECT x, y
    FROM s
    UNION ALL
    SELECT a, y
    FROM r
    JOIN s ON b = x
) PROGRESS HWM MAX ROUNDS 9, t AS (
    SELECT a
    FROM r
)
SELECT n
FROM t MATCH_RECOGNIZE (
    PARTITION BY k, a + 1 AS g
    ORDER BY le
    MEASURES FINAL last(B.a) AS a, count(B.*) AS n
    ALL ROWS PER MATCH
    AFTER MATCH SKIP TO FIRST B
    PATTERN (A B+? (C | D E){2,3} (F G)* "permute" (H{2} | I{2,})? PERMUTE(J, K L))
    WITHIN 30 s
    REGISTERS m = -1 (B AS m + 1)
    DEFINE B AS B.a < prev(B.a, 2), C AS TRUE
    WHERE m > 0
) AS x;"""


def test_a_script_is_laid_out():
    assert to_sql(parse(CANONICAL)) == CANONICAL


@pytest.mark.parametrize(
    "text",
    [
        'CREATE STREAM x "source"',
        'CREATE STREAM x AS "merge"',
        'INSERT INTO "console" AS late',
        'EXPLAIN "liveliness"',
        'EXPLAIN "with"',
        'CREATE STREAM x AS "with"',
        'INSERT INTO with AS "with"',
        'VERIFY "with" SEEDS 3',
        'WITH "recursive" AS (\n    SELECT a\n    FROM recursive\n)\nSELECT a\nFROM recursive',
        "DESCRIBE liveliness",
        "CREATE STREAM late (late INT)",
        "CREATE STREAM x\n    SOURCE FILE (`a b`, 'c')",
    ],
)
def test_names_are_quoted_where_they_would_be_keywords(text: str):
    assert to_sql(parse_statement(text)) == text


def test_what_is_no_part_has_no_text():
    with pytest.raises(TypeError):
        to_sql(3)  # type: ignore[arg-type]


def test_a_number_below_zero_is_written_too():
    assert to_sql(s.Number(-5)) == "-5"
