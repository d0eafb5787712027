"""Files with other columns than the declared ones: each format, each drift, each policy; on every way of running."""

from __future__ import annotations

import itertools
import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.fixtures.drifting import CASES, DECLARED, TYPED, Case, expected, read, write

import headrace as hr
from headrace.errors import PlanError, SchemaDrift, SchemaError
from headrace.io import drift
from headrace.io.decoded import added
from headrace.io.drift import DRIFT_COUNTERS, DriftRules
from headrace.io.formats import Format, read_file
from headrace.io.json import read_json
from headrace.io.json_drift import FileDrift
from headrace.schema import Schema

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are diverted here on purpose

FORMATS = ("csv", "json", "parquet")
TABLE = [
    pytest.param(format, case, policy, id=f"{format}-{case.name}-{policy}")
    for format, case, policy in itertools.product(FORMATS, CASES, ("raise", "divert", "widen"))
    if format in TYPED or not case.typed
]
BY_NAME = {case.name: case for case in CASES}


def values(cht: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((row["t"], row["qty"], row["price"], row["note"]) for row in cht.to_pylist())


def counters(run: hr.Run) -> dict[str, int]:
    (counts,) = run.counts.values()
    return {name: counts[name] for name in (*DRIFT_COUNTERS, "diverted")}


@pytest.mark.parametrize(("format", "case", "policy"), TABLE)
def test_each_format_drift_and_policy_in_process(tmp_path: Path, format: str, case: Case, policy: str):
    stream = read(write(tmp_path / "in", format, case), format, on_drift=policy)
    history, want = stream.history("duckdb"), expected(case, policy)
    runs = (stream.run, lambda: stream.run(checkpoint=str(tmp_path / "state")))
    if want is None:
        for fails in (*runs, history.cht):
            with pytest.raises(SchemaError, match=rf"1\.{format}"):
                fails()
        return
    rows, counts = want
    for run in (one() for one in runs):
        assert (values(run.cht()), counters(run)) == (rows, counts)
    assert values(history.cht()) == rows


@pytest.mark.parametrize("format", FORMATS)
def test_the_error_names_file_columns_and_what_to_write(tmp_path: Path, format: str):
    stream = read(write(tmp_path / "in", format, BY_NAME["renamed"]), format, on_drift="raise")
    with pytest.raises(SchemaDrift, match=rf"1\.{format}.*column 'price' is missing; column 'cost' is new") as caught:
        stream.run()
    assert caught.value.allowed == "t LONG, qty INT, price DOUBLE, note STRING"
    assert caught.value.instead.startswith("rename={'cost': 'price'}, if the column was renamed; or on_drift='widen'")


def test_a_column_without_which_rows_are_no_events_is_needed(tmp_path: Path):
    stream = read(write(tmp_path / "in", "csv", BY_NAME["time"]), "csv", on_drift="widen")
    with pytest.raises(SchemaDrift, match="without 't' its rows are no events") as caught:
        stream.run()
    assert caught.value.instead == (
        "rename={'at': 't'}, if the column was renamed; or on_drift='divert', which diverts the rows of such files"
    )


def test_a_new_column_of_another_type_is_no_rename(tmp_path: Path):
    rows = BY_NAME["missing"].rows.append_column("prices", pa.array(["x", "y"]))
    stream = read(write(tmp_path / "in", "parquet", Case("", rows)), "parquet", on_drift="raise")
    with pytest.raises(SchemaDrift) as caught:
        stream.run()
    assert "rename" not in caught.value.instead


@pytest.mark.parametrize("format", FORMATS)
def test_diverted_rows_have_their_file_line_reason_and_text(tmp_path: Path, format: str):
    stream = read(write(tmp_path / "in", format, BY_NAME["new"]), format, on_drift="divert")
    rows = stream.diverted().cht().to_pylist()
    first = 2 if format == "csv" else 1  # a header is a line
    assert [row["line"] for row in rows] == [first, first + 1]
    assert {row["reason"] for row in rows} == {"schema drift: column 'more' is new"}
    assert {Path(row["file"]).name for row in rows} == {f"1.{format}"}
    assert "30" in rows[0]["row"]
    assert "40" in rows[1]["row"]


@pytest.mark.parametrize("format", FORMATS)
def test_what_a_query_reads_does_not_change_the_verdict(tmp_path: Path, format: str):
    """Of a Parquet file only some columns are read; all of them are judged, and a filter sees the nulls."""
    place = write(tmp_path / "in", format, BY_NAME["missing"])
    with pytest.raises(SchemaDrift):
        read(place, format, on_drift="raise").select("t").run()
    for query, rows in (
        (read(place, format, on_drift="widen").select("t"), 4),
        (read(place, format, on_drift="widen").where(hr.col("price") > 0).select("t"), 2),
        (read(place, format, on_drift="widen").where(hr.col("price").is_null()).select("price"), 2),
    ):
        assert query.cht().num_rows == rows
        assert hr.same_history(query.history("duckdb").cht(), query.cht())


@pytest.mark.parametrize("format", FORMATS)
def test_without_a_policy_nothing_is_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture, format: str):
    drift._logged.clear()
    place = write(tmp_path / "in", format, BY_NAME["missing"])
    if format != "json":
        with pytest.raises(SchemaError, match=r"'price' is missing"):
            read(place, format).run()
        return
    with caplog.at_level(logging.WARNING, logger="headrace"):
        run = read(place, format).run()
    assert values(run.cht())[2:] == [(3, 30, None, "c"), (4, 40, None, "d")]
    assert counters(run) | {"diverted": 0} == dict.fromkeys((*DRIFT_COUNTERS, "diverted"), 0) | {
        "drifted_files": 1,
        "missing_columns": 1,
    }
    assert [record.getMessage().partition(": the")[2] for record in caplog.records] == [
        f" columns of '{place}/1.json' differ from the declared ones: column 'price' is missing"
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_without_a_policy_a_schema_of_the_first_file_counts_new_columns(tmp_path: Path, format: str):
    place = write(tmp_path / "in", format, BY_NAME["new"])
    inferred, declared = read(place, format, schema=None).run(), read(place, format).run()
    assert (counters(inferred)["drifted_files"], counters(inferred)["new_columns"]) == (1, 1)
    assert counters(declared)["drifted_files"] == 0, "the user has picked columns"
    assert values(inferred.cht()) == values(declared.cht())


def test_each_kind_is_logged_once_for_a_source(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    drift._logged.clear()
    place = write(tmp_path / "in", "csv", BY_NAME["new"])
    (tmp_path / "in" / "2.csv").write_text("t,qty,price,note,more\n5,50,5.5,e,1\n")
    (tmp_path / "in" / "3.csv").write_text("t,qty,price\n6,60,6.5\n")
    with caplog.at_level(logging.WARNING, logger="headrace"):
        counts = counters(read(place, "csv", on_drift="widen").run())
    assert len(caplog.records) == 2
    assert counts == {
        "drifted_files": 3, "drifted_rows": 0, "new_columns": 2, "missing_columns": 1, "changed_types": 0, "diverted": 0
    }  # fmt: skip


def test_a_query_goes_on_with_another_policy(tmp_path: Path):
    """The error of a running query says what to write; written, the query goes on where it stopped."""
    place, state = write(tmp_path / "in", "csv", BY_NAME["missing"]), str(tmp_path / "state")
    out = tmp_path / "out"
    with pytest.raises(SchemaDrift):
        read(place, "csv", on_drift="raise").run(checkpoint=state, sinks={"out": hr.files(str(out))}, files_per_batch=1)
    done = read(place, "csv", on_drift="widen").run(checkpoint=state, sinks={"out": hr.files(str(out))})
    assert counters(done)["missing_columns"] == 1
    assert (done.counts[next(iter(done.counts))]["accepted"]) == 4


def test_folders_of_hive_are_not_missing(tmp_path: Path):
    folder = tmp_path / "in" / "note=x"
    folder.mkdir(parents=True)
    pq.write_table(BY_NAME["same"].rows.drop_columns(["note"]), folder / "a.parquet")
    run = read(str(tmp_path / "in"), "parquet", on_drift="raise").run()
    assert [row[3] for row in values(run.cht())] == ["x", "x"]
    assert counters(run)["drifted_files"] == 0


@pytest.mark.parametrize("format", FORMATS)
def test_the_hint_of_a_rename_reads_files_of_both_names(tmp_path: Path, format: str):
    stream = read(
        write(tmp_path / "in", format, BY_NAME["renamed"]), format, on_drift="raise", rename={"cost": "price"}
    )
    for query in (stream, stream.where(hr.col("price") > 0)):
        assert values(query.cht()) == expected(BY_NAME["same"], "raise")[0]  # type: ignore[index]
        assert hr.same_history(query.history("duckdb").cht(), query.cht())


def test_members_that_later_lines_have_are_not_missing(tmp_path: Path):
    folder = tmp_path / "in"
    folder.mkdir()
    rows: list[dict[str, Any]] = [{"t": t, "qty": 1, "note": "n"} for t in range(51)]
    rows[50]["price"] = 2.0
    (folder / "a.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read(str(folder), "json", on_drift="raise").cht().num_rows == 51
    assert read(str(folder), "json", on_drift="raise", sparse="price").cht().num_rows == 51


def lines(folder: Path, *files: list[dict[str, Any]]) -> str:
    folder.mkdir()
    for number, rows in enumerate(files):
        (folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


ROW = {"t": 1, "qty": 1, "price": 1.5, "note": "n"}
LATER = {"t": 2, "qty": 1, "cost": 2.5, "note": "n"}


@pytest.mark.parametrize("later", [LATER, {**LATER, "gr\u00f6\u00dfe": 1}], ids=["plain", "escaped"])
def test_a_column_that_a_writer_renames_within_a_file_is_found(tmp_path: Path, later: dict[str, Any]):
    """A file of JSON has no header, and its first rows know nothing of the later ones."""
    place = lines(tmp_path / "in", [ROW] * 50 + [later])
    with pytest.raises(SchemaDrift, match="column 'cost' is new"):
        read(place, "json", on_drift="raise").run()
    with pytest.raises(SchemaDrift, match="column 'cost' is new"):
        read(place, "json", on_drift="raise").history("duckdb").cht()
    new = len(later) - 3
    widened = read(place, "json", on_drift="widen").run()
    assert (values(widened.cht())[-1], counters(widened)["new_columns"]) == ((2, 1, None, "n"), new)
    diverted = read(place, "json", on_drift="divert").run()
    assert (diverted.cht().num_rows, counters(diverted)["diverted"], counters(diverted)["new_columns"]) == (0, 51, new)


def test_a_file_with_both_names_of_a_column_is_an_error_under_a_rename(tmp_path: Path):
    """As it is for a header with both: by its new name the column would be null."""
    place = lines(tmp_path / "in", [ROW] * 50 + [LATER])
    for policy in ("raise", "widen", "divert"):
        with pytest.raises(SchemaError, match=r"0\.json' has 'cost' and 'price', which rename makes one column"):
            read(place, "json", on_drift=policy, rename={"cost": "price"}).run()
    both = read(place, "json", schema=f"{DECLARED}, cost DOUBLE", on_drift="raise", sparse=["cost", "price"])
    assert both.select("t", price=hr.coalesce(hr.col("cost"), hr.col("price"))).cht()["price"].to_pylist()[-1] == 2.5
    names = {"qty": "price", "price": "qty"}
    swapped = read(place, "json", on_drift="widen", rename=names, schema="t LONG, price DOUBLE")
    assert swapped.cht()["qty"].to_pylist()[0] == 1.5


def test_a_column_that_no_query_reads_is_not_missing_if_a_later_line_has_it(tmp_path: Path):
    without = {name: value for name, value in ROW.items() if name != "price"}
    place = lines(tmp_path / "in", [without] * 50 + [ROW])
    for policy in ("raise", None):
        run = read(place, "json", on_drift=policy).select("t").run()
        assert counters(run)["drifted_files"] == 0


@pytest.mark.parametrize("policy", ["raise", "divert", "widen"])
def test_a_new_column_of_a_later_block_is_found_and_counted_once(tmp_path: Path, policy: Any):
    place = lines(tmp_path / "in", [ROW] * 9 + [LATER] * 9)
    rules = DriftRules(policy, needed=frozenset("t"))
    judged = FileDrift(
        Schema.of(DECLARED).names, {}, partial(rules.judge, "a", Schema.of(DECLARED).fields), thorough=True
    )
    with open(f"{place}/0.json", "rb") as stream:  # noqa: PTH123 - a stream of bytes
        blocks = read_json(stream, Schema.of(DECLARED).fields, size=150, drift=judged)
        if policy == "raise":
            with pytest.raises(SchemaDrift, match="column 'cost' is new"):
                list(blocks)
            return
        found = list(blocks)
    total = added([block.drift for block in found])
    assert {name: count for name, count in total.items() if count} == {"drifted_files": 1, "new_columns": 1}
    rows, refused = (sum(counts) for counts in zip(*((len(b.rows), b.refused.num_rows) for b in found), strict=True))
    assert (rows + refused, rows < 18) == (18, policy == "divert")
    assert rows >= 6, "what was read before it was known stays"


@pytest.mark.parametrize("events", [False, True])
def test_a_file_of_objects_without_members_lacks_all_columns(tmp_path: Path, events: bool):
    row = {"kind": "insert", "le": 1, "re": 2, "payload": {"v": 1}} if events else ROW
    place = lines(tmp_path / "in", [row], [{}, {}])

    def rows(policy: Any) -> hr.Stream:
        if events:
            return hr.read_events(place, "v LONG", format="json", on_drift=policy)
        return read(place, "json", on_drift=policy)

    for policy in ("raise",) if events else ("raise", "widen"):  # an event may leave out each of its own columns
        for fails in (rows(policy).run, rows(policy).history("duckdb").cht):
            with pytest.raises(SchemaDrift, match=r"1\.json.* is missing"):
                fails()
    diverted = rows("divert")
    run = diverted.run()
    columns = 1 if events else 4
    assert counters(run) == dict.fromkeys(DRIFT_COUNTERS, 0) | {
        "drifted_files": 1, "missing_columns": columns, "diverted": 2
    }  # fmt: skip
    assert run.cht().num_rows == 1
    assert diverted.diverted().cht()["reason"].to_pylist()[0].startswith("schema drift: column ")


@pytest.mark.parametrize("text", ["", "\n\n", "{} x\n", '{"t": 1\n', "[]\n7\n"])
def test_a_file_without_objects_is_no_drift(tmp_path: Path, text: str):
    place = lines(tmp_path / "in", [ROW])
    (tmp_path / "in" / "1.json").write_text(text)
    run = read(place, "json", on_drift="raise", bad_rows="divert").run()
    assert (run.cht().num_rows, counters(run)["drifted_files"]) == (1, 0)


def test_members_after_objects_without_any_are_found_and_counted_once(tmp_path: Path):
    fields = Schema.of(DECLARED).fields
    (tmp_path / "0.json").write_text("{}\n" * 30 + json.dumps(ROW) + "\n" + json.dumps(LATER) + "\n")
    for thorough, counts in ((True, {"drifted_files": 1, "missing_columns": 4, "new_columns": 1}), (False, {})):
        rules = DriftRules("divert" if thorough else "", needed=frozenset("t"))
        judged = FileDrift(Schema.of(DECLARED).names, {}, partial(rules.judge, "a", fields), thorough=thorough)
        with (tmp_path / "0.json").open("rb") as stream:
            found = list(read_json(stream, fields, size=100 if thorough else 10_000, drift=judged))
        total = added([block.drift for block in found])
        assert {name: count for name, count in total.items() if count} == counts


def test_any_number_of_new_columns(tmp_path: Path):
    place = lines(tmp_path / "in", [{**ROW, f"k{i}": i} for i in range(300)])
    assert counters(read(place, "json", on_drift="widen").run())["new_columns"] == 300


def test_a_name_that_is_no_text(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text(json.dumps(ROW) + "\n" + json.dumps({**ROW, "\ud800": 1}) + "\n")
    assert counters(read(str(tmp_path / "in"), "json", on_drift="widen").run())["new_columns"] == 1
    with pytest.raises(SchemaDrift):
        read(str(tmp_path / "in"), "json", on_drift="raise").run()


def change(op: str, after: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    return {"op": op, "before": {"id": 1} if op == "d" else None, "after": after, "ts_ms": 1, **more}


@pytest.mark.parametrize("wrapped", [False, True])
def test_changes_of_debezium_in_files_have_the_policy(tmp_path: Path, wrapped: bool):
    """Their columns are those of the rows that they describe; a deletion need not have all."""
    changes = [[change("c", {"id": 1, "v": "a"}), change("d", None)], [change("c", {"id": 2, "w": "b"}, other=1)]]
    place = lines(tmp_path / "in", *([{"payload": c} if wrapped else c for c in file] for file in changes))

    def log(**options: Any) -> hr.Stream:
        return hr.read_changes(
            place, "id LONG, v STRING", key="id", encoding="debezium", format="json", order="name", **options
        )

    with pytest.raises(SchemaDrift, match="column 'v' is missing; column 'w' is new") as caught:
        log(on_drift="raise").run()
    assert caught.value.instead.startswith("rename={'w': 'v'}")
    diverted = log(on_drift="divert").run()
    assert counters(diverted) == dict.fromkeys(DRIFT_COUNTERS, 0) | {
        "drifted_files": 1, "new_columns": 1, "missing_columns": 1, "diverted": 1
    }  # fmt: skip
    assert counters(log(on_drift="widen").run())["missing_columns"] == 1
    assert counters(log().run())["missing_columns"] == 1
    assert "b" in log(on_drift="raise", rename={"w": "v"}).run().cht()["v"].to_pylist()


def test_changes_of_debezium_are_read_by_both_names(tmp_path: Path):
    """A file that has a column by its new name already is read as it is."""
    changes = [[change("c", {"id": 1, "v": "a"})], [change("c", {"id": 2, "w": "b"})]]
    log = hr.read_changes(
        lines(tmp_path / "in", *changes), "id LONG, v STRING", key="id", encoding="debezium", format="json",
        order="name", rename={"w": "v"},
    )  # fmt: skip
    assert sorted(log.cht()["v"].to_pylist()) == ["a", "b"]


def test_promises_say_nothing_about_the_payload(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"kind": "insert", "le": 1, "re": 2, "payload": {"v": 1}}\n')
    (tmp_path / "in" / "1.json").write_text('{"kind": "cti", "le": 5}\n')
    run = hr.read_events(str(tmp_path / "in"), "v LONG", format="json", on_drift="raise").run()
    assert run.cht().num_rows == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_arrow_files_are_judged_as_parquet_files(tmp_path: Path, case: Case):
    path, schema = str(tmp_path / "a.arrow"), Schema.of(DECLARED)
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, case.rows.schema) as writer:
        writer.write_table(case.rows)
    for policy in ("raise", "divert", "widen"):
        rules, want = DriftRules(policy, needed=frozenset("t")), expected(case, policy)  # type: ignore[arg-type]
        if want is None:
            with pytest.raises(SchemaError, match=r"a\.arrow"):
                list(read_file(path, Format("arrow"), schema, drift=rules))
            continue
        blocks = list(read_file(path, Format("arrow"), schema, drift=rules))
        assert values(pa.concat_tables([block.table for block in blocks])) == want[0][2:]
        assert sum(block.refused.num_rows for block in blocks) == want[1]["diverted"]
        assert sum(block.drift.get("drifted_files", 0) for block in blocks) == case.drifts


@pytest.mark.parametrize(
    ("kind", "declared", "same"),
    [
        (pa.uint64(), "v LONG", False),
        (pa.dictionary(pa.int32(), pa.uint64()), "v LONG", False),
        (pa.uint64(), "le LONG", False),
        (pa.uint32(), "v LONG", True),
        (pa.decimal256(50, 2), "v DOUBLE", False),
        (pa.decimal128(20, 2), "v DECIMAL(10, 2)", False),
        (pa.timestamp("ns", "Europe/Berlin"), "v DATETIME", True),
        (pa.timestamp("s"), "v DATETIME", True),
        (pa.timestamp("us"), "v DATE", False),
        (pa.list_(pa.large_string()), "v CHAR[]", True),
        (pa.list_(pa.uint64()), "v LONG[]", False),
        (pa.dictionary(pa.int32(), pa.binary()), "v STRING", True),
    ],
)
def test_a_type_is_the_same_if_the_declared_one_has_all_its_values(kind: pa.DataType, declared: str, same: bool):
    fields = Schema.of(declared).fields
    drifts = bool(DriftRules("widen").judge("a.parquet", fields, {fields[0].name: kind}).counts)
    assert drifts != same


def test_unknown_and_contrary_policies_are_errors(tmp_path: Path):
    with pytest.raises(PlanError, match="unknown policy for other columns") as caught:
        read(str(tmp_path), "csv", on_drift="wide")
    assert caught.value.instead == "on_drift='widen'"
    with pytest.raises(PlanError, match="rows cannot be diverted where bad rows are errors"):
        read(str(tmp_path), "csv", on_drift="divert", bad_rows="raise")


def test_logs_of_tables_have_the_policy(tmp_path: Path):
    """A row of an upsert with only nulls deletes its key, so a missing column is never read as null."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "0.csv").write_text("op,id,v,w\nI,1,10,1\n")
    (folder / "1.csv").write_text("op,id,v\nI,2,20\n")
    how: dict[str, Any] = {"key": "id", "format": "csv", "order": "name"}
    rows = hr.read_changes(str(folder), "id LONG, v LONG, w LONG", on_drift="widen", **how).cht()
    assert rows["w"].to_pylist() == [1, None]
    with pytest.raises(SchemaDrift):
        hr.read_changes(str(folder), "id LONG, v LONG, w LONG", encoding="upsert", on_drift="widen", **how).cht()
    assert np.all(rows["v"].to_numpy() == [10, 20])


def test_sql_has_the_policy(tmp_path: Path):
    place = write(tmp_path / "in", "parquet", BY_NAME["missing"])
    text = f"""
        CREATE STREAM trades (t LONG, qty INT, price DOUBLE, note STRING) ORDER BY t
        SOURCE PARQUET(path => '{place}', on_drift => 'widen');
        SELECT t, price FROM trades
    """
    assert hr.sql(text).cht()["price"].to_pylist() == [1.5, 2.5, None, None]
