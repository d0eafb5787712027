"""Sources that only Spark can read: Spark writes their rows to files, and the loop reads the files.

A batch data frame is written once, at the first start. For a streaming source there is a streaming query of Spark.

Spark keeps the positions of such a source in its own log (`<checkpoint>/spark/<source>`). Every batch of Spark becomes
a folder of Arrow files in a spool, atomically and once (`io.commit`), and the loop reads the files like those of any
source. When a batch of the loop that has read them is committed, the files are removed; their empty folder stays for a
while, so that a batch that Spark repeats is not written again. Spark waits while the loop is far behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from headrace.errors import CheckpointError, HostError
from headrace.expr.sql import to_spark
from headrace.host.spark.session import is_connect
from headrace.io.commit import BatchDirectory
from headrace.io.object_batches import batches_at
from headrace.io.origins import TABLE, FrameRead, SparkRead
from headrace.io.reading import read_columns
from headrace.plan.nodes import Source
from headrace.schema import Schema
from headrace.store.environment import Environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkFeeder", "spill"]

#: Spark's file readers stream only with a schema; its other readers have their own.
_WANT_SCHEMA = ("csv", "json", "orc", "parquet", "text", "xml")
#: How many batches of Spark may wait for the loop.
_MOST_WAITING = 16
_WAIT_SECONDS = 0.05
Batches = Iterator[pa.RecordBatch]


@dataclass(eq=False)
class SparkFeeder:
    """The streaming query for one source, and its spool."""

    source: Source
    spool: Path
    log: Path
    stream: Any = None

    def prepare(self, owner: str, *, begun: bool) -> None:
        """Create the spool; refuse if the query has begun and Spark's log is missing.

        A log outside the checkpoint is marked with its `owner`; that of another checkpoint is refused.
        """
        if begun and not self.log.exists():
            raise CheckpointError(
                f"Spark's log of what it read from {self.source.origin} is gone: it would read everything again",
                given=str(self.log),
                instead="a copy of the checkpoint, or a new checkpoint with new sinks",
            )
        if owner:
            self._claim(owner)
        self.spool.mkdir(parents=True, exist_ok=True)

    def _claim(self, owner: str) -> None:
        mark = self.log / "headrace-owner"
        if not self.log.exists():
            self.log.mkdir(parents=True)
            mark.write_text(owner)
        elif not mark.exists() or mark.read_text() != owner:
            raise CheckpointError(
                f"Spark's log of what it read from {self.source.origin} belongs to another checkpoint",
                given=str(self.log),
                instead="another spark_checkpoint=, or delete this one if its checkpoint is gone",
            )

    def start(self, spark: SparkSession, name: str) -> None:
        writer = _rows(spark, self.source).writeStream.queryName(f"{name}-{self.spool.name}")
        writer = writer.option("checkpointLocation", str(self.log))
        self.stream = writer.foreachBatch(_sender(self.source, str(self.spool))).start()

    def check(self) -> None:
        """Raise the error that ended Spark's query, if there is one."""
        if self.stream is not None and not self.stream.isActive:
            error = self.stream.exception()
            raise (
                error if error is not None else HostError("Spark's own query has ended", given=str(self.source.origin))
            )

    def process_all_available(self) -> None:
        self.check()
        self.stream.processAllAvailable()

    def forget(self, paths: Iterable[str]) -> None:
        """Remove files that a committed batch has read, and folders of batches that Spark will not repeat."""
        for path in paths:
            if self.spool in Path(path).parents:
                Path(path).unlink(missing_ok=True)
        for batch in BatchDirectory(str(self.spool)).committed()[:-2]:
            folder = self.spool / f"batch-{batch:08d}"
            if not any(folder.iterdir()):
                folder.rmdir()

    def stop(self) -> None:
        if self.stream is not None and self.stream.isActive:
            self.stream.stop()


def _rows(spark: SparkSession, source: Source) -> DataFrame:
    """The rows of a source; Spark selects columns and filters.

    In a user's session Spark does not filter, because it may substitute variables in texts there.
    """
    origin = source.origin
    assert isinstance(origin, SparkRead)
    reader = spark.readStream.options(**dict(origin.options))
    if isinstance(origin, FrameRead):
        frame: DataFrame = origin.frame
    elif origin.format == TABLE:
        frame = reader.table(origin.path)
    else:
        reader = reader.format(origin.format)
        if origin.format in _WANT_SCHEMA:
            stored = [(origin.stored(f.name), f.type.spark) for f in source.columns]
            reader = reader.schema(", ".join(f"{_quoted(name)} {kind}" for name, kind in stored))
        frame = reader.load(origin.path) if origin.path else reader.load()
    types = {f.name: f.type.spark for f in source.columns}
    wanted = [(F.col(_quoted(origin.stored(name))), name) for name in read_columns(source)]
    frame = frame.select(*(column.cast(types[name]).alias(name) for column, name in wanted))
    if source.pushed is not None and not isinstance(origin, FrameRead) and not is_connect(spark):
        frame = frame.where(to_spark(source.pushed, source.columns))
    return _numbered(frame)


def _numbered(frame: DataFrame) -> DataFrame:
    """The frame with plain names: Spark's `mapInArrow` cannot read a column with a dot in its name."""
    return frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _sender(source: Source, spool: str) -> Callable[[DataFrame, int], None]:
    """The function that Spark calls with every batch; with Connect, in the server."""
    schema = pa.schema([source.columns.arrow.field(name) for name in read_columns(source)])

    def send(frame: DataFrame, batch: int) -> None:
        place = BatchDirectory(spool)
        while len({Path(file).parent for file in place.files()}) > _MOST_WAITING:
            time.sleep(_WAIT_SECONDS)
        staged = frame.mapInArrow(_writer(schema, spool, batch), "part int, path string").toArrow().to_pylist()
        place.commit(batch, [row["path"] for row in sorted(staged, key=lambda row: row["part"])])

    return send


def _writer(
    schema: pa.Schema, spool: str, batch: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    environment = Environment([spool])

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        _ = environment  # unpickling it sets the variables where this function runs
        named = (pa.Table.from_batches([part]).rename_columns(schema.names) for part in batches if part.num_rows)
        tables = [table.cast(schema) for table in named]
        if tables:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, schema) as writer:
                for table in tables:
                    writer.write_table(table)
            path = batches_at(spool).stage(batch, "part.arrow", sink.getvalue().to_pybytes())
            context = TaskContext.get()
            part = context.partitionId() if context is not None else 0
            yield pa.record_batch({"part": pa.array([part], pa.int32()), "path": [path]})

    return write


def spill(origin: FrameRead, columns: Schema, folder: str) -> None:
    """Write the rows of a batch frame to files, one for each partition, in order; the workers write."""
    place = batches_at(folder)
    if not place.committed():
        frame = _numbered(origin.selected(columns))
        rows = frame.mapInArrow(_writer(columns.arrow, folder, 0), "part int, path string").toArrow().to_pylist()
        place.commit(0, [row["path"] for row in sorted(rows, key=lambda row: row["part"])])
