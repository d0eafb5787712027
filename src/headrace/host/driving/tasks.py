"""The tasks of a batch, on any host: read a share of the input, or run a stage in one bucket.

Processes are reused between batches. So a process keeps the stages that it ran, and compares the token of their saved
state with the token in the last commit: only a process that has not run the bucket's latest batch, or ran a failed
attempt after it, reads the segments that it lacks.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from headrace.changes import Changes
from headrace.failpoints import reach
from headrace.host.driving.plan import Batch, Job
from headrace.host.driving.recording import InputTap
from headrace.host.driving.shedding import shedders_of
from headrace.io.adapter import ReadRange, SinkAdapter, patiently
from headrace.io.decoded import DecodedBlock
from headrace.io.files import ListedFile
from headrace.io.ingress import Channel, ChannelReport
from headrace.io.reading import read_counted, read_range
from headrace.io.sinks import rows_of
from headrace.meter import Work
from headrace.pieces import ipc_pieces
from headrace.plan.nodes import Source
from headrace.plan.policies import Arrival, Heartbeat
from headrace.stages.egress import removals_counted, write_parts
from headrace.stages.intake import Intake, circulated
from headrace.stages.message import FEEDBACK, REPORTS, RESULT, STATE, STATISTICS, Message, pack, unpack
from headrace.stages.stage import StageRun
from headrace.store.blocks import BlockReader, WrittenBlocks, write_blocks
from headrace.store.bundle import Bundle
from headrace.store.log import Commit
from headrace.time import INFINITY
from headrace.trace import Segment, stored_segments

__all__ = ["forget_stages", "kept_stages", "run_intake", "run_stage"]


Stopped = Callable[[], bool]


@dataclass
class _KeptStage:
    """A stage between two batches: the token of its last saved state, and the names of the stored segments."""

    token: str
    run: StageRun
    stored: set[str]
    #: The number of bytes that were fetched for it from a remote store.
    fetched: int = 0


#: Stages kept between batches, by store, level and bucket, the most recently used last. Tasks of one process may be
#: threads; no two of them have the same stage.
_STAGES: dict[tuple[str, int, int], _KeptStage] = {}
_MOST_STAGES = 64
_STAGES_LOCK = threading.Lock()
#: Segments of up to so many bytes stay in memory when they are stored. A trace has only a few of them.
_SMALL = 1 << 16


def forget_stages(job: Job) -> None:
    """Forget the stages of a query that has ended."""
    with _STAGES_LOCK:
        for key in [key for key in _STAGES if key[0] == job.storage.place]:
            del _STAGES[key]


def kept_stages(job: Job) -> list[StageRun]:
    """The stages of a query as they are after its last batch, if they ran in this process."""
    with _STAGES_LOCK:
        return [kept.run for (place, _, _), kept in _STAGES.items() if place == job.storage.place]


# --- intake ----------------------------------------------------------------------------------------------------------


def run_intake(
    job: Job,
    batch: Batch,
    task: int,
    stopped: Stopped = lambda: False,
    workers: Executor | None = None,
    work: Work | None = None,
) -> list[Message]:
    """Read one share of a batch; when the query is being `stopped`, nothing more is read or waited for.

    `workers` are threads for the operators of large blocks. The rows of files count in `work`.
    """
    reach("intake", f"{batch.number}/{task}")
    messages = list(_read_share(job, batch, task, stopped, workers, work or Work()))
    if task == 0:
        messages += _signals(job, batch)
    messages = [_delivered(job, batch, message) for message in messages]
    reach("took", f"{batch.number}/{task}")
    return messages


def _read_share(
    job: Job, batch: Batch, task: int, stopped: Stopped, workers: Executor | None, work: Work
) -> Iterator[Message]:
    share = batch.shares[task]
    by_source: dict[int, list[ListedFile]] = {}
    for number, file in share.files:
        by_source.setdefault(number, []).append(file)
    for number, files in by_source.items():
        source = job.line.sources[number]
        intake = _intake(job, batch, source, task, workers)
        shedder = shedders_of(batch.plan, source)
        for i, file in enumerate(files):
            intake.begin_part(shedder(file))
            if i:
                intake.next_channel()
            for block in read_counted(source, file, work):
                if stopped():  # the batch has no commit: another start runs it again
                    raise CancelledError
                intake.read(block, file.path)
        yield from _recorded(job, batch, intake)
        yield from intake.messages()
    ends = yield from _read_ranges(job, batch, task, stopped, workers)
    if share.feedback and batch.last is not None:
        reader = BlockReader(job.storage, batch.last)
        for name in share.feedback:
            yield from circulated(job.line, unpack(0, FEEDBACK, reader.block(name)), job.buckets, task)
    taken = Counter(job.line.sources[number].fingerprint for number, _ in share.files)
    yield Message(0, REPORTS, extra={"files": dict(taken), "ends": ends})
    planned = {(job.line.sources[n].fingerprint, part.partition): part.end for n, part in share.ranges}
    if any(planned[source, name] != end for source, of_source in ends.items() for name, end in of_source.items()):
        # Another attempt of this task may read other rows: all buckets must have those of the same one.
        reading = uuid.uuid4().hex
        yield from (Message(bucket, REPORTS, extra={"reading": reading}) for bucket in range(job.buckets))


def _intake(job: Job, batch: Batch, source: Source, task: int, workers: Executor | None) -> Intake:
    tap = InputTap() if source.fingerprint in job.recorded else job.tap
    start = batch.start[source.fingerprint]
    return Intake(job.line, source, start, job.buckets, task, workers=workers, tap=tap)


def _recorded(job: Job, batch: Batch, intake: Intake) -> Iterator[Message]:
    """End the reading; write what ingress has judged, if the source is recorded, and report where it is."""
    reports = intake.end()
    if isinstance(intake.tap, InputTap):
        written = write_blocks(job.storage, batch.number, batch.epoch, intake.tap.blocks())
        part = {"written": written.to_json(), "reports": [report.to_json() for report in reports]}
        yield Message(0, REPORTS, extra={"recorded": {intake.source.fingerprint: part}})


def _read_ranges(
    job: Job, batch: Batch, task: int, stopped: Stopped, workers: Executor | None
) -> Generator[Message, None, dict[str, dict[str, int]]]:
    """Read the ranges of a share; returns where the next range of each partition starts, by source."""
    ends: dict[str, dict[str, int]] = {}
    by_source: dict[int, list[ReadRange]] = {}
    for number, part in batch.shares[task].ranges:
        by_source.setdefault(number, []).append(part)
    for number, parts in by_source.items():
        source = job.line.sources[number]
        start = batch.start[source.fingerprint]
        intake = _intake(job, batch, source, task, workers)
        shedder = shedders_of(batch.plan, source)
        of_source = ends.setdefault(source.fingerprint, {})
        for i, part in enumerate(parts):
            intake.begin_part(shedder(part))
            if not isinstance(source.lifetime, Arrival):
                channel = Channel.of_partition(source, start, batch.partition(source.fingerprint, part.partition))
                if i:
                    intake.next_channel(channel)
                else:
                    intake.channel = channel
            of_source[part.partition] = _take_range(intake, part, stopped)
        yield from _recorded(job, batch, intake)
        yield from intake.messages()
    return ends


def _take_range(intake: Intake, part: ReadRange, stopped: Stopped) -> int:
    """Read one range, and return where the next one starts.

    Its rows are taken when all are there: if the place stops answering, the range is read again from its beginning.
    """
    what = f"{intake.source.origin}, {part.partition}"
    blocks, end = patiently(lambda: _whole(intake.source, part), what, stopped)
    for block in blocks:
        intake.read(block, part.partition)
    return end


def _whole(source: Source, part: ReadRange) -> tuple[list[DecodedBlock], int]:
    reader, blocks = read_range(source, part), []
    while True:
        try:
            blocks.append(next(reader))
        except StopIteration as ended:
            return blocks, int(ended.value)


def _signals(job: Job, batch: Batch) -> Iterator[Message]:
    """Reports to all buckets besides rows: the clock, the end of the input, or an empty report."""
    reports: dict[str, Any] = {}
    for source in job.line.sources:
        sent = [
            replace(batch.partition(source.fingerprint, name), idle=idle)
            for name, idle in batch.plan.silent.get(source.fingerprint, ())
        ]
        if batch.plan.ends:
            sent.append(ChannelReport(cti=INFINITY))
        elif isinstance(source.policy, Heartbeat) and batch.plan.clock is not None:
            sent.append(ChannelReport(cti=source.policy.cti(batch.plan.clock)))
        if sent:
            reports[source.fingerprint] = [report.to_json() for report in sent]
    for bucket in range(job.buckets):
        yield Message(bucket, REPORTS, extra=reports)


# --- stages ----------------------------------------------------------------------------------------------------------


def run_stage(job: Job, batch: Batch, level: int, bucket: int, arrived: Iterable[Message]) -> list[Message]:
    """Run one level of a batch in one bucket, and save its state."""
    reach("stage", f"{batch.number}/{level}/{bucket}")
    messages = list(arrived)
    kept = _current(job, batch, level, bucket)
    out = kept.run.step(messages, first=batch.trip == 0)
    for message in out:
        if message.edge == STATISTICS and kept.fetched:
            message.extra["fetched"], kept.fetched = kept.fetched, 0
    if level == job.line.depth and bucket == 0:
        out += [message for message in messages if message.edge == REPORTS]
    out = [_delivered(job, batch, message) for message in out]
    state = _save(job, batch, level, bucket, kept)
    reach("staged", f"{batch.number}/{level}/{bucket}")
    state.extra["readings"] = sorted(m.extra["reading"] for m in messages if "reading" in m.extra)
    return [*out, state]


def _current(job: Job, batch: Batch, level: int, bucket: int) -> _KeptStage:
    """The stage as of the last commit."""
    with _STAGES_LOCK:
        kept = _STAGES.pop((job.storage.place, level, bucket), None)
    token = batch.token(level, bucket)
    if token is not None and kept is not None and kept.token == token:
        return kept
    run = StageRun(job.line, level, bucket, job.buckets, job.tap)
    if token is None or batch.last is None:
        return _KeptStage("", run, set())
    held = kept.run.segments() if kept is not None else {}
    return _KeptStage(token, run, *_restore(job, batch, run, batch.last, held))


def _restore(job: Job, batch: Batch, run: StageRun, commit: Commit, held: dict[str, Segment]) -> tuple[set[str], int]:
    """Restore a stage from the commit, with the segments that this process holds; the others are read when they are
    needed. Return the names of all segments, and the number of bytes fetched.
    """
    operators = {f: commit.record["state"][f][str(run.bucket)] for f in run.kernels}
    stage = commit.record["stages"][f"{run.level}/{run.bucket}"]
    reader = BlockReader(job.storage, commit)
    traces = [trace for operator in operators.values() for trace in operator["traces"].values()]
    segments = stored_segments(traces, reader.block)
    reader.open(name for name in segments if name not in held)
    segments |= {name: segment for name, segment in held.items() if name in segments}
    run.restore({"operators": operators, "trips": stage["trips"]}, batch.start, segments)
    return set(segments), reader.fetched


def _save(job: Job, batch: Batch, level: int, bucket: int, kept: _KeptStage) -> Message:
    """Write the new segments, and report the state."""
    run, segments = kept.run, kept.run.segments()
    blocks = {name: segment.save() for name, segment in segments.items() if name not in kept.stored}
    written = write_blocks(job.storage, batch.number, batch.epoch, blocks)
    _use_stored(job, written, segments)
    kept.token, kept.stored = uuid.uuid4().hex, set(segments)
    with _STAGES_LOCK:
        _STAGES[job.storage.place, level, bucket] = kept
        while len(_STAGES) > max(_MOST_STAGES, job.line.depth * job.buckets):  # stages of ended queries
            del _STAGES[next(iter(_STAGES))]
    state = {"level": level, "bucket": bucket, "token": kept.token, **run.saved(), "written": written.to_json()}
    return Message(bucket, STATE, extra=state)


def _use_stored(job: Job, written: WrittenBlocks, segments: Mapping[str, Segment]) -> None:
    """Use the file that segments were written to instead of memory of this process, where it can be mapped.

    Opening small ones again costs more than the memory that they take.
    """
    large = [name for name in written.names if segments[name].about.nbytes > _SMALL]
    data = job.storage.mapped(written.file) if large else None
    if data is not None:
        bundle = Bundle.open(written.file, data, written.length, written.checksum)
        for name in large:
            segments[name].move(partial(bundle.unchecked, name))


# --- outputs ---------------------------------------------------------------------------------------------------------


def _delivered(job: Job, batch: Batch, message: Message) -> Message:
    """Write rows of file outputs and feedback of loops here; their messages carry only the places."""
    if message.edge == FEEDBACK and "loop" in message.extra:
        blocks = {f"feedback-{uuid.uuid4().hex}": chunk for _, _, chunk in pack(message)}
        written = write_blocks(job.storage, batch.number, batch.epoch, blocks)
        about = {"blocks": list(blocks), "busy": message.extra["busy"], "written": written.to_json()}
        return Message(message.bucket, FEEDBACK, extra=about)
    number = RESULT - message.edge
    sink = job.sinks[number] if 0 <= number < len(job.sinks) else None
    if sink is None or message.table is None:
        return message
    changes = Changes.from_table(message.table)
    if isinstance(sink, SinkAdapter):
        about = _staged(job, batch, rows_of(changes, sink, batch.number))
    else:
        about = {"staged": write_parts(sink, changes, batch.number), "rows": len(changes)}
    about["size"] = removals_counted(message.table)
    return Message(message.bucket, message.edge, None, message.progress, about)


def _staged(job: Job, batch: Batch, rows: pa.Table) -> dict[str, Any]:
    """Rows for an adapter's sink, as a block of the store: they are delivered after the commit."""
    if not rows.num_rows:
        return {"rows": 0}
    name = f"rows-{uuid.uuid4().hex}"
    written = write_blocks(job.storage, batch.number, batch.epoch, {name: ipc_pieces(rows)})
    return {"rows": rows.num_rows, "block": name, "bytes": rows.nbytes, "written": written.to_json()}
