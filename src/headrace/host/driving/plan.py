"""The plan of a batch: what it reads. It is stored before the batch runs, so that every attempt reads the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from headrace.errors import HeadraceError, HostError, StoreError, Superseded
from headrace.io.adapter import ReadRange, SinkAdapter
from headrace.io.files import ListedFile
from headrace.io.ingress import ChannelReport
from headrace.progress import Progress
from headrace.stages.cut import Line
from headrace.stages.egress import TaskSink
from headrace.stages.measures import Tap
from headrace.store.environment import Environment
from headrace.store.log import Commit, Log
from headrace.store.storage import Storage
from headrace.time import NEG_INFINITY

__all__ = ["Batch", "Executor", "Job", "Plan", "Share", "reached"]


@dataclass(frozen=True)
class Plan:
    """What every source reads, by fingerprint, the time of the clock, and whether the input ends with this batch.

    A source reads files, or ranges of partitions. `silent` has the partitions without new rows, and whether they are
    idle; `begins` has the offsets at which new partitions begin, and those after a gap.
    """

    files: Mapping[str, tuple[ListedFile, ...]] = field(default_factory=dict)
    clock: int | None = None
    ends: bool = False
    ranges: Mapping[str, tuple[ReadRange, ...]] = field(default_factory=dict)
    silent: Mapping[str, tuple[tuple[str, bool], ...]] = field(default_factory=dict)
    begins: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def reads(self) -> bool:
        """Whether it reads anything."""
        return bool(self.files or self.ranges)

    def to_json(self) -> dict[str, Any]:
        files = {source: [[f.modified, f.path, f.size] for f in listed] for source, listed in self.files.items()}
        plan = {"files": files, "clock": self.clock, "ends": self.ends}
        if self.ranges:
            plan["ranges"] = {s: [[r.partition, r.start, r.end] for r in parts] for s, parts in self.ranges.items()}
        more = {"silent": dict(self.silent), "begins": {source: dict(starts) for source, starts in self.begins.items()}}
        return plan | {name: value for name, value in more.items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        files = {source: tuple(ListedFile(*file) for file in listed) for source, listed in data["files"].items()}
        ranges = {source: tuple(ReadRange(*part) for part in parts) for source, parts in data.get("ranges", {}).items()}
        silent = {source: tuple(map(tuple, parts)) for source, parts in data.get("silent", {}).items()}
        return cls(files, data["clock"], data["ends"], ranges, silent, data.get("begins", {}))


@dataclass(frozen=True, eq=False)
class Job:
    """The parts of a query that its tasks need, the same for all batches."""

    token: str
    line: Line
    buckets: int
    storage: Storage
    #: The sink of every output that tasks write; None for outputs that the driver writes.
    sinks: tuple[TaskSink | None, ...]
    #: The workers' access to object stores.
    environment: Environment = field(default_factory=Environment)
    #: The outputs that go to services, and the mark of the checkpoint, by which these know the query.
    adapters: Mapping[int, SinkAdapter] = field(default_factory=dict)
    owner: str = ""
    #: What sees every step, in the traces of a query: then its tasks run in one thread.
    tap: Tap | None = None
    #: The sources whose rows are recorded, by fingerprint.
    recorded: frozenset[str] = frozenset()

    def check_same(self, commit: Commit) -> None:
        """`Superseded` if another query made a commit, or one with other buckets: the query has changed meanwhile."""
        buckets, query = commit.record.get("buckets", self.buckets), commit.record.get("query", self.line.fingerprint)
        if buckets != self.buckets:
            raise Superseded(
                f"the state of the query in {self.storage.place!r} was divided among other buckets: this run ends",
                given=f"{buckets} buckets, and {self.buckets} here",
                instead="start the query again",
            )
        if query != self.line.fingerprint:
            raise Superseded(
                f"the query in {self.storage.place!r} was upgraded to another one: this run ends",
                given=f"the query {self.line.fingerprint}, and the last batch is of {query}",
                instead="start the new query",
            )

    def interrupt_deliveries(self) -> None:
        """Let deliveries from this process that wait for a service end soon."""
        for sink in self.adapters.values():
            sink.interrupt()


@dataclass(frozen=True)
class Share:
    """The input of one intake task: files and ranges, each with the number of its source, and blocks of feedback."""

    files: tuple[tuple[int, ListedFile], ...] = ()
    feedback: tuple[str, ...] = ()
    ranges: tuple[tuple[int, ReadRange], ...] = ()


@dataclass(frozen=True, eq=False)
class Batch:
    """One trip of a batch, as its tasks see it: its plan and the last commit, and what follows from them.

    Later trips have no input, and the interim record of the trip before instead of the last commit.
    """

    line: Line
    number: int
    epoch: int
    plan: Plan
    #: The commit with the state before the trip, and the feedback of loops.
    last: Commit | None
    #: The most intake tasks.
    tasks: int
    trip: int = 0

    @classmethod
    def planned(cls, job: Job, number: int, epoch: int, tasks: int, trip: int = 0) -> Batch:
        """A batch whose plan is in the store."""
        log = Log(job.storage)
        if trip:
            return cls(job.line, number, epoch, Plan(), log.after_trip(number, epoch, trip - 1), tasks, trip)
        plan, last = log.planned(number), log.read(number - 1) if number else None
        if plan is None:
            raise StoreError(f"the plan of batch {number} is missing", given=job.storage.place)
        return cls(job.line, number, epoch, Plan.from_json(plan), last, tasks)

    def after(self, interim: Commit) -> Batch:
        """The next trip, from the interim record of this one."""
        return replace(self, plan=Plan(), last=interim, trip=self.trip + 1)

    @cached_property
    def start(self) -> dict[str, Progress]:
        """The progress of every source before the trip."""
        return reached(self.line, self.last)

    @cached_property
    def feedback(self) -> tuple[str, ...]:
        """The blocks of the feedback of loops."""
        return tuple(self.last.record["feedback"]) if self.last is not None else ()

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """The inputs of the intake tasks."""
        numbers = {source.fingerprint: i for i, source in enumerate(self.line.sources)}
        files = [(numbers[source], file) for source, listed in self.plan.files.items() for file in listed]
        ranges = [(numbers[source], part) for source, parts in self.plan.ranges.items() for part in parts]
        return _shares(files, ranges, self.feedback, self.tasks)

    def partition(self, source: str, name: str) -> ChannelReport:
        """The latest report of a partition before the batch; an empty one if there is none."""
        channels = self.last.record.get("channels", {}) if self.last is not None else {}
        high, cti = channels.get(source, {}).get(name, (NEG_INFINITY, NEG_INFINITY))
        return ChannelReport(high, cti, channel=name)

    def token(self, level: int, bucket: int) -> str | None:
        """The token of the state that a bucket of a stage has saved."""
        saved = self.last.record["stages"].get(f"{level}/{bucket}") if self.last is not None else None
        return None if saved is None else str(saved["token"])


def reached(line: Line, last: Commit | None) -> dict[str, Progress]:
    """The progress of every source after a commit."""
    saved = last.record["sources"] if last is not None else {}
    keys = last.record.get("keys", {}) if last is not None else {}  # an earlier Headrace had none
    progress = {source.fingerprint: Progress(*saved.get(source.fingerprint, ())) for source in line.sources}
    return {name: replace(p, keys=tuple(map(tuple, keys.get(name, ())))) for name, p in progress.items()}


def _shares(
    files: Sequence[tuple[int, ListedFile]],
    ranges: Sequence[tuple[int, ReadRange]],
    feedback: tuple[str, ...],
    tasks: int,
) -> tuple[Share, ...]:
    """Divide the files and ranges of a batch among tasks; at least one task."""
    count = max(1, min(tasks, max(len(files), len(ranges)) + bool(feedback)))
    of_files = _divided([file.size for _, file in files], count)
    of_ranges = _divided([part.end - part.start for _, part in ranges], count)
    return tuple(
        Share(
            tuple(files[place] for place in of_files[task]),
            feedback if task == count - 1 else (),
            tuple(ranges[place] for place in of_ranges[task]),
        )
        for task in range(count)
    )


def _divided(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """Divide things of these sizes, the largest first, each to the task with the least; their order is kept."""
    loads, chosen = [0] * tasks, [list[int]() for _ in range(tasks)]
    for place in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        least = loads.index(min(loads))
        loads[least] += sizes[place] + 1
        chosen[least].append(place)
    return [sorted(places) for places in chosen]


class Executor:
    """Runs the tasks of a trip; the other methods have defaults for this process."""

    #: How many intake tasks it can run at once, besides one for each bucket.
    threads: int = 1

    def run(self, batch: Batch) -> Sequence[Any]:
        """The messages of the tasks of the last level."""
        raise NotImplementedError

    def deliver(self, commit: Commit) -> None:
        """Deliver the outputs of a commit to the sinks that are services."""
        raise NotImplementedError

    def ping(self) -> None:
        """Raise if tasks can no longer run."""

    def is_gone(self, error: BaseException) -> bool:  # noqa: ARG002 - for executors that may be lost
        """Whether an error shows that the executor no longer answers."""
        return False

    def may_pass(self, error: BaseException) -> bool:  # noqa: ARG002 - for executors on other machines
        """Whether a batch with this failure may succeed when it runs again."""
        return False

    def explained(self, error: BaseException, what: str, instead: str = "") -> HeadraceError:
        """A failure to show to users: a `HeadraceError` as it is, otherwise a `HostError` that says what failed."""
        if isinstance(error, HeadraceError):
            return error
        text = (str(error).strip() or "no text").splitlines()[0]
        failure = HostError(f"{what} failed: {type(error).__name__}: {text}", instead=instead)
        failure.__cause__ = error
        return failure

    def interrupt(self) -> None:
        """Interrupt the running batch, if possible."""

    def close(self) -> None:
        """Release its resources."""
