"""Keyed changes: five encodings, two kinds of time, files and memory, live and in batch SQL: one table (rule 1.2)."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.strategies.logs import LOGS, TABLE, Change, Row, replayed, seen

import headrace as hr
from headrace import col, errors
from headrace.border import as_ticks
from headrace.io.ingress import Channel
from headrace.io.keyed_changes import ENCODINGS
from headrace.optimizer import optimize
from headrace.plan.nodes import Output, sources_of
from headrace.plan.policies import Changed
from headrace.progress import Progress
from headrace.schema import ARRIVAL, POSITION
from headrace.time import INFINITY

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose

# --- files -----------------------------------------------------------------------------------------------------------

FORMATS: dict[str, Callable[[Path, list[Row]], None]] = {
    "json": lambda path, rows: _write(path, "\n".join(map(json.dumps, rows)) + "\n"),
    "csv": lambda path, rows: _write(path, _csv(rows)),
    "parquet": lambda path, rows: pq.write_table(pa.Table.from_pylist(rows, schema=_columns(rows)), path),
}


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _csv(rows: list[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [",".join("" if row.get(name) is None else str(row.get(name)) for name in names) for row in rows]
    return "\n".join([",".join(names), *lines]) + "\n"


def _columns(rows: list[Row]) -> pa.Schema:
    types = {"ts": pa.int64(), "id": pa.int64(), "v": pa.float64()}
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.schema([(name, types.get(name, pa.string())) for name in names])


SOME: list[Change] = [
    (1, 1, {"name": "a", "v": 1.5}), (2, 2, {"name": "b", "v": 2.0}), (4, 1, {"name": "c", "v": 3.0}),
    (3, 3, {"name": "d", "v": 4.0}), (5, 2, None), (6, 1, {"name": "a", "v": 5.0}), (6, 1, None),
    (6, 3, None), (6, 3, {"name": "e", "v": 6.0}),
]  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("encoding", LOGS)
@pytest.mark.filterwarnings("error::headrace.RowsNotUsed")
def test_files_of_every_format(tmp_path: Path, format: str, encoding: str):
    path = tmp_path / f"log.{format}"
    rows = LOGS[encoding](SOME)
    FORMATS[format](path, [_enveloped(row) for row in rows] if (encoding, format) == ("debezium", "json") else rows)
    stream = hr.read_changes(str(path), TABLE, key="id", encoding=encoding, at="ts")
    assert seen(stream.cht()) == replayed(SOME, in_order=True)
    assert seen(stream.history("duckdb").cht()) == replayed(SOME, in_order=True)
    if format != "csv" and encoding not in ("upsert", "debezium"):  # whose first rows say what there is
        inferred = hr.read_changes(path, key="id", encoding=encoding, at="ts")
        assert hr.same_history(inferred.select("ts", "id", "name", "v").cht(), stream.cht())


def _enveloped(row: Row) -> Row:
    """A change as Debezium writes it."""
    op, image = row["_op"], {name: value for name, value in row.items() if name != "_op"}
    return {"op": op, "before": image if op == "d" else None, "after": None if op == "d" else image, "ts_ms": 1}


def test_envelopes_have_times_and_need_a_schema(tmp_path: Path):
    path = tmp_path / "log.json"
    rows = [{"_op": "c", "id": 1, "v": 10}, {"_op": "d", "id": 1, "v": 10}, {"_op": "t"}]
    path.write_text("\n".join(json.dumps(_enveloped(row) | {"ts_ms": i}) for i, row in enumerate(rows)))
    stream = hr.read_changes(path, "id LONG, v LONG", key="id", encoding="debezium", at="_ts")
    assert table(stream) == [(0, 1000, 1, 10)]
    assert ["unknown" in row["reason"] for row in stream.run().diverted().to_pylist()] == [True]
    with pytest.raises(errors.PlanError, match="need a schema"):
        hr.read_changes(path, key="id", encoding="debezium")


def log_file(folder: Path, name: str, text: str, at: int) -> None:
    (folder / name).write_text("op,id,v\n" + text)
    os.utime(folder / name, ns=(at * 1000, at * 1000))


def table(stream: hr.Stream, **options: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in as_ticks(stream.cht(**options)).to_pylist())


def read(folder: Path, **options: Any) -> hr.Stream:
    return hr.read_changes(folder, "id LONG, v LONG", **({"key": "id", "format": "csv"} | options))


@pytest.mark.parametrize("batch_rows", [None, 1, 2])
def test_files_written_in_the_same_moment_are_one_after_the_other(tmp_path: Path, batch_rows: int | None):
    """Position says nothing about rows of different files. The first row of the second file cannot even be read."""
    log_file(tmp_path, "a.csv", "c,1,10\nc,2,20\nu,1,11\n", at=1000)
    log_file(tmp_path, "b.csv", "u,1,broken\nd,1,\n", at=1000)
    log_file(tmp_path, "c.csv", "d,2,\nc,3,30\n", at=2000)
    expected = [(1000, 1001, 1, 11), (1000, 2000, 2, 20), (2000, INFINITY, 3, 30)]
    assert table(read(tmp_path), batch_rows=batch_rows, buckets=2) == expected
    assert hr.same_history(read(tmp_path).history("duckdb").cht(), read(tmp_path).cht())


def test_an_older_file_that_is_read_later_happens_later(tmp_path: Path):
    """By name the files are in order, and their times are not."""
    log_file(tmp_path, "1.csv", "c,1,10\nc,2,20\n", at=5000)
    log_file(tmp_path, "2.csv", "u,1,11\nd,2,\n", at=1000)
    log_file(tmp_path, "3.csv", "u,1,12\n", at=6000)
    stream = read(tmp_path, order="name")
    assert table(stream) == [(5000, 5001, 1, 10), (5000, 5001, 2, 20), (5001, 6000, 1, 11), (6000, INFINITY, 1, 12)]
    assert hr.same_history(stream.history("duckdb").cht(), stream.cht())
    assert hr.same_history(stream.cht(batch_rows=1), stream.cht())
    counts = stream.run().counts
    assert [(c["rows"], c["accepted"], c["late"]) for c in counts.values()] == [(5, 5, 0)]


def test_at_one_time_the_later_file_counts(tmp_path: Path):
    """With a time of their own, changes in two files may have the same time."""
    for name, at, text in (("a.csv", 2000, "u,1,2,7"), ("b.csv", 1000, "c,1,1,7\nc,1,0,7\nc,2,5,7")):
        (tmp_path / name).write_text(f"op,id,v,ts\n{text}\n")
        os.utime(tmp_path / name, ns=(at * 1000, at * 1000))
    stream = hr.read_changes(tmp_path, "id LONG, v LONG, ts LONG", key="id", at="ts", format="csv")
    assert table(stream.select("id", "v")) == [(7, INFINITY, 1, 2), (7, INFINITY, 2, 5)]
    assert hr.same_history(stream.history("duckdb").cht(), stream.cht())


# --- rows that are no changes ----------------------------------------------------------------------------------------

BROKEN = "c,1,10\nx,1,11\n,1,12\nc,,13\nU,1,14\n-D,1,\nDelete,1,\n"


def test_unknown_operations_and_null_keys_are_malformed(tmp_path: Path):
    log_file(tmp_path, "a.csv", BROKEN, at=1000)
    run = read(tmp_path).run()
    assert run.cht().num_rows == 0  # all of it in one moment, and deleted in the end
    (counts,) = run.counts.values()
    assert (counts["rows"], counts["accepted"], counts["diverted"], counts["malformed"]) == (7, 3, 4, 4)
    aside = run.diverted().to_pylist()
    assert [row["line"] for row in sorted(aside, key=lambda row: row["line"])] == [3, 4, 5, 7]
    reasons = Counter(row["reason"] for row in aside)
    assert reasons == {
        "the operation in 'op' is unknown: it must be one of insert, update, i, u, c, r, delete, d": 3,
        "'id', a column of the key, is null": 1,
    }
    assert not any("__" in row["row"] for row in aside)
    assert hr.same_history(read(tmp_path).history("duckdb").cht(), run.cht())


def test_malformed_rows_are_raised_on_demand(tmp_path: Path):
    log_file(tmp_path, "a.csv", BROKEN, at=1000)
    in_memory = hr.read_changes([{"op": "x", "id": 1}], key="id", bad_rows="raise")
    for stream in (read(tmp_path, bad_rows="raise"), in_memory):
        with pytest.raises(errors.BadRow, match="is unknown"):
            stream.cht()
        with pytest.raises(errors.BadRow):
            stream.history("duckdb").cht()


def test_preimages_are_counted(tmp_path: Path):
    FORMATS["json"](tmp_path / "log.json", [*LOGS["flink"](SOME), {"row_kind": "??", "id": 9, "ts": 7}])
    run = hr.read_changes(tmp_path / "log.json", TABLE, key="id", encoding="flink", at="ts").run()
    (counts,) = run.counts.values()
    assert counts["preimages"] == 2
    assert (counts["rows"], counts["accepted"], counts["diverted"], counts["dropped"]) == (12, 11, 1, 0)
    (aside,) = run.diverted().to_pylist()
    assert aside["line"] == 12
    assert json.loads(aside["row"])["id"] == 9


def test_rows_that_are_diverted_have_all_their_columns(tmp_path: Path):
    """Also those that the query does not read; and pre-images before them do not confuse which row it is."""
    rows = [
        {"row_kind": "+I", "id": 1, "v": 1},
        {"row_kind": "-U", "id": 1, "v": 1},
        {"row_kind": "no", "id": 1, "v": 2},
    ]
    (tmp_path / "log.json").write_text("\n".join(map(json.dumps, rows)))
    stream = hr.read_changes(tmp_path / "log.json", "id LONG, v LONG", key="id", encoding="flink")
    (aside,) = stream.select("id").run().diverted().to_pylist()
    assert json.loads(aside["row"]) == {"row_kind": "no", "id": 1, "v": 2}


# --- time ------------------------------------------------------------------------------------------------------------

OUT_OF_ORDER = """
    op     | ts | id | v
    insert | 1  | 1  | 10
    update | 9  | 1  | 90
    update | 5  | 1  | 50
    insert | 20 | 2  | 20
    delete | 7  | 1  |
