"""Starting a query on any host: from the plan to the loop.

A `Host` has the parts of a start that depend on where tasks run. All else is the same everywhere, above all the content
of a checkpoint: so a query can continue on another host.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.errors import PlanError
from headrace.host.driving.adoption import Adoption, adopt
from headrace.host.driving.backfill import backfill, catch_up
from headrace.host.driving.changed import DIVERTED, is_described
from headrace.host.driving.checkpoint import Checkpoint
from headrace.host.driving.driver import Driver
from headrace.host.driving.keeping import KeptInput, RetentionLike, SpoolKeeper
from headrace.host.driving.outputs import planned_outputs, settle_sides, spool_of
from headrace.host.driving.pace import Pace
from headrace.host.driving.plan import Executor, Job
from headrace.host.driving.positions import FilePositions
from headrace.host.driving.publish import Publisher
from headrace.host.driving.query import Feeder, Query
from headrace.host.driving.recording import recorded_sources
from headrace.host.driving.upgrade import (
    TOGETHER,
    PlannedQuery,
    check_old,
    check_upgrade,
    freed_if_refused,
    keep,
    matched,
)
from headrace.host.received import hosts_of
from headrace.io.adapter import SinkAdapter
from headrace.io.files import is_read_from, local_path
from headrace.io.host_source import Receiver
from headrace.io.ingress import COUNTERS
from headrace.io.origins import AdapterRead, Files, HostRead, check_frames
from headrace.io.sinks import FileSink, Sink
from headrace.io.temporary import remove_leftovers
from headrace.metrics.alarms import AlarmRule, Alarms, checked_rules
from headrace.metrics.calling import AlarmCalls
from headrace.metrics.endpoint import MetricsPlace
from headrace.optimizer import RULES
from headrace.plan.nodes import Node, Output, Source, sources_of
from headrace.stages.cut import Line, cut
from headrace.stages.egress import check_places, claim, prepared, task_sinks
from headrace.store.environment import Environment
from headrace.store.log import Log
from headrace.time import DurationLike, duration

__all__ = ["Host", "StartRequest", "start_on"]

_log = logging.getLogger("headrace")
#: So many batches of diverted rows are merged into one, and so many of these again.
_DIVERTED_COMPACT = 10


class Host:
    """A place where the tasks of a query run."""

    @property
    def buckets(self) -> int:
        """The default number of buckets of a new checkpoint."""
        return 1

    @property
    def feeders(self) -> Sequence[Feeder]:
        """The feeders of sources that the loop cannot read."""
        return ()

    def check(self, outputs: Sequence[Output]) -> None:
        """Refuse a query that cannot run here, before anything is created."""

    def explaining(self) -> AbstractContextManager[None]:
        """A context for a start that turns failures of the host into errors for users."""
        return nullcontext()

    def connect(self) -> None:
        """Prepare for tasks."""

    def stored(self, source: Source, place: Checkpoint) -> Source:  # noqa: ARG002 - for hosts that can read more
        """A bounded source over files of the checkpoint, unless it reads files already."""
        return source

    def fed(self, source: Source, place: Checkpoint) -> Source:  # noqa: ARG002 - for hosts that can read more
        """An unbounded source over files that a feeder writes, unless it reads files already."""
        return source

    def prepare(self, owner: str, *, begun: bool) -> None:
        """Prepare feeders; `owner` marks what belongs to the checkpoint, `begun`: the query has committed a batch."""

    def executor(self, job: Job, name: str) -> Executor:
        """The executor of the tasks."""
        raise NotImplementedError

    def begin(self, query: Query) -> None:
        """Start the feeders."""


@dataclass(frozen=True)
class StartRequest:
    """The options of a start."""

    checkpoint: str | None = None
    buckets: int | None = None
    files_per_batch: int | None = None
    trigger: str | None = None
    name: str = "headrace"
    max_trips: int | None = None
    rows_per_batch: int | None = None
    timeout: DurationLike | None = None
    #: How long batches are kept, to be run again for a trace.
    record: DurationLike | None = None
    #: The port, or `"host:port"`, at which Prometheus reads the metrics.
    metrics_port: int | str | None = None
    #: What is kept of diverted rows and of received input.
    retention: RetentionLike | None = None
    #: The rules of alarms; None: the default ones.
    alarms: Sequence[AlarmRule] | None = None
    #: Whether each output is planned apart, so that its operators are the same whichever others there are, and those
    #: that several have in common are one; and what a new checkpoint continues.
    apart: bool = False
    adoption: Adoption | None = None
    #: How a changed query continues the checkpoint of an earlier one; None: it does not.
    upgrade: str | None = None

    @property
    def patience(self) -> float | None:
        """Seconds without new rows after which the input has ended."""
        if self.timeout is None:
            return None
        seconds = duration(self.timeout) / 1_000_000
        if seconds <= 0:
            raise PlanError("a time-out is a duration", given=self.timeout, allowed="more than 0", instead="'30 s'")
        return seconds

    @property
    def recording(self) -> float | None:
        """Seconds for which batches are kept."""
        if self.record is None:
            return None
        seconds = duration(self.record) / 1_000_000
        if seconds <= 0:
            raise PlanError("a recording lasts a duration", given=self.record, allowed="more than 0", instead="'1 h'")
        if self.checkpoint is None:
            raise PlanError(
                "a recording is kept in the checkpoint, and this query has none",
                given=f"record={self.record!r}",
                instead="start(..., checkpoint='a directory', record='1 h')",
            )
        return seconds

    @property
    def kept(self) -> KeptInput:
        """What is kept of diverted rows and of received input."""
        return KeptInput.of(self.retention)

    @property
    def interval(self) -> float:
        """Seconds from the start of a batch to that of the next, at least."""
        return duration(self.trigger) / 1_000_000 if self.trigger else 0.0


def start_on(host: Host, pairs: Sequence[tuple[Node, Sink]], request: StartRequest) -> Query:
    """Start streams, each into its sink, as one query."""
    if not pairs:
        raise PlanError("a query needs at least one sink", instead="stream.start(hr.console())")
    outputs = [
        Output(prepared(node, sink), str(sink) if request.apart else f"{i} {type(sink).__name__.lower()}")
        for i, (node, sink) in enumerate(pairs)
    ]
    sinks: list[Sink] = [sink.showing(dates=node.dates) for node, sink in pairs]
    _check_places(outputs, sinks, request.checkpoint)
    check_frames(*outputs, named=request.checkpoint is not None)
    host.check(outputs)
    check_upgrade(request.upgrade, request.checkpoint, outputs)
    # What is invalid is refused before anything is created.
    _check_name(request.name)
    _ = request.interval, request.patience, request.recording, request.kept
    alarms = Alarms(request.name, checked_rules(request.alarms), AlarmCalls(request.name))
    metrics = None if request.metrics_port is None else MetricsPlace(request.metrics_port, request.name)
    with ExitStack() as undo:
        if metrics is not None:
            undo.callback(metrics.close)
        remove_leftovers()
        place = Checkpoint(request.checkpoint)
        undo.callback(place.close)
        with host.explaining():
            _take(host, place, outputs, sinks, request)
            query = _build(host, place, outputs, sinks, request)
            query.metrics, query.watch = metrics, alarms
            if request.adoption is not None:
                request.adoption.adopted()
            _begin(query, host, outputs)
        undo.pop_all()
    return query


def _build(host: Host, place: Checkpoint, outputs: list[Output], sinks: list[Sink], request: StartRequest) -> Query:
    """A query that owns its checkpoint and its sinks, and is not started."""
    spools = [Path(origin.files(spool_of(place, [origin])).path) for origin in hosts_of(outputs)]
    planned = _planned(host, place, outputs, sinks, request)
    line, buckets, sinks = planned.line, planned.buckets, _keeping(planned.sinks, place, request.kept)
    place.claim(line, buckets, sinks, planned.left_out, planned.offers)
    if request.adoption is not None:
        adopt(request.adoption, place, line, buckets, sinks)
    sinks = place.continued(sinks)
    written = task_sinks(sinks, trips=bool(line.loops))
    services = {number: sink for number, sink in enumerate(sinks) if isinstance(sink, SinkAdapter)}
    environment = _environment(place, line, sinks)
    passing = [str(path) for path in [*spools, *(feeder.spool for feeder in host.feeders)]]
    job = Job(uuid.uuid4().hex, line, buckets, place.storage, written, environment, services, place.owner)
    if request.record is not None:
        job = replace(job, recorded=recorded_sources(line, passing))
    executor = host.executor(job, request.name)
    publisher = Publisher(line.outputs, sinks, place.storage, executor)
    tasks = max(buckets, executor.threads)
    driver = Driver(job, executor, publisher, _now, request.files_per_batch, tasks=tasks, max_trips=request.max_trips)
    driver.row_pace, driver.temporary = Pace.of_rows(request.rows_per_batch), place.temporary
    _open(driver, place, sinks, host)
    if driver.last is not None:
        driver.cleaner.resume(driver.last)
    driver.cleaner.seconds = request.recording
    counts = {str(source.origin): dict.fromkeys(COUNTERS, 0) for source in line.sources}
    query = Query(request.name, line, place, tuple(sinks), driver, executor, counts, interval=request.interval)
    query.timeout = request.patience
    query.feeders = host.feeders
    query.spools = _spool_keeper(driver, spools, place, request.kept)
    place.in_use = lambda: query.is_active
    return query


def _take(
    host: Host, place: Checkpoint, outputs: Sequence[Output], sinks: Sequence[Sink], request: StartRequest
) -> None:
    """Lock the checkpoint and connect; side by side, the query that holds it runs until the new one has reached it."""
    beside = request.upgrade == "side by side"
    if not beside or (place.path is not None and place.try_lock()):
        if not beside:
            place.lock()
        host.connect()
        return
    host.connect()
    stored = place.settle()
    if stored is not None:
        planned = _replanned(_planner(host, place, outputs, sinks, request, stored), stored)
        change = planned.change(place, stored, Log(place.storage).last())
        change.check_described()
        if change.is_changed:
            with freed_if_refused(change, lambda: check_old(place, stored, Log(place.storage).last())):
                catch_up(place, planned, stored, lambda scratch: _muted(host, scratch, planned, request))
                place.take_over()
            return
    place.lock()


def _planner(
    host: Host, place: Checkpoint, outputs: Sequence[Output], sinks: Sequence[Sink], request: StartRequest,
    stored: Mapping[str, Any] | None,
) -> Callable[[tuple[str, ...]], PlannedQuery]:  # fmt: skip
    """Plans the query without the rules of some names."""
    adopted = None if request.adoption is None else request.adoption.buckets
    buckets = place.buckets(request.buckets, adopted or host.buckets)

    def plan(left_out: tuple[str, ...]) -> PlannedQuery:
        own, places = list(outputs), list(sinks)
        if request.apart:
            found = planned_outputs(host, place, own, places, apart=True)
        else:
            rules = [rule for rule in RULES if rule.__name__ not in left_out]
            found = planned_outputs(host, place, own, places, apart=TOGETHER in left_out, rules=rules)
            settle_sides(place, stored, found, places, len(outputs))
        return PlannedQuery(cut(found, buckets), places, buckets, left_out)

    return plan


def _replanned(plan: Callable[[tuple[str, ...]], PlannedQuery], stored: Mapping[str, Any]) -> PlannedQuery:
    """The plan of a query that is computed anew, unless it is that of the checkpoint."""
    same = plan(tuple(stored.get("left_out", ())))
    return same if same.line.fingerprint == stored["fingerprint"] else plan(())


def _planned(
    host: Host, place: Checkpoint, outputs: Sequence[Output], sinks: Sequence[Sink], request: StartRequest
) -> PlannedQuery:
    """The plan of the query; the checkpoint of an earlier one is upgraded to it, if the request says so."""
    stored = place.settle()
    plan = _planner(host, place, outputs, sinks, request, stored)
    if stored is None:
        if request.upgrade is not None:
            _log.warning(
                "query %s: there is nothing to upgrade in %s: a new checkpoint begins", request.name, place.place
            )
        return plan(())
    last = Log(place.storage).last()
    if request.upgrade is None:
        planned = plan(tuple(stored.get("left_out", ())))
        if planned.line.fingerprint == stored["fingerprint"] or request.apart or not is_described(stored):
            return planned
        return replace(planned, offers=matched(place, stored, last, plan).change(place, stored, last).offers())
    planned = matched(place, stored, last, plan) if request.upgrade == "keep" else _replanned(plan, stored)
    change = planned.change(place, stored, last)
    change.check_described()
    if change.is_changed and request.upgrade == "keep":
        keep(place, planned, stored)
    elif change.is_changed:
        backfill(place, planned, stored, lambda scratch: _muted(host, scratch, planned, request))
    return planned


def _muted(host: Host, scratch: Checkpoint, planned: PlannedQuery, request: StartRequest) -> Driver:
    """The driver of a query whose outputs go to files of its checkpoint, as changes."""
    line, buckets = planned.line, planned.buckets
    sinks = [FileSink("changes", (), f"{scratch.place}/outputs/{i}", "parquet") for i in range(len(line.outputs))]
    scratch.claim(line, buckets, sinks)
    environment, written = _environment(scratch, line, sinks), task_sinks(sinks)
    job = Job(uuid.uuid4().hex, line, buckets, scratch.storage, written, environment, owner=scratch.owner)
    executor = host.executor(job, f"{request.name}-backfill")
    publisher = Publisher(line.outputs, sinks, scratch.storage, executor)
    tasks = max(buckets, executor.threads)
    driver = Driver(job, executor, publisher, _now, request.files_per_batch, tasks=tasks, max_trips=request.max_trips)
    driver.row_pace = Pace.of_rows(request.rows_per_batch)
    _open(driver, scratch, sinks, host)
    return driver


def _keeping(sinks: Sequence[Sink], place: Checkpoint, kept: KeptInput) -> list[Sink]:
    """The sinks, where those of diverted rows in the checkpoint keep what is asked for, in few files."""
    few = None if place.path is None else _DIVERTED_COMPACT

    def keeping(sink: Sink) -> Sink:
        if not isinstance(sink, FileSink) or not sink.path.startswith(f"{place.place}/{DIVERTED}/"):
            return sink
        return replace(sink, keep=kept.diverted, compact=few).showing(dates=sink.dates)

    return list(map(keeping, sinks))


def _spool_keeper(driver: Driver, spools: Sequence[Path], place: Checkpoint, kept: KeptInput) -> SpoolKeeper:
    """What removes the files of spools that were read."""
    files = [positions for positions in driver.positions.values() if isinstance(positions, FilePositions)]
    found = {}
    for folder in (str(path.absolute()) for path in spools):
        own = place.path is not None and folder.startswith(f"{place.path}/")
        keep, readers = kept.own_spool if own else kept.spool, [one for one in files if one.path == folder]
        for one in readers:
            one.passing = keep is not None
        if keep is not None:
            found[folder] = (keep, readers)
    return SpoolKeeper(found)


def _environment(place: Checkpoint, line: Line, sinks: Sequence[Sink]) -> Environment:
    origins = [source.origin for source in line.sources]
    files = [one.path for one in (*origins, *sinks) if isinstance(one, (Files, FileSink))]
    sources = [origin.adapter for origin in origins if isinstance(origin, AdapterRead)]
    adapters = [*sources, *(sink for sink in sinks if isinstance(sink, SinkAdapter))]
    return Environment([place.place, *files, *(path for one in adapters for path in one.places)])


def _now() -> int:
    return int(time.time() * 1_000_000)


def _check_name(name: object) -> None:
    """Refuse what cannot be a label of metrics, or a part of messages."""
    if not isinstance(name, str) or name.encode(errors="ignore").decode() != name:
        raise PlanError("the name of a query is a text", given=name, instead="name='orders'")


def _check_places(outputs: Sequence[Output], sinks: Sequence[Sink], checkpoint: str | None) -> None:
    """Check sources and sinks before anything is started."""
    written = [sink.path for sink in sinks if isinstance(sink, FileSink)]
    if checkpoint is not None:
        written.append(local_path(str(checkpoint)) or str(checkpoint))
    for source in sources_of(*outputs):
        if isinstance(source.origin, Files):
            source.origin.check()
            _check_apart(source.origin.path, written)
    check_places(sinks, new=False)


def _check_apart(read: str, written: Sequence[str]) -> None:
    """Refuse a query that would read its own output."""
    for place in written:
        if is_read_from(read, place):
            raise PlanError(
                f"the query reads all files below {read!r}, and would read its own output",
                given=place,
                allowed="outputs and checkpoints outside the directories that are read",
                instead="another directory, or read a pattern such as '*.csv' in it",
            )


def _open(driver: Driver, place: Checkpoint, sinks: Sequence[Sink], host: Host) -> None:
    """Take over the checkpoint and its sinks."""
    last = driver.log.last()
    host.prepare(place.owner, begun=last is not None)
    outputs = last.record["outputs"] if last is not None else [{"new": True}] * len(sinks)
    claim(sinks, place.owner, [not about.get("new") for about in outputs])  # the outputs of a copy are new, too
    driver.open()


def _begin(query: Query, host: Host, outputs: Sequence[Output]) -> None:
    for origin in hosts_of(outputs):
        query.receivers.append(_receiver(query, origin))
    host.begin(query)
    for receiver in query.receivers:
        receiver.on_failure = query.end_soon
        receiver.start()
    query.begin()


def _receiver(query: Query, host: HostRead) -> Receiver:
    folder = Path(host.files(spool_of(query.checkpoint, [host])).path)
    files = [one for one in query.driver.positions.values() if isinstance(one, FilePositions)]
    readers = [one for one in files if one.path == str(folder.absolute())]
    return Receiver(
        host, folder, taken=lambda: query.files_taken(str(host)),
        is_read=lambda file: all(one.has_read(file) for one in readers),
        after=max((one.newest for one in readers), default=0),
    )  # fmt: skip
