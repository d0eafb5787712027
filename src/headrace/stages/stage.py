"""A stage in one bucket: runs every operator of its level once per trip, on the arrived messages.

The stage also computes progress. Sources send reports; every bucket gets all of them, so all compute the same CTI. The
progress of linear operators of level 0 follows from that of the sources; other edges carry the progress of the sending
buckets, of which the least counts (rule 3.4).

A loop across buckets begins in the intake, with its feedback of the trip before, and sends reports as sources do.
Besides the progress of its operators, stages compute a guess: what they would promise if the loop brought nothing more
(`operators/recurse/trips.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, replace
from time import perf_counter
from typing import Any

import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import concat
from headrace.io.ingress import ChannelReport, resolve
from headrace.operators.aggregate.merge import empty_partial
from headrace.operators.kernel import Data, Kernel
from headrace.operators.recurse.spread import SpreadLoop
from headrace.operators.recurse.trips import TripReport, Trips
from headrace.operators.registry import kernel_of, linear_of
from headrace.plan.nodes import (
    Admit,
    Combine,
    Failures,
    LoopEnd,
    LoopStart,
    Node,
    Orphans,
    Output,
    PerWindow,
    Source,
)
from headrace.plan.policies import Physical
from headrace.plan.source import RE_NEW
from headrace.progress import Progress
from headrace.stages.cut import Line, PlanEdge
from headrace.stages.measures import Tap
from headrace.stages.message import FEEDBACK, REPORTS, RESULT, STATISTICS, Message, split
from headrace.stages.pickled import PICKLED, carries_states, check_marked, owner_mark
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import Segment

__all__ = ["StageRun", "count_failed", "intake_progress", "segment_names"]


class StageRun:
    """The operators of one level in one bucket, with their state."""

    def __init__(self, line: Line, level: int, bucket: int, buckets: int, tap: Tap | None = None) -> None:
        self.tap = tap
        self.line, self.level, self.bucket, self.buckets = line, level, bucket, buckets
        self.kernels: dict[str, Kernel] = {n.fingerprint: kernel_of(n) for n in line.at(level) if not n.linear}
        self.clocks = {source.fingerprint: Progress() for source in line.sources}
        #: For loops across buckets: the trips that all buckets know, and the guess of each operator.
        self.trips = {end.loop.fingerprint: Trips(end.loop.strategy) for end in line.loops}
        self._guesses: dict[str, int] = {}
        #: The inputs of the latest trip: the columns that decide the bucket, and the number of rows.
        self._arrivals: list[list[Any]] = []
        #: The rows that left each operator in the latest trip.
        self._out: dict[str, int] = {}
        self._carries_states = carries_states(line)

    # --- one batch ---------------------------------------------------------------------------------------------------

    def step(self, messages: Iterable[Message], *, first: bool = True) -> list[Message]:
        """Run one trip, the first of a batch or a later one: messages in, messages out."""
        if self.trips and first:  # only now it is known which trip was the last of the batch before
            self._end_batch()
        arrived = list(messages)
        out = [message for message in arrived if self._passes(message)]
        self._take_reports([m.extra for m in arrived if m.edge == REPORTS])
        data, progress = self._inputs(arrived)
        for node in self.line.at(self.level):
            run = self._run if self.tap is None else self._shown
            data[node.fingerprint], progress[node.fingerprint] = run(node, data, progress)
            self._out[node.fingerprint] = len(data[node.fingerprint])
            self._guesses[node.fingerprint] = self._guess(node, progress)
            out += self._sent(node, data[node.fingerprint], progress[node.fingerprint])
        if not self.trips:
            self._end_batch()
        return [*out, Message(self.bucket, STATISTICS, extra=self._statistics())]

    def _end_batch(self) -> None:
        for kernel in self.kernels.values():
            kernel.end_batch()

    def _passes(self, message: Message) -> bool:
        """Whether a message is for a later level."""
        if message.edge == REPORTS:
            return self.level < self.line.depth
        if message.edge < 0:
            return True
        return self.line.edges[message.edge].to > self.level

    def _take_reports(self, reports: list[dict[str, Any]]) -> None:
        for source in self.line.sources:
            channels = [ChannelReport.from_json(r) for report in reports for r in report.get(source.fingerprint, [])]
            self.clocks[source.fingerprint] = resolve(source.policy, self.clocks[source.fingerprint], channels)
        for loop, trips in self.trips.items():
            by_bucket = {bucket: r for report in reports for bucket, r in report.get("loops", {}).get(loop, {}).items()}
            trips.hear(TripReport(*report) for report in by_bucket.values())

    def _inputs(self, arrived: list[Message]) -> tuple[dict[str, Data], dict[str, Progress]]:
        """The rows of the edges that end here, and their progress, by producer and route."""
        data: dict[str, Data] = {}
        progress = intake_progress(self.line, self.clocks, {name: t.definite for name, t in self.trips.items()})
        for node in self.line.at(0):
            self._guesses[node.fingerprint] = self._guess(node, progress)
        self._arrivals = []
        for edge in self.line.edges:
            if edge.to == self.level:
                arrivals = [m for m in arrived if m.edge == edge.number]
                data[_key(edge)] = _joined(edge.producer, [m.table for m in arrivals if m.table is not None])
                self._arrivals.append([edge.route, len(data[_key(edge)])])
                if edge.start > 0:
                    progress[edge.producer.fingerprint] = Progress.together(
                        [m.progress for m in arrivals if m.progress]
                    )
                    self._guesses[edge.producer.fingerprint] = min(m.extra["guess"] for m in arrivals if m.progress)
        return data, progress

    def _shown(self, node: Node, data: Mapping[str, Data], progress: Mapping[str, Progress]) -> tuple[Data, Progress]:
        assert self.tap is not None
        is_side = isinstance(node, (Failures, Orphans))
        rows = 0 if is_side else sum(len(data[self._place(node, position)]) for position in range(len(node.inputs)))
        start = perf_counter()
        output, reached = self._run(node, data, progress)
        self.tap.step(node, rows, output, reached, perf_counter() - start)
        return output, reached

    def _run(self, node: Node, data: Mapping[str, Data], progress: Mapping[str, Progress]) -> tuple[Data, Progress]:
        if isinstance(node, (Failures, Orphans)):
            side = self.kernels[node.input.fingerprint].side
            return side if side is not None else Changes.empty(node.schema), progress[node.input.fingerprint]
        if isinstance(node, LoopEnd):
            self._meet(node)
        inputs = [data[self._place(node, position)] for position in range(len(node.inputs))]
        reached = [progress[child.fingerprint] for child in node.inputs]
        if not node.linear:
            return self.kernels[node.fingerprint].step(inputs, reached)
        changes = Changes.concat([part for part in inputs if isinstance(part, Changes)])
        return linear_of(node)(node, changes), node.progress(reached)

    def _guess(self, node: Node, progress: Mapping[str, Progress]) -> int:
        """What an operator of a loop would promise if the loop brought nothing more; otherwise what it promises."""
        if isinstance(node, LoopStart):
            return INFINITY
        if node.fingerprint not in self.line.on_loops:
            return progress[node.fingerprint].cti
        below = [self._guesses[child.fingerprint] for child in node.inputs]
        return node.progress([Progress(guess, guess) for guess in below]).cti

    def _meet(self, node: LoopEnd) -> None:
        """Pass the trips and the guess to the end of a loop."""
        kernel = self.kernels[node.fingerprint]
        assert isinstance(kernel, SpreadLoop)
        kernel.trips = self.trips[node.loop.fingerprint]
        kernel.home = min(self._guesses[child.fingerprint] for child in node.inputs)

    def _fed_back(self, node: LoopEnd) -> list[Message]:
        """The feedback of a loop, if there is any; if there is only progress, one bucket sends it for all."""
        kernel = self.kernels[node.fingerprint]
        assert isinstance(kernel, SpreadLoop)
        if not kernel.report.busy and (self.bucket or not kernel.trips.teaches(kernel.home)):
            return []
        report = kernel.report
        extra = {"loop": node.loop.fingerprint, "bucket": self.bucket, "report": astuple(report), "busy": report.busy}
        return [Message(self.bucket, FEEDBACK, kernel.given.to_table(), extra=extra)]

    def _place(self, node: Node, position: int) -> str:
        edge = self.line.edge_to(node, position)
        return node.inputs[position].fingerprint if edge is None else _key(edge)

    def _sent(self, node: Node, data: Data, progress: Progress) -> list[Message]:
        if isinstance(node, Output):
            assert isinstance(data, Changes)
            number = self.line.outputs.index(node)
            return [Message(self.bucket, RESULT - number, data.to_table() if len(data) else None, progress)]
        out = self._fed_back(node) if isinstance(node, LoopEnd) else []
        extra = {"guess": self._guesses[node.fingerprint]}
        for edge in self.line.edges:
            if edge.producer == node:
                table = data.to_table() if isinstance(data, Changes) else data
                parts = split(table, edge.route, self.buckets, self.bucket)
                out += [Message(b, edge.number, rows, progress, extra) for b, rows in enumerate(parts)]
        return out

    def _statistics(self) -> dict[str, Any]:
        operators = {f: k.state() | {"operator": k.node.describe()} for f, k in self.kernels.items() if k.traces}
        ctis = {f: [p.cti, p.high] for f, p in self.clocks.items()}
        orphans = {
            k.node.source.fingerprint: len(k.side)
            for k in self.kernels.values()
            if isinstance(k.node, Admit) and k.side is not None and len(k.side)
        }
        failed: dict[str, int] = {}
        for kernel in self.kernels.values():
            if isinstance(kernel.node, PerWindow) and kernel.side and not self._counted(kernel.node):
                # A correction may retract a failure, which then counts as -1.
                name = ", ".join(map(str, kernel.node.modules))
                failed[name] = failed.get(name, 0) + int(kernel.side.weight.sum())
        here = {"level": self.level, "bucket": self.bucket, "operators": operators, "sources": ctis}
        here |= {"arrivals": self._arrivals, "out": dict(self._out)}
        here["dates"] = [source.fingerprint for source in self.line.sources if source.dates]
        return here | ({"orphans": orphans} if orphans else {}) | ({"failed": failed} if failed else {})

    def _counted(self, node: PerWindow) -> bool:
        """Whether another operator, with early answers, counts the failures of these windows."""
        return node.final and replace(node, final=False).fingerprint in self.kernels

    # --- state -------------------------------------------------------------------------------------------------------

    def segments(self) -> dict[str, Segment]:
        """All segments, by name."""
        return {s.name: s for k in self.kernels.values() for t in k.traces.values() for s in t.segments}

    def saved(self) -> dict[str, Any]:
        """The state without the segments' rows, as JSON values; operators by fingerprint.

        The sources' progress is not part of it: hosts save it once, for all stages.
        """
        operators = {f: {"scalars": k.scalars, "traces": self._saved_traces(f, k)} for f, k in self.kernels.items()}
        return {"operators": operators, "trips": {loop: trips.to_json() for loop, trips in self.trips.items()}}

    def _saved_traces(self, fingerprint: str, kernel: Kernel) -> dict[str, dict[str, Any]]:
        """The traces of an operator, as saved; pickled ones with their owner."""
        saved: dict[str, dict[str, Any]] = {}
        for name, trace in kernel.traces.items():
            saved[name] = trace.saved()
        for name in self._pickled(fingerprint, kernel):
            saved[name][PICKLED] = owner_mark(self.line, fingerprint)
        return saved

    def _pickled(self, fingerprint: str, kernel: Kernel) -> list[str]:
        carries = fingerprint in self._carries_states
        return [name for name, trace in kernel.traces.items() if carries or trace.pickled]

    def restore(self, saved: Mapping[str, Any], clocks: Mapping[str, Progress], held: Mapping[str, Segment]) -> None:
        """Restore a saved state, with its segments and the progress of the sources."""
        self.clocks |= clocks
        self.trips |= {loop: Trips.from_json(trips) for loop, trips in saved["trips"].items()}
        for fingerprint, kernel in self.kernels.items():
            state = saved["operators"][fingerprint]
            check_marked(self.line, fingerprint, self._pickled(fingerprint, kernel), state["traces"])
            kernel.restore(dict(state["scalars"]), state["traces"], held)


def segment_names(operators: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of the segments of saved operators."""
    return [name for state in operators for trace in state["traces"].values() for name in trace["segments"]]


