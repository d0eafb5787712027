"""A session that debugs a query: its run goes on by batches, operators or events, and stops at breakpoints.

What is recorded so far is a trace at every pause, so that all questions can be asked there. A session runs the query
as a trace does, and at its end its trace is that of `stream.trace()`; steps by event divide batches, which changes no
history (rule 1.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any, Protocol, Self
from weakref import finalize

from headrace.errors import TraceError
from headrace.expr import Expr
from headrace.host.received import received
from headrace.plan.nodes import Node, Output, Source
from headrace.stages.cut import Line, line_of
from headrace.time import TimeLike
from headrace.tracing.breakpoints import (
    AtCti,
    AtInput,
    AtLate,
    AtOutput,
    AtRetraction,
    Breakpoint,
    Breakpoints,
    Side,
)
from headrace.tracing.calls import calls_named
from headrace.tracing.given import given_time
from headrace.tracing.inputs import InputEdit, RecordedInput, Rows, check_change, reading_of
from headrace.tracing.record import TRACED_RULES, TracedOperator, TraceRecord
from headrace.tracing.stepping import Pause, SteppedRun, Until
from headrace.tracing.traced import TracedRun

__all__ = ["DebugSession"]

#: Reads a condition on the columns of a node.
Conditions = Callable[[Node, str], Expr]


#: The outputs of a query whose inputs have an end.
Bounding = Callable[[Node], Sequence[Output]]


class PlannedStream(Protocol):
    """A stream."""

    @property
    def node(self) -> Node:
        """Its plan."""


class DebugSession:
    """A run that goes on when it is asked to, and everything that it has recorded.

    It is a context manager; `close` ends its thread, in which users' functions and modules are called. One thread may
    use a session at a time; `interrupt` is for others.
    """

    def __init__(
        self, node: Node, bounded: Bounding, *, batch_rows: int | None, state: bool, conditions: Conditions
    ) -> None:
        self._batch_rows, self._state = batch_rows, state
        self._parts = _SessionParts()
        self._finalizer = finalize(self, self._parts.close)
        self._bounded = bounded
        self._line = self._line_of(node)
        self._plan = TraceRecord(self._line, ())
        self._rows = RecordedInput(reading_of(self._line.sources, batch_rows))
        #: The query and its input before they were changed.
        self._unchanged = self._line, self._rows
        self._original: TracedRun | None = None
        self._conditions = conditions
        self._breakpoints = Breakpoints()
        self._busy = Lock()
        self._trace: TracedRun | None = None
        self._begin()

    # --- going on ----------------------------------------------------------------------------------------------------

    def step_operator(self) -> Pause:
        """Run the next operator."""
        return self._advance("operator")

    def step_batch(self) -> Pause:
        """Run the next batch; inside of a batch, the rest of it."""
        return self._advance("batch")

    def step_event(self) -> Pause:
        """Run a batch of the next row alone, of each source in turn; inside of a batch, the rest of it.

        Which rows are late does not change. `step_batch` then runs the rest of the rows together.
        """
        return self._advance("event")

    def run(self) -> Pause:
        """Run to the next breakpoint, or to the end."""
        return self._advance("end")

    def step_into(self) -> Pause:
        """At a call of a function or module: go on in Python's debugger (`pdb`), inside of the call.

        It reads commands from the terminal; its `continue` ends it, and the run stops after the operator.
        """
        if not self.pause.call:
            raise TraceError(
                "the run is not at a call", given=self.pause.text, allowed="a pause at a call", instead="break_at_call"
            )
        return self._advance("operator", debug_call=True)

    def restart(self) -> Pause:
        """Begin again at the start. Breakpoints stay, and their hits are counted anew."""
        with self._turn():
            for one in self._breakpoints:
                one.hits = 0
            self._rows = self._rows.whole()
            return self._begin()

    def interrupt(self) -> None:
        """Stop a run that goes on in another thread, after the operator that is running."""
        self._run.interrupt()

    # --- looking -----------------------------------------------------------------------------------------------------

    @property
    def pause(self) -> Pause:
        """Where the run is, and what stopped it."""
        return self._run.pause

    @property
    def trace(self) -> TracedRun:
        """Everything recorded so far; the batch that runs is the last one."""
        with self._turn():
            if self._trace is None:
                self._trace = TracedRun(self._run.record())
            return self._trace

    @property
    def operators(self) -> list[TracedOperator]:
        """The operators of the query, by number."""
        return self._plan.operators

    # --- breakpoints -------------------------------------------------------------------------------------------------

    @property
    def breakpoints(self) -> list[Breakpoint]:
        """All breakpoints."""
        return list(self._breakpoints)

    def break_at(self, operator: int, when: Expr | str | None = None, *, on: Side = "output") -> Breakpoint:
        """Stop when an operator gives a change that fulfils a condition, or with `on="input"` is about to get one.

        `when` is an expression or a condition in SQL: `break_at(3, when=col("price") > 100)`, or `"price > 100"`.
        """
        found = self._operator(operator)
        if on == "output":
            return self._breakpoints.add(AtOutput(found, self._condition([found], when)))
        if on != "input":
            raise TraceError("a condition is about changes in or out", given=on, allowed="on='output', on='input'")
        producers = [self._operator(number) for number in found.inputs]
        return self._breakpoints.add(AtInput(found, producers, self._condition(producers, when)))

    def break_at_retraction(self, operator: int | None = None) -> Breakpoint:
        """Stop when an operator takes an event back; without one, when any operator does."""
        return self._breakpoints.add(AtRetraction(self._operator_or_any(operator)))

    def break_at_late(self, operator: int | None = None) -> Breakpoint:
        """Stop when rows of an input, by default of any, are late, malformed, or take back what is not there."""
        return self._breakpoints.add(AtLate(self._operator_or_any(operator)))

    def break_at_cti(self, operator: int, time: TimeLike) -> Breakpoint:
        """Stop when the CTI of an operator passes a time."""
        found = self._operator(operator)
        return self._breakpoints.add(AtCti(found, given_time(found, "time", time)))

    def break_at_call(self, name: str) -> Breakpoint:
        """Stop inside of an operator, when it calls a Python function or a module: `"mid"`, `"MyAverage.compute"`.

        `step_into` then goes on in Python's debugger, inside of the call.
        """
        return self._breakpoints.add(calls_named(self._plan.operators, name))

    def delete(self, number: int) -> None:
        """Delete a breakpoint by its number."""
        self._breakpoints.remove(number)

    # --- changes -----------------------------------------------------------------------------------------------------

    def change_input(
        self,
        operator: int,
        *,
        batch: int = 0,
        remove: Rows | str | None = None,
        replace: tuple[Rows | str, Mapping[str, Any]] | None = None,
        add: Sequence[Mapping[str, Any]] = (),
    ) -> Pause:
        """Remove, replace or add rows of an input, in the batches from `batch` on, and return to before the change.

        `remove={"price": 99.0}` or a condition names rows by the columns of the input; `replace=({"price": 99.0},
        {"price": 9.9})` gives them other values; `add=[{...}]` puts rows at the end of `batch`. The batches before the
        first changed one are replayed as they were; `run` then runs the rest. Which rows are late follows from the
        changed rows. `original` is the run without changes.
        """
        source = self._plan.source_of(self._operator(operator))
        check_change(batch, replace, add)
        gone = None if remove is None else self._rows_named(source, remove)
        other = None if replace is None else (self._rows_named(source, replace[0]), replace[1])
        edit = InputEdit(source, batch, gone, other, add)
        with self._turn():
            done = self._run.batches
            self._rows, first = self._rows.edited(edit)
            return self._begin(min(first, done))

    def change_query(self, stream: PlannedStream) -> Pause:
        """Run another query over the same rows, and return to the same batch: the batches before it are replayed.

        Breakpoints at operators and calls are deleted, since the operators are others.
        """
        if not isinstance(getattr(stream, "node", None), Node):
            raise TraceError("this is not a query", given=stream, allowed="a stream")
        line = self._line_of(stream.node)
        with self._turn():
            done = self._run.batches
            self._rows = self._rows.of_sources(self._line.sources, line.sources, self._batch_rows)
            self._line, self._plan = line, TraceRecord(line, ())
            self._breakpoints.keep_general()
            return self._begin(done)

    @property
    def original(self) -> TracedRun:
        """The whole run of the query and the input without changes, to compare with `trace`.

        If it fails, what it recorded until then: a comparison is about the batches before.
        """
        with self._turn():
            if self._original is None:
                line, rows = self._unchanged
                run = SteppedRun(line, rows, Breakpoints(), state=self._state)
                try:
                    run.advance("end")
                except Exception:  # of a user's function, say; the trace has it
                    if run.error is None:
                        raise
                self._original = TracedRun(run.record())
            return self._original

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the run and its thread; the trace stays."""
        if self._parts.run is not None:
            _ = self.trace
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"DebugSession {self.pause.text}"

    # --- parts -------------------------------------------------------------------------------------------------------

    def _begin(self, batches: int = 0) -> Pause:
        """Begin a new run, which replays some batches."""
        if not self._finalizer.alive:
            raise TraceError("this session is closed", instead="stream.debug() for another one")
        if self._parts.run is not None:
            self._parts.run.abandon()
        run = SteppedRun(self._line, self._rows, self._breakpoints, state=self._state)
        self._parts.run = self._run = run
        self._trace = None
        run.replay(batches)
        return run.pause

    def _advance(self, until: Until, *, debug_call: bool = False) -> Pause:
        with self._turn():
            if not self._finalizer.alive:
                raise TraceError("this session is closed", instead="stream.debug() for another one")
            if self._run.pause.finished:
                return self._run.pause
            if self._run.error is not None:
                raise TraceError("this run has failed", given=self._run.pause.text.split("\n")[0], instead="restart()")
            self._trace = None
            return self._run.advance(until, debug_call=debug_call)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise TraceError("this session runs in another thread", instead="interrupt(), or wait until it stops")
        try:
            yield
        finally:
            self._busy.release()

    def _line_of(self, node: Node) -> Line:
        outputs = self._parts.stack.enter_context(received(self._bounded(node)))
        return line_of(outputs, 1, TRACED_RULES)

    def _rows_named(self, source: Source, rows: Rows | str) -> Rows:
        return self._conditions(source, rows) if isinstance(rows, str) else rows

    def _operator(self, number: int) -> TracedOperator:
        return self._plan.operator(number)

    def _operator_or_any(self, number: int | None) -> TracedOperator | None:
        return None if number is None else self._operator(number)

    def _condition(self, operators: Sequence[TracedOperator], when: Expr | str | None) -> Expr | None:
        """A condition on changes of one of these operators, the first that has its columns."""
        if not isinstance(when, str):
            return when
        for operator in operators[:-1]:
            try:
                return self._conditions(operator.node, when)
            except ValueError:
                continue
        return self._conditions(operators[-1].node, when) if operators else None


class _SessionParts:
    """What a session must end, also when it is forgotten: its run, and files of what it has received."""

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.run: SteppedRun | None = None

    def close(self) -> None:
        if self.run is not None:
            self.run.abandon()
        self.stack.close()
