"""CSV: what is read, what is refused and why."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SchemaError, SourceError
from headrace.io.csv import read_csv
from headrace.io.decoded import DecodedBlock, concat
from headrace.io.formats import Format, infer_schema, read_file
from headrace.schema import Schema, Type
from headrace.time import INFINITY, NEG_INFINITY

TICKS = Schema.of("symbol STRING, price DOUBLE, quantity INT")


def decoded(data: bytes, schema: Schema | str, *, size: int = 1 << 20, **options: object) -> DecodedBlock:
    schema = Schema.of(schema)
    blocks = list(read_csv(io.BytesIO(data), "x.csv", schema, schema.fields, size=size, **options))
    return concat(blocks) if blocks else DecodedBlock(schema.arrow.empty_table(), pa.table({"row": []}), [])


def rows(data: bytes, schema: Schema | str, **options: object) -> list[tuple[object, ...]]:
    result = decoded(data, schema, **options)
    assert result.refused.num_rows == 0, result.refused.to_pylist()
    return [tuple(row.values()) for row in result.table.to_pylist()]


def reasons(data: bytes, schema: Schema | str, **options: object) -> list[tuple[int, str]]:
    refused = decoded(data, schema, **options).refused
    return list(zip(refused["row"].to_pylist(), refused["reason"].to_pylist(), strict=True))


def test_columns_are_found_by_name_in_any_order_beside_others():
    data = b"quantity,extra,symbol,price\n3,x,A,1.5\n4,y,B,2\n"
    assert rows(data, TICKS) == [("A", 1.5, 3), ("B", 2.0, 4)]
    assert decoded(data, TICKS).table.schema == TICKS.arrow


def test_without_header_columns_are_found_by_position():
    assert rows(b"A,1.5,3\nB,2,4", TICKS, header=False) == [("A", 1.5, 3), ("B", 2.0, 4)]


def test_missing_column_names_the_nearest():
    with pytest.raises(SchemaError, match=r"'quantity' is missing") as caught:
        decoded(b"symbol,price,quantty\nA,1,2\n", TICKS)
    assert "quantty INT" in str(caught.value)


def test_column_twice_in_the_header():
    with pytest.raises(SchemaError, match="appears twice"):
        decoded(b"a,a\n1,2\n", "a INT")


@pytest.mark.parametrize("data", [b"", b"\n", b"symbol,price,quantity", b"symbol,price,quantity\r\n", b"\xef\xbb\xbf"])
def test_no_rows(data: bytes):
    if data in (b"\n", b"\xef\xbb\xbf"):
        data = b""
    assert rows(data, TICKS) == []


def test_nulls_and_empty_texts():
    assert rows(b'a,b\n,1\n"",\n"x",2\n', "a STRING, b INT") == [(None, 1), ("", None), ("x", 2)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends_blank_lines_and_no_last_line_end(end: bytes):
    data = end.join([b"a,b", b"x,1", b"", b"y,2"])
    assert rows(data, "a STRING, b INT") == [("x", 1), ("y", 2)]
    assert decoded(data, "a STRING, b INT").rows.tolist() == [0, 1]


def test_byte_order_mark_and_blanks_in_the_header():
    assert rows(b"\xef\xbb\xbfa, b\n1,2\n", "a INT, b INT") == [(1, 2)]


def test_quotes_hold_delimiters_quotes_and_line_ends():
    data = b'a,b\n"x,y",1\n"say ""hi""",2\n"two\nlines",3\n"two\r\nlines",4\n'
    expected = [("x,y", 1), ('say "hi"', 2), ("two\nlines", 3), ("two\r\nlines", 4)]
    assert rows(data, "a STRING, b INT") == expected
    assert rows(data, "a STRING, b INT", size=10) == expected


def test_other_delimiters():
    assert rows(b"a|b\nx,y|1\n", "a STRING, b INT", delimiter="|") == [("x,y", 1)]
    assert rows(b"a\tb\nx\t1\n", "a STRING, b INT", delimiter="\t") == [("x", 1)]


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("INT", "abc", "'abc' is not of type INT"),
        ("INT", "1.5", "'1.5' is not of type INT"),
        ("INT", "3000000000", "out of range for INT (-2147483648 to 2147483647)"),
        ("BYTE", "128", "out of range for BYTE"),
        ("SHORT", "-32769", "out of range for SHORT"),
        ("LONG", "9223372036854775808", "out of range for LONG"),
        ("DOUBLE", "1,5", "the row has 2 fields, expected 1"),
        ("DOUBLE", "1e400", "out of range for DOUBLE"),
        ("FLOAT", "1e39", "out of range for FLOAT"),
        ("DOUBLE", "twelve", "not of type DOUBLE"),
        ("BOOLEAN", "yes", "not of type BOOLEAN"),
        ("CHAR", "ab", "longer than one character"),
        ("DATETIME", "yesterday", "not a time"),
        ("DATETIME", "2024-02-30", "not a time"),
        ("DATETIME", "inf", "not a time"),
    ],
)
def test_a_broken_value_refuses_its_row_only(kind: str, text: str, said: str):
    good = {"BOOLEAN": "true", "CHAR": "x", "DATETIME": "2024-01-01"}.get(kind, "1")
    result = decoded(f"{good}\n{text}\n{good}\n".encode(), f"a {kind}", header=False)
    assert result.rows.tolist() == [0, 2]
    assert result.table.schema.field("a").type == Type(kind).arrow
    assert result.refused["row"].to_pylist() == [1]
    assert result.refused["raw"].to_pylist() == [text]
    assert said in result.refused["reason"][0].as_py()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("INT", " 7 ", 7),
        ("INT", "+7", 7),
        ("DOUBLE", "+.5", 0.5),
        ("DOUBLE", " 1e3", 1000.0),
        ("DOUBLE", "inf", float("inf")),
        ("DOUBLE", "-Infinity", float("-inf")),
        ("BOOLEAN", "TRUE", True),
        ("BOOLEAN", "0", False),
        ("CHAR", "é", "é"),
    ],
)
def test_values_that_are_read_whatever_their_neighbours(kind: str, text: str, value: object):
    schema = f"a {kind}"
    assert rows(f"{text}\n".encode(), schema, header=False) == [(value,)]
    beside_a_broken_one = decoded(f"??\n{text}\n".encode(), schema, header=False)
    assert beside_a_broken_one.table["a"].to_pylist() == [value]


