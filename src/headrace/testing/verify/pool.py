"""A run shared by several processes: each makes its own cases from their numbers, so nothing but reports travels."""

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
#: After so many cases a process tells how it fares; so many seconds go by before the first is asked again.
_FEW, _PATIENCE = 10, 1.0
#: Where processes put what they found since they last told.
_told: Any = None


@dataclass(frozen=True)
class CaseShare:
    """Every so many-th case of an intent, or of a user's query: `FILE.py:NAME`, to be loaded where the share runs."""

    seed: int
    cases: int
    first: int = 0
    step: int = 1
    intent: str = ""
    query: str = ""
    stop_after: int = 1
    #: What a user's query declares of its answers.
    shape: str = "interval"
    order: str = "corrections"

    def make(self, load: Callable[[str], Any] | None = None) -> Iterator[VerifyCase]:
        """Its cases."""
        if self.query:
            assert load is not None
            own = own_cases(load(self.query).node, read_traits(self.intent or "anything"), self.seed)
            made: Iterator[VerifyCase] = (replace(case, shape=self.shape, order=self.order) for case in own)  # type: ignore[arg-type]
        else:
            made = cases_of_intent(read_intent(self.intent), self.seed)
        return islice(made, self.first, self.cases, self.step)


def shares_of_intents(intents: Sequence[str], seed: int, cases: int, jobs: int, stop_after: int) -> list[CaseShare]:
    """So many cases, as many of each intent, each intent in parts for so many processes."""
    each = [cases // len(intents) + (number < cases % len(intents)) for number in range(len(intents))]
    return [
        CaseShare(seed, count, first, jobs, intent, stop_after=stop_after)
        for intent, count in zip(intents, each, strict=True)
        for first in range(min(jobs, count))
    ]


def shares_of_query(query: str, over: str, seed: int, cases: int, jobs: int, stop_after: int) -> list[CaseShare]:
    """So many cases of a user's query, in parts for so many processes."""
    return [CaseShare(seed, cases, first, jobs, over, query, stop_after) for first in range(min(jobs, cases))]


def run_shares(
    shares: Sequence[CaseShare], jobs: int, tell: Tell, load: Callable[[str], Any] | None = None
) -> VerificationReport:
    """Try all cases of all shares; `tell` hears the whole so far. `load` must be a function of a module, by name."""
    whole = VerificationReport()
    if jobs == 1:
        for share in shares:
            before = replace(whole)
            done = verify_cases(share.make(load), tell=_adding(before, tell), stop_after=share.stop_after)
            whole.add(done)
            if len(whole.failures) >= share.stop_after:
                break
        return whole
    context = multiprocessing.get_context("spawn")  # DuckDB and Arrow have threads, which a fork would lose
    queue: Any = context.Queue()
    executor = ProcessPoolExecutor(jobs, context, _begin, (queue,))
    try:
        running = {executor.submit(_share, share, load) for share in shares}
        while running:
            finished, running = wait(running, timeout=_PATIENCE)
            for future in finished:
                future.result()
            if _drain(queue, whole):
                tell(whole)
            if len(whole.failures) >= shares[0].stop_after:
                break
        _drain(queue, whole)
        tell(whole)
    except BrokenProcessPool:
        raise HostError(
            "a process that tried cases has died", given=f"{jobs} processes", instead="--jobs 1, to see why"
        ) from None
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        for process in list((executor._processes or {}).values()):  # noqa: SLF001 - else they go on to the end
            process.terminate()
    return whole


def _drain(queue: Any, whole: VerificationReport) -> bool:
    """Take in what processes have told; whether that was anything."""
    some = False
    while True:
        try:
            whole.add(queue.get(timeout=0.05))
        except Empty:
            return some
        some = True


def _adding(before: VerificationReport, tell: Tell) -> Tell:
    def told(part: VerificationReport) -> None:
        so_far = VerificationReport()
        so_far.add(before)
        so_far.add(part)
        tell(so_far)

    return told


def _begin(queue: Queue[VerificationReport]) -> None:
    global _told  # noqa: PLW0603 - a process has one place to tell to
    _told = queue


def _share(share: CaseShare, load: Callable[[str], Any] | None) -> None:
    """In another process: the cases of a share, told of a few at a time."""
    cases = share.make(load)
    failed = 0
    while failed < share.stop_after and (few := list(islice(cases, _FEW))):
        part = verify_cases(iter(few), stop_after=share.stop_after - failed)
        failed += len(part.failures)
        _told.put(part)
