"""A query on Spark: the line of stages as one Structured Streaming query, and the driver's part of every batch.

    paths, ticks, signals ─ mapInArrow(intake) ─ [groupBy(bucket) ─ transformWithStateInPandas(stage)]* ─ foreachBatch

The driver never sees rows of outputs that go to files: workers write those, and the driver commits them under the
batch's number (`delivery`). Rows of the other sinks come to the process that started the query.
"""

from __future__ import annotations

import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace import errors
from headrace.changes import Changes
from headrace.errors import HeadraceError, HostError, PlanError
from headrace.expr.sql import to_spark
from headrace.host.losses import Losses
from headrace.host.received import hosts_of, spooled
from headrace.host.report import Report
from headrace.host.spark.checkpoint import Checkpoint
from headrace.host.spark.delivery import Batch, Delivery, Relay, progress_of_output
from headrace.host.spark.labels import bucket_labels
from headrace.host.spark.session import apply_query_options, get_session, is_connect, warm_up
from headrace.host.spark.worker import (
    BATCH_TIME,
    CHUNK,
    END,
    FILE,
    ROUND,
    TICK,
    Job,
    StageProcessor,
    feedback_directory,
    make_intake,
    make_row_intake,
)
from headrace.io.commit import BatchDirectory
from headrace.io.console import close as close_console
from headrace.io.console import show_batch, show_losses
from headrace.io.files import local_path
from headrace.io.host_source import Receiver
from headrace.io.ingress import COUNTERS
from headrace.io.origins import TABLE, Events, Files, HostRead, SparkRead, read_columns
from headrace.io.secrets import HIDDEN, hidden_values
from headrace.io.sinks import Call, Console, FileSink, Memory, Nowhere, Sink, prepared
from headrace.optimizer import optimize
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Node, Output, Source, set_aside, walk
from headrace.plan.policies import Arrival, Heartbeat
from headrace.stages.cut import Line, cut
from headrace.stages.message import RESULT
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["Query", "start_query"]

#: Spark's file readers stream only with a schema; its other readers bring their own.
_WANT_SCHEMA = ("csv", "json", "orc", "parquet", "text", "xml")
#: Of how many batches the statistics are kept; a query may run for years.
_KEPT_BATCHES = 1000
_LISTEN_SECONDS = 0.1
#: How Spark's name for the source of what goes round ends.
_FEEDBACK_SOURCE = "/feedback]"
_BINARY_FILE = "path string, modificationTime timestamp, length long, content binary"
_ERROR = re.compile(
    r"headrace\.errors\.(\w+): \[(\w+)\] (.*?)(?=\s*SQLSTATE|\n\s*\n|\n[A-Z][\w.]*Exception|\Z)", re.DOTALL
)


