"""TPC-H over tables that change: at every moment the answer is that of DuckDB over what the tables have then.

The queries are those of `standard.sql`, worded as `differences.toml` says; docs/tpch.md lists the same differences.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.fixtures.changing_tables import check_at_every_moment
from tests.tpch.data import DIFFERENCES, QUERIES, STANDARD, changing

import headrace as hr
from headrace.errors import SchemaError, SqlError

PAGE = Path(__file__).parents[2] / "docs" / "tpch.md"
#: What the dialect lacks, and the queries that wait for it.
MISSING = {
    "DECIMAL and DATE": ["q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11"],
    "DECIMAL, DATE and sub-queries": ["q12", "q13", "q14", "q15", "q16", "q17", "q18", "q19", "q20", "q21", "q22"],
}
WAITS = {name: reason for reason, names in MISSING.items() for name in names}


def _query(name: str) -> object:
    marks = [pytest.mark.xfail(reason=WAITS[name], raises=(SqlError, SchemaError))] if name in WAITS else []
    return pytest.param(name, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize("name", [_query(name) for name in QUERIES])
def test_oracle_the_answer_at_every_moment(name: str):
    log = changing()
    stream = hr.sql(QUERIES[name], **log.streams)
    check_at_every_moment(log, {name: (stream, STANDARD[name])}, buckets=2)


@pytest.mark.volume("the 22 queries over all rows of the scale 0.001, and with other changes")
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [_query(name) for name in QUERIES])
def test_oracle_more_rows(name: str):
    log = changing(orders=1500, seed=21)
    stream = hr.sql(QUERIES[name], **log.streams)
    check_at_every_moment(log, {name: (stream, STANDARD[name])}, buckets=1)


@pytest.mark.xfail(reason="DECIMAL and DATE", raises=(SqlError, SchemaError))
def test_on_spark(spark: object):
    log = changing(orders=150, batches=1)
    streams = log.streams
    queries = {name: (hr.sql(QUERIES[name], **streams), STANDARD[name]) for name in ("q4", "q9", "q13")}
    check_at_every_moment(log, queries, host="spark", spark=spark, buckets=2)


def test_the_page_lists_every_difference():
    listed = re.findall(r"^\| (q\d.*?) \| (.*?) \| (.*?) \|$", PAGE.read_text(), flags=re.MULTILINE)
    assert listed == [(", ".join(d["queries"]), d["what"], d["reason"]) for d in DIFFERENCES]


def test_there_are_all_queries():
    assert list(QUERIES) == [f"q{n}" for n in range(1, 23)]
