"""Level 0: a task reads a part of a source, turns it into changes, and runs the linear operators of the level.

Rows are judged in their order, because each may be late by those before it. What follows needs nothing of other rows:
if a host passes `workers`, the operators run in threads, piece by piece, while the next rows are judged; there
each piece is also divided by bucket. The reports of a task, which the next batch needs, are there when its rows are
judged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future
from itertools import pairwise
from time import perf_counter
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import concat
from headrace.io.decoded import DecodedBlock
from headrace.io.ingress import Channel, ChannelReport
from headrace.io.reading import shown_path, whole_rows
from headrace.io.shedding import Shedder
from headrace.operators.aggregate.accumulators import Layout
from headrace.operators.aggregate.combine import FIRST, LAST, compact
from headrace.operators.registry import linear_of
from headrace.plan.nodes import DIVERTED, Combine, Diverted, LoopStart, Node, Output, Source
from headrace.progress import Progress
from headrace.stages.cut import Line, PlanEdge
from headrace.stages.measures import Tap
from headrace.stages.message import REPORTS, RESULT, Message, split

__all__ = ["Intake", "circulated"]

#: Blocks with fewer rows wait for others, and run through the operators together: each run has a fixed cost.
_TOGETHER = 20_000
#: So many blocks of a task may run, or wait for a thread, before the next one is judged.
_MOST_RUNNING = 8
#: Threads get pieces of about so many rows: their columns stay in a core's cache.
_PIECE = 100_000


#: Rows to send, by edge, for each bucket; what is combined first, and outputs without a stage, have one table.
_Sent: TypeAlias = dict[int, list[pa.Table | None]]


class Intake:
    """One task of one source in one batch."""

    def __init__(
        self,
        line: Line,
        source: Source,
        start: Progress,
        buckets: int,
        sender: int,
        clock: int | None = None,
        workers: Executor | None = None,
        tap: Tap | None = None,
    ) -> None:
        self.line, self.source, self.start, self.buckets, self.sender = line, source, start, buckets, sender
        self.clock, self.workers, self.tap = clock, workers, tap
        self.channel = Channel(source, start, clock)
        self._shedder: Shedder | None = None
        self._reports: list[ChannelReport] = []
        self._waiting: list[tuple[Changes, Changes]] = []
        self._rows = 0
        #: Rows to send of the blocks that have been run; and those that are being run, in their order.
        self._done: list[_Sent] = []
        self._running: deque[Future[_Sent]] = deque()
        #: The outputs without a stage.
        self._outputs = [(i, o) for i, o in enumerate(line.outputs) if line.levels[o.fingerprint] == 0]

    def begin_part(self, shedder: Shedder | None) -> None:
        """Begin a file or a range, of which `shedder` sheds rows; before the channel of the part, if it has its own."""
        if self._shedder is not None:
            self._add(self._shedder.end(self.channel), Changes.empty(DIVERTED))
            if self.tap is not None:  # its other rows were not known before
                self.tap.read(self.source, 0, self._waiting[-1:], 0.0)
        self._shedder = shedder

    def next_channel(self, channel: Channel | None = None) -> None:
        """Begin another channel; by default another file: only the promises of earlier batches apply to its rows."""
        self._reports.append(self.channel.report)
        self.channel = channel or Channel(self.source, self.start, self.clock)

    def read(self, block: DecodedBlock, path: str | None = None) -> None:
        """Read a decoded block, of the file at `path` if there is one."""
        start, waiting = perf_counter(), len(self._waiting)
        self._judge(block, path)
        if self.tap is not None:
            rows = block.table.num_rows + block.refused.num_rows
            self.tap.read(self.source, rows, self._waiting[waiting:], perf_counter() - start)
        if self._rows >= _TOGETHER:
            self._send()

    def _judge(self, block: DecodedBlock, path: str | None) -> None:
        self.channel.file = shown_path(self.source, path)
        known = self.channel.file is not None
        if path is not None and block.begins:
            self.channel.begin_file()
        if block.table.num_rows:
            full_rows = whole_rows(self.source, path, block)
            lines = block.lines if known else None
            refused = block.refused.num_rows > 0
            accepted, diverted = self.channel.take(block.table, full_rows, lines, refused_between=refused)
            if self._shedder is not None:
                self._shedder.take(accepted)
                accepted = Changes.empty(self.source.schema)
            self._add(accepted, diverted)
        if block.refused.num_rows:
            self._add(Changes.empty(self.source.schema), self.channel.refuse(block))
        if block.file != "same":
            self.channel.report.counts[f"{block.file}_files"] += 1
        for name, count in block.drift.items():
            self.channel.report.counts[name] += count
        self.channel.report.counts["lost_offsets"] += block.lost

    def _add(self, accepted: Changes, diverted: Changes) -> None:
        self._waiting.append((accepted, diverted))
        self._rows += len(accepted) + len(diverted)

    def _send(self) -> None:
        """Run the rows that wait through the operators of the level; many of them in threads, if there are some."""
        waiting, rows = self._waiting, self._rows
        self._waiting, self._rows = [], 0
        if self.workers is None or (rows < _PIECE and not self._running):
            self._done.append(self._run(waiting))
            return
        for part in _pieces(waiting):
            self._running.append(self.workers.submit(self._run, part))
        while len(self._running) > _MOST_RUNNING:
            self._done.append(self._running.popleft().result())

    def _run(self, waiting: list[tuple[Changes, Changes]]) -> _Sent:
        """The rows to send after the operators of the level."""
        accepted, diverted = (Changes.concat(parts) for parts in zip(*waiting, strict=True))
        outputs: dict[str, Changes | pa.Table] = {self.source.fingerprint: accepted}
        for node in self.line.at(0):
            if isinstance(node, Diverted):
                if node.source == self.source:
                    outputs[node.fingerprint] = diverted
            elif not isinstance(node, (Source, Output)):
                parts = [outputs[child.fingerprint] for child in node.inputs if child.fingerprint in outputs]
                changes = [part for part in parts if isinstance(part, Changes)]
                if changes:
                    outputs[node.fingerprint] = self._linear(node, Changes.concat(changes))
        sent: _Sent = {}
        for edge in self.line.edges:
            if edge.start == 0 and edge.producer.fingerprint in outputs:
                table = _as_table(outputs[edge.producer.fingerprint])
                sent[edge.number] = [table] if isinstance(edge.producer, Combine) else self._split(table, edge)
        for number, output in self._outputs:
            if output.input.fingerprint in outputs:
                sent[RESULT - number] = [_as_table(outputs[output.input.fingerprint])]
        return sent

    def _linear(self, node: Node, changes: Changes) -> Changes | pa.Table:
        start = perf_counter()
        output = linear_of(node)(node, changes)
        if self.tap is not None:
            self.tap.step(node, len(changes), output, None, perf_counter() - start)
        return output

    def _split(self, table: pa.Table, edge: PlanEdge) -> list[pa.Table | None]:
        return split(table, edge.route, self.buckets, self.sender)

    def replay(self, judged: Sequence[tuple[Changes, Changes]], reports: Sequence[ChannelReport]) -> None:
        """Take accepted and diverted events that another intake has judged, with its reports."""
        self._waiting += judged
        self._reports += reports
        if self.tap is not None:
            self.tap.read(self.source, sum(len(part) for pair in judged for part in pair), judged, 0.0)

    def end(self) -> list[ChannelReport]:
        """End the reading, and return the reports of the channels."""
        self.begin_part(None)
        self._reports.append(self.channel.report)
        return self._reports

    def messages(self) -> Iterable[Message]:
        """All messages for the next level, once the reading has ended: rows by bucket, the report for every bucket."""
        if self._waiting:
            self._send()
        self._done += [running.result() for running in self._running]
        for edge in self.line.edges:
            parts = [done[edge.number] for done in self._done if edge.number in done]
            if isinstance(edge.producer, Combine):
                tables = [table for part in parts for table in part if table is not None and table.num_rows]
                parts = [self._split(_merged(edge.producer, tables), edge)] if tables else []
            for bucket, pieces in enumerate(zip(*parts, strict=True)):
                rows = [piece for piece in pieces if piece is not None]
                if rows:
                    yield Message(bucket, edge.number, concat(rows))
        for number, _ in self._outputs:
            tables = [table for done in self._done for table in done.get(RESULT - number, []) if table is not None]
            tables = [table for table in tables if table.num_rows]
            if tables:
                yield Message(self.sender % self.buckets, RESULT - number, concat(tables))
        reports = {self.source.fingerprint: [report.to_json() for report in self._reports]}
        for bucket in range(self.buckets):
            yield Message(bucket, REPORTS, extra=reports)


def circulated(line: Line, back: Message, buckets: int, sender: int) -> Iterable[Message]:
    """The feedback of a loop from the trip before: rows by bucket, and the report for every bucket."""
    loop = back.extra["loop"]
    if back.table is not None and back.table.num_rows:
        outputs: dict[str, Changes] = {}
        for node in line.at(0):
            if isinstance(node, LoopStart) and node.name == loop:
                outputs[node.fingerprint] = Changes.from_table(back.table)
            parts = [outputs[child.fingerprint] for child in node.inputs if child.fingerprint in outputs]
            if parts:
                outputs[node.fingerprint] = linear_of(node)(node, Changes.concat(parts))
        for edge in line.edges:
            if edge.start == 0 and edge.producer.fingerprint in outputs:
                table = outputs[edge.producer.fingerprint].to_table()
                for bucket, rows in enumerate(split(table, edge.route, buckets, sender)):
                    if rows is not None:
                        yield Message(bucket, edge.number, rows)
    report = {loop: {back.extra["bucket"]: back.extra["report"]}}
    for bucket in range(buckets):
        yield Message(bucket, REPORTS, extra={"loops": report})


def _pieces(waiting: list[tuple[Changes, Changes]]) -> Iterable[list[tuple[Changes, Changes]]]:
    """Large blocks in pieces, for several threads."""
    if len(waiting) > 1 or len(waiting[0][0]) < 2 * _PIECE:
        yield waiting
        return
    (accepted, diverted), count = waiting[0], len(waiting[0][0]) // _PIECE
    bounds = np.linspace(0, len(accepted), count + 1).astype(int).tolist()
    for start, stop in pairwise(bounds):
        yield [(accepted.slice(start, stop), diverted if start == 0 else Changes.empty(DIVERTED))]


def _as_table(data: Changes | pa.Table) -> pa.Table:
    return data.to_table() if isinstance(data, Changes) else data


def _merged(producer: Combine, tables: list[pa.Table]) -> pa.Table:
    table = concat(tables)
    return table if len(tables) == 1 else compact(table, Layout(producer.aggregate), [FIRST, LAST])
