"""Answers at one instant are printed in the order in which they happened, where that is known."""

from __future__ import annotations

import io

import pytest

import headrace as hr
from headrace import col
from headrace.sql.session import SqlSession
from headrace.sql.views import view

LINES = """
    le | re | k | x
    3  | 4  | c | 2
    3  | 4  | d | 1
    1  | 2  | z | 5
    3  | 4  | b | 0
    3  | 4  | a | 1
"""


def printed(stream: hr.Stream, **options: int) -> list[tuple[object, ...]]:
    result = stream.run(**options).results["out"]  # type: ignore[arg-type]
    return [tuple(row.values()) for row in result.table().to_pylist()]


@pytest.mark.parametrize("rows", [None, 1, 2])
def test_events_that_are_passed_on(rows: int | None):
    stream = hr.events(LINES)
    options = {} if rows is None else {"batch_rows": rows}
    passed = printed(stream.where(col("x") >= 0).select("k"), **options)
    assert [row[-1] for row in passed] == ["z", "c", "d", "b", "a"]


def test_answers_over_frames_and_patterns_of_one_group():
    stream = hr.events(LINES).point_at_start()
    assert [row[2] for row in printed(stream.over(rows=1).aggregate(n=hr.sum("x")))] == ["z", "c", "d", "b", "a"]
    assert [row[2] for row in printed(stream.over().aggregate(n=hr.lag("x")))] == ["z", "c", "d", "b", "a"]


def test_where_the_order_is_not_known_columns_decide():
    stream = hr.events(LINES)
    assert printed(stream.window(hr.tumbling(10)).distinct("k")) == [(0, 10, k) for k in "abcdz"]
    both = printed(stream.union(hr.events("le | k | x\n3 | e | 1\n3 | a | 2")).select("k"))
    assert both == sorted(both)


def test_a_history_is_the_same_whatever_the_order():
    stream = hr.events(LINES).select("k")
    assert [row["k"] for row in stream.cht().to_pylist()] == ["z", "a", "b", "c", "d"]


def test_corrections_leave_the_others_where_they_are():
    corrected = hr.events("""
        kind    | le | re | re_new | k
        insert  | 1  | 9  |        | b
        insert  | 1  | 9  |        | a
        insert  | 1  | 9  |        | c
        retract | 1  | 9  | 1      | a
    """)
    assert [row[-1] for row in printed(corrected.select("k"))] == ["b", "c"]


def test_the_shell_and_show(capsys: pytest.CaptureFixture[str]):
    session = SqlSession({"s": hr.events(LINES)})
    [answers] = session.execute("SELECT k FROM s WHERE x >= 0")
    run = answers.stream.run()  # type: ignore[attr-defined]
    shown = view("history", run.results["out"], 20)
    assert [line.cells[-1].text for line in shown.lines] == ["z", "c", "d", "b", "a"]
    run.show()
    words = io.StringIO(capsys.readouterr().out).read().split()
    assert [word for word in words if word in ("z", "c", "d", "b", "a")] == ["z", "c", "d", "b", "a"]