"""


def test_late_changes_follow_the_policy():
    whole = hr.read_changes(OUT_OF_ORDER, key="id", at="ts").select("id", "v")
    assert table(whole) == [(1, 5, 1, 10), (5, 7, 1, 50), (9, INFINITY, 1, 90), (20, INFINITY, 2, 20)]
    for policy, fate in (("divert", "diverted"), ("drop", "dropped")):
        stream = hr.read_changes(OUT_OF_ORDER, key="id", at="ts", progress=hr.advance(5, late=policy)).select("id", "v")
        assert table(stream) == [(1, 5, 1, 10), (5, 9, 1, 50), (9, INFINITY, 1, 90), (20, INFINITY, 2, 20)]
        assert [counts[fate] for counts in stream.run().counts.values()] == [1]
        assert hr.same_history(stream.history("duckdb").cht(), stream.cht())
    with pytest.raises(errors.LateEvent):
        hr.read_changes(OUT_OF_ORDER, key="id", at="ts", progress=hr.ordered("raise")).cht()


def test_in_the_order_of_the_log_nothing_is_late():
    stream = hr.read_changes(OUT_OF_ORDER, key="id").select("id", "v")
    assert table(stream) == [(0, 1, 1, 10), (1, 2, 1, 90), (2, 4, 1, 50), (3, INFINITY, 2, 20)]
    assert str(sources_of(stream.node)[0].policy) == str(hr.ordered())


def channel(progress: Progress) -> Channel:
    node = hr.read_changes([{"op": "c", "id": 1, "v": 1}], key="id").node
    (source,) = sources_of(node)
    return Channel(source, progress)


def rows_at(*arrivals: int, first: int = 0, ops: str = "") -> pa.Table:
    size = len(arrivals)
    return pa.table(
        {
            "op": list(ops) or ["u"] * size, "id": [1] * size, "v": list(range(size)), ARRIVAL: list(arrivals),
            POSITION: list(range(first, first + size)),
        }
    )  # fmt: skip


def test_times_of_a_log_never_go_back():
    """Also from block to block; a row that is not used has no effect on the times of others."""
    reader = channel(Progress())
    accepted, aside = reader.take(rows_at(5, 3, 99, 6, 6, ops="uuxud"))
    assert (accepted.le.tolist(), len(aside)) == ([5, 5, 6, 6], 1)
    accepted, _ = reader.take(rows_at(4, 8, first=5))
    assert accepted.le.tolist() == [6, 8]
    assert accepted.payload[ARRIVAL].to_pylist() == [6, 8]
    assert reader.report.counts["late"] == 0


def test_a_change_that_arrived_before_the_cti_happens_at_the_cti():
    reader = channel(Progress(cti=50, high=20))
    accepted, aside = reader.take(rows_at(10, 60))
    assert (accepted.le.tolist(), len(aside)) == ([50, 60], 0)


def test_stamps_and_operations_are_read_and_not_shown(tmp_path: Path):
    log_file(tmp_path, "a.csv", "c,1,10\n", at=1000)
    stream = read(tmp_path)
    assert stream.schema.names == ("id", "v")
    (source,) = sources_of(*optimize([Output(stream.select("id").node, "out")]))
    assert set(source.schema.names) == {"op", "id", POSITION}


# --- the stream as a table -------------------------------------------------------------------------------------------


def test_the_table_is_grouped_and_joined_at_every_instant():
    orders = hr.read_changes(
        """
        op     | ts | id | customer | amount
        insert | 1  | 1  | a        | 10
        insert | 2  | 2  | a        | 5
        update | 4  | 1  | b        | 12
        delete | 6  | 2  |          |
        """,
        key="id", at="ts",
    )  # fmt: skip
    totals = orders.group_by("customer").window(hr.snapshot()).aggregate(total=hr.sum("amount"))
    assert table(totals.coalesce()) == [(1, 2, "a", 10), (2, 4, "a", 15), (4, 6, "a", 5), (4, INFINITY, "b", 12)]
    customers = hr.read_changes("op | id | name\nI | a | Ann\nU | a | Anne\n", key="id")
    named = orders.join(customers.shift(3), on={"customer": "id"}).select("amount", "name")
    assert table(named) == [(3, 4, 5, "Ann"), (3, 4, 10, "Ann"), (4, 6, 5, "Anne")]
    assert hr.same_history(named.history("duckdb").cht(), named.cht())


def test_keys_of_several_columns_and_a_name_of_ones_own():
    rows = [{"what": "I", "a": 1, "b": 1, "v": 1}, {"what": "I", "a": 1, "b": 2, "v": 2}, {"what": "D", "a": 1, "b": 1}]
    for data in (rows, pa.Table.from_pylist(rows), pa.Table.from_pylist(rows).to_pandas()):
        stream = hr.read_changes(data, "a LONG, b LONG, v LONG", key=("a", "b"), op="what")
        assert table(stream) == [(0, 2, 1, 1, 1), (1, INFINITY, 1, 2, 2)]


def test_a_tombstone_has_nothing_but_its_key():
    rows = [{"id": 1, "v": 1, "w": None}, {"id": 1, "v": None, "w": 2}, {"id": 1}, {"id": 2, "v": 5}]
    stream = hr.read_changes(rows, "id LONG, v LONG, w LONG", key="id", encoding="upsert")
    assert table(stream) == [(0, 1, 1, 1, None), (1, 2, 1, None, 2), (3, INFINITY, 2, 5, None)]
    only_keys = hr.read_changes([{"id": 1}, {"id": 1}], key="id", encoding="upsert")
    assert table(only_keys) == [(0, 1, 1), (1, INFINITY, 1)]


def test_columns_of_the_log_are_not_part_of_the_table():
    rows = [
        {"_change_type": "insert", "id": 1, "v": 1, "_commit_version": 7, "_commit_timestamp": "1970-01-01T00:00:01Z"}
    ]
    drawn = " | ".join(rows[0]) + "\n" + " | ".join(map(str, rows[0].values()))
    stream = hr.read_changes(drawn, key="id", encoding="spark", at="_commit_timestamp")
    assert table(stream) == [(1_000_000, INFINITY, 1, 1)]
    named = hr.read_changes(drawn, "id LONG, v LONG", key="id", encoding="spark", at="_commit_timestamp")
    assert table(named) == [(1_000_000, INFINITY, 1, 1)]


def test_operations_are_read_in_any_case():
    for encoding, how in ENCODINGS.items():
        if how.op is not None:
            rows = [{how.op: value.swapcase(), "id": i} for i, value in enumerate(how.values)]
            run = hr.read_changes(rows, key="id", encoding=encoding).run()
            assert run.cht().num_rows == len(how.upserts)
            assert run.diverted().num_rows == 0


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoding": "debezum"}, "unknown encoding of changes"),
        ({"key": ()}, "changes are those of keys"),
        ({"key": "nobody"}, "nobody"),
        ({"op": "what"}, "what"),
        ({"encoding": "upsert", "op": "op"}, "upserts have no operation column"),
        ({"deletes": col("v") > 1}, "says what is deleted"),
        ({"encoding": "upsert", "deletes": col("v")}, "needs a BOOLEAN"),
        ({"at": "op"}, "cannot be a time"),
        ({"at": 5}, "the time of a change"),
        ({"bad_rows": "keep"}, "unknown policy for bad rows"),
        ({"progress": hr.ordered("adjust")}, "moves the start of a lifetime"),
        ({"rename": {"v": "w"}}, "are for files"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], message: str):
    with pytest.raises(errors.HeadraceError, match=message):
        hr.read_changes([{"op": "c", "id": 1, "v": 1}], **({"key": "id"} | options))


def test_columns_may_not_have_the_names_of_parts_of_events():
    with pytest.raises(errors.SchemaError, match="'kind'"):
        hr.read_changes([{"op": "c", "id": 1, "kind": "x"}], key="id")
    with pytest.raises(errors.EventError, match="these are not rows"):
        hr.read_changes(7, key="id")


def test_the_text_of_the_policy_names_all_of_it():
    def text(**options: Any) -> str:
        (source,) = sources_of(hr.read_changes([{"op": "c", "id": 1, "v": 1}], key="id", **options).node)
        assert isinstance(source.lifetime, Changed)
        return str(source.lifetime)

    assert text() == "changes(rows, in the order of the log, key=id, op=op)"
    assert text(at="v", op="op") == "changes(rows, at v, key=id, op=op)"
    assert (
        text(encoding="upsert", deletes=col("v") > 1)
        == "changes(upsert, in the order of the log, key=id, deletes=v > 1)"
    )
