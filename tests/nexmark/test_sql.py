"""NEXMark in SQL: the text gives the plans of Python's queries, or their histories, and the stated answers.

What the answers of the queries in Python are is checked in `test_generated` and `test_external`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from examples.nexmark.in_sql import TEXT, sql_queries
from examples.nexmark.queries import QUERIES, build_query
from examples.nexmark.streams import HOUSE, House, physical, read, replay
from tests.nexmark.test_command import ask
from tests.nexmark.test_external import FOLDER, answer, bag, parsed, stated

import headrace as hr

BUSY = replace(HOUSE, rows=800)
#: The text filters behind joins and derives streams where Python filters before and renames: other plans.
OTHER_PLANS = {"q3", "q4", "q6", "q9", "q20"}
#: The source of the stated answers ranks the bids of q6 from the lowest on.
LOWEST = TEXT.replace("ORDER BY price DESC, bid_date_time", "ORDER BY price, bid_date_time")


@pytest.fixture(scope="module")
def house() -> House:
    tables = physical(BUSY, revised=0.2)
    batches = {name: [table.num_rows // 3, table.num_rows - table.num_rows // 3] for name, table in tables.items()}
    return replay(tables, BUSY.max_delay, batches)


def test_every_query_is_in_the_text(house: House):
    assert list(sql_queries(house)) == list(QUERIES)


def test_plans_are_equal(house: House):
    found = sql_queries(house)
    assert {name for name in QUERIES if found[name].node != build_query(name, house).node} == OTHER_PLANS


@pytest.fixture(scope="module")
def both(house: House) -> tuple[hr.Run, hr.Run]:
    """Both ways to ask, run in batches."""
    in_sql = sql_queries(house)
    return hr.run({name: build_query(name, house) for name in OTHER_PLANS}), hr.run({n: in_sql[n] for n in OTHER_PLANS})


@pytest.mark.parametrize("name", sorted(OTHER_PLANS))
def test_differential_histories_are_equal(both: tuple[hr.Run, hr.Run], name: str):
    in_python, in_sql = (run.cht(name) for run in both)
    assert in_python.num_rows, "an empty history proves nothing"
    assert not hr.history_diff(in_python, in_sql, names=("Python", "SQL"))


def test_of_the_lowest_bids_q6_is_that_of_python(house: House):
    in_python = build_query("q6", house, lowest=True).cht()
    assert not hr.history_diff(in_python, sql_queries(house, LOWEST)["q6"].cht(), names=("Python", "SQL"))


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def finished(request: pytest.FixtureRequest) -> hr.Run:
    """The text's queries over the data set, as one query."""
    if not FOLDER.is_dir():
        pytest.skip(f"the data set is not there: {FOLDER}")
    if request.param == "spark":
        request.getfixturevalue("spark_with_examples")
    house = read(FOLDER)
    queries = {**sql_queries(house), "q6": sql_queries(house, LOWEST)["q6"]}
    return hr.run(queries, host=request.param, buckets=2)


@pytest.mark.parametrize("name", QUERIES)
def test_the_answer_is_the_one_its_source_states(finished: hr.Run, name: str):
    _, rows = stated(name)
    assert bag(answer(name, finished)) == bag(map(parsed, rows))


def test_a_query_is_asked_in_sql():
    told, in_python = (ask("q5", "--events", "400", "--rows", "3", *more) for more in (["--sql"], []))
    assert told.returncode == 0, told.stderr
    assert told.stdout == in_python.stdout
