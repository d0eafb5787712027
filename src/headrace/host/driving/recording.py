"""Recordings: what a query needs to run its batches again, kept for a time (`start(..., record="1 h")`).

A batch runs again from the state before it, and from the rows that it read (`replay.py`). The commit of the batch
before names the state, and the commit of the batch has its plan. So a recording keeps commits, for so long after their
batch, instead of the last few; and clean-up removes them (`store/cleanup.py`). Time is that of the clock: the events of
a query may stand still, and a recording must not grow then.

Most sources give the rows of a plan again: files, topics, logs of tables, streams of a server. Those that do not (the
changes of a database, lines of a host, rows that Spark has read) are *recorded*: intake tasks write what ingress has
accepted, and what it has diverted, with its reports, as blocks of the store, and the commit of the batch names them. So
there is a recording of a batch exactly if there is its commit, whatever dies when; an attempt that fails leaves blocks
that no commit names.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.changes import Changes
from headrace.host.driving.trips import BatchResult
from headrace.io.ingress import ChannelReport
from headrace.io.origins import AdapterRead, Files
from headrace.operators.kernel import Data as OperatorData
from headrace.pieces import Data, ipc_pieces
from headrace.plan.nodes import DIVERTED, Node, Source
from headrace.progress import Progress
from headrace.stages.cut import Line
from headrace.store.blocks import BlockReader, Ledger, WrittenBlocks
from headrace.store.cleanup import Cleaner
from headrace.store.log import Commit
from headrace.store.storage import Storage

__all__ = ["InputTap", "RecordedInput", "recorded_blocks", "recorded_inputs", "recorded_sources", "recording_of"]

_ACCEPTED, _DIVERTED = "accepted", "diverted"
#: Accepted and diverted events of a source, and the reports of its channels.
RecordedInput = tuple[list[tuple[Changes, Changes]], list[ChannelReport]]


def recorded_sources(line: Line, passing: Sequence[str]) -> frozenset[str]:
    """The sources whose rows cannot be read again, by fingerprint; files in the directories `passing` are removed."""

    def passes(source: Source) -> bool:
        if isinstance(source.origin, AdapterRead):
            return not source.origin.adapter.keeps_rows
        return isinstance(source.origin, Files) and source.origin.path in passing

    return frozenset(source.fingerprint for source in line.sources if passes(source))


@dataclass
class InputTap:
    """Takes what ingress has judged in an intake task, and nothing else."""

    judged: list[tuple[Changes, Changes]] = field(default_factory=list)

    def wait(self, source: Source, seconds: float) -> None: ...

    def read(self, source: Source, rows: int, judged: Sequence[tuple[Changes, Changes]], seconds: float) -> None:  # noqa: ARG002
        self.judged += judged

    def step(self, node: Node, rows: int, output: OperatorData, progress: Progress | None, seconds: float) -> None: ...

    def blocks(self) -> dict[str, Data]:
        """The events as blocks: those with rows, accepted ones first."""
        found: dict[str, Data] = {}
        for kind, parts in zip((_ACCEPTED, _DIVERTED), zip(*self.judged, strict=True), strict=False):
            rows = [part.to_table() for part in parts if len(part)]
            if rows:
                found[f"{kind}-{uuid.uuid4().hex}"] = ipc_pieces(pa.concat_tables(rows))
        return found


def recording_of(result: BatchResult, cleaner: Cleaner, ledger: Ledger) -> dict[str, Any]:
    """What a commit says for those who run its batch again; the ledger gets the blocks that it names.

    The number of trips; of recorded inputs, by source, for each task the blocks and the reports; and for how long
    batches are kept, if the query is recorded.
    """
    found: dict[str, list[Any]] = {}
    for report in result.reports:
        for source, part in report.get("recorded", {}).items():
            written = WrittenBlocks.from_json(part["written"])
            ledger.add(written)
            found.setdefault(source, []).append([[*written.inline, *written.names], part["reports"]])
    return {"trips": len(result.trips), "recorded": found, "recording": cleaner.recording}


def recorded_blocks(record: Mapping[str, Any]) -> list[str]:
    """The blocks of recorded inputs that a commit names."""
    return [name for parts in record["recorded"].values() for names, _ in parts for name in names]


def recorded_inputs(line: Line, storage: Storage, commit: Commit) -> dict[str, RecordedInput]:
    """The recorded inputs of a batch, by source."""
    reader, found = BlockReader(storage, commit), dict[str, RecordedInput]()
    for source in line.sources:
        for names, of_task in commit.record.get("recorded", {}).get(source.fingerprint, ()):
            judged, reports = found.setdefault(source.fingerprint, ([], []))
            judged += [_events(source, reader, name) for name in names]
            reports += [ChannelReport.from_json(one) for one in of_task]
    return found


def _events(source: Source, reader: BlockReader, name: str) -> tuple[Changes, Changes]:
    """The events of a block, accepted or diverted, and none of the other kind."""
    events = Changes.from_table(pa.ipc.open_stream(reader.block(name)).read_all())
    if name.startswith(_ACCEPTED):
        return events, Changes.empty(DIVERTED)
    return Changes.empty(source.schema), events
