"""Text in one pass: it gives what the other ways give, whatever the values, and is taken where it should be."""

# ruff: noqa: SIM905 - lists of many short words

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.io import one_pass, records, text_splitting
from headrace.io.csv import CsvDecoder, read_csv
from headrace.io.decoded import DecodedBlock, concat
from headrace.io.json import JsonDecoder, json_records, read_json
from headrace.io.one_pass import CsvPass, JsonPass
from headrace.io.records import BLOCK_BYTES, Records, blocks, decode
from headrace.schema import Field, Schema, Type

ALL = Schema.of(
    "i INT, l LONG, y BYTE, h SHORT, d DOUBLE, f FLOAT, b BOOLEAN, s STRING, c CHAR, t DATETIME",
)
NEVER = 1 << 40
assert text_splitting  # loaded, so that small blocks are read in one pass

DIGITS = st.text("0123456789", min_size=1, max_size=21)
NUMBERS = st.one_of(
    st.integers(-200, 200).map(str),
    st.integers(-(2**64), 2**64).map(str),
    st.floats().map(repr),
    st.floats(-1e6, 1e6).map(lambda x: f"{x:.2f}"),
    st.builds(lambda a, b, c: f"{a}.{b}e{c}", DIGITS, DIGITS, st.integers(-330, 310)),
    st.sampled_from(
        "0 -0 007 -007 00.5 5. .5 +5 1e5 1E+05 1e400 -1e400 1e-400 4.9e-324 0x1F 1_0 inf nan - e5 1e 1e+".split()
    ),
    st.sampled_from(["9007199254740993", "9007199254740992", "3.4028235e38", "3.4028236e38", "1e39", "1e22", "1e23"]),
    st.sampled_from(
        ["127", "128", "-128", "-129", "32767", "32768", "-32768", "2147483647", "2147483648", "-2147483648"]
    ),
)
TIMES = st.one_of(
    st.datetimes().map(str),
    st.datetimes().map(lambda t: f"{t.isoformat()}Z"),
    st.builds(
        lambda day, clock, fraction, zone: f"{day}{clock}{fraction}{zone}",
        st.sampled_from("2024-05-01 2024-02-29 2023-02-29 1900-02-29 2000-02-29 0001-01-01 0000-01-01 9999-12-31 "
                        "1969-12-31 2024-13-01 2024-00-10 2024-04-31 2024-5-01 20240501 -024-05-01 2024-05-1x".split()),
        st.sampled_from(["", "T12:00:00", " 23:59:59", "T24:00:00", "T12:60:00", "T12:00:60", "T12", "T12:00", "T",
                         "t12:00:00", " ", "T1:00:00", "T12:0", "T12:00:0"]),
        st.sampled_from(["", ".", ".1", ".123456", ".1234567", ".999999999", ".1234567890", ".12x"]),
        st.sampled_from(["", "Z", "z", "+01:00", "-23:59", "+24:00", "+0100", "+01", "-01:60", "+", " Z", "+1:000"]),
    ),
    st.sampled_from(["0", "-5", "1714565410000000", "253402300800000000", "-62135596800000001", "yesterday"]),
)  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=4), st.sampled_from(["", "x", "xy", "é", "𝄞", "true", "false", "True", "tRUE", "0", "1"])
)
CELL = {"i": NUMBERS, "l": NUMBERS, "y": NUMBERS, "h": NUMBERS, "d": NUMBERS, "f": NUMBERS, "t": TIMES}  # fmt: skip
TRUTHS = st.sampled_from("true false True FALSE 0 1 tRue yes 2 t".split())
COMMON = {
    "i": "17", "l": "-3", "y": "1", "h": "300", "d": "1.25", "f": "0.5", "b": "true", "s": "word", "c": "x",
    "t": "2024-05-01T12:00:00.000001Z",
}  # fmt: skip


def _in_csv(text: str) -> str:
    return text if text and not set(text) & set(',"\r\n') else '"' + text.replace('"', '""') + '"'


def _cells(name: str) -> st.SearchStrategy[str]:
    odd = TRUTHS if name == "b" else TEXTS.map(_in_csv) if name in "sc" else CELL[name]
    wrapped = st.builds(lambda text, form: form.format(text), odd, st.sampled_from(["{}", " {}", "{} ", '"{}"']))
    return st.one_of(*[st.just(COMMON[name])] * 6, st.just(""), odd, wrapped if name not in "sc" else odd)


