"""Which files of a source were read: late ones, old ones, changed ones, and what is remembered of them."""

from __future__ import annotations

import os
from pathlib import Path

import headrace as hr
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
