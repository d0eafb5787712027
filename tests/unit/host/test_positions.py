"""Which files of a source were read: late ones, old ones, changed ones, and what is remembered of them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

import headrace as hr
from headrace.columnar import hash_rows
from headrace.host.driving.positions import HORIZON, FilePositions
from headrace.io.files import FileOrder
from headrace.plan.nodes import Source

DAY = 24 * 3600 * 10**9
WEEK = HORIZON // DAY


def write(folder: Path, name: str, day: float) -> None:
    (folder / name).write_text("t\n1\n")
    os.utime(folder / name, ns=(int(day * DAY), int(day * DAY)))


def positions(folder: Path, most: int | None = None, order: FileOrder = "time") -> FilePositions:
    node = hr.read_csv(str(folder), "t LONG", lifetime=hr.point("t"), order=order).node
    assert isinstance(node, Source)
    return FilePositions(node, most)


def names(found: FilePositions) -> list[str]:
    return [Path(file.path).name for file in found.pending()]


def test_late_files_are_read_up_to_the_horizon_and_older_ones_are_counted(tmp_path: Path):
    write(tmp_path, "new.csv", 100)
    read = positions(tmp_path)
    read.take(read.pending())
    write(tmp_path, "late.csv", 100 - WEEK + 1)
    write(tmp_path, "old.csv", 100 - WEEK - 1)
    assert names(read) == ["late.csv"]
    assert names(read) == ["late.csv"]
    assert read.news == {"old_files": 1, "changed_files": 0, "missing_files": 0}


def test_files_that_wait_for_their_turn_hold_the_horizon_back(tmp_path: Path):
    for name, day in (("a.csv", 1), ("b.csv", 2), ("c.csv", 100)):
        write(tmp_path, name, day)
    read = positions(tmp_path)
    found = read.pending()
    read.take([found[2]])  # as another order would have it
    assert names(read) == ["a.csv", "b.csv"]


def test_a_file_from_the_future_makes_no_other_file_old(tmp_path: Path):
    read = FilePositions(positions(tmp_path).source, clock=lambda: 100 * DAY)
    write(tmp_path, "early.csv", 99)
    write(tmp_path, "future.csv", 4000)
    read.take(read.pending())
    write(tmp_path, "now.csv", 100)
    write(tmp_path, "old.csv", 100 - WEEK - 1)
    assert names(read) == ["now.csv"]
    assert read.news["old_files"] == 1


def test_a_plan_of_an_earlier_driver_forgets_nothing(tmp_path: Path):
    write(tmp_path, "a.csv", 1)
    write(tmp_path, "b.csv", 100)
    planned = positions(tmp_path).pending()[1:]
    read = positions(tmp_path)
    read.take(planned)
    assert names(read) == ["a.csv"]


def test_what_was_read_is_forgotten_behind_the_horizon_and_not_read_again(tmp_path: Path):
    read = positions(tmp_path)
    for day in range(1, 40):
        write(tmp_path, f"{day:02}.csv", day)
        assert names(read) == [f"{day:02}.csv"]
        read.take(read.pending())
    assert read.seen.rows <= WEEK + 1
    again = positions(tmp_path)
    again.restore(read.saved(), {segment.name: segment for segment in read.seen.segments})
    assert names(again) == []
    assert (again.read, again.news["old_files"]) == (39, 0)


def test_files_that_change_or_vanish_are_counted_once(tmp_path: Path):
    for number in range(3):
        write(tmp_path, f"{number}.csv", number + 1)
    read = positions(tmp_path, most=1)
    read.take(read.pending())
    write(tmp_path, "0.csv", 9)
    assert names(read) == ["1.csv"]
    (tmp_path / "2.csv").unlink()
    assert names(read) == ["1.csv"]
    assert names(read) == ["1.csv"]
    assert read.news == {"old_files": 0, "changed_files": 1, "missing_files": 1}


def test_files_that_were_reported_and_are_gone_are_not_remembered(tmp_path: Path):
    write(tmp_path, "new.csv", 100)
    read = positions(tmp_path)
    read.take(read.pending())
    for turn in range(3):
        for number in range(600):
            write(tmp_path, f"{turn}-{number}.csv", 1)
        assert names(read) == []
        for number in range(600):
            (tmp_path / f"{turn}-{number}.csv").unlink()
    assert names(read) == []
    assert read.news["old_files"] == 1800
    assert len(read._reported) == 0


# --- by name ----------------------------------------------------------------------------------------------------------


def test_by_name_a_file_with_an_earlier_name_is_still_read(tmp_path: Path):
    write(tmp_path, "b.csv", 1)
    write(tmp_path, "c.csv", 2)
    read = positions(tmp_path, order="name")
    read.take(read.pending())
    write(tmp_path, "a.csv", 3)
    write(tmp_path, "aa.csv", 2 - WEEK + 1)
    assert names(read) == ["a.csv", "aa.csv"]


def test_by_name_no_file_that_waits_falls_behind_the_horizon(tmp_path: Path):
    """The names of these files go against their times: each that is read is newer than all that wait."""
    count = 6
    for number in range(count):
        write(tmp_path, f"{number}.csv", 1000 - 100 * number)
    read, order = positions(tmp_path, most=1, order="name"), []
    while found := read.pending():
        order += [Path(file.path).name for file in found]
        read.take(found)
        again = positions(tmp_path, most=1, order="name")  # a new driver each time
        again.restore(read.saved(), {segment.name: segment for segment in read.seen.segments})
        read = again
    assert order == [f"{number}.csv" for number in range(count)]
    assert read.news["old_files"] == 0


def test_by_name_a_file_behind_the_horizon_is_counted(tmp_path: Path):
    write(tmp_path, "b.csv", 100)
    read = positions(tmp_path, order="name")
    read.take(read.pending())
    write(tmp_path, "a.csv", 100 - WEEK - 1)
    assert names(read) == []
    assert read.news["old_files"] == 1


def test_a_file_without_a_byte_is_read_when_it_has_some(tmp_path: Path):
    """A program creates a file, and the query lists it before the program has written to it."""
    (tmp_path / "a.csv").touch()
    read = positions(tmp_path)
    read.take(read.pending())
    write(tmp_path, "a.csv", 1)
    assert names(read) == ["a.csv"]
    assert read.news == {"old_files": 0, "changed_files": 0, "missing_files": 0}


def test_names_of_many_batches_are_few_segments(tmp_path: Path):
    """Every commit has all of them."""
    read, taken = positions(tmp_path), set[str]()
    for number in range(100):
        write(tmp_path, f"{number:03d}.csv", 1 + number / 10_000)
        files = read.pending()
        taken |= {file.path for file in files}
        read.take(files)
        assert len(read.seen.segments) <= 20
    assert len(taken) == 100
    again = positions(tmp_path)
    again.restore(read.saved(), {segment.name: segment for segment in read.seen.segments})
    assert names(again) == []


def test_names_of_files_that_are_removed_once_they_are_read_are_not_kept(tmp_path: Path):
    read = positions(tmp_path)
    read.passing = True
    for number in range(5):
        write(tmp_path, f"{number}.csv", 1 + number)
        (file,) = read.pending()
        assert not read.has_read(file)
        read.take([file])
        assert read.has_read(file)
        assert read.seen.rows == 0
    (tmp_path / "4.csv").unlink()
    again = positions(tmp_path)
    again.restore(read.saved(), {})
    assert (names(again), again.newest) == ([], 5 * DAY)
    write(tmp_path, "5.csv", 6)
    assert names(again) == ["5.csv"]


def test_held_files_are_read_in_the_batches_of_another_query(tmp_path: Path):
    for day, name in enumerate(("a.csv", "b.csv", "c.csv", "d.csv")):
        write(tmp_path, name, day)
    old, new = positions(tmp_path), positions(tmp_path, most=1)
    a, b, c, _ = old.pending()
    old.take([b, c], 3)
    old.take([a], 5)
    new.hold = old.batches()
    assert names(new) == ["b.csv", "c.csv"]
    new.take(new.pending(), 0)
    assert names(new) == ["a.csv"]
    new.take(new.pending(), 1)
    assert names(new) == []
    assert [new.batches()(file) for file in (a, b, c)] == [5, 3, 3]


def test_an_earlier_headrace_did_not_save_batches(tmp_path: Path):
    for day, name in enumerate(("a.csv", "b.csv", "c.csv")):
        write(tmp_path, name, day)
    earlier, old, new = positions(tmp_path), positions(tmp_path), positions(tmp_path, most=1)
    a, b, c = earlier.pending()
    earlier.take([a, b], 3)
    rows = earlier.seen.scan()
    assert rows is not None
    times = np.array([a.modified, b.modified])
    earlier.seen.replace(rows.drop_columns(["batch"]), hash_rows(rows.select(["path"])), times)
    old.restore(earlier.saved(), {segment.name: segment for segment in earlier.seen.segments})
    old.take([c], 4)
    new.hold = old.batches()
    for name in ("a.csv", "b.csv", "c.csv"):
        assert names(new) == [name]
        new.take(new.pending(), 0)
    assert [new.batches()(file) for file in (a, b, c)] == [-1, -1, 4]
