"""The causes that a trace names are the causes: the answer stays without all other events, and goes without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import plans

from headrace.api.stream import Stream
from headrace.operators.reference.lineage import rows_of_changes
from headrace.operators.reference.rows import Row, bag, row_identity
from headrace.plan.nodes import Admit, Match, Recurse, Source, walk
from headrace.testing.intents import KINDS, Intent, concrete
from headrace.testing.verify.case import case_of
from headrace.tracing.record import TraceRecord
from headrace.tracing.traced import TracedRun
from headrace.tracing.why import Why

#: An example runs its query three times for each answer; `make fuzz` tries 2,000 of them.
EXAMPLES = 1_000 if settings().max_examples >= 1_000 else max(3, settings().max_examples // 10)


def answers(record: TraceRecord) -> Counter[Hashable]:
    """The history of the answer at the end."""
    return bag(rows_of_changes(record.changes_until(record.output)))


def started(row: Row) -> Hashable:
    """What names an input event: its start and payload. Its end may change."""
    return row_identity((row[0], 0, row[2]))


def inputs(trace: TracedRun) -> dict[str, list[Row]]:
    """The input events at the end, by the fingerprint of their source."""
    admitted = {op.node.input.fingerprint: op for op in trace.record.operators if isinstance(op.node, Admit)}
    plain = {op.node.fingerprint: op for op in trace.record.operators if isinstance(op.node, Source)}
    return {source: rows_of_changes(trace.record.changes_until(op)) for source, op in (plain | admitted).items()}


def causes_of(why: Why) -> dict[str, set[Hashable]]:
    """The input events that an answer names as its causes, by source."""
    found: dict[str, set[Hashable]] = {}
    for step in why.steps():
        if not step.causes:
            node = step.operator.node
            source = node.input if isinstance(node, Admit) else node
            found.setdefault(source.fingerprint, set()).add(started(step.row))
    return found


def check_causes(trace: TracedRun, row: Row) -> None:
    """Delete all others, and the answer stays as often as it is there; delete the causes, and it does not."""
    why = trace.why({"le": row[0], "re": row[1], **row[2]})
    causes = causes_of(why)
    before = answers(trace.record)[row_identity(row)]
    kept, gone = dict[str, Sequence[Row]](), dict[str, Sequence[Row]]()
    for source, rows in inputs(trace).items():
        own = causes.get(source, set())
        kept[source] = [r for r in rows if started(r) not in own]
        gone[source] = [r for r in rows if started(r) in own]
    assert answers(trace.record.replayed(kept))[row_identity(row)] == before, f"not enough:\n{why}"
    without = answers(trace.record.replayed(gone))[row_identity(row)]
    assert without < before or _keeps_others_away(trace), f"not needed:\n{why}"


def _keeps_others_away(trace: TracedRun) -> bool:
    """Whether without a match another one, which it kept away, may give an equal answer."""
    return any(isinstance(operator.node, Match) for operator in trace.record.operators)


def some(rows: Sequence[Row]) -> list[Row]:
    """A few different answers: the first, the last, and one between."""
    each = list({row_identity(row): row for row in rows}.values())
    return [each[i] for i in sorted({0, len(each) // 2, len(each) - 1})] if each else []


@settings(max_examples=EXAMPLES)
@given(plans())
def test_causes_of_random_plans(stream: Stream):
    trace = stream.trace()
    rows = rows_of_changes(trace.record.changes_until(trace.record.output))
    for row in some(rows):
        check_causes(trace, row)


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 2**16))
def test_causes_of_every_kind_of_query(kind: str, seed: int):
    case = case_of(next(concrete(Intent.of(kind), seed)), seed, 0)
    with TemporaryDirectory() as folder:
        trace = case.plan(Path(folder)).trace()
    bodies = [body for operator in trace.record.operators for body in operator.node.inside]
    if any(isinstance(node, Recurse) for node in walk(*bodies)):
        return  # the causes of a loop with a loop in it are refused
    for row in some(rows_of_changes(trace.record.changes_until(trace.record.output)))[:2]:
        check_causes(trace, row)
