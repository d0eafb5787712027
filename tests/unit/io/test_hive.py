"""Folders named after values: what a sink writes, what readers find, whatever the values are."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import PlanError
from headrace.io.commit import BatchDirectory
from headrace.io.hive import divided, folder_values

SALES = "ts LONG, day DATE, shop STRING, price LONG"


def sales() -> pa.Table:
    return pa.table({
        "ts": pa.array([1, 2, 3, 4]),
        "day": pa.array([date(2024, 5, 1), date(2024, 5, 2), None, date(2024, 5, 1)]),
        "shop": pa.array(["a/b", "ž=1", "a/b", None]),
        "price": pa.array([4, 3, 2, 1]),
    })  # fmt: skip


def written(out: Any, **options: Any) -> None:
    stream = hr.from_arrow(sales(), lifetime=hr.point("ts"))
    query = stream.start(hr.files(str(out), format="parquet", **options), host="local", checkpoint=f"{out}.state")
    query.finish()
    query.stop()


def test_files_are_in_folders_of_their_values_and_sorted(tmp_path: Path):
    written(tmp_path / "out", encoding="final", partition_by=["day", "shop"], sort_by="price")
    folders = {
        Path(file).parent.relative_to(tmp_path / "out").as_posix()
        for file in BatchDirectory(str(tmp_path / "out")).files()
    }
    assert {folder.partition("/")[2] for folder in folders} == {
        "day=2024-05-01/shop=a%2Fb", "day=2024-05-02/shop=ž%3D1", "day=__HIVE_DEFAULT_PARTITION__/shop=a%2Fb",
        "day=2024-05-01/shop=__HIVE_DEFAULT_PARTITION__",
    }  # fmt: skip
    by_day = hr.read_parquet(str(tmp_path / "out"), lifetime=hr.interval("le", "re"))
    assert by_day.cht()["price"].to_pylist() == [4, 3, 2, 1]


def test_other_systems_read_the_folders(tmp_path: Path):
    written(tmp_path / "out", encoding="final", partition_by="shop", sort_by=["price", "le"])
    pattern = f"{tmp_path}/out/*/*/*.parquet"
    found = duckdb.sql(f"SELECT price, shop FROM read_parquet('{pattern}', hive_partitioning = true) ORDER BY price")
    assert [row[0] for row in found.fetchall()] == [1, 2, 3, 4]


@pytest.mark.parametrize("encoding", ["events", "changes"])
def test_logs_may_be_divided(tmp_path: Path, encoding: Any):
    written(tmp_path / "out", encoding=encoding, partition_by="shop")
    if encoding == "events":
        again = hr.read_events(f"{tmp_path}/out/**/*.parquet", SALES)
        assert sorted(again.cht()["price"].to_pylist()) == [1, 2, 3, 4]


@pytest.mark.slow
def test_folders_on_s3(s3: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    stream = hr.from_arrow(sales(), lifetime=hr.point("ts"))
    sink = hr.files(f"{s3}/out", format="parquet", encoding="final", partition_by=["day", "shop"])
    query = stream.start(sink, host="local", checkpoint=f"{s3}/state")
    query.finish()
    query.stop()
    again = hr.read_parquet(f"{s3}/out", lifetime=hr.interval("le", "re"))
    assert again.cht().select(["shop", "price"]).to_pylist() == sales().select(["shop", "price"]).to_pylist()


def test_columns_that_files_lack_come_from_their_folders(tmp_path: Path):
    for day, shop, price in [("2024-05-01", "a%20b", 1), ("2024-05-02", "__HIVE_DEFAULT_PARTITION__", 2)]:
        folder = tmp_path / "run=7" / "in" / f"day={day}" / f"shop={shop}" / "year=2024"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"ts": pa.array([price]), "price": pa.array([price])}), folder / "x.parquet")
    path = str(tmp_path / "run=7" / "in")
    stream = hr.read_parquet(path, lifetime=hr.point("ts"))
    assert str(stream.schema) == "ts LONG, price LONG, day DATE, shop STRING, year LONG", "not run, which is above"
    expected = [(date(2024, 5, 1), "a b", 2024, 1), (date(2024, 5, 2), None, 2024, 2)]
    names = ["day", "shop", "year", "price"]
    assert [tuple(row.values()) for row in stream.cht().select(names).to_pylist()] == expected
    assert hr.read_parquet(f"{path}/day=*/*/*/*.parquet", lifetime=hr.point("ts")).schema == stream.schema
    declared = hr.read_parquet(path, "ts LONG, day STRING", lifetime=hr.point("ts"))
    assert declared.cht()["day"].to_pylist() == ["2024-05-01", "2024-05-02"]
    only = stream.where(hr.col("shop") == "a b").select(year=hr.col("year"))
    assert only.cht()["year"].to_pylist() == [2024]
    wrong = hr.read_parquet(path, "ts LONG, day LONG", lifetime=hr.point("ts"), bad_rows="raise")
    with pytest.raises(hr.HeadraceError, match="2024-05-01"):
        wrong.cht()


def test_what_cannot_be_a_folder_or_an_order_is_refused(tmp_path: Path):
    for options, message in [
        ({"partition_by": "shops"}, "the rows have no column 'shops'"),
        ({"encoding": "final", "sort_by": "tss"}, "the rows have no column 'tss'"),
        ({"partition_by": "_day"}, "would be hidden"),
        ({"sort_by": "ts"}, "physical events have an order of their own"),
    ]:
        with pytest.raises(PlanError, match=message):
            written(tmp_path / "out", **options)


texts = st.text(st.characters(blacklist_categories=["Cs"]), max_size=8)


@given(st.lists(st.tuples(st.none() | texts, st.none() | st.integers(-3, 3) | st.booleans()), min_size=1, max_size=20))
def test_every_row_is_in_the_folder_of_its_values(rows: list[tuple[Any, Any]]):
    rows = [(text, None if number is None else int(number)) for text, number in rows]
    table = pa.table(
        [pa.array([r[0] for r in rows], pa.string()), pa.array([r[1] for r in rows], pa.int64())], names=["a", "b"]
    )
    found: list[tuple[Any, Any]] = []
    for folder, piece in divided(table, ["a", "b"]):
        values = folder_values(f"{folder}/x")
        assert folder.count("/") == 1
        for a, b in zip(piece["a"].to_pylist(), piece["b"].to_pylist(), strict=True):
            assert (values["a"] or "", values["b"]) == (a or "", None if b is None else str(b))
            found.append((a, b))
    assert sorted(map(repr, found)) == sorted(map(repr, rows))
