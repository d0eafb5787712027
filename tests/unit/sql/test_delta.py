"""Delta tables in SQL: the same plans and sinks as in Python."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import headrace as hr
from headrace import col
from headrace.errors import SqlError
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql
from headrace.sql.unbind import unbind


@pytest.fixture(autouse=True)
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    accounts = pa.table({"id": pa.array([1, 2]), "branch": pa.array(["n", "s"]), "balance": pa.array([10, 50])})
    write_deltalake(str(tmp_path / "accounts"), accounts)
    return tmp_path


@pytest.mark.parametrize(("statement", "expected"), [
    ("CREATE STREAM s SOURCE delta ('accounts', key => 'id')", {"key": "id"}),
    ("CREATE STREAM s LIFETIME CHANGES KEY id SOURCE delta ('accounts')", {"key": "id"}),
    ("CREATE STREAM s (id LONG, balance LONG) SOURCE DELTA ('accounts', key => 'id', start => 'earliest')",
     {"schema": "id LONG, balance LONG", "key": "id", "start": "earliest"}),
    ("CREATE STREAM s LIFETIME CHANGES AT _commit_version KEY id SOURCE delta ('accounts', start => 0)",
     {"key": "id", "at": "_commit_version", "start": 0}),
    ("CREATE STREAM s ORDER BY id SOURCE delta ('accounts', deletes => 'ignore')",
     {"lifetime": hr.point("id"), "deletes": "ignore"}),
])  # fmt: skip
def test_a_stream_is_that_of_python(statement: str, expected: dict[str, object]):
    stream = hr.sql(f"{statement}; SELECT * FROM s")
    assert stream.cht().to_pylist() == hr.read_delta("accounts", **expected).cht().to_pylist()  # type: ignore[arg-type]
    assert stream.cht().num_rows == 2


def test_a_script_reads_and_writes_tables():
    script = """
        CREATE STREAM accounts SOURCE delta ('accounts', key => 'id');
        CREATE TABLE names SOURCE delta ('accounts', version => 0);
        SELECT a.branch, a.balance FROM accounts AS a JOIN names AS n ON a.id = n.id
        INTO delta ('copies', encoding => 'upsert', key => 'branch', ended => 'delete', partition_by => 'branch');
    """
    hr.script(script).run()
    found = DeltaTable("copies")
    assert sorted(found.to_pyarrow_table()["balance"].to_pylist()) == [10, 50]
    assert found.metadata().partition_columns == ["branch"]


STATEMENTS = [
    "CREATE STREAM s SOURCE delta ('accounts', key => 'id')",
    "CREATE STREAM s LIFETIME CHANGES AT _commit_version KEY id SOURCE Delta ('accounts', start => 0)",
    "CREATE STREAM s ORDER BY id SOURCE delta (path => 'accounts', deletes => 'ignore') WITH PROGRESS ADVANCE 5",
    "CREATE STREAM s LIFETIME CHANGES KEY id SOURCE delta ('accounts', start => 'earliest')",
]
INTO = [
    "INTO delta ('copies')",
    "INTO delta ('it''s', encoding => 'upsert', key => 'id', ended => 'delete', compact => 9)",
    "INTO delta ('s3://bucket/copies', encoding => 'changes', partition_by => 'branch')",
]


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("into", INTO)
def test_sources_and_sinks_are_printed_as_they_are_read(statement: str, into: str):
    text = f"{statement}; SELECT id, branch FROM s {into};"
    printed = to_sql(parse(text))
    assert to_sql(parse(printed)) == printed
    first, second = (hr.script(one).deliveries for one in (text, printed))
    assert [(stream.node, sink) for stream, sink in first.values()] == [
        (stream.node, sink) for stream, sink in second.values()
    ]


@pytest.mark.parametrize("options", [{"key": "id"}, {"lifetime": hr.point("id")}])
def test_a_query_over_a_table_unbinds_to_sql(options: dict[str, object]):
    accounts = hr.read_delta("accounts", **options)  # type: ignore[arg-type]
    large = accounts.where(col("balance") > 5)
    query = large.group_by("branch").window(hr.snapshot()).aggregate(n=hr.count(), total=hr.sum("balance"))
    text = unbind(query.node, {accounts.node: "accounts"}).text
    assert hr.sql(text, accounts=accounts).node == query.node


@pytest.mark.parametrize(("statement", "message"), [
    ("CREATE STREAM s SOURCE delta ('nowhere', key => 'id')", "there is no Delta table at"),
    ("CREATE STREAM s SOURCE delta ('accounts', key => 'idd')", "idd"),
    ("CREATE STREAM s SOURCE delta ('accounts', key => 'id', start => 'soon')", "unknown start"),
    ("CREATE STREAM s SOURCE delta ('accounts', begin => 1)", "has no 'begin'"),
    ("CREATE STREAM s SOURCE delta (key => 'id')", "DELTA needs the option 'path'"),
    ("CREATE STREAM s ORDER BY id SOURCE delta ('accounts', key => 'id')", "deletions are no rows of it"),
    ("CREATE STREAM s LIFETIME CHANGES KEY id ENCODING 'flink' SOURCE delta ('accounts')", "have one encoding"),
])  # fmt: skip
def test_what_is_wrong_is_shown_in_the_text(statement: str, message: str):
    with pytest.raises(SqlError, match=message) as caught:
        hr.sql(f"{statement}; SELECT * FROM s")
    assert "delta" in str(caught.value)


def test_scripts_that_may_use_some_folders_use_tables_there(lake: Path):
    statement = "CREATE STREAM s SOURCE delta ('accounts', key => 'id'); SELECT * FROM s"
    assert hr.sql(statement, base=lake, roots=[lake]).cht().num_rows == 2
    with pytest.raises(SqlError, match="may not use files there"):
        hr.sql(statement, base=lake, roots=[lake / "inside"])
