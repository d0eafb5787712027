"""JSON lines: what is read, what is refused, and that the fast and the slow way agree."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.io.decoded import DecodedBlock, concat
from headrace.io.formats import Format, infer_schema, read_file
from headrace.io.json import JsonDecoder, json_records, read_json
from headrace.io.records import BrokenRecord
from headrace.schema import Schema
from headrace.time import INFINITY, NEG_INFINITY

ALL = Schema.of("i INT, l LONG, d DOUBLE, f FLOAT, b BOOLEAN, s STRING, c CHAR, t DATETIME, re LONG")


def decoded(data: bytes, schema: Schema | str, *, size: int = 1 << 20, nested: bool = False) -> DecodedBlock:
    return concat(list(read_json(io.BytesIO(data), Schema.of(schema).fields, nested, size=size)))


def test_rows_missing_keys_other_keys_and_blank_lines():
    data = b'{"i": 1, "zzz": [1, {"i": 2}]}\r\n\n  \n{"s": "x", "i": null}\n{"i": 3}'
    result = decoded(data, "i INT, s STRING")
    assert result.table.to_pydict() == {"i": [1, None, 3], "s": [None, "x", None]}
    assert result.rows.tolist() == [0, 1, 2]
    assert result.table.schema == Schema.of("i INT, s STRING").arrow


@pytest.mark.parametrize("data", [b"", b"\n", b"  \n\n"])
def test_no_rows(data: bytes, tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    assert sum(len(block.rows) for block in read_file(str(path), Format("json"), ALL)) == 0
    assert len(infer_schema(str(path), Format("json"))) == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"i": 1', "not JSON"),
        ("{'i': 1}", "not JSON"),
        ("null", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ("5", "not a JSON object"),
        ('{"i": 1}{"i": 2}', "not JSON"),
        ('{"i": 1} null {"i": 2}', "not JSON"),
        ('{"d": Inf}', "not JSON"),
        ('{"i": 1.5}', "column 'i': 1.5 is not of type INT"),
        ('{"i": 1.0}', "not of type INT"),
        ('{"i": 1e3}', "not of type INT"),
        ('{"i": 3000000000}', "out of range for INT"),
        ('{"l": 9223372036854775808}', "out of range for LONG"),
        ('{"i": "1"}', "column 'i'"),
        ('{"i": true}', "column 'i'"),
        ('{"i": {}}', "column 'i'"),
        ('{"d": "text"}', "column 'd': 'text' is not of type DOUBLE"),
        ('{"d": 1e400}', "1e400 is out of range for DOUBLE"),
        ('{"f": 1e39}', "out of range for FLOAT"),
        ('{"b": 1}', "column 'b'"),
        ('{"s": 1}', "column 's'"),
        ('{"s": "\\ud800"}', "column 's'"),
        ('{"c": "ab"}', "longer than one character"),
        ('{"t": "never"}', "not a time"),
        ('{"t": 1.5}', "not a time"),
        ('{"t": true}', "not a time"),
        ('{"re": "later"}', "not a time"),
    ],
)
@pytest.mark.parametrize("many", [1, 100])
def test_a_broken_line_is_refused_alone(line: str, said: str, many: int):
    good = b'{"i": 1, "s": "x"}\n' * many
    result = decoded(good + line.encode() + b"\n" + good, ALL)
    assert result.rows.tolist() == [*range(many), *range(many + 1, 2 * many + 1)]
    assert result.table["i"].to_pylist() == [1] * (2 * many)
    (refused,) = result.refused.to_pylist()
    assert refused["row"] == many
    assert refused["raw"] == line
    assert said in refused["reason"]


def test_bytes_that_are_not_utf8():
    result = decoded(b'{"s": "a"}\n{"s": "\xff"}\n{"s": "b"}\n', "s STRING")
    assert result.table["s"].to_pylist() == ["a", "b"]
    assert "UTF-8" in result.refused["reason"][0].as_py()


def test_numbers_beyond_numbers():
    data = b'{"d": NaN}\n{"d": "NaN"}\n{"d": "Infinity"}\n{"d": "-Infinity"}\n{"d": 3}\n'
    found = decoded(data, "d DOUBLE").table["d"].to_pylist()
    assert math.isnan(found[0])
    assert math.isnan(found[1])
    assert found[2:] == [math.inf, -math.inf, 3.0]


def test_times_as_text_and_ticks_beside_each_other():
    same = ["2024-01-02T03:04:05Z", "2024-01-02T05:04:05+02:00", "2024-01-02T03:04:05", 1704164645000000]
    data = "\n".join(json.dumps({"t": t}) for t in same).encode()
    assert [t.value for t in decoded(data, "t DATETIME").table["t"]] == [1704164645000000] * 4
    for one in same:
        assert decoded(json.dumps({"t": one}).encode(), "t DATETIME").table["t"][0].value == 1704164645000000


def test_infinite_ends():
    ends = ["inf", 5, "∞", None, "-inf", "2024-01-02T00:00:00Z"]
    data = "\n".join(json.dumps({"re": e, "s": '"re": "inf"'}, ensure_ascii=False) for e in ends).encode()
    result = decoded(data, "re LONG, s STRING")
    assert result.table["re"].to_pylist() == [INFINITY, 5, INFINITY, None, NEG_INFINITY, 1704153600000000]
    assert set(result.table["s"].to_pylist()) == {'"re": "inf"'}


def test_nested_payload():
    data = b'{"kind": "insert", "le": 1, "re": "inf", "payload": {"x": 1, "t": 5}}\n'
    data += b'{"kind": "cti", "le": 2, "payload": {}}\n'
    data += b'{"kind": "cti", "le": 3}\n{"kind": "cti", "payload": 5}\n'
    result = decoded(data, "kind STRING, le LONG, re LONG, x INT, t DATETIME", nested=True)
    assert result.table["x"].to_pylist() == [1, None, None]
    assert result.table["re"].to_pylist() == [INFINITY, None, None]
    assert result.refused["reason"].to_pylist() == ["the payload is not a JSON object"]


@pytest.mark.slow
def test_a_line_longer_than_a_block():
    data = json.dumps({"s": "x" * 3_000_000}).encode() + b'\n{"s": "y"}\n'
    assert decoded(data + data, "s STRING", size=1000).table.num_rows == 4
    assert decoded(b'{"s": "y"}\n' + data, "s STRING", size=1 << 24).table.num_rows == 3


def test_infer(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"i": 1, "d": 1.5, "s": "x", "re": 5, "t": "2024-01-01T00:00:00Z"}\nnull\n{"z": true}\n')
    inferred = infer_schema(str(path), Format("json"))
    assert str(inferred) == "i LONG, d DOUBLE, s STRING, re LONG, t DATETIME, z BOOLEAN"


SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.sampled_from(
        ["inf", "∞", "-inf", "NaN", "x", "xy", "", "2024-01-01", "2024-01-01T00:00:00+01:00", "17", '}{"i":']
    ),
    st.text(max_size=3),
)
VALUE = st.one_of(
    SCALAR, st.lists(SCALAR, max_size=2), st.dictionaries(st.sampled_from(["i", "q"]), SCALAR, max_size=2)
)
OBJECT = st.dictionaries(st.sampled_from([*ALL.names, "other"]), VALUE, max_size=4)
LIKELY = st.fixed_dictionaries(
    {},
    optional={
        "i": st.integers(-(2**31), 2**31 - 1),
        "l": st.integers(-(2**63), 2**63 - 1),
        "d": st.floats(allow_nan=False),
        "f": st.floats(width=32, allow_nan=False),
        "b": st.booleans(),
        "s": st.text(max_size=5),
        "c": st.characters(codec="utf-8"),
        "t": st.one_of(st.just("2024-01-01T00:00:00Z"), st.integers(-(2**57), 2**58)),
        "re": st.one_of(st.integers(0, 10), st.just("inf")),
    },
)
BROKEN = st.one_of(
    st.sampled_from(['{"i":', "null", "[]", '{"i":1}{"i":2}', '{"i":1}null', "{}", '{"i":1,"i":2}', '{"i": 01}']),
    st.text(alphabet='{}[]":,1.5einulINF ', max_size=12),
)
LINE = st.one_of(
    LIKELY.map(lambda o: json.dumps(o, ensure_ascii=False)),
    LIKELY.map(json.dumps),
    OBJECT.map(lambda o: json.dumps(o, ensure_ascii=True)),
    BROKEN,
)


def slowly(lines: list[str]) -> list[object]:
    """What the slow way alone makes of each line: its row, or None when it refuses the line."""
    decoder, found = JsonDecoder(ALL.fields), []
    for line in lines:
        values = decoder.slow(line.encode())
        if isinstance(values, BrokenRecord):
            found.append(None)
            continue
        alone = decoded_by(decoder, values)
        found.append(alone.to_pylist()[0] if len(alone) else None)
    return found


def decoded_by(decoder: JsonDecoder, values: object) -> pa.Table:
    from headrace.io.conversion import convert

    assert isinstance(values, list)
    columns = [convert(pa.array([v], f.type), a) for v, f, a in zip(values, decoder.slow_schema(), ALL, strict=True)]
    table = pa.table([column.values for column in columns], schema=ALL.arrow)
    return table.slice(0, 0) if any(c.bad is not None and c.bad.any() for c in columns) else table


@settings(max_examples=4 * settings().max_examples, deadline=None)
@given(st.lists(LINE, max_size=40), st.integers(1, 2000))
@example(['{"d": 1e400}', "null"], 10)
def test_differential_fast_and_slow_agree(lines: list[str], size: int):
    lines = [line for line in lines if line.strip() and "\r" not in line and "\n" not in line]
    whole = "\n".join(lines).encode()
    blocks = list(read_json(io.BytesIO(whole), ALL.fields, size=size))
    expected = slowly(lines)
    table = [row for block in blocks for row in block.table.to_pylist()]
    rows = [int(i) for block in blocks for i in block.rows]
    refused = [i for block in blocks for i in block.refused["row"].to_pylist()]
    assert rows == [i for i, row in enumerate(expected) if row is not None]
    assert refused == [i for i, row in enumerate(expected) if row is None]
    assert repr(table) == repr([row for row in expected if row is not None])


def test_the_fast_way_is_taken_for_good_lines():
    data = b'{"i": 1, "t": "2024-01-01T00:00:00Z", "re": "inf"}\n{"i": 2, "re": 5}\n' * 100
    assert JsonDecoder(ALL.fields).fast(json_records(data)).table.num_rows == 200
