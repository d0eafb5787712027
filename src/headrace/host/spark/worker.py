"""A trip of a batch as one Spark job: rows contain chunks, and tasks run in Spark's Python workers.

    range ─ mapInArrow(intake) ─ [repartitionById(bucket) ─ mapInArrow(stage)]* ─ rows for the driver

Partition i of the range is the i-th share of the trip, partition b of every shuffle is bucket b. Later trips have no
input: partition b of the range is bucket b of the first stage, which selects its own rows from all feedback. That saves
a shuffle, which would cost more. A repeated task, after its machine was lost, gets its rows in another order: it sorts
them, so that its result is the same. Functions and classes here are importable, not of `__main__`, so that workers keep
stages between batches.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from headrace.errors import HeadraceError, HostError
from headrace.host.driving.delivery import deliver, deliver_all, deliveries_of, for_workers
from headrace.host.driving.plan import Batch, Executor, Job
from headrace.host.driving.tasks import run_intake, run_stage
from headrace.host.memory import keep_freed_memory
from headrace.host.spark.failures import failure, is_gone, may_pass
from headrace.host.spark.packing import pack_job, unpack_job
from headrace.host.spark.session import is_connect
from headrace.host.spark.shipping import ship_code
from headrace.pieces import Pieces, length
from headrace.stages.message import Message, pack, unpack
from headrace.store.log import Commit, Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkExecutor"]

_CHUNK = StructType([
    StructField("bucket", IntegerType()),
    StructField("edge", IntegerType()),
    StructField("sender", IntegerType()),
    StructField("seq", LongType()),
    StructField("chunk", BinaryType()),
])  # fmt: skip
_ARROW = pa.schema(
    [("bucket", pa.int32()), ("edge", pa.int32()), ("sender", pa.int32()), ("seq", pa.int64()), ("chunk", pa.binary())]
)
Batches = Iterator[pa.RecordBatch]
#: Up to so many bytes the driver delivers itself: a job would take longer.
_MOST_FROM_HERE = 4_194_304


@dataclass(frozen=True)
class _TripPlan:
    """The identity of a trip, before its plan is known."""

    job: bytes
    number: int
    epoch: int
    tasks: int
    shares: int
    trip: int = 0

    def next_trip(self) -> _TripPlan:
        return replace(self, trip=self.trip + 1, shares=1)  # of the feedback

    def next_batch(self) -> _TripPlan:
        return replace(self, number=self.number + 1, trip=0)


class SparkExecutor(Executor):
    """Runs the tasks of a trip as one job.

    Building a frame takes dozens of calls to the JVM, and does not depend on the trip before: tasks read plan and state
    from the store. So the frames of the next batch and of the next trip are built while this trip runs.
    """

    def __init__(
        self, spark: SparkSession, job: Job, name: str, secrets: Sequence[str] = (), py_files: Sequence[str] = ()
    ) -> None:
        self.spark, self.job, self.name = spark, job, name
        #: Values of options that must not appear in messages.
        self.secrets = secrets
        packed = pack_job(job)
        self._packed = packed.data
        ship_code(spark, packed.modules, py_files)
        self._ready: dict[_TripPlan, DataFrame] = {}
        self._stopped = False

    @property
    def tag(self) -> str:
        """The tag of the query's jobs, by which a Connect client can stop them."""
        return f"{self.name}-{self.job.token[:8]}"

    def ping(self) -> None:
        self.spark.conf.get("spark.app.name")

    def is_gone(self, error: BaseException) -> bool:
        return is_gone(error)

    def may_pass(self, error: BaseException) -> bool:
        return may_pass(error)

    def explained(self, error: BaseException, what: str, instead: str = "") -> HeadraceError:
        return failure(error, what, instead, self.secrets)

    def interrupt(self) -> None:
        self._stopped = True
        self.job.interrupt_deliveries()
        if is_connect(self.spark):
            self.spark.interruptTag(self.tag)
        else:  # tags belong to the thread that added them; but the session belongs to the query
            self.spark.interruptAll()

    def run(self, batch: Batch) -> list[Message]:
        """Run a trip; return the messages of the tasks of the last level."""
        planned = _TripPlan(self._packed, batch.number, batch.epoch, batch.tasks, len(batch.shares), batch.trip)
        ready = self._ready
        frame = ready.get(planned) or self._frame(planned)
        following = [planned.next_trip()] if self.job.line.loops else []
        following += [] if batch.trip else [planned.next_batch()]
        # Of the frames that are ready, only that of the next batch may still be needed.
        self._ready = {p: f for p, f in list(ready.items()) if p.number > batch.number}
        threading.Thread(target=self._prepare, args=(following,), name="headrace-next", daemon=True).start()
        trip = f", trip {batch.trip}" if batch.trip else ""
        self._name_job(f"{self.name}: batch {batch.number}{trip}")
        return _messages(frame.toArrow().to_batches())

    def deliver(self, commit: Commit) -> None:
        """Deliver many rows as a job, with a task for each part; few rows and CTIs from here."""
        deliveries = deliveries_of(self.job, commit)
        rows = for_workers(self.job, deliveries)
        if sum(delivery.nbytes for delivery in rows) > _MOST_FROM_HERE:
            task = _DeliveryTask(self._packed, commit.batch)
            self._name_job(f"{self.name}: batch {commit.batch} to its sinks")
            self.spark.range(0, len(rows), 1, len(rows)).mapInArrow(task, "part long").toArrow()
            deliveries = [delivery for delivery in deliveries if delivery not in rows]
        deliver_all(self.job, commit, deliveries, lambda: self._stopped)

    def _name_job(self, description: str) -> None:
        """Mark the next jobs of this thread, for Spark's user interface and for `interrupt`."""
        if is_connect(self.spark):
            self.spark.addTag(self.tag)
        else:
            self.spark.sparkContext.setJobDescription(description)

    def _prepare(self, following: Sequence[_TripPlan]) -> None:
        ready = self._ready
        for planned in following:
            with suppress(Exception):  # the batch itself will report the failure
                frame = self._frame(planned)
                _ = frame.schema  # collecting the frame needs it
                ready[planned] = frame

    def _frame(self, planned: _TripPlan) -> DataFrame:
        count = self.job.buckets if planned.trip else planned.shares
        first = _TripTask if planned.trip else _IntakeTask
        frame = self.spark.range(0, count, 1, count).mapInArrow(first(planned), _CHUNK)
        for level in range(2 if planned.trip else 1, self.job.line.depth + 1):
            frame = frame.repartitionById(self.job.buckets, "bucket")
            frame = frame.mapInArrow(_StageTask(planned, level), _CHUNK)
        return frame


