"""Level 0: a task reads a part of a source, turns it into changes, and runs the linear operators of the level."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import concat
from headrace.io.decoded import DecodedBlock
from headrace.io.ingress import Channel, ChannelReport, RowLookup
from headrace.io.reading import shown_path, whole_rows
from headrace.operators.aggregate.accumulators import Layout
from headrace.operators.aggregate.combine import FIRST, LAST, compact
from headrace.operators.registry import linear_of
from headrace.plan.nodes import Combine, Diverted, LoopStart, Node, Output, Source
from headrace.progress import Progress
from headrace.stages.cut import Line
from headrace.stages.message import REPORTS, RESULT, Message, split

__all__ = ["Intake", "circulated"]

#: Blocks with fewer rows wait for others, and run through the operators together: each run has a fixed cost.
_TOGETHER = 20_000


class Intake:
    """One task of one source in one batch."""

    def __init__(
        self, line: Line, source: Source, start: Progress, buckets: int, sender: int, clock: int | None = None
    ) -> None:
        self.line, self.source, self.start, self.buckets, self.sender = line, source, start, buckets, sender
        self.clock = clock
        self.channel = Channel(source, start, clock)
        self._reports: list[ChannelReport] = []
        self._waiting: list[tuple[Changes, Changes]] = []
        self._rows = 0
        self._ready: dict[int, list[pa.Table]] = {edge.number: [] for edge in line.edges if edge.start == 0}
        #: The outputs without a stage.
        self._outputs = [(i, o) for i, o in enumerate(line.outputs) if line.levels[o.fingerprint] == 0]

    def next_channel(self, channel: Channel | None = None) -> None:
        """Begin another channel; by default another file: only the promises of earlier batches apply to its rows."""
        self._reports.append(self.channel.report)
        self.channel = channel or Channel(self.source, self.start, self.clock)

    def read(self, block: DecodedBlock, path: str | None = None) -> None:
        """Read a decoded block, of the file at `path` if there is one."""
        self.channel.file = shown_path(self.source, path)
        known = self.channel.file is not None
        if path is not None and block.begins:
            self.channel.begin_file()
        if block.table.num_rows:
            full_rows = whole_rows(self.source, path, block) if path is not None else None
            self.take(block.table, full_rows, block.lines if known else None)
        if block.refused.num_rows:
            reasons, texts = (block.refused[name].to_pylist() for name in ("reason", "raw"))
            lines = block.refused["line"] if known else None
            self._add(Changes.empty(self.source.schema), self.channel.refuse(reasons, texts, lines))
        if block.file != "same":
            self.channel.report.counts[f"{block.file}_files"] += 1
        self.channel.report.counts["lost_offsets"] += block.lost

    def take(self, table: pa.Table, full_rows: RowLookup | None = None, lines: NDArray[np.int64] | None = None) -> None:
        """Take a block of rows."""
        self._add(*self.channel.take(table, full_rows, lines))

    def _add(self, accepted: Changes, diverted: Changes) -> None:
        self._waiting.append((accepted, diverted))
        self._rows += len(accepted) + len(diverted)
        if self._rows >= _TOGETHER:
            self._run()

    def _run(self) -> None:
        """Run the rows that wait through the operators of the level."""
        accepted, diverted = (Changes.concat(parts) for parts in zip(*self._waiting, strict=True))
        self._waiting, self._rows = [], 0
        outputs: dict[str, Changes | pa.Table] = {self.source.fingerprint: accepted}
        for node in self.line.at(0):
            if isinstance(node, Diverted):
                if node.source == self.source:
                    outputs[node.fingerprint] = diverted
            elif not isinstance(node, (Source, Output)):
                parts = [outputs[child.fingerprint] for child in node.inputs if child.fingerprint in outputs]
                changes = [part for part in parts if isinstance(part, Changes)]
                if changes:
                    outputs[node.fingerprint] = linear_of(node)(node, Changes.concat(changes))
        for edge in self.line.edges:
            if edge.start == 0 and edge.producer.fingerprint in outputs:
                self._keep(edge.number, outputs[edge.producer.fingerprint])
        for number, output in self._outputs:
            if output.input.fingerprint in outputs:
                self._keep(RESULT - number, outputs[output.input.fingerprint])

    def _keep(self, edge: int, data: Changes | pa.Table) -> None:
        table = data.to_table() if isinstance(data, Changes) else data
        if table.num_rows:
            self._ready.setdefault(edge, []).append(table)

    def finish(self) -> Iterable[Message]:
        """All messages for the next level: rows by bucket, and the report for every bucket."""
        self._reports.append(self.channel.report)
        if self._waiting:
            self._run()
        for edge in self.line.edges:
            if self._ready.get(edge.number):
                table = _merged(edge.producer, self._ready[edge.number])
                for bucket, rows in enumerate(split(table, edge.route, self.buckets, self.sender)):
                    if rows is not None:
                        yield Message(bucket, edge.number, rows)
        for number, _ in self._outputs:
            if self._ready.get(RESULT - number):
                yield Message(self.sender % self.buckets, RESULT - number, concat(self._ready[RESULT - number]))
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


def _merged(producer: Node, tables: list[pa.Table]) -> pa.Table:
    table = concat(tables)
    if isinstance(producer, Combine) and len(tables) > 1:
        return compact(table, Layout(producer.aggregate), [FIRST, LAST])
    return table
