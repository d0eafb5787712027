"""TPC-H over tables that change: at every moment the answer is that of DuckDB over what the tables have then.

The queries are those of `standard.sql`, worded as `differences.toml` says; docs/tpch.md lists the same differences.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
from tests.fixtures.changing_tables import ChangingTables, bound, check_at_every_moment, refused
from tests.tpch.data import DIFFERENCES, QUERIES, STANDARD, changing

import headrace as hr

PAGE = Path(__file__).parents[2] / "docs" / "tpch.md"
#: What the dialect lacks, and the queries that wait for it.
MISSING = {
    "sub-queries": ["q2", "q4", "q11", "q15", "q16", "q17", "q18", "q20", "q21", "q22"],
    "columns named behind an alias": ["q13"],
}
WAITS = {name: reason for reason, names in MISSING.items() for name in names}


def _bind(name: str, log: ChangingTables) -> hr.Stream:
    return hr.sql(QUERIES[name], **log.streams)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_oracle_the_answer_at_every_moment(name: str):
    stream = bound(lambda: _bind(name, changing()), WAITS.get(name))
    check_at_every_moment(changing(), {name: (stream, STANDARD[name])}, buckets=2)


@pytest.mark.volume("the 22 queries over all rows of the scale 0.001, and with other changes")
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", QUERIES)
def test_oracle_more_rows(name: str):
    log = changing(orders=1500, seed=21)
    check_at_every_moment(log, {name: (bound(lambda: _bind(name, log), WAITS.get(name)), STANDARD[name])}, buckets=1)


def test_on_spark(spark: object):
    log = changing(orders=150, batches=1)
    queries = {name: (_bind(name, log), STANDARD[name]) for name in ("q3", "q9", "q12")}
    check_at_every_moment(log, queries, host="spark", spark=spark, buckets=2)


def test_what_waits_is_refused():
    def make(name: str) -> hr.Stream:
        return _bind(name, changing())

    assert refused({name: partial(make, name) for name in WAITS}) == set(WAITS), "take what runs out of MISSING"


def test_the_page_lists_every_difference():
    listed = re.findall(r"^\| (q\d.*?) \| (.*?) \| (.*?) \|$", PAGE.read_text(), flags=re.MULTILINE)
    assert listed == [(", ".join(d["queries"]), d["what"], d["reason"]) for d in DIFFERENCES]


def test_there_are_all_queries():
    assert list(QUERIES) == [f"q{n}" for n in range(1, 23)]
