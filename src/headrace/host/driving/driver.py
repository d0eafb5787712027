"""One batch of a query: plan it, run its trips, commit it, publish it.

`headrace.store` describes the protocol. A driver may die between any two calls, and a new one continues; two drivers
may run at once, and one of them stops.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import SinkError
from headrace.failpoints import reach
from headrace.host.driving.pace import Pace
from headrace.host.driving.past import Flows, phases_of
from headrace.host.driving.plan import Batch, Executor, Job, Plan, reached
from headrace.host.driving.positions import FilePositions
from headrace.host.driving.publish import Publisher
from headrace.host.driving.ranges import RangePositions
from headrace.host.driving.recording import recorded_blocks, recording_of
from headrace.host.driving.trips import BatchResult, MixedReadings, checked, reports_of, states_by_operator
from headrace.host.losses import examples_of
from headrace.host.report import state_sizes
from headrace.io.ingress import COUNTERS, ChannelReport, count_orphans, resolve
from headrace.io.json_fields import check_first_files
from headrace.io.lateness import lateness_so_far
from headrace.io.origins import AdapterRead, Files
from headrace.plan.nodes import Source
from headrace.plan.policies import Heartbeat
from headrace.progress import Progress
from headrace.stages.egress import departures
from headrace.stages.message import Message
from headrace.stages.pickled import check_owner
from headrace.stages.stage import count_failed, segment_names
from headrace.store.blocks import BlockReader, Ledger, WrittenBlocks, write_blocks
from headrace.store.cleanup import Cleaner
from headrace.store.log import Commit, Log
from headrace.time import INFINITY
from headrace.trace import stored_segments

__all__ = ["Driver", "FinishedBatch"]

Clock = Callable[[], int]
#: Whether to run the tasks of a batch again, after a number of attempts and the last failure.
Again = Callable[[int, Exception], bool]
_MOST_READINGS = 5
_log = logging.getLogger("headrace")
#: How often positions are acknowledged, in seconds.
_ACKNOWLEDGED_EVERY = 1.0
#: After so many seconds a batch is committed although changes go round a loop, which the next batch continues. This
#: bounds how long new input waits, and how much is repeated after a crash.
TRIP_SECONDS = 1.0
#: Names of files that were read are in the commit itself up to so many bytes, else in a file that commits share.
_INLINE_NAMES = 4096


@dataclass(frozen=True, eq=False)
class FinishedBatch:
    """A committed and published batch."""

    commit: Commit
    statistics: list[dict[str, Any]]
    trips: int
    #: Seconds by `PHASES`.
    phases: Mapping[str, float]
    flows: Flows


@dataclass(eq=False)
class Driver:
    """Drives one query from one process."""

    job: Job
    executor: Executor
    publisher: Publisher
    clock: Clock
    files_per_batch: int | None = None
    #: The most intake tasks of a batch.
    tasks: int = 2
    #: Whether the latest plan is from a look at the sources, and not that of an earlier driver.
    looked: bool = False
    #: Whether the input ends when all existing files have been read.
    ending: bool = False
    #: A batch is committed after so many trips or seconds at the latest, or after the running trip when stopping.
    max_trips: int | None = None
    trip_seconds: float = TRIP_SECONDS
    stopping: bool = False
    #: Whether the checkpoint is removed when the query ends, which then cannot continue.
    temporary: bool = False
    last: Commit | None = None
    positions: dict[str, FilePositions | RangePositions] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.row_pace, self.byte_pace = Pace.of_rows(), Pace.of_bytes()
        self.log = Log(self.job.storage)
        self.cleaner = Cleaner(self.log)
        self._stored: set[str] = set()
        #: The batch without a plan at the last look. If an older driver still writes one, `Log.plan` finds it.
        self._unplanned = -1
        self._acknowledged = 0.0
        #: The changes and removals of each output in the latest batch.
        self._left: dict[str, tuple[int, int]] = {}
        #: When the latest batch began, and when each of its phases ended.
        self.moments: list[float] = []
        #: How far partitions are read by committed batches, and by those whose outputs are delivered.
        self._committed_offsets: dict[tuple[str, str], int] = {}
        self.delivered: dict[tuple[str, str], int] = {}

    # --- starting ----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Claim the query, check the store, load the last commit, and publish its outputs."""
        self.log.claim()
        with self.log.owned():
            self._load(self.log.last())
            while not self._resumed():
                self._load(self.log.last())

    def _resumed(self) -> bool:
        """Publish outputs that sinks lack; False if an older driver has committed and published a batch meanwhile."""
        try:
            self.publisher.resume(self.last, self.job.owner)
        except SinkError:
            if self.log.batches()[-1:] <= [self.number - 1]:
                raise
            return False
        return True

    def _load(self, commit: Commit | None) -> None:
        """Load the positions of a commit."""
        if commit is not None:
            self.job.check_same(commit)
        self.last = commit
        for fingerprint, buckets in (commit.record["state"] if commit is not None else {}).items():
            for operator in buckets.values():
                check_owner(self.job.line, fingerprint, operator["traces"])
        reader = BlockReader(self.job.storage, commit) if commit is not None else None
        for source in self.job.line.sources:
            if isinstance(source.origin, Files | AdapterRead):
                positions = self._positions_of(source)
                saved = commit.record["positions"].get(source.fingerprint) if commit is not None else None
                if saved is not None and reader is not None:  # a source may be new since an upgrade
                    segments = stored_segments(saved["traces"].values(), reader.block)
                    positions.restore(saved, segments)
                    self._stored |= set(segments)
                self.positions[source.fingerprint] = positions

    def _positions_of(self, source: Source) -> FilePositions | RangePositions:
        if isinstance(source.origin, AdapterRead):
            return RangePositions(source, lambda: self.stopping, temporary=self.temporary)
        return FilePositions(source, self.files_per_batch)

    @property
    def number(self) -> int:
        """The number of the next batch."""
        return self.last.batch + 1 if self.last is not None else 0

    @property
    def progress(self) -> dict[str, Progress]:
        """The progress of every source."""
        return reached(self.job.line, self.last)

    @property
    def circulating(self) -> bool:
        """Whether changes or progress go round a loop."""
        return self.last is not None and bool(self.last.record["feedback"])

    @property
    def busy(self) -> bool:
        """Whether a loop has work; progress that only follows from a clock does not count."""
        ended = all(progress.cti == INFINITY for progress in self.progress.values())
        if self.last is not None and self._ticks and not ended:
            return bool(self.last.record["circulating"])
        return self.circulating

    # --- one batch ---------------------------------------------------------------------------------------------------

    def plan(self, *, ticks: bool = True, thorough: bool = True) -> Plan | None:
        """The plan of the next batch, if there is work. `ticks`: a clock is enough; `thorough`: no input is missed."""
        if self._unplanned != self.number:  # an idle driver looks once: calls to a remote store are expensive
            earlier = self.log.planned(self.number)
            self.looked = earlier is None
            if earlier is not None:
                return Plan.from_json(earlier)
            self._unplanned = self.number
        found = self._found(self.clock(), thorough=thorough or self.ending)
        ended = all(progress.cti == INFINITY for progress in self.progress.values())
        ends = self.ending and not found.reads and not ended
        clock = self.clock() if self._ticks else None
        moves = ticks and clock is not None and self._moves(clock)
        if found.reads or ends or self.circulating or moves or self._newly_idle(found) or self._chooses:
            return replace(found, clock=clock, ends=ends)
        return None

    def _found(self, now: int, *, thorough: bool) -> Plan:
        """What there is to read."""
        files, ranges, silent, begins, reached = {}, {}, {}, {}, self.progress
        for source, positions in self.positions.items():
            if isinstance(positions, FilePositions):
                files[source] = tuple(positions.pending(self.byte_pace.bound, thorough=thorough))
            elif reached[source].cti < INFINITY and not self.ending:  # else later rows would all be late
                ranges[source] = tuple(positions.pending(self._rows_per_source, now))
                silent[source] = positions.silent(ranges[source], now)
                begins[source] = positions.begins()
        return Plan(
            {source: listed for source, listed in files.items() if listed},
            ranges={source: parts for source, parts in ranges.items() if parts},
            silent={source: parts for source, parts in silent.items() if parts},
            begins={source: starts for source, starts in begins.items() if starts},
        )

    @property
    def _rows_per_source(self) -> int:
        sources = sum(isinstance(positions, RangePositions) for positions in self.positions.values())
        return max(1, self.row_pace.bound // max(1, sources))

    @property
    def ends(self) -> dict[tuple[str, str], int] | None:
        """Where all partitions ended at the latest look; None if a source has files, which have no such ends."""
        if not all(isinstance(positions, RangePositions) for positions in self.positions.values()):
            return None
        return self._offsets(lambda positions: positions.ends)

    def _offsets(self, of: Callable[[RangePositions], Mapping[str, int]]) -> dict[tuple[str, str], int]:
        ranged = {s: of(p) for s, p in self.positions.items() if isinstance(p, RangePositions)}
        return {(source, name): offset for source, names in ranged.items() for name, offset in names.items()}

    @property
    def _chooses(self) -> bool:
        """Whether the first commit is needed to record where partitions begin, before they have rows."""
        known = self.last.record["positions"] if self.last is not None else {}
        return any(
            isinstance(positions, RangePositions) and positions.chosen and source not in known
            for source, positions in self.positions.items()
        )

    def _newly_idle(self, plan: Plan) -> bool:
        """Whether a partition has become idle since the last batch, which lets its source make a new promise."""
        before = self.last.record["plan"].get("silent", {}) if self.last is not None else {}
        known = {source: {name for name, idle in parts if idle} for source, parts in before.items()}
        now = {source: {name for name, idle in parts if idle} for source, parts in plan.silent.items()}
        return any(names - known.get(source, set()) for source, names in now.items())

    @property
    def _ticks(self) -> bool:
        return any(isinstance(source.policy, Heartbeat) for source in self.job.line.sources)

    def _moves(self, clock: int) -> bool:
        """Whether the time of the clock lets a source make a new promise."""
        reached = self.progress
        return any(
            source.policy.cti(clock) > reached[source.fingerprint].cti
            for source in self.job.line.sources
            if isinstance(source.policy, Heartbeat)
        )

    def run(self, plan: Plan, again: Again = lambda *_: False) -> FinishedBatch:
        """Run, commit and publish a batch.

        `again` decides whether failed tasks run again. Nothing else is repeated, because the commit may exist.
        """
        with self.log.owned():
            return self._run(plan, again)

    def _run(self, plan: Plan, again: Again) -> FinishedBatch:
        self.moments, self._unplanned = [time.monotonic()], -1
        check_first_files(self.job.line.sources, plan.files, self.last.record["files"] if self.last is not None else {})
        plan = Plan.from_json(self.log.plan(self.number, plan.to_json()))
        for source, begins in plan.begins.items():
            positions = self.positions[source]
            assert isinstance(positions, RangePositions)
            positions.adopt(begins, self.clock())
        self.moments.append(time.monotonic())
        batch = Batch(self.job.line, self.number, self.log.epoch, plan, self.last, self.tasks)
        result = BatchResult(batch, batch, self._messages(batch, again))
        while result.feedback and not self._bounded(len(result.trips), time.monotonic() - self.moments[0]):
            batch = batch.after(self._interim(result))
            result.add(batch, self._messages(batch, again))
        self.moments.append(time.monotonic())
        reach("ran", self.number)
        commit = self._committed(result)
        self.moments.append(time.monotonic())
        self.publisher.publish(commit)
        reach("published", commit.batch)
        self.moments.append(time.monotonic())
        self._acknowledge()
        self._note_pace(plan, result, time.monotonic() - self.moments[0])
        if commit.epoch == self.log.epoch and self.cleaner.is_due(commit):
            self.cleaner.clean_up(commit)
        self.moments.append(time.monotonic())
        flows = Flows.of(self.job.line, result.counted, self._left)
        return FinishedBatch(commit, result.statistics, len(result.trips), phases_of(self.moments), flows)

    def settle(self) -> None:
        """Wait until the outputs of the last batch are delivered."""
        with self.log.owned():
            self.publisher.settle()
        self.delivered = self._committed_offsets

    def close(self) -> None:
        """Release what adapters hold in this process."""
        self.publisher.close()
        for positions in self.positions.values():
            if isinstance(positions, RangePositions):
                positions.close()

    def _acknowledge(self) -> None:
        now = time.monotonic()
        if now - self._acknowledged >= _ACKNOWLEDGED_EVERY:
            self._acknowledged = now
            channels = self.last.record["channels"] if self.last is not None else {}
            for source, positions in self.positions.items():
                if isinstance(positions, RangePositions):
                    positions.acknowledge()
                    positions.report_holding(channels.get(source, {}))

    def _note_pace(self, plan: Plan, result: BatchResult, seconds: float) -> None:
        """Adapt the sizes of batches to the time that this one took."""
        read = [file.size for listed in plan.files.values() for file in listed]
        files = sum(self.positions[source].waiting for source in plan.files)
        self.byte_pace.note(sum(read), seconds, files * sum(read) // max(1, len(read)))
        rows = [part["counts"]["rows"] for report in result.reports for s in plan.ranges for part in report.get(s, [])]
        self.row_pace.note(sum(rows), seconds, sum(self.positions[source].waiting for source in plan.ranges))

    def _bounded(self, trips: int, seconds: float) -> bool:
        """Whether a batch is committed although loops have feedback."""
        reached = self.max_trips is not None and trips >= self.max_trips
        return reached or self.stopping or seconds >= self.trip_seconds

    def _messages(self, batch: Batch, again: Again) -> Sequence[Message]:
        attempt = 0
        while True:
            attempt += 1
            try:
                return checked(self.executor.run(batch))
            except MixedReadings as error:
                if attempt == _MOST_READINGS:
                    raise
                _log.warning("%s; it is run again", error.message)
            except Exception as error:
                if not again(attempt, error):
                    raise

    # --- the commit --------------------------------------------------------------------------------------------------

    def _committed(self, result: BatchResult) -> Commit:
        for source, files in result.first.plan.files.items():
            positions = self.positions[source]
            assert isinstance(positions, FilePositions)
            positions.take(files, self.number)
        for report in result.reports:
            for source, ends in report.get("ends", {}).items():
                positions = self.positions[source]
                assert isinstance(positions, RangePositions)
                positions.take(ends)
        ledger = Ledger.of(result.trip.last)
        record = self._record(result, ledger)
        ledger.unload(self.job.storage, self.number, self.log.epoch)
        commit = Commit(self.number, self.log.epoch, record, ledger.files, ledger.blocks, ledger.inline)
        self.publisher.settle()  # at a start, only the last batch may not have been delivered
        self.delivered = self._committed_offsets
        if not self.log.commit(commit):
            # An older driver checked its epoch before this one began, and has committed since: its batch had the same
            # plan, so its commit counts, and this attempt does not.
            commit = self.log.read(self.number)
            self._load(commit)
        self.last = commit
        self._committed_offsets = self._offsets(RangePositions.commit)
        return commit

    def _record(self, result: BatchResult, ledger: Ledger) -> dict[str, Any]:
        """The record of the commit; the ledger gets the blocks that it names."""
        before = self.last.record if self.last is not None else {}
        reports = result.reports
        state = self._state(result, ledger)
        left = departures(self.job.line, result.trips, {source: Progress(*p) for source, p in state["sources"].items()})
        self._left = {departure.output.name: departure.size for departure in left}
        outputs, rows, written = self.publisher.record(self.number, left, before.get("outputs", ()))
        record = {
            "plan": result.first.plan.to_json(),
            "time": time.time(),
            "buckets": self.job.buckets,
            "query": self.job.line.fingerprint,
            "outputs": outputs,
            "examples": examples_of(self.job.line.sources, reports) | before.get("examples", {}),
            "counts": self._counted(before.get("counts", {}), reports, result.counted),
            "lateness": lateness_so_far(before.get("lateness", {}), self.job.line.sources, reports),
            "files": _add_counts(before.get("files", {}), [report.get("files", {}) for report in reports]),
            "positions": {source: positions.saved() for source, positions in self.positions.items()},
            "operators": state_sizes(result.statistics),
            "channels": self._channels(before.get("channels", {}), reports),
            **recording_of(result, self.cleaner, ledger),
            **state,
        }
        self._save_positions(ledger)
        ledger.add(write_blocks(self.job.storage, self.number, self.log.epoch, rows))
        for blocks in written:
            ledger.add(blocks)
        staged = [name for blocks in written for name in [*blocks.inline, *blocks.names]]
        ledger.keep([*_segments(record), *record["feedback"], *rows, *staged, *recorded_blocks(record)])
        return record

    def _state(self, result: BatchResult, ledger: Ledger) -> dict[str, Any]:
        """The state after the latest trip, for a commit or for the next trip."""
        sources = self._sources(result.trip, reports_of(result.messages))
        for part in [*result.states, *result.feedback]:
            ledger.add(WrittenBlocks.from_json(part["written"]))
        return {
            "sources": {source: [p.cti, p.high] for source, p in sources.items()},
            "keys": {source: list(p.keys) for source, p in sources.items() if p.keys},
            "state": states_by_operator(result.states),
            "stages": {
                f"{s['level']}/{s['bucket']}": {"token": s["token"], "trips": s["trips"]} for s in result.states
            },
            "feedback": [name for part in result.feedback for name in part["blocks"]],
            "circulating": any(part["busy"] for part in result.feedback),
        }

    def _interim(self, result: BatchResult) -> Commit:
        """Write the interim record of a trip, for the next trip."""
        ledger = Ledger.of(result.trip.last)
        kept = self.last.record["positions"] if self.last is not None else {}
        record = {**self._state(result, ledger), "positions": kept}
        ledger.keep([*_segments(record), *record["feedback"]])
        ledger.unload(self.job.storage, self.number, self.log.epoch)
        interim = Commit(self.number, self.log.epoch, record, ledger.files, ledger.blocks, ledger.inline)
        self.log.note_trip(interim, result.trip.trip)
        return interim

    def _save_positions(self, ledger: Ledger) -> None:
        segments = {s.name: s for positions in self.positions.values() for s in positions.seen.segments}
        new = {name: segment.save() for name, segment in segments.items() if name not in self._stored}
        ledger.add(write_blocks(self.job.storage, self.number, self.log.epoch, new, inline=_INLINE_NAMES))
        self._stored = set(segments)

    def _sources(self, batch: Batch, reports: Sequence[Mapping[str, Any]]) -> dict[str, Progress]:
        """The progress of every source after a trip."""
        reached = {}
        for source in self.job.line.sources:
            channels = [ChannelReport.from_json(r) for report in reports for r in report.get(source.fingerprint, [])]
            reached[source.fingerprint] = resolve(source.policy, batch.start[source.fingerprint], channels)
        return reached

    def _channels(
        self, before: Mapping[str, Mapping[str, Any]], reports: Sequence[Mapping[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        """The highest time and the promise of every partition, by source."""
        found = {source: dict(channels) for source, channels in before.items()}
        for source in self.job.line.sources:
            for part in (part for report in reports for part in report.get(source.fingerprint, [])):
                if part.get("channel") is not None:
                    found.setdefault(source.fingerprint, {})[part["channel"]] = [part["high"], part["cti"]]
        return found

    def _news(self, source: str) -> dict[str, int]:
        """The counts of old, changed and missing files of a source since the last commit."""
        if source not in self.positions:
            return {}
        news, self.positions[source].news = self.positions[source].news, dict.fromkeys(self.positions[source].news, 0)
        return news

    def _counted(
        self,
        before: Mapping[str, Mapping[str, int]],
        reports: Sequence[Mapping[str, Any]],
        statistics: Sequence[dict[str, Any]],
    ) -> dict[str, dict[str, int]]:
        """Totals per source and failing module, from the batch before and the reports of tasks."""
        totals: dict[str, dict[str, int]] = {}
        for source in self.job.line.sources:  # several sources may have the same origin
            name = str(source.origin)
            total = totals.setdefault(name, dict.fromkeys(COUNTERS, 0) | dict(before.get(name, {})))
            for part in (part for report in reports for part in report.get(source.fingerprint, [])):
                for counter, value in part["counts"].items():
                    total[counter] += value
            count_orphans(total, source.fingerprint, statistics)
            for counter, value in self._news(source.fingerprint).items():
                total[counter] += value
        totals |= {name: dict(total) for name, total in before.items() if "failed" in total}
        count_failed(totals, statistics)
        return totals


def _segments(record: Mapping[str, Any]) -> list[str]:
    """The segments that a commit's record names."""
    operators = [operator for buckets in record["state"].values() for operator in buckets.values()]
    return segment_names([*operators, *record["positions"].values()])


def _add_counts(before: Mapping[str, int], more: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The number of files that each source has read."""
    total = Counter(before)
    for part in more:
        total.update(part)
    return dict(total)
