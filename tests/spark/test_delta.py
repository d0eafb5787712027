"""Delta tables on Spark: workers read the versions and write the answers; a query goes from host to host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

import headrace as hr

pytestmark = pytest.mark.usefixtures("spark")
ROWS = 4000


def test_a_query_from_table_to_table_goes_on_on_either_host(tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headrace.host.spark.worker._MOST_FROM_HERE", 0)  # workers deliver, however few rows
    accounts, totals = f"{s3}/accounts", str(tmp_path / "totals")
    numbers = np.arange(ROWS)
    rows = {"id": numbers, "owner": numbers % (ROWS // 2), "balance": numbers % 97}
    write_deltalake(accounts, pa.table({name: pa.array(values) for name, values in rows.items()}))
    stream = hr.read_delta(accounts, key="id")
    sums = stream.group_by("owner").aggregate(total=hr.sum("balance"))
    merged = hr.delta_lake(totals, encoding="upsert", key="owner", ended="delete")
    outputs = [(sums, merged), (sums, hr.delta_lake(tmp_path / "log", encoding="changes"))]
    for host in ("spark", "local", "spark"):
        query = hr.start_all(outputs, host=host, checkpoint=str(tmp_path / "state"), buckets=2)
        query.process_all_available()
        query.stop()
        expected = DeltaTable(accounts).to_pyarrow_table().group_by("owner").aggregate([("balance", "sum")])
        found = DeltaTable(totals).to_pyarrow_table()
        assert found.select(["owner", "total"]).sort_by("owner").rename_columns(["a", "b"]).equals(
            expected.select(["owner", "balance_sum"]).sort_by("owner").rename_columns(["a", "b"])
        ), host  # fmt: skip
        DeltaTable(accounts).update({"balance": "balance + 1"}, predicate="id % 3 = 0")
        DeltaTable(accounts).delete("owner % 5 = 1")
    log = DeltaTable(str(tmp_path / "log")).to_pyarrow_table()
    endless = log.filter(pc.is_null(log["re"]))
    alive = 2 * pc.sum(pc.equal(endless["_change_type"], "insert")).as_py() - endless.num_rows
    assert alive == found.num_rows, "the log, folded, has the rows of the table"
