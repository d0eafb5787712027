"""Functions of users and lists on Spark: they travel to workers, answer as in process, and fail by their own name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import col
from headrace.errors import ModuleFailed
from headrace.io.commit import BatchDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FACTOR = 0.5  # travels with the function that names it
ROWS = [
    {"kind": "insert", "le": le, "re": le + 3, "k": k, "x": x, "tags": tags}
    for le, k, x, tags in [(1, "a", 4.0, ["p"]), (2, "b", 1.0, []), (3, "a", None, None), (4, "a", 9.0, ["p", "q"])]
]


@hr.udf
def scaled(x: float) -> float:
    return x * FACTOR


@hr.udf(takes="DOUBLE", returns="BOOLEAN", vectorised=True)
def large(x: pa.Array) -> pa.Array:
    return pc.greater(x, 0.6)


@hr.udf
def spread(xs: list[float]) -> float:
    return max(xs) - min(xs) if xs else 0.0


def test_functions_and_lists_on_spark(spark: SparkSession, tmp_path: Path):
    retraction = {**ROWS[0], "kind": "retract", "re_new": 1}
    stream = hr.events([*ROWS, retraction], "k STRING, x DOUBLE, tags ARRAY<STRING>", batches=[2, 3])
    kept = stream.where(large(scaled("x")) | col("x").is_null())
    answers = kept.group_by("k", big=large("x")).window(hr.hopping(6, every=3)).aggregate(
        xs=hr.collect(scaled("x")), spread=spread(hr.collect("x")), often=hr.top_frequent("x", 1), mid=hr.median("x")
    )  # fmt: skip
    assert answers.cht().num_rows
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"t": [1, 2, 3], "xs": [[1.0, None], [], None]}), tmp_path / "in" / "lists.parquet")
    options = {"schema": "t LONG, xs ARRAY<DOUBLE>", "lifetime": hr.point("t")}
    by_spark = hr.read_spark("parquet", path=str(tmp_path / "in"), **options)
    done = hr.run({"answers": answers, "kept": kept, "read": by_spark}, host="spark", spark=spark)
    assert done.cht("read").equals(hr.read_parquet(str(tmp_path / "in"), **options).cht())
    assert done.cht("answers").equals(answers.cht())
    assert done.cht("kept").equals(kept.cht())
    query = answers.start(hr.files(str(tmp_path / "out"), encoding="final"), spark=spark)
    query.finish()
    query.stop()
    files = [Path(file).read_text() for file in BatchDirectory(str(tmp_path / "out")).files()]
    written = [json.loads(line) for text in files for line in text.splitlines()]
    assert sorted(str(row["xs"]) for row in written) == sorted(map(str, answers.cht()["xs"].to_pylist()))


def test_a_function_that_fails_on_spark_is_named(spark: SparkSession):
    inverse = hr.udf(lambda x: 1 / (x - 4), takes="DOUBLE", returns="DOUBLE", name="inverse")
    stream = hr.events(ROWS, "k STRING, x DOUBLE, tags ARRAY<STRING>").select(y=inverse("x"))
    with pytest.raises(ModuleFailed, match=r"inverse raised ZeroDivisionError: .*, for x=4.0"):
        stream.cht(host="spark", spark=spark)
