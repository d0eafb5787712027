"""No declared or inferred column disappears: it is payload, it is the lifetime, or it is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import col
from headrace.errors import SchemaError, SqlError, UnknownColumn
from headrace.schema import RESERVED, Schema

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose

SCHEMA = "t LONG, kind STRING, weight DOUBLE, re LONG, v LONG"
ROW = {"t": 1, "kind": "a", "weight": 1.5, "re": 9, "v": 2}
NAMES = {"kind": "sort", "re": "until"}
READERS: dict[str, Callable[..., hr.Stream]] = {
    "csv": hr.read_csv, "jsonl": hr.read_json, "parquet": hr.read_parquet,
}  # fmt: skip


@pytest.fixture(params=READERS)
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., hr.Stream]:
    path = tmp_path / f"kw.{request.param}"
    if request.param == "parquet":
        pq.write_table(pa.Table.from_pylist([ROW]), path)
    else:
        text = '{"t": 1, "kind": "a", "weight": 1.5, "re": 9, "v": 2}\n'
        path.write_text("t,kind,weight,re,v\n1,a,1.5,9,2\n" if request.param == "csv" else text)
    return lambda schema, **options: READERS[request.param](str(path), schema, **{"lifetime": hr.point("t"), **options})


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_names_of_an_events_parts_are_refused_with_a_way_out(read: Callable[..., hr.Stream], schema: str | None):
    with pytest.raises(SchemaError, match="'kind'") as raised:
        read(schema)
    assert raised.value.instead == "rename={'kind': 'kind_'}"
    stream = read(schema, rename=NAMES)
    assert str(stream.schema) == "t LONG, sort STRING, weight DOUBLE, until LONG, v LONG"
    expected = [{"le": 1, "re": 2, "t": 1, "sort": "a", "weight": 1.5, "until": 9, "v": 2}]
    assert stream.cht().to_pylist() == stream.history(engine="duckdb").cht().to_pylist() == expected


def test_renamed_columns_are_filtered_picked_and_read_whole(read: Callable[..., hr.Stream]):
    stream = read(SCHEMA, rename=NAMES, progress=hr.ordered())
    assert stream.where(col("until") > 3).select("sort").cht()["sort"].to_pylist() == ["a"]
    assert stream.where(col("until") > 9).cht().num_rows == 0
    lasting = read(SCHEMA, rename=NAMES, lifetime=hr.interval("t", "until"))
    assert lasting.select("v").cht().to_pylist() == [{"le": 1, "re": 9, "v": 2}]
    (refused,) = read(SCHEMA, rename=NAMES, lifetime=hr.interval("until", "t")).run().diverted().to_pylist()
    assert '"sort": "a"' in refused["row"]


def test_the_schema_may_say_the_new_names(read: Callable[..., hr.Stream]):
    renamed = "t LONG, sort STRING, weight DOUBLE, until LONG, v LONG"
    assert read(renamed, rename=NAMES).cht()["sort"].to_pylist() == ["a"]
    with pytest.raises(UnknownColumn, match="sorts"):
        read(SCHEMA, rename={"sorts": "other"})
    with pytest.raises(SchemaError, match="one name"):
        read(SCHEMA, rename={"kind": "x", "re": "x"})
    with pytest.raises(SchemaError, match="'le'"):
        read(SCHEMA, rename={"kind": "le", "re": "until"})


def test_an_end_of_the_lifetime_need_not_be_payload(read: Callable[..., hr.Stream]):
    stream = read(SCHEMA, rename={"kind": "sort"}, lifetime=hr.interval("t", "re"))
    assert stream.cht().to_pylist() == [{"le": 1, "re": 9, "t": 1, "sort": "a", "weight": 1.5, "v": 2}]
    with pytest.raises(SchemaError, match="'re'"):  # computed with, it would be lost
        read(SCHEMA, rename={"kind": "sort"}, lifetime=hr.interval("t", col("re") + 1))


def test_a_renamed_column_is_read_as_its_new_name_says(tmp_path: Path):
    """`re` may be the end of time where it is a lifetime's end; a number of another name may not."""
    (tmp_path / "a.csv").write_text("t,re\n1,inf\n2,3\n")
    (tmp_path / "a.jsonl").write_text('{"t": 1, "re": "inf"}\n{"t": 2, "re": 3}\n')
    for name, read in (("a.csv", hr.read_csv), ("a.jsonl", hr.read_json)):
        run = read(str(tmp_path / name), "t LONG, re LONG", lifetime=hr.point("t"), rename={"re": "n"}).run()
        assert run.cht()["n"].to_pylist() == [3]
        assert "column 'n': 'inf'" in run.diverted()["reason"][0].as_py()


