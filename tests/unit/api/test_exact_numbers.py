"""DECIMAL and DATE in queries: sums are exact, keys and extremes work, on every path that `verify` knows."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

import headrace as hr
from headrace import col
from headrace.errors import ExpressionError

TABLE = pa.table(
    {
        "t": list(range(20)),
        "k": ["ab"[i % 2] for i in range(20)],
        "price": pa.array([Decimal(i) / 4 for i in range(20)], pa.decimal128(15, 2)),
        "day": [date(2024, 1, 1) + timedelta(days=i % 3) for i in range(20)],
    }
)


def stream() -> hr.Stream:
    return hr.from_arrow(TABLE, lifetime=hr.point("t"))


def test_aggregates_in_windows():
    query = stream().group_by("k", "day").window(hr.tumbling(4)).aggregate(
        total=hr.sum(col("price") * (1 - col("price"))), mean=hr.avg("price"), low=hr.min("price"), high=hr.max("day"),
        several=hr.distinct_count("price"), one=hr.first("price"), days=hr.collect("day"),
    )  # fmt: skip
    assert str(query.schema["total"].type.value) == "DECIMAL(38,4)"
    query.verify(seeds=6)


def test_sums_that_go_up_and_down():
    lasting = stream().set_duration(5)
    lasting.group_by("price").window(hr.snapshot()).aggregate(total=hr.sum("price"), high=hr.max("day")).verify(seeds=6)
    other = lasting.select("price", "day", u=col("t"))
    lasting.join(other, on=["price"]).where(col("day") >= date(2024, 1, 2)).select("price", "u").verify(seeds=6)


def test_a_sum_is_exact_and_null_beyond_38_digits():
    most = Decimal("9" * 38)
    table = pa.table(
        {"t": [0, 1, 2, 3], "x": pa.array([most, Decimal(f"-{most}"), Decimal(7), None], pa.decimal128(38, 0))}
    )
    read = hr.from_arrow(table, lifetime=hr.point("t"))
    whole = read.window(hr.tumbling(10)).aggregate(total=hr.sum("x"), mean=hr.avg("x")).cht().to_pylist()
    assert [(row["total"], row["mean"]) for row in whole] == [(Decimal(7), 7 / 3)]
    above = hr.from_arrow(table.slice(0, 1), lifetime=hr.point("t")).union(read.where(col("x") > 0))
    assert above.window(hr.tumbling(10)).aggregate(total=hr.sum("x")).cht().to_pylist()[0]["total"] is None


def test_what_decimals_cannot_do():
    for query in (col("price") % 2, col("price") // 2):
        with pytest.raises(ExpressionError, match="FLOAT and DOUBLE"):
            stream().select(x=query)


@pytest.mark.parametrize("text", [
    "SELECT k, {} AS x FROM t GROUP BY k",
    "SELECT {} AS x FROM t",
    "SELECT k, {} OVER (PARTITION BY k) AS x FROM t",
    "SELECT k, {} OVER (ORDER BY v ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS x FROM t",
    "SELECT {} OVER (ORDER BY le ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS x FROM p",
    "SELECT {} AS x FROM p [HOPPING 4 us EVERY 2 us]",
])  # fmt: skip
def test_statistics_are_those_of_doubles_and_sums_of_intervals_those_of_ticks(text: str):
    """Wherever an aggregate may stand: in windows, at every instant, in frames of rows that last and of instants."""
    minute = timedelta(minutes=1)
    events = [
        {"le": at, "re": at + 5, "k": "ab"[at % 2], "v": at, "d": Decimal(at) / 4, "i": at * minute} for at in range(6)
    ]
    rows = hr.events(events, "k STRING, v LONG, d DECIMAL(8,2), i INTERVAL")
    for exact, plain in (("stddev(d)", "stddev(CAST(d AS DOUBLE))"), ("median(d)", "median(CAST(d AS DOUBLE))"),
                         ("quantile(d, 0.9)", "quantile(CAST(d AS DOUBLE), 0.9)"),
                         ("sum(i)", "CAST(sum(CAST(i AS LONG)) AS INTERVAL)")):  # fmt: skip
        if plain.startswith("CAST(sum") and "OVER" in text:
            continue
        found, expected = (hr.sql(text.format(one), t=rows, p=rows.point_at_start()) for one in (exact, plain))
        assert not hr.history_diff(found.cht(), expected.cht())
        assert not hr.history_diff(found.history(engine="duckdb").cht(), found.cht())
    total = hr.sql(text.format("sum(i)"), t=rows, p=rows.point_at_start()).cht()["x"].to_pylist()
    assert any(total)
