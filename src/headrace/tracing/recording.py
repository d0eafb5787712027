"""The recording of a run: what every operator gave in every batch, its progress, its time and its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import concat, factorize
from headrace.host.local.run import Judged, Reports, Runner, TakenBatch
from headrace.host.report import operators_of
from headrace.operators.admit import as_changes
from headrace.operators.kernel import Data
from headrace.operators.reference.rows import Row, table_of
from headrace.plan.nodes import Diverted, Node, Source
from headrace.plan.policies import Physical
from headrace.progress import Progress
from headrace.segments import Segment
from headrace.stages.cut import Line
from headrace.stages.stage import intake_progress
from headrace.trace import Trace

__all__ = ["EventFilter", "RecordedBatch", "Recorder", "changes_of", "state_rows"]

#: The saved form of each trace of a kernel, and its segments.
_State = Mapping[str, tuple[Mapping[str, Any], Mapping[str, Segment]]]


@dataclass
class RecordedBatch:
    """What a batch read, and what is known of the operators after it, by fingerprint."""

    #: Events by source, as ingress has judged them, with the reports and the progress that came of them.
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


class Recorder:
    """A tap that keeps everything."""

    def __init__(self, line: Line, *, state: bool) -> None:
        self.line = line
        self.batches: list[RecordedBatch] = []
        self._keeps_state = state
        self._now = RecordedBatch()
        self._sides = {node.source.fingerprint: node.fingerprint for node in line.nodes if isinstance(node, Diverted)}

    def wait(self, source: Source, seconds: float) -> None:
        self._took(source.fingerprint, seconds)

    def read(self, source: Source, rows: int, judged: Judged, seconds: float) -> None:  # noqa: ARG002 - a tap's method
        self._took(source.fingerprint, seconds)
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

    def end_batch(self, runner: Runner, taken: TakenBatch | None = None) -> None:
        """End a batch; without `taken`, the end of the input."""
        now, self._now = self._now, RecordedBatch()
        now.reports = taken.reports if taken is not None else []
        now.sources = dict(runner.progress)
        now.progress |= intake_progress(self.line, runner.progress)
        now.sizes = operators_of(runner.done.statistics[-1])
        if self._keeps_state:
            kernels = [item for stage in runner.stages for run in stage for item in run.kernels.items()]
            now.states = {fingerprint: _state(kernel.traces) for fingerprint, kernel in kernels if kernel.traces}
        self.batches.append(now)

    def _took(self, fingerprint: str, seconds: float) -> None:
        self._now.seconds[fingerprint] = self._now.seconds.get(fingerprint, 0.0) + seconds

    def _keep(self, fingerprint: str, changes: Changes) -> None:
        if len(changes):
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
