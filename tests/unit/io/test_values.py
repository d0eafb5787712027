"""Values: each is one row or is refused, whatever its neighbours are; and what is written can be read."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.errors import SchemaError
from headrace.io.csv import split_record
from headrace.io.decoded import DecodedBlock
from headrace.io.values import ValueDecoder, ValueFormat, encode_values
from headrace.schema import Schema

COLUMNS = Schema.of("l LONG, d DOUBLE, b BOOLEAN, s STRING")
JSON, CSV = ValueFormat("json"), ValueFormat("csv")


def decoded(values: list[bytes | None], schema: Schema | str, format: ValueFormat = JSON) -> DecodedBlock:
    """The values, numbered by tens, in two chunks."""
    half = len(values) // 2
    chunks = pa.chunked_array([pa.array(values[:half], pa.binary()), pa.array(values[half:], pa.binary())])
    return ValueDecoder(format, Schema.of(schema).fields).decode(chunks, np.arange(len(values)) * 10)


def assert_rows(block: DecodedBlock, values: list[bytes | None], rows: dict[int, dict[str, Any]]) -> None:
    """The block has exactly these rows, by the place of their values, and refuses all other values but nulls."""
    assert block.rows.tolist() == [10 * place for place in rows]
    assert block.lines is not None
    assert block.lines.tolist() == block.rows.tolist()
    assert repr(block.table.to_pylist()) == repr(list(rows.values()))  # NaN is NaN, and 1 is not 1.0
    broken = [place for place, value in enumerate(values) if value is not None and place not in rows]
    assert block.refused["row"].to_pylist() == [10 * place for place in broken]
    assert block.refused["line"].to_pylist() == block.refused["row"].to_pylist()
    assert block.refused["raw"].to_pylist() == [(values[place] or b"").decode(errors="replace") for place in broken]
    assert all(block.refused["reason"].to_pylist())


# JSON.


def json_twin(value: bytes) -> dict[str, Any] | None:
    """The row of one value, by Python's own reader; None if it is refused."""
    try:
        row = json.loads(value.decode(), parse_float=lambda text: text if math.isinf(float(text)) else float(text))
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    kinds = {"l": int, "d": (int, float), "b": bool, "s": str}
    found = {name: row.get(name) for name in kinds}
    for name, kind in kinds.items():
        member = found[name]
        if name == "d" and member in ("NaN", "Infinity", "-Infinity"):
            found[name] = float(member)
        elif member is not None and (not isinstance(member, kind) or (isinstance(member, bool) and name != "b")):
            return None
    if found["l"] is not None and not -(2**63) <= found["l"] < 2**63:
        return None
    try:
        found["d"] = None if found["d"] is None else float(found["d"])
        _ = (found["s"] or "").encode()
    except (OverflowError, UnicodeEncodeError):
        return None
    return found


members = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.integers(-99, 99), st.floats(), st.text(max_size=5),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)  # fmt: skip
good_members = st.fixed_dictionaries(
    {},
    optional={
        "l": st.none() | st.integers(-(2**63), 2**63 - 1), "d": st.none() | st.floats(width=32) | st.integers(-9, 9),
        "b": st.none() | st.booleans(),
        "s": st.none() | st.text(max_size=8) | st.just("a\nb\r\"\\é€😀"), "other": members,
    },
)  # fmt: skip
objects = good_members | st.dictionaries(st.sampled_from(["l", "d", "b", "s", "x"]), members, max_size=4)
texts = st.builds(
    lambda row, indent, escaped, before, after: (
        before + json.dumps(row, indent=indent, ensure_ascii=escaped, allow_nan=True) + after
    ),
    objects,
    st.sampled_from([None, None, 1, "\t", "\r"]),
    st.booleans(),
    st.sampled_from(["", "", " ", "\n", "\r\n"]),
    st.sampled_from(["", "", " ", "\n", "\r\n", " " * 70]),
)
ODD = (
    b"", b" ", b"\n", b"null", b"5", b"[]", b"{}", b"{}{}", b"{}\n{}", b"{}\nnull\n{}", b"{", b"}", b'{"s": "a\nb"}',
    b'{"s": "a\tb"}', b'{"l": 1, "l": 2}', b'{"l": "x", "l": 2}', b'{"l": 2, "l": "x"}', b'{"s": "}', b'"}',
    b'{"l": 1}}',
    b'{"l": 9223372036854775807}', b'{"l": 9223372036854775808}', b'{"l": 1.0}', b'{"d": 1e400}', b'{"x": 1e400}',
    b'{"d": Inf}', b'{"d": NaN}', b'{"d": -Infinity}', b'{"s": "\\ud800"}', b'{"s": "\\u0000"}', b"\xff",
    b"\xef\xbb\xbf{}",
    b'{"s": "\xff"}', b'{"l": 01}', b'{"l": 1,}', b"{'l': 1}", b'{"x": {"y": [{"z": 1}]}}', b'{"\\u006c": 5}', b"\x00",
)  # fmt: skip
json_values = st.one_of(
    texts.map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from(ODD),
    st.builds(lambda text, cut: text.encode("utf-8", "surrogatepass")[:cut], texts, st.integers(0, 30)),
    st.binary(max_size=6),
)


