"""Starting a query on Spark: everything from the plan to the loop."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import PlanError
from headrace.host.driving.driver import Driver
from headrace.host.driving.plan import Job
from headrace.host.driving.publish import Publisher
from headrace.host.received import hosts_of, spooled
from headrace.host.spark.checkpoint import Checkpoint
from headrace.host.spark.failures import explaining, failure
from headrace.host.spark.feeder import Feeder, spill, spooled_source
from headrace.host.spark.query import Query
from headrace.host.spark.session import beside, get_session, is_connect, warm_up
from headrace.host.spark.worker import SparkExecutor
from headrace.io.egress import check_places, claim, prepared, task_sinks
from headrace.io.formats import Format
from headrace.io.host_source import Receiver
from headrace.io.ingress import COUNTERS
from headrace.io.origins import Events, Files, FrameRead, HostRead, SparkRead, check_frames
from headrace.io.sinks import FileSink, Sink
from headrace.optimizer import optimize
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Node, Output, Source, set_aside, walk
from headrace.stages.cut import cut
from headrace.time import duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["start_query"]


def start_query(
    pairs: Sequence[tuple[Node, Sink]],
    *,
    checkpoint: str | None = None,
    master: str | None = None,
    spark: SparkSession | None = None,
    buckets: int | None = None,
    files_per_batch: int | None = None,
    trigger: str | None = None,
    name: str = "headrace",
    options: dict[str, str] | None = None,
) -> Query:
    """Start streams, each into its sink, as one query on Spark.

    `checkpoint` is where the query keeps its state; starting again with it continues. `buckets` is how many parts state
    is divided into (fixed for the life of a checkpoint). `trigger` is a duration such as '10 seconds'; by default a
    batch starts as soon as there is input and the one before has ended. `spark` is a session to run beside; it stays as
    it is.
    """
    if not pairs:
        raise PlanError("a query needs at least one sink", instead="stream.start(hr.console())")
    outputs = [
        Output(prepared(node, sink), f"{i} {type(sink).__name__.lower()}") for i, (node, sink) in enumerate(pairs)
    ]
    sinks: list[Sink] = [sink for _, sink in pairs]
    _check_places(outputs, sinks)
    check_frames(*outputs, named=checkpoint is not None)
    interval = duration(trigger) / 1_000_000 if trigger else 0.0
    place = Checkpoint(checkpoint)
    try:
        place.lock()
        with explaining(lambda error: failure(error, "the start of the query")):
            session = spark or get_session(master, options)
            query = _built(name, session, place, outputs, sinks, buckets, files_per_batch, interval)
            _begin(query, outputs)
    except BaseException:
        place.close()
        raise
    return query


def _built(
    name: str,
    session: SparkSession,
    place: Checkpoint,
    outputs: list[Output],
    sinks: list[Sink],
    buckets: int | None,
    files_per_batch: int | None,
    interval: float,
) -> Query:
    """A query that owns its checkpoint and its sinks, and has not begun."""
    warm_up(session, ["headrace.host.spark.worker"])
    _add_side_outputs(outputs, sinks, place)
    plan, feeders = _on_disk(spooled(outputs, place.path / "spool"), place)
    count = place.buckets(buckets, min(os.cpu_count() or 1, 8))
    line = cut(plan, count)
    place.claim(line, count, sinks)
    job = Job(uuid.uuid4().hex, line, count, place.storage, task_sinks(sinks))
    # A Connect client has its session to itself, and a second one would outlive a server that ends with the process.
    executor = SparkExecutor(session if is_connect(session) else beside(session), job, name)
    driver = Driver(job, executor, Publisher(line.outputs, sinks, place.storage), _now, files_per_batch, tasks=count)
    _open(driver, place, sinks, feeders)
    counts = {str(source.origin): dict.fromkeys(COUNTERS, 0) for source in line.sources}
    query = Query(name, session, line, place, tuple(sinks), driver, executor, counts, interval=interval)
    query.feeders = feeders
    place.in_use = lambda: query.is_active
    return query


def _now() -> int:
    return int(time.time() * 1_000_000)


def _check_places(outputs: Sequence[Output], sinks: Sequence[Sink]) -> None:
    """Everything that can be found wrong before Spark is started."""
    for node in walk(*outputs):
        if isinstance(node, Source) and isinstance(node.origin, Files):
            node.origin.check()
    check_places(sinks, new=False)


def _add_side_outputs(outputs: list[Output], sinks: list[Sink], place: Checkpoint) -> None:
    """Diverted rows that nobody asked for are kept in the checkpoint."""
    taken = [output.input for output in outputs]
    sides = [side for side in set_aside(*outputs, whole=False) if side not in taken]
    for i, side in enumerate(sides):
        outputs.append(Output(side, f"diverted {i}"))
        sinks.append(FileSink("final", (), str(place.path / "diverted" / str(i)), "jsonl"))


def _on_disk(outputs: Sequence[Output], place: Checkpoint) -> tuple[tuple[Output, ...], list[Feeder]]:
    """The plan over files: what is held in memory is written down, and so is what only Spark can read."""

    def spilled(node: Node) -> Node:
        if isinstance(node, Source) and isinstance(node.origin, Events):
            return replace(node, origin=place.spill(node.origin))
        if isinstance(node, Source) and isinstance(node.origin, FrameRead) and not node.origin.streaming:
            folder = place.path / "events" / hashlib.sha256(str(node.origin).encode()).hexdigest()[:16]
            spill(node.origin, node.columns, folder)
            return replace(node, origin=Files(str(folder), Format("arrow"), label=str(node.origin)))
        return node

    feeders: dict[str, Feeder] = {}

    def fed(node: Node) -> Node:
        if not (isinstance(node, Source) and isinstance(node.origin, SparkRead)):
            return node
        if node.fingerprint not in feeders:
            mark = f"spark-{len(feeders)}"
            feeders[node.fingerprint] = Feeder(node, place.path / "spool" / mark, place.path / "spark" / mark)
        return spooled_source(node, feeders[node.fingerprint].spool)

    plan = rewrite(optimize(rewrite(tuple(outputs), spilled)), fed)
    return plan, list(feeders.values())


def _open(driver: Driver, place: Checkpoint, sinks: Sequence[Sink], feeders: Sequence[Feeder]) -> None:
    """Take over the checkpoint and its sinks."""
    begun = bool(driver.log.batches())
    for feeder in feeders:
        feeder.prepare(begun=begun)
    claim(sinks, place.owner, begun=begun)
    driver.open()


def _begin(query: Query, outputs: Sequence[Output]) -> None:
    for host in hosts_of(outputs):
        query.receivers.append(_receiver(query, host))
    for feeder in query.feeders:
        feeder.start(query.executor.spark, query.name)
    for receiver in query.receivers:
        receiver.on_failure = query.fail_soon
        receiver.start()
    query.begin()


def _receiver(query: Query, host: HostRead) -> Receiver:
    folder = Path(host.files(query.checkpoint.path / "spool").path)
    return Receiver(host, folder, taken=lambda: query.files_taken(str(host)))