class _DeliveryTask:
    """The function for `mapInArrow` over a range: each row is the number of a part with rows."""

    def __init__(self, job: bytes, batch: int) -> None:
        self.job, self.batch = job, batch

    def __call__(self, batches: Batches) -> Batches:
        job = _job(self.job)
        commit = Log(job.storage).read(self.batch)
        parts = for_workers(job, deliveries_of(job, commit))
        for rows in batches:
            for part in rows.column(0).to_pylist():
                deliver(job, commit, parts[part])
            yield pa.RecordBatch.from_arrays([rows.column(0)], names=["part"])


class _IntakeTask:
    """The function for `mapInArrow` over a range: each row is the number of a share."""

    def __init__(self, planned: _TripPlan) -> None:
        self.planned = planned

    def __call__(self, batches: Batches) -> Batches:
        job, batch = _job(self.planned.job), _batch(self.planned)
        for task in [task for rows in batches for task in rows.column(0).to_pylist()]:
            yield _chunks(run_intake(job, batch, task), task)


class _TripTask:
    """The function for `mapInArrow` over a range: each row is a bucket of the first stage, in a later trip."""

    def __init__(self, planned: _TripPlan) -> None:
        self.planned = planned

    def __call__(self, batches: Batches) -> Batches:
        job, batch = _job(self.planned.job), _batch(self.planned)
        for bucket in [bucket for rows in batches for bucket in rows.column(0).to_pylist()]:
            arrived = [message for message in run_intake(job, batch, 0) if message.bucket == bucket]
            yield _chunks(run_stage(job, batch, 1, bucket, arrived), bucket)