CSV_LINE = st.one_of(
    *[st.tuples(*(_cells(name) for name in ALL.names)).map(",".join)] * 8,
    st.sampled_from(["", "a,b", '"', 'x"y,1,2,3,4,5,6,7,8,9', "\r", ",,,,,,,,,", ",,,,,,,,,,"]),
)


def both(monkeypatch: pytest.MonkeyPatch, read: Callable[[], list[DecodedBlock]]) -> tuple[DecodedBlock, DecodedBlock]:
    """What is read in one pass where that is possible, and what is read without it."""
    monkeypatch.setattr(one_pass, "WORTH", 1)
    monkeypatch.setattr(one_pass, "_DIVIDED", 300)
    monkeypatch.setattr(one_pass, "_LONGEST_PAUSE", 0)
    monkeypatch.setattr(one_pass, "_TOGETHER", 3)
    quick = read()
    monkeypatch.setattr(one_pass, "WORTH", NEVER)
    return _whole(quick), _whole(read())


def _whole(blocks: list[DecodedBlock]) -> DecodedBlock:
    return concat(blocks) if blocks else DecodedBlock(ALL.arrow.empty_table(), pa.table({}), [])


def assert_same(one: DecodedBlock, other: DecodedBlock) -> None:
    assert repr(one.table.to_pylist()) == repr(other.table.to_pylist())  # NaN is NaN, and -0.0 is not 0.0
    assert one.table.schema == other.table.schema
    assert one.refused.to_pylist() == other.refused.to_pylist()
    assert list(one.rows) == list(other.rows)
    assert (one.lines is None) == (other.lines is None)
    assert one.lines is None or list(one.lines) == list(other.lines)


ENDS = st.sampled_from(["\n", "\r\n"])
LAST_ENDS = st.sampled_from(["", "\n", "\n\n"])
#: Columns to read, and those of them whose values are only checked.
COLUMNS = st.tuples(st.sets(st.sampled_from(ALL.names), min_size=1), st.sets(st.sampled_from(ALL.names), max_size=4))


def read_as(monkeypatch: pytest.MonkeyPatch, read: Callable[..., Any], columns: tuple[set[str], set[str]]) -> None:
    """Read some columns in both ways, and compare."""
    names, judged = columns
    fields = [field for field in ALL.fields if field.name in names]
    one, other = both(monkeypatch, lambda: list(read(fields, judged)))
    kept = [field.name for field in fields if field.name not in judged]
    assert_same(replace(one, table=one.table.select(kept)), replace(other, table=other.table.select(kept)))


@pytest.mark.slow
@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(st.lists(CSV_LINE, max_size=12), ENDS, LAST_ENDS, COLUMNS)
def test_differential_csv(lines: list[str], end: str, last: str, columns: tuple[set[str], set[str]]):
    data = (end.join(lines) + last).encode()

    def read(fields: list[Field], judged: set[str]) -> Iterator[DecodedBlock]:
        return read_csv(io.BytesIO(data), "x", ALL, fields, header=False, judged=judged, size=400)

    with pytest.MonkeyPatch.context() as monkeypatch:
        read_as(monkeypatch, read, columns)


def _member(name: str) -> st.SearchStrategy[str]:
    quote = st.sampled_from(["{}", '"{}"'])
    odd = st.one_of(
        st.builds(lambda form, text: form.format(text), quote, CELL.get(name, NUMBERS)),
        TEXTS.map(lambda text: json.dumps(text, ensure_ascii=False)),
        TEXTS.map(json.dumps),
        st.sampled_from(["true", "false", "null", "tru", "nul", "True", "[]", "{}", '"\\ud834"', '"\\ud834\\udd1e"',
                         '"\\x"', '"\\u12"', '"\t"', '"\\/\\b\\f\\n\\r\\t\\\\\\""', '"a\\"', "[1]", "01", "-",
                         "1.e5", "NaN"]),
    )  # fmt: skip
    usual = json.dumps(COMMON[name]) if name in "sct" else COMMON[name]
    return st.one_of(*[st.just(usual)] * 8, odd)


MEMBERS = st.fixed_dictionaries({}, optional={name: _member(name) for name in ALL.names}).map(lambda o: list(o.items()))
OTHERS = st.lists(st.tuples(st.sampled_from(["other", "i", "ii", "\\u0069", ""]), _member("s")), max_size=1)


def _object(members: list[tuple[str, str]], blank: str) -> str:
    inner = f"{blank},{blank}".join(f'"{name}"{blank}:{blank}{value}' for name, value in members)
    return f"{blank}{{{blank}{inner}{blank}}}{blank}"


