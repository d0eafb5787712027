"""TIME and INTERVAL: in expressions of both languages, as keys, through aggregates, files and DuckDB."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import col
from headrace.errors import ExpressionError, SchemaError, SqlError
from headrace.io.avro import AvroValues
from headrace.io.avro_writing import avro_schema, encode_avro
from headrace.io.conversion import convert
from headrace.io.encode import csv_lines, json_objects
from headrace.schema import Field, Schema, Type

HOUR = timedelta(hours=1)
COLUMNS = "ts LONG, clock TIME, length INTERVAL"
ROWS = [
    {"ts": 1, "clock": time(12, 30), "length": 36 * HOUR},
    {"ts": 2, "clock": time(23, 59, 59, 999_999), "length": -timedelta(microseconds=1)},
    {"ts": 3, "clock": None, "length": None},
    {"ts": 4, "clock": time(), "length": timedelta(days=30_000)},
]


def shifts() -> hr.Stream:
    return hr.events(
        """
        le | clock    | length   | ts
        1  | 08:15    | 10 min   | 2024-05-01T12:00:00Z
        2  | 23:30:00 | 36:00:00 | 2024-05-01T13:30:00.5Z
        3  |          |          | 2024-05-01T00:00:00Z
        """,
        "clock TIME, length INTERVAL, ts DATETIME",
    )


@pytest.mark.parametrize(
    ("text", "kind", "answers"),
    [
        ("clock", "TIME", [time(8, 15), time(23, 30), None]),
        ("length", "INTERVAL", [HOUR / 6, 36 * HOUR, None]),
        ("ts::TIME", "TIME", [time(12), time(13, 30, 0, 500_000), time()]),
        ("clock + INTERVAL '1' HOUR", "TIME", [time(9, 15), time(0, 30), None]),
        ("clock - length", "TIME", [time(8, 5), time(11, 30), None]),
        ("clock - TIME '08:00'", "INTERVAL", [HOUR / 4, 15.5 * HOUR, None]),
        ("clock BETWEEN TIME '08:00' AND '12:00'", "BOOLEAN", [True, False, None]),
        ("EXTRACT(HOUR FROM clock) * 100 + EXTRACT(MINUTE FROM clock)", "INT", [815, 2330, None]),
        ("INTERVAL '1' DAY", "INTERVAL", [24 * HOUR] * 3),
        ("-INTERVAL '90' MINUTE", "INTERVAL", [-1.5 * HOUR] * 3),
        ("2 * length", "INTERVAL", [HOUR / 3, 72 * HOUR, None]),
        ("length / 2 + 30 min", "INTERVAL", [HOUR * 7 / 12, 18.5 * HOUR, None]),
        ("ts + length", "DATETIME", [datetime(2024, 5, 1, 12, 10, tzinfo=UTC),
                                     datetime(2024, 5, 3, 1, 30, 0, 500_000, tzinfo=UTC), None]),
        ("ts + 2 * INTERVAL '1' HOUR = '2024-05-01 14:00'", "BOOLEAN", [True, False, False]),
        ("length > INTERVAL '1' HOUR", "BOOLEAN", [False, True, None]),
        ("length <= '10 min'", "BOOLEAN", [True, False, None]),
        ("ts - DATETIME '2024-05-01 12:00:00'", "LONG", [0, 5_400_500_000, -43_200_000_000]),
        ("ts - DATETIME '2024-05-01 12:00:00' > INTERVAL '1' HOUR", "BOOLEAN", [False, True, False]),
        ("CAST(ts - DATETIME '2024-05-01 12:00:00' AS INTERVAL)", "INTERVAL",
         [timedelta(), 1.5 * HOUR + timedelta(seconds=0.5), -12 * HOUR]),
        ("EXTRACT(EPOCH FROM length)", "LONG", [600, 129_600, None]),
        ("EXTRACT(DAY FROM length)", "INT", [0, 1, None]),
        ("CAST(length AS STRING)", "STRING", ["00:10:00.000000", "36:00:00.000000", None]),
        ("CAST(clock AS STRING)", "STRING", ["08:15:00.000000", "23:30:00.000000", None]),
        ("CAST('-00:00:00.5' AS INTERVAL)", "INTERVAL", [timedelta(seconds=-0.5)] * 3),
        ("CASE WHEN length > 1 h THEN length ELSE INTERVAL '1' HOUR END", "INTERVAL", [HOUR, 36 * HOUR, HOUR]),
    ],
)  # fmt: skip
def test_in_sql(text: str, kind: str, answers: list[object]):
    stream = hr.sql(f"SELECT {text} AS x FROM shifts", shifts=shifts())
    assert stream.schema["x"].type.value == kind
    assert stream.cht()["x"].to_pylist() == answers
    assert stream.history("duckdb").cht()["x"].to_pylist() == answers


def test_python_means_the_same():
    named = shifts().select(x=col("clock") + col("length"), y=col("length") > HOUR, z=col("clock") < time(12))
    text = "SELECT clock + length AS x, length > 1 h AS y, clock < TIME '12:00' AS z FROM shifts"
    assert named.cht() == hr.sql(text, shifts=shifts()).cht()


def test_groups_joins_and_aggregates():
    rows = hr.events(
        """
        le | k     | v
        1  | 08:00 | 00:10:00
        2  | 08:00 | 00:05:00.000001
        3  | 09:00 | -01:00:00
        4  |       |
        """,
        "k TIME, v INTERVAL",
    )
    text = """SELECT k, sum(v) AS total, avg(v) AS mean, min(v) AS low, max(v) AS high, count(DISTINCT v) AS n
              FROM rows [TUMBLING 10 ticks] GROUP BY k"""
    grouped = hr.sql(text, rows=rows)
    found = {row["k"]: list(row.values())[3:] for row in grouped.run(finish=True).cht().to_pylist()}
    tick, five = timedelta(microseconds=1), timedelta(minutes=5)
    assert found == {
        time(8): [3 * five + tick, 1.5 * five + tick, five + tick, 2 * five, 2],
        time(9): [-HOUR, -HOUR, -HOUR, -HOUR, 1],
        None: [None, None, None, None, 0],
    }
    assert grouped.history("duckdb").cht().sort_by("k") == grouped.run(finish=True).cht().sort_by("k")
    pairs = hr.sql("SELECT a.v AS v FROM rows [RANGE 5 ticks] a JOIN rows [RANGE 5 ticks] b ON a.v = b.v", rows=rows)
    assert pairs.cht().num_rows == 3


@pytest.mark.parametrize("format", ["csv", "json"])
def test_what_is_written_is_read_again(format: str, tmp_path: Path):
    rows = pa.Table.from_pylist(ROWS, schema=Schema.of(COLUMNS).arrow).to_batches()[0]
    lines = [",".join(rows.schema.names), *csv_lines(rows, ",").to_pylist()] if format == "csv" else []
    (tmp_path / f"a.{format}").write_text("\n".join(lines or json_objects(rows).to_pylist()))
    read = getattr(hr, f"read_{format}")(str(tmp_path / f"a.{format}"), COLUMNS, lifetime=hr.point("ts"))
    assert read.cht().select(["ts", "clock", "length"]).to_pylist() == ROWS


def test_parquet_and_avro_keep_the_types(tmp_path: Path):
    table = pa.Table.from_pylist(ROWS, schema=Schema.of(COLUMNS).arrow)
    pq.write_table(table, tmp_path / "a.parquet")
    read = hr.read_parquet(str(tmp_path / "a.parquet"), lifetime=hr.point("ts"))
    assert str(read.schema) == COLUMNS
    assert read.cht().select(["ts", "clock", "length"]).to_pylist() == ROWS
    batch = table.to_batches()[0]
    text = avro_schema(batch.schema)
    assert AvroValues(text, "", list(Schema.of(COLUMNS)))(encode_avro(batch, text)).table.to_pylist() == ROWS


@pytest.mark.parametrize(
    ("kind", "given", "fits"),
    [
        ("TIME", ["12:30", " 01:02:03.5 "], True),
        ("TIME", ["24:00", "x", "", "-01:00"], False),
        ("TIME", [5], False),
        ("INTERVAL", ["12:30", "-100:00:00", "60000000", 5], True),
        ("INTERVAL", ["x", "10", "1:2"], None),
    ],
)
def test_what_fits(kind: str, given: list[object], fits: bool | None):
    for value in given:
        converted = convert(pa.array([value]), Field("a", Type(kind)))
        assert (converted.bad is None) == (value == "10" if fits is None else fits), value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("length + 5", "cannot take INTERVAL, INT"),
        ("length > 5", "cannot take INTERVAL, INT"),
        ("clock + clock", "cannot take TIME, TIME"),
        ("clock > 'noon'", "this text beside a TIME is not one"),
        ("TIME '25:00'", "this is no TIME"),
        ("INTERVAL '1' MONTH", "months and years differ in length"),
        ("CAST(length AS INTERVAL YEAR TO MONTH)", "months and years have none"),
        ("CAST(clock AS DATE)", "has no one meaning"),
    ],
)
def test_refused(text: str, message: str):
    with pytest.raises((SqlError, ExpressionError, SchemaError), match=message):
        hr.sql(f"SELECT {text} AS x FROM shifts", shifts=shifts())