@dataclass
class Query:
    """A running query."""

    name: str
    spark: SparkSession
    line: Line
    checkpoint: Checkpoint
    sinks: tuple[Sink, ...]
    counts: dict[str, dict[str, int]]
    #: Of every source the first row that was diverted or dropped.
    examples: dict[str, dict[str, Any]] = field(default_factory=dict)
    losses: Losses = field(default_factory=Losses)
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
        return bool(self.stream is not None and self.stream.isActive)

    @property
    def received(self) -> dict[str, dict[str, int]]:
        """For every host that lines come from: connections, lines, what was set aside, how often it had to wait."""
        return {str(receiver.origin): dict(receiver.counts) for receiver in self.receivers}

    def stop(self) -> None:
        """End it; the checkpoint stays, and starting again with it continues."""
        self.end_receivers()
        if self.stream is not None:
            self.stream.stop()
        try:
            self._catch_up()
        finally:
            for sink in self.sinks:
                if isinstance(sink, Console):
                    close_console(sink)
            self.checkpoint.close()

    def process_all_available(self) -> None:
        """Wait until everything that is there now has been answered."""
        ticking = any(isinstance(source.policy, Heartbeat) for source in self.line.sources)
        self._guarded(self._await_quiet if ticking else self.stream.processAllAvailable)
        self._catch_up()

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
        self.end_receivers()
        failure = self.exception() or self._receiver_failure()
        if failure is not None:
            raise failure
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
        found = self.stream.exception() if self.stream is not None else None
        return self._told(found) if found is not None else None

    def _told(self, error: BaseException) -> BaseException:
        """A failure of Spark's, without the values of options that the plan hides too."""
        origins = [source.origin for source in self.line.sources if isinstance(source.origin, SparkRead)]
        return _typed(error, [value for origin in origins for value in hidden_values(origin.options)])

    def _guarded(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:
            raise self._failure or self._told(error) from error

    # --- the driver's part of a batch --------------------------------------------------------------------------------

    def hear(self, batch: Batch) -> None:
        """Take note of a committed batch: rows for the sinks of this process, and the numbers it shows."""
        for number in range(len(self.line.outputs)):
            self._show(number, batch)
        self.counts.update(batch.entry["counts"])
        self.examples = batch.entry["examples"]
        losses = self.losses.grown(self.name, self.counts, self.examples)
        if any(isinstance(sink, Console) for sink in self.sinks):
            show_losses(losses)
        self.files = batch.entry["files"]
        self.statistics.append(batch.statistics)
        self.batch_seconds.append(batch.seconds)
        del self.statistics[:-_KEPT_BATCHES], self.batch_seconds[:-_KEPT_BATCHES]
        entry = batch.entry
        self.report = Report.of(batch.number, entry["sources"], entry["counts"], batch.statistics, entry["examples"])

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
                self.stream.stop()


def _typed(error: BaseException, secrets: Sequence[str] = ()) -> BaseException:
    """The error of ours that a worker raised, found again in Spark's text."""
    text = str(error)
    for secret in filter(None, secrets):
        text = text.replace(secret, HIDDEN)
    match = _ERROR.search(text)
    if match is None:
        return HostError(f"the query failed: {text.strip()[:2000]}")
    kind = getattr(errors, match[1], HeadraceError)
    return cast("BaseException", kind(match[3].strip()))


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
    batch starts as soon as the one before has ended.
    """
    if not pairs:
        raise PlanError("a query needs at least one sink", instead="stream.start(hr.console())")
    outputs = [
        Output(prepared(node, sink), f"{i} {type(sink).__name__.lower()}") for i, (node, sink) in enumerate(pairs)
    ]
    sinks: list[Sink] = [sink for _, sink in pairs]
    _check_places(outputs, sinks)
    place = Checkpoint(checkpoint)
    session = spark or get_session(master, options)
    warm_up(session, ["headrace.host.spark.worker"])
    _add_side_outputs(outputs, sinks, place)
    stored = spooled(outputs, place.path / "spool")
    plan = optimize(rewrite(stored, lambda node: _on_disk(node, place)))
    count = place.buckets(buckets or min(os.cpu_count() or 1, 8))
    line = cut(plan, count)
    place.claim(line, count)
    handled = tuple(sink if isinstance(sink, (FileSink, Nowhere)) else None for sink in sinks)
    for sink in handled:
        if isinstance(sink, FileSink):
            BatchDirectory(sink.path).claim(place.owner, begun=place.log.last()[0] >= 0)
    job = Job(uuid.uuid4().hex, line, bucket_labels(count), str(place.path), handled)
    counts = {str(source.origin): dict.fromkeys(COUNTERS, 0) for source in line.sources}
    query = Query(name, session, line, place, tuple(sinks), counts)
    _resume(query)
    apply_query_options(session, count)
    query.receivers = [_receiver(query, host) for host in hosts_of(outputs)]
    _run(query, job, files_per_batch, trigger)
    return query


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
    try:
        query.stream = _launch(query, job, files_per_batch, trigger)
    except BaseException:
        query.end_receivers()
        raise
    for receiver in query.receivers:
        receiver.on_failure = query.stream.stop
        receiver.start()
    if query.relay is not None:
        threading.Thread(target=query.listen, name="headrace-listen", daemon=True).start()


def _resume(query: Query) -> None:
    batch, entry = query.checkpoint.log.last()
    if entry:
        query.counts.update(entry["counts"])
        query.examples = entry["examples"]
        query.losses.grown(query.name, query.counts, query.examples)
        query.files = entry.get("files", {})
        query.report = Report.of(batch, entry["sources"], entry["counts"], [], entry["examples"])


def _receiver(query: Query, host: HostRead) -> Receiver:
    folder = Path(host.files(query.checkpoint.path / "spool").path)
    return Receiver(host, folder, taken=lambda: query.files_taken(str(host)))


def _on_disk(node: Node, place: Checkpoint) -> Node:
    """Events held in memory are written down, so that Spark can read them again after a failure."""
    if isinstance(node, Source) and isinstance(node.origin, Events):
        return replace(node, origin=place.spill(node.origin))
    return node


def _launch(query: Query, job: Job, files_per_batch: int | None, trigger: str | None) -> Any:
    frames, flows = [_signal_frame(query)], []
    if query.line.loops:
        frames.append(_feedback_frame(query))
    for number, source in enumerate(query.line.sources):
        if isinstance(source.origin, SparkRead):
            flows.append(
                _read_frame(query.spark, source, source.origin).mapInArrow(make_row_intake(job, number), CHUNK)
            )
        else:
            # Rows that arrive one after the other do so across files, too.
            most = 1 if isinstance(source.lifetime, Arrival) else files_per_batch
            frames.append(_file_frame(query.spark, number, cast("Files", source.origin), most))
        if isinstance(source.policy, Heartbeat):
            frames.append(_clock_frame(query.spark, number))
    rows = reduce(DataFrame.union, frames).withColumn(BATCH_TIME, F.current_timestamp())
    flow = reduce(DataFrame.union, [rows.mapInArrow(make_intake(job), CHUNK), *flows])
    for level in range(1, query.line.depth + 1):
        processor = StageProcessor(job, level)
        flow = flow.groupBy("bucket").transformWithStateInPandas(processor, CHUNK, outputMode="Append", timeMode="None")
    files = tuple(sink if isinstance(sink, FileSink) else None for sink in query.sinks)
    taker = _taker(query, Delivery(job.line, files, job.checkpoint))
    writer = flow.writeStream.outputMode("append").queryName(f"{query.name}-{job.token[:8]}").foreachBatch(taker)
    writer = writer.option("checkpointLocation", str(query.checkpoint.path / "spark"))
    return (writer.trigger(processingTime=trigger) if trigger else writer).start()


def _taker(query: Query, delivery: Delivery) -> Callable[[DataFrame, int], None]:
    """What Spark calls with every batch."""
    if query.relay is not None:
        return query.relay.sender(delivery)
    return lambda frame, number: query.hear(delivery.take(frame, number)[1])


def _read_frame(spark: SparkSession, source: Source, origin: SparkRead) -> DataFrame:
    """Rows that Spark reads; columns and filters are its own work."""
    reader = spark.readStream.options(**dict(origin.options))
    if origin.format == TABLE:
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
    return frame.withColumn(BATCH_TIME, F.current_timestamp())


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


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


def _file_frame(spark: SparkSession, number: int, origin: Files, files_per_batch: int | None) -> DataFrame:
    frame = _binary_files(spark, origin.path, files_per_batch)
    return _row(frame, number, FILE, F.col("path"), F.col("modificationTime"))


def _signal_frame(query: Query) -> DataFrame:
    frame = _binary_files(query.spark, str(query.checkpoint.control), None)
    return _row(frame, -1, END, F.col("path"), F.col("modificationTime"))


def _feedback_frame(query: Query) -> DataFrame:
    place = BatchDirectory(feedback_directory(str(query.checkpoint.path)))
    return _row(_binary_files(query.spark, str(place.path), None), -1, ROUND, F.col("path"), F.col("modificationTime"))


def _clock_frame(spark: SparkSession, number: int) -> DataFrame:
    frame = spark.readStream.format("rate").option("rowsPerSecond", "1").load()
    return _row(frame, number, TICK, F.lit(""), F.col("timestamp"))
