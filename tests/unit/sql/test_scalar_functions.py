"""Functions and operators that are combinations of others, as SQL writes them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import SqlError

ROWS = hr.events(
    """
    le | t                           | s                          | x    | n  | p
    1  | 2024-05-01T12:30:15.123456Z | 22/Jul/1998:00:00:05 +0200 | -1.5 | 7  | true
    2  | 2021-01-03T00:00:00Z        | 22/jul/1998 00:00:05 +0200 | 2.5  | -7 |
    """,
    "t DATETIME, s STRING, x DOUBLE, n INT, p BOOLEAN",
)


def values(expression: str) -> list[Any]:
    return [row["v"] for row in hr.sql(f"SELECT {expression} AS v FROM rows", rows=ROWS).cht().to_pylist()]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("date_format(t, 'yyyy-MM-dd HH:mm:ss.SSS')", ["2024-05-01 12:30:15.123", "2021-01-03 00:00:00.000"]),
        ("to_char(t, 'Dy DD Mon YYYY HH12:MI PM')", ["Wed 01 May 2024 12:30 PM", "Sun 03 Jan 2021 12:00 AM"]),
        ("to_timestamp(s, 'dd/MMM/yyyy:HH:mm:ss Z')", [datetime(1998, 7, 21, 22, 0, 5, tzinfo=UTC), None]),
        ("to_date(s, 'dd/MMM/yyyy:HH:mm:ss Z')", [date(1998, 7, 22), None]),
        ("EXTRACT(WEEK FROM t)", [18, 53]),
        ("EXTRACT(ISOYEAR FROM t)", [2024, 2020]),
        ("EXTRACT(DOW FROM t)", [3, 0]),
        ("EXTRACT(QUARTER FROM t)", [2, 1]),
        ("century(t)", [21, 21]),
        ("last_day(t)", [date(2024, 5, 31), date(2021, 1, 31)]),
        ("datediff(t, DATE '2021-01-01')", [1216, 2]),
        ("make_date(2024, n, 3)", [date(2024, 7, 3), None]),
        ("add_months(t, 1)::DATE", [date(2024, 6, 1), date(2021, 2, 3)]),
        ("concat_ws('-', 'a', NULL, n)", ["a-7", "a--7"]),
        ("overlay('abcdef', 'XY', 3)", ["abXYef"] * 2),
        ("trunc(x)", [-1.0, 2.0]),
        ("width_bucket(x, 0, 10, 5)", [0, 2]),
        ("from_unixtime(0)::STRING", ["1970-01-01T00:00:00.000000Z"] * 2),
        ("n IS DISTINCT FROM 7", [False, True]),
        ("p IS NOT DISTINCT FROM NULL", [False, True]),
        ("p IS TRUE", [True, False]),
        ("p IS NOT FALSE", [True, True]),
        ("p IS UNKNOWN", [False, True]),
        ("s ILIKE '%JUL%'", [True, True]),
        ("s NOT ILIKE '22/J%'", [False, False]),
        ("substring(s FROM 4 FOR 3)", ["Jul", "jul"]),
        ("substring('abc' FROM 2)", ["bc"] * 2),
        ("position('J' IN s)", [4, 0]),
        ("trim(LEADING FROM '  a ')", ["a "] * 2),
        ("trim(' ' FROM '  a ')", ["a"] * 2),
        ("n::DECIMAL(5,2) + 0.005", [Decimal("7.005"), Decimal("-6.995")]),
        ("CAST('yes' AS BOOLEAN)", [True] * 2),
        ("'OFF'::BOOLEAN", [False] * 2),
        ("CAST('maybe' AS BOOLEAN)", [None] * 2),
    ],
)  # fmt: skip
def test_functions(expression: str, expected: list[Any]):
    assert values(expression) == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("to_timestamp(s, 'dd q')", "'q' is no part of a time"), ("to_timestamp(s, 'HH:mm')", "has a year"),
        ("datediff(t)", "takes other arguments"), ("quarter(x)", "DATE, DATETIME"), ("trim('x' FROM s)", "only spaces"),
        ("EXTRACT(SOUL FROM t)", "a time has no SOUL"), ("upper(s FROM 2)", "upper has no FROM"),
        ("x IS TRUE", "BOOLEAN"), ("INTERVAL '1' MONTH + 1", "DATE"), ("DATE '2024-02-30'", "this is no DATE"),
    ],
)  # fmt: skip
def test_refusals(expression: str, message: str):
    with pytest.raises(SqlError, match=message):
        values(expression)


def test_now_is_the_arrival_of_a_row(tmp_path: Path):
    (tmp_path / "a.csv").write_text("ts,v\n1,5\n2,6\n")
    create = f"CREATE STREAM a (ts LONG, v LONG) SOURCE FILE ('{tmp_path}/a.csv') ORDER BY ts;"
    rows = hr.sql(create + "SELECT *, now() AS n, current_timestamp AS c, current_time AS x FROM a").cht().to_pylist()
    arrived = datetime.fromtimestamp((tmp_path / "a.csv").stat().st_mtime_ns // 1000 / 1e6, UTC)
    assert [(row["n"], row["c"], row["x"]) for row in rows] == [(rows[0]["n"],) * 3] * 2
    assert abs(rows[0]["n"] - arrived).total_seconds() < 1e-3
    assert hr.sql(create + "SELECT * FROM a").cht().column_names == ["le", "re", "ts", "v"]
    with pytest.raises(SqlError, match="the time of arrival"):
        hr.sql(create + "SELECT n, now() AS m FROM (SELECT count(*) AS n FROM a [TUMBLING 10 us])")