def test_all_broken_columns_are_named():
    ((_, said),) = reasons(b"a,b\nx,y\n", "a INT, b DOUBLE")
    assert "'a'" in said
    assert "'b'" in said


def test_wrong_number_of_fields():
    result = decoded(b"a,b\n1,2\n3\n4,5,6\n7,8\n", "a INT, b INT")
    assert result.table.to_pylist() == [{"a": 1, "b": 2}, {"a": 7, "b": 8}]
    assert result.rows.tolist() == [0, 3]
    assert result.refused.to_pylist() == [
        {"row": 1, "reason": "the row has 1 field, expected 2", "raw": "3", "line": 3},
        {"row": 2, "reason": "the row has 3 fields, expected 2", "raw": "4,5,6", "line": 4},
    ]


def test_bytes_that_are_not_utf8_refuse_their_row():
    result = decoded(b"a,b\nx,1\n\xff\xfe,2\ny,3\n", "a STRING, b INT")
    assert result.table["b"].to_pylist() == [1, 3]
    assert result.refused["row"].to_pylist() == [1]
    assert "UTF-8" in result.refused["reason"][0].as_py()


def test_a_quote_never_closed_costs_its_own_line():
    result = decoded(b'a,b\nx,1\n"oops,2\ny,3\nz,4\n', "a STRING, b INT")
    assert result.table["b"].to_pylist() == [1, 3, 4]
    assert result.refused.to_pylist()[0]["row"] == 1
    assert result.refused.to_pylist()[0]["raw"] == '"oops,2'
    assert result.rows.tolist() == [0, 2, 3]


def test_two_quotes_never_closed():
    result = decoded(b'a,b\n"o,1\ny,3\n"p,4\nz,5\n"q,6', "a STRING, b INT")
    assert result.table["b"].to_pylist() == [3, 5]
    assert result.refused["row"].to_pylist() == [0, 2, 4]


def test_a_quote_inside_a_plain_field_is_a_character():
    assert rows(b'a,b\n5" disk,1\nx,2\n6" disk,3\n', "a STRING, b INT") == [('5" disk', 1), ("x", 2), ('6" disk', 3)]


@pytest.mark.slow
def test_many_broken_rows_of_every_kind_in_many_blocks():
    lines, good, bad = [], [], []
    for i in range(5000):
        if i % 7 == 3:
            lines.append([b"x", b"1,2,3", b"q,\xff", b'"p', b"n,1.5"][i % 5])
            bad.append(i)
        else:
            lines.append(b"v%d,%d" % (i, i))
            good.append(i)
    for size in (1 << 20, 777):
        result = decoded(b"\n".join(lines), "a STRING, b INT", header=False, size=size)
        assert result.rows.tolist() == good
        assert result.table["b"].to_pylist() == good
        assert result.refused["row"].to_pylist() == bad


def test_times_in_every_form_beside_each_other():
    schema = "t DATETIME"
    texts = ["2024-01-02T03:04:05Z", "2024-01-02T05:04:05+02:00", "2024-01-02 03:04:05", "1704164645000000"]
    together = decoded("\n".join(texts).encode(), schema, header=False)
    assert pc.cast(together.table["t"], pa.int64()).to_pylist() == [1704164645000000] * 4
    alone = [decoded(text.encode(), schema, header=False).table["t"][0].value for text in texts]
    assert alone == [1704164645000000] * 4


def test_fractions_of_a_tick_are_cut_off():
    (at,) = decoded(b"1969-12-31T23:59:59.999999999Z", "t DATETIME", header=False).table["t"]
    assert at.value == -1


