"""Streams written by hand: what drawn tables and records mean, cell by cell."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import headrace as hr
from headrace import errors
from headrace.events import events_table
from headrace.schema import Schema, Type
from headrace.time import INFINITY, ticks

NAN = float("nan")
MAY_DAY = datetime(2024, 5, 1, tzinfo=UTC)


def column(data: Any, name: str, schema: str | None = None) -> list[Any]:
    values: list[Any] = events_table(data, schema).column(name).to_pylist()
    return values


def type_of(data: Any, name: str) -> Type:
    return Schema.of(events_table(data).schema)[name].type


def row(data: Any, schema: str | None = None) -> tuple[Any, ...]:
    (found,) = events_table(data, schema).select(["symbol", "le", "re"]).to_pylist()
    return tuple(found.values())


# --- frames ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "drawn",
    [
        "symbol | le | re\n       | 5  | 6",
        "symbol|le|re\n|5|6",
        "| symbol | le | re |\n|        | 5  | 6  |",
        "|symbol|le|re|\n||5|6|",
        "| symbol | le | re |\n|--------|----|----|\n|        | 5  | 6",
    ],
)
def test_a_null_in_the_first_column_stays_there(drawn: str):
    assert row(drawn, "symbol STRING") == (None, 5, 6)


def test_a_null_in_the_last_column_of_a_frame_stays_there():
    assert column("| le | re | k | v |\n| 1 | 2 | a ||\n| 1 | 2 || 3 |", "k") == ["a", None]
    assert column("| le | re | k | v |\n| 1 | 2 | a ||\n| 1 | 2 || 3 |", "v") == [None, 3]


# --- types ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["yes", "1", "t", "wahr"])
def test_a_boolean_is_true_or_false_and_nothing_else(text: str):
    with pytest.raises(errors.EventError, match="row 1: ok is not BOOLEAN") as raised:
        hr.events(f"le | ok\n1 | {text}", "ok BOOLEAN")
    assert raised.value.given == text
    assert raised.value.allowed == "true, false"


def test_booleans_are_read_in_any_case():
    assert column("le | ok\n1 | TRUE\n1 | False\n1 | true\n1 |", "ok", "ok BOOLEAN") == [True, False, True, None]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("9223372036854775807", Type.LONG),
        ("-9223372036854775808", Type.LONG),
        ("+1000000000000000000", Type.LONG),
        ("9223372036854775808", Type.DOUBLE),
        ("-9223372036854775809", Type.DOUBLE),
        ("1" * 5000, Type.DOUBLE),
    ],
)
def test_whole_numbers_that_fit_are_whole(text: str, found: Type):
    drawn = f"le | v\n1 | {text}\n2 | 3"
    assert type_of(drawn, "v") is found
    if found is Type.LONG:
        assert column(drawn, "v") == [int(text), 3]


@pytest.mark.parametrize("type", ["FLOAT", "DOUBLE"])
def test_a_nan_is_a_nan_and_no_null(type: str):
    rows = [{"le": 1, "v": NAN}, {"le": 2, "v": None}, {"le": 3, "v": 1.5}, {"le": 4}]
    nan, *rest = column(rows, "v", f"v {type}")
    assert math.isnan(nan)
    assert rest == [None, 1.5, None]


def test_a_nan_where_no_nan_can_be_is_null():
    assert column([{"le": 1, "k": NAN}, {"le": 1, "k": "a"}], "k", "k STRING") == [None, "a"]


# --- times ----------------------------------------------------------------------------------------------------------


def test_an_infinite_float_is_infinity():
    rows: list[dict[str, Any]] = [
        {"kind": "insert", "le": 1, "re": math.inf, "re_new": None, "k": "a"},
        {"kind": "retract", "le": 1, "re": math.inf, "re_new": 5, "k": "a"},
        {"kind": "retract", "le": 1, "re": 5, "re_new": math.inf, "k": "a"},
    ]
    for data in (rows, pd.DataFrame(rows), pa.Table.from_pylist(rows, pa.schema({"le": "int64", "re": "double"}))):
        if isinstance(data, pa.Table):
            data = data.append_column("k", pa.array(["a"] * 3))
        assert column(data, "re") == [INFINITY, INFINITY, 5]
    assert column(pd.DataFrame(rows), "re_new") == [None, 5, INFINITY]
    assert hr.events(pd.DataFrame(rows)).cht().to_pylist() == [{"le": 1, "re": INFINITY, "k": "a"}]


@pytest.mark.parametrize("start", [math.inf, -math.inf])
def test_a_start_must_be_finite(start: float):
    with pytest.raises(errors.EventError, match="le must be finite"):
        hr.events([{"le": start, "re": math.inf, "k": 1}])


def test_a_date_is_its_midnight():
    rows = [{"le": date(2024, 5, 1), "re": date(2024, 5, 2), "day": date(2024, 5, 1)}]
    for data in (rows, pa.Table.from_pylist(rows), pd.DataFrame(rows)):
        assert type_of(data, "day") is Type.DATE
        assert column(data, "day") == [date(2024, 5, 1)]
        assert column(data, "le") == [ticks(MAY_DAY)]
        assert column(data, "re") == [ticks("2024-05-02T00:00:00Z")]
    assert column(rows, "day", "day DATETIME") == [MAY_DAY]


def test_dates_and_datetimes_go_together():
    days = [MAY_DAY, date(2024, 5, 1), None, datetime(2024, 5, 1)]  # noqa: DTZ001 - naive times are UTC
    for order in (days, days[::-1]):
        assert sorted(map(str, column([{"le": 1, "day": day} for day in order], "day"))) == [
            *[str(MAY_DAY)] * 3,
            "None",
        ]


# --- records --------------------------------------------------------------------------------------------------------


def test_records_without_a_kind_are_inserts_beside_others_that_have_one():
    rows = [{"le": 1, "re": 9, "k": "a"}, {"kind": "cti", "le": 5}, {"le": 6, "k": "b"}]
    assert column(rows, "kind") == ["insert", "cti", "insert"]
    assert hr.events(rows).cht().column("re").to_pylist() == [9, 7]
    with pytest.raises(errors.EventError, match="kind must be"):
        hr.events([{"kind": None, "le": 1, "k": "a"}])


@pytest.mark.parametrize(
    "data",
    [
        "le | re\n1 | 4",
        [{"le": 1, "re": 4}],
        [{"kind": "cti", "le": 1}],
        pa.table({"le": [1], "re": [4]}),
        pd.DataFrame({"le": [1], "re_new": [4]}),
    ],
)
def test_a_stream_needs_a_payload(data: Any):
    with pytest.raises(errors.EventError, match="at least one payload column") as raised:
        hr.events(data)
    assert "le" in str(raised.value.given)
    assert "beside kind, le, re, re_new" in raised.value.allowed
    assert "hr.events" in raised.value.instead


def test_a_schema_without_payload_is_none():
    with pytest.raises(errors.EventError, match="at least one payload column"):
        hr.events([], "le LONG")


def test_a_slip_in_a_date_is_told():
    with pytest.raises(errors.EventError, match="row 2: day is not DATETIME"):
        hr.events("le | day\n1 | 2024-02-01\n1 | 2024-02-30")
