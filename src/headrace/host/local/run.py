"""Runs a line of stages in process.

Each round takes one batch of every source, runs the intake, then every stage in every bucket, and passes messages as
objects. When all sources are exhausted, one more round reports the end of the input: the CTI becomes infinite.

A run to the end of all sources uses several cores: files are decoded in threads, the intake of a batch runs while the
stages process the one before it, and the buckets of a stage run in parallel. Judging the rows of a batch needs only the
promises of earlier batches, which are known as soon as those are judged. If the query calls users' Python code, only
the decoding is in threads: such code may depend on the thread that calls it, and holds Python's global lock anyway.
If the stages are slower than reading, rows wait; how many is bounded by their bytes.

Tests drive a `Runner` themselves, batch by batch: they may end one source before the others, and `save` and `restored`
continue a run as if in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from threading import Event
from typing import Any, Self

import pyarrow as pa

from headrace.changes import Changes
from headrace.errors import PlanError
from headrace.host.memory import keep_freed_memory
from headrace.host.received import received
from headrace.host.result import FinishedRun, Result
from headrace.host.threads import Room, ahead, available_cores, in_order
from headrace.io.decoded import DecodedBlock
from headrace.io.files import ListedFile
from headrace.io.ingress import COUNTERS, ChannelReport, count_orphans, resolve
from headrace.io.json_fields import check_fields
from headrace.io.origins import Events, Files, FrameRead, total_bytes
from headrace.io.reading import in_memory, read_counted
from headrace.io.shedding import Shedder
from headrace.meter import Work, current
from headrace.optimizer import RULES, Rule
from headrace.pieces import joined
from headrace.plan.functions import calls_python
from headrace.plan.happening import keeps_order
from headrace.plan.nodes import Combine, Output, Recurse, Source, walk
from headrace.plan.policies import Heartbeat
from headrace.progress import Progress
from headrace.stages.cut import Line, line_of
from headrace.stages.egress import departures, together
from headrace.stages.intake import Intake, circulated
from headrace.stages.measures import Tap
from headrace.stages.message import FEEDBACK, REPORTS, STATISTICS, Message, pack, unpack
from headrace.stages.stage import StageRun, count_failed
from headrace.time import INFINITY
from headrace.trace import stored_segments

__all__ = ["Judged", "Reports", "Runner", "SavedRun", "TakenBatch", "batches_of", "run_local"]

#: How many batches a step may be ahead of the next one; and how many bytes of rows may wait, if that is fewer.
_AHEAD = 2
_WAITING = 256 << 20
#: Files with more bytes than this are worth several buckets.
_LARGE = 32 << 20

Clock = Callable[[], int]
Block = tuple[DecodedBlock, str | None]  # with the file it comes from
Reports = list[tuple[Source, list[ChannelReport]]]
Judged = Sequence[tuple[Changes, Changes]]  # accepted and diverted events


def run_local(
    outputs: Sequence[Output],
    *,
    buckets: int | None = None,
    batch_rows: int | None = None,
    clock: Clock | None = None,
    rules: Sequence[Rule] = RULES,
    finish: bool = True,
    threads: int | None = None,
) -> FinishedRun:
    """Run to the end of all sources.

    `batch_rows` bounds a batch's rows; `finish=False` leaves the streams open. By default there are as many `threads`
    as cores, and one bucket, or as many as threads if the files are large and their rows reach the stages.
    """
    keep_freed_memory()
    with received(outputs) as bounded:
        threads = threads or available_cores()
        buckets = buckets or _useful_buckets(bounded, rules, threads)
        line = line_of(bounded, buckets, rules)
        for source in line.sources:
            check_fields(source)
        return _run_to_the_end(line, buckets, clock, batch_rows, threads, finish=finish)


def _useful_buckets(outputs: Sequence[Output], rules: Sequence[Rule], threads: int) -> int:
    """As many buckets as threads if that pays: where stages get the rows of large files, and not partial results.

    Loops and users' Python code have one bucket.
    """
    nodes = list(walk(*outputs))
    if threads == 1 or any(isinstance(node, Recurse) for node in nodes) or calls_python(*outputs):
        return 1
    if total_bytes(node for node in nodes if isinstance(node, Source)) <= _LARGE:
        return 1
    edges = line_of(outputs, threads, rules).edges
    return threads if any(edge.start == 0 and not isinstance(edge.producer, Combine) for edge in edges) else 1


def _run_to_the_end(
    line: Line, buckets: int, clock: Clock | None, batch_rows: int | None, threads: int, *, finish: bool
) -> FinishedRun:
    parallel = threads > 1 and not calls_python(*line.outputs)
    stopped, work = Event(), current()
    room = Room(_WAITING, _AHEAD)
    readers = _Readers(threads, room, stopped) if threads > 1 else None
    if work.shown:
        work.total_bytes = total_bytes(line.sources)
    with ExitStack() as stack:
        workers = ThreadPoolExecutor(threads, "headrace-work") if parallel else None
        if workers is not None:
            stack.callback(workers.shutdown)

        def stop() -> None:
            """Let no thread begin another block."""
            stopped.set()
            if workers is not None:
                workers.shutdown(wait=False, cancel_futures=True)

        runner = Runner(line, buckets, clock, workers=workers, stopped=stopped)
        batches: Iterable[TakenBatch] = _taken(runner, batch_rows, readers, room, work)
        if parallel and clock is None:  # a clock is called by the caller's thread
            batches = stack.enter_context(closing(ahead(batches, partial(room.items, 1), stop)))
        if readers is not None:  # if the run fails, they stop first: others may wait for them
            stack.enter_context(readers)
        stack.callback(stop)  # before any thread is awaited
        for work.batch, taken in enumerate(batches):
            runner.run(taken)
            room.free(taken.size)
            del taken  # its rows are not kept while the next batch is awaited
        if finish:
            runner.end()
    return runner.done


def _taken(
    runner: Runner, batch_rows: int | None, readers: _Readers | None, room: Room, work: Work
) -> Iterator[TakenBatch]:
    """Every batch, judged, in order."""
    feeds = {source.fingerprint: batches_of(source, batch_rows, readers, work) for source in runner.line.sources}
    while feeds:
        round_ = {f: next(feed, None) for f, feed in feeds.items()}
        feeds = {f: feed for f, feed in feeds.items() if round_[f] is not None}
        if feeds or runner.ticking:
            taken = runner.take({f: blocks for f, blocks in round_.items() if blocks is not None})
            room.fill(taken.size)
            del round_
            yield taken
            del taken


@dataclass(frozen=True)
class TakenBatch:
    """A batch whose rows are judged; reports besides theirs, and the progress of the sources after it."""

    intakes: list[Intake]
    signals: list[Message]
    reports: Reports
    progress: Mapping[str, Progress]
    #: The bytes of the rows.
    size: int


@dataclass(frozen=True, eq=False)
class SavedRun:
    """A run saved after a batch: progress, state as bytes as in a checkpoint, and the results so far."""

    progress: Mapping[str, Progress]
    #: State and segments of every bucket of every stage.
    stages: Sequence[Sequence[tuple[Mapping[str, Any], Mapping[str, pa.Buffer]]]]
    done: FinishedRun
    #: The feedback of loops.
    feedback: Sequence[bytes]


class Runner:
    """A line of stages with its results so far; the caller passes the batches."""

    def __init__(
        self,
        line: Line,
        buckets: int,
        clock: Clock | None,
        *,
        drain: bool = True,
        workers: ThreadPoolExecutor | None = None,
        stopped: Event | None = None,
        tap: Tap | None = None,
        sheds: bool = False,
    ) -> None:
        self.line, self.buckets, self.clock = line, buckets, clock
        #: Whether sources shed rows by their rules: runs over bounded inputs do not (rule 3.7).
        self.sheds = sheds
        #: What sees every step, if that is asked for.
        self.tap = tap
        #: The threads that run the buckets of a stage in parallel.
        self.workers = workers
        #: Set when the run fails or is interrupted.
        self.stopped = stopped or Event()
        #: Whether loops finish before the next batch; and their feedback.
        self.drain = drain
        self.feedback: list[Message] = []
        self.stages = [
            [StageRun(line, level, b, buckets, tap) for b in range(buckets)] for level in range(1, line.depth + 1)
        ]
        #: The progress of the sources, as the stages know it; and as of the rows that are judged, which may be ahead.
        self.progress = {source.fingerprint: Progress() for source in line.sources}
        self._reached, self._reports = dict(self.progress), Reports()
        results = {o.name: Result.of(o, in_order=buckets == 1 and keeps_order(o)) for o in line.outputs}
        self.done = FinishedRun(results, {str(s.origin): dict.fromkeys(COUNTERS, 0) for s in line.sources}, [])

    @property
    def ticking(self) -> bool:
        return self.clock is not None and any(isinstance(s.policy, Heartbeat) for s in self.line.sources)

    def round(self, blocks: Mapping[str, Sequence[Block]], ended: Collection[str] = ()) -> None:
        """Run one batch of every source, by fingerprint; the sources in `ended` end with it."""
        self.run(self.take(blocks, ended))

    def take(self, blocks: Mapping[str, Sequence[Block]], ended: Collection[str] = ()) -> TakenBatch:
        """Judge one batch of every source. It may be ahead of the stages, in another thread."""
        intakes, messages = [], list[Message]()
        for sender, source in enumerate(self.line.sources):
            if source.fingerprint in blocks:
                intakes.append(self._intake(source, blocks[source.fingerprint], sender))
            if self.clock is not None and isinstance(source.policy, Heartbeat):
                messages += self._report(source, ChannelReport(cti=source.policy.cti(self.clock())))
            if source.fingerprint in ended:
                messages += self._report(source, ChannelReport(cti=INFINITY))
        return TakenBatch(intakes, messages, *self._judged(), sum(map(_size, blocks.values())))

    def take_again(
        self, judged: Mapping[str, Judged], reports: Reports, progress: Mapping[str, Progress]
    ) -> TakenBatch:
        """A batch that another run of the plan has judged: accepted and diverted events by source, and its progress."""
        intakes = []
        for sender, source in enumerate(self.line.sources):
            if source.fingerprint in judged:
                intake = Intake(self.line, source, Progress(), self.buckets, sender, tap=self.tap)
                own = [report for of, parts in reports if of == source for report in parts]
                intake.replay(judged[source.fingerprint], own)
                intakes.append(intake)
        self._reached = dict(progress)
        return TakenBatch(intakes, [], reports, progress, 0)

    def run(self, taken: TakenBatch) -> None:
        """Run the stages of a batch."""
        rows = [message for intake in taken.intakes for message in intake.messages()]
        self._adopt(taken.reports, taken.progress)
        self._run_stages([*rows, *taken.signals])
        if self.drain:
            self.rest()

    def end(self) -> None:
        """End the input, and let loops finish."""
        self.end_of_input()
        self.rest()

    def end_of_input(self) -> None:
        """End the input, without waiting for loops."""
        reports = [m for source in self.line.sources for m in self._report(source, ChannelReport(cti=INFINITY))]
        self._adopt(*self._judged())
        self._run_stages(reports)

    def trip(self) -> None:
        """Run a batch without input, only with the feedback of loops."""
        self._run_stages([])

    def rest(self) -> None:
        """Run loops until they finish; their output belongs to the latest batch."""
        batches = [self.done.results[output.name].batches for output in self.line.outputs]
        latest = [output_batches[-1:] for output_batches in batches]
        while self.feedback:
            self._run_stages([], first=False)
            for output_batches, parts in zip(batches, latest, strict=True):
                parts.append(output_batches.pop())
        for output, output_batches, parts in zip(self.line.outputs, batches, latest, strict=True):
            if len(parts) > 1:
                output_batches[-1] = together(output, [changes for changes, _ in parts]), parts[-1][1]

    def save(self) -> SavedRun:
        """The state from which a new runner continues after the last batch; later batches do not change it."""
        stages = [
            [(run.saved(), {name: joined(s.save()) for name, s in run.segments().items()}) for run in stage]
            for stage in self.stages
        ]
        feedback = [bytes(joined(chunk)) for message in self.feedback for _, _, chunk in pack(message)]
        return SavedRun(dict(self.progress), stages, _copied(self.done), feedback)

    @classmethod
    def restored(cls, line: Line, buckets: int, clock: Clock | None, saved: SavedRun, *, drain: bool = True) -> Runner:
        """A new runner with the saved state."""
        runner = cls(line, buckets, clock, drain=drain)
        runner.progress, runner._reached = dict(saved.progress), dict(saved.progress)
        runner.done = _copied(saved.done)
        runner.feedback = [unpack(0, FEEDBACK, chunk) for chunk in saved.feedback]
        for stage, stored in zip(runner.stages, saved.stages, strict=True):
            for run, (state, segments) in zip(stage, stored, strict=True):
                traces = [trace for operator in state["operators"].values() for trace in operator["traces"].values()]
                run.restore(state, runner.progress, stored_segments(traces, segments.__getitem__))
        return runner

    def _intake(self, source: Source, blocks: Sequence[Block], sender: int) -> Intake:
        now = self.clock() if self.clock is not None else None
        start = self._reached[source.fingerprint]
        intake = Intake(self.line, source, start, self.buckets, sender, now, self.workers, self.tap)
        if self.sheds and source.shedding is not None:
            intake.begin_part(Shedder(source, source.shedding.above, next((path or "" for _, path in blocks), "")))
        for block, path in blocks:
            if self.stopped.is_set():
                raise CancelledError
            intake.read(block, path)
        self._note(source, intake.end())
        return intake

    def _report(self, source: Source, report: ChannelReport) -> list[Message]:
        self._note(source, [report])
        return [Message(b, REPORTS, extra={source.fingerprint: [report.to_json()]}) for b in range(self.buckets)]

    def _note(self, source: Source, reports: list[ChannelReport]) -> None:
        self._reached[source.fingerprint] = resolve(source.policy, self._reached[source.fingerprint], reports)
        self._reports.append((source, reports))

    def _judged(self) -> tuple[Reports, dict[str, Progress]]:
        """The reports since the last call, and the progress of the sources after them."""
        reports, self._reports = self._reports, []
        return reports, dict(self._reached)

    def _adopt(self, reports: Reports, progress: Mapping[str, Progress]) -> None:
        """Count the reports of a batch, and let the stages reach its progress."""
        self.progress = dict(progress)
        for source, of_source in reports:
            counts = self.done.counts[str(source.origin)]
            for report in of_source:
                for name, count in report.counts.items():
                    counts[name] += count
                if report.example is not None:
                    self.done.examples.setdefault(str(source.origin), report.example)

    def _run_stages(self, messages: list[Message], *, first: bool = True) -> None:
        for message in self.feedback:
            messages = [*messages, *circulated(self.line, message, self.buckets, message.extra["bucket"])]
        for stage in self.stages:
            arrived = [[m for m in messages if m.bucket == run.bucket] for run in stage]
            each = map if self.workers is None or self.buckets == 1 else self.workers.map
            messages = [m for sent in each(partial(StageRun.step, first=first), stage, arrived) for m in sent]
        self.feedback = [m for m in messages if m.edge == FEEDBACK]
        statistics = [m.extra for m in messages if m.edge == STATISTICS]
        self.done.statistics.append(statistics)
        count_failed(self.done.counts, statistics)
        for source in self.line.sources:
            count_orphans(self.done.counts[str(source.origin)], source.fingerprint, statistics)
        for departure in departures(self.line, [messages], self.progress):
            self.done.results[departure.output.name].batches.append((departure.changes(), departure.progress))


def _copied(done: FinishedRun) -> FinishedRun:
    results = {name: replace(result, batches=list(result.batches)) for name, result in done.results.items()}
    counts = {source: dict(counts) for source, counts in done.counts.items()}
    return FinishedRun(results, counts, list(done.statistics), dict(done.examples))


def batches_of(
    source: Source, batch_rows: int | None = None, readers: _Readers | None = None, work: Work | None = None
) -> Iterator[Sequence[Block]]:
    """The batches of a source, in order; `readers` decode the next files meanwhile; what is read counts in `work`."""
    work = work or Work()
    if isinstance(source.origin, (Events, FrameRead)):
        origin = source.origin
        for table in origin.batches() if isinstance(origin, Events) else [origin.rows(source.columns)]:
            yield from ([(in_memory(part, source), None)] for part in _pieces(table, batch_rows))
    else:
        if not isinstance(source.origin, Files):
            raise PlanError(f"only Spark can read {source.origin}", instead="host='spark', or start(...)")
        files = source.origin.files()
        if batch_rows is None:
            read = partial(_whole, source, work=work)
            yield from map(read, files) if readers is None else readers.in_order(read, files)
            return
        for file in files:
            blocks = read_counted(source, file, work)
            for block in blocks if readers is None else ahead(blocks, lambda: _AHEAD):
                yield from ([(piece, file.path)] for piece in _cut(block, batch_rows))


def _whole(source: Source, file: ListedFile, *, work: Work, stopped: Event | None = None) -> list[Block]:
    """The blocks of a file, up to the one at which the run was stopped."""
    blocks = takewhile(lambda _: stopped is None or not stopped.is_set(), read_counted(source, file, work))
    return [(block, file.path) for block in blocks]


def _size(blocks: Sequence[Block]) -> int:
    return sum(block.table.nbytes for block, _ in blocks)


class _Readers:
    """Threads that decode files, as long as there is room. When a run ends early, they end with their next block."""

    def __init__(self, threads: int, room: Room, stopped: Event) -> None:
        self._threads, self._stopped = ThreadPoolExecutor(threads, "headrace-read"), stopped
        self._room = room

    def in_order(self, read: Callable[..., list[Block]], files: Iterable[ListedFile]) -> Iterator[list[Block]]:
        """The blocks of every file, in the order of the files; some are read ahead."""

        def decode(file: ListedFile) -> list[Block]:
            blocks = read(file, stopped=self._stopped)
            self._room.fill(_size(blocks))
            return blocks

        def handed_over(blocks: list[Block]) -> list[Block]:
            self._room.free(_size(blocks))
            return blocks

        return map(handed_over, in_order(decode, files, self._threads, partial(self._room.items, 0)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)


def _pieces(table: pa.Table, rows: int | None) -> Iterator[pa.Table]:
    size = rows or max(table.num_rows, 1)
    for start in range(0, max(table.num_rows, 1), size):
        yield table.slice(start, size)


def _cut(block: DecodedBlock, rows: int) -> Iterator[DecodedBlock]:
    for start in range(0, max(block.table.num_rows, 1), rows):
        yield block.slice(start, rows)
