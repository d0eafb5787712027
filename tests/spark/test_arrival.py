"""Arrival and position on Spark: the same stamps as in process, and lines of a TCP server across a restart."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
from headrace.api.stream import Stream
from headrace.plan.arrival import POSITION, stamped, timed_by

pytestmark = pytest.mark.usefixtures("spark")


def write(path: Path, text: str, at: int) -> None:
    """A file that appears whole, last modified at a time in ticks."""
    draft = path.with_name(f"_{path.name}")
    draft.write_text(text)
    os.utime(draft, ns=(at * 1000, at * 1000))
    draft.rename(path)


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_stamps_are_those_of_the_local_host_and_of_history(tmp_path: Path):
    """In files, in memory in several batches, by arrival and by another time."""
    write(tmp_path / "b.csv", "k,t\na,1\nb,nothing\na,3\n", at=1_700_000_000_000_123)
    write(tmp_path / "a.csv", "k,t\nb,4\na,2\n", at=1_700_000_000_001_456)
    files = hr.read_csv(str(tmp_path), "k STRING, t LONG", lifetime=hr.by_arrival())
    drawn = hr.events(
        """
        kind   | le | re | k | t
        insert | 3  | 9  | a | 7
        insert | 4  | 6  | b | 6
        cti    | 4  |    |   |
        insert | 5  | 8  | b | 5
        """,
        batches=[1, 3],
    )
    streams = {
        "files": Stream(stamped(files.node)),
        "drawn": Stream(stamped(drawn.node)),
        "timed": Stream(stamped(timed_by(drawn.node, hr.col("t")))),
    }
    local, spark = hr.run(streams), hr.run(streams, host="spark", buckets=2)
    for name in streams:
        difference = hr.history_diff(local.cht(name), spark.cht(name))
        assert not difference, f"{name}: {difference}"
    assert sorted(spark.cht("files")[POSITION].to_pylist()) == [0, 0, 1, 2]
    assert spark.counts == local.counts
    assert hr.same_history(streams["files"].history(engine="spark").cht(), local.cht("files"))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_lines_of_a_host_across_a_restart(tmp_path: Path):
    """Each connection gets other lines; what came before the restart is not lost and does not come twice."""
    ready = threading.Semaphore(0)

    def serve(listener: socket.socket) -> None:
        for first in (1, 4):
            ready.acquire()
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"".join(b"k,%d\n" % i for i in range(first, first + 3)))
                connection.sendall(b"bad\n")
                ended.acquire(timeout=60)

    ended = threading.Semaphore(0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        stream = hr.read_host("127.0.0.1", listener.getsockname()[1], "k STRING, v INT")
        seen = [hr.memory(), hr.memory()]
        for turn, expected in enumerate((3, 6)):
            ready.release()
            query = stream.start(seen[turn], checkpoint=str(tmp_path / "state"))
            until(lambda: query.receivers[0].counts["lines"] == 4)  # noqa: B023 - called at once
            query.process_all_available()
            (counts,) = query.counts.values()
            assert (counts["accepted"], counts["malformed"]) == (expected, turn + 1)
            received = query.received[f"csv(header=False) host 127.0.0.1:{listener.getsockname()[1]}"]
            assert received["connections"] == 1
            query.stop()
            ended.release()
            assert "headrace-receive" not in " ".join(thread.name for thread in threading.enumerate())
    before, after = (sink.cht() for sink in seen)
    assert sorted(before["v"].to_pylist()) == [1, 2, 3]
    assert sorted(after["v"].to_pylist()) == [4, 5, 6]
    assert max(before["le"].to_pylist()) < min(after["le"].to_pylist())
