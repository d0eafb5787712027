"""Aggregates that keep values, at their edges."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.expr import AggregateCall
from headrace.io.origins import Events
from headrace.plan.nodes import Source
from headrace.schema import Schema

NAN, INF = math.nan, math.inf


def inserts(values: list[Any], type: str, keys: list[str] | None = None) -> hr.Stream:
    """Points at 0, 1, 2, … that nothing ever takes back."""
    schema = Schema.of(f"t LONG, k STRING, v {type}")
    columns = [list(range(len(values))), keys or ["a"] * len(values), values]
    arrays = [pa.array(column, field.type.arrow) for column, field in zip(columns, schema, strict=True)]
    table = pa.table(arrays, schema=schema.arrow)
    return hr.Stream(Source(Events(table), schema, hr.point("t"), hr.explicit()))


def corrected(values: list[Any], type: str) -> hr.Stream:
    """The same values, beside others that are taken back."""
    rows: list[dict[str, Any]] = []
    for i, value in enumerate(values):
        rows.append({"kind": "insert", "le": i, "re": i + 1, "k": "a", "v": value})
        rows.append({"kind": "insert", "le": 0, "re": 40, "k": "a", "v": value})
    rows += [{"kind": "retract", "le": 0, "re": 40, "re_new": 0, "k": "a", "v": value} for value in values]
    return hr.events(rows, f"k STRING, v {type}", batches=[1] * len(rows))


@pytest.mark.parametrize("stream", [inserts, corrected])
@pytest.mark.parametrize(
    ("call", "type", "values", "answer"),
    [
        (hr.median("v"), "DOUBLE", [3.0, 1.0, 2.0], 2.0),
        (hr.median("v"), "DOUBLE", [4.0, 1.0, 2.0, 3.0], 2.5),
        (hr.median("v"), "INT", [7], 7.0),
        (hr.median("v"), "DOUBLE", [None, None], None),
        (hr.median("v"), "DOUBLE", [None, 5.0], 5.0),
        (hr.median("v"), "DOUBLE", [1.0, NAN, 2.0], 2.0),
        (hr.median("v"), "DOUBLE", [1.0, NAN], NAN),
        (hr.median("v"), "DOUBLE", [INF, INF], INF),
        (hr.median("v"), "DOUBLE", [-INF, INF], NAN),
        (hr.median("v"), "DOUBLE", [1.0, INF], INF),
        (hr.median("v"), "DOUBLE", [1e308, 1.5e308], 1.25e308),
        (hr.median("v"), "DOUBLE", [-1e308, 1e308], 0.0),
        (hr.median("v"), "DOUBLE", [5e-324, 5e-324], 5e-324),
        (hr.median("v"), "LONG", [2**63 - 1, 2**63 - 1], 2.0**63),
        (hr.median("v"), "LONG", [-(2**63), 2**63 - 1], 0.0),
        (hr.median("v"), "BYTE", [-128, 127], -0.5),
        (hr.quantile("v", 0), "DOUBLE", [3.0, 1.0, INF], 1.0),
        (hr.quantile("v", 1), "DOUBLE", [3.0, 1.0], 3.0),
        (hr.quantile("v", 1), "DOUBLE", [3.0, NAN], NAN),
        (hr.quantile("v", 0.25), "DOUBLE", [1.0, 2.0, 3.0, 4.0], 1.75),
        (hr.quantile("v", 0.5), "DOUBLE", [1.0, 1.0, 1.0, 9.0], 1.0),
        (hr.geometric_mean("v"), "DOUBLE", [2.0, 8.0], 4.0),
        (hr.geometric_mean("v"), "INT", [5, None], 5.0),
        (hr.geometric_mean("v"), "DOUBLE", [2.0, 0.0], None),
        (hr.geometric_mean("v"), "DOUBLE", [2.0, -1.0], None),
        (hr.geometric_mean("v"), "DOUBLE", [NAN, -1.0], None),
        (hr.geometric_mean("v"), "DOUBLE", [2.0, INF], INF),
        (hr.geometric_mean("v"), "DOUBLE", [2.0, NAN], NAN),
        (hr.geometric_mean("v"), "DOUBLE", [None], None),
        (hr.collect("v"), "DOUBLE", [2.0, None, 1.0, NAN, -0.0], [2.0, 1.0, NAN, 0.0]),
        (hr.collect("v"), "STRING", [None, None], []),
        (hr.collect("v"), "BOOLEAN", [True, False], [True, False]),
        (hr.distinct_count("v"), "DOUBLE", [0.0, -0.0, NAN, NAN, None, 1.0], 3),
        (hr.distinct_count("v"), "STRING", [None], 0),
        (hr.distinct_count("v"), "LONG", [2**53, 2**53 + 1], 2),
        (hr.approx_distinct("v"), "STRING", ["a", "b", "a", None], 2),
        (hr.approx_distinct("v"), "DOUBLE", [None], 0),
        (hr.top_frequent("v", 2), "STRING", ["b", "a", "c", "c", None, None, None], ["c", "a"]),
        (hr.top_frequent("v", 9), "DOUBLE", [NAN, 2.0, NAN, 1.0], [NAN, 1.0, 2.0]),
        (hr.top_frequent("v", 1), "LONG", [2**63 - 1, -(2**63)], [-(2**63)]),
        (hr.top_frequent("v", 1), "LONG", [None], []),
        (hr.concat("v", ", "), "STRING", ["b", None, "a", ""], "b, a, "),
        (hr.concat("v"), "STRING", [""], ""),
        (hr.concat("v"), "STRING", [None], None),
    ],
)
def test_answers(stream: Any, call: AggregateCall, type: str, values: list[Any], answer: Any):
    (row,) = stream(values, type).window(hr.tumbling(100)).aggregate(a=call).cht().to_pylist()
    if isinstance(answer, float):
        answer = pytest.approx(answer, rel=1e-15, abs=0, nan_ok=True)
    if isinstance(answer, list):
        row["a"], answer = list(map(str, row["a"])), list(map(str, answer))  # NaN is NaN, 0.0 is not -0.0
    assert row["a"] == answer


def test_a_value_is_counted_as_often_as_it_occurs():
    rows = [{"le": le, "re": 20, "v": v} for le, v in [(1, 5.0), (1, 5.0), (2, 7.0), (0, 5.0)]]
    calls = {
        "c": hr.collect("v"),
        "m": hr.quantile("v", 0.75),
        "d": hr.distinct_count("v"),
        "t": hr.top_frequent("v", 1),
    }
    (row,) = hr.events(rows).window(hr.tumbling(20)).aggregate(**calls).cht().to_pylist()
    assert (row["c"], row["m"], row["d"], row["t"]) == ([5.0, 5.0, 5.0, 7.0], 5.5, 1 + 1, [5.0])


def test_lists_are_corrected():
    stream = hr.events(
        """
        kind    | le | re | re_new | k | v
        insert  | 3  | 4  |        | a | 1.0
        insert  | 25 | 26 |        | b | 2.0
        insert  | 2  | 3  |        | a | 9.0
        retract | 3  | 4  | 3      | a | 1.0
        """,
        batches=[2, 1, 1],
    )
    run = stream.group_by("k").window(hr.tumbling(10)).aggregate(vs=hr.collect("v")).run()
    assert [(e["kind"], e["vs"]) for e in run.events().to_pylist() if e["k"] == "a"] == [
        ("insert", [1.0]),
        ("retract", [1.0]),
        ("insert", [9.0, 1.0]),
        ("retract", [9.0, 1.0]),
        ("insert", [9.0]),
    ]


def test_several_of_one_argument_and_the_first_beside_them():
    keys = ["a", "b", "a", "b", "a"]
    stream = inserts([3, 1, 1, 2, 2], "INT", keys)
    calls = {"f": hr.first("v"), "l": hr.last("v"), "m": hr.median("v"), "lo": hr.min("v"), "all": hr.collect("v"),
             "n": hr.approx_distinct("v"), "d": hr.distinct_count("v"), "s": hr.sum("v")}  # fmt: skip
    rows = stream.group_by("k").window(hr.tumbling(10)).aggregate(**calls).cht(batch_rows=2).to_pylist()
    assert [{name: row[name] for name in calls} for row in rows] == [
        {"f": 3, "l": 2, "m": 2.0, "lo": 1, "all": [3, 1, 2], "n": 3, "d": 3, "s": 6},
        {"f": 1, "l": 2, "m": 1.5, "lo": 1, "all": [1, 2], "n": 2, "d": 2, "s": 3},
    ]


def test_positional_names_tell_quantiles_apart():
    found = inserts([1.0], "DOUBLE").window(hr.tumbling(10)).aggregate(hr.quantile("v", 0.1), hr.quantile("v", 0.9))
    assert found.schema.names == ("quantile_v_0.1", "quantile_v_0.9")


def test_quantiles_are_numpy_s():
    values = np.random.default_rng(3).normal(size=101).tolist()
    for q in (0.0, 0.1, 0.37, 0.5, 0.999, 1.0):
        (row,) = inserts(values, "DOUBLE").window(hr.tumbling(1000)).aggregate(a=hr.quantile("v", q)).cht().to_pylist()
        assert row["a"] == pytest.approx(float(np.quantile(values, q)), rel=1e-12)


def test_a_geometric_mean_does_not_depend_on_the_order():
    values = np.random.default_rng(4).lognormal(sigma=20, size=500).tolist()
    found = set()
    for order in (values, sorted(values), values[::-1]):
        result = inserts(order, "DOUBLE").window(hr.tumbling(1000)).aggregate(a=hr.geometric_mean("v"))
        found.add(result.cht(batch_rows=37)["a"].to_pylist()[0])
    assert len(found) == 1
    assert found.pop() == pytest.approx(statistics.geometric_mean(values), rel=1e-12)


@pytest.mark.parametrize("size", [1023, 5_000, 60_000])
def test_a_sketch_estimates_well_and_is_exact_while_it_can(size: int):
    values = [f"value {i}" for i in range(size)] * 2
    result = inserts(values, "STRING").window(hr.tumbling(10**6)).aggregate(a=hr.approx_distinct("v"))
    found = result.cht(batch_rows=size // 3 + 1)["a"].to_pylist()[0]
    assert found == size if size < 1024 else abs(found - size) < 0.1 * size


def test_explain_says_what_is_kept():
    exact = corrected(["a"], "STRING").window(hr.tumbling(10)).aggregate(a=hr.approx_distinct("v")).explain()
    assert "keeps the values of v; approx_distinct(v) is exact, because its input takes events back" in exact
    sketched = inserts(["a"], "STRING").window(hr.tumbling(10)).aggregate(a=hr.approx_distinct("v"), b=hr.median("t"))
    assert "keeps the values of t; keeps a sketch of the values of v" in sketched.explain()


def test_a_sketch_is_all_that_is_kept():
    values = list(range(20_000))
    result = inserts(values, "LONG").window(hr.tumbling(10**6)).aggregate(a=hr.approx_distinct("v"))
    run = result.run(batch_rows=1_000)
    held = [op["rows"] for batch in run.statistics for part in batch for op in part["operators"].values()]
    assert 1024 < max(held) < 3 * 1024
