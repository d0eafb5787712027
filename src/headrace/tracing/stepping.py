"""A run that can stop between two operators.

It has a thread of its own. Either the thread runs and the caller waits for it, or the thread waits and the caller looks
at what is recorded: two semaphores pass the turn, so nothing is ever used by both. The thread stops in calls of its
tap, which sees every operator after it has run, and between two batches. A run that is abandoned ends its thread by an
exception at the place where it waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import dataclass
from threading import Semaphore, Thread, current_thread
from types import FrameType
from typing import Any, Literal

from headrace.changes import Changes
from headrace.display.words import clipped
from headrace.host.local.run import Judged, Runner, TakenBatch
from headrace.operators.kernel import Data
from headrace.plan.nodes import Node, Source
from headrace.progress import Progress
from headrace.stages.cut import Line
from headrace.stages.stage import intake_progress
from headrace.time import INFINITY, NEG_INFINITY
from headrace.tracing.breakpoints import Breakpoints, Hit, OperatorStep
from headrace.tracing.calls import AtCall, CallTracer, call_text
from headrace.tracing.inputs import RecordedInput
from headrace.tracing.record import FailedBatch, TracedOperator, TraceRecord
from headrace.tracing.recording import Recorder

__all__ = ["Pause", "SteppedRun"]

#: How far a run goes.
Until = Literal["event", "batch", "operator", "end"]
Reason = Literal["start", "event", "batch", "operator", "breakpoint", "interrupt", "error", "end"]
#: What ingress counts of rows that it does not accept, and does not divert.
_NOTED = ("dropped", "adjusted")


@dataclass(frozen=True)
class Pause:
    """Where a run is, and what stopped it."""

    reason: Reason
    #: The batch that runs, or the last one that has run.
    batch: int
    #: The operator that has just run; None between two batches.
    operator: TracedOperator | None = None
    #: The breakpoints, with the changes that fit.
    hits: tuple[Hit, ...] = ()
    #: The call of a function or module at which the run is, inside of the operator.
    call: str = ""
    #: Why the run failed.
    error: str = ""

    @property
    def finished(self) -> bool:
        """Whether the run is at its end."""
        return self.reason == "end"

    @property
    def text(self) -> str:
        """Where and why, in a line for each breakpoint."""
        if self.reason == "start":
            return "at the start, before batch 0"
        if self.reason == "end":
            return "at the end of the input"
        if self.reason == "error":
            return f"failed in batch {self.batch}: {self.error}"
        if self.operator is None:
            return f"after batch {self.batch}"
        why = " (interrupted)" if self.reason == "interrupt" else ""
        inside = "in" if self.call else "after"
        place = f"batch {self.batch}, {inside} #{self.operator.number} {clipped(self.operator.text, 80)}{why}"
        return "\n".join([place, *(f"  {hit.text}" for hit in self.hits)])

    def as_dict(self) -> dict[str, Any]:
        """The pause as plain values, for JSON."""
        return {
            "reason": self.reason,
            "batch": self.batch,
            "operator": None if self.operator is None else self.operator.number,
            "finished": self.finished,
            "call": self.call,
            "error": self.error,
            "text": self.text,
            "hits": [hit.as_dict() for hit in self.hits],
        }

    def __repr__(self) -> str:
        return self.text


class _Abandoned(BaseException):
    """Ends the thread of a run that nobody waits for."""


class SteppedRun:
    """A run over bounded inputs that goes on when it is asked to."""

    def __init__(self, line: Line, rows: RecordedInput, breakpoints: Breakpoints, *, state: bool) -> None:
        self.line, self._rows, self._breakpoints = line, rows, breakpoints
        self.operators = {operator.key: operator for operator in TraceRecord(line, ()).operators}
        self.recorder = _StoppingRecorder(self, state=state)
        self.runner = Runner(line, 1, None, tap=self.recorder)
        self.pause = Pause("start", 0)
        self.error: BaseException | None = None
        self._taken: TakenBatch | None = None
        self._in_batch = False
        self._ctis: dict[str, int] = {}
        #: How many parts of each operator's changes of the batch have been looked at.
        self._seen: dict[str, int] = {}
        self._until: Until = "end"
        self._running = self._interrupted = self._abandoned = self._quiet = False
        self._go, self._stopped = Semaphore(0), Semaphore(0)
        self._tracer = CallTracer(self._called)
        self._debugs_call = False
        self._thread = Thread(target=copy_context().run, args=(self._body,), name="headrace-debug", daemon=True)

    # --- by the caller -----------------------------------------------------------------------------------------------

    def advance(self, until: Until, *, debug_call: bool = False) -> Pause:
        """Let the run go on, and wait for its next pause; with `debug_call` in Python's debugger, at a call.

        The first interruption by the keyboard stops the run after its operator; the second ends the waiting.
        """
        if not self._running:
            self._until, self._interrupted, self._running = until, False, True
            self._debugs_call = debug_call
            if self._thread.ident is None:
                self._thread.start()
            else:
                self._go.release()
        while self._running:
            try:
                self._stopped.acquire()
                self._running = False
            except KeyboardInterrupt:
                if self._interrupted:
                    raise
                self._interrupted = True
        if self.error is not None or self.pause.finished:
            self._thread.join()
        if self.error is not None:
            raise self.error
        return self.pause

    def replay(self, batches: int) -> None:
        """Run the first batches, without stopping at breakpoints; before anything else."""
        self._quiet = True
        for _ in range(batches):
            self.advance("batch")
        self._quiet = False

    def interrupt(self) -> None:
        """Stop after the operator that is running; from any thread."""
        self._interrupted = True

    def abandon(self) -> None:
        """End the thread."""
        self._abandoned = True
        if self._thread.ident is not None and self._thread is not current_thread():
            self._go.release()
            self._thread.join()

    def record(self) -> TraceRecord:
        """Everything recorded so far; at a pause."""
        batches = list(self.recorder.batches)
        if self._in_batch or not batches:
            batches.append(self.recorder.so_far(self.runner, self._taken))
        failure = None if self.error is None else FailedBatch(self.pause.batch, self.pause.error)
        return TraceRecord(self.line, batches, ended=self.pause.finished, failure=failure)

    @property
    def batches(self) -> int:
        """How many batches have run."""
        return len(self.recorder.batches) - self.pause.finished

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _body(self) -> None:
        try:
            self._tracer.watch(self._breakpoints)
            while (read := self._rows.batch(self._batch, one=self._until == "event")) is not None:
                self._in_batch = True
                for source, seconds in read.seconds.items():
                    self.recorder.wait(source, seconds)
                taken = self._taken = self.runner.take(read.blocks)
                self._promise(taken)
                self.runner.run(taken)
                self._end_batch(taken)
                if self._until in ("event", "batch"):
                    self._wait(Pause(self._until, len(self.recorder.batches) - 1))
            self._in_batch = True
            self._promise(None)
            self.runner.end()
            self._end_batch(None)
            self.pause = Pause("end", len(self.recorder.batches) - 1)
        except _Abandoned:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            self.error = error
            self.pause = Pause("error", self._batch, error=str(error))
        finally:
            self._stopped.release()

    def _end_batch(self, taken: TakenBatch | None) -> None:
        self.recorder.end_batch(self.runner, taken)
        self._taken, self._in_batch = None, False
        self._seen.clear()

    def _promise(self, taken: TakenBatch | None) -> None:
        """Stop at CTIs of the inputs, and at rows without a change; None is the end of the input."""
        reached = {source.fingerprint: Progress(INFINITY) for source in self.line.sources}
        progress = intake_progress(self.line, reached if taken is None else taken.progress)
        notes: dict[str, tuple[str, ...]] = {}
        for source, reports in taken.reports if taken is not None else ():
            counts = {name: sum(report.counts[name] for report in reports) for name in _NOTED}
            notes[source.fingerprint] = tuple(f"{count} {name}" for name, count in counts.items() if count)
        steps = [
            self._step(self.operators[key], Changes.empty(self.operators[key].node.schema), now, notes.get(key, ()))
            for key, now in progress.items()
            if key in self.operators
        ]
        hits = () if self._quiet else self._breakpoints.hits(steps)
        if hits:
            self._wait(Pause("breakpoint", self._batch, hits[0].step.operator, hits))

    def stop(self, keys: Sequence[str], progress: Progress | None) -> None:
        """Stop after an operator, if that is asked for; `keys` are those of its outputs, the first its own."""
        if self._abandoned:
            raise _Abandoned
        steps = []
        for key in keys:
            if key in self.operators:
                operator = self.operators[key]
                parts = self.recorder.parts(key)
                changes = Changes.concat([Changes.empty(operator.node.schema), *parts[self._seen.get(key, 0) :]])
                self._seen[key] = len(parts)
                steps.append(self._step(operator, changes, progress))
        if not steps:
            return
        hits = () if self._quiet else self._breakpoints.hits(steps)
        reason: Reason = "breakpoint" if hits else "interrupt" if self._interrupted else "operator"
        if hits or self._interrupted or self._until == "operator":
            self._wait(Pause(reason, self._batch, steps[0].operator, hits))

    def _step(
        self, operator: TracedOperator, changes: Changes, progress: Progress | None, notes: tuple[str, ...] = ()
    ) -> OperatorStep:
        before = self._ctis.get(operator.key, NEG_INFINITY)
        after = before if progress is None else progress.cti
        self._ctis[operator.key] = after
        return OperatorStep(operator, self._batch, changes, (before, after), notes)

    @property
    def _batch(self) -> int:
        return len(self.recorder.batches)

    def _wait(self, pause: Pause) -> None:
        self.pause = pause
        self._stopped.release()
        self._go.acquire()
        if self._abandoned:
            raise _Abandoned
        self._tracer.watch(self._breakpoints)

    def _called(self, frame: FrameType, breakpoints: Sequence[AtCall]) -> None:
        """Stop at a call, in the operator that has not run yet in this batch."""
        if self._quiet:
            return
        callers = [one for one in breakpoints[0].operators if not self.recorder.has_run(one.key)]
        operator = (callers or breakpoints[0].operators)[0]
        text = call_text(frame)
        nothing = Changes.empty(operator.node.schema)
        step = OperatorStep(operator, self._batch, nothing, notes=(text,))
        for one in breakpoints:
            one.hits += 1
        self._wait(Pause("breakpoint", self._batch, operator, tuple(Hit(b, step, nothing) for b in breakpoints), text))
        if self._debugs_call:
            self._debugs_call = False
            self._tracer.debug(frame)


class _StoppingRecorder(Recorder):
    """Records, and then lets the run stop."""

    def __init__(self, run: SteppedRun, *, state: bool) -> None:
        super().__init__(run.line, state=state)
        self._run = run

    def read(self, source: Source, rows: int, judged: Judged, seconds: float) -> None:
        super().read(source, rows, judged, seconds)
        side = self._sides.get(source.fingerprint)
        self._run.stop([source.fingerprint, *([side] if side is not None else [])], None)

    def step(self, node: Node, rows: int, output: Data, progress: Progress | None, seconds: float) -> None:
        super().step(node, rows, output, progress, seconds)
        self._run.stop([node.fingerprint], progress)

    def parts(self, key: str) -> Sequence[Changes]:
        """What an operator has given in the batch that runs."""
        return self._now.changes.get(key, ())

    def has_run(self, key: str) -> bool:
        """Whether an operator has run in this batch."""
        return key in self._now.seconds