JSON_LINE = st.one_of(
    *[st.builds(lambda a, b, c: _object(a + b, c), MEMBERS, OTHERS, st.sampled_from(["", " ", "\t"]))] * 8,
    st.sampled_from(
        ["", "  ", "{}", "null", '{"i":1}{"i":2}', '{"i":1,}', '{"i":1', '{"i" 1}', '{,"i":1}', '{"i":1}x', "{i:1}"]
    ),
)


@pytest.mark.slow
@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(st.lists(JSON_LINE, max_size=12), ENDS, LAST_ENDS, COLUMNS)
@example(['{"d":-0}', '{"i":2147483648}'], "\n", "", ({"d", "i"}, set()))
@example(['{"s":"\\ud834"}', '{"s":"\\u00e9"}'], "\n", "", ({"s", "i"}, {"s"}))
@example(['{"s":"\\""}', "{}", "{}", "{}", "{}"], "\n", "", ({"s"}, {"s"}))  # the place of a value in the rows before
def test_differential_json(lines: list[str], end: str, last: str, columns: tuple[set[str], set[str]]):
    data = (end.join(lines) + last).encode("utf-8", errors="replace")

    def read(fields: list[Field], judged: set[str]) -> Iterator[DecodedBlock]:
        return read_json(io.BytesIO(data), fields, judged=judged, size=400)

    with pytest.MonkeyPatch.context() as monkeypatch:
        read_as(monkeypatch, read, columns)


def all_ways(read: Callable[..., Iterator[DecodedBlock]]) -> DecodedBlock:
    """What is read, in one pass or not, and in blocks of any size."""
    found = []
    for size in (1 << 20, 7, 12, 30):
        with pytest.MonkeyPatch.context() as monkeypatch:
            found += both(monkeypatch, lambda size=size: list(read(size=size)))
    for other in found[1:]:
        assert_same(found[0], other)
    return found[0]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ('x"y,1\nz"w,2\n', ['x"y', 'z"w']),  # stray quotes do not join rows
        ("x,1\n\ufeffy,2\nz,3", ["x", "\ufeffy", "z"]),  # a byte order mark is one at the start of a file only
        ("\ufeffx,1\n\ufeff,2\n\ufeff\ufeff,3", ["x", "\ufeff", "\ufeff\ufeff"]),
    ],
)
def test_what_a_text_of_csv_is_does_not_depend_on_the_way_it_is_read(rows: str, expected: list[str]):
    schema = Schema.of("s STRING, i INT")
    read = partial(read_csv, path="x", schema=schema, fields=schema.fields, header=False)
    assert all_ways(lambda size: read(io.BytesIO(rows.encode()), size=size)).table["s"].to_pylist() == expected


def test_what_a_number_of_json_is_does_not_depend_on_the_way_it_is_read():
    lines = b'{"d": -0, "i": -0, "f": -0}\n{"d": 1}\n{"d": "odd"}\n{"d": -0.0, "f": 0}\n'
    fields = Schema.of("d DOUBLE, i INT, f FLOAT").fields
    block = all_ways(lambda size: read_json(io.BytesIO(lines), fields, size=size))
    assert repr(block.table["d"].to_pylist()) == "[-0.0, 1.0, -0.0]"
    assert repr(block.table["f"].to_pylist()) == "[-0.0, None, 0.0]"
    assert block.table["i"].to_pylist() == [0, None, None]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_usual_rows_are_read_in_one_pass(monkeypatch: pytest.MonkeyPatch, end: str):
    monkeypatch.setattr(one_pass, "WORTH", 1)
    row = ",".join(COMMON.values())
    rows = (end or "\n").join([row, '"1", 2,3, 4,1.5e3,,FALSE,"say ""hi""",é,2024-05-01', ",,,,,,,,,"]) + end
    table = CsvPass(ALL.fields, range(10), 10, ",").read(Records(rows.encode(), quoted=True))
    assert table is not None
    assert table["s"].to_pylist() == ["word", 'say "hi"', None]
    assert table["l"].to_pylist() == [-3, 2, None]
    members = {name: value if name in "sct" else json.loads(value) for name, value in COMMON.items()}
    lines = (end or "\n").join([json.dumps(members), '{"other": "\\n", "s": "\\u00e9\\"", "i": null}', "{}"]) + end
    table = JsonPass(ALL.fields, ALL.names, flat=True).read(json_records(lines.encode()))
    assert table is not None
    assert table["s"].to_pylist() == ["word", 'é"', None]
    assert table["t"].cast(pa.int64()).to_pylist() == [1_714_564_800_000_001, None, None]


