"""The forms in which users describe columns, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Optional, TypedDict, TypeVar

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types

from headrace.errors import SchemaError
from headrace.schema import Schema, Type

T = TypeVar("T")
TRADES = Schema.of("symbol STRING, ts DATETIME, price DOUBLE, size LONG, fresh BOOLEAN")


class Series(Generic[T]):
    """As pandera's."""


@dataclass
class Trade:
    symbol: str
    ts: datetime
    price: float | None
    size: int
    fresh: bool
    unit: ClassVar[str] = "EUR"


class TradeTuple(NamedTuple):
    symbol: str
    ts: datetime
    price: Optional[float]  # noqa: UP045 - as older code writes it
    size: int
    fresh: bool


class TradeDict(TypedDict, total=False):
    symbol: str
    ts: datetime
    price: float
    size: int
    fresh: bool


class TradeFrame:
    """Annotations as those of a pandera model."""

    Config: type
    symbol: Series[str]
    ts: Series[pd.Timestamp]
    price: Series[np.float64]
    size: Annotated[Series[np.int64], "pieces"] | None
    fresh: Series[bool]
    _private: int


SPARK = spark_types.StructType(
    [
        spark_types.StructField("symbol", spark_types.StringType()),
        spark_types.StructField("ts", spark_types.TimestampType()),
        spark_types.StructField("price", spark_types.DoubleType()),
        spark_types.StructField("size", spark_types.LongType()),
        spark_types.StructField("fresh", spark_types.BooleanType()),
    ]
)


@pytest.mark.parametrize(
    "given",
    [
        {"symbol": str, "ts": datetime, "price": float, "size": int, "fresh": bool},
        {"symbol": "string", "ts": "timestamp", "price": "double", "size": "bigint", "fresh": "bool"},
        {"symbol": Type.STRING, "ts": datetime, "price": pa.float64(), "size": np.int64, "fresh": np.dtype(bool)},
        {"symbol": pd.StringDtype(), "ts": pd.DatetimeTZDtype("us", "UTC"), "price": pd.Float64Dtype(),
         "size": pd.Int64Dtype(), "fresh": pd.BooleanDtype()},
        pl.Schema({"symbol": pl.String, "ts": pl.Datetime("us"), "price": pl.Float64, "size": pl.Int64(),
                   "fresh": pl.Boolean}),
        TRADES.arrow,
        SPARK,
        Trade,
        TradeTuple,
        TradeDict,
        TradeFrame,
    ],
    ids=lambda given: getattr(given, "__name__", type(given).__name__),
)  # fmt: skip
def test_every_form_describes_the_same_columns(given: Any):
    assert Schema.of(given) == TRADES


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (float, Type.DOUBLE),
        ("float", Type.FLOAT),  # names are those of SQL
        (list[float], Type.DOUBLE.array),
        (list[datetime] | None, Type.DATETIME.array),
        (spark_types.ArrayType(spark_types.ShortType()), Type.SHORT.array),
        (spark_types.DateType(), Type.DATE),
        (spark_types.TimestampNTZType(), Type.DATETIME),
        (pl.List(pl.Int32), Type.INT.array),
        (pl.Categorical, Type.STRING),
        (np.dtype("datetime64[ms]"), Type.DATETIME),
        (np.dtype("U3"), Type.STRING),
        (np.uint8, Type.SHORT),
        (pd.Timestamp, Type.DATETIME),
        (pd.CategoricalDtype(), Type.STRING),
        (Decimal, Type.DECIMAL(38, 10)),
        (spark_types.DecimalType(10, 2), Type.DECIMAL(10, 2)),
        (np.dtype(object), None),
        (int | str, None),
        (list, None),
        (dict[str, int], None),
        (17, None),
    ],
    ids=str,
)
def test_types(given: Any, found: Type | None):
    if found is not None:
        assert Type.of(given) is found
        return
    with pytest.raises(SchemaError, match="column 'x'"):
        Schema.of({"x": given})


@pytest.mark.parametrize("given", [17, object, pd.DataFrame({"a": [1]}), {"": int}, {1: int}, ["a STRING"]], ids=str)
def test_what_describes_no_columns_is_refused(given: Any):
    with pytest.raises(SchemaError):
        Schema.of(given)


def test_an_unknown_annotation_is_named():
    class Broken:
        symbol: Symbol  # noqa: F821

    with pytest.raises(SchemaError, match="Symbol"):
        Schema.of(Broken)
