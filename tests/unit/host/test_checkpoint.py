"""Checkpoints: one query at a time, the query that it belongs to, and nothing missing of its past."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import CheckpointError, SinkError
from headrace.host.spark.checkpoint import Checkpoint
from headrace.host.spark.cross_check import cross_check
from headrace.io.commit import BatchDirectory
from headrace.io.sinks import FileSink, Sink
from headrace.optimizer import optimize
from headrace.plan.nodes import Output
from headrace.stages.cut import Line, cut

# --- one query at a time ----------------------------------------------------------------------------------------------


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
from headrace.host.spark.checkpoint import Checkpoint
place = Checkpoint(sys.argv[1])
place.lock()
child = os.fork()
if child == 0:
    time.sleep(600)
print(child, flush=True)
time.sleep(600)
"""


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


# --- nothing missing --------------------------------------------------------------------------------------------------

BATCHES = 25


class Past:
    """A checkpoint and an output after some batches, without Spark."""

    def __init__(self, folder: Path) -> None:
        self.place = Checkpoint(str(folder / "state"))
        self.out = BatchDirectory(str(folder / "out"))
        self.out.claim("me", begun=False)
        self.sinks: list[Sink] = [FileSink(path=str(folder / "out")), hr.memory()]
        for name in ("sources", "state", "offsets", "commits"):
            (self.spark / name).mkdir(parents=True)
        for batch in range(BATCHES):
            self.step(batch)

    @property
    def spark(self) -> Path:
        return self.place.path / "spark"

    def step(self, batch: int, until: str = "finished") -> None:
        """A batch, up to one of its steps; every third batch has no output."""
        (self.spark / "offsets" / str(batch)).touch()
        if until == "planned":
            return
        if batch % 3:
            self.out.commit(batch, [self.out.stage(batch, "part.jsonl", b"{}\n")])
        if until == "committed":
            return
        written = batch if batch % 3 else batch - 1
        self.place.log.write(batch, {"outputs": [0, 0], "written": [written, -1]})
        if until != "logged":
            (self.spark / "commits" / str(batch)).touch()

    def check(self) -> None:
        cross_check(self.place, self.sinks)


@pytest.fixture
def past(tmp_path: Path) -> Past:
    return Past(tmp_path)


@pytest.mark.parametrize("until", ["planned", "committed", "logged", "finished"])
def test_a_crash_between_any_two_steps_is_no_gap(past: Past, until: str):
    past.check()
    past.step(BATCHES, until)
    past.check()


def test_a_crash_in_the_very_first_batch_is_no_gap(tmp_path: Path):
    place, out = Checkpoint(str(tmp_path / "state")), BatchDirectory(str(tmp_path / "out"))
    cross_check(place, [FileSink(path=str(out.path))])
    out.claim("me", begun=False)
    (place.path / "spark" / "offsets").mkdir(parents=True)
    (place.path / "spark" / "offsets" / "0").touch()
    out.commit(0, [out.stage(0, "part.jsonl", b"")])
    cross_check(place, [FileSink(path=str(out.path))])


@pytest.mark.parametrize("batch", [BATCHES - 20, 15, BATCHES - 2])
def test_a_missing_entry_of_the_progress_log(past: Past, batch: int):
    (past.place.path / "progress" / f"{batch:012d}.json").unlink()
    with pytest.raises(CheckpointError, match=f"no entry for batch {batch}") as caught:
        past.check()
    assert "restore" in caught.value.instead
    with pytest.raises(CheckpointError, match=f"no entry for batch {batch}"):
        past.place.log.read(batch)


def test_the_last_entry_or_all_of_them_missing(past: Past):
    (past.place.path / "progress" / f"{BATCHES - 1:012d}.json").unlink()
    with pytest.raises(CheckpointError, match=r"finished batch 24, but the progress log .* ends with batch 23"):
        past.check()
    shutil.rmtree(past.place.path / "progress")
    with pytest.raises(CheckpointError, match=r"finished batch 24, but the progress log .* is empty"):
        past.check()


@pytest.mark.parametrize("name", ["", "sources", "state", "offsets"])
def test_sparks_part_missing(past: Past, name: str):
    shutil.rmtree(past.spark / name)
    with pytest.raises(CheckpointError, match=r"spark/.*missing"):
        past.check()


def test_an_older_copy_of_sparks_part(past: Past):
    for name in ("offsets", "commits"):
        (past.spark / name / str(BATCHES - 1)).unlink()
    with pytest.raises(CheckpointError, match=r"has batch 24, but Spark's part \(spark/\) ends with batch 23"):
        past.check()


@pytest.mark.parametrize("batch", [1, 13, 23])
def test_a_committed_batch_of_an_output_missing(past: Past, batch: int):
    shutil.rmtree(past.out.path / f"batch-{batch:08d}")
    with pytest.raises(SinkError, match=rf"missing from it: batch-{batch:08d}\n") as caught:
        past.check()
    assert "restore" in caught.value.instead


def test_an_output_and_its_record_cut_off_together(past: Past):
    shutil.rmtree(past.out.path / "batch-00000023")
    record = past.out.path / "_committed"
    record.write_bytes(record.read_bytes()[:-8])
    with pytest.raises(SinkError, match="batch-00000023"):
        past.check()
    record.unlink()
    with pytest.raises(SinkError, match="batch-00000023"):
        past.check()


def test_the_record_of_an_output_missing_or_torn(past: Past):
    record = past.out.path / "_committed"
    past.step(25, "committed")
    record.write_bytes(record.read_bytes()[:-3])
    past.check()  # a crash while the last number was written
    past.step(25)
    past.check()
    record.unlink()
    with pytest.raises(SinkError, match="record of committed batches"):
        past.check()


def test_an_output_ahead_of_its_checkpoint(past: Past):
    shutil.copytree(past.place.path, past.place.path.with_name("older"))
    for batch in range(BATCHES, BATCHES + 3):
        past.step(batch)
    shutil.rmtree(past.place.path)
    past.place.path.with_name("older").rename(past.place.path)
    with pytest.raises(SinkError, match="has batch 26, which the checkpoint does not know"):
        past.check()
