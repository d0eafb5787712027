"""Parquet and Arrow files: conversion where every value fits, refusal where it does not."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headrace.errors import SchemaError, SourceError
from headrace.events import events_table, to_changes
from headrace.io.commit import BatchDirectory
from headrace.io.decoded import DecodedBlock, concat
from headrace.io.formats import Format, infer_schema, read_file
from headrace.io.parquet import _repeats
from headrace.io.sinks import FileSink, read_events_output, rows_of
from headrace.schema import Schema
from headrace.stages.encoding import encode
from headrace.time import INFINITY

FORMATS = ["parquet", "arrow"]


def write(path: Path, table: pa.Table, format: str, **options: object) -> str:
    if format == "parquet":
        pq.write_table(table, path, **options)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return str(path)


def decoded(path: str, format: str, schema: str, **options: object) -> DecodedBlock:
    return concat(list(read_file(path, Format(format), Schema.of(schema), **options)))


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def converted(tmp_path: Path, format: str, values: pa.Array, kind: str, name: str = "a") -> DecodedBlock:
    path = write(tmp_path / "x", pa.table({name: values}), format)
    return decoded(path, format, f"{name} {kind}")


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([1, None], pa.int8()), "LONG", [1, None]),
        (pa.array([1, 2], pa.uint64()), "INT", [1, 2]),
        (pa.array([1, 2], pa.int64()), "DOUBLE", [1.0, 2.0]),
        (pa.array([1.0, 2.0]), "INT", [1, 2]),
        (pa.array([1.5, None]), "FLOAT", [1.5, None]),
        (pa.array(["x", "y", None, "x"]).dictionary_encode(), "STRING", ["x", "y", None, "x"]),
        (pa.array(["x"], pa.large_string()), "STRING", ["x"]),
        (pa.array([b"x"], pa.binary()), "STRING", ["x"]),
        (pa.array([None, None]), "INT", [None, None]),
    ],
)
def test_types_that_fit(tmp_path: Path, format: str, values: pa.Array, kind: str, expected: list[object]):
    result = converted(tmp_path, format, values, kind)
    assert result.table["a"].to_pylist() == expected
    assert result.table.schema == Schema.of(f"a {kind}").arrow
    assert result.rows.tolist() == list(range(len(expected)))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1], pa.timestamp("s")),
        pa.array([1000], pa.timestamp("ms", tz="Europe/Oslo")),
        pa.array([1_000_000], pa.timestamp("us")),
        pa.array([1_000_000_999], pa.timestamp("ns", tz="UTC")),
        pa.array([1_000_000]),
        pa.array(["1970-01-01T00:00:01Z"]),
        pa.array(["1970-01-01T01:00:01+01:00"]).dictionary_encode(),
    ],
)
def test_times_of_any_kind(tmp_path: Path, values: pa.Array):
    assert converted(tmp_path, "arrow", values, "DATETIME").table["a"][0].value == 1_000_000
    assert converted(tmp_path, "arrow", values, "LONG", name="le").table["le"].to_pylist() == [1_000_000]


def test_dates_and_times_before_the_epoch(tmp_path: Path):
    assert (
        converted(tmp_path, "parquet", pa.array([dt.date(1970, 1, 2)]), "DATETIME").table["a"][0].value == 86400000000
    )
    assert converted(tmp_path, "parquet", pa.array([-1], pa.timestamp("ns")), "DATETIME").table["a"][0].value == -1


def test_lifetime_columns_as_text(tmp_path: Path, format: str):
    result = converted(tmp_path, format, pa.array(["inf", "5", None, "1970-01-01T00:00:01Z"]), "LONG", name="re")
    assert result.table["re"].to_pylist() == [INFINITY, 5, None, 1_000_000]


@pytest.mark.parametrize(
    ("values", "kind", "bad"),
    [
        (pa.array([1, 2**40, 3]), "INT", [1]),
        (pa.array([1, 300, -1], pa.int16()), "BYTE", [1]),
        (pa.array([2**63, 1], pa.uint64()), "LONG", [0]),
        (pa.array([1.5, 1.0, float("nan")]), "INT", [0, 2]),
        (pa.array([1e300, 1.0]), "FLOAT", [0]),
        (pa.array(["ab", "a", ""]), "CHAR", [0]),
        (pa.array([b"\xff", b"a"], pa.binary()), "STRING", [0]),
        (pa.array([2**62, 0], pa.timestamp("s")), "DATETIME", [0]),
        (pa.array([2**62, 0]), "DATETIME", [0]),
        (pa.array(["never", "2024-01-01"]), "DATETIME", [0]),
    ],
)
def test_values_that_do_not_fit(tmp_path: Path, format: str, values: pa.Array, kind: str, bad: list[int]):
    if pa.types.is_timestamp(values.type):
        format = "arrow"  # Parquet has no seconds
    result = converted(tmp_path, format, values, kind)
    assert result.refused["row"].to_pylist() == bad
    assert result.rows.tolist() == [i for i in range(len(values)) if i not in bad]
    assert all("'a'" in reason for reason in result.refused["reason"].to_pylist())
    assert all("a" in json.loads(raw) for raw in result.refused["raw"].to_pylist())


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array(["1"]), "INT"),
        (pa.array([1]), "STRING"),
        (pa.array([True]), "INT"),
        (pa.array([1]), "BOOLEAN"),
        (pa.array([1.5]), "DATETIME"),
        (pa.array([[1]]), "INT"),
        (pa.array([0], pa.timestamp("us")), "LONG"),
    ],
)
def test_types_that_never_fit(tmp_path: Path, format: str, values: pa.Array, kind: str):
    with pytest.raises(SchemaError, match="'a'"):
        converted(tmp_path, format, values, kind)


def test_missing_column(tmp_path: Path, format: str):
    with pytest.raises(SchemaError, match="'prize' is missing") as caught:
        decoded(write(tmp_path / "x", pa.table({"price": [1]}), format), format, "prize INT")
    assert "price INT" in str(caught.value)


@pytest.mark.parametrize("damage", [b"", b"garbage", "half", "middle"])
def test_corrupt_files_name_the_path(tmp_path: Path, format: str, damage: bytes | str):
    path = tmp_path / "broken-file"
    write(path, pa.table({"a": np.arange(10000), "b": np.random.default_rng(0).random(10000)}), format)
    whole = path.read_bytes()
    if damage == "middle":
        path.write_bytes(whole[:100] + b"\xff" * (len(whole) - 4000) + whole[len(whole) - 3900 :])
    else:
        path.write_bytes(whole[: len(whole) // 2] if damage == "half" else damage)
    if damage == "middle" and format == "arrow":
        return  # Arrow files carry no checksums
    with pytest.raises(SourceError, match="broken-file"):
        decoded(str(path), format, "a LONG, b DOUBLE")


def test_only_the_asked_columns(tmp_path: Path, format: str):
    path = write(tmp_path / "x", pa.table({"a": [1, 2], "b": [[1], [2]], "c": [1.5, 2.5]}), format)
    assert decoded(path, format, "a LONG, c DOUBLE", columns=["c"]).table.to_pydict() == {"c": [1.5, 2.5]}
    assert decoded(path, format, "c DOUBLE, a LONG").table.column_names == ["c", "a"]
    assert len(decoded(path, format, "a LONG", columns=[]).rows) == 2


@pytest.mark.parametrize("kind", ["LONG", "INT"])
def test_filter(tmp_path: Path, format: str, kind: str):
    path = write(tmp_path / "x", pa.table({"a": [1, 2, None, 4], "b": ["w", "x", "y", "z"]}), format)
    result = decoded(path, format, f"a {kind}, b STRING", columns=["b"], row_filter=pc.field("a") >= 2)
    assert result.table.to_pydict() == {"b": ["x", "z"]}
    assert len(result.rows) == 2


def test_order_and_numbers_over_many_blocks(tmp_path: Path, format: str):
    n = 2_500_000
    path = write(tmp_path / "x", pa.table({"a": np.arange(n)}), format)
    blocks = list(read_file(path, Format(format), Schema.of("a LONG")))
    assert len(blocks) > 1
    assert all(len(block.rows) <= 1 << 20 for block in blocks)
    whole = concat(blocks)
    assert np.array_equal(whole.table["a"].to_numpy(), np.arange(n))
    assert np.array_equal(whole.rows, np.arange(n))


@pytest.mark.parametrize("group", [1000, 3_000_000])
def test_small_and_large_row_groups(tmp_path: Path, group: int):
    n = 2_000_000
    path = write(tmp_path / "x", pa.table({"a": np.arange(n)}), "parquet", row_group_size=group)
    blocks = list(read_file(path, Format("parquet"), Schema.of("a LONG")))
    assert len(blocks) <= 20
    assert np.array_equal(concat(blocks).table["a"].to_numpy(), np.arange(n))


def test_no_rows(tmp_path: Path, format: str):
    path = write(tmp_path / "x", pa.table({"a": pa.array([], pa.int64())}), format)
    assert sum(len(block.rows) for block in read_file(path, Format(format), Schema.of("a LONG"))) == 0


def test_infer(tmp_path: Path, format: str):
    table = pa.table(
        {
            "a": [1],
            "s": pa.array(["x"]).dictionary_encode(),
            "t": pa.array([0], pa.timestamp("ms")),
            "l": [[1]],
        }
    )
    inferred = infer_schema(write(tmp_path / "x", table, format), Format(format))
    assert str(inferred) == "a LONG, s STRING, t DATETIME, l ARRAY<LONG>"


@pytest.mark.parametrize("format", FORMATS)
def test_a_column_that_is_there_twice_is_not_missing(tmp_path: Path, format: str):
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "b", "b"])
    path = write(tmp_path / "x", twice, format)
    with pytest.raises(SchemaError, match="column 'b' appears twice in") as caught:
        decoded(path, format, "a LONG, b LONG")
    assert caught.value.allowed == "a, b, b"


@pytest.mark.parametrize("filtered", [False, True])
def test_a_flipped_byte_is_an_error_where_pages_have_checksums(tmp_path: Path, filtered: bool):
    path = tmp_path / "x.parquet"
    table = pa.table({"t": range(1000), "v": np.arange(1000) * 7919})
    pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[pq.ParquetFile(path).metadata.row_group(0).column(1).data_page_offset + 200] ^= 1
    path.write_bytes(data)
    row_filter = pc.field("v") > 5 if filtered else None
    with pytest.raises(SourceError, match=r"x\.parquet.*checksum"):
        list(read_file(str(path), Format("parquet"), Schema.of("t LONG, v LONG"), row_filter=row_filter))


def test_what_is_written_has_checksums(tmp_path: Path):
    changes = to_changes(events_table([{"kind": "insert", "le": 0, "re": 1, "v": 7919}] * 99), Schema.of("v LONG"))
    sink = FileSink(path=str(tmp_path), format="parquet")
    data = bytearray(encode(rows_of(changes, sink), sink))
    page = pq.ParquetFile(pa.BufferReader(bytes(data))).metadata.row_group(0).column(0)
    data[(page.dictionary_page_offset or page.data_page_offset) + page.total_compressed_size - 2] ^= 1
    out = BatchDirectory(str(tmp_path))
    out.commit(0, [out.stage(0, "part.parquet", bytes(data))])
    with pytest.raises(SourceError, match=r"part-00000\.parquet.*checksum"):
        read_events_output(str(tmp_path), "v LONG")


def test_texts_that_repeat_are_read_as_dictionaries(tmp_path: Path):
    rows = 200_000
    repeated = pa.array([None if i % 7 == 0 else f"key {i % 100}" for i in range(rows)])
    table = pa.table({"repeated": repeated, "unique": [f"text {i}" for i in range(rows)], "n": range(rows)})
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path, row_group_size=70_000, write_page_checksum=True)
    assert [_repeats(pq.ParquetFile(path), name) for name in table.column_names] == [True, False, False]
    result = decoded(str(path), "parquet", "repeated STRING, unique STRING, n LONG")
    assert result.table.equals(table.cast(result.table.schema))