def test_events_and_operators_may_have_a_weight():
    stream = hr.events([{"le": 1, "weight": 2.5}])
    heavy = stream.window(hr.tumbling(2)).aggregate(weight=hr.sum("weight"))
    assert heavy.cht().to_pylist() == heavy.history(engine="duckdb").cht().to_pylist()
    assert heavy.cht()["weight"].to_pylist() == [2.5]
    assert "weight" not in RESERVED


def test_sql_renames_too(tmp_path: Path):
    (tmp_path / "kw.csv").write_text("t,kind,weight\n1,a,1.5\n")
    source = f"ORDER BY t SOURCE FILE ('{tmp_path / 'kw.csv'}', ',', rename => 'kind AS sort')"
    ask = "QUERY q AS SELECT sort, weight FROM s"
    for name in ("kind", "sort"):
        script = hr.script(f"CREATE STREAM s (t LONG, {name} STRING, weight DOUBLE) {source}; {ask}")
        assert script.queries["q"].cht().to_pylist() == [{"le": 1, "re": 2, "sort": "a", "weight": 1.5}]
    with pytest.raises(SqlError, match="renames no column"):
        hr.script(f"CREATE STREAM s (t LONG) {source.replace(' AS ', ' ')}; {ask}")


# ---- types that no column has

ODD = {
    "decimal": pa.array([Decimal("1.50")], pa.decimal256(50, 2)),
    "object": [{"a": b"x"}], "lists": [[[b"x"]]],
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "big": pa.array([2**63], pa.uint64()),
    "bytes": [b"x"],
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_columns_of_types_that_do_not_exist_are_refused_by_name(tmp_path: Path, name: str):
    table = pa.table({"t": [1], "v": [2], name: ODD[name]})
    pq.write_table(table, tmp_path / "a.parquet")
    readers: list[Callable[[], Any]] = [
        lambda: hr.read_parquet(str(tmp_path / "a.parquet"), lifetime=hr.point("t")),
        lambda: hr.events(table.rename_columns(["le", "v", name])),
        lambda: hr.events([{"le": 1, "v": 2}]).join_table(table, on="v"),
        lambda: Schema.of(table.schema),
    ]
    for reader in readers:
        with pytest.raises(SchemaError, match=f"no column type holds '{name}'") as raised:
            reader()
        assert "v LONG" in raised.value.instead
    narrower = hr.read_parquet(str(tmp_path / "a.parquet"), "t LONG, v LONG", lifetime=hr.point("t"))
    assert narrower.cht()["v"].to_pylist() == [2]


def test_objects_of_json_are_structs(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"t": 1, "o": {"a": 1, "l": [["x"]]}}\n')
    read = hr.read_json(str(tmp_path / "a.jsonl"), lifetime=hr.point("t"))
    assert str(read.schema) == "t LONG, o STRUCT<a LONG, l ARRAY<ARRAY<STRING>>>"
    assert read.cht()["o"].to_pylist() == [{"a": 1, "l": [["x"]]}]


def test_what_is_suggested_for_a_type_that_does_not_exist_can_be_read(tmp_path: Path):
    pq.write_table(pa.table({"t": [1], **{n: ODD[n] for n in ("decimal", "bytes")}}), tmp_path / "a.parquet")
    stream = hr.read_parquet(
        str(tmp_path / "a.parquet"), "t LONG, decimal DOUBLE, bytes STRING", lifetime=hr.point("t")
    )
    assert stream.cht().to_pylist() == [{"le": 1, "re": 2, "t": 1, "decimal": 1.5, "bytes": "x"}]
    with pytest.raises(SchemaError, match=r"no DECIMAL\(40,2\)") as raised:
        Schema.of("a STRING, p DECIMAL(40, 2), c LONG")
    assert "DECIMAL(38" in raised.value.instead


def test_the_named_index_of_a_frame_is_a_column():
    frame = pd.DataFrame({"le": [1, 2], "v": [3, 4]}, index=pd.Index(["a", "b"], name="k"))
    assert hr.events(frame).cht()["k"].to_pylist() == ["a", "b"]
    assert hr.events(frame.reset_index(drop=True)).schema.names == ("v",)
    joined = hr.events([{"le": 1, "k": "b"}]).join_table(frame[["v"]], on="k")
    assert joined.cht()["v"].to_pylist() == [4]
