"""Delta tables on S3, a real server: the same tables, exactly once."""

from __future__ import annotations

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.fixtures.s3_server import SECRET

import headrace as hr
from headrace.adapters.delta import DeltaSink, DeltaSource
from headrace.io.adapter import DeliveryId
from headrace.schema import Schema

pytestmark = pytest.mark.slow


def test_a_query_from_a_table_to_a_table(s3: str):
    write_deltalake(f"{s3}/accounts", pa.table({"id": [1, 2, 3], "branch": ["n", "n", "s"], "balance": [10, 50, 70]}))
    accounts = hr.read_delta(f"{s3}/accounts", key="id")
    totals = accounts.group_by("branch").aggregate(total=hr.sum("balance"))
    found = []
    for _ in range(2):
        sink = hr.delta_lake(f"{s3}/totals", encoding="upsert", key="branch", ended="delete", partition_by="branch")
        query = totals.start(sink, host="local", checkpoint=f"{s3}/state")
        query.process_all_available()
        query.stop()
        found.append(sorted(hr.delta_table(f"{s3}/totals")["total"].to_pylist()))
        DeltaTable(f"{s3}/accounts").update({"balance": "balance + 1"}, predicate="id = 1")
        DeltaTable(f"{s3}/accounts").delete("id = 3")
    assert found == [[60, 70], [61]]
    assert SECRET not in str(sink)


def test_two_writers_of_one_version_do_not_replace_each_other(s3: str):
    """The store creates an object only if there is none: without that, the second commit would hide the first."""
    sink = DeltaSink("final", path=f"{s3}/t")
    sink.open("q", 0, Schema.of("v LONG"), -1)
    rows = pa.table({"le": pa.array([1]), "re": pa.array([2]), "v": pa.array([3])})
    tables = [DeltaTable(sink.path) for _ in range(4)]  # all at the same version
    for table in tables:
        write_deltalake(table, rows, mode="append")
    for part in range(2):
        for _ in range(2):
            sink.deliver(DeliveryId("q", 0, part, 0), rows)
    assert DeltaTable(sink.path).count() == 6


def test_looking_for_new_versions_lists_nothing(s3: str, monkeypatch: pytest.MonkeyPatch):
    path = f"{s3}/t"
    for number in range(3):
        write_deltalake(path, pa.table({"id": [number]}), mode="append")
    source = DeltaSource.of(path)
    end = source.offsets({})["versions"].end
    monkeypatch.setattr(obstore, "list", None)
    assert source.offsets({"versions": end})["versions"].end == end
    write_deltalake(path, pa.table({"id": [3]}), mode="append")
    later = source.offsets({"versions": end})["versions"].end
    blocks = list(source.read("versions", end, later, ["id"]))
    assert [block.table["id"].to_pylist() for block in blocks] == [[3]]
