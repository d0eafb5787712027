"""A query that runs in this process until it is stopped: no Spark, no Java, milliseconds a batch.

The loop, the store and the tasks are those of a query on Spark. Only what runs the tasks differs: a thread for each
bucket. So a checkpoint that one host has written goes on on the other, from any batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import PlanError
from headrace.host.driving.in_process import InProcess
from headrace.host.driving.plan import Job
from headrace.host.driving.query import Query
from headrace.host.driving.start import Host, StartRequest, start_on
from headrace.io.origins import SparkRead
from headrace.io.sinks import Sink
from headrace.plan.nodes import Node, Output, sources_of

__all__ = ["start_local"]


def start_local(
    pairs: Sequence[tuple[Node, Sink]],
    *,
    checkpoint: str | None = None,
    buckets: int | None = None,
    files_per_batch: int | None = None,
    trigger: str | None = None,
    max_trips: int | None = None,
    name: str = "headrace",
) -> Query:
    """Start streams, each into its sink, as one query of this process; options as `start_query` on Spark has them.

    A new checkpoint has one bucket unless `buckets` says otherwise; one that exists keeps the number that it has. One
    is the quickest where the work per row is small: threads of Python take turns, and what they share out must be put
    together again. For the average per symbol of `python -m benchmarks --only live`, two buckets on two cores take
    nearly twice as long for a batch of a thousand events, and about as long for a million. Several are worth it where
    most of the time goes to compiled code, or where the query is to go on on Spark with as many.
    """
    return start_on(_LocalHost(), pairs, StartRequest(checkpoint, buckets, files_per_batch, trigger, name, max_trips))


class _LocalHost(Host):
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

    def executor(self, job: Job, name: str) -> InProcess:
        return InProcess(job, name)
