"""The record of a traced run: its operators, and what the recorder has kept of them; it can be run again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from headrace.changes import Changes
from headrace.display.words import clipped
from headrace.errors import HeadraceError, PlanError, TraceError
from headrace.host.driving.checkpoint import spilled_into
from headrace.host.driving.tapped import temporary_run
from headrace.host.local.measured import tapped_batches
from headrace.host.local.run import Runner
from headrace.host.received import received
from headrace.host.saved.replay import Replay
from headrace.io.origins import Events
from headrace.io.temporary import TemporaryFolder
from headrace.operators.reference.rows import Row
from headrace.optimizer import Rule
from headrace.optimizer.combine_before_shuffle import combine_before_shuffle
from headrace.optimizer.read_tables import read_tables
from headrace.optimizer.rewrite import rewrite_sources
from headrace.plan.nodes import Admit, Combine, Diverted, Failures, Merge, Node, Orphans, Output, Source
from headrace.progress import Progress
from headrace.stages.cut import Line, line_of
from headrace.time import INFINITY
from headrace.tracing.places import ChangePlaces
from headrace.tracing.recording import Check, EventFilter, RecordedBatch, Recorder, changes_of, unbounded

__all__ = ["FailedBatch", "TraceRecord", "TracedOperator", "record_driven", "record_local", "record_replay"]

#: The rules of a traced query: it runs as it is written.
TRACED_RULES: tuple[Rule, ...] = (read_tables, combine_before_shuffle)

#: Operators whose changes are those of rows as they are read.
_INTAKE = (Source, Diverted, Failures, Orphans)


def record_local(outputs: Sequence[Output], *, batch_rows: int | None = None, state: bool = False) -> TraceRecord:
    """Run to the end of all sources, and keep everything."""
    with received(outputs) as bounded:
        line = line_of(bounded, 1, TRACED_RULES)
        recorder = Recorder(line, state=state)
        runner = Runner(line, 1, None, tap=recorder)
        for taken in tapped_batches(runner, batch_rows):
            runner.run(taken)
            recorder.end_batch(runner, taken)
        runner.end()
        recorder.end_batch(runner)
    return TraceRecord(line, recorder.batches)


def record_driven(
    outputs: Sequence[Output], *, batch_rows: int | None = None, state: bool = False, check: Check = unbounded
) -> TraceRecord:
    """Run over what services and streams of a server have now, by the loop of a query, and keep everything.

    `check` is called as blocks are read and operators give changes, and between batches.
    """
    with TemporaryFolder() as folder:
        line = line_of(_on_disk(outputs, folder), 1, TRACED_RULES)
        recorder = Recorder(line, state=state, check=check)
        with temporary_run(line, recorder, rows_per_batch=batch_rows) as run:
            for batch in recorder.checked(run.available()):
                recorder.end_driven(batch)
    return TraceRecord(line, recorder.batches, ended=False)


def _on_disk(outputs: Sequence[Output], folder: str) -> tuple[Output, ...]:
    """The plan with rows of the query itself in files, which the loop of a query reads."""

    def stored(source: Source) -> Source:
        if not isinstance(source.origin, Events):
            return source
        return replace(source, origin=spilled_into(folder, source.origin))

    return rewrite_sources(tuple(outputs), stored)


def record_replay(
    replay: Replay, *, state: bool = False, output: int | None = None, check: Check = unbounded
) -> TraceRecord:
    """Run batches of a checkpoint again, as they ran, and keep everything; with `output`, only what it depends on."""
    recorder = Recorder(replay.line, state=state, check=check)
    with replay.run(recorder) as batches:
        for batch in recorder.checked(batches):
            recorder.end_driven(batch)
    line = replay.line if output is None else replay.line_of_output(output)
    return TraceRecord(line, recorder.batches, ended=False, first=replay.batches.first)


@dataclass(frozen=True)
class TracedOperator:
    """An operator of a traced query: its number, its node, and the numbers of those it reads."""

    number: int
    node: Node
    inputs: tuple[int, ...]
    #: The fingerprint of the node that ran, by which its changes are kept.
    key: str

    @property
    def text(self) -> str:
        return self.node.describe()


@dataclass(frozen=True)
class FailedBatch:
    """The batch in which a run failed, and why."""

    batch: int
    error: str

    def __str__(self) -> str:
        return f"failed in batch {self.batch}: {clipped(self.error.partition(chr(10))[0], 200)}"


class TraceRecord:
    """The operators of a traced run by number, and what they gave."""

    def __init__(
        self,
        line: Line,
        batches: Sequence[RecordedBatch],
        *,
        ended: bool = True,
        first: int = 0,
        failure: FailedBatch | None = None,
    ) -> None:
        self.line, self.batches = line, batches
        #: Why the run did not go on, if it failed.
        self.failure = failure
        #: The number of the first batch; if it is not 0, the run began from the state of a checkpoint.
        self.first = first
        #: Whether the last batch is the end of the input. The run of a session may be anywhere before it.
        self.ended = ended
        self.operators = list(_operators(line))
        self._places: dict[int, ChangePlaces] = {}

    @cached_property
    def dates(self) -> bool:
        """Whether its times are dates."""
        return any(operator.node.dates for operator in self.operators)

    @property
    def output(self) -> TracedOperator:
        """The operator whose changes are the answer."""
        key = self.line.outputs[0].input.fingerprint
        return next(operator for operator in self.operators if operator.key == key)

    def operator(self, number: int) -> TracedOperator:
        """An operator by its number."""
        if type(number) is not int or not 1 <= number <= len(self.operators):
            raise PlanError(
                "there is no such operator in this trace", given=number, allowed=f"1 to {len(self.operators)}"
            )
        return self.operators[number - 1]

    def number(self, batch: int | None, default: int | None = None) -> int:
        """The number of a batch, by default the last."""
        last = self.first + len(self.batches) - 1
        if batch is None:
            return last if default is None else default
        if type(batch) is not int or not self.first <= batch <= last:
            raise PlanError("there is no such batch in this trace", given=batch, allowed=f"{self.first} to {last}")
        return batch

    @property
    def latest(self) -> int:
        """The number of the last batch but the end of the input."""
        return self.first + max(0, len(self.batches) - 1 - self.ended)

    def batch(self, number: int) -> RecordedBatch:
        """A batch by its number."""
        return self.batches[number - self.first]

    def numbered(self) -> Iterator[tuple[int, RecordedBatch]]:
        """The batches with their numbers."""
        return enumerate(self.batches, self.first)

    def before(self, batch: int) -> TraceRecord:
        """The same run, only the batches before one."""
        return TraceRecord(self.line, self.batches[: batch - self.first], ended=False, first=self.first)

    def until(self, batch: int) -> list[tuple[int, RecordedBatch]]:
        """The batches up to one, with their numbers."""
        return [(number, recorded) for number, recorded in self.numbered() if number <= batch]

    def has_run(self, operator: TracedOperator, batch: int) -> bool:
        """Whether an operator has run in a batch; at a pause inside of it, those behind the pause have not."""
        recorded = self.batch(batch)
        return recorded.reached == "end" or isinstance(operator.node, _INTAKE) or operator.key in recorded.seconds

    def settled(self, operator: TracedOperator, batch: int) -> int:
        """The batch up to which an operator has seen the changes of its inputs: the one before, if it has not run."""
        return batch if batch == self.first or self.has_run(operator, batch) else batch - 1

    def changes_by_batch(self, operator: TracedOperator) -> list[tuple[int, Changes]]:
        """The changes that an operator gave, with the numbers of their batches."""
        return [(self.first + place, changes) for place, changes in changes_of(self.batches, operator.key)]

    def changes_until(self, operator: TracedOperator, batch: int | None = None) -> Changes:
        """All changes of an operator up to a batch."""
        self._needs_beginning(f"#{operator.number} {clipped(operator.text, 60)}", "a history needs all changes")
        last = self.number(batch)
        parts = [changes for number, changes in self.changes_by_batch(operator) if number <= last]
        return Changes.concat([Changes.empty(operator.node.schema), *parts])

    def difference(self, other: TraceRecord, operator: TracedOperator) -> Changes:
        """What the history of an operator has at the end, and that of another run of the line has not.

        Batches in which both runs give the same changes are passed over: mostly these are nearly all.
        """
        self._needs_beginning(f"#{operator.number} {clipped(operator.text, 60)}", "a history needs all changes")
        parts = [Changes.empty(operator.node.schema)]
        for own, others in zip(self.batches, other.batches, strict=True):
            one, two = (Changes.concat([parts[0], *batch.changes.get(operator.key, ())]) for batch in (own, others))
            if not one.equals(two):
                parts += [one, two.negated()]
        return Changes.concat(parts).consolidate()

    def _needs_beginning(self, given: str, reason: str) -> None:
        """Raise for a trace that begins with the state of a checkpoint."""
        if self.first:
            raise TraceError(
                f"this trace begins with batch {self.first}, and {reason} from the beginning",
                given=given,
                allowed="the changes of its batches: trace.changes, trace.of(operator)",
                instead="a trace from batch 0, or of the query itself: stream.trace()",
            )

    def places_of(self, operator: TracedOperator) -> ChangePlaces:
        """Where the changes of an operator are."""
        if operator.number not in self._places:
            self._places[operator.number] = ChangePlaces(self.changes_by_batch(operator), operator.node.schema)
        return self._places[operator.number]

    def progress_of(self, operator: TracedOperator, batch: int) -> Progress:
        """The progress of an operator after a batch."""
        now = self.batch(batch).progress.get(operator.key, Progress())
        is_end = self.ended and batch == self.first + len(self.batches) - 1
        return Progress(INFINITY, now.high) if is_end else now

    def source_of(self, operator: TracedOperator) -> Source:
        """The source of an input."""
        node = operator.node.input if isinstance(operator.node, Admit) else operator.node
        if not isinstance(node, Source):
            raise TraceError(
                "this is not an input",
                given=f"#{operator.number} {clipped(operator.text, 60)}",
                allowed=", ".join(f"#{one.number}" for one in self.operators if isinstance(one.node, (Admit, Source))),
            )
        return node

    def replayed(self, gone: Mapping[str, Sequence[Row]]) -> TraceRecord:
        """The same run without these events, by the fingerprint of their source."""
        self._needs_beginning("trace.without(...)", "another run needs the rows")
        recorder = Recorder(self.line, state=False)
        runner = Runner(self.line, 1, None, tap=recorder)
        drops = {
            source.fingerprint: EventFilter(source, gone.get(source.fingerprint, ())) for source in self.line.sources
        }
        for batch in self.batches[:-1] if self.ended else self.batches:
            judged = {key: [(drops[key](kept), side) for kept, side in parts] for key, parts in batch.judged.items()}
            taken = runner.take_again(judged, batch.reports, batch.sources)
            try:
                if batch.reached != "reading":
                    runner.run(taken)
            except HeadraceError:  # of an operator that has not run yet in the run of the session, or failed there, too
                if batch.reached == "end":
                    raise
            recorder.end_batch(runner, taken, ran=None if batch.reached == "end" else batch.seconds)
        if self.ended:
            runner.end()
            recorder.end_batch(runner)
        return TraceRecord(self.line, recorder.batches, ended=self.ended)


def _operators(line: Line) -> Iterator[TracedOperator]:
    """The operators of a plan; an aggregate that combines first is one, and outputs are none."""
    numbers: dict[str, int] = {}
    for node in line.nodes:
        if isinstance(node, (Combine, Output)):
            continue
        written = node.aggregate if isinstance(node, Merge) else node
        numbers[node.fingerprint] = len(numbers) + 1
        inputs = tuple(numbers[child.fingerprint] for child in written.inputs)
        yield TracedOperator(len(numbers), written, inputs, node.fingerprint)
