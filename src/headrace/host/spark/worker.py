"""What runs in Spark's Python workers: the intake and the stages, on rows that hold chunks.

Workers are reused between batches. So a stage's state is kept in the worker, in `_RUNS`, and only its version is
compared with the state store's; a worker that has not seen a bucket, or has run ahead in an attempt that failed, reads
the segments it lacks. Functions and classes here are importable, not `__main__`'s: otherwise the memory would be lost.
"""

from __future__ import annotations

import pickle
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from headrace.changes import Changes
from headrace.host.spark.progress_log import ProgressLog
from headrace.io.commit import BatchDirectory
from headrace.io.ingress import Report
from headrace.io.origins import read_path
from headrace.io.sinks import FileSink, Nowhere, encode
from headrace.plan.policies import Heartbeat
from headrace.progress import Progress
from headrace.stages.cut import Line
from headrace.stages.intake import Intake, circulated
from headrace.stages.message import FEEDBACK, REPORTS, RESULT, Message, pack, unpack
from headrace.stages.stage import StageRun
from headrace.time import INFINITY
from headrace.trace import Segment

__all__ = ["CHUNK", "Job", "StageProcessor", "feedback_directory", "make_intake"]

CHUNK = "bucket int, edge int, seq long, chunk binary"
_CHUNK_ARROW = pa.schema([("bucket", pa.int32()), ("edge", pa.int32()), ("seq", pa.int64()), ("chunk", pa.binary())])
#: The kinds of rows the intake gets: a file to read, what goes round a loop, a tick of the clock, the end of all input.
FILE, ROUND, TICK, END = "file", "round", "tick", "end"
#: The column that tells rows the time of their batch, which is the same on every attempt.
BATCH_TIME = "batch_time"
_VALUE = StructType([StructField("value", BinaryType())])
_NAME = StructType([StructField("name", StringType())])
#: Segments up to this size travel inside the manifest, because a call to the state store costs more than they do.
_INLINE = 32_768

#: Stages kept between batches, by checkpoint, level and bucket, the most recently used last.
_RUNS: dict[tuple[str, int, int], tuple[str, StageRun]] = {}
_MOST_RUNS = 64


@dataclass(frozen=True, eq=False)
class Job:
    """Everything a worker must know about a query."""

    token: str
    line: Line
    labels: tuple[int, ...]
    checkpoint: str
    #: The sink of every output that workers write themselves; None for outputs the driver takes.
    files: tuple[FileSink | Nowhere | None, ...]

    @property
    def buckets(self) -> int:
        return len(self.labels)


def feedback_directory(checkpoint: str) -> str:
    """Where what goes round a loop is, from one batch to the next."""
    return str(Path(checkpoint, "feedback"))


def _batch_id() -> int | None:
    """The number of the batch; Spark Connect does not tell."""
    context = TaskContext.get()
    text = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    return int(text) if text else None


# --- intake ----------------------------------------------------------------------------------------------------------


def make_intake(job: Job) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: rows `(source, what, path, at, batch_time)` in, chunks out."""

    def intake(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [row for batch in batches for row in batch.to_pylist()]
        if rows:
            start = ProgressLog(job.checkpoint).before(_batch_id(), rows[0]["batch_time"])
            yield _chunks(job, list(_messages(job, rows, start)))

    return intake


def make_row_intake(job: Job, number: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow` over rows that Spark itself has read: a source's columns and the batch's time."""

    def intake(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source, task, time = job.line.sources[number], None, None
        for batch in batches:
            if task is None and batch.num_rows:
                time = batch.column(BATCH_TIME)[0].as_py()
                start = ProgressLog(job.checkpoint).before(_batch_id(), time).get(source.fingerprint, Progress())
                task = Intake(job.line, source, start, job.buckets, _sender())
            if task is not None:
                table = pa.Table.from_batches([batch]).drop_columns([BATCH_TIME])
                task.take(table.cast(pa.schema([source.columns.arrow.field(name) for name in table.column_names])))
        if task is not None and time is not None:
            yield _chunks(job, [*task.finish(), Message(0, REPORTS, extra={"batch_time": time.timestamp()})])

    return intake


def _sender() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def _messages(job: Job, rows: list[dict[str, Any]], start: dict[str, Progress]) -> Iterator[Message]:
    sender = _sender()
    for number in sorted({row["source"] for row in rows if row["what"] == FILE}):
        source = job.line.sources[number]
        paths = [_plain(row["path"]) for row in rows if row["what"] == FILE and row["source"] == number]
        intake = Intake(job.line, source, start.get(source.fingerprint, Progress()), job.buckets, sender)
        for i, path in enumerate(sorted(paths)):
            if i:
                intake.next_channel()
            for block in read_path(source, path):
                intake.read(block, path)
        yield from intake.finish()
    for row in rows:
        if row["what"] == ROUND:
            back = unpack(0, FEEDBACK, Path(_plain(row["path"])).read_bytes())
            yield from circulated(job.line, back, job.buckets, sender)
        elif row["what"] != FILE:
            yield from _signals(job, row)
    taken = Counter(job.line.sources[row["source"]].fingerprint for row in rows if row["what"] == FILE)
    yield Message(0, REPORTS, extra={"batch_time": rows[0]["batch_time"].timestamp(), "files": dict(taken)})


def _plain(path: str) -> str:
    """A local file's path as it is: Spark puts a scheme before it but does not encode it, so `%` means itself."""
    bare = "/" + path.removeprefix("file:").lstrip("/")
    return bare if path.startswith("file:") and Path(bare).exists() else path


def _signals(job: Job, row: dict[str, Any]) -> Iterator[Message]:
    sources = job.line.sources if row["what"] == END else [job.line.sources[row["source"]]]
    for source in sources:
        report = Report(cti=INFINITY)
        if isinstance(source.policy, Heartbeat) and row["what"] == TICK:
            now = int(row["at"].timestamp() * 1_000_000) - source.policy.delay
            report = Report(cti=now // source.policy.every * source.policy.every)
        for bucket in range(job.buckets):
            yield Message(bucket, REPORTS, extra={source.fingerprint: [report.to_json()]})


def _chunks(job: Job, messages: list[Message]) -> pa.RecordBatch:
    rows = [row for message in messages for row in pack(message)]
    columns = [
        [job.labels[b] for b, _, _ in rows],
        [e for _, e, _ in rows],
        list(range(len(rows))),
        [c for _, _, c in rows],
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, t) for c, t in zip(columns, _CHUNK_ARROW.types, strict=True)], schema=_CHUNK_ARROW
    )


