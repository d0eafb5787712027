"""Starting a query on any host: from the plan to the loop.

A `Host` has the parts of a start that depend on where tasks run. All else is the same everywhere, above all the content
of a checkpoint: so a query can continue on another host.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.errors import PlanError
from headrace.host.driving.adoption import DIVERTED, Adoption, adopt
from headrace.host.driving.checkpoint import Checkpoint
from headrace.host.driving.driver import Driver
from headrace.host.driving.pace import Pace
from headrace.host.driving.plan import Executor, Job
from headrace.host.driving.publish import Publisher
from headrace.host.driving.query import Feeder, Query
from headrace.host.received import hosts_of, spooled
from headrace.io.adapter import SinkAdapter
from headrace.io.files import is_read_from, local_path
from headrace.io.host_source import Receiver
from headrace.io.ingress import COUNTERS
from headrace.io.origins import AdapterRead, Events, Files, HostRead, check_frames
from headrace.io.sinks import FileSink, Sink
from headrace.optimizer import RULES, SHARED_RULES, Rule, optimize
from headrace.optimizer.rewrite import rewrite_sources
from headrace.plan.nodes import Node, Output, Source, diverted_streams, sources_of
from headrace.stages.cut import Line, cut
from headrace.stages.egress import check_places, claim, prepared, task_sinks
from headrace.store.environment import Environment
from headrace.time import DurationLike, duration

__all__ = ["Host", "StartRequest", "start_on"]


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
    #: Whether each output is planned apart, so that its operators are the same whichever others there are, and those
    #: that several have in common are one; and what a new checkpoint continues.
    apart: bool = False
    adoption: Adoption | None = None

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
    _ = request.interval, request.patience  # what is invalid is refused before anything is created
    place = Checkpoint(request.checkpoint)
    try:
        place.lock()
        with host.explaining():
            host.connect()
            query = _build(host, place, outputs, sinks, request)
            if request.adoption is not None:
                request.adoption.adopted()
            _begin(query, host, outputs)
    except BaseException:
        place.close()
        raise
    return query


def _build(host: Host, place: Checkpoint, outputs: list[Output], sinks: list[Sink], request: StartRequest) -> Query:
    """A query that owns its checkpoint and its sinks, and is not started."""
    plan = _apart(host, place, outputs, sinks) if request.apart else _together(host, place, outputs, sinks)
    adopted = None if request.adoption is None else request.adoption.buckets
    count = place.buckets(request.buckets, adopted or host.buckets)
    line = cut(plan, count)
    place.claim(line, count, sinks)
    if request.adoption is not None:
        adopt(request.adoption, place, line, count, sinks)
    sinks = place.continued(sinks)
    written = task_sinks(sinks, trips=bool(line.loops))
    services = {number: sink for number, sink in enumerate(sinks) if isinstance(sink, SinkAdapter)}
    environment = _environment(place, line, sinks)
    job = Job(uuid.uuid4().hex, line, count, place.storage, written, environment, services, place.owner)
    executor = host.executor(job, request.name)
    publisher = Publisher(line.outputs, sinks, place.storage, executor)
    tasks = max(count, executor.threads)
    driver = Driver(job, executor, publisher, _now, request.files_per_batch, tasks=tasks, max_trips=request.max_trips)
    driver.row_pace, driver.temporary = Pace.of_rows(request.rows_per_batch), place.temporary
    _open(driver, place, sinks, host)
    counts = {str(source.origin): dict.fromkeys(COUNTERS, 0) for source in line.sources}
    query = Query(request.name, line, place, tuple(sinks), driver, executor, counts, interval=request.interval)
    query.timeout = request.patience
    query.feeders = host.feeders
    place.in_use = lambda: query.is_active
    return query


def _environment(place: Checkpoint, line: Line, sinks: Sequence[Sink]) -> Environment:
    origins = [source.origin for source in line.sources]
    files = [one.path for one in (*origins, *sinks) if isinstance(one, (Files, FileSink))]
    sources = [origin.adapter for origin in origins if isinstance(origin, AdapterRead)]
    adapters = [*sources, *(sink for sink in sinks if isinstance(sink, SinkAdapter))]
    return Environment([place.place, *files, *(path for one in adapters for path in one.places)])


def _spool(place: Checkpoint, hosts: Sequence[HostRead]) -> Path:
    """The folder for lines of hosts without a spool of their own."""
    if all(host.spool for host in hosts):
        return Path()
    return place.folder("spool", "lines of hosts without a spool= of their own")


def _now() -> int:
    return int(time.time() * 1_000_000)


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


def _together(host: Host, place: Checkpoint, outputs: list[Output], sinks: list[Sink]) -> tuple[Output, ...]:
    """The plan of all outputs as one query, which gets the outputs and sinks of diverted rows, too."""
    _add_side_outputs(outputs, sinks, place)
    return _on_disk(spooled(outputs, _spool(place, hosts_of(outputs))), place, host)


def _apart(host: Host, place: Checkpoint, outputs: list[Output], sinks: list[Sink]) -> tuple[Output, ...]:
    """The plans of outputs, each made apart with its diverted rows; what is equal in several of them is there once."""
    main: list[Output] = []
    sides: dict[str, Output] = {}
    for output in outputs:
        own = [Output(side, "diverted") for side in diverted_streams(output, whole=False)]
        planned, *diverted = _on_disk((output, *own), place, host, SHARED_RULES)
        main.append(planned)
        sides |= {side.input.fingerprint: side for side in diverted}
    for fingerprint, side in sides.items():
        sinks.append(_diverted_sink(place, fingerprint, side))
    outputs += [replace(side, name=f"diverted {fingerprint}") for fingerprint, side in sides.items()]
    return (*main, *outputs[len(main) :])


def _diverted_sink(place: Checkpoint, name: str, side: Output) -> FileSink:
    return FileSink("final", (), f"{place.place}/{DIVERTED}/{name}", "jsonl").showing(dates=side.dates)


def _add_side_outputs(outputs: list[Output], sinks: list[Sink], place: Checkpoint) -> None:
    """Keep diverted rows that the query does not read in the checkpoint."""
    taken = [output.input for output in outputs]
    sides = [side for side in diverted_streams(*outputs, whole=False) if side not in taken]
    for i, side in enumerate(sides):
        outputs.append(Output(side, f"diverted {i}"))
        sinks.append(_diverted_sink(place, str(i), outputs[-1]))


def _on_disk(
    outputs: Sequence[Output], place: Checkpoint, host: Host, rules: Sequence[Rule] = RULES
) -> tuple[Output, ...]:
    """The plan over files: rows in memory are written to files, and rows that the loop cannot read are too."""

    def stored(source: Source) -> Node:
        if isinstance(source.origin, Events):
            return replace(source, origin=place.spill(source.origin))
        return host.stored(source, place)

    on_disk = optimize(rewrite_sources(tuple(outputs), stored), rules)
    return rewrite_sources(on_disk, lambda source: host.fed(source, place))


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
    folder = Path(host.files(_spool(query.checkpoint, [host])).path)
    return Receiver(host, folder, taken=lambda: query.files_taken(str(host)))
