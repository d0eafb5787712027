"""An executor that runs the tasks of a batch in this process: those of a level in parallel, each in a thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor

from headrace.host.driving.delivery import deliver_all, deliveries_of
from headrace.host.driving.plan import Batch, Executor, Job
from headrace.host.driving.tasks import forget_stages, run_intake, run_stage
from headrace.host.memory import keep_freed_memory
from headrace.host.threads import available_cores
from headrace.meter import current
from headrace.plan.functions import calls_python
from headrace.stages.message import Message
from headrace.store.log import Commit

__all__ = ["InProcessExecutor"]


class InProcessExecutor(Executor):
    """Runs tasks in the driver's process; messages are passed as objects, in the order of the tasks that sent them.

    Buckets have a thread each, and so have intake tasks, up to the number of cores: they run in parallel where most of
    the work is done by Arrow, NumPy or compiled code. A query of one bucket that calls users' Python code has no
    threads: such code may depend on the thread that calls it.
    """

    def __init__(self, job: Job, name: str = "headrace") -> None:
        keep_freed_memory()
        self.job = job
        #: Whether the query is being stopped: then the batch that runs ends without a commit, and no service is
        #: waited for.
        self.stopped = False
        self.work = current()
        alone = job.tap is not None  # it sees the steps of one thread
        self.threads = cores = 1 if alone or calls_python(*job.line.outputs) else available_cores()
        count = 1 if alone else max(job.buckets, cores)
        self._threads = ThreadPoolExecutor(count, f"headrace-{name}") if count > 1 else None
        #: Threads for pieces of large blocks; others than those of tasks, which wait for them.
        self._pieces = ThreadPoolExecutor(cores, f"headrace-{name}-piece") if cores > 1 else None

    def run(self, batch: Batch) -> list[Message]:
        job = self.job
        messages = self._each(lambda task: self._intake(batch, task), len(batch.shares))
        for level in range(1, job.line.depth + 1):
            if self.stopped:
                raise CancelledError
            arrived: list[list[Message]] = [[] for _ in range(job.buckets)]
            for message in messages:
                arrived[message.bucket].append(message)
            messages = self._each(_stage(job, batch, level, arrived), job.buckets)
        return messages

    def _intake(self, batch: Batch, task: int) -> list[Message]:
        return run_intake(self.job, batch, task, lambda: self.stopped, self._pieces, self.work)

    def _each(self, task: Callable[[int], list[Message]], count: int) -> list[Message]:
        """The messages of the tasks. If some fail, all tasks have ended when the first failure is raised."""
        if self._threads is None or count == 1:
            return [message for number in range(count) for message in task(number)]
        running = [self._threads.submit(task, number) for number in range(count)]
        failures = [failure for future in running if (failure := future.exception()) is not None]
        if failures:
            raise failures[0]
        return [message for future in running for message in future.result()]

    def deliver(self, commit: Commit) -> None:
        deliver_all(self.job, commit, deliveries_of(self.job, commit), lambda: self.stopped)

    def interrupt(self) -> None:
        self.stopped = True
        self.job.interrupt_deliveries()

    def close(self) -> None:
        for threads in (self._threads, self._pieces):
            if threads is not None:
                threads.shutdown()
        forget_stages(self.job)


def _stage(job: Job, batch: Batch, level: int, arrived: list[list[Message]]) -> Callable[[int], list[Message]]:
    return lambda bucket: run_stage(job, batch, level, bucket, arrived[bucket])
