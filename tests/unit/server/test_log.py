"""A log on disk: whole frames, once, whatever was torn off."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from tests.fixtures.waiting import PATIENCE

from headrace.errors import ServerError, StoreError
from headrace.schema import Schema
from headrace.server.log import EventLog
from headrace.server.log_files import LogFolder

COLUMNS = Schema.of("a LONG, b STRING")


def rows(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64()), "b": pa.array([f"x{value}" for value in values], pa.string())})


OPENED: list[EventLog] = []


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def opened(folder: Path, *, durable: bool = False, **options: Any) -> EventLog:
    OPENED.append(EventLog(folder, COLUMNS, durable=durable, **options))
    return OPENED[-1]


def read(log: LogFolder, start: int = 0, end: int = 1_000_000) -> list[int]:
    offsets, found = log.rows(start, end)
    assert len(offsets) == found.num_rows
    return list(found["a"].to_pylist())


def test_rows_have_offsets(tmp_path: Path):
    log = opened(tmp_path)
    assert log.append(rows(1, 2)) == (0, 2)
    assert log.append(rows(3)) == (2, 3)
    assert (log.first, log.end, read(log), read(log, 1, 3), read(log, 2, 2)) == (0, 3, [1, 2, 3], [2, 3], [])
    assert read(LogFolder(tmp_path, COLUMNS)) == [1, 2, 3]
    log.close()
    again = opened(tmp_path)
    assert again.append(rows(4)) == (3, 4)
    assert read(again) == [1, 2, 3, 4]


def test_a_torn_frame_is_cut_off_wherever_it_ends(tmp_path: Path):
    log = opened(tmp_path / "whole")
    ends = []
    for number in range(3):
        log.append(rows(number), {"query": number})
        ends.append((tmp_path / "whole" / f"{0:020d}.log").stat().st_size)
    log.close()
    data = (tmp_path / "whole" / f"{0:020d}.log").read_bytes()
    for size in range(len(data) + 1):
        folder = tmp_path / "torn"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / f"{0:020d}.log").write_bytes(data[:size])
        whole = sum(end <= size for end in ends)
        again = opened(folder)
        assert read(again) == list(range(whole))
        assert again.marked("query") == (whole - 1 if whole else None)
        assert again.append(rows(99)) == (whole, whole + 1)
        assert read(again) == [*range(whole), 99]
        again.close()
        assert read(LogFolder(folder, COLUMNS)) == [*range(whole), 99]


def test_a_damaged_frame_is_an_error_that_names_the_file(tmp_path: Path):
    log = opened(tmp_path)
    log.append(rows(1))
    place = log.size - 3
    log.append(rows(2))
    log.close()
    file = tmp_path / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[place] ^= 0xFF
    file.write_bytes(data)
    again = opened(tmp_path)
    assert read(again, 1, 2) == [2]
    with pytest.raises(StoreError, match=f"{file} is damaged at offset 0"):
        read(again)


def test_a_damaged_end_is_cut_off_unless_it_was_on_disk(tmp_path: Path):
    """After a failure of the machine a frame may be damaged although a later one is whole."""
    for later_synced in (False, True):
        folder = tmp_path / f"{later_synced}"
        log = opened(folder)
        log.append(rows(1))
        with patch.object(log, "_sync", lambda *_, **__: None) if not later_synced else nullcontext():
            log.append(rows(2))
            log.append(rows(3))
        log.close()
        file = folder / f"{0:020d}.log"
        data = bytearray(file.read_bytes())
        found = data.find(b"x2")
        data[found] ^= 0xFF
        file.write_bytes(data)
        again = opened(folder)
        if later_synced:
            assert again.end == 3
            with pytest.raises(StoreError, match="is damaged at offset 1"):
                read(again)
        else:
            assert read(again) == [1]


def test_a_segment_that_is_not_the_last_is_whole_or_damaged(tmp_path: Path):
    log = opened(tmp_path, segment_bytes=1)
    log.append(rows(1))
    log.append(rows(2))
    log.close()
    file = tmp_path / f"{0:020d}.log"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(StoreError, match="is damaged at byte"):
        opened(tmp_path)


def test_a_base_replaces_segments(tmp_path: Path):
    log = opened(tmp_path, segment_bytes=1)
    for number in range(5):
        log.append(rows(number), {"x": number, f"key {number}": 1})
    assert log.forget(2) == 2
    assert (log.first, log.kept, log.end, read(log)) == (2, 2, 5, [2, 3, 4])
    assert log.forget(4, rows(3)) == 4
    assert (log.first, log.kept, log.end, read(log), read(log, 4, 5)) == (3, 4, 5, [3, 4], [4])
    assert read(LogFolder(tmp_path, COLUMNS)) == [3, 4]
    log.close()
    again = opened(tmp_path)
    assert (again.first, again.kept, again.end, read(again)) == (3, 4, 5, [3, 4])
    assert (again.marked("x"), again.marked("key 0")) == (4, 1)
    again.divide()
    assert again.append(rows(9)) == (5, 6)
    assert again.forget(5) == 5
    assert sorted(path.suffix for path in tmp_path.iterdir() if path.name != "lock") == [".base", ".log"]


def test_what_a_base_has_replaced_is_removed_after_a_crash(tmp_path: Path):
    log = opened(tmp_path / "a", segment_bytes=1)
    for number in range(4):
        log.append(rows(number))
    log.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    log = opened(tmp_path / "a", segment_bytes=1)
    log.forget(3, rows(1))
    log.close()
    shutil.copy(tmp_path / "a" / f"{3:020d}.base", tmp_path / "b")  # the process died before it removed anything
    (tmp_path / "b" / f"{9:020d}.draft").write_bytes(b"half")
    for folder in ("a", "b"):
        assert read(LogFolder(tmp_path / folder, COLUMNS)) == [1, 3]
        assert read(opened(tmp_path / folder)) == [1, 3]
    assert {path.name for path in (tmp_path / "a").iterdir()} == {path.name for path in (tmp_path / "b").iterdir()}


def test_no_rows_are_a_frame_too(tmp_path: Path):
    log = opened(tmp_path)
    log.append(rows(), {"x": 1})
    log.append(rows(1))
    assert (read(log), log.marked("x")) == ([1], 1)


def test_small_frames_in_memory_are_bounded(tmp_path: Path):
    log = opened(tmp_path)
    with patch("headrace.server.log_files._CACHED_BYTES", 50_000):
        for number in range(100):
            log.append(rows(number))
        assert len(log._cache) < 15  # a batch takes kilobytes, however few values it has
        assert read(log) == list(range(100))
        assert len(log._cache) < 15


def test_threads_share_a_log(tmp_path: Path):
    log = opened(tmp_path, durable=True)
    found: list[list[int]] = [[] for _ in range(4)]

    def write(thread: int) -> None:
        for number in range(25):
            appended = log.append(rows(thread * 100 + number, -1))
            found[thread].append(appended.start)
            assert log.end >= appended.end

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = read(log)
    assert sorted(value for value in values if value >= 0) == [100 * t + n for t in range(4) for n in range(25)]
    for thread, starts in enumerate(found):
        assert [values[start] for start in starts] == [100 * thread + number for number in range(25)]


def test_readers_wait(tmp_path: Path):
    log = opened(tmp_path)
    assert not log.wait(0, 0.01)
    timer = threading.Timer(0.05, lambda: log.append(rows(1)))
    timer.start()
    assert log.wait(0, PATIENCE)
    timer.join()
    closer = threading.Timer(0.05, log.close)
    closer.start()
    assert not log.wait(1, PATIENCE)
    closer.join()
    with pytest.raises(ServerError, match="closed"):
        log.append(rows(2))


def test_one_writer_and_the_same_columns(tmp_path: Path):
    log = opened(tmp_path)
    log.append(rows(1))
    with pytest.raises(ServerError, match="another process writes this log"):
        opened(tmp_path)
    log.close()
    with pytest.raises(ServerError, match="has other columns"):
        EventLog(tmp_path, Schema.of("a LONG"), durable=False)


def test_segments_begin_while_another_thread_syncs(tmp_path: Path):
    log = opened(tmp_path / "log", durable=True, segment_bytes=500)
    failed: list[BaseException] = []

    def write(thread: int) -> None:
        try:
            for number in range(60):
                log.append(rows(thread * 1000 + number))
        except BaseException as error:  # noqa: BLE001 - shown below
            failed.append(error)

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = sorted(thread * 1000 + number for thread in range(6) for number in range(60))
    assert not failed
    assert sorted(read(log)) == expected
    log.close()
    assert sorted(read(opened(tmp_path / "log"))) == expected
