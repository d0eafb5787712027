"""DECIMAL and DATE through readers and writers: every digit arrives, and what does not fit is refused."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.io.avro import AvroValues
from headrace.io.avro_writing import avro_schema, encode_avro
from headrace.io.conversion import convert
from headrace.io.encode import csv_lines, json_objects
from headrace.schema import Field, Schema, Type

COLUMNS = "ts LONG, price DECIMAL(15,2), large DECIMAL(38,10), day DATE"
ROWS = [
    {"ts": 1, "price": Decimal("10.25"), "large": Decimal("1234567890123456789012345678.0123456789"),
     "day": date(1995, 1, 1)},
    {"ts": 2, "price": Decimal("-0.01"), "large": Decimal("-0.0000000001"), "day": date(1, 1, 1)},
    {"ts": 3, "price": None, "large": None, "day": None},
    {"ts": 4, "price": Decimal("9999999999999.99"), "large": Decimal(0), "day": date(9999, 12, 31)},
]  # fmt: skip


def table() -> pa.Table:
    return pa.Table.from_pylist(ROWS, schema=Schema.of(COLUMNS).arrow)


def values(stream: hr.Stream) -> list[dict[str, object]]:
    return stream.cht().select(["ts", "price", "large", "day"]).to_pylist()


@pytest.mark.parametrize("format", ["csv", "json"])
def test_what_is_written_is_read_again(format: str, tmp_path: Path):
    rows = table().to_batches()[0]
    lines = [",".join(rows.schema.names), *csv_lines(rows, ",").to_pylist()] if format == "csv" else []
    text = "\n".join(lines or json_objects(rows).to_pylist())
    (tmp_path / f"a.{format}").write_text(text)
    read = getattr(hr, f"read_{format}")(str(tmp_path / f"a.{format}"), COLUMNS, lifetime=hr.point("ts"))
    assert values(read) == ROWS


def test_a_parquet_file_shows_its_types(tmp_path: Path):
    pq.write_table(table(), tmp_path / "a.parquet")
    read = hr.read_parquet(str(tmp_path / "a.parquet"), lifetime=hr.point("ts"))
    assert str(read.schema) == COLUMNS
    assert values(read) == ROWS


def test_avro_has_every_digit():
    rows = table().to_batches()[0]
    text = avro_schema(rows.schema)
    block = AvroValues(text, "", list(Schema.of(COLUMNS)))(encode_avro(rows, text))
    assert block.table.to_pylist() == ROWS


@pytest.mark.filterwarnings("ignore::headrace.errors.RowsNotUsed")
def test_json_has_every_digit_on_either_path(tmp_path: Path):
    number = "1234567890123456789012345678.0123456789"
    lines = [f'{{"ts": 1, "large": {number}}}', f'{{"ts": 2, "large": "{number}"}}', '{"ts": 3, "large": "?"}']
    for some in (lines[:2], lines):  # a row that is refused sends its neighbours another way
        (tmp_path / "a.json").write_text("\n".join(some))
        read = hr.read_json(str(tmp_path / "a.json"), "ts LONG, large DECIMAL(38,10)", lifetime=hr.point("ts"))
        assert [row["large"] for row in read.cht().to_pylist()] == [Decimal(number)] * 2


@pytest.mark.parametrize(
    ("kind", "given", "fits"),
    [
        ("DECIMAL(6,2)", ["1.25", " 7 ", "+1", "1e3", "-.5", "5."], True),
        ("DECIMAL(6,2)", ["1.255", "99999.99", "x", "", "1e-3", "1,5", "NaN"], False),
        ("DECIMAL(6,2)", [1.25, 0.1, 100.0], True),
        ("DECIMAL(6,2)", [0.125, 1e30, float("nan"), float("inf")], False),
        ("DECIMAL(6,2)", [1, -9999], True),
        ("DECIMAL(6,2)", [10_000], False),
        ("DATE", ["2024-02-29", " 2024-01-01 ", "2024-01-01T00:00:00Z"], True),
        ("DATE", ["2024-02-30", "2024-01-01T12:00:00Z", "5", "", "today"], False),
        ("DATE", [1, 2], False),
    ],
)  # fmt: skip
def test_what_fits(kind: str, given: list[object], fits: bool):
    for values in ([one] for one in given):
        converted = convert(pa.array(values), Field("a", Type(kind)))
        assert (converted.bad is None) == fits, values
        assert (converted.values.null_count == 0) == fits, values


def test_a_date_can_be_the_time_of_events(tmp_path: Path):
    (tmp_path / "a.csv").write_text("day,n\n2024-05-01,1\n2024-05-02,2\n")
    read = hr.read_csv(str(tmp_path / "a.csv"), "day DATE, n LONG", lifetime=hr.point("day"))
    assert [row["le"].date() for row in read.cht().to_pylist()] == [date(2024, 5, 1), date(2024, 5, 2)]
