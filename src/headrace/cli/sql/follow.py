"""Follow a query: show its answers while it runs.

In process, new files of its inputs are read as they appear, and lines of hosts as they arrive. On Spark, and over
tables that live, it runs by itself, and a sink collects its batches.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from headrace.api.running import Run, needs_driver, outputs_of, start_all
from headrace.api.stream import Stream
from headrace.changes import Changes
from headrace.errors import PlanError
from headrace.host.live_tables import followed
from headrace.host.local.run import Runner, batches_of
from headrace.host.losses import describe_diverted, describe_losses
from headrace.host.received import hosts_of, spooled
from headrace.host.result import DIVERTED, FinishedRun, Result
from headrace.io.files import ListedFile, changed_or_new, listing
from headrace.io.host_source import Receiver
from headrace.io.origins import Files
from headrace.io.reading import read_listed
from headrace.io.sinks import FunctionSink
from headrace.plan.functions import functions_of
from headrace.plan.nodes import Source
from headrace.progress import Progress
from headrace.stages.cut import line_of

__all__ = ["FollowedInProcess", "FollowedQuery", "FollowedStarted", "needs_start"]

_log = logging.getLogger("headrace")
_OUT = "out"
_DIVERTED_SHOWN = 3
#: The counters of received lines that are no rows, as text.
_LINES = {"half": "cut off by the end of a connection", "too_long": "too long", "unpaired": "with unpaired quotes"}
_KEPT = 1000  # batches that are kept separately; older ones are merged


class FollowedQuery(Protocol):
    """A query that the shell follows."""

    result: Result
    #: Its results, with the diverted rows, as those of a finished run; None if another process has them.
    run: Run | None

    def poll(self) -> None:
        """Take new batches; raise if the query cannot continue."""

    def notes(self) -> list[str]:
        """What there is to know besides the answers: rows that were not used, and connections that are not there."""

    def stop(self) -> None:
        """End the query."""


class FollowedInProcess:
    """A query of this process that reads new rows at every poll."""

    def __init__(self, stream: Stream, buckets: int = 1) -> None:
        outputs = outputs_of({_OUT: stream.node})
        self._folder = TemporaryDirectory(prefix="headrace-")
        line = line_of(spooled(outputs, Path(self._folder.name)))
        self._runner = Runner(line, buckets, lambda: time.time_ns() // 1000, sheds=True)
        self._taken: dict[str, dict[str, ListedFile]] = {source.fingerprint: {} for source in line.sources}
        self._fixed = [source for source in line.sources if not isinstance(source.origin, Files)]
        done = self._runner.done
        self.run: Run | None = Run(done.results, done.counts, done.statistics, done.examples)
        self.result = done.results[_OUT]
        self._receivers = [Receiver(host, Path(host.files(Path(self._folder.name)).path)) for host in hosts_of(outputs)]
        for receiver in self._receivers:
            receiver.start()

    def poll(self) -> None:
        """Read all new files, in the order of their source, each as a batch."""
        for receiver in self._receivers:
            if receiver.failure is not None:
                raise receiver.failure
        for source in self._fixed:
            for blocks in batches_of(source):
                self._runner.round({source.fingerprint: blocks})
        self._fixed = []
        new_files = [(source, file) for source in self._runner.line.sources for file in self._new(source)]
        for source, file in new_files:
            blocks = [(block, file.path) for block in read_listed(source, file)]
            self._runner.round({source.fingerprint: blocks})
            self._taken[source.fingerprint][file.path] = file
        if not new_files and self._runner.ticking:
            self._runner.round({})
        for result in self._runner.done.results.values():
            _compact(result)
        del self._runner.done.statistics[:-1]

    def _new(self, source: Source) -> Sequence[ListedFile]:
        """The new files; a file that changed after it was read is counted and reported."""
        if not isinstance(source.origin, Files):
            return ()
        taken = self._taken[source.fingerprint]
        changed, new = changed_or_new(listing(source.origin.path, source.origin.order), taken)
        for file in changed:
            taken[file.path] = file
            self._runner.done.counts[str(source.origin)]["changed_files"] += 1
            _log.warning("%s: the file %r changed after it was read; it is not read again", source.origin, file.path)
        return new

    def notes(self) -> list[str]:
        """The diverted rows, the newest ones in full, and the connections that are not there."""
        done = self._runner.done
        received = {str(receiver.origin): receiver.counts for receiver in self._receivers}
        return [*_losses(done.counts, {}), *_newest_diverted(done), *_connections(received)]

    def stop(self) -> None:
        """Stop receiving and remove the temporary files."""
        for receiver in self._receivers:
            receiver.stop()
        self._folder.cleanup()


def needs_start(stream: Stream) -> bool:
    """Whether a query reads what only a started one can follow: tables that live, and adapters."""
    return needs_driver(outputs_of({_OUT: stream.node}))


class FollowedStarted:
    """A query that was started, and runs by itself: on Spark, or in this process."""

    def __init__(self, stream: Stream, **options: Any) -> None:
        node = followed(stream.node)
        self.result = Result(stream.schema, functions=functions_of(node), dates=node.dates)
        self.run: Run | None = None
        self._arrivals: list[tuple[Changes, Progress]] = []
        sink = FunctionSink(function=lambda _, changes, progress: self._arrivals.append((changes, progress)))
        self.query = start_all([(stream, sink)], **options)

    def poll(self) -> None:
        """Take the batches that have arrived."""
        if not self.query.is_active:
            failure = self.query.exception()
            raise failure if failure is not None else PlanError("the query has ended")
        while self._arrivals:
            self.result.batches.append(self._arrivals.pop(0))
        _compact(self.result)

    def notes(self) -> list[str]:
        """The number of diverted rows, with an example, and the connections that are not there."""
        return [*_losses(self.query.counts, self.query.examples), *_connections(self.query.received)]

    def stop(self) -> None:
        """End the query; its checkpoint stays, if it has one."""
        self.query.stop()


def _losses(counts: Mapping[str, Mapping[str, int]], examples: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return describe_losses(counts, examples).splitlines()


def _newest_diverted(done: FinishedRun) -> list[str]:
    """The newest diverted rows, of the newest batch that has some."""
    found = []
    for name, result in done.results.items():
        batches = [changes for changes, _ in result.batches if len(changes)] if name.startswith(DIVERTED) else []
        rows = batches[-1].payload.slice(max(0, len(batches[-1]) - _DIVERTED_SHOWN)).to_pylist() if batches else []
        found += [f"  diverted: {describe_diverted(row)}" for row in rows]
    return found[-_DIVERTED_SHOWN:]


def _connections(received: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A line for each host without a connection, or whose lines were diverted."""
    lines = []
    for origin, counts in received.items():
        host = f"host {origin.rpartition(' ')[2]}"
        tries = ", ".join(f"{what} {counts[what]:,} times" for what in ("refused", "ended") if counts[what])
        if tries and counts["connections"] == counts["ended"]:
            lines.append(f"{host}: no connection ({tries}); it is tried again")
        diverted = ", ".join(f"{counts[name]:,} {what}" for name, what in _LINES.items() if counts[name])
        if diverted:
            lines.append(f"{host}: lines diverted: {diverted}")
    return lines


def _compact(result: Result) -> None:
    """Keep the latest batches, and merge the older ones, so that a long watch stays small."""
    old = result.batches[:-_KEPT]
    if len(old) >= _KEPT:
        changes = Changes.concat([changes for changes, _ in old]).consolidate()
        result.batches[:-_KEPT] = [(changes, old[-1][1])]
