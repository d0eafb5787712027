"""A batch as one Spark job: rows that hold chunks, tasks that run in Spark's Python workers.

    range ─ mapInArrow(intake) ─ [repartitionById(bucket) ─ mapInArrow(stage)]* ─ rows for the driver

Partition i of the range is the i-th share of the batch, partition b of every shuffle is bucket b. A task that is run
again, because its machine was lost, finds its rows in another order: it sorts them, so that it gives the same again.
Functions and classes here are importable, not `__main__`'s, so that workers keep stages between batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from headrace.errors import HostError
from headrace.host.driving.plan import Batch, Executor, Job
from headrace.host.driving.tasks import run_intake, run_stage
from headrace.host.spark.packing import pack_job, unpack_job
from headrace.stages.message import Message, pack, unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkExecutor"]

_CHUNK = "bucket int, edge int, sender int, seq long, chunk binary"
_ARROW = pa.schema(
    [("bucket", pa.int32()), ("edge", pa.int32()), ("sender", pa.int32()), ("seq", pa.int64()), ("chunk", pa.binary())]
)
Batches = Iterator[pa.RecordBatch]


class SparkExecutor(Executor):
    """Runs the tasks of a batch as one job."""

    def __init__(self, spark: SparkSession, job: Job, name: str) -> None:
        self.spark, self.job, self.name = spark, job, name
        self._packed = pack_job(job)

    @property
    def tag(self) -> str:
        """What the jobs of the query are marked by, so that they can be stopped."""
        return f"{self.name}-{self.job.token[:8]}"

    def ping(self) -> None:
        """Raise if Spark does not answer any more."""
        self.spark.conf.get("spark.app.name")

    def run(self, batch: Batch) -> list[Message]:
        """Run a batch; gives what the tasks of the last level gave."""
        self.spark.addTag(self.tag)
        tasks = len(batch.shares)
        frame = self.spark.range(0, tasks, 1, tasks).mapInArrow(_IntakeTask(self._packed, batch), _CHUNK)
        for level in range(1, self.job.line.depth + 1):
            frame = frame.repartitionById(self.job.buckets, "bucket")
            frame = frame.mapInArrow(_StageTask(self._packed, batch, level), _CHUNK)
        return _messages(frame.toArrow().to_batches())


class _IntakeTask:
    """The function for `mapInArrow` over a range: each row is the number of a share."""

    def __init__(self, job: bytes, batch: Batch) -> None:
        self.job, self.batch = job, batch

    def __call__(self, batches: Batches) -> Batches:
        job = _job(self.job)
        for task in [task for batch in batches for task in batch.column(0).to_pylist()]:
            yield _chunks(run_intake(job, self.batch, task), task)


class _StageTask:
    """The function for `mapInArrow` over the chunks of one bucket."""

    def __init__(self, job: bytes, batch: Batch, level: int) -> None:
        self.job, self.batch, self.level = job, batch, level

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
        yield _chunks(run_stage(_job(self.job), self.batch, self.level, bucket, arrived), bucket)


@lru_cache(maxsize=8)
def _job(packed: bytes) -> Job:
    """The query, unpacked once in a worker."""
    return unpack_job(packed)


def _chunks(messages: list[Message], sender: int) -> pa.RecordBatch:
    rows = [row for message in messages for row in pack(message)]
    columns = [
        [bucket for bucket, _, _ in rows],
        [edge for _, edge, _ in rows],
        [sender] * len(rows),
        list(range(len(rows))),
        [chunk for _, _, chunk in rows],
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, _ARROW.types, strict=True)], schema=_ARROW
    )


def _messages(batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch]) -> list[Message]:
    """The messages of rows, in an order that does not depend on how they arrived."""
    rows = [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
    rows.sort(key=lambda row: row[1:4])
    return [unpack(bucket, edge, chunk) for bucket, edge, _, _, chunk in rows]