class _StageTask:
    """The function for `mapInArrow` over the chunks of one bucket."""

    def __init__(self, planned: _TripPlan, level: int) -> None:
        self.planned, self.level = planned, level

    def __call__(self, batches: Batches) -> Batches:
        arrived = _messages(batches)
        buckets = {message.bucket for message in arrived}
        context = TaskContext.get()
        if context is not None and buckets != {context.partitionId()}:
            raise HostError(
                "a partition of a stage is one bucket, and this one is not",
                given=f"partition {context.partitionId()} has the buckets {sorted(buckets)}",
            )
        (bucket,) = buckets
        job, batch = _job(self.planned.job), _batch(self.planned)
        yield _chunks(run_stage(job, batch, self.level, bucket, arrived), bucket)


@lru_cache(maxsize=8)
def _job(packed: bytes) -> Job:
    """The query, unpacked once per worker."""
    keep_freed_memory()  # workers of a cluster are not forked from `daemon.py`, which does so
    job = unpack_job(packed)
    # Spark's workers collect garbage after every task, while the next one waits. Permanent objects are excluded.
    gc.collect()
    gc.freeze()
    return job


@lru_cache(maxsize=4)
def _batch(planned: _TripPlan) -> Batch:
    """A trip of a batch, read once per worker."""
    return Batch.planned(_job(planned.job), planned.number, planned.epoch, planned.tasks, planned.trip)


def _chunks(messages: list[Message], sender: int) -> pa.RecordBatch:
    """The rows of messages, each chunk copied once."""
    rows = [row for message in messages for row in pack(message)]
    columns = [
        pa.array([bucket for bucket, _, _ in rows], _ARROW.field("bucket").type),
        pa.array([edge for _, edge, _ in rows], _ARROW.field("edge").type),
        pa.array([sender] * len(rows), _ARROW.field("sender").type),
        pa.array(range(len(rows)), _ARROW.field("seq").type),
        _binary([chunk for _, _, chunk in rows]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _binary(chunks: list[Pieces]) -> pa.BinaryArray:
    ends = np.cumsum([0, *map(length, chunks)])
    if ends[-1] > np.iinfo(np.int32).max:
        raise HostError(
            "a task gives more than 2 GB at once",
            given=f"{ends[-1]:,} bytes",
            instead="files_per_batch=, for smaller batches, or more buckets",
        )
    values = pa.allocate_buffer(int(ends[-1]))
    with pa.FixedSizeBufferWriter(values) as sink:
        for piece in (piece for chunk in chunks for piece in chunk):
            sink.write(piece)
    return pa.BinaryArray.from_buffers(pa.binary(), len(chunks), [None, pa.py_buffer(ends.astype(np.int32)), values])


def _messages(batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch]) -> list[Message]:
    """The messages of rows, in an order that does not depend on their arrival; chunks are not copied.

    A chunk is an Arrow stream, whose length is a multiple of 8, so that the next chunks are aligned, too.
    """
    rows: list[tuple[Any, ...]] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        chunks = batch.column("chunk")
        wide = pa.types.is_large_binary(chunks.type)  # if the user's session is configured so
        ends = np.frombuffer(chunks.buffers()[1], np.int64 if wide else np.int32)[chunks.offset :]
        parts = [chunks.buffers()[2].slice(a, b - a) for a, b in pairwise(ends[: len(chunks) + 1].tolist())]
        numbers = (batch.column(name).to_pylist() for name in ("bucket", "edge", "sender", "seq"))
        rows += zip(*numbers, parts, strict=True)
    rows.sort(key=lambda row: row[1:4])
    return [unpack(bucket, edge, chunk) for bucket, edge, _, _, chunk in rows]
