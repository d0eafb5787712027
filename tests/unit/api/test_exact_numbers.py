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
    with pytest.raises(ExpressionError, match="cast to DOUBLE first"):
        stream().window(hr.tumbling(10)).aggregate(x=hr.median("price"))
