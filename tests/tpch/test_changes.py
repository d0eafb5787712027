"""TPC-H over tables that change: at every moment the answer is that of DuckDB over what the tables have then.

The queries are those of `standard.sql`, worded as `differences.toml` says; docs/tpch.md lists the same differences.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.fixtures.changing_tables import ChangingTables, check_at_every_moment
from tests.tpch.data import DIFFERENCES, QUERIES, STANDARD, changing

import headrace as hr

PAGE = Path(__file__).parents[2] / "docs" / "tpch.md"


def _bind(name: str, log: ChangingTables) -> hr.Stream:
    return hr.sql(QUERIES[name], **log.streams)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_oracle_the_answer_at_every_moment(name: str):
    check_at_every_moment(changing(), {name: (_bind(name, changing()), STANDARD[name])}, buckets=2)


@pytest.mark.volume("the 22 queries over all rows of the scale 0.001, and with other changes")
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", QUERIES)
def test_oracle_more_rows(name: str):
    log = changing(orders=1500, seed=21)
    check_at_every_moment(log, {name: (_bind(name, log), STANDARD[name])}, buckets=1)


def test_on_spark(spark: object):
    log = changing(orders=150, batches=1)
    queries = {name: (_bind(name, log), STANDARD[name]) for name in ("q3", "q9", "q12")}
    check_at_every_moment(log, queries, host="spark", spark=spark, buckets=2)


def test_the_page_lists_every_difference():
    listed = re.findall(r"^\| (q\d.*?) \| (.*?) \| (.*?) \|$", PAGE.read_text(), flags=re.MULTILINE)
    assert listed == [(", ".join(d["queries"]), d["what"], d["reason"]) for d in DIFFERENCES]


def test_there_are_all_queries():
    assert list(QUERIES) == [f"q{n}" for n in range(1, 23)]
