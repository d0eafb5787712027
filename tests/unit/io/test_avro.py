"""Avro: the columns of datums against fastavro, which reads one datum at a time; broken datums; what is written."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SchemaError
from headrace.io.avro_program import parsed_schema
from headrace.io.avro_writing import avro_schema
from headrace.io.decoded import DecodedBlock
from headrace.io.values import ValueDecoder, ValueFormat, encode_values
from headrace.schema import Schema


def datum(schema: Any, row: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Row", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def decoded(values: list[bytes | None], schema: Any, columns: Schema | str) -> DecodedBlock:
    format = ValueFormat("avro", avro_schema=json.dumps(schema))
    return ValueDecoder(format, Schema.of(columns).fields).decode(pa.array(values, pa.binary()), np.arange(len(values)))


def read(schema: Any, kind: str, *values: Any) -> list[Any]:
    """The values of one column of this type, written by fastavro."""
    whole = record(("v", schema))
    block = decoded([datum(whole, {"v": value}) for value in values], whole, f"v {kind}")
    assert block.refused.to_pylist() == []
    return block.table["v"].to_pylist()  # type: ignore[no-any-return]


# Random schemas: the columns that are wanted stand between parts that are skipped.

longs = st.integers(-(2**63), 2**63 - 1)
PLAIN: dict[str, tuple[Any, str, Any]] = {
    "boolean": ("boolean", "BOOLEAN", st.booleans()),
    "int": ("int", "INT", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", "LONG", longs),
    "float": ("float", "FLOAT", st.floats(width=32, allow_nan=False)),
    "double": ("double", "DOUBLE", st.floats(allow_nan=False)),
    "string": ("string", "STRING", st.text(max_size=5)),
}
Part = tuple[Any, Any]  # a schema, and a strategy for its values


def _named(kind: str, number: int) -> Part:
    if kind == "enum":
        return {"type": "enum", "name": f"E{number}", "symbols": ["a", "b", "c"]}, st.sampled_from("abc")
    return {"type": "fixed", "name": f"F{number}", "size": number % 5}, st.binary(
        min_size=number % 5, max_size=number % 5
    )


def _record(parts: list[Part], number: int) -> Part:
    fields = [{"name": f"f{i}", "type": kind} for i, (kind, _) in enumerate(parts)]
    row = st.fixed_dictionaries({f"f{i}": value for i, (_, value) in enumerate(parts)})
    return {"type": "record", "name": f"R{number}", "fields": fields}, row


numbers = st.integers(0, 10**9)
leaves = st.one_of(
    st.sampled_from([(schema, value) for schema, _, value in PLAIN.values()]),
    st.just(("null", st.none())),
    st.just(("bytes", st.binary(max_size=5))),
    st.builds(_named, st.sampled_from(["enum", "fixed"]), numbers),
)
parts = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(lambda part: ({"type": "array", "items": part[0]}, st.lists(part[1], max_size=3))),
        inner.map(lambda part: (
            {"type": "map", "values": part[0]}, st.dictionaries(st.text(max_size=2), part[1], max_size=3),
        )),
        inner.filter(lambda part: not isinstance(part[0], list) and part[0] != "null").map(
            lambda part: (["null", part[0]], st.none() | part[1])
        ),
        st.builds(_record, st.lists(inner, max_size=3), numbers),
    ),
    max_leaves=6,
)  # fmt: skip


@st.composite
def written(draw: Any) -> tuple[dict[str, Any], str, list[dict[str, Any]]]:
    """A schema, columns and rows."""
    fields, values, columns = [], {}, []
    for i in range(draw(st.integers(1, 5))):
        skipped, strategy = draw(parts)
        fields.append((f"x{i}", skipped))
        values[f"x{i}"] = strategy
        schema, kind, plain = draw(st.sampled_from(list(PLAIN.values())))
        shape = draw(st.sampled_from(["plain", "null first", "null last", "list", "list of nulls"]))
        kind = f"ARRAY<{kind}>" if "list" in shape else kind
        schema, plain = {
            "plain": (schema, plain),
            "null first": (["null", schema], st.none() | plain),
            "null last": ([schema, "null"], st.none() | plain),
            "list": ({"type": "array", "items": schema}, st.lists(plain, max_size=3)),
            "list of nulls": (
                ["null", {"type": "array", "items": ["null", schema]}],
                st.none() | st.lists(st.none() | plain, max_size=3),
            ),
        }[shape]  # fmt: skip
        fields.append((f"c{i}", schema))
        values[f"c{i}"] = plain
        columns.append(f"c{i} {kind}")
    order = draw(st.permutations(columns))
    return record(*fields), ", ".join(order), draw(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=5))


def _wanted(rows: list[dict[str, Any]], columns: str) -> list[dict[str, Any]]:
    return [{name: row[name] for name in Schema.of(columns).names} for row in rows]


def _unique(schema: Any) -> bool:
    try:
        return fastavro.parse_schema(schema) is not None
    except fastavro.schema.SchemaParseException:
        return False  # two types drew the same name


@given(written().filter(lambda drawn: _unique(drawn[0])))
def test_differential_schemas(drawn: tuple[dict[str, Any], str, list[dict[str, Any]]]):
    schema, columns, rows = drawn
    block = decoded([datum(schema, row) for row in rows], schema, columns)
    assert block.refused.to_pylist() == []
    assert block.table.schema == Schema.of(columns).arrow
    assert block.table.to_pylist() == _wanted(rows, columns)


@given(written().filter(lambda drawn: _unique(drawn[0])), st.data())
def test_differential_broken_datums(drawn: tuple[dict[str, Any], str, list[dict[str, Any]]], data: Any):
    """A changed datum is refused, or is what fastavro reads; its neighbours stay as they are."""
    schema, columns, rows = drawn
    values: list[bytes | None] = [datum(schema, row) for row in rows]
    whole = bytearray(values[0] or b"")
    for _ in range(data.draw(st.integers(0, 3)) if whole else 0):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    broken = bytes(whole)[: data.draw(st.integers(0, len(whole)))] + data.draw(st.binary(max_size=2))
    block = decoded([*values, broken, None, *values], schema, columns)
    found = dict(zip(block.rows.tolist(), block.table.to_pylist(), strict=True))
    count, changed = len(rows), found.pop(len(rows), None)
    assert list(found.values()) == _wanted(rows, columns) * 2
    assert list(found) == [*range(count), *range(count + 2, 2 * count + 2)]
    if changed is None:
        assert block.refused["row"].to_pylist() == [count]
        assert block.refused["raw"].to_pylist() == ["0x" + broken.hex()]
    else:
        stream = io.BytesIO(broken)
        row = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema))
        assert stream.read() == b""
        assert repr(changed) == repr(_wanted([row], columns)[0])


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("long", b""),
        ("long", b"\x80"),
        ("long", b"\x02\x02"),
        ("long", b"\xff" * 9 + b"\x02"),
        ("long", b"\xff" * 10 + b"\x01"),
        ("int", b"\xff" * 4 + b"\x7f"),
        ("boolean", b"\x02"),
        ("string", b"\x04a"),
        ("string", b"\x01"),
        ("string", b"\x04\xff\xff"),
        ("double", b"\x00" * 7),
        (["null", "long"], b"\x04"),
        (["null", "long"], b"\x01"),
        ({"type": "enum", "name": "e", "symbols": ["a"]}, b"\x02"),
        ({"type": "array", "items": "long"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ({"type": "array", "items": "long"}, b"\x02"),
        ({"type": "array", "items": "string"}, b"\x02\x02\xff\x00"),
    ],
)
def test_a_broken_datum_is_refused_alone(schema: Any, value: bytes):
    kind = "STRING"
    if isinstance(schema, dict) and schema["type"] == "array":
        kind = "ARRAY<LONG>" if schema["items"] == "long" else "ARRAY<STRING>"
    elif schema in ("long", "int", ["null", "long"], "boolean", "double"):
        kind = {"boolean": "BOOLEAN", "double": "DOUBLE"}.get(str(schema), "LONG")
    good = datum(schema, {"ARRAY<LONG>": [1, 2], "ARRAY<STRING>": ["x"], "BOOLEAN": True, "LONG": 5, "DOUBLE": 0.5}.get(
        kind, "a"))  # fmt: skip
    block = decoded([good, value, good], schema, f"v {kind}")
    assert block.rows.tolist() == [0, 2]
    assert block.table["v"][0] == block.table["v"][1]
    assert block.refused["row"].to_pylist() == [1]
    assert "Avro datum" in block.refused["reason"][0].as_py()


def test_lists_of_nothing_do_not_take_forever():
    empty = {"type": "record", "name": "Empty", "fields": []}
    schema = record(("x", {"type": "array", "items": empty}), ("l", "long"))
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x02"
    block = decoded([datum(schema, {"x": [{}] * 3, "l": 1}), huge], schema, "l LONG")
    assert block.table["l"].to_pylist() == [1]
    assert block.refused["row"].to_pylist() == [1]


def test_a_list_in_blocks_with_their_sizes():
    schema = record(("v", {"type": "array", "items": "long"}))
    assert decoded([b"\x03\x04\x02\x04\x02\x06\x00"], schema, "v ARRAY<LONG>").table.to_pylist() == [{"v": [1, 2, 3]}]


def test_a_type_that_contains_itself():
    schema = record(("next", ["null", "Row"]), ("l", "long"))
    row: dict[str, Any] = {"next": None, "l": 0}
    for number in range(1, 100):
        row = {"next": row, "l": number}
    assert decoded([datum(schema, row)], schema, "l LONG").table.to_pylist() == [{"l": 99}]
    deep = b"\x02" * 300 + b"\x00" + b"\x00" * 301
    assert decoded([deep], schema, "l LONG").refused["reason"].to_pylist() == ["the Avro datum is nested too deeply"]


def test_types_that_are_defined_before():
    kind = {"type": "enum", "name": "Kind", "namespace": "other", "symbols": ["a", "b"]}
    schema = {**record(("x", kind), ("v", ["null", "other.Kind"]), ("w", {"type": "array", "items": "other.Kind"})),
              "namespace": "here"}  # fmt: skip
    value = datum(schema, {"x": "a", "v": "b", "w": ["b", "a"]})
    assert decoded([value], schema, "v STRING, w ARRAY<STRING>").table.to_pylist() == [{"v": "b", "w": ["b", "a"]}]


def test_logical_types():
    time = datetime(1969, 12, 31, 23, 59, 59, 123456, tzinfo=UTC)
    millis = time.replace(microsecond=123000)
    assert read({"type": "long", "logicalType": "timestamp-micros"}, "DATETIME", time) == [time]
    assert read({"type": "long", "logicalType": "timestamp-millis"}, "DATETIME", millis) == [millis]
    assert read({"type": "long", "logicalType": "timestamp-millis"}, "LONG", millis) == [-877]
    day = datetime(2024, 2, 29, tzinfo=UTC)
    assert read({"type": "int", "logicalType": "date"}, "DATETIME", date(2024, 2, 29)) == [day]
    assert read("long", "DATETIME", 5) == [datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC)]
    assert read("string", "DATETIME", "2024-02-29T00:00:00Z") == [day]
    decimals = [Decimal("1.25"), Decimal("-1.25"), Decimal(0), Decimal("-0.01"), Decimal("1234567890123456.78")]
    kinds = ({"type": "bytes"}, {"type": "fixed", "name": "f", "size": 12})
    for kind in kinds:
        decimal = {**kind, "logicalType": "decimal", "precision": 20, "scale": 2}
        assert read(decimal, "DOUBLE", *decimals) == [float(number) for number in decimals]


def test_bytes_are_text_or_lists():
    assert read("bytes", "STRING", b"abc") == ["abc"]
    assert read("bytes", "ARRAY<BYTE>", b"\xff\x01", b"") == [[-1, 1], []]


def test_a_union_of_several_types():
    assert read(["null", "int", "double"], "DOUBLE", 1, None, 2.5) == [1.0, None, 2.5]
    assert read(["int", "long"], "LONG", 1, 2**40) == [1, 2**40]
    with pytest.raises(SchemaError, match="different types"):
        decoded([], record(("v", ["int", "string"])), "v STRING")


def test_columns_are_found_by_name():
    schema = record(("a", "long"), ("b", "string"))
    value = datum(schema, {"a": 1, "b": "x"})
    assert decoded([value], schema, "b STRING, gone DOUBLE").table.to_pylist() == [{"b": "x", "gone": None}]
    assert decoded([value], schema, "a INT").table.to_pylist() == [{"a": 1}]
    large = datum(schema, {"a": 2**40, "b": ""})
    assert "out of range for INT" in decoded([value, large], schema, "a INT").refused["reason"][0].as_py()


@pytest.mark.parametrize(
    ("kind", "column"),
    [("string", "LONG"), ("boolean", "LONG"), ({"type": "map", "values": "long"}, "LONG"), ("long", "STRING"),
     (record(("x", "long")) | {"name": "Inner"}, "LONG"), ({"type": "array", "items": "long"}, "LONG"),
     ({"type": "array", "items": {"type": "array", "items": "long"}}, "ARRAY<LONG>")],
)  # fmt: skip
def test_schemas_that_cannot_be_columns(kind: Any, column: str):
    with pytest.raises(SchemaError, match="cannot be"):
        decoded([], record(("v", kind)), f"v {column}")


@pytest.mark.parametrize(
    "schema", ["{", '{"type": "what"}', '{"type": "record", "name": "r", "fields": [{"name": "v", "type": "x"}]}']
)
def test_texts_that_are_no_schemas(schema: str):
    with pytest.raises(SchemaError, match="Avro schema"):
        ValueDecoder(ValueFormat("avro", avro_schema=schema), Schema.of("v LONG").fields)


# Writing.

ROWS = Schema.of("l LONG, i INT, d DOUBLE, f FLOAT, b BOOLEAN, s STRING, t DATETIME, a ARRAY<LONG>, w ARRAY<STRING>")
rows = st.lists(
    st.fixed_dictionaries({
        "l": st.none() | longs, "i": st.none() | st.integers(-(2**31), 2**31 - 1), "d": st.none() | st.floats(),
        "f": st.none() | st.floats(width=32), "b": st.none() | st.booleans(), "s": st.none() | st.text(max_size=5),
        "t": st.none() | st.datetimes(timezones=st.just(UTC)).map(lambda time: time.replace(fold=0)),
        "a": st.none() | st.lists(st.none() | longs, max_size=3),
        "w": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
    }),
    min_size=1,
    max_size=6,
)  # fmt: skip


@given(rows)
def test_what_is_written_can_be_read(drawn: list[dict[str, Any]]):
    table = pa.Table.from_pylist(drawn, ROWS.arrow)
    schema = avro_schema(table.schema)
    format = ValueFormat("avro", avro_schema=schema)
    values = encode_values(table, format)
    block = ValueDecoder(format, ROWS.fields).decode(values, np.arange(len(values)))
    assert repr(block.table.to_pylist()) == repr(table.to_pylist())
    parsed = fastavro.parse_schema(parsed_schema(schema))
    read_back = [fastavro.schemaless_reader(io.BytesIO(value), parsed) for value in values.to_pylist()]
    assert repr(read_back) == repr([{name: row[name] for name in ROWS.names} for row in drawn])


def test_writing_with_a_given_schema():
    day = datetime(1969, 12, 31, 12, 0, 0, 999, tzinfo=UTC)
    schema = record(
        ("s", "string"), ("e", {"type": "enum", "name": "e", "symbols": ["a", "b"]}), ("raw", ["bytes", "null"]),
        ("day", {"type": "int", "logicalType": "date"}), ("gone", ["null", "long"]), ("wide", "double"),
        ("ms", {"type": "long", "logicalType": "timestamp-millis"}), ("many", {"type": "array", "items": "int"}),
    )  # fmt: skip
    table = pa.table({"e": ["b"], "s": ["x"], "raw": ["y"], "day": [day], "wide": [1], "ms": [day], "many": [[1, 2]]})
    (value,) = encode_values(table, ValueFormat("avro", avro_schema=json.dumps(schema))).to_pylist()
    assert fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(schema)) == {
        "s": "x", "e": "b", "raw": b"y", "day": date(1969, 12, 31), "gone": None, "wide": 1.0,
        "ms": day.replace(microsecond=0), "many": [1, 2],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (record(("a", "long")), "no field for 'n'"),
        (record(("n", ["null", "long"]), ("a", "long"), ("more", "long")), "no column for the Avro field 'more'"),
        (record(("n", "long"), ("a", "long")), "'n' has nulls"),
        (record(("n", ["null", "long"]), ("a", "boolean")), "does not fit"),
        (record(("n", ["null", "long"]), ("a", {"type": "enum", "name": "e", "symbols": ["x"]})), "no symbol"),
        (record(("n", ["null", "long", "string"]), ("a", "long")), "several types"),
        (record(("n", ["null", "long"]), ("a", {"type": "array", "items": "long"})), "not a list"),
        (record(("n", ["null", "long"]), ("a", {"type": "map", "values": "long"})), "cannot be written"),
        (record(("n", ["null", "long"]), ("a", "string")), "does not fit"),
        ("long", "as an Avro record"),
    ],
)
def test_rows_that_do_not_fit_their_schema(schema: Any, said: str):
    table = pa.table({"n": pa.array([None], pa.int64()), "a": [500]})
    with pytest.raises(SchemaError, match=said):
        encode_values(table, ValueFormat("avro", avro_schema=json.dumps(schema)))
