"""Names, statements and errors of PostgreSQL, without a server."""

from __future__ import annotations

import psycopg
import pyarrow as pa
import pytest

from headrace.adapters.postgres.catalog import ColumnInfo, TableInfo, UniqueIndex, name_parts
from headrace.adapters.postgres.connection import in_our_words
from headrace.adapters.postgres.copying import time_texts
from headrace.adapters.postgres.target import create_statement, matched
from headrace.errors import PlanError, SinkError, Unavailable
from headrace.schema import Schema
from headrace.time import INFINITY, NEG_INFINITY

PAYLOAD = Schema.of("symbol STRING, price DOUBLE, at DATETIME, tags ARRAY<STRING>")


def test_names_have_one_or_two_parts_and_may_be_quoted():
    assert name_parts("ticks") == ("ticks",)
    assert name_parts("a.b") == ("a", "b")
    assert name_parts('"a.b"."c ""d"""') == ("a.b", 'c "d"')
    for wrong in ("", "a.b.c", "a.", ".a", 'a"b', '"a'):
        with pytest.raises(PlanError, match="not the name of a table"):
            name_parts(wrong)


def test_the_statement_that_creates_a_table_has_the_columns_of_the_encoding():
    statement = create_statement("t", PAYLOAD, "upsert", ("symbol",), {"le": "since"}, "timestamp")
    assert statement == (
        'CREATE TABLE t ("since" timestamptz, "symbol" text, "price" double precision, "at" timestamptz, '
        '"tags" text[], PRIMARY KEY ("symbol")) WITH (fillfactor = 70)'
    )
    log = create_statement("t", Schema.of("n LONG"), "events", (), {}, "ticks")
    columns = '"_batch" bigint, "kind" text, "le" bigint, "re" bigint, "re_new" bigint, "n" bigint'
    assert log == f"CREATE TABLE t ({columns})"


def test_rows_get_the_form_that_each_column_takes():
    columns = (ColumnInfo("le", "timestamptz", "timestamptz"), ColumnInfo("re", "int8", "bigint"),
               ColumnInfo("at", "int8", "bigint"))  # fmt: skip
    table = TableInfo(1, "public", "t", "r", "d", columns, ())
    target = matched(table, Schema.of("at DATETIME"), "final", (), {}, "CREATE …")
    rows = pa.table({"le": [0, INFINITY], "re": [5, INFINITY], "at": pa.array([7, None], pa.timestamp("us", tz="UTC"))})
    assert target.rows(rows, 3).to_pydict() == {
        "le": ["1970-01-01T00:00:00.000000Z", "infinity"], "re": [5, INFINITY], "at": [7, None],
    }  # fmt: skip


def test_infinite_and_missing_times_are_texts_and_nulls():
    ticks = pa.chunked_array([pa.array([NEG_INFINITY, None, 1], pa.int64()), pa.array([INFINITY], pa.int64())])
    assert time_texts(ticks).to_pylist() == ["-infinity", None, "1970-01-01T00:00:00.000001Z", "infinity"]
    assert time_texts(pa.chunked_array([pa.nulls(2, pa.int64())])).to_pylist() == [None, None]


def test_a_unique_index_must_have_exactly_the_key():
    columns = tuple(ColumnInfo(name, "text", "text") for name in ("a", "b"))
    index = UniqueIndex(("b", "a"), is_primary=False, is_identity=False, nulls_equal=True)
    table = TableInfo(1, "public", "t", "r", "d", columns, (index,))
    payload = Schema.of("a STRING, b STRING")
    target = matched(table, payload, "upsert", ("a", "b"), {}, "CREATE …")
    assert (target.key, target.nulls_equal) == (("a", "b"), True)
    with pytest.raises(SinkError, match="unique constraint on exactly the key"):
        matched(table, payload, "upsert", ("a",), {}, "CREATE …")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.errors.DeadlockDetected("deadlock"), Unavailable),
        (psycopg.errors.AdminShutdown("terminating"), Unavailable),
        (psycopg.errors.DiskFull("full"), Unavailable),
        (psycopg.errors.ConfigurationLimitExceeded("all slots"), SinkError),
        (psycopg.errors.UndefinedColumn("no column"), SinkError),
        (psycopg.errors.DatabaseDropped("gone"), SinkError),
        (psycopg.OperationalError("connection refused"), Unavailable),
        (psycopg.OperationalError("FATAL:  the database system is starting up"), Unavailable),
        (psycopg.OperationalError('FATAL:  password authentication failed for user "a"'), SinkError),
        (psycopg.ProgrammingError("can't adapt"), SinkError),
    ],
)
def test_errors_that_may_pass_and_errors_that_do_not(error: psycopg.Error, kind: type[Exception]):
    assert type(in_our_words(error, SinkError, "the table t")) is kind
