"""Values in both forms, read back by psycopg's own loaders."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg.adapt import Transformer
from psycopg.pq import Format

from headrace.server.postgres.columns import encoded, wire_columns
from headrace.types import Type

MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001 - of UTC
DECIMALS = st.decimals(-(10**12), 10**12, places=4)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "BYTE": st.integers(-128, 127),
    "SHORT": st.integers(-(2**15), 2**15 - 1),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "LONG": st.integers(-(2**63), 2**63 - 1),
    "FLOAT": st.floats(width=32, allow_nan=False),
    "DOUBLE": st.floats(allow_nan=False),
    "DECIMAL(20,4)": DECIMALS,
    "STRING": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    "DATETIME": MOMENTS,
    "DATE": st.dates(),
    "TIME": st.times(),
    "INTERVAL": st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000)),
    "ARRAY<LONG>": st.lists(st.integers(-9, 9) | st.none(), max_size=3),
    "STRUCT<a INT, b STRING>": st.fixed_dictionaries({"a": st.integers(-9, 9), "b": st.text("xy", max_size=2)}),
}


def loaded(table: pa.Table, form: int) -> list[Any]:
    (column,) = wire_columns(table.schema)
    loader = Transformer(psycopg.adapters).get_loader(column.oid, Format(form))
    found = []
    for (value,) in encoded(table, [form]):
        if value is None:
            found.append(None)
        elif column.oid == 114:
            found.append(json.loads(value))
        else:
            found.append(loader.load(value))
    return found


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_values_come_back(kind: str, form: int, data: st.DataObject):
    values = data.draw(st.lists(VALUES[kind] | st.none(), max_size=4))
    table = pa.table({"x": pa.array(values, Type(kind).arrow)})
    found = pa.array(loaded(table, form), Type(kind).arrow)  # a FLOAT's text has the digits that a float4 needs
    assert found.to_pylist() == table["x"].to_pylist()


@given(DECIMALS | st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**9), max_value=10**9))
@example(Decimal("0.0001"))
@example(Decimal(10000))
@example(Decimal("-0.00000001"))
def test_numerics_in_groups_of_four_digits(value: Decimal):
    table = pa.table({"x": pa.array([value], pa.decimal128(38, 9))})
    assert loaded(table, 1) == loaded(table, 0) == [value]


def test_types_have_postgres_numbers():
    schema = pa.schema([(name.lower(), Type(name).arrow) for name in VALUES])
    oids = [column.oid for column in wire_columns(schema)]
    assert oids == [16, 21, 21, 23, 20, 700, 701, 1700, 25, 1184, 1082, 1083, 1186, 114, 114]
    (decimal,) = wire_columns(pa.schema([("n", pa.decimal128(10, 2))]))
    assert decimal.modifier == ((10 << 16) | 2) + 4


def texts(*values: Any, kind: pa.DataType) -> list[bytes | None]:
    return [value for (value,) in encoded(pa.table({"x": pa.array(values, kind)}), [0])]


def test_texts_as_postgres_writes_them():
    assert texts(1.0, 1.5, float("nan"), -float("inf"), 1e20, kind=pa.float64()) == [
        b"1", b"1.5", b"NaN", b"-Infinity", b"1e+20",
    ]  # fmt: skip
    assert texts(0.1, kind=pa.float32()) == [b"0.1"]
    assert texts(datetime(2024, 5, 1, 12, tzinfo=UTC), kind=pa.timestamp("us", "UTC")) == [b"2024-05-01 12:00:00+00"]
    assert texts(datetime(2024, 5, 1, 12, 0, 0, 500), kind=pa.timestamp("us")) == [b"2024-05-01 12:00:00.0005"]  # noqa: DTZ001
    assert texts(date(1, 1, 1), kind=pa.date32()) == [b"0001-01-01"]
    assert texts(time(1, 2, 3), kind=pa.time64("us")) == [b"01:02:03"]
    assert texts(timedelta(hours=-30), kind=pa.duration("us")) == [b"-30:00:00"]
    assert texts(b"\x01\xff", kind=pa.binary()) == [b"\\x01ff"]
    assert texts([float("nan"), 1.0], kind=pa.list_(pa.float64())) == [b'["NaN", 1.0]']


def test_times_that_python_has_no_dates_for():
    far = pa.array([400_000_000_000_000_000, -(1 << 62)], pa.int64()).cast(pa.timestamp("us", "UTC"))
    values = [value for (value,) in encoded(pa.table({"x": far}), [0])]
    assert values[0] == b"14645-06-30 15:06:40+00"
    assert values[1] is not None
    assert values[1].endswith(b" BC")
    assert next(iter(encoded(pa.table({"x": far}), [1])))[0] is not None


def test_rows_without_columns():
    assert list(encoded(pa.table({"x": [1, 2]}).select([]), [])) in ([(), ()], [])
