"""A Delta table as a sink: every encoding, exactly once."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import headrace as hr
from headrace.adapters.delta import DeltaSink
from headrace.errors import PlanError, SchemaError, SinkError
from headrace.io.adapter import DeliveryId
from headrace.schema import Schema
from headrace.testing import check_sink
from headrace.testing.adapter_check.samples import sample_rows

TRADES = """
    kind    | le | re | re_new | symbol | price
    insert  | 1  | 5  |        | A      | 10
    insert  | 2  | ∞  |        | B      | 20
    retract | 2  | ∞  | 4      | B      | 20
    insert  | 4  | ∞  |        | B      | 30
    cti     | 9  |    |        |        |
"""


def table(path: Path | str) -> list[dict[str, Any]]:
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


def run(path: Path, **options: Any) -> None:
    query = hr.events(TRADES).start(hr.delta_lake(path, **options), host="local", checkpoint=f"{path}.state")
    query.finish()
    query.stop()


@pytest.mark.parametrize(("options", "expected"), [
    ({}, [(1, 5, "A", 10), (2, 4, "B", 20), (4, hr.INFINITY, "B", 30)]),
    ({"encoding": "upsert", "key": "symbol"}, [(1, "A", 10), (4, "B", 30)]),
    ({"encoding": "upsert", "key": "symbol", "ended": "delete"}, [(4, "B", 30)]),
    ({"time_columns": ("start", "end"), "partition_by": "symbol"},
     [(1, 5, "A", 10), (2, 4, "B", 20), (4, hr.INFINITY, "B", 30)]),
])  # fmt: skip
def test_what_the_table_has(tmp_path: Path, options: dict[str, Any], expected: list[Any]):
    run(tmp_path / "t", **options)
    rows = [tuple(row.values()) for row in table(tmp_path / "t")]
    assert sorted(rows, key=str) == sorted(expected, key=str)


def test_logs_have_the_number_of_their_batch(tmp_path: Path):
    run(tmp_path / "events", encoding="events")
    rows = table(tmp_path / "events")
    assert {row["kind"] for row in rows} == {"insert", "cti"}
    assert {"_batch", "kind", "le", "re", "re_new", "symbol", "price"} == set(rows[0])
    again = hr.read_delta(tmp_path / "events", "kind STRING, le LONG, re LONG, re_new LONG, symbol STRING, price LONG",
                          lifetime=hr.physical())  # fmt: skip
    assert again.cht().to_pylist() == hr.events(TRADES).cht().to_pylist()
    run(tmp_path / "changes", encoding="changes")
    assert {row["_change_type"] for row in table(tmp_path / "changes")} == {"insert"}


def test_the_table_follows_the_answer(tmp_path: Path):
    """A query over a table that changes: after every batch its sink is the answer at that time."""
    accounts = pa.table({"id": [1, 2, 3], "branch": ["n", "n", "s"], "balance": [10, 50, 70]})
    write_deltalake(str(tmp_path / "accounts"), accounts)
    stream = hr.read_delta(tmp_path / "accounts", key="id")
    totals = stream.group_by("branch").aggregate(total=hr.sum("balance"))
    sink = hr.delta_lake(tmp_path / "totals", encoding="upsert", key="branch", ended="delete", change_data_feed=True)
    query = totals.start(sink, host="local", checkpoint=str(tmp_path / "state"))
    query.process_all_available()
    assert [(row["branch"], row["total"]) for row in table(tmp_path / "totals")] == [("n", 60), ("s", 70)]
    changed = DeltaTable(str(tmp_path / "accounts"))
    changed.update(updates={"balance": "balance + 1"}, predicate="id = 1")
    changed.delete("id = 3")
    query.process_all_available()
    query.stop()
    assert [(row["branch"], row["total"]) for row in table(tmp_path / "totals")] == [("n", 61)]
    with pytest.raises(SchemaError, match="may not be named 'le'") as caught:
        hr.read_delta(tmp_path / "totals", key="branch")
    assert str(caught.value.instead).startswith("only other columns: branch STRING, total LONG")
    columns = "branch STRING, total LONG"
    history = hr.read_delta(tmp_path / "totals", columns, key="branch", start="earliest").cht()
    assert sorted(history["total"].to_pylist()) == [60, 61, 70]


def delivery(batch: int) -> DeliveryId:
    return DeliveryId("q", 0, 0, batch)


def prices(*values: float) -> pa.Table:
    size = len(values)
    return pa.table({"le": pa.array(range(size), pa.int64()), "re": pa.array([9] * size), "price": values})


def opened(path: Path, columns: str = "price DOUBLE", batch: int = -1, **options: Any) -> DeltaSink:
    sink = DeltaSink(**{"encoding": "final", **options}, path=str(path))
    sink.open("q", 0, Schema.of(columns), batch)
    return sink


def test_rows_of_a_batch_stay_in_their_order(tmp_path: Path):
    """Rows come in chunks, which `deltalake` would write side by side."""
    sink = opened(tmp_path / "t")
    chunks = prices(*(float(i) for i in range(200))).to_batches(max_chunksize=3)
    sink.deliver(delivery(0), pa.Table.from_batches(chunks))
    assert DeltaTable(sink.path).to_pyarrow_table()["le"].to_pylist() == list(range(200))


def test_rows_must_fit_into_a_table_that_exists(tmp_path: Path):
    path = tmp_path / "t"
    opened(path)
    opened(path)
    for columns, expected in [("price LONG", "'price' of the Delta table t has"), ("name STRING", "does not exist")]:
        with pytest.raises(SinkError, match=expected):
            opened(path, columns)
    with pytest.raises(SinkError, match="divided in another way"):
        opened(path, partition_by=("price",))
    with pytest.raises(PlanError, match="no column 'day' to partition by"):
        opened(tmp_path / "other", partition_by=("day",))
    with pytest.raises(PlanError, match="a Delta table is a folder"):
        DeltaSink("final")


def test_a_table_that_was_deleted_or_is_newer_than_the_checkpoint_is_an_error(tmp_path: Path):
    path = tmp_path / "t"
    sink = opened(path)
    sink.deliver(delivery(4), prices(1.0))
    opened(path, batch=4)
    with pytest.raises(SinkError, match="has the rows of batch 4 of this query, but its checkpoint ends with batch 3"):
        opened(path, batch=3)
    shutil.rmtree(path)
    with pytest.raises(SinkError, match="was deleted, with the rows of batches up to 4"):
        opened(path, batch=4)


def test_a_repeated_batch_makes_no_version(tmp_path: Path):
    sink = opened(tmp_path / "t")
    for batch in (0, 0, 1, 0, 1, 1):
        sink.deliver(delivery(batch), prices(float(batch)))
    assert sorted(row["price"] for row in table(tmp_path / "t")) == [0.0, 1.0]
    assert DeltaTable(sink.path).version() == 2


def test_small_files_are_made_into_larger_ones(tmp_path: Path):
    sink = opened(tmp_path / "t", compact=5)
    for batch in range(13):
        sink.deliver(delivery(batch), prices(float(batch)))
        sink.deliver(delivery(batch), prices(float(batch)))
    found = DeltaTable(sink.path)
    assert len(found.file_uris()) <= 5
    assert sorted(row["price"] for row in table(sink.path)) == [float(batch) for batch in range(13)]
    log = hr.read_delta(sink.path, "price DOUBLE, _commit_version LONG", lifetime=hr.point("_commit_version"), start=0)
    assert sorted(log.cht()["price"].to_pylist()) == [float(batch) for batch in range(13)], "moved rows are not new"
    with pytest.raises(PlanError, match="compact is a number of versions"):
        opened(tmp_path / "t", compact=0)


def test_transactions_survive_checkpoints_and_cleaning_of_the_log(tmp_path: Path):
    sink = opened(tmp_path / "t")
    sink.deliver(delivery(0), prices(0.0))
    kept = DeltaTable(sink.path)
    kept.create_checkpoint()
    kept.optimize.compact()
    kept.cleanup_metadata()
    sink.deliver(delivery(0), prices(0.0))
    assert len(table(tmp_path / "t")) == 1


def test_all_kinds_of_values_arrive_as_they_are(tmp_path: Path):
    columns = Schema.of(
        "b BYTE, s SHORT, i INT, l LONG, f FLOAT, d DOUBLE, t BOOLEAN, x STRING, at DATETIME, day DATE, "
        "m DECIMAL(20, 4), li ARRAY<LONG>, ls ARRAY<STRING>"
    )
    rows = sample_rows(Schema(tuple(f for f in columns if "ARRAY" not in str(f) and "DEC" not in str(f))), 0, 8)
    decimals = pa.array([None, "1.2345", "-9999999999999999.9999", "0", "1", "2", "3", "4"]).cast(
        columns["m"].type.arrow
    )
    rows = rows.append_column("m", decimals)
    rows = rows.append_column("li", pa.array([[1, None], [], None, [7], [], [], [], []], pa.list_(pa.int64())))
    rows = rows.append_column("ls", pa.array([["a", None], [], None, ["ž"], [], [], [], []], pa.list_(pa.string())))
    rows = rows.add_column(0, "re", pa.array([9] * 8)).add_column(0, "le", pa.array(range(8), pa.int64()))
    sink = opened(tmp_path / "t", str(columns))
    sink.deliver(delivery(0), rows)
    found = DeltaTable(sink.path).to_pyarrow_table().sort_by("le")
    for name in rows.column_names:
        wanted, got = rows[name].to_pylist(), found[name].to_pylist()
        np.testing.assert_equal(got, wanted, err_msg=name)


@pytest.mark.slow
def test_the_contract_of_sinks_is_kept(tmp_path: Path):
    numbers = itertools.count()

    def make(encoding: Any, key: tuple[str, ...]) -> DeltaSink:
        return DeltaSink(encoding, key, path=str(tmp_path / f"t{next(numbers)}"))

    def read_back(sink: Any) -> Any:
        return DeltaTable(sink.path).to_pyarrow_table() if DeltaTable.is_deltatable(sink.path) else []

    report = check_sink(make, read_back, encodings=("final", "upsert"), kills=4, runs=1)
    assert "✗" not in str(report)
