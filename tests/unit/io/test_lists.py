"""Columns of lists: from a source, through operators and messages, to every sink."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console as Terminal

import headrace as hr
from headrace import col
from headrace.changes import Changes
from headrace.columnar import Lists, canonical_floats, factorize, hash_rows, sortable
from headrace.errors import EventError, ExpressionError, PlanError, SchemaError
from headrace.expr import coalesce, when
from headrace.io.console import batch_rows, batch_table
from headrace.io.encode import jsonl_to_physical, physical_to_jsonl
from headrace.io.sinks import FileSink, rows_of
from headrace.pieces import joined
from headrace.progress import Progress
from headrace.schema import Field, Schema, Type
from headrace.stages.egress import prepared
from headrace.stages.encoding import encode
from headrace.stages.message import Message, pack, unpack

SCHEMA = Schema.of("k STRING, xs ARRAY<DOUBLE>")
DRAWN = """
    kind    | le | re | re_new | k | xs
    insert  | 1  | 5  |        | a | [1.5, 2, nan]
    insert  | 1  | 5  |        | a | []
    insert  | 2  | 5  |        | b |
    insert  | 1  | 5  |        | a | [1.5, ]
    retract | 1  | 5  | 3      | a | [1.5, 2, nan]
    retract | 2  | 5  | 2      | b |