@settings(max_examples=4 * settings().max_examples)
@given(st.lists(st.none() | json_values, max_size=12))
@example([b'{"l": 1, "l": 2}', b'{"l": 3}'])
@example([b'{"l": 1}\n{"l": 2}', b"", b'{"l": 3}'])
@example([b'{\n"l": 1\n}\n'] * 600)
def test_differential_json(values: list[bytes | None]):
    found = {place: json_twin(value) for place, value in enumerate(values) if value is not None}
    assert_rows(decoded(values, COLUMNS), values, {place: row for place, row in found.items() if row is not None})


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_json_value_does_not_touch_its_neighbours(odd: bytes):
    values: list[bytes | None] = [b'{"l": 1}'] * 600 + [odd] + [b'{"l": 2}'] * 600
    found = {place: json_twin(value) for place, value in enumerate(values) if value is not None}
    assert_rows(decoded(values, COLUMNS), values, {place: row for place, row in found.items() if row is not None})


def test_values_of_any_binary_type_and_any_slice():
    values = pa.array([b"{}", b'{"l": 1}', None, b'{"l": 2}', b"{}"])
    decoder = ValueDecoder(JSON, Schema.of("l LONG").fields)
    kinds = (
        pa.binary(),
        pa.large_binary(),
        pa.string(),
        pa.large_string(),
        pa.binary_view(),
        pa.dictionary(pa.int32(), pa.binary()),
    )
    for kind in kinds:
        block = decoder.decode(values.cast(kind).slice(1, 3), np.array([5, 7, 8]))
        assert block.table["l"].to_pylist() == [1, 2]
        assert block.rows.tolist() == [5, 8]


def test_many_values_in_pieces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headrace.io.values._PIECE_BYTES", 100)
    values: list[bytes | None] = [b'{"l": %d}' % i if i % 7 else None if i % 2 else b"x" * 300 for i in range(500)]
    block = decoded(values, "l LONG")
    assert block.table["l"].to_pylist() == [i for i in range(500) if i % 7]
    assert block.rows.tolist() == [10 * i for i in range(500) if i % 7]
    assert block.refused["row"].to_pylist() == [10 * i for i in range(0, 500, 14)]


@pytest.mark.parametrize("format", [JSON, CSV])
def test_no_values_no_columns(format: ValueFormat):
    assert decoded([], COLUMNS, format).table.schema == COLUMNS.arrow
    assert decoded([None], COLUMNS, format).rows.tolist() == []
    good, bad = (b"{}", b"{") if format is JSON else (b"1,x", b"1")
    block = ValueDecoder(format, (), names=("l", "s")).decode(pa.array([good, bad]), np.array([3, 4]))
    assert block.rows.tolist() == [3]
    assert block.table.column_names == []
    assert block.refused["row"].to_pylist() == [4]


def test_each_value_has_an_offset():
    with pytest.raises(ValueError, match="1 values have 2 offsets"):
        ValueDecoder(JSON, COLUMNS.fields).decode(pa.array([b"{}"]), np.arange(2))


# CSV.


def csv_twin(value: bytes) -> dict[str, Any] | None:
    try:
        text = value.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        return None
    fields, right = split_record(text, ",")
    if len(fields) != 2 or (not right and "\n" in text):
        return None
    number, said = fields
    try:
        return {"l": None if number is None else int(number), "s": said}
    except ValueError:
        return None


csv_values = st.one_of(
    st.builds(lambda number, text: f'{number},"{text.replace(chr(34), 2 * chr(34))}"'.encode(), st.integers(-9, 9),
              st.text(st.sampled_from('ab",\n\ré '), max_size=6)),
    st.text(st.sampled_from('1x",\n'), max_size=6).map(str.encode),
    st.sampled_from([b"", b"1,x", b"1,x\n", b"1,x\r\n", b"1,", b",", b'1,""', b'1,"', b'x",2', b"1,\xff", b"1,x,2",
                     b"1"]),
)  # fmt: skip


@settings(max_examples=4 * settings().max_examples)
@given(st.lists(st.none() | csv_values, max_size=12))
@example([b'1,"a', b'b",2', b"3,c"])
@example([b"1,x\n2,y", b"", b"3,c"])
def test_differential_csv(values: list[bytes | None]):
    found = {place: csv_twin(value) for place, value in enumerate(values) if value is not None}
    rows = {place: row for place, row in found.items() if row is not None}
    assert_rows(decoded(values, "l LONG, s STRING", CSV), values, rows)


def test_csv_columns_are_found_by_position():
    decoder = ValueDecoder(
        ValueFormat("csv", delimiter=";"), Schema.of("c LONG, a STRING").fields, names=("a", "b", "c")
    )
    assert decoder.decode(pa.array([b"x;y;3"]), np.array([0])).table.to_pylist() == [{"c": 3, "a": "x"}]


# Text and bytes.


