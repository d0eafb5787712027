"""The page that compares names: every line of Headrace's runs, and the names of PySpark and Polars exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, GroupedData, SparkSession, Window, WindowSpec
from pyspark.sql import functions as spark_functions
from pyspark.sql.streaming import DataStreamReader, DataStreamWriter

import headrace as hr

DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("make_names", DOCS / "make_names.py")
assert spec is not None
assert spec.loader is not None
make_names = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_names)

ROWS = [row for rows in make_names.parts().values() for row in rows]
PYSPARK = (
    Column, DataFrame, GroupedData, SparkSession, Window, WindowSpec, spark_functions, DataStreamReader,
    DataStreamWriter,
)  # fmt: skip
POLARS = (
    pl,
    pl.DataFrame,
    pl.LazyFrame,
    pl.Expr,
    type(pl.when(True)),
    type(pl.when(True).then(1)),
)


def _names() -> dict[str, Any]:
    """What the lines of the table are about."""
    frame = pd.DataFrame(
        {
            "k": ["a", "b", "a"],
            "x": [1, 2, 3],
            "at": pd.to_datetime(["2024-05-01", "2024-05-02", "2024-05-03"], utc=True),
        }
    )
    s = hr.from_pandas(frame, lifetime=hr.point("at")).set_duration("2 days")
    latest = hr.from_pandas(frame, lifetime=hr.edge("at", key="k")).select("k", y=hr.col("x"))
    codes = pa.table({"k": ["a", "b"], "name": ["A", "B"]})
    return {"hr": hr, "col": hr.col, "s": s, "t": s, "latest": latest, "codes": codes, "frame": frame}


def test_the_page_is_what_the_script_writes():
    assert make_names.PAGE.read_text(encoding="utf-8") == make_names.page(), "run: python docs/make_names.py"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["idea"])
def test_a_line_of_headrace_runs(row: dict[str, str]):
    made = eval(row["headrace"], _names())  # noqa: S307 - the line is the table's
    if isinstance(made, hr.Stream):
        made.cht()
    elif hasattr(made, "process_all_available"):
        made.process_all_available()
        made.stop()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["idea"])
@pytest.mark.parametrize(("library", "places"), [("pyspark", PYSPARK), ("polars", POLARS)])
def test_a_name_exists(row: dict[str, str], library: str, places: tuple[Any, ...]):
    cell = row.get(library, "")
    for name in re.findall(r"\.(\w+)(?=\()", cell):
        assert any(hasattr(place, name) for place in places), f"{library} has no {name}: {cell}"
