"""Backfill: an upgrade whose new query is computed over the input that the old one has read.

1. The new query runs in a checkpoint of its own inside the old one (`upgrade/`), from the beginning of its sources, and
   its outputs go to files there. Its sources are *held* at exactly the positions of the old query: the files that were
   read, and the offsets of partitions. A crash leaves both checkpoints; the next start goes on, and the old query can
   continue meanwhile.
2. Its state is then that of the new query after the same input (rule 1.5), and becomes the next batch of the old log,
   with the corrections of every output (`corrections.py`). From this commit on the checkpoint is that of the new query.

**Side by side** is the same while the old query runs: the first step is repeated for what the old one reads meanwhile,
until the new one has nearly reached it. Then the old one is asked to end between two batches (`Checkpoint.take_over`;
on an object store the new one supersedes it), and the second step follows.

If some of the input no longer exists, the history cannot be computed, and the upgrade is refused.

Rows that are timed by their arrival, and promises that follow a clock, cannot be repeated. Which rows were late may
follow from the files that were read together: a backfill reads them together again, in the order of the old query.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from headrace.errors import CheckpointError
from headrace.host.driving.adoption import carried
from headrace.host.driving.changed import QueryChange
from headrace.host.driving.checkpoint import SCRATCH, Checkpoint, replace_about
from headrace.host.driving.corrections import (
    check_form,
    content,
    correction,
    is_readable,
    promised,
    rows_of_files,
    shown_place,
)
from headrace.host.driving.driver import Driver
from headrace.host.driving.positions import FilePositions
from headrace.host.driving.publish import Publisher, check_published, nothing_more
from headrace.host.driving.ranges import RangePositions
from headrace.host.driving.upgrade import (
    PlannedQuery,
    about_of,
    begin_outputs,
    check_alike,
    check_old,
    dates_of,
    earlier_output,
    freed_if_refused,
    new_output,
)
from headrace.io.adapter import SinkAdapter
from headrace.io.origins import Files
from headrace.io.sinks import FileSink, Memory, Nowhere, Sink
from headrace.meter import working
from headrace.plan.nodes import Source
from headrace.progress import Progress
from headrace.stages.egress import Departure
from headrace.stages.message import RESULT, Message
from headrace.stages.stage import segment_names
from headrace.store.blocks import BlockReader, Ledger, write_blocks
from headrace.store.cleanup import pinned
from headrace.store.log import Commit, Log
from headrace.time import NEG_INFINITY
from headrace.trace import stored_segments

__all__ = ["backfill", "catch_up", "check_backfill"]

_AFRESH = "a new checkpoint and new sinks"
#: A new query that catches up in so many seconds has nearly reached the old one.
_NEAR_SECONDS = 1.0


def check_backfill(change: QueryChange) -> None:
    """`CheckpointError` for a query whose history cannot be computed again."""
    why = change.why_not_backfill()
    if why:
        raise CheckpointError(
            f"upgrade='backfill' is not possible: {why}", given=change.place, instead=f"upgrade='keep', or {_AFRESH}"
        )


def backfill(
    place: Checkpoint, planned: PlannedQuery, stored: dict[str, Any], opened: Callable[[Checkpoint], Driver]
) -> None:
    """Compute the new query over the input of the old one, and continue with its state.

    `opened` opens a driver of the new query with a checkpoint, whose outputs go to `outputs/` in it.
    """
    log = Log(place.storage)
    check_backfill(planned.change(place, stored, log.last()))
    log.claim()
    while True:
        last = log.last()
        change = planned.change(place, stored, last)
        about = about_of(place, planned, change)
        if last is None:
            break
        check_old(place, stored, last)
        check_published(place.storage, last)
        check_alike(change, last)
        with freed_if_refused(change, log.check_owner):
            begin_outputs(change)
            scratch = _scratch(place, planned)
            computed = _computed(change, last, place, opened(scratch))
            upgraded = _Swap(change, last, computed, scratch, log, planned.buckets).commit(about)
        if log.commit(upgraded):
            break
    place.remove_scratch()
    replace_about(place.root, about)


def catch_up(
    place: Checkpoint, planned: PlannedQuery, stored: dict[str, Any], opened: Callable[[Checkpoint], Driver]
) -> None:
    """Compute the new query over what the old one has read, while the old one runs, until it has nearly reached it.

    `backfill` computes the rest when the old one has ended, from the same checkpoint inside the old one.
    """
    log, reached = Log(place.storage), None
    check_backfill(planned.change(place, stored, log.last()))
    while True:
        with pinned(log) as last:
            if last is None or (reached is not None and last.batch <= reached + 1):
                return
            began, change = time.monotonic(), planned.change(place, stored, last)
            check_alike(change, last)
            begin_outputs(change)
            scratch = _scratch(place, planned)
            computed = _computed(change, last, place, opened(scratch))
            reached, seconds = last.batch, time.monotonic() - began
            _Swap(change, last, computed, scratch, log, planned.buckets).check()
        if seconds < _NEAR_SECONDS:
            return


def _scratch(place: Checkpoint, planned: PlannedQuery) -> Checkpoint:
    """The checkpoint of the new query inside the old one."""
    return Checkpoint(f"{place.place}/{SCRATCH}/{planned.line.fingerprint}-{planned.buckets}")


# --- the new query over the same input --------------------------------------------------------------------------------


def _computed(change: QueryChange, last: Commit, place: Checkpoint, driver: Driver) -> Commit | None:
    """The last commit of the new query, after exactly the input of the old one."""
    try:
        reader = BlockReader(place.storage, last)
        held = {}
        for source in driver.job.line.sources:
            old = change.old_sources[source.fingerprint]
            saved = last.record["positions"][old[0]] if old else None
            held[source.fingerprint] = _hold(source, driver, saved, reader)
        with working("the new query over the input of the old one"):
            while (plan := driver.plan(ticks=False)) is not None:
                driver.run(plan)
            driver.settle()
        for check in held.values():
            check()
        _check_rows(change, last, driver.last)
        return driver.last
    finally:
        driver.publisher.close()
        driver.executor.close()


def _check_rows(change: QueryChange, last: Commit, computed: Commit | None) -> None:
    """`CheckpointError` unless unchanged sources have given as many rows as before: some do not say what is gone."""
    origins = [str(source.origin) for source in change.line.sources]
    after = {} if computed is None else computed.record["counts"]
    for source in change.line.sources:
        name = str(source.origin)
        if change.old_sources[source.fingerprint] != [source.fingerprint] or origins.count(name) > 1:
            continue
        old, new = (counts.get(name, {}).get("rows", 0) for counts in (last.record["counts"], after))
        if old != new:
            raise CheckpointError(
                f"the history is gone: the old query has read {old:,} rows, and {new:,} are there",
                given=name,
                instead=f"upgrade='keep', or {_AFRESH}",
            )


def _hold(source: Source, driver: Driver, saved: Mapping[str, Any] | None, reader: BlockReader) -> Callable[[], None]:
    """Hold a source at saved positions, a new one before its start; return a check that it has read up to there."""
    positions = driver.positions.get(source.fingerprint)
    if isinstance(positions, RangePositions):
        return _hold_ranges(source, positions, saved, driver)
    if not isinstance(positions, FilePositions):
        return lambda: None
    if saved is None:
        positions.hold = lambda _: None
        return lambda: None
    assert isinstance(source.origin, Files)
    old = FilePositions(source)
    old.restore(saved, stored_segments(saved["traces"].values(), reader.block))
    positions.hold = old.batches()

    def check() -> None:
        found = positions.read
        if found != old.read:
            raise CheckpointError(
                f"the history is gone: the old query has read {old.read:,} files, of which {found:,} still exist",
                given=str(source.origin),
                instead=f"upgrade='keep', or {_AFRESH}",
            )
        changed = old.altered(positions)
        if changed:
            raise CheckpointError(
                f"the history has changed: {changed[0]!r} is not as it was when the old query read it",
                given=str(source.origin),
                instead=f"upgrade='keep', or {_AFRESH}",
            )

    return check


def _hold_ranges(
    source: Source, positions: RangePositions, saved: Mapping[str, Any] | None, driver: Driver
) -> Callable[[], None]:
    numbers = {"next": {}, "began": {}} if saved is None else saved["scalars"]
    positions.quiet, positions.hold = True, dict(numbers["next"])
    if driver.last is None:
        positions.adopt(numbers["began"], driver.clock())

    def check() -> None:
        wrong = [name for name, end in numbers["next"].items() if positions.next.get(name) != end]
        if wrong or positions.news["lost_offsets"]:
            raise CheckpointError(
                f"the history is gone: rows of {', '.join(wrong) or 'a partition'} are no longer stored",
                given=str(source.origin),
                instead=f"upgrade='keep', or {_AFRESH}",
            )

    return check


# --- the commit -------------------------------------------------------------------------------------------------------


class _Swap:
    """Makes the next batch of the old log, with the state of the new query and the corrections of its outputs."""

    def __init__(
        self, change: QueryChange, last: Commit, computed: Commit | None, scratch: Checkpoint, log: Log, buckets: int
    ) -> None:
        self.change, self.last, self.computed, self.scratch = change, last, computed, scratch
        self.log, self.buckets, self.batch = log, buckets, last.batch + 1
        dates = dates_of(change)
        self.sinks = [sink.showing(dates=dated) for sink, dated in zip(change.sinks, dates, strict=True)]

    def check(self) -> None:
        """`CheckpointError` for outputs that cannot be corrected, while the old query runs and adds to them.

        A correction counts only if the outputs have exactly what the new query has computed.
        """
        before = [self._before(number) for number in range(len(self.sinks))]
        for sink, output in zip(self.sinks, self.change.line.outputs, strict=True):
            if isinstance(sink, FileSink) and is_readable(sink):
                check_form(sink, output.schema)
        try:
            check_published(self.log.storage, self.last)
        except CheckpointError:  # the old query is about to deliver it
            return
        try:
            for number, entry in enumerate(before):
                self._departure(number, entry)
        except FileNotFoundError:  # the old query has merged the files of an output meanwhile
            return
        except CheckpointError:
            last = self.log.last()
            if last is not None and last.batch == self.last.batch:
                raise

    def commit(self, about: dict[str, Any]) -> Commit:
        line = self.change.line
        before = [self._before(number) for number in range(len(self.sinks))]
        departures = [self._departure(number, before[number]) for number in range(len(self.sinks))]
        publisher = Publisher(line.outputs, self.sinks, self.log.storage)
        outputs, rows, _ = publisher.record(self.batch, departures, before)
        for number, entry in enumerate(before):
            if entry.get("unchanged"):
                outputs[number] = {name: value for name, value in entry.items() if name != "unchanged"}
        records = [] if self.computed is None else [self.computed.record]
        unfed = {node.fingerprint for node in line.nodes} if self.computed is None else ()
        record = carried(records, line, self.buckets, outputs, unfed) | {"about": about}
        ledger = self._imported(record)
        ledger.add(write_blocks(self.log.storage, self.batch, self.log.epoch, rows))
        ledger.unload(self.log.storage, self.batch, self.log.epoch)
        return Commit(self.batch, self.log.epoch, record, ledger.files, ledger.blocks, ledger.inline)

    def _imported(self, record: Mapping[str, Any]) -> Ledger:
        """The blocks of the state, written to the old store, file by file."""
        ledger = Ledger()
        if self.computed is None:
            return ledger
        reader = BlockReader(self.scratch.storage, self.computed)
        operators = [state for states in record["state"].values() for state in states.values()]
        by_file: dict[str, list[str]] = {}
        for name in dict.fromkeys(segment_names([*operators, *record["positions"].values()])):
            by_file.setdefault(self.computed.blocks.get(name, ""), []).append(name)
        for names in by_file.values():
            blocks = {name: reader.block(name) for name in names}
            ledger.add(write_blocks(self.log.storage, self.batch, self.log.epoch, blocks))
        return ledger

    def _before(self, number: int) -> dict[str, Any]:
        """The entry of an output before the upgrade."""
        sink, old = self.sinks[number], self.change.old_outputs[number]
        if isinstance(sink, Memory):
            return new_output(sink) | ({"cti": sink.batches[-1][1].cti} if sink.batches else {})
        if isinstance(sink, Nowhere):
            return new_output(sink)
        if old is not None and self.change.is_diverted(number):  # they stay as the old query has judged them
            return nothing_more(self.last.record["outputs"][old]) | {"unchanged": True}
        if old is None:
            self._check_not_repeated(number)
            if not isinstance(sink, FileSink) or (earlier := earlier_output(sink)) is None:
                return new_output(sink)
            if not is_readable(sink):
                raise self._unreadable(sink)
            return earlier | {"cti": promised(sink, self.change.line.outputs[number].schema)}
        entry = nothing_more(self.last.record["outputs"][old])
        if is_readable(sink):
            return entry
        stream = self.change.old_of.get(self.change.line.outputs[number].input.fingerprint)
        if (number, old) in self.change.changed_outputs or stream is None or not self._admits_the_same():
            raise self._unreadable(sink)
        return entry | {"unchanged": True}

    def _check_not_repeated(self, number: int) -> None:
        """Refuse a second copy of a changed stream for a function or a console."""
        sink, old = self.sinks[number], self.change.stored["outputs"]
        if isinstance(sink, SinkAdapter) or is_readable(sink) or not self.change.is_in_process(number):
            return
        free = [place for place in range(len(old)) if place not in self.change.old_outputs]
        if any(not old[place]["place"] for place in free):
            raise self._unreadable(sink)

    def _unreadable(self, sink: Sink) -> CheckpointError:
        return CheckpointError(
            f"the output into {shown_place(sink)} has changed, and what it has cannot be read back to be corrected",
            given="upgrade='backfill'",
            allowed="directories of Parquet files, physical events as JSON lines, memories; with all their batches",
            instead="another directory, topic or table for this output, which then gets the whole history",
        )

    def _admits_the_same(self) -> bool:
        """Whether the sources of the new query have admitted the same numbers of rows as before."""
        counts = {} if self.computed is None else self.computed.record["counts"]
        parts = ("accepted", "diverted", "dropped", "adjusted", "late", "malformed")
        names = {str(source.origin) for source in self.change.line.sources}
        old = self.last.record["counts"]
        return all(old.get(n, {}).get(p, 0) == counts.get(n, {}).get(p, 0) for n in names for p in parts)

    def _departure(self, number: int, before: Mapping[str, Any]) -> Departure:
        """The corrections of an output, as it would leave a batch."""
        output, sink = self.change.line.outputs[number], self.sinks[number]
        entry = {} if self.computed is None else self.computed.record["outputs"][number]
        progress = Progress(entry.get("cti", NEG_INFINITY), entry.get("high", NEG_INFINITY))
        new = rows_of_files(f"{self.scratch.place}/outputs/{number}", output.schema)
        begins = isinstance(sink, Memory) or before.get("new") or not is_readable(sink)
        old = content(sink, output.schema) if isinstance(sink, Memory) or not begins else new.slice(0, 0)
        if before.get("unchanged"):
            new = old = new.slice(0, 0)
        found = correction(sink, old, new, before["cti"], progress.cti, dates=sink.dates)
        return Departure(output, [[Message(0, RESULT - number, found.to_table(), progress)]], progress)