def test_text_is_one_column_of_any_type():
    values: list[bytes | None] = [b"1.5", b"x", None, b"\xff", b" 2 "]
    block = decoded(values, "v DOUBLE", ValueFormat("text"))
    assert_rows(block, values, {0: {"v": 1.5}, 4: {"v": 2.0}})
    assert [text.split(":")[0] for text in block.refused["reason"].to_pylist()] == [
        "column 'v'", "the value is not UTF-8 text",
    ]  # fmt: skip


def test_bytes_are_text_or_a_list():
    values: list[bytes | None] = [b"a\nb", None, b"\xff\x01", b""]
    assert_rows(decoded(values, "v STRING", ValueFormat("bytes")), values, {0: {"v": "a\nb"}, 3: {"v": ""}})
    lists = {0: {"v": [97, 10, 98]}, 2: {"v": [-1, 1]}, 3: {"v": []}}
    assert_rows(decoded(values, "v ARRAY<BYTE>", ValueFormat("bytes")), values, lists)


WRONG = [("text", "a LONG, b LONG"), ("bytes", "a LONG"), ("text", "a ARRAY<LONG>")]


@pytest.mark.parametrize(("name", "schema"), WRONG)
def test_text_and_bytes_are_one_column(name: Any, schema: str):
    with pytest.raises(SchemaError, match="one column"):
        ValueDecoder(ValueFormat(name), Schema.of(schema).fields)


@pytest.mark.parametrize("table", [pa.table({"a": [1], "b": [2]}), pa.table({"a": [[1]]})])
def test_text_is_written_from_one_column(table: pa.Table):
    with pytest.raises(SchemaError, match=r"one column|neither text nor bytes"):
        encode_values(table, ValueFormat("text"))


# Writing.

rows = st.lists(
    st.fixed_dictionaries({
        "l": st.none() | st.integers(-(2**63), 2**63 - 1), "d": st.none() | st.floats(),
        "b": st.none() | st.booleans(),
        "s": st.none() | st.text(max_size=8) | st.sampled_from(["", '"', "a,b", "\r\n", "\\"]),
        "t": st.none() | st.datetimes(),
    }),
    min_size=1,
    max_size=8,
)  # fmt: skip
WRITTEN = Schema.of("l LONG, d DOUBLE, b BOOLEAN, s STRING, t DATETIME")


@pytest.mark.parametrize("format", [JSON, CSV, ValueFormat("csv", delimiter=";")], ids=str)
@given(drawn=rows)
def test_what_is_written_can_be_read(format: ValueFormat, drawn: list[dict[str, Any]]):
    table = pa.Table.from_pylist(drawn, WRITTEN.arrow)
    values = encode_values(table, format)
    assert values.type == pa.binary()
    block = ValueDecoder(format, WRITTEN.fields).decode(values, np.arange(len(values)))
    assert repr(block.table.to_pylist()) == repr(table.to_pylist())
    if format is JSON:
        assert [json.loads(value)["s"] for value in values.to_pylist()] == [row["s"] for row in drawn]


def test_text_and_bytes_are_written_as_they_are():
    def written(values: list[Any], kind: pa.DataType, name: Any) -> list[bytes | None]:
        return encode_values(pa.table({"v": pa.array(values, kind)}), ValueFormat(name)).to_pylist()

    assert written(["a\n", None, ""], pa.string(), "text") == [b"a\n", None, b""]
    assert written([1.5, None], pa.float64(), "text") == [b"1.5", None]
    assert written([[-1, 1], None, []], pa.list_(pa.int8()), "bytes") == [b"\xff\x01", None, b""]
    assert written([b"\xff", None], pa.binary(), "bytes") == [b"\xff", None]


def test_csv_has_no_lists():
    with pytest.raises(SchemaError, match="'v' is a list"):
        encode_values(pa.table({"v": [[1]]}), CSV)


def test_no_rows_are_no_values():
    assert encode_values(COLUMNS.arrow.empty_table(), JSON).equals(pa.array([], pa.binary()))


# The format.


def test_the_text_of_a_format_has_no_secrets():
    assert str(JSON) == "json"
    assert str(ValueFormat("csv", delimiter=";")) == "csv(delimiter=';')"
    secret = ValueFormat("avro", registry="http://user:secret@host:8081", envelope="debezium")
    assert str(secret) == "avro(registry, debezium)"
    assert "secret" not in repr(secret)
    assert str(ValueFormat("avro", avro_schema='"long"')) != str(ValueFormat("avro", avro_schema='"string"'))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "xml"}, "unknown name"),
        ({"name": "json", "envelope": "soap"}, "unknown envelope"),
        ({"name": "csv", "delimiter": ";;"}, "one plain character"),
        ({"name": "csv", "envelope": "debezium"}, "no envelope"),
        ({"name": "avro"}, "need a schema"),
        ({"name": "json", "registry": "http://host"}, "no Avro schema"),
    ],
)
def test_formats_that_cannot_be(options: dict[str, Any], said: str):
    with pytest.raises(SchemaError, match=said):
        ValueFormat(**options)


def test_an_envelope_is_not_written():
    with pytest.raises(SchemaError, match="without an envelope"):
        encode_values(COLUMNS.arrow.empty_table(), ValueFormat("json", envelope="debezium"))