"""
ROWS = [(1, 3, "a", "[1.5, 2.0, nan]"), (1, 5, "a", "[1.5, None]"), (1, 5, "a", "[]")]


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((row["le"], row["re"], row["k"], str(row["xs"])) for row in table.to_pylist())


# --- the type ---------------------------------------------------------------------------------------------------------


def test_a_schema_of_lists_is_read_as_it_is_written():
    schema = Schema.of("a array< double >, b ARRAY<BIGINT>, c STRING, d ARRAY<TIMESTAMP>")
    assert str(schema) == "a ARRAY<DOUBLE>, b ARRAY<LONG>, c STRING, d ARRAY<DATETIME>"
    assert Schema.of(str(schema)) == schema
    assert Schema.of(schema.arrow) == schema
    assert [field.type.spark for field in schema][:2] == ["ARRAY<DOUBLE>", "ARRAY<BIGINT>"]
    assert schema["a"].type.duckdb == "DOUBLE[]"
    assert (schema["a"].type.element, Type.INT.array, Type.INT.element) == (Type.DOUBLE, Type.INT.array, Type.INT)
    for other in (pa.large_list(pa.int64()), pa.list_(pa.int64(), 2), pa.list_(pa.field("element", pa.int64()))):
        assert Type.from_arrow(other) is Type.LONG.array


@pytest.mark.parametrize("text", ["ARRAY<>", "ARRAY", "ARRAY<NUMBER>"])
def test_what_is_no_type(text: str):
    with pytest.raises(SchemaError, match="ARRAY<type>, STRUCT"):
        Type.parse(text)


# --- columns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [1, 3])
def test_equal_lists_are_equal(chunks: int):
    values = [[0.0, math.nan], None, [], [-0.0, -math.nan], [math.nan, 0.0], [None], [0.0], [], None]
    whole = pa.table({"xs": pa.array(values, pa.list_(pa.float64()))})
    table = pa.concat_tables([whole.slice(i, 9 // chunks) for i in range(0, 9, 9 // chunks)])
    codes, first = factorize(table)
    assert first[codes].tolist() == [0, 1, 2, 0, 4, 5, 6, 2, 1]
    hashes = hash_rows(table)
    assert [hashes.tolist().index(value) for value in hashes] == [0, 1, 2, 0, 4, 5, 6, 2, 1]
    assert str(canonical_floats(table)["xs"].to_pylist()[3]) == "[0.0, nan]"


def test_hashes_of_lists_are_the_same_everywhere():
    table = pa.table({"xs": pa.array([[1.0, 2.0], [2.0, 1.0], []])})
    assert hash_rows(table).tolist() == [12580696305215344438, 2691294029780194773, 16294208416658607535]


def test_lists_are_ordered_element_by_element():
    values = [["b"], None, ["a", "b"], ["a"], [], ["a", None], ["a", "a", "a"]]
    table = pa.table({"xs": pa.array(values)})
    order = pc.sort_indices(sortable(table), [("xs", "ascending")])
    assert table.take(order)["xs"].to_pylist() == [[], ["a"], ["a", "a", "a"], ["a", "b"], ["a", None], ["b"], None]


def test_lists_are_put_together_again():
    column = pa.chunked_array([[[1, 2], None], [[], [3]]])
    assert Lists.of(column).array().to_pylist() == [[1, 2], None, [], [3]]
    assert Lists.of(column.slice(1)).array().to_pylist() == [None, [], [3]]
    assert Lists.of(pa.array([], pa.list_(pa.int64()))).array().to_pylist() == []


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"batch_rows": 1, "buckets": 3}])
def test_a_stream_of_lists(how: dict[str, int]):
    stream = hr.events(DRAWN, SCHEMA)
    assert rows(stream.cht(**how)) == ROWS
    assert rows(stream.where(col("xs").is_not_null()).select("k", xs=col("xs")).cht(**how)) == ROWS
    assert rows(stream.union(stream).cht(**how)) == sorted(ROWS * 2)


def test_lists_of_python_and_arrow():
    records = [{"le": 1, "xs": [1, 2]}, {"le": 2, "xs": []}, {"le": 3, "xs": None}]
    stream = hr.events(records)
    assert str(stream.schema) == "xs ARRAY<LONG>"
    table = pa.table({"le": [1, 2, 3], "xs": pa.array([[1, 2], [], None], pa.large_list(pa.int32()))})
    assert stream.cht().equals(hr.events(table, "xs ARRAY<LONG>").cht())
    with pytest.raises(SchemaError, match="does not hold ARRAY<LONG>"):
        hr.events([{"le": 1, "xs": [1, "a"]}], "xs ARRAY<LONG>")
    with pytest.raises(EventError, match="is not ARRAY<LONG>"):
        hr.events("le | xs\n1 | 5", "xs ARRAY<LONG>")


def test_messages_and_pairing():
    changes = Changes.inserts(np.arange(3), np.arange(3) + 5, pa.table({"xs": pa.array([[1.0], None, []])}))
    ((bucket, edge, chunk),) = pack(Message(0, 4, changes.to_table(), Progress(3, 5)))
    assert Changes.from_table(unpack(bucket, edge, joined(chunk)).table).payload.equals(changes.payload)
    back = Changes(changes.le, changes.re + 1, -changes.weight, changes.payload)
    both = Changes.concat([changes, back])
    assert len(both.pair().retract_from) == 3
    assert len(Changes.concat([changes, changes, back]).consolidate()) == 6


@pytest.mark.parametrize(
    "expr",
    [
        col("xs") == col("xs"), col("xs") < 1, col("xs").cast("STRING"), col("k").cast("ARRAY<STRING>"), col("xs") + 1,
        col("xs").isin(1), coalesce(col("xs"), col("xs")), when(col("k") == "a").then("xs"), ~col("xs"),
        col("xs").upper(),
    ],
)  # fmt: skip
def test_expressions_compute_no_further_with_lists(expr: Any):
    with pytest.raises(ExpressionError, match="ARRAY"):
        hr.events(DRAWN, SCHEMA).select(y=expr)


def test_groups_are_not_told_apart_by_lists():
    with pytest.raises(PlanError, match="cannot be a key of groups"):
        hr.events(DRAWN, SCHEMA).group_by("xs")


# --- sources and sinks ------------------------------------------------------------------------------------------------


def test_json_arrays():
    events = hr.events(DRAWN, SCHEMA).run().events()
    written = physical_to_jsonl(events)
    payloads = [json.loads(line)["payload"] for line in written.splitlines()]
    assert {"k": "a", "xs": [1.5, 2.0, "NaN"]} in payloads
    assert {"k": "a", "xs": []} in payloads
    assert str(jsonl_to_physical(written, SCHEMA).to_pylist()) == str(events.to_pylist())


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_json_in(tmp_path: Path):
    lines = [
        '{"t": 1, "a": ["2024-05-01T12:00:00Z", 5], "b": [1, null], "c": ["x", "\\""], "d": ["Infinity", 1]}',
        '{"t": 2, "a": null, "c": []}',
        '{"t": 3, "b": [1, 2.5]}',
        '{"t": 4, "b": 1}',
        '{"t": 5, "b": [1e3]}',
        '{"t": 6, "b": [300]}',
    ]
    (tmp_path / "in.json").write_text("\n".join(lines))
    schema = "t LONG, a ARRAY<DATETIME>, b ARRAY<BYTE>, c ARRAY<STRING>, d ARRAY<DOUBLE>"
    run = hr.read_json(str(tmp_path / "in.json"), schema, lifetime=hr.point("t")).run()
    first, second = run.cht().to_pylist()
    assert [time.isoformat() for time in first["a"]] == [
        "2024-05-01T12:00:00+00:00",
        "1970-01-01T00:00:00.000005+00:00",
    ]
    assert (first["b"], first["c"], first["d"]) == ([1, None], ["x", '"'], [math.inf, 1.0])
    assert (second["a"], second["b"], second["c"]) == (None, None, [])
    reasons = sorted(run.diverted()["reason"].to_pylist())
    assert len(reasons) == 4
    assert all("is not of type ARRAY<BYTE>" in reason for reason in reasons)


def test_parquet_in_and_out(tmp_path: Path):
    changes = hr.events(DRAWN, SCHEMA).run().results["out"].changes().consolidate()
    sink = FileSink(format="parquet", path="x")
    written = pq.read_table(io.BytesIO(encode(rows_of(changes, sink), sink)))
    assert Schema.of(written.schema)["xs"].type is Type.DOUBLE.array
    assert rows(written) == ROWS
    pq.write_table(
        pa.table({"t": [1, 2], "xs": pa.array([[1, 2], None], pa.list_(pa.int16()))}), tmp_path / "in.parquet"
    )
    read = hr.read_parquet(str(tmp_path / "in.parquet"), "t LONG, xs ARRAY<DOUBLE>", lifetime=hr.point("t"))
    assert read.cht()["xs"].to_pylist() == [[1.0, 2.0], None]
    guessed = hr.read_parquet(str(tmp_path / "in.parquet"), lifetime=hr.point("t"))
    assert guessed.schema["xs"] == Field("xs", Type.SHORT.array)
    for wrong in ("xs DOUBLE", "xs ARRAY<STRING>"):
        with pytest.raises(SchemaError, match="cannot be read as"):
            hr.read_parquet(str(tmp_path / "in.parquet"), f"t LONG, {wrong}", lifetime=hr.point("t")).cht()


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_a_value_out_of_range_refuses_its_row(tmp_path: Path):
    table = pa.table({"t": [1, 2, 3], "xs": [[1, 2], [3, 300], []]})
    pq.write_table(table, tmp_path / "in.parquet")
    run = hr.read_parquet(str(tmp_path / "in.parquet"), "t LONG, xs ARRAY<BYTE>", lifetime=hr.point("t")).run()
    assert run.cht()["xs"].to_pylist() == [[1, 2], []]
    assert run.diverted()["reason"].to_pylist() == ["column 'xs': [3, 300] is not of type ARRAY<BYTE>"]


def test_csv_has_no_lists():
    with pytest.raises(SchemaError, match=r"CSV has no lists(.|\n)*JSON and Parquet"):
        hr.read_csv("in.csv", "t LONG, xs ARRAY<DOUBLE>", lifetime=hr.point("t"))


def test_the_latest_value_may_have_lists():
    latest = prepared(hr.events(DRAWN, SCHEMA).node, hr.console(encoding="upsert", key="k"))
    assert [(row["k"], row["xs"]) for row in hr.run({"out": latest}).cht().to_pylist()] == [("a", [1.5, None])]


@pytest.mark.parametrize("sink", [hr.console(), hr.console(encoding="upsert", key="k")])
def test_the_console_shows_lists(sink: Any):
    changes = hr.events(DRAWN, SCHEMA).run().results["out"].changes().consolidate()
    out = io.StringIO()
    Terminal(file=out, width=120).print(batch_table(sink, "out", 0, changes, Progress()))
    assert "[1.5, 2, nan]" in out.getvalue()
    assert "[1.5, null]" in out.getvalue()
    assert len({row.identity for row in batch_rows(changes, sink)}) == 3
    assert rows_of(changes, sink).num_rows == 3
