"""Positions of a source that an adapter reads: how far every partition was read.

A look asks the adapter how far its partitions reach, and gives the next batch a range of each partition that has new
rows. The pace of the query bounds the rows of a batch: they are shared among the partitions, so that one that has much
to catch up does not delay the others.

A partition that appears while the query runs is read from its first row; those that exist when the query begins, from
where the adapter says. Rows that the place no longer stores when they are to be read are a *gap*: an error, or counted.

A driver that dies may leave a plan, and the next one runs it without a look of its own. So the plan has where
partitions *begin* that were new at the look, or had a gap: otherwise the next driver would take those without rows for
partitions that appeared later, and would not count what was lost.

A partition without new rows is *silent*. All silent partitions are part of a batch's plan, because they hold back the
progress of their source; except those that are idle: silent for as long as the policy's `idle` says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from headrace.errors import HeadraceError, SourceError
from headrace.io.adapter import Offsets, ReadRange, patiently
from headrace.io.origins import AdapterRead
from headrace.plan.nodes import Source
from headrace.plan.policies import Arrival, Heartbeat
from headrace.time import NEG_INFINITY
from headrace.trace import Segment, Trace

__all__ = ["RangePositions"]

_log = logging.getLogger("headrace")
#: A partition that has held back its source for so long is reported once, in ticks.
_REPORTED_AFTER = 30_000_000


class RangePositions:
    """The partitions of one source: how far each was read, and the next ranges."""

    def __init__(self, source: Source, stopped: Callable[[], bool] = lambda: False, *, temporary: bool = False) -> None:
        assert isinstance(source.origin, AdapterRead)
        self.source, self.adapter = source, source.origin.adapter
        #: Whether the query is being stopped: then a service that does not answer is not waited for.
        self._stopped = stopped
        #: Whether the query does not continue, and leaves the place as it was; whether it has created something there.
        self._temporary, self._created = temporary, False
        #: Rows timed by arrival are in order across partitions, too: one of them at a time.
        self._one = isinstance(source.lifetime, Arrival)
        #: For every known partition, the next offset, and when new rows were last seen, in ticks of the clock.
        self.next: dict[str, int] = {}
        #: Where each was begun, or was continued after a gap.
        self.began: dict[str, int] = {}
        self.heard: dict[str, int] = {}
        #: Offsets up to which partitions may be read for now, and no others; None: there is no bound.
        self.hold: Mapping[str, int] | None = None
        #: Whether the place does not learn how far it was read, because another query has read further.
        self.quiet = False
        #: Where partitions ended at the latest look, and how many offsets wait.
        self.ends: dict[str, int] = {}
        self.waiting = 0
        self.news = {"lost_offsets": 0}
        #: Positions are few numbers, and have no segments; sources of files have.
        self.seen = Trace(lambda rows: rows)
        #: Whether a partition begins elsewhere than at its first row: a restart would choose another place.
        self.chosen = False
        self._looked = False
        #: The next offsets as of the last commit.
        self._committed: dict[str, int] = {}
        self._acknowledged: dict[str, int] = {}
        self._reported: set[str] = set()

    def pending(self, rows: int, clock: int) -> list[ReadRange]:
        """The ranges to read with the next batch, of at most about `rows` rows in all."""
        if self._temporary and not self._looked:
            self._created = not patiently(self.adapter.exists, str(self.source.origin), self._stopped)
        return patiently(lambda: self._pending(rows, clock), str(self.source.origin), self._stopped)

    def _pending(self, rows: int, clock: int) -> list[ReadRange]:
        reached = self.adapter.offsets(self.next)
        ready: list[tuple[str, Offsets]] = []
        for partition in sorted(reached):
            offsets = reached[partition]
            start = self._start(partition, offsets, clock)
            if offsets.end > start:
                self.heard[partition] = clock
            end = offsets.end if self.hold is None else min(offsets.end, self.hold.get(partition, start))
            if end > start:
                ready.append((partition, Offsets(start, end)))
        self._looked = True
        self.ends = {partition: offsets.end for partition, offsets in reached.items()}
        self.waiting = sum(offsets.end - offsets.first for _, offsets in ready)
        return self._bounded(ready[:1] if self._one else ready, rows)

    def _start(self, partition: str, offsets: Offsets, clock: int) -> int:
        """Where the next range of a partition starts."""
        if partition not in self.next:
            begin = offsets.first if self._looked else self.adapter.begin(partition, offsets)
            self.next[partition] = self.began[partition] = begin
            self.chosen = self.chosen or begin != offsets.first
            self.heard[partition] = clock
        start = self.next[partition]
        if start < offsets.first:
            self._gap(partition, start, offsets)
        if offsets.end < start:
            raise SourceError(
                f"{self.source.origin}: {partition} ends before the offset up to which it was read: it was replaced",
                given=f"{partition} ends at {offsets.end:,}, and was read up to {start:,}",
                instead="a new checkpoint, which reads everything again",
            )
        return self.next[partition]

    def _gap(self, partition: str, start: int, offsets: Offsets) -> None:
        """Rows that were never read are no longer stored."""
        missing = offsets.first - start
        what = f"{self.source.origin}: {missing:,} offsets of {partition} are no longer stored, and were never read"
        if self.adapter.on_gap == "raise":
            raise SourceError(
                what,
                given=f"offsets {start:,} to {offsets.first - 1:,}",
                allowed="starting again while they are still stored",
                instead="on_gap='continue', which counts them and reads on",
            )
        _log.warning("%s: offsets %d to %d; it reads on", what, start, offsets.first - 1)
        self.news["lost_offsets"] += missing
        self.next[partition] = self.began[partition] = offsets.first

    def _bounded(self, ready: Sequence[tuple[str, Offsets]], rows: int) -> list[ReadRange]:
        """Ranges of about this many rows: partitions with less take what they have, the others an equal share."""
        left, ranges = rows, []
        waiting = sorted(ready, key=lambda item: item[1].end - item[1].first)
        for place, (partition, offsets) in enumerate(waiting):
            share = max(1, left // (len(waiting) - place))
            end = self.adapter.limit(partition, offsets.first, offsets.end, share)
            ranges.append(ReadRange(partition, offsets.first, end))
            left -= min(end - offsets.first, share)
        return sorted(ranges, key=lambda part: part.partition)

    def begins(self) -> dict[str, int]:
        """Where partitions begin that are new since the last commit, or had a gap."""
        return {name: start for name, start in self.next.items() if self._committed.get(name) != start}

    def adopt(self, begins: Mapping[str, int], clock: int) -> None:
        """Take over where partitions begin, from a plan that another driver may have made."""
        for name, start in begins.items():
            self.heard.setdefault(name, clock)
            if name in self._committed:
                self.news["lost_offsets"] += start - self.next[name]
            self.next[name] = self.began[name] = start
        self._looked = self._looked or bool(begins)

    def silent(self, ranges: Sequence[ReadRange], clock: int) -> tuple[tuple[str, bool], ...]:
        """The partitions without a range, and whether each is idle."""
        if self._one:
            return ()
        idle = self.source.policy.idle
        read = {part.partition for part in ranges}
        names = [partition for partition in sorted(self.next) if partition not in read]
        return tuple((name, idle is not None and clock - self.heard[name] >= idle) for name in names)

    def report_holding(self, reached: Mapping[str, Sequence[int]]) -> None:
        """Report partitions that have held back their source for long while others had rows, each once.

        `reached` has the highest time of every partition that had rows.
        """
        policy = self.source.policy
        if self._one or policy.idle is not None or isinstance(policy, Heartbeat) or len(self.heard) < 2:
            return
        newest = max(self.heard.values())
        highest = {partition: reached.get(partition, (NEG_INFINITY,))[0] for partition in self.heard}
        least = min(highest.values())
        for partition in sorted(self.heard):
            silent = newest - self.heard[partition] > _REPORTED_AFTER
            if not silent or highest[partition] > least or partition in self._reported:
                continue
            self._reported.add(partition)
            _log.warning(
                "%s: no new rows of %s since %s; it holds back the progress of its source; "
                "progress=hr.advance(..., idle='1 minute') would let the others go on",
                self.source.origin, partition, datetime.fromtimestamp(self.heard[partition] // 1_000_000, UTC),
            )  # fmt: skip

    def take(self, ends: Mapping[str, int]) -> None:
        """Record how far partitions have been read; `commit` follows."""
        self.waiting = max(0, self.waiting - sum(end - self.next.get(name, end) for name, end in ends.items()))
        self.next |= ends

    def commit(self) -> dict[str, int]:
        """All that was read is committed, so the place may forget it; gives how far that is."""
        self._committed = dict(self.next)
        return self._committed

    def acknowledge(self) -> None:
        """Pass on how far committed batches have read, and no further; failures are left to the next time."""
        if not self._temporary and not self.quiet and self._committed != self._acknowledged:
            try:
                self.adapter.acknowledge(dict(self._committed))
                self._acknowledged = dict(self._committed)
            except ConnectionError as error:
                _log.info("%s: positions were not acknowledged: %s", self.source.origin, error)

    def close(self) -> None:
        """Release the source, at the end of the query."""
        self.acknowledge()
        if self._created:
            try:
                self.adapter.drop()
            except HeadraceError as error:
                _log.warning("%s: what was created for it is left behind: %s", self.source.origin, error.message)
        self.adapter.close()

    def saved(self) -> dict[str, Any]:
        """All of it, as JSON values."""
        return {
            "scalars": {"next": dict(self.next), "began": dict(self.began), "heard": dict(self.heard)}, "traces": {}
        }  # fmt: skip

    def restore(self, saved: Mapping[str, Any], held: Mapping[str, Segment]) -> None:  # noqa: ARG002 - as files do
        """Restore a saved value."""
        numbers = saved["scalars"]
        self.next, self.heard = dict(numbers["next"]), dict(numbers["heard"])
        self.began = dict(numbers.get("began", {}))  # an earlier Headrace had none
        self._committed = dict(self.next)
        self._looked = True
