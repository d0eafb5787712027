"""Diverted rows as a stream, and the time after which a query without new rows ends."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace import col
from headrace.errors import HeadraceError, SqlError
from headrace.sql.parse import parse_statement
from headrace.sql.printer import to_sql

ROWS = "ts,k\n1000000,a\n50000000,b\n2000000,late\nx,bad\n60000000,c\n"
STREAM = """
    CREATE STREAM s (ts LONG, k STRING) ORDER BY ts SOURCE FILE ('rows.csv', ',')
        WITH PROGRESS ADVANCE 10 s LATE DIVERT BAD ROWS DIVERT;
    CREATE STREAM some AS SELECT k FROM s WHERE k <> 'a';
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_text(ROWS)
    return tmp_path


def test_diverted_rows_are_a_stream(place: Path):
    text = STREAM + """
        CREATE STREAM late AS DIVERTED FROM some;
        SELECT reason, row, json_value(row, '$.k') AS k FROM late WHERE reason LIKE '%late%';
        SELECT count(*) AS n FROM late [TUMBLING 1 h];
    """  # fmt: skip
    script = hr.script(text, base=place)
    assert script.streams["late"].node == script.streams["s"].diverted().node
    run = script.run()
    rows = run.cht("query_1").to_pylist()
    assert len(rows) == 1
    assert run.cht("query_2")["n"].to_pylist() == [2]


def test_the_statement_prints_and_parses_back():
    part = parse_statement("CREATE STREAM late AS DIVERTED FROM s")
    assert parse_statement(to_sql(part)) == part
    assert parse_statement("CREATE STREAM x AS diverted").derived.text == "diverted"  # type: ignore[attr-defined]
    with pytest.raises(SqlError, match="no stream 'nothing'"):
        hr.script("CREATE STREAM late AS DIVERTED FROM nothing")


def test_a_query_without_new_rows_ends(place: Path):
    stream = hr.read_csv(str(place / "*.csv"), "ts LONG, k STRING", lifetime=hr.point("ts"),
                         progress=hr.advance(delay="10 s", late="divert"))  # fmt: skip
    answers = hr.memory()
    counted = stream.where(col("k") == "c").window(hr.tumbling("1 h")).aggregate(n=hr.count())
    query = counted.final().start(answers, host="local", timeout="300 ms", checkpoint=str(place / "state"))
    assert query.await_termination(60)
    assert not query.is_active
    assert answers.cht()["n"].to_pylist() == [1]
    query.stop()


def test_a_script_sets_the_time_out(place: Path):
    script = hr.script(STREAM + "SET timeout = 300 ms; SELECT count(*) AS n FROM some [TUMBLING 1 h];", base=place)
    answers = hr.memory()
    query = script.start(answers, host="local")
    assert query.await_termination(60)
    assert answers.cht()["n"].to_pylist() == [2]
    query.stop()


def test_a_time_out_is_a_duration(place: Path):
    with pytest.raises(HeadraceError, match="time-out is a duration"):
        hr.script(STREAM, base=place).streams["s"].start(hr.memory(), host="local", timeout=0)
    with pytest.raises(SqlError):
        hr.script("SET timeout = 'soon'")