def intake_progress(
    line: Line, clocks: Mapping[str, Progress], definite: Mapping[str, int] | None = None
) -> dict[str, Progress]:
    """The progress of every node of level 0, from that of the sources and loops."""
    progress = dict(clocks)
    for node in line.at(0):
        if isinstance(node, LoopStart):
            progress[node.fingerprint] = Progress((definite or {}).get(node.name, NEG_INFINITY))
        elif not isinstance(node, Source):
            progress[node.fingerprint] = node.progress([progress[child.fingerprint] for child in node.inputs])
    return progress


def count_failed(counts: dict[str, dict[str, int]], statistics: Iterable[dict[str, Any]]) -> None:
    """Add the windows whose module failed, by module, to the counts of a run."""
    for part in statistics:
        for module, windows in part.get("failed", {}).items():
            total = counts.setdefault(module, {"failed": 0})
            total["failed"] = total.get("failed", 0) + windows


def _key(edge: PlanEdge) -> str:
    return f"edge {edge.number}"


def _joined(producer: Node, tables: list[pa.Table]) -> Data:
    if isinstance(producer, Combine):
        return concat(tables) if tables else empty_partial()
    if isinstance(producer, Source) and isinstance(producer.lifetime, Physical) and not tables:
        none = Changes.empty(producer.schema)
        return none.with_payload(none.payload.append_column(RE_NEW, pa.array([], pa.int64())))
    return Changes.from_table(concat(tables)) if tables else Changes.empty(producer.schema)
