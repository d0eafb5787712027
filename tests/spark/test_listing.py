"""Which files are read on Spark, and in which order: as in process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.io.sinks import FunctionSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose

SCHEMA = "t LONG, v LONG"


def write(path: Path, rows: list[tuple[int, int]], at: int = 1) -> None:
    path.write_text("t,v\n" + "".join(f"{t},{v}\n" for t, v in rows))
    os.utime(path, (at, at))


def read(folder: Path) -> hr.Stream:
    return hr.read_csv(str(folder), SCHEMA, lifetime=hr.point("t"), progress=hr.ordered())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "in"
    place.mkdir()
    return place


def test_files_of_equal_time_are_read_by_name(spark: SparkSession, folder: Path):
    # Larger first by name of later times, so that an order by anything but the name finds late rows.
    for number in range(8):
        write(folder / f"{7 - number}{'x' * number}.csv", [(10 * (7 - number) + i, i) for i in range(5)])
    stream = read(folder)
    local, done = stream.run(), stream.run(host="spark", spark=spark)
    assert done.counts == local.counts
    assert done.cht().equals(local.cht())


def test_linked_directories_are_not_followed(spark: SparkSession, folder: Path):
    (folder / "self").symlink_to(folder)
    write(folder / "a.csv", [(1, 1)])
    outputs = {"folder": read(folder), "pattern": hr.read_csv(f"{folder}/*/*.csv", SCHEMA, lifetime=hr.point("t"))}
    done = hr.run(outputs, host="spark", spark=spark, buckets=1, files_per_batch=None)
    assert done.cht("folder").equals(outputs["folder"].cht())
    assert done.cht("folder").num_rows == 1
    assert done.cht("pattern").num_rows == 0, "the pattern goes through the link"


def test_a_file_that_vanishes_before_its_turn_is_counted(spark: SparkSession, folder: Path):
    for number in range(3):
        write(folder / f"{number}.csv", [(number, number)], at=number + 1)

    def remove(number: int, *_: object) -> None:
        if number == 0:
            (folder / "2.csv").unlink()

    query = read(folder).start(FunctionSink(function=remove), spark=spark, files_per_batch=1, buckets=1)
    try:
        query.process_all_available()
        (counts,) = query.counts.values()
    finally:
        query.stop()
    assert (counts["accepted"], counts["missing_files"]) == (2, 1)


def test_a_file_that_changes_after_it_was_read_is_counted(spark: SparkSession, folder: Path):
    write(folder / "0.csv", [(0, 0)])
    query = read(folder).start(hr.memory(), spark=spark, buckets=1)
    try:
        query.process_all_available()
        write(folder / "0.csv", [(0, 0), (1, 1)], at=2)
        write(folder / "1.csv", [(2, 2)], at=3)
        query.process_all_available()
        (counts,) = query.counts.values()
    finally:
        query.stop()
    assert (counts["accepted"], counts["changed_files"]) == (2, 1)


def test_files_are_read_by_name_if_the_source_says_so(spark: SparkSession, folder: Path):
    """A file that comes later with a name before those that were read is read, too."""
    for number in range(4):
        write(folder / f"{number}.csv", [(10 * number, number)], at=9 - number)
    stream = hr.read_csv(str(folder), SCHEMA, lifetime=hr.point("t"), progress=hr.ordered(), order="name")
    sink = hr.memory()
    query = stream.start(sink, spark=spark, files_per_batch=1, buckets=1)
    try:
        query.process_all_available()
        assert sink.rows()["v"].to_pylist() == [0, 1, 2, 3]
        write(folder / "00.csv", [(40, 4)], at=20)
        query.process_all_available()
        assert sink.rows()["v"].to_pylist() == [0, 1, 2, 3, 4]
        (counts,) = query.counts.values()
    finally:
        query.stop()
    assert (counts["accepted"], counts["rows"], counts["old_files"]) == (5, 5, 0)
    assert stream.run(host="spark", spark=spark).counts == stream.run().counts
