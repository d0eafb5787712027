"""A query on Spark: the line of stages as one Structured Streaming query, and the driver's part of every batch.

    paths, ticks, signals ─ mapInArrow(intake) ─ [groupBy(bucket) ─ transformWithStateInPandas(stage)]* ─ foreachBatch

The driver never sees rows of outputs that go to files: workers write those, and the driver commits them under the
batch's number (`delivery`). Rows of the other sinks come to the process that started the query.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.changes import Changes
from headrace.errors import HeadraceError, HostError, PlanError
from headrace.host.received import hosts_of, spooled
from headrace.host.report import Report
from headrace.host.spark.checkpoint import Checkpoint
from headrace.host.spark.cross_check import cross_check
from headrace.host.spark.delivery import Batch, Delivery, Relay, progress_of_output
from headrace.host.spark.failures import explaining, failure, is_gone, may_pass
from headrace.host.spark.frames import clock_frame, feedback_frame, file_frame, read_frame, signal_frame, spill
from headrace.host.spark.labels import bucket_labels
from headrace.host.spark.session import get_session, is_connect, query_options, warm_up
from headrace.host.spark.worker import BATCH_TIME, CHUNK, Job, StageProcessor, make_intake, make_row_intake
from headrace.io.commit import BatchDirectory
from headrace.io.console import close as close_console
from headrace.io.console import show_batch
from headrace.io.formats import Format
from headrace.io.host_source import Receiver
from headrace.io.ingress import COUNTERS
from headrace.io.origins import Events, Files, FrameRead, HostRead, SparkRead, check_frames
from headrace.io.sinks import Call, Console, FileSink, Memory, Nowhere, Sink, prepared
from headrace.optimizer import optimize
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Node, Output, Source, set_aside, walk
from headrace.plan.policies import Arrival, Heartbeat
from headrace.stages.cut import Line, cut
from headrace.stages.message import RESULT
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["Query", "start_query"]

_log = logging.getLogger("headrace")

#: Of how many batches the statistics are kept; a query may run for years.
_KEPT_BATCHES = 1000
_LISTEN_SECONDS = 0.1
#: How Spark's name for the source of what goes round ends.
_FEEDBACK_SOURCE = "/feedback]"
#: How often a query is started again by itself after a failure that may pass.
_MOST_STARTS = 3


@dataclass
class Query:
    """A running query."""

    name: str
    spark: SparkSession
    line: Line
    checkpoint: Checkpoint
    sinks: tuple[Sink, ...]
    counts: dict[str, dict[str, int]]
    report: Report = field(default_factory=Report)
    batch_seconds: list[float] = field(default_factory=list)
    statistics: list[list[dict[str, Any]]] = field(default_factory=list)
    #: Spark's own handle.
    stream: Any = None
    #: How batches come here from a Connect server; None when Spark calls this process itself.
    relay: Relay | None = None
    #: How many files each source has taken, by its fingerprint.
    files: dict[str, int] = field(default_factory=dict)
    #: What brings lines from hosts.
    receivers: list[Receiver] = field(default_factory=list)
    #: Starts Spark's query again with the same checkpoint.
    launch: Callable[[], Any] = lambda: None
    _starts: int = 0
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _failure: BaseException | None = None

    def progress(self) -> Report:
        """After the latest batch: its number, every source's CTI, what each operator remembers and why, and what went
        round in loops. Empty before the first.
        """
        return self.report

    def files_taken(self, origin: str) -> int:
        """How many files every source with this origin has taken."""
        return min(self.files.get(s.fingerprint, 0) for s in self.line.sources if str(s.origin) == origin)

    @property
    def is_active(self) -> bool:
        """Whether it still runs."""
        try:
            return bool(self.stream is not None and self.stream.isActive)
        except Exception as error:
            if is_gone(error):
                return False
            raise

    @property
    def received(self) -> dict[str, dict[str, int]]:
        """For every host that lines come from: connections, lines, what was set aside, how often it had to wait."""
        return {str(receiver.origin): dict(receiver.counts) for receiver in self.receivers}

    def stop(self) -> None:
        """End it; the checkpoint stays, and starting again with it continues."""
        self.end_receivers()
        try:
            self.stop_stream()
            self._catch_up()
        finally:
            for sink in self.sinks:
                if isinstance(sink, Console):
                    close_console(sink)
            self.checkpoint.close()

    def stop_stream(self) -> None:
        """End Spark's part of it."""
        if self.is_active:
            with explaining(self.explained):
                self.stream.stop()

    def process_all_available(self) -> None:
        """Wait until everything that is there now has been answered."""
        ticking = any(isinstance(source.policy, Heartbeat) for source in self.line.sources)
        self._guarded(self._await_quiet if ticking else self._await_all)
        self._catch_up()

    def _await_all(self) -> None:
        self.stream.processAllAvailable()

    def _await_quiet(self) -> None:
        """Wait for a batch that began after this call and brought nothing but ticks.

        Spark would wait for a moment without new rows, which never comes when a batch takes longer than a tick.
        """
        began = self.stream.lastProgress
        first = 1 if began is None else began["batchId"] + 2  # the next one may have begun already
        while not self._quiet(self.stream.lastProgress, first):
            if not self.is_active:
                self.stream.processAllAvailable()  # says why
                return
            time.sleep(_LISTEN_SECONDS)

    def _quiet(self, progress: Any, first: int) -> bool:
        """Whether Spark's latest batch is at least the `first` and took nothing new from any source but clocks.

        With every tick a loop may have a new promise to send round; that ends only when the ticks are over.
        """
        if progress is None or progress["batchId"] < first:
            return False
        entry = self.checkpoint.log.read(progress["batchId"])
        ended = all(cti == INFINITY for cti, _ in entry.get("sources", {}).values())
        clocks = ("RateStream",) if ended or entry.get("circulating") else ("RateStream", _FEEDBACK_SOURCE)
        moved = (s["description"] for s in progress["sources"] if s["startOffset"] != s["endOffset"])
        return all(any(clock in description for clock in clocks) for description in moved)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until it ends, or for so many seconds; true if it has ended. Ctrl-C stops the query."""
        # The JVM is asked by another thread: a call to it from this one could not be interrupted without noise.
        ended = threading.Event()
        try:
            threading.Thread(target=self._wait, args=(timeout, ended), name="headrace-wait", daemon=True).start()
            ended.wait()
        except KeyboardInterrupt:
            self.stop()
            raise
        if self.is_active:
            return False
        if self._starts_again():
            return self.await_termination(timeout)
        self.end_receivers()
        reason = self.exception() or self._receiver_failure()
        if reason is not None:
            raise reason
        return True

    def _starts_again(self) -> bool:
        """Start it again if it ended by a failure that may pass; not for ever."""
        try:
            found = self.stream.exception()
        except Exception:  # noqa: BLE001 - whoever asks why it ended is told
            return False
        return found is not None and self._tried_again(found)

    def start_stream(self) -> None:
        """Start Spark's part of it."""
        with explaining(self.explained):
            while True:
                try:
                    self.stream = self.launch()
                except Exception as error:
                    if not self._may_try_again(error):
                        raise
                else:
                    return

    def _tried_again(self, error: BaseException) -> bool:
        again = self._may_try_again(error)
        if again:
            self.start_stream()
        return again

    def _may_try_again(self, error: BaseException) -> bool:
        if not may_pass(error) or self._starts >= _MOST_STARTS:
            return False
        self._starts += 1
        why = failure(error).message
        _log.warning("%s; starting it again (%d of at most %d times)", why, self._starts, _MOST_STARTS)
        return True

    def end_receivers(self) -> None:
        """Take nothing more from hosts."""
        for receiver in self.receivers:
            receiver.stop()

    def _receiver_failure(self) -> Exception | None:
        return next((receiver.failure for receiver in self.receivers if receiver.failure is not None), None)

    def _wait(self, timeout: float | None, ended: threading.Event) -> None:
        with suppress(Exception):  # why it failed is asked for when it has ended
            self.stream.awaitTermination(None if timeout is None else max(timeout, 0.001))
        ended.set()

    def finish(self) -> None:
        """Answer everything that is there, then tell all sources that nothing more will come: every CTI becomes
        infinite.
        """
        self.process_all_available()
        self.checkpoint.signal_end()
        deadline = time.monotonic() + 60
        while self.report.get("cti", NEG_INFINITY) != INFINITY:
            self.process_all_available()
            if time.monotonic() > deadline:
                raise HostError("the end of input was signalled but not heard", given=self.name)

    def exception(self) -> BaseException | None:
        """Why it failed, if it did."""
        try:
            found = self.stream.exception() if self.stream is not None else None
        except Exception as error:  # noqa: BLE001 - it says why
            found = error
        return self.explained(found) if found is not None else None

    def explained(self, error: BaseException) -> HeadraceError:
        """A failure of Spark's for people, with what to do next."""
        again = f"start again with this checkpoint: checkpoint={str(self.checkpoint.path)!r}"
        afresh = "start again; with checkpoint='a directory' a query goes on from where it was"
        return failure(error, instead=afresh if self.checkpoint.temporary else again)

    def _guarded(self, action: Callable[[], Any]) -> Any:
        with explaining(lambda error: self._failure or self.explained(error)):
            while True:
                try:
                    return action()
                except Exception as error:
                    if self._failure is not None or not self._tried_again(error):
                        raise

    # --- the driver's part of a batch --------------------------------------------------------------------------------

    def hear(self, batch: Batch) -> None:
        """Take note of a committed batch: rows for the sinks of this process, and the numbers it shows."""
        for number in range(len(self.line.outputs)):
            self._show(number, batch)
        self.counts.update(batch.entry["counts"])
        self.files = batch.entry["files"]
        self.statistics.append(batch.statistics)
        self.batch_seconds.append(batch.seconds)
        del self.statistics[:-_KEPT_BATCHES], self.batch_seconds[:-_KEPT_BATCHES]
        entry = batch.entry
        self.report = Report.of(batch.number, entry["sources"], entry["counts"], batch.statistics)

    def _show(self, number: int, batch: Batch) -> None:
        output, sink = self.line.outputs[number], self.sinks[number]
        if isinstance(sink, FileSink):
            return
        tables = [
            Changes.from_table(m.table) for m in batch.messages if m.edge == RESULT - number and m.table is not None
        ]
        changes = Changes.concat([Changes.empty(output.schema), *tables])
        progress = progress_of_output(number, batch.messages)
        if isinstance(sink, Memory):
            sink.add(changes, progress, batch.number)
        elif isinstance(sink, Console):
            show_batch(sink, output.name, batch.number, changes, progress)
        elif isinstance(sink, Call):
            sink.function(batch.number, changes, progress)

    def _catch_up(self) -> None:
        """Hear the batches that a Connect server has committed meanwhile."""
        failure = self._failure or self._receiver_failure()
        if failure is not None:
            raise failure
        if self.relay is not None:
            with self._turn:
                for batch in self.relay.receive():
                    self.hear(batch)

    def listen(self) -> None:
        """Hear batches as they come, as long as it runs."""
        try:
            while self.is_active:
                self._catch_up()
                time.sleep(_LISTEN_SECONDS)
        except Exception as error:  # noqa: BLE001 - a sink's own function may raise anything; it ends the query
            self._failure = error
            with suppress(Exception):  # the server itself may be gone
                self.stop_stream()


