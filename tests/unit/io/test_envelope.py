"""Envelopes of Debezium: in values and in files, wrapped or not, in JSON and in Avro."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SchemaError
from headrace.io.decoded import concat
from headrace.io.formats import Format, read_file
from headrace.io.values import ValueDecoder, ValueFormat
from headrace.schema import Schema

COLUMNS = Schema.of("l LONG, s STRING, t DATETIME, _op STRING, _ts LONG")
ROW = [{"name": "l", "type": ["null", "long"]}, {"name": "s", "type": ["null", "string"]},
       {"name": "t", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.Timestamp"}]}]  # fmt: skip
AVRO = {
    "type": "record", "name": "Envelope", "namespace": "db.t", "fields": [
        {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": ROW}]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [
            {"name": "table", "type": "string"}, {"name": "ts_ms", "type": ["null", "long"]},
            {"name": "ts_us", "type": ["null", "long"]}]}},
        {"name": "op", "type": "string"},
        {"name": "ts_ns", "type": ["null", "long"]},
    ],
}  # fmt: skip


def twin(change: Any) -> dict[str, Any] | None:
    """The row of one change; None if it is refused."""
    if not isinstance(change, dict):
        return None
    body = change if change.get("op") is not None else change.get("payload")
    if not isinstance(body, dict) or not isinstance(body.get("op"), str):
        return None
    op = body["op"]
    image = body.get("before" if op == "d" else "after")
    if image is None and op not in ("c", "r", "u", "d"):
        image = {}
    if not isinstance(image, dict):
        return None
    row = {name: image.get(name) for name in ("l", "s", "t")}
    if not all(isinstance(row[name], (kind, type(None))) for name, kind in (("l", int), ("s", str), ("t", int))):
        return None
    source = body.get("source") or {}
    micros = [source.get("ts_us"), _div(source.get("ts_ns")), _times(source.get("ts_ms"))]
    micros += [body.get("ts_us"), _div(body.get("ts_ns")), _times(body.get("ts_ms"))]
    return row | {"_op": op, "_ts": next((time for time in micros if time is not None), None)}


def _div(time: int | None) -> int | None:
    return None if time is None else time // 1000


def _times(time: int | None) -> int | None:
    return None if time is None else time * 1000


def ticks(table: pa.Table) -> list[dict[str, Any]]:
    place = table.schema.get_field_index("t")
    return table.set_column(place, "t", table["t"].cast(pa.int64())).to_pylist()  # type: ignore[no-any-return]


times = st.none() | st.integers(-(10**12), 10**12)
images = st.fixed_dictionaries({}, optional={
    "l": st.none() | st.integers(-9, 9), "s": st.none() | st.text(max_size=3), "t": times, "z": st.just([1]),
})  # fmt: skip
wrong = st.sampled_from([5, "x", {"l": "x"}, {"s": 5}])
changes = st.fixed_dictionaries(
    {
        "op": st.sampled_from("cudrt"),
        "after": st.none() | images | images | wrong, "before": st.none() | images | wrong,
    },
    optional={
        "source": st.none() | st.fixed_dictionaries({}, optional={"ts_us": times, "ts_ns": times, "ts_ms": times}),
        "ts_us": times, "ts_ns": times, "ts_ms": times,
    },
)  # fmt: skip
wrapped = changes.map(lambda change: {"schema": {"type": "struct", "op": 1}, "payload": change})
odd = st.sampled_from(
    [{}, {"op": None}, {"op": 5, "after": {}}, {"payload": 5}, {"op": "c", "payload": {"op": "d"}}, []]
)


@settings(max_examples=3 * settings().max_examples)
@given(st.one_of(*(st.lists(kind, min_size=1, max_size=6) for kind in (changes, wrapped, changes | wrapped | odd))))
def test_differential_changes(drawn: list[Any]):
    expected = {place: row for place, change in enumerate(drawn) if (row := twin(change)) is not None}
    values = pa.array([json.dumps(change).encode() for change in drawn])
    decoder = ValueDecoder(ValueFormat("json", envelope="debezium"), COLUMNS.fields)
    block = decoder.decode(values, np.arange(len(drawn)))
    assert block.rows.tolist() == list(expected)
    assert ticks(block.table) == list(expected.values())
    assert block.refused["row"].to_pylist() == [place for place in range(len(drawn)) if place not in expected]


def test_files_are_read_by_the_same_decoder(tmp_path: Path):
    path = tmp_path / "changes.jsonl"
    lines = [
        {"op": "c", "after": {"key": 1, "s": "x"}, "source": {"ts_ms": 5}},
        {"op": "d", "before": {"key": 1}, "after": None},
        {"op": "u", "after": None},
        {"schema": {}, "payload": {"op": "r", "after": {"key": 2, "t": "1970-01-01T00:00:00Z"}, "ts_us": 7}},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    format = Format("json", envelope="debezium", rename=(("key", "l"),))
    block = concat(list(read_file(str(path), format, COLUMNS)))
    assert ticks(block.table) == [
        {"l": 1, "s": "x", "t": None, "_op": "c", "_ts": 5000},
        {"l": 1, "s": None, "t": None, "_op": "d", "_ts": None},
        {"l": 2, "s": None, "t": 0, "_op": "r", "_ts": 7},
    ]
    assert block.refused.to_pylist() == [
        {
            "row": 2,
            "reason": "the change has no row 'after', which its op 'u' needs",
            "raw": json.dumps(lines[2]),
            "line": 3,
        }
    ]
    only = concat(list(read_file(str(path), format, COLUMNS, ["_op"])))
    assert only.table.to_pydict() == {"_op": ["c", "d", "r"]}


def test_a_format_says_its_envelope_only_if_it_has_one():
    assert str(Format("json")) == "json"
    assert str(Format("json", envelope="debezium")) == "json(envelope='debezium')"
    for options in ({"name": "csv"}, {"name": "json", "nested": True}):
        with pytest.raises(SchemaError, match="flat JSON"):
            Format(**options, envelope="debezium")  # type: ignore[arg-type]


@pytest.mark.parametrize("schema", ["_op LONG", "_ts STRING"])
@pytest.mark.parametrize("format", ["json", "avro"])
def test_the_types_of_the_columns_of_a_change(schema: str, format: Any):
    options = {"avro_schema": json.dumps(AVRO)} if format == "avro" else {}
    with pytest.raises(SchemaError, match="of a change is"):
        ValueDecoder(ValueFormat(format, envelope="debezium", **options), Schema.of(schema).fields)


def test_tombstones_are_no_rows():
    decoder = ValueDecoder(ValueFormat("json", envelope="debezium"), COLUMNS.fields)
    block = decoder.decode(pa.array([b'{"op": "d", "before": {"l": 1}}', None]), np.arange(2))
    assert (block.rows.tolist(), block.refused.num_rows) == ([0], 0)


full_images = st.none() | st.fixed_dictionaries(
    {"l": st.none() | st.integers(-9, 9), "s": st.none() | st.text(max_size=3), "t": times}
)
avro_changes = st.fixed_dictionaries({
    "op": st.sampled_from("cudrt"), "after": full_images, "before": full_images, "ts_ns": times,
    "source": st.fixed_dictionaries({"table": st.just("t"), "ts_ms": times, "ts_us": times}),
})  # fmt: skip


@given(st.lists(avro_changes, min_size=1, max_size=6))
def test_differential_changes_in_avro(drawn: list[Any]):
    expected = {place: row for place, change in enumerate(drawn) if (row := twin(change)) is not None}
    for row in expected.values():
        row["t"] = _times(row["t"])  # its type says milliseconds
    values = []
    for change in drawn:
        datum = io.BytesIO()
        fastavro.schemaless_writer(datum, fastavro.parse_schema(AVRO), change)
        values.append(datum.getvalue())
    format = ValueFormat("avro", avro_schema=json.dumps(AVRO), envelope="debezium")
    block = ValueDecoder(format, COLUMNS.fields).decode(pa.array(values), np.arange(len(values)))
    assert block.rows.tolist() == list(expected)
    assert ticks(block.table) == list(expected.values())
    assert block.refused["row"].to_pylist() == [place for place in range(len(drawn)) if place not in expected]


@pytest.mark.parametrize("large", [10**17, -(2**63)])
def test_a_time_that_is_too_large_is_refused_alone(large: int):
    source = {"table": "t", "ts_ms": large, "ts_us": None}
    change = {"op": "c", "after": {"l": 1, "s": None, "t": None}, "before": None, "ts_ns": 1, "source": source}
    better = change | {"source": source | {"ts_us": 5}}
    values = []
    for one in (change, better):
        datum = io.BytesIO()
        fastavro.schemaless_writer(datum, fastavro.parse_schema(AVRO), one)
        values.append(datum.getvalue())
    for name, given_values in (("avro", values), ("json", [json.dumps(one).encode() for one in (change, better)])):
        options = {"avro_schema": json.dumps(AVRO)} if name == "avro" else {}
        format = ValueFormat(name, envelope="debezium", **options)  # type: ignore[arg-type]
        block = ValueDecoder(format, Schema.of("_ts LONG").fields).decode(pa.array(given_values), np.arange(2))
        assert block.table["_ts"].to_pylist() == [5]
        assert block.refused["row"].to_pylist() == [0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "op", "type": "long"}, "'op' of a change cannot be"),
        ({"name": "ts_us", "type": "double"}, "'ts_us' of a change cannot be"),
        (
            {"name": "before", "type": {"type": "record", "name": "B", "fields": [{"name": "l", "type": "string"}]}},
            "'l'",
        ),
    ],
)
def test_avro_schemas_that_are_no_envelopes(change: Any, said: str):
    after = {"name": "after", "type": {"type": "record", "name": "A", "fields": [{"name": "l", "type": "long"}]}}
    schema = json.dumps({"type": "record", "name": "E", "fields": [change, after]})
    with pytest.raises(SchemaError, match=said):
        ValueDecoder(ValueFormat("avro", avro_schema=schema, envelope="debezium"), Schema.of("l LONG, _ts LONG").fields)
