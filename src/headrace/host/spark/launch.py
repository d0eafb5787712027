"""Starting a query on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import CheckpointError
from headrace.host.driving.checkpoint import Checkpoint
from headrace.host.driving.keeping import RetentionLike
from headrace.host.driving.plan import Job
from headrace.host.driving.query import Query
from headrace.host.driving.spooled import frame_files, spooled_source
from headrace.host.driving.start import Host, StartRequest, start_on
from headrace.host.spark.failures import explaining, failure
from headrace.host.spark.feeder import SparkFeeder, spill
from headrace.host.spark.session import beside, get_session, is_connect, warm_up
from headrace.host.spark.worker import SparkExecutor
from headrace.host.spark.workers import cluster_cores, prepare_workers
from headrace.io.files import local_path
from headrace.io.origins import FrameRead, SparkRead
from headrace.io.secrets import hidden_values
from headrace.io.sinks import Sink
from headrace.metrics.alarms import AlarmRule
from headrace.plan.nodes import Node, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from headrace.time import DurationLike

__all__ = ["SparkHost", "start_query"]


def start_query(
    pairs: Sequence[tuple[Node, Sink]],
    *,
    checkpoint: str | None = None,
    spark_checkpoint: str | None = None,
    master: str | None = None,
    spark: SparkSession | None = None,
    buckets: int | None = None,
    files_per_batch: int | None = None,
    trigger: str | None = None,
    max_trips: int | None = None,
    rows_per_batch: int | None = None,
    timeout: DurationLike | None = None,
    record: DurationLike | None = None,
    metrics_port: int | str | None = None,
    upgrade: str | None = None,
    retention: RetentionLike | None = None,
    alarms: Sequence[AlarmRule] | None = None,
    name: str = "headrace",
    options: dict[str, str] | None = None,
    py_files: Sequence[str] = (),
) -> Query:
    """Start streams, each into its sink, as one query on Spark.

    `checkpoint` is the place of the query's state; another start with it continues. `buckets` is the number of parts of
    the state (fixed for the life of a checkpoint). `trigger` is a duration such as '10 seconds'; by default a batch
    starts as soon as there is input and the batch before has ended. `max_trips` is the most trips of a loop across
    buckets in one batch; by default as many as fit in a second. `spark` is a session to run beside; it stays as it is.

    `py_files` is code that workers import: Python files, archives, or directories of packages.

    `spark_checkpoint` is for a checkpoint on an object store with sources that only Spark can read: a directory that
    every worker can reach, for Spark's log of what it has read, and the rows that no batch has taken yet. It is part of
    the checkpoint: the query continues only with both.
    """
    host = SparkHost(spark, master, options, _checked(checkpoint, spark_checkpoint), py_files)
    return start_on(
        host,
        pairs,
        StartRequest(
            checkpoint,
            buckets,
            files_per_batch,
            trigger,
            name,
            max_trips,
            rows_per_batch,
            timeout,
            record,
            metrics_port,
            alarms=alarms,
            upgrade=upgrade,
            retention=retention,
        ),
    )


def _checked(checkpoint: str | None, spark_checkpoint: str | None) -> str | None:
    """The directory for Spark's log, if the checkpoint is not in a directory."""
    if spark_checkpoint is None:
        return None
    directory = local_path(str(spark_checkpoint))
    if not directory or checkpoint is None or local_path(str(checkpoint)) is not None:
        raise CheckpointError(
            "spark_checkpoint= is a directory, beside a checkpoint= on an object store",
            given=f"checkpoint={checkpoint!r}, spark_checkpoint={spark_checkpoint!r}",
            allowed="checkpoint='s3://bucket/prefix', spark_checkpoint='/a/directory'",
            instead="checkpoint= alone: in a directory it holds Spark's log, too" if directory else "a directory",
        )
    return directory


class SparkHost(Host):
    """Runs tasks in Spark jobs; Spark writes sources that only it can read to files."""

    def __init__(
        self,
        spark: SparkSession | None = None,
        master: str | None = None,
        options: dict[str, str] | None = None,
        checkpoint: str | None = None,
        py_files: Sequence[str] = (),
    ) -> None:
        self._session, self._master, self._options, self._py_files = spark, master, options, py_files
        #: The directory of Spark's own log, if not in the query's checkpoint.
        self._checkpoint = checkpoint
        self._fed: dict[str, SparkFeeder] = {}

    @property
    def buckets(self) -> int:
        return cluster_cores(self.session)

    @property
    def feeders(self) -> Sequence[SparkFeeder]:
        return list(self._fed.values())

    def explaining(self) -> AbstractContextManager[None]:
        return explaining(lambda error: failure(error, "the start of the query"))

    def connect(self) -> None:
        self.session = self._session or get_session(self._master, self._options)
        prepare_workers(self.session)
        warm_up(self.session, ["headrace.host.spark.worker"])

    def stored(self, source: Source, place: Checkpoint) -> Source:
        origin = source.origin
        if not isinstance(origin, FrameRead) or origin.streaming:
            return source
        files = frame_files(origin, place.place)
        spill(origin, source.columns, files.path)
        return replace(source, origin=files)

    def fed(self, source: Source, place: Checkpoint) -> Source:
        if not isinstance(source.origin, SparkRead):
            return source
        if source.fingerprint not in self._fed:
            mark = f"spark-{len(self._fed)}"
            spool, log = (self._folder(place, name) for name in ("spool", "spark"))
            self._fed[source.fingerprint] = SparkFeeder(source, spool / mark, log / mark)
        return spooled_source(source, self._fed[source.fingerprint].spool)

    def _folder(self, place: Checkpoint, name: str) -> Path:
        """A folder for Spark's own log, or for the rows that it has read."""
        if self._checkpoint is not None:
            return Path(self._checkpoint).absolute() / name
        return place.folder(name, "sources that only Spark can read", "spark_checkpoint=, a directory for Spark's log")

    def prepare(self, owner: str, *, begun: bool) -> None:
        for feeder in self.feeders:
            feeder.prepare("" if self._checkpoint is None else owner, begun=begun)

    def executor(self, job: Job, name: str) -> SparkExecutor:
        # A Connect client owns its session; a second one would outlive a server that ends with the process.
        self._beside = self.session if is_connect(self.session) else beside(self.session)
        origins = [feeder.source.origin for feeder in self.feeders]
        secrets = [v for o in origins if isinstance(o, SparkRead) for v in hidden_values(o.options)]
        return SparkExecutor(self._beside, job, name, secrets, self._py_files)

    def begin(self, query: Query) -> None:
        for feeder in self.feeders:
            feeder.start(self._beside, query.name)
