"""EXPLAIN ANALYZE: the rows, the time and the state of every operator."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import PlanError, SqlError
from headrace.explain.cost import cost_of_run
from headrace.sql.parse import parse_statement
from headrace.sql.printer import to_sql
from headrace.sql.session import SqlSession, Words
from headrace.stages.measures import RunCost

EVENTS = """
kind   | le | re | k | x
insert | 1  | 2  | a | 1
insert | 3  | 4  | b | 2
insert | 5  | 6  | a | 3
insert | 11 | 12 | a | 4
"""
STREAM = hr.events(EVENTS)
SUMS = STREAM.where(hr.col("x") > 1).group_by("k").window(hr.tumbling(10)).aggregate(s=hr.sum("x"))


def measured(text: str) -> dict[str, str]:
    """What was measured, by the first word of the operator."""
    return dict(re.findall(r"#\d+ (\w+).*\n.*\n +measured: (.*)", text))


def without_times(text: str) -> str:
    return re.sub(r"time: [\d.]+ m?s \(\d+%\)", "time", text)


def test_every_operator_is_measured():
    text = SUMS.explain(analyze=True)
    assert "measured in one thread: 1 batch, " in text
    found = {name: without_times(words) for name, words in measured(text).items()}
    assert found["Source"] == "rows: 4 in, 4 out; time"
    assert found["Where"] == "rows: 4 in, 3 out; time"
    assert found["Combine"] == "rows: 3 in, 3 out; time"
    assert re.fullmatch(r"rows: 3 in, 3 out; time; state at most: 3 rows, \d+ bytes", found["Merge"])
    assert found["Output"] == "rows: 3 in; time"
    assert re.fullmatch(r"rows: 4 in, 4 out; time; state at most: 4 rows, \d+ bytes", found["Admit"])
    assert len(found) == 6


def test_a_plan_without_stages(tmp_path: Path):
    (tmp_path / "x.csv").write_text("at,x\n1,1\n2,2\n3,x\n")
    stream = hr.read_csv(str(tmp_path / "x.csv"), schema="at LONG, x LONG", lifetime=hr.point("at"))
    found = measured(stream.select("x").explain(analyze=True))
    assert found["Source"].startswith("rows: 3 in, 2 out")
    assert found["Output"] == "rows: 2 in"


def test_batches_buckets_and_retractions_are_counted():
    late = "kind|le|re|re_new|k|x\ninsert|1|9||a|1\nretract|1|9|5|a|1\n"
    session = SqlSession({"ev": hr.events(late)})
    query = "EXPLAIN ANALYZE SELECT k, count(*) AS n FROM ev [TUMBLING 10 us] GROUP BY k"
    [_, _, outcome] = session.execute(f"SET batch_rows = 1; SET buckets = 2; {query}")
    assert isinstance(outcome, Words)
    assert "2 batches" in outcome.text
    assert measured(outcome.text)["Admit"].startswith("rows: 2 in, 3 out")


def test_the_statement_prints_and_parses():
    for text in (
        "EXPLAIN ANALYZE s",
        "EXPLAIN ANALYZE LIVELINESS s",
        "EXPLAIN ANALYZE\nSELECT a\nFROM s",
        'EXPLAIN "analyze"',
    ):
        assert to_sql(parse_statement(text)) == text
    session = SqlSession({"ev": STREAM})
    [outcome] = session.execute("EXPLAIN ANALYZE LIVELINESS SELECT k FROM ev")
    assert isinstance(outcome, Words)
    assert {"CTI delay: none", "measured"} <= set(re.findall(r"CTI delay: none|measured", outcome.text))


def test_a_query_without_an_end_is_refused():
    host = "CREATE STREAM h (x INT) SOURCE HOST ('localhost', 9)"
    with pytest.raises(SqlError, match="to the end of its inputs"):
        SqlSession().execute(f"{host}; EXPLAIN ANALYZE SELECT x FROM h")
    with pytest.raises(PlanError, match="to the end of its inputs"):
        hr.script(host).streams["h"].explain(analyze=True)


def test_what_a_loop_measures():
    session = SqlSession({"links": hr.events("kind|le|re|src|dst\ninsert|1|9|a|b\ninsert|1|9|b|c\n")})
    [outcome] = session.execute(
        "EXPLAIN ANALYZE WITH RECURSIVE r AS (SELECT src, dst FROM links UNION "
        "SELECT r.src, links.dst FROM r JOIN links ON r.dst = links.src) SELECT * FROM r"
    )
    assert isinstance(outcome, Words)
    assert "measured: rows: 2 in, 2 out" in outcome.text
    assert re.search(r"measured: rows: 4 in, 3 out; time: .*; state at most: \d+ rows", outcome.text)


def test_a_host_that_measures_no_operators_says_so():
    shown = cost_of_run(RunCost(batches=2, seconds=1.5, host="spark"))
    assert shown == "measured on spark: 2 batches, 1.50 s; times of single operators are measured in process only"
