"""Any tree survives being written and read again; any text is read, or refused with the dialect's own error."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.unit.sql.trees import expressions, statements

from headrace.errors import SqlError
from headrace.sql import syntax as s
from headrace.sql.parse import parse, parse_expression
from headrace.sql.printer import to_sql
from headrace.sql.tables import RESERVED, tables

QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck), phases=set(Phase) - {Phase.explain})

# ---- any tree


@QUICK
@given(expressions)
def test_an_expression_is_read_as_it_was_written(tree: s.Expression):
    text = to_sql(tree)
    assert parse_expression(text) == tree
    assert to_sql(parse_expression(text)) == text


@pytest.mark.slow
@QUICK
@given(st.lists(statements, max_size=2).map(tuple).map(s.Script))
def test_a_script_is_read_as_it_was_written(tree: s.Script):
    text = to_sql(tree)
    read = parse(text)
    assert read == tree
    assert to_sql(read) == text
    assert_places_nest(read)


def assert_places_nest(whole: s.Part) -> None:
    for part in whole.parts():
        said = part not in (s.Policy(), s.WindowPolicies())  # what was not said stands nowhere
        assert not said or whole.at[0] <= part.at[0] < part.at[1] <= whole.at[1]
        assert_places_nest(part)


# ---- any text

VALID = """
CREATE SCHEMA ticks_schema (symbol STRING, ts DATETIME, price DOUBLE) EXTENDS base;
CREATE STREAM ticks ticks_schema ORDER BY ts SOURCE FILE ('ticks.csv', ",", header => TRUE)
    WITH PROGRESS ADVANCE 10 s EVERY 5 s LATE DIVERT BAD ROWS DIVERT;
/* a comment */ SELECT DISTINCT symbol, avg(price) * -2 AS p, CASE WHEN a IN (1, 2.5e3) THEN 'x' ELSE NULL END
FROM ticks [SIZE 60 s ON ts EVERY 10 PARTITIONED BY symbol WHERE price > 100.000 CLIP LEFT] AS t
LEFT JOIN (SELECT * FROM b [RANGE 1 h 30 min]) c ON t.a = c.a AND c.b NOT BETWEEN 1 AND 2 -- why
WHERE sum(x) OVER (PARTITION BY k ROWS 5 PRECEDING SLIDE 2) > 3 GROUP BY symbol HAVING count(*) > 1
UNION ALL (SELECT a FROM `b` ORDER BY p LIMIT 3 BY k) INTERSECT VALUES (1) INTO out EMIT FINAL TICK BATCH BY id;
ON ticks INSERT INTO large SELECT symbol WHERE price >= 10, INSERT INTO small SELECT symbol WHERE price < 10;
EXPLAIN LIVELINESS SELECT a FROM s [DELTA abs(this.x - first.x) THRESHOLD 10]; VERIFY q SEEDS 10 OVER 'late'; SET a = b;
CREATE AGGREGATE average(next REAL): REAL ALGEBRAIC {
    TABLE state(total REAL, n INT, KEY (n)) AS VALUES (0.0, 0), (1.0, 1);
    INITIALIZE: ITERATE: { UPDATE state SET total = total + next, n = (SELECT max(n) FROM state) WHERE n > 0; }
    TERMINATE: { INSERT INTO RETURN SELECT total / n FROM state ORDER BY n DESC LIMIT 1; DELETE FROM state }
};
WITH RECURSIVE r (a, b) AS (SELECT x, y FROM s UNION ALL SELECT r.a, s.y FROM r JOIN s ON b = x) PROGRESS HWM
    MAX ROUNDS 9, t AS (SELECT a FROM r) SELECT * FROM t;
SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES FINAL last(B.p) AS p, count(B.*) AS n
    ALL ROWS PER MATCH AFTER MATCH SKIP TO FIRST B PATTERN (A B+? (C | D){2,3} PERMUTE(E, F)) WITHIN 30 s
    REGISTERS m = -1 (B AS m + 1) DEFINE B AS B.p < PREV(B.p, 2) WHERE m > 0) AS x
"""
SNIPPETS = [
    *tables().lexemes.words,
    *tables().lexemes.signs,
    "'",
    '"',
    "`",
    "/*",
    "*/",
    "--",
    "\n",
    "10 s",
    "1e999",
    "x",
    "\0",
    "é",
    "${a}",
    "@",
]


def only_its_own_error(text: str) -> None:
    error = refusal(text)
    if error is not None:
        assert 0 <= error.at[0] <= error.at[1] <= len(text)
        assert error.text == text
        assert str(error).startswith("[SQL] ")


def refusal(text: str) -> SqlError | None:
    try:
        parse(text)
    except SqlError as error:
        return error
    return None


def test_the_valid_text_is_valid():
    assert len(parse(VALID).statements) == 10


@QUICK
@given(st.data())
def test_a_changed_text_is_read_or_refused_at_its_place(data: st.DataObject):
    text = VALID
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(st.sampled_from(SNIPPETS) | st.just("")) + text[end:]
    only_its_own_error(text)


@QUICK
@given(st.text(st.characters(), max_size=60) | st.lists(st.sampled_from(SNIPPETS), max_size=30).map(" ".join))
def test_any_text_is_read_or_refused_at_its_place(text: str):
    only_its_own_error(text)


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_a_reserved_word_is_a_name_in_quotes_alone(word: str):
    assert parse_expression(f'"{word}"') == s.Column(s.Name(word))
    with pytest.raises(SqlError):
        parse(f"SELECT a AS {word} FROM s")


@pytest.mark.parametrize("word", sorted(set(tables().lexemes.words) - RESERVED))
def test_any_other_keyword_is_a_name_where_it_can_be(word: str):
    name = s.Name(word.lower())
    query = parse(f"SELECT {name.text}, s.{name.text} AS {name.text} FROM {name.text} [SIZE 1] WHERE {name.text} > 1")
    ask = query.statements[0]
    assert isinstance(ask, s.Ask)
    assert isinstance(ask.query.body, s.Select)
    assert ask.query.body.entries[0] == s.Entry(s.Column(name))
    assert ask.query.body.entries[1] == s.Entry(s.Column(name, s.Name("s")), name)
    assert ask.query.body.source.stream == name
