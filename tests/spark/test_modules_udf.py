"""Users' functions, modules and lists on Spark: they travel to workers, answer as in process, and fail by name."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


class Held(hr.IncrementalOperator):
    """Its state is the events it has been given."""

    input = "x DOUBLE, n LONG"
    output = "x DOUBLE, n LONG"
    time_sensitive = True

    def initial(self) -> list[Any]:
        return []

    def add(self, state: list[Any], events: list[Any]) -> list[Any]:
        return state + events

    def remove(self, state: list[Any], events: list[Any]) -> None:
        for event in events:
            state.remove(event)

    def compute(self, state: list[Any], window: Any) -> list[Any]:
        return [self.event(max(e.le, window.le), e.re, e.x, e.n) for e in sorted(state)]


class HeldRows(hr.IncrementalAggregate):
    """Its state is the rows it has been given."""

    input = "x DOUBLE, n LONG"
    output = "STRING"

    def initial(self) -> list[Any]:
        return []

    def add(self, state: list[Any], items: list[Any]) -> list[Any]:
        return sorted([*state, *items])

    def compute(self, state: list[Any]) -> str:
        return " ".join(f"{row.n}:{row.x}" for row in state)


class Plain(hr.Operator):
    """Time-sensitive, and gives no times: how its window and its events lie."""

    input = "x DOUBLE, n LONG"
    output = "text STRING"
    time_sensitive = True

    def compute(self, events: list[Any], window: Any) -> list[str]:
        return [f"{window.le}-{window.re} " + " ".join(f"{e.le}-{e.re}" for e in events)]


class FromTheFirst(hr.Operator):
    """The sum of the window from its first event on: no time bound that it keeps."""

    input = "x DOUBLE, n LONG"
    output = "total DOUBLE"
    time_sensitive = True

    def compute(self, events: list[Any], window: Any) -> list[Any]:
        return [self.event(max(events[0].le, window.le), window.re, sum(e.x for e in events))]


HELD = """
    kind    | le | re | re_new | k | x   | n
    insert  | 1  | 4  |        | a | 1.0 | 1
    insert  | 3  | 9  |        | b | 4.0 | 2
    insert  | 6  | 8  |        | b | 2.0 | 5
    cti     | 2  |    |        |   |     |
    insert  | 12 | 13 |        | a | 5.0 | 3
    retract | 3  | 9  | 7      | b | 4.0 | 2
    insert  | 4  | 6  |        | a | 2.0 | 4
"""


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_modules_on_spark_see_and_give_what_they_do_in_process(spark: SparkSession):
    stream = hr.events(HELD, batches=[2, 2, 1, 2]).group_by("k")
    bound = stream.window(hr.tumbling(10), timestamping="time_bound", on_error="skip").operate(FromTheFirst())
    queries = {
        "held": stream.window(hr.tumbling(10)).operate(Held()),
        "rows": stream.window(hr.tumbling(10)).aggregate(t=HeldRows()),
        "plain": stream.window(hr.tumbling(5)).operate(Plain()),
        "ends": stream.window(hr.count_by_end(2), clipping="full").operate(Plain()),
        "bound": bound,
    }
    done, here = hr.run(queries, host="spark", spark=spark), hr.run(queries)
    for name in queries:
        assert done.cht(name).num_rows
        assert hr.same_history(done.cht(name), here.cht(name)), name
    assert done.counts["FromTheFirst()"] == here.counts["FromTheFirst()"] == {"failed": 2}
    assert "before the input that caused it" in done.diverted()["reason"][0].as_py()


def test_a_breach_and_a_function_of_chance_are_named_on_spark(spark: SparkSession):
    stream = hr.events(HELD, batches=[3, 4])
    breach = stream.group_by("k").window(hr.tumbling(10), timestamping="time_bound").operate(FromTheFirst())
    with pytest.raises(ModuleFailed, match=r"FromTheFirst\(\) broke its time bound in the window 0 .. 10 of k = 'b'"):
        breach.cht(host="spark", spark=spark)
    chance = hr.udf(lambda x: x + random.random(), takes="DOUBLE", returns="DOUBLE", name="chance")
    with pytest.raises(ModuleFailed, match="the function chance is not deterministic"):
        stream.select(y=chance("x")).cht(host="spark", spark=spark)
