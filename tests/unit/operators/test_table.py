"""Stream–table joins: what they give, when a table is read, and what a table that changes is (rule 4)."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.api.running import outputs_of
from headrace.errors import BadRow, CheckpointError, PlanError, SchemaError, SourceError, UnknownColumn
from headrace.host.driving.checkpoint import Checkpoint
from headrace.io import tables as io_tables
from headrace.operators import table as kernel
from headrace.optimizer import optimize
from headrace.plan.nodes import Source, TableJoin, walk
from headrace.stages.cut import Line, cut
from headrace.testing.strategies import SCHEMA, batch_sizes, buckets, payloads, physical_streams, tables
from headrace.testing.verify.differential import differential_reference

COUNTRIES = pa.table({"code": ["at", "ch", "ch", None], "name": ["Austria", "Switzerland", "Suisse", "nowhere"]})


def orders() -> hr.Stream:
    return hr.events(
        """
        kind    | le | re | re_new | code | x
        insert  | 1  | 9  |        | at   | 1
        insert  | 2  | ∞  |        | ch   | 2
        insert  | 3  | 4  |        |      | 3
        insert  | 3  | 5  |        | xx   | 4
        retract | 1  | 9  | 6      | at   | 1
        """,
        batches=[2, 3],
    )


def given_by(stream: hr.Stream) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in stream.cht().to_pylist()), key=repr)


def line_of(stream: hr.Stream) -> Line:
    return cut(optimize(outputs_of({"out": stream.node})))


# --- what they give --------------------------------------------------------------------------------------------------


def test_every_row_of_the_key_gives_one_event_and_nulls_match_nothing():
    matched = [
        (1, 6, "at", 1, "Austria"), (2, hr.INFINITY, "ch", 2, "Suisse"), (2, hr.INFINITY, "ch", 2, "Switzerland")
    ]  # fmt: skip
    assert given_by(orders().join_table(COUNTRIES, "code")) == matched
    alone = [(3, 4, None, 3, None), (3, 5, "xx", 4, None)]
    assert given_by(orders().join_table(COUNTRIES, "code", "left")) == [*matched, *alone]
    assert given_by(orders().join_table(COUNTRIES.slice(0, 0), "code")) == []
    assert len(given_by(orders().join_table(COUNTRIES.slice(0, 0), "code", how="left"))) == 4


def test_keys_of_other_names_and_names_that_are_taken():
    table = COUNTRIES.rename_columns(["id", "x"])
    joined = orders().join_table(table, {"code": "id"})
    assert joined.schema.names == ("code", "x", "id", "x_right")
    assert joined.cht()["id"].to_pylist() == ["at", "ch", "ch"]


def test_a_table_inside_apply_meets_every_group():
    joined = orders().group_by("code").apply(lambda group: group.join_table(COUNTRIES, "code", "left"))
    differential_reference(joined.node, buckets=3)
    assert given_by(joined) == given_by(orders().join_table(COUNTRIES, "code", "left"))


@st.composite
def streams(draw: st.DrawFn) -> hr.Stream:
    events = draw(physical_streams(max_events=10))
    return hr.events(tables(events), SCHEMA, batches=draw(batch_sizes(len(events))))


KEYS = ("k", "i", "x", ("k", "i"), ("x", "k"))


@pytest.mark.slow
@given(
    streams(), st.lists(payloads(), max_size=8), st.sampled_from(KEYS), st.sampled_from(["inner", "left"]), buckets()
)
def test_differential_table_join(stream: hr.Stream, rows: list[dict[str, Any]], on: Any, how: Any, n: int):
    table = pa.Table.from_pylist(rows, schema=SCHEMA.arrow)
    joined = stream.join_table(table, on, how)
    differential_reference(joined.node, buckets=n)
    differential_reference(joined.select("k", "i", n=col("i_right") if "i_right" in joined.schema else 1).node)
    windows = joined.group_by("k").window(hr.tumbling(5)).aggregate(n=hr.count(), m=hr.max("x"))
    differential_reference(windows.final().node, buckets=n)


def test_keys_with_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch):
    kernel._index.cache_clear()
    monkeypatch.setattr(kernel, "hash_rows", lambda table: table.column(0).is_null().to_numpy().astype("uint64"))
    stream = hr.events([{"kind": "insert", "le": 1, "re": 2, "f": f} for f in (1.0, math.nan, -0.0, None)], "f DOUBLE")
    table = pa.table({"f": [0.0, math.nan, 3.0, None], "n": [1, 2, 3, 4]})
    assert sorted(stream.join_table(table, "f").cht()["n"].to_pylist()) == [1, 2]
    kernel._index.cache_clear()


# --- files -----------------------------------------------------------------------------------------------------------


def test_parquet_csv_json_and_directories(tmp_path: Path):
    pq.write_table(COUNTRIES, tmp_path / "c.parquet")
    (tmp_path / "c.csv").write_text("code,name\nat,Austria\nch,Switzerland\nch,Suisse\n,nowhere\n")
    (tmp_path / "c.jsonl").write_text('{"code": "at", "name": "Austria"}\n{"code": "ch", "name": "Switzerland"}\n')
    (tmp_path / "parts").mkdir()
    pq.write_table(COUNTRIES.slice(0, 1), tmp_path / "parts" / "1.parquet")
    pq.write_table(COUNTRIES.slice(1), tmp_path / "parts" / "2.parquet")
    expected = given_by(orders().join_table(COUNTRIES, "code", "left"))
    for path in (tmp_path / "c.parquet", str(tmp_path / "parts"), str(tmp_path / "parts" / "*.parquet")):
        assert given_by(orders().join_table(path, "code", "left")) == expected
    csv = orders().join_table(str(tmp_path / "c.csv"), "code", "left", schema="code STRING, name STRING")
    assert given_by(csv) == expected
    assert len(given_by(orders().join_table(tmp_path / "c.jsonl", "code"))) == 2


def test_a_file_is_read_when_the_query_starts_and_only_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "names.csv"
    path.write_text("code,name\nat,old\n")
    joined = orders().join_table(path, "code")
    path.write_text("code,name\nat,new\n")
    assert joined.cht()["name"].to_pylist() == ["new"]
    line = line_of(joined)
    path.unlink()
    (node,) = [node for node in line.nodes if isinstance(node, TableJoin)]
    assert node.table.table.to_pylist() == [{"code": "at", "name": "new"}]
    with pytest.raises(SourceError, match="there is no file"):
        joined.cht()

    reads = []
    path.write_text("code,name\nat,new\n")
    read_file = io_tables.read_file
    monkeypatch.setattr(io_tables, "read_file", lambda *args: reads.append(args[0]) or read_file(*args))
    two = joined.union(orders().join_table(path, "code").where(col("x") > 1))
    two.run(batch_rows=1)
    assert len(reads) == 1, "one file, one query, one reading"


def test_a_checkpoint_knows_the_content_of_the_table(tmp_path: Path):
    path = tmp_path / "names.csv"
    path.write_text("code,name\nat,one\n")
    joined = orders().join_table(path, "code")
    Checkpoint(str(tmp_path / "state")).claim(line_of(joined), 2)
    Checkpoint(str(tmp_path / "state")).claim(line_of(orders().join_table(path, "code")), 2)
    path.write_text("code,name\nat,two\n")
    with pytest.raises(CheckpointError, match=r"names.csv of 1 rows #"):
        Checkpoint(str(tmp_path / "state")).claim(line_of(joined), 2)


def test_workers_get_the_rows_with_the_plan_and_sort_them_once():
    joined = orders().join_table(COUNTRIES, "code")
    line = line_of(joined)
    (node,) = [node for node in line.nodes if isinstance(node, TableJoin)]
    kernel._index.cache_clear()
    saved = pickle.dumps(line)
    for _ in range(3):  # as tasks do, which bring a copy of the plan each
        (copy,) = [node for node in pickle.loads(saved).nodes if isinstance(node, TableJoin)]  # noqa: S301 - our own
        assert copy == node
        assert copy.table.table.equals(node.table.table)
        assert len(kernel._index(copy.table, ("code",))[0]) == 4
    assert kernel._index.cache_info().misses == 1


def test_a_table_adds_no_stage_and_reads_no_column_that_nobody_uses(tmp_path: Path):
    (tmp_path / "o.csv").write_text("t,code,x,y\n1,at,1,2\n2,ch,3,4\n")
    stream = hr.read_csv(str(tmp_path / "o.csv"), "t LONG, code STRING, x INT, y INT", lifetime=hr.point("t"))
    table = COUNTRIES.append_column("y", pa.array([1, 2, 3, 4]))
    counted = stream.join_table(table, "code").group_by("name").window(hr.tumbling(10)).aggregate(s=hr.sum("y_right"))
    line = line_of(counted)
    assert line.depth == 1
    (source,) = [node for node in walk(*line.outputs) if isinstance(node, Source)]
    assert source.schema.names == ("code",)
    assert sorted(counted.cht()["s"].to_pylist()) == [1, 2, 3]


# --- tables that change ----------------------------------------------------------------------------------------------


def versions(folder: Path, key: str | tuple[str, ...] = ()) -> hr.Stream:
    """Rows that hold from `since` on: until the next of the key or, without one, until the next version of all."""
    return hr.read_csv(
        str(folder), "currency STRING, since LONG, rate DOUBLE", lifetime=hr.edge("since", key=key),
        progress=hr.advance(5, late="raise"),
    )  # fmt: skip


def test_a_table_that_changes_is_a_stream(tmp_path: Path):
    (tmp_path / "1.csv").write_text("currency,since,rate\nCHF,0,1.0\nUSD,0,0.9\n")
    (tmp_path / "2.csv").write_text("currency,since,rate\nCHF,10,1.1\n")
    sales = hr.events("le | currency | amount \n 4 | CHF | 100 \n 12 | CHF | 100 \n 12 | USD | 10 \n 3 | XXX | 1")
    by_key = sales.left_join(versions(tmp_path, "currency").select("currency", "rate"), "currency")
    assert [(row["le"], row["currency"], row["rate"]) for row in by_key.cht(batch_rows=1).to_pylist()] == [
        (3, "XXX", None), (4, "CHF", 1.0), (12, "CHF", 1.1), (12, "USD", 0.9)
    ]  # fmt: skip
    whole = sales.join(versions(tmp_path).select("currency", "rate"), "currency")
    assert [(row["le"], row["currency"], row["rate"]) for row in whole.cht(batch_rows=1).to_pylist()] == [
        (4, "CHF", 1.0), (12, "CHF", 1.1)
    ], "a new version of the whole table has no dollar any more"  # fmt: skip


# --- what makes no sense ---------------------------------------------------------------------------------------------


def test_what_makes_no_sense_is_refused_when_it_is_built(tmp_path: Path):
    stream = orders()
    with pytest.raises(PlanError, match="needs a key"):
        stream.join_table(COUNTRIES, on=())
    with pytest.raises(PlanError, match="same type"):
        stream.join_table(COUNTRIES, {"x": "code"})
    with pytest.raises(PlanError, match=r"no such join.*\n.*\n.*\n.*how='left'"):
        stream.join_table(COUNTRIES, "code", how="outer")  # type: ignore[arg-type]
    with pytest.raises(UnknownColumn):
        stream.join_table(COUNTRIES, "cod")
    with pytest.raises(UnknownColumn, match="in the frame"):
        stream.join_table(COUNTRIES, "code", schema="code STRING, nam STRING")
    with pytest.raises(SourceError, match="there is no file"):
        stream.join_table(tmp_path / "none.parquet", "code")
    with pytest.raises(SourceError, match="no file is at"):
        stream.join_table(tmp_path, "code")
    with pytest.raises(PlanError, match="not a table") as error:
        stream.join_table(stream, "code")
    assert "join(other" in str(error.value)
    with pytest.raises(SchemaError, match="may not be named"):
        stream.join_table(COUNTRIES.rename_columns(["code", "le"]), "code")


def test_a_table_with_a_row_that_cannot_be_read_is_no_table(tmp_path: Path):
    (tmp_path / "t.csv").write_text("code,n\nat,1\nch,many\n")
    joined = orders().join_table(tmp_path / "t.csv", "code", schema="code STRING, n INT")
    with pytest.raises(BadRow, match="many"):
        joined.cht()
    with pytest.raises(BadRow):
        orders().join_table(pa.table({"code": ["at"], "n": ["many"]}), "code", schema="code STRING, n INT")


def test_a_table_too_large_to_travel_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(io_tables, "MOST_BYTES", 10)
    with pytest.raises(PlanError, match="too large") as error:
        orders().join_table(COUNTRIES, "code")
    assert "hr.edge" in str(error.value)