# --- building --------------------------------------------------------------------------------------------------------


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
    """Start streams, each into its sink, as one Spark query.

    `checkpoint` is where the query keeps its state; starting again with it continues. `buckets` is how many parts state
    is divided into (fixed for the life of a checkpoint). `trigger` is a duration such as '10 seconds'; by default a
    batch starts as soon as the one before has ended. `spark` is a session to run on; its options stay as they are.
    """
    if not pairs:
        raise PlanError("a query needs at least one sink", instead="stream.start(hr.console())")
    outputs = [
        Output(prepared(node, sink), f"{i} {type(sink).__name__.lower()}") for i, (node, sink) in enumerate(pairs)
    ]
    sinks: list[Sink] = [sink for _, sink in pairs]
    _check_places(outputs, sinks)
    check_frames(*outputs, named=checkpoint is not None)
    place = Checkpoint(checkpoint)
    try:
        place.lock()
        session = spark or get_session(master, options)
        query, job = _built(name, session, place, outputs, sinks, buckets)
        _run(query, job, files_per_batch, trigger)
    except BaseException:
        place.close()
        raise
    return query


def _built(
    name: str, session: SparkSession, place: Checkpoint, outputs: list[Output], sinks: list[Sink], buckets: int | None
) -> tuple[Query, Job]:
    """A query that has not been started, and what its workers must know."""
    warm_up(session, ["headrace.host.spark.worker"])
    _add_side_outputs(outputs, sinks, place)
    stored = spooled(outputs, place.path / "spool")
    plan = optimize(rewrite(stored, lambda node: _on_disk(node, place)))
    count = place.buckets(buckets, min(os.cpu_count() or 1, 8))
    line = cut(plan, count)
    place.claim(line, count, sinks)
    handled = tuple(sink if isinstance(sink, (FileSink, Nowhere)) else None for sink in sinks)
    for sink in handled:
        if isinstance(sink, FileSink):
            BatchDirectory(sink.path).claim(place.owner, begun=place.log.last()[0] >= 0)
    cross_check(place, sinks)
    job = Job(uuid.uuid4().hex, line, bucket_labels(count), str(place.path), handled)
    counts = {str(source.origin): dict.fromkeys(COUNTERS, 0) for source in line.sources}
    query = Query(name, session, line, place, tuple(sinks), counts)
    place.in_use = lambda: query.is_active
    _resume(query)
    query.receivers = [_receiver(query, host) for host in hosts_of(outputs)]
    return query, job


