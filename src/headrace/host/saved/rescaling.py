"""Dividing the state of a stopped query among another number of buckets.

The hash of some columns decides the bucket of a trace's row, and a query stores which columns (`stages/declared.py`).
Rescaling checks that every row is in its bucket, and divides all rows anew. Numbers beside the traces are the same in
all buckets, or are merged as their operator declares. An operator that does not declare this, or does not comply, is
an error that names it.

The new state is a **separate batch**: it has no input and no output, its state is that of the batch before, and its
commit has the new number of buckets. So it exists completely or not at all, like any batch, and the protocol of
`headrace.store` holds: this process claims an epoch and commits the next batch. A driver that is about to commit that
batch is too late or too early: if too late, it finds the commit and stops, because it has another number of buckets; if
too early, this process finds its commit and begins anew from there. If that batch is already planned, its plan has no
effect, because the commit records what was read: the next batch plans those files again.

The sinks must have the batch before, which is checked: a driver publishes only the outputs of the last commit.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace.columnar import concat
from headrace.errors import CheckpointError
from headrace.host.driving.plan import Plan
from headrace.host.driving.publish import check_published, nothing_more
from headrace.host.saved.folder import SavedCheckpoint
from headrace.host.saved.tables import living
from headrace.operators.recurse.trips import Trips
from headrace.segments import Segment, cut
from headrace.stages.message import bucket_of, split
from headrace.stages.stage import segment_names
from headrace.store.blocks import BlockReader, Ledger, write_blocks
from headrace.store.log import Commit, Log
from headrace.trace import SAVED, Trace, saved_form

__all__ = ["rescale", "rescaled"]

Operators = Mapping[str, Mapping[str, Any]]
_MERGE: dict[str, Callable[[Iterable[int]], int]] = {"min": min, "max": max, "sum": sum}


def rescale(folder: SavedCheckpoint, buckets: int, *, take_over: bool = False) -> None:
    """Divide the state of a stopped query among this number of buckets."""
    if type(buckets) is not int or buckets < 1:
        raise CheckpointError("buckets must be at least 1", given=repr(buckets), allowed="a whole number from 1 on")
    operators = folder.about().get("operators")
    with folder.locked("rescaling", take_over=take_over):
        folder.log.claim()
        while not rescaled(folder.log, operators, buckets):
            pass


def rescaled(log: Log, operators: Operators | None, buckets: int) -> bool:
    """Commit a batch with another number of buckets; False if another driver has committed that batch meanwhile."""
    last = log.last()
    if last is None:
        raise CheckpointError(
            "no batch is committed yet, so there is nothing to divide",
            given=log.storage.place,
            instead="a new checkpoint, with the number of buckets you want",
        )
    if operators is None or "buckets" not in last.record:
        raise CheckpointError(
            "an earlier Headrace committed the last batch, without a description of how its state is divided",
            given=log.storage.place,
            instead="start the query with the checkpoint, let it run a batch, stop it, and try again",
        )
    _check_loops(last)
    check_published(log.storage, last)
    if last.record["buckets"] == buckets:
        return True
    division = _Division(log, last, operators, buckets)
    return log.commit(division.commit())


class _Division:
    """Divides the state of a commit among other buckets."""

    def __init__(self, log: Log, last: Commit, operators: Operators, buckets: int) -> None:
        self.log, self.last, self.operators, self.buckets = log, last, operators, buckets
        self.before = int(last.record["buckets"])
        self.reader = BlockReader(log.storage, last)
        self.ledger = Ledger.of(last)

    def commit(self) -> Commit:
        """The next batch, which only divides the state anew."""
        old, batch = self.last.record, self.last.batch + 1
        state = {f: self._operator(f, states) for f, states in old["state"].items()}
        record = {
            **old,
            "plan": Plan().to_json(),
            "time": time.time(),
            "buckets": self.buckets,
            "outputs": [nothing_more(output) for output in old["outputs"]],
            "state": state,
            "stages": self._stages(),
        }
        operators = [operator for states in state.values() for operator in states.values()]
        self.ledger.keep([*segment_names([*operators, *old["positions"].values()]), *old["feedback"]])
        self.ledger.unload(self.log.storage, batch, self.log.epoch)
        return Commit(batch, self.log.epoch, record, self.ledger.files, self.ledger.blocks, self.ledger.inline)

    def _stages(self) -> dict[str, Any]:
        """The stages of the new buckets; the trips of loops are the same in all buckets."""
        stages = {}
        for place, stage in self.last.record["stages"].items():
            level, _, bucket = place.partition("/")
            if bucket == "0":
                for new in range(self.buckets):
                    stages[f"{level}/{new}"] = {"token": uuid.uuid4().hex, "trips": stage["trips"]}
        return stages

    def _operator(self, fingerprint: str, states: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The state of an operator in the new buckets."""
        old = [states[str(bucket)] for bucket in range(self.before)]
        if not any(part["traces"] or part["scalars"] for part in old):
            return {str(bucket): {"scalars": {}, "traces": {}} for bucket in range(self.buckets)}
        declaration = self.operators.get(fingerprint)
        if declaration is None or declaration["routes"] is None:
            raise self._refused(fingerprint, "does not declare how its state is divided")
        if declaration["spread"] and self.buckets == 1:
            raise self._refused(fingerprint, "is another operator where there is only one bucket", "buckets=2 or more")
        if any(part["traces"].keys() != declaration["routes"].keys() for part in old):
            raise self._refused(fingerprint, "has other traces than it declares")
        scalars = self._scalars(fingerprint, [part["scalars"] for part in old])
        new: list[dict[str, dict[str, Any]]] = [{"scalars": dict(numbers), "traces": {}} for numbers in scalars]
        for name, route in declaration["routes"].items():
            parts = self._trace(fingerprint, name, [part["traces"][name] for part in old], route)
            for state, part in zip(new, parts, strict=True):
                state["traces"][name] = part
        return {str(bucket): state for bucket, state in enumerate(new)}

    def _scalars(self, fingerprint: str, old: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
        """The numbers of every new bucket."""
        merged = self.operators[fingerprint]["merged"]
        new: list[dict[str, int]] = [{} for _ in range(self.buckets)]
        for name in old[0]:
            values = [numbers[name] for numbers in old]
            if name not in merged and len(set(values)) > 1:
                raise self._refused(fingerprint, f"has different values of {name!r} in its buckets")
            value = _MERGE[merged.get(name, "min")](values)
            for bucket, numbers in enumerate(new):
                numbers[name] = 0 if bucket and merged.get(name) == "sum" else value
        return new

    def _trace(
        self, fingerprint: str, name: str, old: Sequence[Mapping[str, Any]], route: Sequence[str]
    ) -> list[dict[str, Any]]:
        """A trace in every new bucket, as saved; its rows are written as segments."""
        # Rows up to the floor are forgotten; rows below another bucket's floor are dropped next time.
        floor = min(trace["floor"] for trace in old)
        marks = {key: value for key, value in old[0].items() if key not in SAVED}
        new = [_NewTrace(self._write) for _ in range(self.buckets)]
        for bucket, trace in enumerate(old):
            for run in living(trace, self.reader):
                for rows in run:  # segment by segment: state may be larger than memory
                    self._check_routes(fingerprint, name, rows, route, bucket)
                    for writer, part in zip(new, split(rows, tuple(route), self.buckets, 0), strict=True):
                        if part is not None:
                            writer.add(part)
                for writer in new:
                    writer.end_run()
        return [writer.saved(floor) | marks for writer in new]

    def _check_routes(self, fingerprint: str, name: str, rows: pa.Table, route: Sequence[str], bucket: int) -> None:
        """`CheckpointError` unless rows are in the buckets that the operator declares."""
        if not set(route) <= set(rows.column_names):
            raise self._refused(fingerprint, f"does not keep {', '.join(route)} in {name!r}")
        if (bucket_of(rows, tuple(route), self.before, bucket) != bucket).any():
            raise self._refused(fingerprint, f"has rows of {name!r} in other buckets than it declares")

    def _write(self, segments: Sequence[Segment]) -> None:
        blocks = {segment.name: segment.save() for segment in segments}
        self.ledger.add(write_blocks(self.log.storage, self.last.batch + 1, self.log.epoch, blocks))

    def _refused(self, fingerprint: str, why: str, allowed: str = "") -> CheckpointError:
        what = self.operators.get(fingerprint, {"operator": fingerprint})["operator"]
        return CheckpointError(
            f"the state cannot be divided among other buckets: {what} {why}",
            given=f"buckets={self.buckets}",
            allowed=allowed or f"buckets={self.before}",
            instead="a new checkpoint with new sinks and the number of buckets you want, which reads all input again",
        )


class _NewTrace:
    """A trace of a new bucket, whose rows come run by run, and in the order of hashes."""

    def __init__(self, write: Callable[[Sequence[Segment]], None]) -> None:
        self._write = write
        self._runs: list[list[tuple[str, list[int]]]] = [[]]
        self._waiting: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Add the next rows of the run."""
        self._waiting.append(rows)
        if sum(table.num_rows for table in self._waiting) >= Trace.block:
            self._store()

    def end_run(self) -> None:
        """End the run."""
        self._store()
        if self._runs[-1]:
            self._runs.append([])

    def _store(self) -> None:
        parts = cut(concat(self._waiting), Trace.block) if self._waiting else []
        self._write([part.segment for part in parts])
        self._runs[-1] += [part.saved() for part in parts]
        self._waiting = []

    def saved(self, floor: int) -> dict[str, Any]:
        """The trace, as saved."""
        return saved_form(floor, self._runs[:-1])


def _check_loops(last: Commit) -> None:
    """`CheckpointError` if an earlier Headrace saved the progress of loops in another format."""
    for stage in last.record["stages"].values():
        for trips in stage["trips"].values():
            try:
                Trips.from_json(trips)
            except (TypeError, KeyError, ValueError) as error:
                raise CheckpointError(
                    "the query has loops across buckets, whose progress an earlier Headrace saved in another format",
                    given=f"batch {last.batch}",
                    instead="a new checkpoint with new sinks, which reads all input again",
                ) from error
