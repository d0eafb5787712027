"""A JSON field that a schema names and no row has is an error, and sparse fields are not."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import SchemaError

SCHEMA = "t LONG, price DOUBLE, note STRING"
BY_TIME: Any = {"lifetime": hr.point("t")}


def write(folder: Path, name: str, rows: list[dict[str, Any]], at: int = 1) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(folder / name, (at, at))
    return str(folder)


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    """Files in which no row has a `note`."""
    write(tmp_path / "in", "a.json", [{"t": 1, "price": 2.0, "notes": "x"}], at=1)
    return write(tmp_path / "in", "b.json", [{"t": 2, "price": None, "notes": "y"}], at=2)


def test_a_field_that_no_row_has_is_an_error_everywhere(wrong: str, tmp_path: Path):
    stream = hr.read_json(wrong, SCHEMA, **BY_TIME)
    for number, query in enumerate((stream, stream.where(col("note") == "x"), stream.select("t"))):
        place = str(tmp_path / f"state-{number}")
        for run in (query.cht, query.history("duckdb").cht, lambda q=query, p=place: q.cht(checkpoint=p)):
            with pytest.raises(SchemaError, match="has the field 'note'") as caught:
                run()
            assert caught.value.allowed == "t, price, notes"
            assert caught.value.instead == "notes; or sparse=['note'], if rows may lack it"


def test_one_row_of_any_file_is_enough(tmp_path: Path):
    """The first files lack the field; a run to the end reads them file by file, and starts with the first."""
    folder = tmp_path / "in"
    for number in range(3):
        rows = [{"t": number, "price": 1.0} | ({"note": None} if number == 2 else {})]
        write(folder, f"{number}.json", rows, at=number + 1)
    stream = hr.read_json(str(folder), SCHEMA, **BY_TIME)
    expected = stream.cht()
    assert expected["note"].to_pylist() == [None] * 3
    assert stream.cht(checkpoint=str(tmp_path / "state")).equals(expected)
    assert hr.same_history(stream.history("duckdb").cht(), expected)


@pytest.mark.parametrize("sparse", [True, "note", ["note"], ("price", "note")])
def test_sparse_fields_may_be_in_no_row(wrong: str, sparse: Any):
    stream = hr.read_json(wrong, SCHEMA, sparse=sparse, **BY_TIME)
    assert stream.cht()["note"].to_pylist() == [None, None]
    assert hr.same_history(stream.history("duckdb").cht(), stream.cht())


def test_a_started_query_checks_the_first_files_it_finds(tmp_path: Path):
    folder, state = tmp_path / "in", str(tmp_path / "state")
    folder.mkdir()

    def begin(**options: Any) -> Any:
        memory = hr.memory()
        stream = hr.read_json(str(folder), SCHEMA, **BY_TIME, **options)
        return stream.start(memory, host="local", checkpoint=state), memory

    query, _ = begin()
    query.process_all_available()  # nothing is there yet
    write(folder, "a.json", [{"t": 1, "price": 1.0}], at=1)
    with pytest.raises(SchemaError, match="has the field 'note'"):
        query.process_all_available()
    query.stop()
    query, memory = begin(sparse="note")  # the same query, which may continue
    query.process_all_available()
    query.stop()
    assert memory.cht()["price"].to_pylist() == [1.0]
    write(folder, "b.json", [{"t": 2, "price": 2.0}], at=2)
    query, memory = begin()  # only the first files are checked
    query.process_all_available()
    query.stop()
    assert memory.rows()["price"].to_pylist() == [2.0]


def test_names_as_writers_of_json_write_them(tmp_path: Path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text('{"t" : 1, "gr\\u00f6\\u00dfe" :2, "a\\"b": 3}\n')
    schema = {"t": int, "größe": int, 'a"b': int}
    assert hr.read_json(str(folder), schema, **BY_TIME).cht()["größe"].to_pylist() == [2]
    (folder / "a.json").write_text('{"t": 1, "what": "größe", "a\\"b": 3}\n')  # a value is no field
    with pytest.raises(SchemaError, match="'größe'"):
        hr.read_json(str(folder), schema, **BY_TIME).cht()


def test_a_name_across_blocks_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path / "in", "a.json", [{"t": 1, "price": 2.0, "note": "x" * 40}])
    for size in range(1, 40):
        monkeypatch.setattr("headrace.io.json_fields._BLOCK_BYTES", size)
        assert hr.read_json(path, SCHEMA, **BY_TIME).cht().num_rows == 1


def test_renamed_and_compressed(tmp_path: Path):
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b'{"t": 1, "kind": "x"}\n'))
    path = str(tmp_path / "a.json.gz")
    read = hr.read_json(path, "t LONG, kind STRING", rename={"kind": "sort"}, **BY_TIME)
    assert read.cht()["sort"].to_pylist() == ["x"]
    with pytest.raises(SchemaError, match="has the field 'kinds'"):
        hr.read_json(path, "t LONG, kinds STRING", rename={"kinds": "sort"}, **BY_TIME).cht()


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_files_without_rows_have_no_wrong_rows(tmp_path: Path, text: str):
    (tmp_path / "a.json").write_text(text)
    assert hr.read_json(str(tmp_path / "a.json"), SCHEMA, **BY_TIME).cht().num_rows == 0


def test_physical_events_and_changes(tmp_path: Path):
    ctis = write(tmp_path / "ctis", "a.json", [{"kind": "cti", "le": 5}])
    assert hr.read_events(ctis, "v LONG", format="json").cht().num_rows == 0
    rows = write(tmp_path / "rows", "a.json", [{"kind": "insert", "le": 1, "re": 2, "payload": {"w": 1}}])
    with pytest.raises(SchemaError) as caught:
        hr.read_events(rows, "v LONG", format="json").cht()
    assert caught.value.allowed == "w"
    log = write(tmp_path / "log", "a.json", [{"op": "c", "ts": 1, "id": 1, "v": 2}])
    options: Any = {"key": "id", "at": "ts", "format": "json"}
    assert hr.read_changes(log, "ts LONG, id LONG, v LONG", **options).cht().num_rows == 1
    with pytest.raises(SchemaError, match="'vv'"):
        hr.read_changes(log, "ts LONG, id LONG, vv LONG", **options).cht()
    assert hr.read_changes(log, "ts LONG, id LONG, vv LONG", sparse="vv", **options).cht().num_rows == 1


def test_in_sql(wrong: str):
    text = "CREATE STREAM rows (t LONG, price DOUBLE, note STRING) ORDER BY t SOURCE JSON ('{}'{}); SELECT t FROM rows;"
    with pytest.raises(SchemaError, match="has the field 'note'"):
        hr.sql(text.format(wrong, "")).cht()
    for sparse in ("'note'", "'price, note'", "TRUE"):
        assert hr.sql(text.format(wrong, f", sparse => {sparse}")).cht().num_rows == 2
