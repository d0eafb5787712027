"""Runs the batches of a query in this thread, for a tap that sees every step: the loop of a query without the query.

Batches are planned, run and committed as those of a started query are, into a store that the caller owns, and nothing
is delivered. So the traces of services and of a server's streams have the batches, the promises and the late rows of a
query that is started.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headrace.host.driving.driver import Driver
from headrace.host.driving.in_process import InProcessExecutor
from headrace.host.driving.pace import Pace
from headrace.host.driving.plan import Batch, Job, Plan
from headrace.host.driving.publish import Publisher
from headrace.host.driving.recording import RecordedInput
from headrace.host.driving.tasks import kept_stages
from headrace.host.driving.trips import reports_of
from headrace.io.ingress import ChannelReport
from headrace.io.sinks import Nowhere
from headrace.io.temporary import TemporaryFolder
from headrace.operators.kernel import Kernel
from headrace.plan.nodes import Source
from headrace.progress import Progress
from headrace.stages.cut import Line
from headrace.stages.intake import Intake
from headrace.stages.measures import Tap
from headrace.stages.message import Message
from headrace.store.storage import LocalStorage, Storage
from headrace.time import INFINITY

__all__ = ["TappedBatch", "TappedRun", "temporary_run"]


@contextmanager
def temporary_run(line: Line, tap: Tap, *, rows_per_batch: int | None = None) -> Iterator[TappedRun]:
    """A run in one bucket with a store that ends with it."""
    with TemporaryFolder() as folder:
        run = TappedRun(line, 1, LocalStorage(folder, durable=False), tap, rows_per_batch=rows_per_batch)
        try:
            yield run
        finally:
            run.close()


@dataclass(frozen=True)
class TappedBatch:
    """What is known after a batch: the reports of its sources, their progress, and the operators."""

    number: int
    reports: list[tuple[Source, list[ChannelReport]]]
    progress: Mapping[str, Progress]
    statistics: Sequence[Mapping[str, Any]]
    #: The operators with state: bucket, fingerprint and kernel.
    kernels: Sequence[tuple[int, str, Kernel]]


class _TappedExecutor(InProcessExecutor):
    """Keeps the reports of a batch, and gives it inputs that were recorded."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.reports: list[dict[str, Any]] = []
        self.inputs: Mapping[str, RecordedInput] = {}

    def _intake(self, batch: Batch, task: int) -> list[Message]:
        messages = super()._intake(batch, task)
        for source in self.job.line.sources if task == batch.trip == 0 else ():
            if source.fingerprint in self.inputs:
                intake = Intake(self.job.line, source, Progress(), self.job.buckets, task, tap=self.job.tap)
                intake.replay(*self.inputs[source.fingerprint])
                messages += intake.messages()
        return messages

    def run(self, batch: Batch) -> list[Message]:
        messages = super().run(batch)
        self.reports += reports_of(messages)
        return messages


class TappedRun:
    """A query whose batches run one by one. `rows_per_batch` bounds the rows that a batch reads of services."""

    def __init__(
        self, line: Line, buckets: int, storage: Storage, tap: Tap, *, rows_per_batch: int | None = None
    ) -> None:
        sinks = [Nowhere() for _ in line.outputs]
        self._job = Job(uuid.uuid4().hex, line, buckets, storage, (None,) * len(sinks), tap=tap)
        self._executor = _TappedExecutor(self._job)
        publisher = Publisher(line.outputs, sinks, storage, self._executor)
        self.driver = Driver(self._job, self._executor, publisher, lambda: int(time.time() * 1_000_000), 1, tasks=1)
        # Nothing is acknowledged: the rows belong to the query, if there is one.
        self.driver.row_pace, self.driver.temporary = Pace.of_rows(rows_per_batch), True
        self.driver.trip_seconds = INFINITY
        self.driver.open()

    def run(self, plan: Plan, inputs: Mapping[str, RecordedInput] | None = None) -> TappedBatch:
        """Run one batch; `inputs` are recorded, by source, and not in its plan."""
        self._executor.reports, self._executor.inputs = [], inputs or {}
        finished = self.driver.run(plan)
        parts = self._executor.reports
        reports = [
            (source, [ChannelReport.from_json(one) for part in parts for one in part.get(source.fingerprint, [])])
            for source in self._job.line.sources
        ]
        stages = kept_stages(self._job)
        kernels = [(stage.bucket, *item) for stage in stages for item in stage.kernels.items() if item[1].traces]
        return TappedBatch(finished.commit.batch, reports, self.driver.progress, finished.statistics, kernels)

    def available(self) -> Iterator[TappedBatch]:
        """Run everything that is there now; the input does not end."""
        while (plan := self.driver.plan(ticks=False)) is not None:
            yield self.run(plan)

    def close(self) -> None:
        """Release what adapters and threads hold."""
        self.driver.close()
        self._executor.close()