def _check_places(outputs: Sequence[Output], sinks: Sequence[Sink]) -> None:
    """Everything that can be found wrong before Spark is started."""
    for node in walk(*outputs):
        if isinstance(node, Source) and isinstance(node.origin, Files):
            node.origin.check()
    for sink in sinks:
        if isinstance(sink, FileSink):
            BatchDirectory(sink.path)


def _add_side_outputs(outputs: list[Output], sinks: list[Sink], place: Checkpoint) -> None:
    """Rows set aside that nobody asked for are kept in the checkpoint."""
    taken = [output.input for output in outputs]
    sides = [side for side in set_aside(*outputs, whole=False) if side not in taken]
    for i, side in enumerate(sides):
        outputs.append(Output(side, f"diverted {i}"))
        sinks.append(FileSink("final", (), str(place.path / "diverted" / str(i)), "jsonl"))


def _run(query: Query, job: Job, files_per_batch: int | None, trigger: str | None) -> None:
    if is_connect(query.spark):
        query.relay = Relay(job.checkpoint)
        query.relay.clear()
    query.launch = lambda: _launch(query, job, files_per_batch, trigger)
    try:
        query.start_stream()
    except BaseException:
        query.end_receivers()
        raise
    for receiver in query.receivers:
        receiver.on_failure = query.stop_stream
        receiver.start()
    if query.relay is not None:
        threading.Thread(target=query.listen, name="headrace-listen", daemon=True).start()


