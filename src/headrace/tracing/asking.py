"""Questions by their names, as the command line and servers ask them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from headrace.errors import TraceError
from headrace.expr import Expr
from headrace.tracing.record import TracedOperator
from headrace.tracing.traced import TracedRun

__all__ = ["QUESTIONS", "ask"]

QUESTIONS: Sequence[str] = ("why", "why_not", "why_retracted", "why_cti", "forward")


def ask(
    trace: TracedRun,
    question: str,
    condition: Callable[[TracedOperator], Expr],
    *,
    operator: int | None = None,
    batch: int | None = None,
    at: str | None = None,
) -> str | pa.Table:
    """The answer to a question about the event that fulfils a condition, as text; what became of it, as a table.

    Questions are about the output, or an operator; `forward` is about the first input. `batch` and `at` are for `why`
    and `why_not`, and `batch` also for `why_cti`.
    """
    if question == "why_cti":
        return str(trace.why_cti(operator, batch))
    if question == "forward":
        operator = 1 if operator is None else operator
    asked = trace.record.output if operator is None else trace.record.operator(operator)
    if question == "why":
        return str(trace.why(condition(asked), operator=operator, batch=batch, at=at))
    if question == "why_not":
        return str(trace.why_not(condition(asked), operator=operator, batch=batch, at=at))
    if question == "why_retracted":
        return str(trace.why_retracted(condition(asked), operator=operator))
    if question == "forward":
        return trace.forward(condition(asked), operator=asked.number)
    raise TraceError("there is no such question", given=question, allowed=", ".join(QUESTIONS))
