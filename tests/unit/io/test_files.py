"""Listing files in the order they arrived."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import SourceError
from headrace.io.files import Listed, behind_link, changed_or_new, list_files, listing

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
    assert listing(str(tmp_path)) == [Listed(1, str(sooner), 1), Listed(2, str(later), 2)]


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
        run = touching(stream, meddle).run(batch_rows=batch_rows)
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
        touching(stream, (tmp_path / "in" / "1.csv").unlink).run()


def test_files_of_equal_time_are_read_by_name_in_process_and_in_histories(tmp_path: Path):
    rows(tmp_path / "in", 8)
    stream = hr.read_csv(str(tmp_path / "in"), "t LONG, v LONG", **LIFETIME)
    run = stream.run()
    assert next(iter(run.counts.values()))["accepted"] == 8, "none is late in the order of names"
    assert stream.history(engine="duckdb").cht().num_rows == 8
