"""Checkpoints: one query at a time, and the query that it belongs to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import CheckpointError
from headrace.host.driving.checkpoint import Checkpoint
from headrace.io.sinks import FileSink
from headrace.optimizer import optimize
from headrace.plan.nodes import Output, Source, walk
from headrace.stages.cut import Line, cut

# --- one query at a time ----------------------------------------------------------------------------------------------


def test_a_lock_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "lock").mkdir()
    with pytest.raises(CheckpointError, match="cannot be written: Is a directory") as caught:
        Checkpoint(str(tmp_path)).lock()
    assert caught.value.given == str(tmp_path)


@pytest.fixture
def held(tmp_path: Path) -> Any:
    place = Checkpoint(str(tmp_path / "state"))
    place.lock()
    yield place
    place.close()


def test_two_queries_of_one_process(held: Checkpoint, tmp_path: Path):
    with pytest.raises(CheckpointError, match="another query uses this checkpoint, in this process") as caught:
        Checkpoint(str(tmp_path / "state")).lock()
    assert "stop() the other query first" in caught.value.instead
    (tmp_path / "linked").symlink_to(tmp_path / "state")
    with pytest.raises(CheckpointError, match="in this process"):
        Checkpoint(f"file://{tmp_path}/linked").lock()
    held.close()
    again = Checkpoint(str(tmp_path / "state"))
    again.lock()
    again.close()


def test_a_query_that_has_failed_lets_it_go(held: Checkpoint, tmp_path: Path):
    held.in_use = lambda: False
    again = Checkpoint(str(tmp_path / "state"))
    again.lock()
    with pytest.raises(CheckpointError):
        Checkpoint(str(tmp_path / "state")).lock()
    held.close()  # whoever stops the failed one does not take the lock from the other
    with pytest.raises(CheckpointError):
        Checkpoint(str(tmp_path / "state")).lock()
    again.close()


HOLDER = """
import os, sys, time
from headrace.host.driving.checkpoint import Checkpoint
place = Checkpoint(sys.argv[1])
place.lock()
if os.fork() == 0:  # it says so itself: then it has closed what it has got of its parent
    print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_two_processes_and_a_death_whose_fork_lives_on(tmp_path: Path):
    state = str(tmp_path / "state")
    with subprocess.Popen([sys.executable, "-c", HOLDER, state], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            with pytest.raises(CheckpointError, match="in another process"):
                Checkpoint(state).lock()
        finally:
            process.kill()
            process.wait()
    try:
        place = Checkpoint(state)
        place.lock()
        place.close()
    finally:
        os.kill(child, 9)


# --- whose it is ------------------------------------------------------------------------------------------------------


def line_of(tmp_path: Path, schema: str = "t LONG, v LONG, unused INT") -> Line:
    stream = hr.read_csv(str(tmp_path), schema, lifetime=hr.point("t")).select("v")
    return cut(optimize([Output(stream.node, "0 filesink")]), 2)


def test_a_changed_type_of_an_unused_column_is_refused(tmp_path: Path):
    Checkpoint(str(tmp_path / "state")).claim(line_of(tmp_path), 2)
    Checkpoint(str(tmp_path / "state")).claim(line_of(tmp_path), 2)
    with pytest.raises(CheckpointError, match="sources have other columns") as caught:
        Checkpoint(str(tmp_path / "state")).claim(line_of(tmp_path, "t LONG, v LONG, unused STRING"), 2)
    assert "unused INT" in str(caught.value)
    assert "unused STRING" in str(caught.value)


def test_another_format_of_an_output_is_refused(tmp_path: Path):
    jsonl, parquet = FileSink(path="out"), FileSink(path="out", format="parquet")
    Checkpoint(str(tmp_path / "state")).claim(line_of(tmp_path), 2, [jsonl])
    with pytest.raises(CheckpointError, match="outputs are written in another form") as caught:
        Checkpoint(str(tmp_path / "state")).claim(line_of(tmp_path), 2, [parquet])
    assert "jsonl" in str(caught.value)


def test_another_number_of_buckets_is_refused(tmp_path: Path):
    place = Checkpoint(str(tmp_path / "state"))
    assert place.buckets(None, 4) == 4
    place.claim(line_of(tmp_path), place.buckets(2, 4))
    again = Checkpoint(str(tmp_path / "state"))
    assert again.buckets(None, 4) == again.buckets(2, 4) == 2
    with pytest.raises(CheckpointError, match="another number of buckets") as caught:
        again.buckets(3, 4)
    assert "buckets=2" in caught.value.instead


def test_a_mark_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / ".drafts").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"cannot list .*\.drafts': Not a directory"):
        Checkpoint(str(tmp_path / "state")).claim(line_of(tmp_path), 2)
    assert not (tmp_path / "state" / "headrace.json").exists()


@pytest.mark.parametrize("path", ["", "file:"])
def test_a_place_that_is_none_is_refused(path: str):
    with pytest.raises(CheckpointError, match="must be a path"):
        Checkpoint(path)


# --- events that were in memory ---------------------------------------------------------------------------------------


def spilled(tmp_path: Path, value: int) -> list[str]:
    stream = hr.events(f"kind|le|re|re_new|x\ninsert|1|9||{value}\ncti|2|||\n")
    place = Checkpoint(str(tmp_path / "state"))
    (origin,) = (node.origin for node in walk(stream.node) if isinstance(node, Source))
    return [Path(file.path).name for file in place.spill(origin).files()]


def test_events_are_written_down_once_also_if_a_start_was_broken_off(tmp_path: Path):
    written = spilled(tmp_path, 1)
    assert written == ["000000.arrow"]
    (mark,) = (tmp_path / "state" / "events").rglob("_whole")
    mark.unlink()
    assert spilled(tmp_path, 1) == written
    assert mark.exists()


@pytest.mark.parametrize("name", ["000000.arrow", "000001.arrow"])
def test_events_of_a_start_that_was_broken_off_are_not_mixed_with_others(tmp_path: Path, name: str):
    """Such as a file that is damaged, or one more than there should be."""
    spilled(tmp_path, 1)
    (mark,) = (tmp_path / "state" / "events").rglob("_whole")
    mark.unlink()
    (mark.parent / name).unlink(missing_ok=True)
    (mark.parent / name).write_bytes(b"")
    with pytest.raises(CheckpointError, match="began with other events"):
        spilled(tmp_path, 1)
