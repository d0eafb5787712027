"""A running query: a loop in a thread, and the public methods to watch and stop it.

The loop plans a batch, lets the executor run its tasks, commits and publishes it. It runs in the process that started
the query, on every host; with Spark Connect that is the client.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from headrace.display.rich import RichDisplay
from headrace.display.words import clipped
from headrace.errors import HeadraceError, HostError
from headrace.host.driving.driver import Driver, FinishedBatch
from headrace.host.driving.figures import attributes_of, figures_of, lateness_of
from headrace.host.driving.keeping import SpoolKeeper
from headrace.host.driving.limits import intake_limits
from headrace.host.driving.past import PHASES, PastBatch, PastBatches, new_rows
from headrace.host.driving.plan import Executor
from headrace.host.losses import Losses
from headrace.host.report import BatchReport
from headrace.io.host_source import Receiver
from headrace.io.sinks import Sink
from headrace.metrics.alarms import Alarm, Alarms
from headrace.metrics.endpoint import MetricsPlace
from headrace.metrics.spans import BatchSpans
from headrace.stages.cut import Line
from headrace.stages.egress import close, show_losses
from headrace.stages.load import stage_loads
from headrace.time import INFINITY

if TYPE_CHECKING:
    from headrace.host.driving.checkpoint import Checkpoint

__all__ = ["Feeder", "Query"]

#: The number of batches whose statistics are kept; a query may run for years.
_KEPT_BATCHES = 1000
#: How long an idle query waits before it looks for new input, in seconds: a tenth of the time since the last input,
#: within these bounds; longer if looking takes long. So frequent input hardly waits.
_IDLE_SECONDS = (0.001, 0.05)
#: The least time between batches that only a clock triggers, in seconds.
_TICK_SECONDS = 1.0
#: How often an idle query checks that its executor answers, in seconds.
_PING_SECONDS = 1.0
#: How often alarms are judged, in seconds.
_JUDGED_EVERY = 1.0
_END_SECONDS = 60
#: How often running tasks are interrupted while a query is being stopped, in seconds.
_INTERRUPT_SECONDS = 0.5
_ATTEMPTS = 3
_log = logging.getLogger("headrace")


class Feeder(Protocol):
    """Writes rows of a source that the loop cannot read to files that it can read."""

    #: The directory of the files.
    spool: Path

    def check(self) -> None:
        """Raise the error that ended it, if there is one."""

    def process_all_available(self) -> None:
        """Wait until all rows that exist now have been written."""

    def forget(self, paths: Iterable[str]) -> None:
        """Forget files that a committed batch has read."""

    def stop(self) -> None:
        """Stop writing."""


@dataclass(eq=False)
class Query(RichDisplay):
    """A running query."""

    name: str
    line: Line
    checkpoint: Checkpoint
    sinks: tuple[Sink, ...]
    driver: Driver
    executor: Executor
    counts: dict[str, dict[str, int]]
    #: For every source, the first row that was diverted or dropped.
    examples: dict[str, dict[str, Any]] = field(default_factory=dict)
    losses: Losses = field(default_factory=Losses)
    #: The least seconds from the start of a batch to that of the next.
    interval: float = 0.0
    report: BatchReport = field(default_factory=BatchReport)
    batch_seconds: list[float] = field(default_factory=list)
    #: The number of trips of each of these batches.
    batch_trips: list[int] = field(default_factory=list)
    statistics: list[list[dict[str, Any]]] = field(default_factory=list)
    past: PastBatches = field(default_factory=PastBatches)
    #: The threads that receive lines of hosts, and the feeders of sources that the loop cannot read.
    receivers: list[Receiver] = field(default_factory=list)
    feeders: Sequence[Feeder] = ()
    #: Removes files of spools that were read.
    spools: SpoolKeeper = field(default_factory=SpoolKeeper)
    #: Seconds without new rows after which the input has ended, and the query with it.
    timeout: float | None = None
    #: Where its metrics are shown.
    metrics: MetricsPlace | None = None
    watch: Alarms = field(default_factory=lambda: Alarms("headrace", ()))

    def __post_init__(self) -> None:
        self.spans = BatchSpans(self.name, None if self.checkpoint.temporary else self.checkpoint.place, PHASES)
        self._judged = 0.0
        self._stop = threading.Event()
        self._stopping = threading.RLock()
        self._wake = threading.Event()
        #: Whether a caller waits for the next look; when the executor last answered; when input last arrived.
        self._asked = threading.Event()
        self._pinged = 0.0
        self._fed = 0.0
        self._changed = threading.Condition()
        #: The number of looks for input, the last look that found none, and the callers that wait for such a look.
        self._looks = 0
        self._waiters = 0
        self._idle_look = -1
        #: The latest look that has ended, and the ends of partitions that it found.
        self._found_at, self._ends = -1, self.driver.ends
        #: Used instead of `Thread.join`: after Ctrl-C has interrupted a `join`, Python may report the thread as ended.
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name=f"headrace-{self.name}", daemon=True)
        self._resume()

    def __repr__(self) -> str:
        failure = self.exception()
        ended = "failed" if failure is not None else "has ended" if self._ended.is_set() else "runs"
        report = ", " + str(self.report).partition("\n")[0] if self.report else ""
        kept = "" if self.checkpoint.temporary else f", checkpoint {self.checkpoint.place!r}"
        why = f"\n  {clipped(str(failure))}" if failure is not None else ""
        return f"Query {self.name!r} {ended}{report}{kept}{why}"

    def _resume(self) -> None:
        last = self.driver.last
        if last is not None:
            self._count(last.record)
            about = last.record["sources"], self.counts
            self.report = BatchReport.of(last.batch, *about, [], self.examples, _dated(self.line))
            self.report["lateness"] = lateness_of(self.line.sources, last.record)

    def _count(self, record: Mapping[str, Any]) -> str:
        """Take the counts of a commit; return the losses as text, if there are new ones."""
        self.counts.update(record["counts"])
        self.examples = record["examples"]
        return self.losses.grown(self.name, self.counts, self.examples)

    def begin(self) -> None:
        """Start the loop."""
        if self.metrics is not None:
            self.metrics.show(lambda: figures_of(self), lambda: self.state == "running")
        self._judge()  # rows of the first batch are new to the rules
        self._fed = time.monotonic()
        self._thread.start()

    # --- watching ----------------------------------------------------------------------------------------------------

    def progress(self) -> BatchReport:
        """The report of the latest batch: its number, every source's CTI, the state of each operator and what holds it,
        how evenly rows are divided among buckets, and the rounds of loops. Empty before the first batch.
        """
        return self.report

    def files_taken(self, origin: str) -> int:
        """The number of files that every source with this origin has read."""
        taken = self.driver.last.record["files"] if self.driver.last is not None else {}
        return min(int(taken.get(s.fingerprint, 0)) for s in self.line.sources if str(s.origin) == origin)

    @property
    def state(self) -> Literal["running", "failed", "ended"]:
        """Whether it runs, as far as is known here: `is_active` also asks where its tasks run."""
        if self.exception() is not None:
            return "failed"
        return "ended" if self._ended.is_set() else "running"

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus reads its metrics; None if it was started without `metrics_port`."""
        return None if self.metrics is None else self.metrics.url

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """The alarms that last now, the oldest first."""
        return self.watch.active

    @property
    def is_active(self) -> bool:
        """Whether the query still runs."""
        if self._ended.is_set() or self._thread.ident is None:
            return False
        try:
            self.executor.ping()
        except Exception as error:
            if not self.executor.is_gone(error):
                raise
            self._failure = self._failure or self.explained(error)
            self.end_soon()
            return False
        return True

    @property
    def received(self) -> dict[str, dict[str, int]]:
        """The counters of every host: connections, lines, diverted lines, and waits for the query."""
        return {str(receiver.origin): dict(receiver.counts) for receiver in self.receivers}

    def exception(self) -> BaseException | None:
        """The error that ended the query, if there is one."""
        return self._failure or next((r.failure for r in self.receivers if r.failure is not None), None)

    # --- waiting and ending ------------------------------------------------------------------------------------------

    def process_all_available(self) -> None:
        """Wait until all input that exists now has been processed."""
        for feeder in self.feeders:
            feeder.process_all_available()
        with self._changed:
            first = self._looks + 1  # the current look may have begun before
            goal: dict[tuple[str, str], int] | None = None
            self._asked.set()
            self._wake.set()
            self._waiters += 1
            try:
                while not (self._idle_look >= first or self._ended.is_set() or self._has_read(goal)):
                    self._changed.wait()
                    if goal is None and self._found_at >= first:  # new rows may arrive faster than a look takes
                        goal = self._ends
            finally:
                self._waiters -= 1
        self._raise()

    def _has_read(self, goal: Mapping[tuple[str, str], int] | None) -> bool:
        """Whether batches up to these offsets are delivered; False if the sources have no offsets."""
        if goal is None or self.driver.busy or self.driver.ending:  # the end of the input has no offset
            return False
        return all(self.driver.delivered.get(partition, -1) >= offset for partition, offset in goal.items())

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query ends, or for `timeout` seconds; return whether it has ended. Ctrl-C stops the query."""
        try:
            ended = self._ended.wait(timeout)
        except KeyboardInterrupt:
            self.stop()
            raise
        if not ended:
            return False
        self.end_receivers()
        self._raise()
        return True

    def finish(self) -> None:
        """Process all input that exists now, then end the input: every CTI becomes infinite.

        The checkpoint keeps that promise: for a query that continues from it, all new rows are late. To continue
        later, use `process_all_available` and `stop`.
        """
        self.process_all_available()
        self.driver.ending = True
        deadline = time.monotonic() + _END_SECONDS
        while not self._has_ended_input():
            if time.monotonic() > deadline:
                raise HostError("the query did not reach the end of its input in time", given=self.name)
            self.process_all_available()

    def _has_ended_input(self) -> bool:
        """Whether the last batch has promised that nothing follows."""
        sources = self.driver.last.record["sources"].values() if self.driver.last is not None else ()
        return bool(sources) and all(cti == INFINITY for cti, _ in sources)

    def stop(self) -> None:
        """Stop the query; the checkpoint stays, and another start with it continues."""
        with self._stopping:
            self._stop_once()

    def _stop_once(self) -> None:
        self.end_receivers()
        self.end_soon()
        if self._thread.ident is not None:
            while not self._ended.is_set():  # repeatedly, because tasks may not have started yet
                with suppress(Exception):  # the executor may have died
                    self.executor.interrupt()
                self._ended.wait(_INTERRUPT_SECONDS)
            self._thread.join()
        self.watch.close()
        if self.metrics is not None:
            self.metrics.close()
        with suppress(HeadraceError):  # what could not be delivered is delivered at the next start
            self.driver.close()
        self.executor.close()
        close(self.sinks)
        if self.checkpoint.path is None:  # in a directory the lock shows that the query has ended
            with suppress(HeadraceError):  # if the store fails, the query has failed already
                self.driver.log.release()
        self.checkpoint.close()

    def end_soon(self) -> None:
        """End the loop after the running trip."""
        self.driver.stopping = True
        self._stop.set()
        self._wake.set()

    def end_receivers(self) -> None:
        """Stop receivers and feeders."""
        for receiver in self.receivers:
            receiver.stop()
        for feeder in self.feeders:
            feeder.stop()

    def explained(self, error: BaseException) -> HeadraceError:
        """A failure to show to users, with what to do next."""
        again = f"start again with this checkpoint: checkpoint={self.checkpoint.place!r}"
        afresh = "start again; with checkpoint='a directory' a query continues where it stopped"
        return self.executor.explained(error, "the query", afresh if self.checkpoint.temporary else again)

    def _raise(self) -> None:
        error = self.exception()
        if error is not None:
            raise error from error.__cause__

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        try:
            while not self._stop.is_set():
                self._look()
        except BaseException as error:  # noqa: BLE001 - waiting callers raise it
            if not self._stop.is_set():
                self._failure = self.explained(error)
                _log.error("query %s: %s", self.name, self._failure)
                self.spans.fail(self._failure, self.driver.moments)
        finally:
            self.spans.close()
            with self._changed:
                self._ended.set()
                self._changed.notify_all()

    def _look(self) -> None:
        """Look for input; run a batch, or wait."""
        if self.checkpoint.is_wanted():
            self._hand_over()
            return
        with self._changed:
            self._looks += 1
            look, thorough = self._looks, self._waiters > 0
        self._wake.clear()
        began = time.monotonic()
        for feeder in self.feeders:
            feeder.check()
        plan = self.driver.plan(ticks=not self._ticked_lately(), thorough=thorough)
        with self._changed:
            if self.driver.looked:
                self._found_at, self._ends = look, self.driver.ends
            self._changed.notify_all()
        if plan is not None:
            self.spans.begin(self.driver.number)
            self._take(self.driver.run(plan, self._again))
        self._judge()
        if plan is not None and (plan.reads or plan.ends or self.driver.busy):
            self._fed = time.monotonic()
            self._stop.wait(max(0.0, self.interval - (time.monotonic() - began)))
            return
        self.driver.settle()
        if self._asked.is_set() or began - self._pinged > _PING_SECONDS:
            self._asked.clear()
            self._pinged = began
            self.executor.ping()
        with self._changed:  # a batch that only a clock triggered is no new input
            self._idle_look = look
            self._changed.notify_all()
        if plan is None and self._times_out():
            return
        if plan is None:
            self._wake.wait(self._idle_seconds(time.monotonic() - began))

    def _hand_over(self) -> None:
        """Stop between two batches, because a new version of the query takes over the checkpoint."""
        _log.warning(
            "query %s: a new version takes over its checkpoint %s, so it ends", self.name, self.checkpoint.place
        )
        self._stop.set()
        threading.Thread(target=self.stop, name=f"{self.name} hands over", daemon=True).start()

    def _judge(self) -> None:
        """Begin and end alarms, now and then; one may fail the query, between two batches."""
        now = time.monotonic()
        if now - self._judged < _JUDGED_EVERY:
            return
        self._judged = now
        if self.watch.judge(figures_of(self), now, time.time()) and self.report:
            self.report = BatchReport(self.report | {"alarms": [alarm.to_json() for alarm in self.alarms]})

    def _idle_seconds(self, look: float) -> float:
        """The time to wait before the next look, after a look of this duration that found nothing."""
        least, most = _IDLE_SECONDS
        fed = time.monotonic() - self._fed
        wait = max(min(most, fed / 10), least, 5 * look)
        return wait if self.timeout is None else max(least, min(wait, self.timeout - fed))

    def _times_out(self) -> bool:
        """End the input if no rows have arrived for so long, and the query once its last batch has run."""
        if self.timeout is None or time.monotonic() - self._fed < self.timeout:
            return False
        if self._has_ended_input():
            self.end_soon()
        elif not self.driver.ending:
            _log.info("query %s: no new rows for %s s, so its input has ended", self.name, self.timeout)
            self.driver.ending = True
        return True

    def _ticked_lately(self) -> bool:
        last = self.driver.last
        return last is not None and time.time() - last.record["time"] < _TICK_SECONDS

    def _again(self, attempt: int, error: Exception) -> bool:
        """Whether tasks run again after a failure: the plan is fixed, and files of a failed attempt do not count."""
        if attempt == _ATTEMPTS or self._stop.is_set() or not self.executor.may_pass(error):
            return False
        self.spans.repeat(error)
        why = self.executor.explained(error, f"batch {self.driver.number}").message
        _log.warning("%s; it is run again (attempt %d of %d)", why, attempt + 1, _ATTEMPTS)
        return True

    def _take(self, batch: FinishedBatch) -> None:
        record = batch.commit.record
        read = [path for files in record["plan"]["files"].values() for _, path, _ in files]
        for feeder in self.feeders:
            feeder.forget(read)
        self.spools.forget(read)
        past = self._past_batch(batch)
        self.past.add(past)
        show_losses(self.sinks, self._count(record))
        self.statistics.append(batch.statistics)
        self.batch_seconds.append(sum(batch.phases.values()))
        self.batch_trips.append(batch.trips)
        for kept in (self.statistics, self.batch_seconds, self.batch_trips):
            del kept[:-_KEPT_BATCHES]
        values = batch.commit.batch, record["sources"], self.counts, batch.statistics, self.examples
        self.report = BatchReport.of(*values, _dated(self.line))
        self.report["intake"] = intake_limits(self.driver)
        self.report["lateness"] = lateness_of(self.line.sources, record)
        self.report["removed"] = {**self.driver.publisher.keeper.removed, **self.spools.removed}
        self.report["alarms"] = [alarm.to_json() for alarm in self.alarms]
        if self.spans.recording:
            self.spans.describe(attributes_of(past, self.report["cti"]), self.alarms)
        self.spans.end(self.driver.moments)

    def _past_batch(self, batch: FinishedBatch) -> PastBatch:
        """What a batch did, before its counts are taken."""
        record = batch.commit.record
        return PastBatch(
            batch.commit.batch, record["time"], batch.phases, new_rows(self.counts, record["counts"]),
            {source: cti for source, (cti, _) in record["sources"].items()}, batch.flows,
            {f: (one["rows"], one["bytes"]) for f, one in record["operators"].items()},
            tuple(stage_loads(batch.statistics)),
        )  # fmt: skip


def _dated(line: Line) -> list[str]:
    """The sources whose times are dates."""
    return [source.fingerprint for source in line.sources if source.dates]
