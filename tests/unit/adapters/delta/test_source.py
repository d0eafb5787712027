"""A Delta table as a source: whatever statements change it, the stream is the table at every version."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.adapters.delta import DeltaSource
from headrace.adapters.delta.source import read_table
from headrace.errors import PlanError, SourceError, UnknownColumn
from headrace.schema import Schema
from headrace.testing import check_source

COLUMNS = "id LONG, branch STRING, balance LONG"


def accounts(*rows: tuple[int, str | None, int | None]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=Schema.of(COLUMNS).arrow)


def written(path: Path, *rows: tuple[int, str | None, int | None], **options: Any) -> str:
    write_deltalake(str(path), accounts(*rows), mode="append", **options)
    return str(path)


def feed() -> dict[str, dict[str, str]]:
    return {"configuration": {"delta.enableChangeDataFeed": "true"}}


def bag(rows: pa.Table) -> list[str]:
    return sorted(json.dumps(row, default=str) for row in rows.select(["id", "branch", "balance"]).to_pylist())


# --- rows ------------------------------------------------------------------------------------------------------------


def test_appended_rows_are_events(tmp_path: Path):
    path = written(tmp_path / "t", (1, "a", 10), (2, "b", 20))
    written(tmp_path / "t", (3, "c", 30))
    stream = hr.read_delta(path, lifetime=hr.point("id"))
    assert stream.schema.names == ("id", "branch", "balance")
    assert [row["balance"] for row in stream.cht().to_pylist()] == [10, 20, 30]


def test_versions_of_the_same_millisecond_are_in_their_order(tmp_path: Path):
    for number in range(12):
        written(tmp_path / "t", (number, "a", number))
    for log in (tmp_path / "t" / "_delta_log").glob("*.json"):
        log.write_text(re.sub(r'"modificationTime":\d+', '"modificationTime":1700000000000', log.read_text()))
    assert read_table(str(tmp_path / "t"))["id"].to_pylist() == list(range(12))


def test_a_query_continues_where_it_stopped(tmp_path: Path):
    path = written(tmp_path / "t", (1, "a", 10))
    stream = hr.read_delta(path, lifetime=hr.point("id"))
    found = []
    for number in range(2, 6):
        written(tmp_path / "t", (number, "a", number))
        DeltaTable(path).optimize.compact()  # moves rows, and changes none
        sink = hr.memory()
        query = stream.start(sink, host="local", checkpoint=str(tmp_path / "state"))
        query.process_all_available()
        query.stop()
        found.append(sorted(row["id"] for row in sink.events().to_pylist() if row["kind"] == "insert"))
    assert found == [[1, 2], [3], [4], [5]]


def test_a_large_snapshot_is_read_in_several_batches(tmp_path: Path):
    path = str(tmp_path / "t")
    for number in range(3):
        write_deltalake(path, pa.table({"id": range(10 * number, 10 * number + 10), "v": [number] * 10}), mode="append")
    sink = hr.memory()
    query = hr.read_delta(path, lifetime=hr.point("id")).start(sink, host="local", rows_per_batch=4)
    query.process_all_available()
    query.stop()
    assert len(sink.batches) == 8
    assert sorted(row["id"] for row in sink.cht().to_pylist()) == list(range(30))


@pytest.mark.parametrize(("start", "expected"), [
    ("snapshot", [2, 3, 4]), ("earliest", [1, 2, 3, 4]), ("latest", []), (0, [1, 2, 3, 4]), (2, [3, 4]), (3, [4]),
])  # fmt: skip
def test_where_a_query_begins(tmp_path: Path, start: str | int, expected: list[int]):
    path = written(tmp_path / "t", (1, "a", 1), (2, "a", 2))  # version 0
    DeltaTable(path).delete("id = 1")
    written(tmp_path / "t", (3, "a", 3))
    written(tmp_path / "t", (4, "a", 4))
    stream = hr.read_delta(path, lifetime=hr.point("id"), start=start, deletes="ignore")
    assert [row["id"] for row in stream.cht().to_pylist()] == expected


def test_a_query_begins_at_a_time(tmp_path: Path):
    path = written(tmp_path / "t", (1, "a", 1))
    written(tmp_path / "t", (2, "a", 2))
    for version, hour in enumerate((10, 12)):
        log = tmp_path / "t" / "_delta_log" / f"{version:020d}.json"
        at = int(datetime(2024, 5, 1, hour, tzinfo=UTC).timestamp() * 1000)
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            action.get("commitInfo", {})["timestamp"] = at
        log.write_text("\n".join(json.dumps(action) for action in actions))

    def read(start: Any) -> list[int]:
        rows = hr.read_delta(path, lifetime=hr.point("_commit_timestamp"), start=start).cht().to_pylist()
        assert all(row["le"] == row["_commit_timestamp"] for row in rows)
        return [row["id"] for row in rows]

    assert read("2024-05-01T09:00:00Z") == [1, 2]
    assert read("2024-05-01T11:00:00Z") == read(datetime(2024, 5, 1, 12, tzinfo=UTC)) == [2]
    assert read("2024-05-01T12:00:00.001Z") == []


def test_a_version_that_deletes_is_refused_unless_deletes_are_ignored(tmp_path: Path):
    path = written(tmp_path / "t", (1, "a", 1), (2, "a", 2))
    DeltaTable(path).update(updates={"balance": "7"}, predicate="id = 2")
    with pytest.raises(SourceError, match=r"version 1 of the Delta table t deletes or updates 1 rows") as caught:
        hr.read_delta(path, lifetime=hr.point("id"), start="earliest").cht()
    assert "deletes='ignore'" in str(caught.value.instead)
    rows = hr.read_delta(path, lifetime=hr.point("id"), start="earliest", deletes="ignore").cht().to_pylist()
    assert [(row["id"], row["balance"]) for row in rows] == [(1, 1), (2, 2), (2, 7)], "the new row, and no copies"


def test_partition_columns_have_their_types_and_odd_values(tmp_path: Path):
    path = str(tmp_path / "t")
    rows = pa.table({
        "ts": [1, 2, 3, 4], "day": pa.array([date(2024, 5, 1), None, date(2024, 5, 2), date(2024, 5, 2)]),
        "at": pa.array([1, None, 3, 1_500_000]).cast(pa.timestamp("us", "UTC")),
        "name": ["a b/c=d%20", None, "žluť+&?#", ":"], "ok": [True, False, None, True],
    })  # fmt: skip
    write_deltalake(path, rows, partition_by=["day", "at", "name", "ok"])
    for start in ("snapshot", "earliest", 0):
        found = hr.read_delta(path, lifetime=hr.point("ts"), start=start).cht().select(rows.column_names)
        assert found.to_pylist() == rows.to_pylist()
    assert hr.delta_table(path).sort_by("ts").to_pylist() == rows.to_pylist()


def test_a_column_that_was_added_later_is_null_before(tmp_path: Path):
    path = written(tmp_path / "t", (1, "a", 1))
    write_deltalake(path, pa.table({"id": [2], "note": ["new"]}), mode="append", schema_mode="merge")
    rows = hr.read_delta(path, lifetime=hr.point("id"), start="earliest").cht().to_pylist()
    assert [(row["id"], row["branch"], row["note"]) for row in rows] == [(1, "a", None), (2, None, "new")]


def test_a_schema_picks_columns(tmp_path: Path):
    path = written(tmp_path / "t", (1, "a", 1))
    picked = hr.read_delta(path, "id LONG, _commit_version LONG", lifetime=hr.point("id"))
    assert [(row["id"], row["_commit_version"]) for row in picked.cht().to_pylist()] == [(1, 0)]
    with pytest.raises(UnknownColumn, match="balanse"):
        hr.read_delta(path, "id LONG, balanse LONG", lifetime=hr.point("id"))


# --- changes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_feed", [True, False])
def test_rows_of_a_key_last_until_their_next_change(tmp_path: Path, with_feed: bool):
    path = written(tmp_path / "t", (1, "n", 10), (2, "n", 50), **(feed() if with_feed else {}))
    DeltaTable(path).update(updates={"balance": "11"}, predicate="id = 1")
    DeltaTable(path).delete("id = 2")
    stream = hr.read_delta(path, key="id", at="_commit_version", start="earliest")
    assert [(r["le"], r["re"], r["id"], r["balance"]) for r in stream.cht().to_pylist()] == [
        (0, 1, 1, 10), (0, 2, 2, 50), (1, hr.INFINITY, 1, 11),
    ]  # fmt: skip
    by_commit = hr.read_delta(path, key="id", start="earliest").cht()
    assert pa.types.is_timestamp(by_commit.schema.field("le").type)
    assert bag(by_commit) == bag(stream.cht())


def test_changes_are_a_log(tmp_path: Path):
    path = written(tmp_path / "t", (1, "n", 10), (2, "n", 50), **feed())
    DeltaTable(path).update(updates={"balance": "11"}, predicate="id = 1")
    log = hr.read_source("delta", lifetime=hr.point("_commit_version"), path=path, changes=True, start=1).cht()
    assert log["_change_type"].to_pylist() == ["update_preimage", "update_postimage"]
    changes = hr.read_changes(DeltaSource.of(path, start="earliest"), key="id", at="_commit_version")
    assert changes.cht() == hr.read_delta(path, key="id", at="_commit_version", start="earliest").cht()


def _statements(number: int) -> dict[str, Callable[[str, Any], object]]:
    """What may happen to a table; `draw` gives a number."""

    def merge(path: str, draw: Any) -> object:
        source = accounts(*((draw(7), "m", draw(100)) for _ in range(1)), (10 + number, "m", number))
        merging = DeltaTable(path).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        return merging.when_matched_update_all().when_not_matched_insert_all().execute()

    def restore(path: str, draw: Any) -> object:
        table = DeltaTable(path)
        return table.restore(draw(table.version())) if table.version() else None

    return {
        "append": lambda path, draw: written(Path(path), (20 + number, f"b{draw(3)}", draw(5))),
        "update": lambda path, draw: DeltaTable(path).update({"balance": f"{draw(9)}"}, None, f"id % 3 = {draw(3)}"),
        "delete": lambda path, draw: DeltaTable(path).delete(f"id % 5 = {draw(5)}"),
        "merge": merge,
        "compact": lambda path, _: DeltaTable(path).optimize.compact(),
        "overwrite": lambda path, draw: write_deltalake(
            path, accounts((draw(4), "o", 1), (9, None, None)), mode="overwrite"
        ),
        "restore": restore,
    }


@settings(deadline=None)
@given(st.data())
def test_oracle_at_every_version_the_rows_alive_are_those_of_the_table(tmp_path_factory: Any, data: st.DataObject):
    folder = tmp_path_factory.mktemp("delta")
    path, with_feed = str(folder / "t"), data.draw(st.booleans(), "change data feed")
    partitions = data.draw(st.sampled_from([[], ["branch"]]), "partitions")
    written(
        folder / "t", *((n, f"b{n % 2}", n) for n in range(8)), partition_by=partitions, **(feed() if with_feed else {})
    )
    for number in range(data.draw(st.integers(1, 6))):
        what = data.draw(st.sampled_from(sorted(_statements(0))))
        _statements(number)[what](path, lambda below: data.draw(st.integers(0, below - 1)))
    last = DeltaTable(path).version()
    start = data.draw(st.sampled_from(["snapshot", "earliest"]))
    stream = hr.read_delta(path, key="id", at="_commit_version", start=start)
    query = stream.start(sink := hr.memory(), host="local", rows_per_batch=data.draw(st.integers(1, 20)))
    query.process_all_available()
    query.stop()
    history = sink.cht()
    for version in range(last if start == "snapshot" else 0, last + 1):
        alive = history.filter((pc.field("le") <= version) & (pc.field("re") > version))
        assert bag(alive) == bag(DeltaTable(path, version=version).to_pyarrow_table()), version
    shutil.rmtree(folder)


# --- what cannot be read ---------------------------------------------------------------------------------------------


def test_rows_need_a_lifetime_or_a_key(tmp_path: Path):
    path = written(tmp_path / "t", (1, "a", 1))
    for options in ({}, {"key": "id", "lifetime": hr.point("id")}):
        with pytest.raises(PlanError, match="have a lifetime, or are those of a key"):
            hr.read_delta(path, **options)
    with pytest.raises(PlanError, match="unknown start"):
        hr.read_delta(path, key="id", start="yesterday")
    with pytest.raises(PlanError, match="unknown start"):
        hr.read_delta(path, key="id", start=-1)
    with pytest.raises(SourceError, match="has the versions 0 to 0"):
        hr.read_delta(path, key="id", start=7).cht()
    with pytest.raises(SourceError, match="there is no Delta table at"):
        hr.read_delta(tmp_path / "nowhere", key="id")


def test_files_that_vacuum_removed_are_an_error_that_names_them(tmp_path: Path):
    path = written(tmp_path / "t", (1, "a", 1))
    written(tmp_path / "t", (2, "a", 1))
    DeltaTable(path).optimize.compact()
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert [row["id"] for row in hr.read_delta(path, key="id").cht().to_pylist()] == [1, 2], "a snapshot needs them not"
    with pytest.raises(SourceError, match=r"is gone: VACUUM has removed"):
        hr.read_delta(path, key="id", start="earliest").cht()


def test_a_table_that_was_replaced_is_noticed(tmp_path: Path):
    path = tmp_path / "t"
    for number in range(4):
        written(path, (number, "a", 1))
    stream = hr.read_delta(path, key="id")

    def run() -> None:
        query = stream.start(hr.memory(), host="local", checkpoint=str(tmp_path / "state"))
        try:
            query.process_all_available()
        finally:
            query.stop()

    run()
    shutil.rmtree(path)
    written(path, (1, "a", 1))
    with pytest.raises(SourceError, match="the table was replaced"):
        run()


def test_features_that_are_not_understood_are_refused(tmp_path: Path):
    path = written(tmp_path / "t", (1, "a", 1))
    log = tmp_path / "t" / "_delta_log" / f"{1:020d}.json"
    vector = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    add = {"path": "x.parquet", "size": 1, "modificationTime": 0, "dataChange": True, "deletionVector": vector}
    source = DeltaSource.of(path, start=1)
    for action, expected in [
        ({"add": add}, "deletion vectors"),
        ({"metaData": {"configuration": {"delta.columnMapping.mode": "name"}}}, "other names of columns"),
        ({"protocol": {"minReaderVersion": 3, "readerFeatures": ["someday"]}}, "must understand someday"),
    ]:
        log.write_text(json.dumps(action))
        reach = source.offsets({})["versions"]
        with pytest.raises(SourceError, match=expected):
            list(source.read("versions", source.begin("versions", reach), reach.end, ["id"]))


@pytest.mark.slow
def test_the_contract_of_sources_is_kept(tmp_path: Path):
    path = str(tmp_path / "t")
    columns = Schema.of("k STRING, ts DATETIME, v LONG, x DOUBLE, ok BOOLEAN, day DATE")
    DeltaTable.create(path, columns.arrow)
    report = check_source(DeltaSource.of(path), lambda _, rows: write_deltalake(path, rows, mode="append"), runs=2)
    assert "✗" not in str(report)
