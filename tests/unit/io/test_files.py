"""Listing files in the order they arrived."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import PlanError, SourceError
from headrace.io.files import ListedFile, behind_link, changed_or_new, list_files, listing
from headrace.io.origins import Files
from headrace.io.reading import read_listed
from headrace.plan.nodes import Source

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose


def make(path: Path, mtime: int) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    os.utime(path, (mtime, mtime))
    return str(path)


def test_oldest_first_then_by_name_and_only_data(tmp_path: Path):
    late = make(tmp_path / "a.csv", 300)
    second = make(tmp_path / "c.csv", 200)
    first = make(tmp_path / "b.csv", 200)
    for hidden in ("_SUCCESS", ".x.crc", "_staging/e.csv"):
        make(tmp_path / hidden, 100)
    below = make(tmp_path / "sub" / "d.csv", 100)
    assert list_files(str(tmp_path)) == [below, first, second, late]
    assert list_files(f"file://{tmp_path}") == [below, first, second, late]
    assert list_files(str(tmp_path / "*.csv")) == [first, second, late]
    assert list_files(late) == [late]


def test_by_name(tmp_path: Path):
    paths = [make(tmp_path / name, at) for name, at in (("a.csv", 300), ("b.csv", 100), ("sub/a.csv", 200))]
    assert [file.path for file in listing(str(tmp_path), "name")] == paths
    assert [file.path for file in listing(str(tmp_path))] == [paths[1], paths[2], paths[0]]


def drop(folder: Path, name: str, rows: str, at: int) -> None:
    (folder / name).write_text(rows)
    os.utime(folder / name, (at, at))


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "events"])
def test_every_reader_of_files_has_an_order(kind: str, tmp_path: Path):
    rows = [pa.table({"t": [1], "v": [1]}), pa.table({"t": [5], "v": [5]})]
    for number, table in enumerate(rows):  # the first by name is the last by time
        path = tmp_path / f"{number}.{kind if kind != 'events' else 'json'}"
        if kind == "csv":
            pacsv.write_csv(table, path)
        elif kind == "parquet":
            pq.write_table(table, path)
        else:
            row = table.to_pylist()[0]
            more = {"kind": "insert", "le": row["t"], "re": row["t"] + 1} if kind == "events" else {}
            path.write_text(json.dumps(row | more))
        os.utime(path, (9 - number, 9 - number))
    if kind == "events":
        late = hr.explicit("raise")
        read = lambda **order: hr.read_events(str(tmp_path), "t LONG, v LONG", format="json", **order)  # noqa: E731
    else:
        late = hr.ordered("raise")
        reader = getattr(hr, f"read_{kind}")
        read = lambda **order: reader(  # noqa: E731
            str(tmp_path), "t LONG, v LONG", lifetime=hr.point("t"), progress=late, **order
        )
    by_name = [batch[0].le.tolist() for batch in read(order="name").run().results["out"].batches if len(batch[0])]
    assert by_name == [[1], [5]]
    assert read(order="name").node != read().node
    assert "files by name" in read(order="name").explain()
    with pytest.raises(PlanError, match=r"allowed: .*time, name"):
        read(order="size")


@pytest.mark.parametrize("kind", ["FILE", "CSV", "JSON", "PARQUET", "EVENTS"])
def test_the_order_in_sql(kind: str, tmp_path: Path):
    life = "" if kind == "EVENTS" else "ORDER BY t"
    more = ", format => 'json'" if kind == "EVENTS" else ""
    create = f"CREATE STREAM s (t LONG, v STRING) {life} SOURCE {kind} ('{tmp_path}'{more}, \"order\" => 'name');"
    assert "files by name" in hr.script(create + "QUERY q AS SELECT v FROM s").queries["q"].explain()


@pytest.mark.slow
def test_rows_by_arrival_follow_the_order_of_their_files(tmp_path: Path):
    """Also in a history: none arrives before one that was read before it."""
    drop(tmp_path, "a.csv", "v\n1\n2\n", 9)
    drop(tmp_path, "b.csv", "v\n3\n", 5)
    for order, expected in (("time", [3, 1, 2]), ("name", [1, 2, 3])):
        rows = hr.read_csv(str(tmp_path), "v LONG", lifetime=hr.by_arrival(), order=order)  # type: ignore[arg-type]
        history = rows.cht().sort_by("le")
        assert history["v"].to_pylist() == expected
        assert hr.same_history(rows.cht(), rows.history().cht())


def test_globs_go_deeper_but_not_into_hidden_folders(tmp_path: Path):
    seen = make(tmp_path / "batch-1" / "x.csv", 100)
    make(tmp_path / "_staging" / "x.csv", 100)
    assert list_files(str(tmp_path / "**" / "*.csv")) == [seen]


def test_nothing_there(tmp_path: Path):
    assert list_files(str(tmp_path)) == []
    assert list_files(str(tmp_path / "*.csv")) == []
    with pytest.raises(SourceError, match="there is no file"):
        list_files(str(tmp_path / "nowhere"))


def test_nanoseconds_and_sizes_are_listed(tmp_path: Path):
    later, sooner = tmp_path / "a.csv", tmp_path / "b.csv"
    for path, at in ((later, 2), (sooner, 1)):
        path.write_bytes(b"x" * at)
        os.utime(path, ns=(at, at))
    assert listing(str(tmp_path)) == [ListedFile(1, str(sooner), 1), ListedFile(2, str(later), 2)]


def test_linked_directories_are_not_followed_but_linked_files_are_data(tmp_path: Path):
    data = tmp_path / "data"
    real = make(data / "sub" / "a.csv", 100)
    (data / "self").symlink_to(data)
    (data / "sub" / "up").symlink_to(data)
    linked = data / "b.csv"
    linked.symlink_to(make(tmp_path / "elsewhere.csv", 200))
    expected = [real, str(linked)]
    assert list_files(str(data)) == expected
    assert list_files(f"{data}/*/*.csv") == [real]
    assert list_files(f"{data}/**/*.csv") == expected
    assert [behind_link(str(data), path) for path in (real, f"{data}/self/b.csv", str(linked))] == [False, True, False]
    (tmp_path / "current").symlink_to(data)
    assert len(list_files(str(tmp_path / "current"))) == 2, "a link that was named is meant"


def test_what_became_of_listed_files(tmp_path: Path):
    paths = [tmp_path / name for name in ("same.csv", "grown.csv", "rewritten.csv", "gone.csv")]
    for path in paths:
        make(path, 100)
    files = {Path(file.path).name: file for file in listing(str(tmp_path))}
    with paths[1].open("a") as file:
        file.write("more")
    os.utime(paths[1], (100, 100))
    os.utime(paths[2], (200, 200))
    paths[3].unlink()
    states = {name: file.state() for name, file in files.items()}
    assert states == {"same.csv": "same", "grown.csv": "changed", "rewritten.csv": "changed", "gone.csv": "missing"}
    make(tmp_path / "new.csv", 300)
    changed, new = changed_or_new(listing(str(tmp_path)), {file.path: file for file in files.values()})
    assert [Path(file.path).name for file in changed] == ["grown.csv", "rewritten.csv"]
    assert [Path(file.path).name for file in new] == ["new.csv"]


LIFETIME: dict[str, Any] = {"lifetime": hr.point("t"), "progress": hr.ordered()}


def rows(folder: Path, count: int) -> None:
    folder.mkdir()
    for number in range(count):
        path = folder / f"{number}.csv"
        path.write_text(f"t,v\n{number},{number}\n")
        os.utime(path, ns=(10**9, 10**9))


def touching(stream: hr.Stream, action: Any) -> hr.Stream:
    """The stream, whose first row makes something happen to the files."""
    done: list[int] = []

    def act(v: int) -> int:
        if not done:
            done.append(v)
            action()
        return v

    return stream.select(v=hr.udf(act, takes="LONG", returns="LONG", name="act")("v"))


@pytest.mark.parametrize("batch_rows", [None, 1])
def test_files_that_vanish_or_change_during_a_run_are_counted_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, batch_rows: int | None
):
    rows(tmp_path / "in", 4)
    stream = hr.read_csv(str(tmp_path / "in"), "t LONG, v LONG", **LIFETIME)

    def meddle() -> None:
        (tmp_path / "in" / "1.csv").unlink()
        (tmp_path / "in" / "2.csv").write_text("t,v\n2,2\n2,20\n")

    with caplog.at_level(logging.WARNING, logger="headrace"):
        run = touching(stream, meddle).run(batch_rows=batch_rows, threads=1)  # no file is read ahead
    (counts,) = run.counts.values()
    assert (counts["missing_files"], counts["changed_files"], counts["accepted"]) == (1, 1, 4)
    assert run.cht()["v"].to_pylist() == [0, 2, 20, 3]
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2
    assert "1.csv' was removed after it was listed; its rows are not in the answer" in texts[0]
    assert "2.csv' was changed after it was listed" in texts[1]
    assert "missing_files 1" in str(run.progress())


def test_where_bad_rows_are_errors_so_are_files_that_vanish(tmp_path: Path):
    rows(tmp_path / "in", 2)
    stream = hr.read_csv(str(tmp_path / "in"), "t LONG, v LONG", bad_rows="raise", **LIFETIME)
    with pytest.raises(SourceError, match=r"1\.csv' was removed after it was listed"):
        touching(stream, (tmp_path / "in" / "1.csv").unlink).run(threads=1)


def test_files_of_equal_time_are_read_by_name_in_process_and_in_histories(tmp_path: Path):
    rows(tmp_path / "in", 8)
    stream = hr.read_csv(str(tmp_path / "in"), "t LONG, v LONG", **LIFETIME)
    run = stream.run()
    assert next(iter(run.counts.values()))["accepted"] == 8, "none is late in the order of names"
    assert stream.history(engine="duckdb").cht().num_rows == 8


def test_files_that_headrace_wrote_may_have_new_times(tmp_path: Path):
    """A checkpoint that was copied by `cp`, and contains its input; a file of a user with a new time was changed."""
    path = tmp_path / "0.jsonl"
    path.write_text('{"t": 1, "v": 1}\n')
    node = hr.read_json(str(path), "t LONG, v LONG", lifetime=hr.point("t"), bad_rows="raise").node
    assert isinstance(node, Source)
    assert isinstance(node.origin, Files)
    listed = ListedFile.now(str(path))
    assert listed is not None
    os.utime(path, (1, 1))
    with pytest.raises(SourceError, match="was changed after it was listed"):
        list(read_listed(node, listed))
    own = replace(node, origin=replace(node.origin, label="1 events"))
    assert [block.file for block in read_listed(own, listed)] == ["same"]
    path.write_text('{"t": 1, "v": 10}\n')
    with pytest.raises(SourceError, match="was changed after it was listed"):
        list(read_listed(own, listed))
