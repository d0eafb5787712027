"""An executor that runs the tasks of a batch in this process, one after the other."""

from __future__ import annotations

from headrace.host.driving.plan import Batch, Executor, Job
from headrace.host.driving.tasks import run_intake, run_stage
from headrace.stages.message import Message

__all__ = ["InProcess"]


class InProcess(Executor):
    """Runs tasks where the driver is."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def run(self, batch: Batch) -> list[Message]:
        job = self.job
        messages = [m for task in range(len(batch.shares)) for m in run_intake(job, batch, task)]
        for level in range(1, job.line.depth + 1):
            messages = [
                out
                for bucket in range(job.buckets)
                for out in run_stage(job, batch, level, bucket, [m for m in messages if m.bucket == bucket])
            ]
        return messages
