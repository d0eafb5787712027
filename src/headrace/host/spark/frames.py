"""What a query reads, as data frames of Spark: paths of files, signals, ticks; and frames of users, written down."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.expr.sql import to_spark
from headrace.host.spark.worker import BATCH_TIME, END, FILE, ROUND, TICK, feedback_directory
from headrace.io.commit import BatchDirectory
from headrace.io.files import local_path
from headrace.io.origins import TABLE, Files, FrameRead, SparkRead, read_columns
from headrace.plan.nodes import Source
from headrace.schema import Schema

__all__ = ["clock_frame", "feedback_frame", "file_frame", "read_frame", "signal_frame", "spill"]

#: Spark's file readers stream only with a schema; its other readers bring their own.
_WANT_SCHEMA = ("csv", "json", "orc", "parquet", "text", "xml")
_BINARY_FILE = "path string, modificationTime timestamp, length long, content binary"


def _binary_files(spark: SparkSession, path: str, files_per_batch: int | None) -> DataFrame:
    """Paths only: the content is read by the intake, and Spark's log of seen files makes that exactly-once."""
    reader = spark.readStream.format("binaryFile").schema(_BINARY_FILE).option("maxFileAge", "36500d")
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", str(files_per_batch))
    if Path(path).is_dir():
        reader = reader.option("recursiveFileLookup", "true")
    if Path(path).is_file():  # Spark streams directories: take the one, and of it this file
        reader = reader.option("pathGlobFilter", Path(path).name)
        path = str(Path(path).absolute().parent)
    elif local_path(path) == path:  # a relative path is meant from here, not from where the JVM was started
        path = str(Path(path).absolute())
    return reader.load(path)


def _row(frame: DataFrame, number: int, what: str, path: Any, at: Any) -> DataFrame:
    return frame.select(F.lit(number).alias("source"), F.lit(what).alias("what"), path.alias("path"), at.alias("at"))


def file_frame(spark: SparkSession, number: int, origin: Files, files_per_batch: int | None) -> DataFrame:
    """The paths of a source's files, as they appear."""
    frame = _binary_files(spark, origin.path, files_per_batch)
    return _row(frame, number, FILE, F.col("path"), F.col("modificationTime"))


def signal_frame(spark: SparkSession, control: str) -> DataFrame:
    """The signals to a query."""
    frame = _binary_files(spark, control, None)
    return _row(frame, -1, END, F.col("path"), F.col("modificationTime"))


def feedback_frame(spark: SparkSession, checkpoint: str) -> DataFrame:
    """The paths of what goes round loops."""
    place = BatchDirectory(feedback_directory(checkpoint))
    return _row(_binary_files(spark, str(place.path), None), -1, ROUND, F.col("path"), F.col("modificationTime"))


def clock_frame(spark: SparkSession, number: int) -> DataFrame:
    """The ticks of a source's clock."""
    frame = spark.readStream.format("rate").option("rowsPerSecond", "1").load()
    return _row(frame, number, TICK, F.lit(""), F.col("timestamp"))


def read_frame(spark: SparkSession, source: Source, origin: SparkRead) -> DataFrame:
    """Rows that Spark reads; columns and filters are its own work."""
    reader = spark.readStream.options(**dict(origin.options))
    if isinstance(origin, FrameRead):
        frame: DataFrame = origin.frame
    elif origin.format == TABLE:
        frame = reader.table(origin.path)
    else:
        reader = reader.format(origin.format)
        if origin.format in _WANT_SCHEMA:
            reader = reader.schema(", ".join(f"{_quoted(f.name)} {f.type.spark}" for f in source.columns))
        frame = reader.load(origin.path) if origin.path else reader.load()
    types = {f.name: f.type.spark for f in source.columns}
    frame = frame.select(*(F.col(_quoted(name)).cast(types[name]).alias(name) for name in read_columns(source)))
    if source.pushed is not None:
        frame = frame.where(to_spark(source.pushed, source.columns))
    return numbered(frame).withColumn(BATCH_TIME, F.current_timestamp())


def numbered(frame: DataFrame) -> DataFrame:
    """The frame with plain names: Spark's `mapInArrow` cannot read a column that has a dot in its name."""
    return frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def spill(origin: FrameRead, columns: Schema, folder: Path) -> None:
    """Write the rows of a batch frame down, a file for each partition, in their order; the workers write.

    A streaming query of Spark's cannot read a batch frame beside streams, and has to find the same rows after a
    failure.
    """
    draft = folder.with_suffix(".tmp")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    numbered(origin.selected(columns)).mapInArrow(_writer(str(draft), columns.arrow), "part int").collect()
    for number, file in enumerate(sorted(draft.glob("*.arrow"))):
        os.utime(file, (number + 1, number + 1))  # files are taken in the order of their times
    draft.rename(folder)


def _writer(folder: str, schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        named = (pa.Table.from_batches([batch]).rename_columns(schema.names) for batch in batches if batch.num_rows)
        tables = [table.cast(schema) for table in named]
        if tables:
            context = TaskContext.get()
            draft = Path(folder, f"_{uuid.uuid4().hex}")
            with pa.OSFile(str(draft), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                for table in tables:
                    writer.write_table(table)
            draft.rename(Path(folder, f"{context.partitionId() if context is not None else 0:06d}.arrow"))
        yield from ()

    return write
