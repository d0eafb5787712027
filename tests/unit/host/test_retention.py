"""What queries remove: old batches of outputs, diverted rows, lines that were read; and what gc removes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures.waiting import PATIENCE, appear, until
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.errors import CheckpointError, PlanError, SinkError, TimeError
from headrace.host.driving import keeping
from headrace.io.commit import BatchDirectory
from headrace.io.host_source import Spool
from headrace.store.blocks import write_blocks
from headrace.store.storage import LocalStorage

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
SCHEMA = "t LONG, v LONG"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch):
    """Each batch looks for what can be removed."""
    monkeypatch.setattr(keeping, "_EVERY", 0.0)


def rows_of(folder: Path) -> hr.Stream:
    folder.mkdir(exist_ok=True)
    return hr.read_csv(str(folder), SCHEMA, lifetime=hr.point("t"), progress=hr.advance(delay=0))


def add(folder: Path, number: int) -> None:
    """A file with a row, a late one except for the first file, and one that cannot be read."""
    appear(folder / f"{number:03d}.csv", f"t,v\n{10 * number},{number}\n{10 * number - 5},0\nx,y\n")


def run(tmp_path: Path, numbers: range, **options: Any) -> Any:
    """A query that reads a file at a time, and is stopped."""
    stream = rows_of(tmp_path / "in")
    sink = hr.files(str(tmp_path / "out"), encoding="changes", keep=options.pop("keep", None))
    query = stream.start(sink, host="local", checkpoint=str(tmp_path / "state"), **options)
    for number in numbers:
        add(tmp_path / "in", number)
        query.process_all_available()
    query.stop()
    return query


def lines(folder: Path) -> list[Any]:
    return [
        json.loads(line) for file in BatchDirectory(str(folder)).files() for line in Path(file).read_text().splitlines()
    ]


def grow_old(folder: Path, upto: int) -> None:
    for batch in BatchDirectory(str(folder)).folders():
        if batch.last <= upto:
            os.utime(batch.path, (1.0, 1.0))


def test_a_sink_keeps_everything_by_default(tmp_path: Path):
    run(tmp_path, range(4))
    grow_old(tmp_path / "out", 99)
    query = run(tmp_path, range(4, 6))
    assert len(BatchDirectory(str(tmp_path / "out")).committed()) == 6
    assert str(tmp_path / "out") not in query.progress()["removed"]


def test_old_batches_of_a_sink_go_and_the_query_goes_on(tmp_path: Path):
    run(tmp_path, range(4), keep="1 day")
    grow_old(tmp_path / "out", 2)
    query = run(tmp_path, range(4, 6), keep="1 day")
    out = BatchDirectory(str(tmp_path / "out"))
    assert out.committed() == [3, 4, 5]
    removed = query.progress()["removed"][str(tmp_path / "out")]
    assert (removed["batches"], removed["files"]) == (3, 3)
    assert "3 files with" in str(query.progress())
    shown = CliRunner().invoke(app, ["checkpoint", "show", str(tmp_path / "state")]).output
    assert "6 batches, of which 3 were removed: kept are 86400 s" in shown
    run(tmp_path, range(6, 8))  # a start without keep= continues, too
    assert out.committed() == [3, 4, 5, 6, 7]
    next(out.path.glob("batch-00000004")).rename(tmp_path / "lost")
    with pytest.raises(SinkError, match="batch 4 is missing"):
        run(tmp_path, range(8, 9))


def test_diverted_rows_are_kept_in_few_files_and_for_some_time(tmp_path: Path):
    run(tmp_path, range(13))
    place = tmp_path / "state" / "diverted" / "0"
    assert [folder.path.name for folder in BatchDirectory(str(place)).folders()] == [
        "batch-00000000-00000009", "batch-00000010", "batch-00000011", "batch-00000012",
    ]  # fmt: skip
    every = lines(place)
    assert len(every) == 13 * 2
    grow_old(place, 10)
    query = run(tmp_path, range(13, 14))
    assert len(lines(place)) == 3 * 2
    assert query.progress()["removed"][str(place)]["batches"] == 11
    run(tmp_path, range(14, 15), retention={"diverted": None})
    assert len(lines(place)) == 4 * 2


def test_a_clock_that_jumps_back_stops_no_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keeping, "_EVERY", 60.0)
    sink = hr.files(str(tmp_path / "out"), encoding="changes", keep="10 s")
    looks: list[float] = []
    times = [1e9, 1e9 + 1, 1e9 + 2, 5e8, 5e8 + 1, 5e8 + 2]
    clock: list[float] = []

    def looked(path: str) -> BatchDirectory:
        looks.append(clock[-1])
        return BatchDirectory(path)

    monkeypatch.setattr(keeping, "batches_at", looked)
    keeper = keeping.OutputKeeper([sink], clock=lambda: clock[-1])
    for now in times:
        clock.append(now)
        keeper.look(0)
    assert looks == [1e9, 1e9 + 2, 5e8, 5e8 + 2]


def test_retention_says_what_it_knows(tmp_path: Path):
    stream = rows_of(tmp_path / "in")
    with pytest.raises(PlanError, match="no retention of this name") as caught:
        stream.start(hr.memory(), host="local", retention={"divert": "1 h"})
    assert "'diverted'" in str(caught.value)
    with pytest.raises(PlanError, match="how long something is kept"):
        stream.start(hr.memory(), host="local", retention={"diverted": "never"})
    with pytest.raises(PlanError, match="retention is a dictionary"):
        stream.start(hr.memory(), host="local", retention="1 h")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="how long something is kept"):
        hr.files("out", keep="a while")


# --- gc --------------------------------------------------------------------------------------------------------------


def gc(tmp_path: Path, *options: str) -> Any:
    return CliRunner().invoke(app, ["checkpoint", "gc", str(tmp_path / "state"), *options])


def test_a_dry_run_says_what_would_be_removed(tmp_path: Path):
    run(tmp_path, range(5), retention={"diverted": "1 day"})
    litter = write_blocks(LocalStorage(tmp_path / "state/store"), 1, 1, {"x": b"litter"}, inline=0).file
    (tmp_path / "state" / "store" / ".drafts" / "half").write_text("half a file")
    place = tmp_path / "state" / "diverted" / "0"
    grow_old(place, 2)
    before = LocalStorage(tmp_path).sizes()
    dry = gc(tmp_path, "--dry-run")
    assert LocalStorage(tmp_path).sizes() == before
    found = json.loads(gc(tmp_path, "--json").output)
    assert {kind: about["files"] for kind, about in found["removed"].items()} == {
        "files of state": 1, "unfinished files": 1, "diverted rows": 3,
    }  # fmt: skip
    assert f"would remove 5 files with {found['bytes']:,} bytes" in dry.output
    assert "diverted rows            3 files" in dry.output
    assert not (tmp_path / "state" / "store" / litter).exists()
    assert BatchDirectory(str(place)).committed() == [3, 4]
    assert "removed 0 files" in gc(tmp_path).output
    run(tmp_path, range(5, 6))
    assert len(BatchDirectory(str(tmp_path / "out")).committed()) == 6


def test_a_directory_that_another_query_has_now_is_left(tmp_path: Path):
    run(tmp_path, range(3), keep="1 day")
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "state").rename(tmp_path / "before")
    run(tmp_path, range(3, 5))  # with a checkpoint of its own; it keeps everything
    grow_old(tmp_path / "out", 99)
    there = BatchDirectory(str(tmp_path / "out")).committed()
    found = hr.checkpoint(tmp_path / "before").gc()
    assert (found["files"], found["outputs_left"]) == (0, [str(tmp_path / "out")])
    assert f"left {tmp_path / 'out'}: it is the output of another query" in str(found)
    assert BatchDirectory(str(tmp_path / "out")).committed() == there
    shutil.rmtree(tmp_path / "out")
    assert hr.checkpoint(tmp_path / "before").gc()["outputs_left"] == []


def test_batches_that_an_older_checkpoint_does_not_know_push_out_none(tmp_path: Path):
    run(tmp_path, range(3), keep="1 day")
    shutil.copytree(tmp_path / "state", tmp_path / "older")
    run(tmp_path, range(3, 6), keep="1 day")
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "older").rename(tmp_path / "state")
    grow_old(tmp_path / "out", 99)
    out = BatchDirectory(str(tmp_path / "out"))
    assert gc(tmp_path).exit_code == 0
    assert out.committed() == [2, 3, 4, 5]
    with pytest.raises(SinkError, match="commits were lost"):
        run(tmp_path, range(0))
    for batch in (3, 4, 5):
        shutil.rmtree(tmp_path / "out" / f"batch-{batch:08d}")
    run(tmp_path, range(6, 7))  # what the query has written up to its commit is there
    assert out.committed()[:2] == [2, 3]


@pytest.mark.parametrize("options", [{"keep": "1 B"}, {"compact": 2}])
def test_a_foreign_batch_beside_a_running_query_changes_nothing(tmp_path: Path, options: Any):
    query = rows_of(tmp_path / "in").start(
        hr.files(str(tmp_path / "out"), encoding="changes", **options), host="local", checkpoint=str(tmp_path / "state")
    )
    add(tmp_path / "in", 0)
    query.process_all_available()
    foreign = tmp_path / "out" / "batch-99999999"
    shutil.copytree(next((tmp_path / "out").glob("batch-*")), foreign)
    for number in range(1, 6):
        add(tmp_path / "in", number)
        query.process_all_available()
    query.stop()
    assert gc(tmp_path).exit_code == 0
    there = BatchDirectory(str(tmp_path / "out")).committed()
    assert there == [*([5] if "keep" in options else range(6)), 99_999_999]
    shutil.rmtree(foreign)
    run(tmp_path, range(6, 7))


def test_an_age_is_for_diverted_rows_and_recordings_but_not_for_results(tmp_path: Path):
    run(tmp_path, range(30), record="1 day")
    assert len(hr.checkpoint(tmp_path / "state").show()["kept"]) == 30
    grow_old(tmp_path / "out", 99)
    found = hr.checkpoint(tmp_path / "state").gc(older_than=0)
    assert found["removed"]["commits"]["files"] == 20
    assert BatchDirectory(str(tmp_path / "state" / "diverted" / "0")).committed() != list(range(30))
    assert len(BatchDirectory(str(tmp_path / "out")).committed()) == 30
    assert hr.checkpoint(tmp_path / "state").verify()["problems"] == []
    run(tmp_path, range(30, 31), record="1 day")


def test_old_output_goes_while_the_query_runs(tmp_path: Path):
    stream = rows_of(tmp_path / "in")
    query = stream.start(hr.memory(), host="local", checkpoint=str(tmp_path / "state"), retention={"diverted": None})
    for number in range(4):
        add(tmp_path / "in", number)
        query.process_all_available()
    grow_old(tmp_path / "state" / "diverted" / "0", 99)
    found = hr.checkpoint(tmp_path / "state").gc("1h")
    assert (found["running"], found["removed"]["diverted rows"]["files"]) == (True, 3)
    add(tmp_path / "in", 4)
    query.process_all_available()
    query.stop()
    assert len(lines(tmp_path / "state" / "diverted" / "0")) == 2 * 2
    run_again = stream.start(hr.memory(), host="local", checkpoint=str(tmp_path / "state"))
    run_again.process_all_available()
    run_again.stop()


def test_an_age_is_a_duration(tmp_path: Path):
    run(tmp_path, range(1))
    with pytest.raises(TimeError, match="not a duration"):
        hr.checkpoint(tmp_path / "state").gc("soon")
    with pytest.raises(CheckpointError, match="an age is not negative"):
        hr.checkpoint(tmp_path / "state").gc("-1 h")
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        hr.checkpoint(tmp_path / "nothing").gc()


# --- spools ----------------------------------------------------------------------------------------------------------


class Lines:
    """A server that sends lines over one connection."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._there = threading.Event()
        self._listening.settimeout(PATIENCE)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self._connections.append(self._listening.accept()[0])
            except OSError:
                return
            self._there.set()

    def send(self, text: str) -> None:
        assert self._there.wait(PATIENCE)
        self._connections[-1].sendall(text.encode())

    def forget(self) -> None:
        """The next line is for the next connection."""
        self._there.clear()

    def close(self) -> None:
        self._listening.close()
        for connection in self._connections:
            connection.close()