@pytest.mark.slow
def test_an_odd_row_slows_down_only_its_neighbourhood():
    schema = Schema.of("a LONG, b DOUBLE")
    plain = b"".join(b"%d,%d.5\n" % (i, i) for i in range(400_000))
    lines = plain.splitlines(keepends=True)
    odd = b"".join([*lines[:200_000], b"x,1\n", *lines[200_000:]])
    decoder, texts = CsvDecoder(schema.names, schema.fields, ","), []
    as_text = decoder._as_text
    decoder._as_text = lambda records: texts.append(len(records)) or as_text(records)  # type: ignore[method-assign]
    block, _ = decode(Records(odd, quoted=True), decoder, 0)
    assert block.refused["line"].to_pylist() == [200_001]
    assert len(block.rows) == 400_000
    assert sum(texts) < 100_000


def test_blocks_that_are_never_plain_are_seldom_tried(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(one_pass, "WORTH", 1)
    decoder = CsvPass(Schema.of("a LONG").fields, [0], 1, ",")
    tries = []
    monkeypatch.setattr(decoder, "_tried", lambda _: tries.append(1))
    for _ in range(1000):
        assert decoder.read(Records(b"x\n", quoted=True)) is None
    assert len(tries) < 30


@pytest.mark.parametrize("columns", ["a ARRAY<INT>", "le LONG"])
def test_types_that_the_machine_does_not_know(monkeypatch: pytest.MonkeyPatch, columns: str):
    monkeypatch.setattr(one_pass, "WORTH", 1)
    fields = Schema.of(columns).fields
    assert JsonPass(fields, [fields[0].name], flat=True).read(json_records(b"{}\n")) is None
    assert JsonDecoder(fields).fast(json_records(b"{}\n")).table.num_rows == 1


@pytest.mark.parametrize("format", ["csv", "json"])
def test_columns_that_a_query_does_not_use_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str):
    monkeypatch.setattr(one_pass, "LOADING", one_pass.WORTH)
    path = tmp_path / f"rows.{format}"
    if format == "csv":
        good, bad = "{0},{0}.5,text {0},7\n", "{0},{0}.5,text,seven\n"
    else:
        good, bad = (
            '{{"ts": {0}, "d": {0}.5, "s": "text \\n", "i": 7}}\n',
            '{{"ts": {0}, "d": {0}.5, "s": 5, "i": 7}}\n',
        )
    rows = [(bad if i in (3000, 3001, 8000) else good).format(i) for i in range(10_000)]
    path.write_text(("ts,d,s,i\n" if format == "csv" else "") + "".join(rows))
    read = hr.read_csv if format == "csv" else hr.read_json
    stream = read(str(path), "ts LONG, d DOUBLE, s STRING, i INT", lifetime=hr.point("ts"))
    total = stream.window(hr.tumbling(100_000)).aggregate(total=hr.sum("d"))
    with pytest.warns(hr.RowsNotUsed):
        run = total.run()
    assert run.cht()["total"].to_pylist() == [sum(i + 0.5 for i in range(10_000) if i not in (3000, 3001, 8000))]
    header = 1 if format == "csv" else 0
    assert run.diverted()["line"].to_pylist() == [i + 1 + header for i in (3000, 3001, 8000)]
    assert run.diverted()["row"].to_pylist() == [bad.format(i).strip() for i in (3000, 3001, 8000)]


def test_rows_of_many_columns_are_left_to_arrow(monkeypatch: pytest.MonkeyPatch):
    """Room for the values of thousands of columns would take many times the memory of their block."""
    monkeypatch.setattr(one_pass, "WORTH", 0)
    fields = [Field(f"c{i}", Type.DOUBLE) for i in range(101)]
    data = b"".join(b",".join([b"1.5"] * 101) + b"\n" for _ in range(50))
    assert CsvPass(fields, range(101), 101, ",").read(Records(data, quoted=True)) is None
    assert CsvPass(fields[:100], range(100), 101, ",").read(Records(data, quoted=True)) is not None


def test_a_quoted_text_may_span_several_blocks():
    """A quote is given up after 64 MB, here after eight blocks of ten bytes."""
    for lines, whole in ((12, True), (30, False)):
        record = b'1,"' + b"line\n" * lines + b'"\n'
        cut = [bytes(block) for block in blocks(io.BytesIO(record), quoted=True, size=10)]
        assert (cut == [record]) is whole
    assert records._LONGEST * BLOCK_BYTES == 64 << 20
