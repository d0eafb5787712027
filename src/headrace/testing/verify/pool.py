"""Divide a run among processes: each makes its own cases from their numbers and sends only reports."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import islice
from queue import Empty, Queue
from typing import Any

from headrace.errors import HostError
from headrace.testing.intents.text import read_intent, read_traits
from headrace.testing.verify.campaign import VerificationReport, cases_of_intent, verify_cases
from headrace.testing.verify.case import VerifyCase
from headrace.testing.verify.own_query import own_cases

__all__ = ["CaseShare", "run_shares", "shares_of_intents", "shares_of_query"]

Tell = Callable[[VerificationReport], None]
#: A process sends a report after this many cases; the parent polls after this many seconds.
_FEW, _PATIENCE = 10, 1.0
#: The queue to which a process sends its reports.
_reports: Any = None


@dataclass(frozen=True)
class CaseShare:
    """Every `step`-th case of an intent, or of a user's query `FILE.py:NAME`, which the process loads."""

    seed: int
    cases: int
    first: int = 0
    step: int = 1
    intent: str = ""
    query: str = ""
    stop_after: int = 1
    #: The shape and order that a user's query declares for its answers.
    shape: str = "interval"
    order: str = "corrections"

    def make(self, load: Callable[[str], Any] | None = None) -> Iterator[VerifyCase]:
        """The cases of the share."""
        if self.query:
            assert load is not None
            own = own_cases(load(self.query).node, read_traits(self.intent or "anything"), self.seed)
            cases: Iterator[VerifyCase] = (replace(case, shape=self.shape, order=self.order) for case in own)  # type: ignore[arg-type]
        else:
            cases = cases_of_intent(read_intent(self.intent), self.seed)
        return islice(cases, self.first, self.cases, self.step)


def shares_of_intents(intents: Sequence[str], seed: int, cases: int, jobs: int, stop_after: int) -> list[CaseShare]:
    """Divide cases evenly among intents, and each intent's cases among processes."""
    each = [cases // len(intents) + (number < cases % len(intents)) for number in range(len(intents))]
    return [
        CaseShare(seed, count, first, jobs, intent, stop_after=stop_after)
        for intent, count in zip(intents, each, strict=True)
        for first in range(min(jobs, count))
    ]


def shares_of_query(query: str, over: str, seed: int, cases: int, jobs: int, stop_after: int) -> list[CaseShare]:
    """Divide the cases of a user's query among processes."""
    return [CaseShare(seed, cases, first, jobs, over, query, stop_after) for first in range(min(jobs, cases))]


def run_shares(
    shares: Sequence[CaseShare], jobs: int, tell: Tell, load: Callable[[str], Any] | None = None
) -> VerificationReport:
    """Run all cases of all shares; `tell` is called with the combined report. `load` must be a top-level function."""
    total = VerificationReport()
    if jobs == 1:
        for share in shares:
            before = replace(total)
            part = verify_cases(share.make(load), tell=_adding(before, tell), stop_after=share.stop_after)
            total.add(part)
            if len(total.failures) >= share.stop_after:
                break
        return total
    context = multiprocessing.get_context("spawn")  # a fork would lose the threads of DuckDB and Arrow
    queue: Any = context.Queue()
    executor = ProcessPoolExecutor(jobs, context, _begin, (queue,))
    try:
        running = {executor.submit(_share, share, load) for share in shares}
        while running:
            finished, running = wait(running, timeout=_PATIENCE)
            for future in finished:
                future.result()
            if _drain(queue, total):
                tell(total)
            if len(total.failures) >= shares[0].stop_after:
                break
        _drain(queue, total)
        tell(total)
    except BrokenProcessPool:
        raise HostError(
            "a process that ran cases has died", given=f"{jobs} processes", instead="--jobs 1, to see why"
        ) from None
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        for process in list((executor._processes or {}).values()):  # noqa: SLF001 - otherwise they run to the end
            process.terminate()
    return total


def _drain(queue: Any, total: VerificationReport) -> bool:
    """Add the reports in the queue; return whether there were any."""
    any_report = False
    while True:
        try:
            total.add(queue.get(timeout=0.05))
        except Empty:
            return any_report
        any_report = True


def _adding(before: VerificationReport, tell: Tell) -> Tell:
    def tell_total(part: VerificationReport) -> None:
        total = VerificationReport()
        total.add(before)
        total.add(part)
        tell(total)

    return tell_total


def _begin(queue: Queue[VerificationReport]) -> None:
    global _reports  # noqa: PLW0603 - a process has one queue
    _reports = queue


def _share(share: CaseShare, load: Callable[[str], Any] | None) -> None:
    """Run the cases of a share in a worker process, and send a report after every few."""
    cases = share.make(load)
    failed = 0
    while failed < share.stop_after and (some_cases := list(islice(cases, _FEW))):
        part = verify_cases(iter(some_cases), stop_after=share.stop_after - failed)
        failed += len(part.failures)
        _reports.put(part)
