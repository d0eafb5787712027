"""The recording of a run: what every operator gave in every batch, its progress, its time and its state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import concat, factorize
from headrace.host.driving.tapped import TappedBatch
from headrace.host.local.run import Judged, Reports, Runner, TakenBatch
from headrace.host.report import operators_of
from headrace.operators.admit import as_changes
from headrace.operators.kernel import Data, Kernel
from headrace.operators.reference.rows import Row, table_of
from headrace.plan.nodes import Diverted, Node, Source
from headrace.plan.policies import Physical
from headrace.progress import Progress
from headrace.segments import Segment
from headrace.stages.cut import Line
from headrace.stages.stage import intake_progress
from headrace.trace import Trace

__all__ = ["Check", "EventFilter", "RecordedBatch", "Recorder", "changes_of", "state_rows", "unbounded"]

#: Raises if a trace is to end, by the rows it has read and the changes it has kept.
Check = Callable[[int, int], None]

#: The saved form of each trace of a kernel, and its segments.
_State = Mapping[str, tuple[Mapping[str, Any], Mapping[str, Segment]]]


@dataclass
class RecordedBatch:
    """What a batch read, and what is known of the operators after it, by fingerprint."""

    #: Events by source, as ingress has judged them, with the resulting reports and progress.
    judged: dict[str, list[tuple[Changes, Changes]]] = field(default_factory=dict)
    reports: Reports = field(default_factory=list)
    sources: Mapping[str, Progress] = field(default_factory=dict)
    #: What operators gave, in the order of their steps.
    changes: dict[str, list[Changes]] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    #: Rows and bytes of state; and the state itself, if it is kept.
    sizes: dict[str, dict[str, Any]] = field(default_factory=dict)
    states: dict[str, _State] = field(default_factory=dict)
    #: How far the batch is: a session may look at one whose rows are being read, or whose operators have not all run.
    reached: Literal["reading", "running", "end"] = "end"


def unbounded(rows: int, changes: int) -> None:
    """Any number is allowed."""


class Recorder:
    """A tap that keeps everything.

    `check` is called as blocks are read and operators give changes, with the rows read and the changes kept so far; it
    raises if the run is to end.
    """

    def __init__(self, line: Line, *, state: bool, check: Check = unbounded) -> None:
        self.line = line
        self.batches: list[RecordedBatch] = []
        self._check, self._rows, self._kept = check, 0, 0
        self._keeps_state = state
        self._now = RecordedBatch()
        self._sides = {node.source.fingerprint: node.fingerprint for node in line.nodes if isinstance(node, Diverted)}

    def checked(self, batches: Iterator[TappedBatch]) -> Iterator[TappedBatch]:
        """The batches, with a check before the first and after each."""
        self._check(self._rows, self._kept)
        for batch in batches:
            yield batch
            self._check(self._rows, self._kept)

    def wait(self, source: Source, seconds: float) -> None:
        self._took(source.fingerprint, seconds)

    def read(self, source: Source, rows: int, judged: Judged, seconds: float) -> None:
        self._took(source.fingerprint, seconds)
        self._rows += rows
        self._check(self._rows, self._kept)
        self._now.judged.setdefault(source.fingerprint, []).extend(judged)
        physical = isinstance(source.lifetime, Physical)
        for accepted, diverted in judged:
            self._keep(source.fingerprint, as_changes(accepted) if physical and len(accepted) else accepted)
            if source.fingerprint in self._sides:
                self._keep(self._sides[source.fingerprint], diverted)

    def step(self, node: Node, rows: int, output: Data, progress: Progress | None, seconds: float) -> None:  # noqa: ARG002
        self._took(node.fingerprint, seconds)
        if isinstance(output, Changes):
            self._keep(node.fingerprint, output)
        if progress is not None:
            self._now.progress[node.fingerprint] = progress

    def end_batch(self, runner: Runner, taken: TakenBatch | None = None, *, ran: Collection[str] | None = None) -> None:
        """End a batch; without `taken`, the end of the input. With `ran`, keep only the changes of these operators."""
        now, self._now = self._now, RecordedBatch()
        if ran is not None:
            now.changes = {
                key: parts for key, parts in now.changes.items() if key in ran or key in self._sides.values()
            }
        now.reports = taken.reports if taken is not None else []
        now.sources = dict(runner.progress)
        now.progress |= intake_progress(self.line, runner.progress)
        now.sizes = operators_of(runner.done.statistics[-1]) if runner.done.statistics else {}
        if self._keeps_state:
            now.states = {fingerprint: _state(kernel.traces) for fingerprint, kernel in _kernels_with_state(runner)}
        self.batches.append(now)

    def so_far(self, runner: Runner, taken: TakenBatch | None) -> RecordedBatch:
        """The batch that is running; `taken` is None while its rows are being read."""
        now = replace(self._now, judged={source: list(parts) for source, parts in self._now.judged.items()})
        now.changes = {key: list(parts) for key, parts in self._now.changes.items()}
        now.seconds = dict(self._now.seconds)
        known = self.batches[-1].progress if self.batches else {}
        intake = intake_progress(self.line, taken.progress) if taken is not None else {}
        now.progress = {**known, **intake, **self._now.progress}
        now.reports, now.reached = (taken.reports, "running") if taken is not None else ([], "reading")
        now.sources = dict(taken.progress if taken is not None else runner.progress)
        now.sizes = {fingerprint: kernel.state() for fingerprint, kernel in _kernels_with_state(runner)}
        now.states = {fingerprint: _state(kernel.traces) for fingerprint, kernel in _kernels_with_state(runner)}
        return now

    def end_driven(self, batch: TappedBatch) -> None:
        """End a batch that the loop of a query has run, in any number of buckets."""
        now, self._now = self._now, RecordedBatch()
        for source in self.line.sources:  # also those without rows: their reports count in a run without some events
            now.judged.setdefault(source.fingerprint, [])
        now.reports, now.sources = batch.reports, dict(batch.progress)
        now.progress |= intake_progress(self.line, batch.progress)
        now.sizes = operators_of(batch.statistics)
        if self._keeps_state:
            for bucket, fingerprint, kernel in batch.kernels:
                named = {f"{name} of bucket {bucket}" if bucket else name: t for name, t in kernel.traces.items()}
                if named:
                    now.states[fingerprint] = {**now.states.get(fingerprint, {}), **_state(named)}
        self.batches.append(now)

    def _took(self, fingerprint: str, seconds: float) -> None:
        self._now.seconds[fingerprint] = self._now.seconds.get(fingerprint, 0.0) + seconds

    def _keep(self, fingerprint: str, changes: Changes) -> None:
        if len(changes):
            self._kept += len(changes)
            self._check(self._rows, self._kept)
            self._now.changes.setdefault(fingerprint, []).append(changes)


class EventFilter:
    """Leaves events of a source out. Of physical events, all that name one payload and start."""

    def __init__(self, source: Source, gone: Sequence[Row]) -> None:
        self._physical = isinstance(source.lifetime, Physical)
        rows = [(le, le if self._physical else re, payload) for le, re, payload in gone]
        table = table_of(rows, source.schema)
        self._gone = table.select(["le", "re", *source.schema.names])

    def __call__(self, accepted: Changes) -> Changes:
        if not self._gone.num_rows or not len(accepted):
            return accepted
        payload = accepted.payload.select(self._gone.column_names[2:])
        times = [pa.array(accepted.le), pa.array(accepted.le if self._physical else accepted.re)]
        events = pa.table([*times, *payload.columns], names=self._gone.column_names)
        codes, _ = factorize(concat([self._gone, events]))
        return accepted.filter(~np.isin(codes[self._gone.num_rows :], codes[: self._gone.num_rows]))


def _kernels_with_state(runner: Runner) -> list[tuple[str, Kernel]]:
    kernels = [item for stage in runner.stages for run in stage for item in run.kernels.items()]
    return [(fingerprint, kernel) for fingerprint, kernel in kernels if kernel.traces]


def _state(traces: Mapping[str, Trace]) -> _State:
    return {name: (trace.saved(), {s.name: s for s in trace.segments}) for name, trace in traces.items()}


def state_rows(saved: Mapping[str, Any], segments: Mapping[str, Segment]) -> pa.Table | None:
    """The rows of a kept trace of a kernel; None if there are none."""
    trace = Trace(lambda rows: rows)
    trace.restore(saved, segments)
    return trace.scan()


def changes_of(batches: Sequence[RecordedBatch], fingerprint: str) -> list[tuple[int, Changes]]:
    """The changes that an operator gave, with the numbers of their batches."""
    return [(number, part) for number, batch in enumerate(batches) for part in batch.changes.get(fingerprint, ())]