# --- stages ----------------------------------------------------------------------------------------------------------


class StageProcessor(StatefulProcessor):
    """One level of the line; Spark calls it once a batch for every bucket."""

    def __init__(self, job: Job, level: int) -> None:
        self.job, self.level = job, level

    def init(self, handle: Any) -> None:
        self._manifest = handle.getValueState("manifest", _VALUE)
        self._segments = handle.getMapState("segments", _NAME, _VALUE)

    def handleInputRows(  # noqa: N802 - Spark calls it by this name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002, N803 - and with these
    ) -> Iterator[pd.DataFrame]:
        """Run one batch of this bucket."""
        bucket = self.job.labels.index(int(key[0]))
        run, known = self._current(bucket)
        arrived = [unpack(bucket, e, c) for frame in rows for e, c in zip(frame["edge"], frame["chunk"], strict=True)]
        messages = run.step(arrived)
        if self.level == self.job.line.depth:
            messages = [self._written(m) for m in messages] + [m for m in arrived if m.edge == REPORTS and bucket == 0]
        self._save(run, bucket, known)
        table = pa.Table.from_batches([_chunks(self.job, messages)])
        yield table.to_pandas()

    def close(self) -> None:
        """Nothing is held but what the next batch may use."""

    def _current(self, bucket: int) -> tuple[StageRun, set[str]]:
        """The stage as of the last batch, and the names of the segments the store has."""
        place = (self.job.checkpoint, self.level, bucket)
        stored = self._manifest.get()
        if stored is None:
            _RUNS.pop(place, None)
            return StageRun(self.job.line, self.level, bucket, self.job.buckets), set()
        saved = pickle.loads(stored[0])  # noqa: S301 - only ever what `_save` wrote
        version, run = _RUNS.pop(place, ("", None))
        if run is None or version != saved["version"]:
            held = run.segments() if run is not None else {}
            run = StageRun(self.job.line, self.level, bucket, self.job.buckets)
            names = StageRun.segment_names(saved["manifest"])
            run.restore(saved["manifest"], {n: held.get(n) or self._load(n, saved["inline"]) for n in names})
        return run, set(saved["stored"])

    def _load(self, name: str, inline: dict[str, bytes]) -> Segment:
        return Segment.load(name, inline[name] if name in inline else self._segments.getValue((name,))[0])

    def _save(self, run: StageRun, bucket: int, stored: set[str]) -> None:
        segments = run.segments()
        inline: dict[str, bytes] = {}
        for name, segment in segments.items():
            if name in stored:
                continue
            if segment.table.nbytes <= _INLINE:
                inline[name] = segment.save()
            else:
                self._segments.updateValue((name,), (segment.save(),))
        for name in stored - set(segments):
            self._segments.removeKey((name,))
        version = uuid.uuid4().hex
        saved = {
            "version": version,
            "manifest": run.manifest(),
            "inline": inline,
            "stored": sorted(set(segments) - set(inline)),
        }
        self._manifest.update((pickle.dumps(saved),))
        _RUNS[self.job.checkpoint, self.level, bucket] = (version, run)
        while len(_RUNS) > _MOST_RUNS:  # what queries that have ended left behind
            del _RUNS[next(iter(_RUNS))]

    def _batch(self) -> int:
        """The number of the batch; where Spark does not tell, the one after the last that is committed.

        A batch that was committed and is run again is written for nothing, so it does not matter that it counts on.
        """
        told = _batch_id()
        return ProgressLog(self.job.checkpoint).last()[0] + 1 if told is None else told

    def _written(self, message: Message) -> Message:
        """A result whose output goes to files is written here, and only its place travels on; so is what goes round."""
        if message.edge == FEEDBACK:
            place = BatchDirectory(feedback_directory(self.job.checkpoint))
            files = [place.stage(_batch_id() or 0, "part.arrow", chunk) for _, _, chunk in pack(message)]
            return Message(message.bucket, FEEDBACK, extra={"staged": files, "busy": message.extra["busy"]})
        number = RESULT - message.edge
        sink = self.job.files[number] if 0 <= number < len(self.job.files) else None
        if sink is None or message.table is None:
            return message
        if isinstance(sink, Nowhere):
            return Message(message.bucket, message.edge, None, message.progress)
        name = f"part.{sink.format}"
        data = encode(Changes.from_table(message.table), sink, self._batch())
        staged = BatchDirectory(sink.path).stage(_batch_id() or 0, name, data) if data else None
        return Message(
            message.bucket, message.edge, None, message.progress, {"staged": staged, "rows": message.table.num_rows}
        )
