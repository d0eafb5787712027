"""A query that runs in this process until it is stopped: no Spark, no Java, milliseconds per batch.

The loop, the store and the tasks are those of a query on Spark. Only the executor differs: it runs tasks in threads. So
a checkpoint of one host continues on the other, from any batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import PlanError
from headrace.host.driving.in_process import InProcessExecutor
from headrace.host.driving.keeping import RetentionLike
from headrace.host.driving.plan import Job
from headrace.host.driving.query import Query
from headrace.host.driving.start import Host, StartRequest, start_on
from headrace.io.origins import SparkRead
from headrace.io.sinks import Sink
from headrace.metrics.alarms import AlarmRule
from headrace.plan.nodes import Node, Output, sources_of
from headrace.time import DurationLike

__all__ = ["LocalHost", "start_local"]


def start_local(
    pairs: Sequence[tuple[Node, Sink]],
    *,
    checkpoint: str | None = None,
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
) -> Query:
    """Start streams, each into its sink, as one query of this process; the options are those of `start_query` on Spark.

    A new checkpoint has one bucket by default; an existing one keeps its number. Files are read and judged in threads
    either way. Several buckets help where operators with state take most of the time and batches are large, or if the
    query is to continue on Spark with as many. They cost, too: rows must be divided, and each has the fixed costs of a
    batch.
    """
    return start_on(
        LocalHost(),
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


class LocalHost(Host):
    """Tasks run in threads of this process."""

    def check(self, outputs: Sequence[Output]) -> None:
        for source in sources_of(*outputs):
            if isinstance(source.origin, SparkRead):
                raise PlanError(
                    "only Spark can read this source",
                    given=str(source.origin),
                    allowed="with host='local': files, hosts, events in memory, generated streams",
                    instead="start(..., host='spark')",
                )

    def executor(self, job: Job, name: str) -> InProcessExecutor:
        return InProcessExecutor(job, name)
