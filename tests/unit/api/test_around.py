"""Functions of an order in Python: of events that last by any order, of a stream of instants in the order of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import ExpressionError, PlanError
from headrace.testing.verify.differential import differential_reference

STAFF = hr.events(
    """
    kind    | le | re | re_new | team | id | pay | since
    insert  | 1  | 9  |        | a    | 1  | 20  | 2024-01-01
    insert  | 2  | 9  |        | a    | 2  | 30  | 2024-01-05
    insert  | 3  | ∞  |        | b    | 3  | 30  | 2024-01-06
    insert  | 4  | ∞  |        | a    | 4  | 30  | 2024-01-07
    retract | 4  | ∞  | 7      | a    | 4  | 30  | 2024-01-07
    """,
    "team STRING, id LONG, pay LONG, since DATE",
)
INSTANTS = STAFF.point_at_start()


def same(python: hr.Stream, text: str, stream: hr.Stream) -> None:
    sql = hr.sql(text, staff=stream)
    assert hr.same_history(python.cht(), sql.cht())
    differential_reference(python.node)
    assert hr.same_history(python.cht(), python.history("duckdb").cht())


def test_by_an_order_as_in_sql():
    python = (
        STAFF.group_by("team").over(by=["pay", "id"], descending=[True, False])
        .aggregate(n=hr.row_number(), r=hr.rank(), d=hr.dense_rank(), less=col("pay") - hr.lag("pay", 1, 0),
                   next=hr.lead("id"), first=hr.first_value("id"), total=hr.sum("pay"))
    )  # fmt: skip
    text = """
        SELECT team, id, pay, since, row_number() OVER w AS n, rank() OVER w AS r, dense_rank() OVER w AS d,
            pay - lag(pay, 1, 0) OVER w AS less, lead(id) OVER w AS next, first_value(id) OVER w AS first,
            sum(pay) OVER (w ROWS UNBOUNDED PRECEDING) AS total
        FROM staff WINDOW w AS (PARTITION BY team ORDER BY pay DESC, id)
    """
    same(python, text, STAFF)


@pytest.mark.parametrize(
    ("how", "frame"),
    [
        ({"by": "id", "rows": 1}, "ORDER BY id ROWS 1 PRECEDING"),
        ({"by": "id", "rows": (1, 1)}, "ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING"),
        ({"by": "id", "rows": (None, None)}, "ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"),
        ({"by": "pay", "peers": True}, "ORDER BY pay"),
        ({"by": "pay", "range": (5, 10)}, "ORDER BY pay RANGE BETWEEN 5 PRECEDING AND 10 FOLLOWING"),
        ({"by": "since", "range": "1 day"}, "ORDER BY since RANGE BETWEEN INTERVAL '1' DAY PRECEDING AND CURRENT ROW"),
    ],
)
def test_frames_of_an_order(how: dict[str, Any], frame: str):
    text = f"SELECT team, id, pay, since, sum(pay) OVER (PARTITION BY team {frame}) AS s FROM staff"
    same(STAFF.group_by("team").over(**how).aggregate(s=hr.sum("pay")), text, STAFF)


def test_in_the_order_of_time():
    python = INSTANTS.group_by("team").over(rows=1).aggregate(
        n=hr.row_number(), more=col("pay") - hr.lag("pay"), next=hr.lead("id", 1, -1), low=hr.min("pay"),
        first=hr.first_value("id"), last=hr.last_value("id"),
    )  # fmt: skip
    text = """
        SELECT team, id, pay, since, row_number() OVER w AS n, pay - lag(pay) OVER w AS more,
            lead(id, 1, -1) OVER w AS next, min(pay) OVER (w ROWS 1 PRECEDING) AS low,
            first_value(id) OVER (w ROWS 1 PRECEDING) AS first, last_value(id) OVER (w ROWS 1 PRECEDING) AS last
        FROM staff WINDOW w AS (PARTITION BY team ORDER BY le)
    """
    same(python, text, INSTANTS)


@pytest.mark.parametrize(
    ("how", "frame"),
    [
        ({"rows": (1, 2)}, "ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING"),
        ({"rows": (None, 1)}, "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING"),
        ({"rows": (1, 0)}, "ROWS 1 PRECEDING"),
        ({"range": (1, 2)}, "RANGE BETWEEN 1 us PRECEDING AND 2 us FOLLOWING"),
        ({"range": (None, 1)}, "RANGE BETWEEN UNBOUNDED PRECEDING AND 1 us FOLLOWING"),
    ],
)
def test_frames_that_end_behind(how: dict[str, Any], frame: str):
    python = INSTANTS.group_by("team").over(**how).aggregate(s=hr.sum("pay"))
    text = f"SELECT team, id, pay, since, sum(pay) OVER (PARTITION BY team ORDER BY le {frame}) AS s FROM staff"
    same(python, text, INSTANTS)


@pytest.mark.parametrize(
    ("query", "error", "says"),
    [
        (lambda: STAFF.select(x=hr.lag("pay")), ExpressionError, "this is about many"),
        (lambda: STAFF.window(hr.tumbling(4)).aggregate(x=hr.lag("pay")), PlanError, "which only over"),
        (lambda: STAFF.over(by="pay").aggregate(pay=hr.count()), PlanError, "has a column 'pay' already"),
        (lambda: STAFF.over(by="pay", rows=-1), PlanError, "so many before the event"),
        (lambda: STAFF.over(by="pay", rows=1, range=1), PlanError, "of rows or of a range"),
        (lambda: STAFF.over(by="pay", range=1.5), PlanError, "no size of a frame of range"),
        (lambda: STAFF.over(by="since", range="1 h"), PlanError, "whole days"),
        (lambda: STAFF.over(by="team", range=1).aggregate(n=hr.count()), PlanError, "an order by one number"),
        (lambda: STAFF.over(by="pay", slide=2), PlanError, "slide and active"),
        (lambda: INSTANTS.over(by="pay"), PlanError, "streams whose events last"),
        (lambda: INSTANTS.over().aggregate(r=hr.rank()), PlanError, "needs an order of its own"),
        (lambda: INSTANTS.over(rows=(1, None)).aggregate(n=hr.count()), PlanError, "no last event"),
        (lambda: INSTANTS.over(rows=(1, 21)).aggregate(n=hr.count()), PlanError, "at most 20 events behind"),
        (lambda: hr.lag("pay", 0), ExpressionError, "from 1 on"),
    ],
)
def test_what_is_refused(query: Callable[[], Any], error: type[Exception], says: str):
    with pytest.raises(error, match=says):
        query()