def test_lifetime_columns_take_ticks_times_and_infinities():
    data = "kind,le,re,re_new,x\ninsert,1,inf,,5\nretract,-inf,∞,2024-01-02T00:00:00Z,5\ncti,x,,,\n".encode()
    result = decoded(data, "kind STRING, le LONG, re LONG, re_new LONG, x INT")
    assert result.table["le"].to_pylist() == [1, NEG_INFINITY]
    assert result.table["re"].to_pylist() == [INFINITY, INFINITY]
    assert result.table["re_new"].to_pylist() == [None, 1704153600000000]
    assert result.refused["row"].to_pylist() == [2]
    assert reasons(b"a\ninf\n", "a LONG")[0][1].endswith("is not of type LONG")


def test_columns_and_filter(tmp_path: Path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"symbol,price,quantity\nA,1,1\nB,bad,2\nC,3,3\nD,,4\n")
    (block,) = read_file(str(path), Format("csv"), TICKS, columns=["quantity"])
    assert block.table.to_pydict() == {"quantity": [1, 2, 3, 4]}
    (block,) = read_file(str(path), Format("csv"), TICKS, ["symbol"], row_filter=pc.field("price") > 1)
    assert block.table.to_pydict() == {"symbol": ["C"]}
    assert block.rows.tolist() == [2]
    assert block.refused["row"].to_pylist() == [1]
    (block,) = read_file(str(path), Format("csv"), TICKS, [])
    assert len(block.rows) == 4


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_paths_and_uris(tmp_path: Path, form: str):
    path = tmp_path / "a b%20.csv"
    path.write_bytes(b"a\n1\n")
    name = str(path) if form == "{}" else str(path).replace("%", "%25").replace(" ", "%20")
    (block,) = read_file(form.format(name), Format("csv"), Schema.of("a INT"))
    assert block.table["a"].to_pylist() == [1]


def test_compressed(tmp_path: Path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"a\n1\n"))
    (block,) = read_file(str(path), Format.of_path(str(path)), Schema.of("a INT"))
    assert block.table["a"].to_pylist() == [1]
    path.write_bytes(gzip.compress(b"a\n1\n" * 1000)[:-20])
    with pytest.raises(SourceError, match=r"a\.csv\.gz"):
        list(read_file(str(path), Format("csv"), Schema.of("a INT")))


@pytest.mark.parametrize("format", ["csv", "json", "parquet", "arrow"])
def test_missing_file_and_directory(tmp_path: Path, format: str):
    with pytest.raises(SourceError, match="there is no file"):
        list(read_file(str(tmp_path / "nowhere"), Format(format), TICKS))
    with pytest.raises(SourceError):
        list(read_file(str(tmp_path), Format(format), TICKS))
    with pytest.raises(SourceError):
        infer_schema(str(tmp_path / "nowhere"), Format(format))


def test_formats_that_make_no_sense():
    with pytest.raises(SchemaError):
        Format("xml")
    with pytest.raises(SchemaError):
        Format("csv", delimiter="::")
    with pytest.raises(SchemaError):
        Format("csv", delimiter='"')
    with pytest.raises(SchemaError):
        Format.of_path("a.docx")


def test_infer(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"i,d,b,t,s,n,le\n1,1.5,true,2024-01-01,x,,inf\n,2,false,2024-01-01T00:00:00Z,,,3\n")
    expected = "i LONG, d DOUBLE, b BOOLEAN, t DATETIME, s STRING, n STRING, le LONG"
    assert str(infer_schema(str(path), Format("csv"))) == expected
    path.write_bytes(b"1,x\n")
    assert str(infer_schema(str(path), Format("csv", header=False))) == "c0 LONG, c1 STRING"
    path.write_bytes(b"")
    assert len(infer_schema(str(path), Format("csv"))) == 0


FIELD = st.one_of(
    st.text(alphabet=' ,"\n\rabcé∞|01', max_size=6), st.integers(-(2**70), 2**70).map(str), st.floats().map(repr)
)


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(st.lists(st.tuples(FIELD, FIELD), max_size=20), st.integers(40, 300))
def test_what_is_quoted_is_read_back(values: list[tuple[str, str]], size: int):
    data = "".join(f"{quoted(a)},{quoted(b)}\n" for a, b in values).encode()
    assert rows(data, "a STRING, b STRING", header=False, size=size) == values


@settings(max_examples=3 * settings().max_examples, deadline=None)
@given(st.lists(st.text(alphabet='ab,1.5-"', max_size=8), min_size=1, max_size=60), st.integers(1, 60))
def test_a_row_is_read_or_refused_whatever_its_neighbours(lines: list[str], size: int):
    """Without quotes that span lines, each line stands for itself."""
    lines = [line for line in lines if line and line.count('"') % 2 == 0]
    schema = "a STRING, b DOUBLE"
    together = decoded("\n".join(lines).encode(), schema, header=False, size=size) if lines else None
    if together is None:
        return
    alone = [decoded(line.encode(), schema, header=False) for line in lines]
    assert together.rows.tolist() == [i for i, one in enumerate(alone) if one.table.num_rows]
    assert together.table.to_pylist() == [row for one in alone for row in one.table.to_pylist()]
    assert together.refused["reason"].to_pylist() == [r for one in alone for r in one.refused["reason"].to_pylist()]
