"""The way out: outputs and their sinks, the same on every host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import SinkError
from headrace.io.commit import BatchDirectory
from headrace.io.sinks import Console, FileSink, FunctionSink, Memory, Nowhere, read_events_output
from headrace.plan.nodes import Output
from headrace.progress import Progress
from headrace.stages.cut import line_of
from headrace.stages.egress import deliver, departures, hand_over, publish_parts, task_sinks, write_parts
from headrace.stages.message import RESULT, Message

EVENTS = hr.events("""
    kind   | le | re | k
    insert | 1  | 5  | a
    insert | 2  | 6  | b
    cti    | 4  |    |
""")
BATCHES = hr.run({"out": EVENTS}).results["out"].batches
SCHEMA = EVENTS.schema


def on_local(first: FileSink, second: FileSink) -> None:
    hr.run({"one": EVENTS, "two": EVENTS.where(hr.col("k") == "a")}, sinks={"one": first, "two": second})


def on_spark(first: FileSink, second: FileSink) -> None:
    hr.start_all([(EVENTS, first), (EVENTS, second)])  # refused before a session is asked for


@pytest.mark.parametrize("host", [on_local, on_spark])
def test_two_outputs_cannot_share_a_directory(host: Callable[..., None], tmp_path: Path):
    """Batches are told apart by number: of each, one output's would hide the other's."""
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(SinkError, match="directory of two outputs") as caught:
        host(hr.files(str(tmp_path / "out")), hr.files(str(tmp_path / "link" / "out")))
    assert "a directory of its own for each output" in str(caught.value)
    assert BatchDirectory(str(tmp_path / "out")).committed() == []


def test_a_run_gives_a_directory_what_a_driver_gives_it(tmp_path: Path):
    """Parts by whoever has rows, then the batch: both hosts go this way, so both directories are alike."""
    whole, parts = hr.files(str(tmp_path / "whole")), hr.files(str(tmp_path / "parts"))
    deliver(whole, "out", SCHEMA, BATCHES)
    for number, (changes, progress) in enumerate(BATCHES):
        staged = write_parts(parts, changes, number)
        publish_parts(parts, SCHEMA, number, staged, progress.cti)
        publish_parts(parts, SCHEMA, number, staged, progress.cti)  # again: it stays as it is
    assert read_events_output(whole.path, SCHEMA).equals(read_events_output(parts.path, SCHEMA))
    names = [[Path(file).name for file in BatchDirectory(sink.path).files()] for sink in (whole, parts)]
    assert names[0] == names[1]
    assert sorted(set(names[0])) == ["part-00000.jsonl", "progress.jsonl"]


@pytest.mark.parametrize("encoding", ["final", "upsert"])
def test_only_events_say_how_far_they_came(encoding: str, tmp_path: Path):
    sink = hr.files(str(tmp_path), encoding=encoding, key="k" if encoding == "upsert" else ())  # type: ignore[arg-type]
    publish_parts(sink, SCHEMA, 0, [], 4)
    assert BatchDirectory(sink.path).committed() == []


def test_sinks_of_this_process_get_whole_batches():
    got: list[int] = []
    memory, call = Memory(), FunctionSink("events", (), lambda _, changes, __: got.append(len(changes)))
    for number, (changes, progress) in enumerate(BATCHES):
        hand_over(memory, "out", number, changes, progress)
        hand_over(call, "out", number, changes, progress)
    assert got == [len(changes) for changes, _ in BATCHES]
    assert memory.batches == BATCHES


def test_which_sinks_tasks_write():
    files, nowhere = FileSink("events", (), "out"), Nowhere()
    assert task_sinks([files, Console(), nowhere, Memory(), FunctionSink()]) == (files, None, nowhere, None, None)
    assert write_parts(nowhere, BATCHES[0][0], 0) == []


def test_an_output_came_as_far_as_the_last_of_its_buckets():
    rows = hr.read_csv("rows.csv", "k STRING, t LONG", lifetime=hr.point("t"))
    counts = rows.group_by("k").window(hr.tumbling(5)).aggregate(n=hr.count())
    line = line_of([Output(counts.node, "counts"), Output(rows.node, "rows")], 2)
    changes = hr.run({"out": EVENTS.select("k", n=hr.lit(1))}).results["out"].batches[0][0]
    messages = [Message(0, RESULT, changes.to_table(), Progress(4, 7)), Message(1, RESULT, None, Progress(3, 9))]
    sources = {source.fingerprint: Progress(2, 8) for source in line.sources}
    first, second = departures(line, [messages], sources)
    assert (first.progress.cti, second.progress.cti) == (3, 2)  # the second has no stage: what its sources allow
    assert (len(first.changes()), len(second.changes())) == (len(changes), 0)
    assert second.changes().payload.column_names == ["k", "t"]
