"""However a session goes on, and wherever it stops: at its end, its trace is that of the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import plans

from headrace.api.stream import Stream
from headrace.operators.reference.lineage import rows_of_changes
from headrace.operators.reference.rows import bag
from headrace.tracing.debugging import DebugSession
from headrace.tracing.plain import plain_table
from headrace.tracing.record import TraceRecord
from headrace.tracing.traced import TracedRun

#: An example runs its query twice, and asks questions at some pauses.
EXAMPLES = 500 if settings().max_examples >= 1_000 else max(4, settings().max_examples // 8)
_STEPS = ("step_operator", "step_batch", "run", "step_event", "restart", "break")


def rows(trace: TracedRun) -> list[list[dict[str, Any]]]:
    """The rows of all tables, without times on the clock."""
    timed = [table.drop_columns(["seconds"]) for table in (trace.operators, trace.batches)]
    return [plain_table(table) for table in (*timed, trace.edges, trace.changes)]


def histories(record: TraceRecord) -> list[object]:
    """The history of every operator at the end."""
    return [bag(rows_of_changes(record.changes_until(operator))) for operator in record.operators]


def go(session: DebugSession, steps: Sequence[tuple[str, int]]) -> None:
    """Take the steps; ask at each pause, so that what is recorded so far can be read."""
    for step, number in steps:
        if step == "break":
            operator = session.operators[number % len(session.operators)].number
            if number % 3 == 2:
                session.break_at_late()
            else:
                [session.break_at, session.break_at_retraction][number % 3](operator)
        else:
            getattr(session, step)()
            assert session.trace.history().num_rows >= 0
            assert session.trace.batches.num_rows % len(session.operators) == 0
    for one in session.breakpoints:
        one.enabled = False
    assert session.run().finished


@settings(max_examples=EXAMPLES)
@given(
    plans(),
    st.lists(st.tuples(st.sampled_from(_STEPS), st.integers(0, 60)), max_size=12),
    st.sampled_from([None, 1, 3]),
)
def test_the_trace_of_a_session_is_that_of_the_run(
    stream: Stream, steps: Sequence[tuple[str, int]], batch_rows: int | None
):
    expected = stream.trace(batch_rows=batch_rows)
    with stream.debug(batch_rows=batch_rows, state=False) as session:
        go(session, steps)
        if any(step == "step_event" for step, _ in steps):
            assert histories(session.trace.record) == histories(expected.record)
        else:
            assert rows(session.trace) == rows(expected)