@pytest.mark.parametrize("own", [False, True], ids=["in the checkpoint", "of the user"])
def test_received_lines_are_removed_once_they_are_read(tmp_path: Path, own: bool):
    spool = tmp_path / ("spool" if own else "state/spool")
    memory, server = hr.memory(), Lines()

    def start() -> Any:
        place = {"spool": str(spool)} if own else {}
        stream = hr.read_host("127.0.0.1", server.port, "t LONG", lifetime=hr.point("t"), **place)
        return stream.start(memory, host="local", checkpoint=str(tmp_path / "state"))

    def rows(query: Any) -> int:
        return sum(counts["accepted"] for counts in query.counts.values())

    query = start()
    for number in range(3):
        server.send(f"{number}\n")
        until(lambda number=number: rows(query) == number + 1)
    query.stop()
    files = list(spool.rglob("*.csv"))
    assert len(files) == (3 if own else 0)
    if not own:
        removed = query.progress()["removed"]
        assert sum(about["files"] for place, about in removed.items() if place.startswith(str(spool))) == 3
    saved = hr.checkpoint(tmp_path / "state")
    assert saved.show()["sources"][0]["files_read"] == 3
    server.forget()
    again = start()
    server.send("3\n")
    until(lambda: rows(again) == 4)
    again.stop()
    server.close()
    assert memory.cht()["le"].to_pylist() == [0, 1, 2, 3]


def test_a_spool_after_removed_files_has_later_times(tmp_path: Path):
    """Else lines that are received after the clock was set back would count as read."""
    spool = Spool(tmp_path, "csv", 3, is_read=lambda _: True, after=9 * 10**18)
    spool.write([b"1"])
    spool.close()
    (file,) = tmp_path.glob("*.csv")
    assert file.stat().st_mtime_ns > 9 * 10**18