def _resume(query: Query) -> None:
    batch, entry = query.checkpoint.log.last()
    if entry:
        query.counts.update(entry["counts"])
        query.files = entry.get("files", {})
        query.report = Report.of(batch, entry["sources"], entry["counts"], [])


def _receiver(query: Query, host: HostRead) -> Receiver:
    folder = Path(host.files(query.checkpoint.path / "spool").path)
    return Receiver(host, folder, taken=lambda: query.files_taken(str(host)))


def _on_disk(node: Node, place: Checkpoint) -> Node:
    """Events held in memory, and batch frames, are written down, so that they can be read again after a failure."""
    if isinstance(node, Source) and isinstance(node.origin, Events):
        return replace(node, origin=place.spill(node.origin))
    if isinstance(node, Source) and isinstance(node.origin, FrameRead) and not node.origin.streaming:
        folder = place.path / "frames" / hashlib.sha256(str(node.origin).encode()).hexdigest()[:16]
        if not folder.exists():
            spill(node.origin, node.columns, folder)
        return replace(node, origin=Files(str(folder), Format("arrow"), label=str(node.origin)))
    return node


def _launch(query: Query, job: Job, files_per_batch: int | None, trigger: str | None) -> Any:
    frames, flows = [signal_frame(query.spark, str(query.checkpoint.control))], []
    if query.line.loops:
        frames.append(feedback_frame(query.spark, str(query.checkpoint.path)))
    for number, source in enumerate(query.line.sources):
        if isinstance(source.origin, SparkRead):
            rows = read_frame(query.spark, source, source.origin)
            flows.append(rows.mapInArrow(make_row_intake(job, number), CHUNK))
        else:
            # Rows that arrive one after the other do so across files, too.
            most = 1 if isinstance(source.lifetime, Arrival) else files_per_batch
            assert isinstance(source.origin, Files)
            frames.append(file_frame(query.spark, number, source.origin, most))
        if isinstance(source.policy, Heartbeat):
            frames.append(clock_frame(query.spark, number))
    rows = reduce(DataFrame.union, frames).withColumn(BATCH_TIME, F.current_timestamp())
    flow = reduce(DataFrame.union, [rows.mapInArrow(make_intake(job), CHUNK), *flows])
    for level in range(1, query.line.depth + 1):
        processor = StageProcessor(job, level)
        flow = flow.groupBy("bucket").transformWithStateInPandas(processor, CHUNK, outputMode="Append", timeMode="None")
    files = tuple(sink if isinstance(sink, FileSink) else None for sink in query.sinks)
    taker = _taker(query, Delivery(job.line, files, job.checkpoint))
    writer = flow.writeStream.outputMode("append").queryName(f"{query.name}-{job.token[:8]}").foreachBatch(taker)
    writer = writer.option("checkpointLocation", str(query.checkpoint.path / "spark"))
    with query_options(query.spark, job.buckets):
        return (writer.trigger(processingTime=trigger) if trigger else writer).start()


def _taker(query: Query, delivery: Delivery) -> Callable[[DataFrame, int], None]:
    """What Spark calls with every batch."""
    if query.relay is not None:
        return query.relay.sender(delivery)
    return lambda frame, number: query.hear(delivery.take(frame, number)[1])
