"""Whether traces name the causes of answers, and the reasons of missing ones: by deletion, on random plans and streams.

`python -m tests.verification.causes --cases 2000` draws as many queries with their streams, half of them random plans,
half of every kind of query that verification knows. Of each, a few answers are asked for:

- their causes: all other input events are deleted, and the answer must stay; the causes are deleted, and it must go;
- why they are missing, when one of their causes was deleted, was late, or was filtered: the reason must name it.

A late row is made from a recorded run: the event is moved from the accepted rows of its batch to the diverted ones, in
the words of ingress. A filter is put above the source.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import hypothesis
import numpy as np
from hypothesis import HealthCheck, given, settings
from tests.strategies.plans import plans

from headrace.api.stream import Stream
from headrace.changes import Changes
from headrace.errors import HeadraceError
from headrace.expr import Expr, col, lit
from headrace.host.local.run import Runner
from headrace.io.ingress import row_texts
from headrace.operators.reference.lineage import rows_of_changes
from headrace.operators.reference.rows import Row, bag, row_identity, table_of
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Admit, Match, Node, Output, Recurse, Source, Where, walk
from headrace.plan.policies import Physical
from headrace.plan.source import diverted_rows
from headrace.testing.intents import KINDS, Intent, concrete
from headrace.testing.verify.case import case_of
from headrace.time import format_ticks
from headrace.tracing.record import TraceRecord
from headrace.tracing.recording import EventFilter, Recorder
from headrace.tracing.traced import TracedRun
from headrace.tracing.why import Why
from headrace.tracing.why_not import WhyNot

__all__ = ["CauseCheck", "answers", "case_of_kind", "causes_of", "check_causes", "inputs", "some"]


# --- answers and their causes -----------------------------------------------------------------------------------------


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


def described(row: Row) -> dict[str, object]:
    """An event as a question."""
    return {"le": row[0], "re": row[1], **row[2]}


def check_causes(trace: TracedRun, row: Row) -> Why:
    """Delete all others, and the answer stays as often as it is there; delete the causes, and it does not."""
    why = trace.why(described(row))
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
    return why


def _keeps_others_away(trace: TracedRun) -> bool:
    """Whether without a match another one, which it kept away, may give an equal answer."""
    return any(isinstance(operator.node, Match) for operator in trace.record.operators)


def some(rows: Sequence[Row]) -> list[Row]:
    """A few different answers: the first, the last, and one between."""
    each = list({row_identity(row): row for row in rows}.values())
    return [each[i] for i in sorted({0, len(each) // 2, len(each) - 1})] if each else []


# --- missing answers --------------------------------------------------------------------------------------------------


@dataclass
class CauseCheck:
    """Checks of one query and its stream; `counts` says how many questions of each kind were answered."""

    stream: Stream
    random: Random
    counts: Counter[str] = field(default_factory=Counter)

    def run(self, most: int = 3) -> None:
        """Ask about a few answers."""
        trace = self.stream.trace()
        rows = some(rows_of_changes(trace.record.changes_until(trace.record.output)))
        for row in self.random.sample(rows, min(most, len(rows))):
            self.check(trace, row)

    def check(self, trace: TracedRun, row: Row) -> None:
        why = check_causes(trace, row)
        self.counts["why"] += 1
        leaves = [step for step in why.steps() if not step.causes and isinstance(step.operator.node, (Source, Admit))]
        leaf = self.random.choice(leaves)
        source = trace.record.source_of(leaf.operator)
        self._deleted(trace, row, source, leaf.row)
        self._late(trace, row, source, leaf.row)
        self._filtered(row, source, leaf.row)

    def _deleted(self, trace: TracedRun, row: Row, source: Source, cause: Row) -> None:
        """A deleted event fits what is said to be missing of its source."""
        other = TracedRun(trace.record.replayed({source.fingerprint: [cause]}))
        found = self._asked(other, row, "deleted")
        if found is None:
            return
        of_source = [s for s in found.steps() if isinstance(s.operator.node, (Source, Admit))]
        of_source = [s for s in of_source if trace.record.source_of(s.operator).fingerprint == source.fingerprint]
        fitting = [step for step in of_source if step.wanted.fits(cause, source.schema)]
        assert fitting, f"{cause} was deleted, and\n{found}\n{[s.text for s in found.steps()]}"
        self.counts["deleted, any event fits"] += all(step.wanted.is_empty for step in fitting)

    def _late(self, trace: TracedRun, row: Row, source: Source, cause: Row) -> None:
        """A late row is a reason."""
        found = self._asked(TracedRun(_with_late(trace.record, source, cause)), row, "late")
        if found is not None:
            text = _texts(source, cause)
            late = [reason for _, reason in found.reasons if reason.kind == "late" and text in reason.text]
            assert late or self._many(found), f"{cause} was late, and\n{found}\n{[s.text for s in found.steps()]}"

    def _filtered(self, row: Row, source: Source, cause: Row) -> None:
        """An event that a filter above its source drops is a reason, or an equal one at another time."""
        predicate = _all_but(cause)
        if predicate is None:
            return
        found = self._asked(_filtered(self.stream, source, predicate).trace(), row, "filtered")
        if found is None:
            return
        named = [
            event.row
            for step, reason in found.reasons
            for _, event in reason.events
            if reason.kind == "filtered" and isinstance(event.operator.node, (Source, Admit))
        ]
        fine = any(row[2] == cause[2] for row in named) or self._many(found)
        assert fine, f"{cause} was filtered, and\n{found}\n{[s.text for s in found.steps()]}"

    def _asked(self, trace: TracedRun, row: Row, kind: str) -> WhyNot | None:
        """Why an answer is missing; None if it is there, or an equal one."""
        if answers(trace.record)[row_identity(row)]:
            self.counts[f"{kind}, still there"] += 1
            return None
        self.counts[kind] += 1
        found = trace.why_not(described(row))
        assert repr(found)
        assert found.as_dict()["steps"]
        return found

    def _many(self, found: WhyNot) -> bool:
        """Whether more events were lost than are shown one by one."""
        return any(reason.kind == "more" for _, reason in found.reasons)


def _with_late(record: TraceRecord, source: Source, cause: Row) -> TraceRecord:
    """The run with an event on the side of the diverted rows."""
    recorder = Recorder(record.line, state=False)
    runner = Runner(record.line, 1, None, tap=recorder)
    drop, moved = EventFilter(source, [cause]), False
    reason = f"late: its sync time {format_ticks(cause[0])} is before the CTI ∞"
    payload = diverted_rows(str(source.origin), [reason], [_texts(source, cause)], None, None)
    for batch in record.batches[:-1]:
        judged = {key: list(parts) for key, parts in batch.judged.items()}
        for place, (accepted, side) in enumerate(judged.get(source.fingerprint, [])):
            kept = drop(accepted)
            if len(kept) < len(accepted) and not moved:
                late = Changes.inserts(np.array([cause[0]]), np.array([cause[0] + 1]), payload)
                side, moved = Changes.concat([side, late]) if len(side) else late, True
            judged[source.fingerprint][place] = (kept, side)
        taken = runner.take_again(judged, batch.reports, batch.sources)
        runner.run(taken)
        recorder.end_batch(runner, taken)
    runner.end()
    recorder.end_batch(runner)
    return TraceRecord(record.line, recorder.batches)


def _texts(source: Source, cause: Row) -> str:
    """A row of a source, as ingress shows it."""
    table = table_of([cause], source.schema)
    if not isinstance(source.lifetime, Physical):
        table = table.drop_columns(["le", "re"])
    return row_texts(table, source)[0]


def _all_but(cause: Row) -> Expr | None:
    """A condition that is false of rows with this payload only; None if values cannot be written."""
    condition = lit(True)
    for name, value in cause[2].items():
        if isinstance(value, (list, dict)) or value != value:  # noqa: PLR0124 - NaN
            return None
        condition = condition & (col(name).is_null() if value is None else col(name).is_not_distinct_from(lit(value)))
    return ~condition


def _filtered(stream: Stream, source: Source, predicate: Expr) -> Stream:
    """The query with a filter above a source."""

    def change(node: Node) -> Node:
        own = node.input if isinstance(node, Admit) else node
        top = isinstance(node, Admit) or not isinstance(source.lifetime, Physical)
        return Where(node, predicate) if own == source and top else node

    return Stream(rewrite((Output(stream.node, "answers"),), change)[0].inputs[0])


# --- many cases -------------------------------------------------------------------------------------------------------


def case_of_kind(kind: str, seed: int, folder: Path) -> Stream | None:
    """A query of a kind over generated streams; None for a loop in a loop, whose causes are refused."""
    stream = case_of(next(concrete(Intent.of(kind), seed)), seed, 0).plan(folder)
    bodies = [body for node in walk(stream.node) for body in node.inside]
    return None if any(isinstance(node, Recurse) for node in walk(*bodies)) else stream


def _of_plans(cases: int, seed: int, each: Callable[[Stream, Random], None]) -> None:
    number = iter(range(10**9))

    @hypothesis.seed(seed)
    @settings(max_examples=cases, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(plans())
    def run(stream: Stream) -> None:
        each(stream, Random(f"{seed}:{next(number)}"))

    run()


def _of_kinds(cases: int, seed: int, each: Callable[[Stream, Random], None]) -> None:
    kinds = sorted(KINDS)
    for number in range(cases):
        with TemporaryDirectory() as folder:
            stream = case_of_kind(kinds[number % len(kinds)], seed + number // len(kinds), Path(folder))
            if stream is not None:
                each(stream, Random(f"{seed}:{number}"))


def main() -> int:
    """Run as many cases, and print how many questions were asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--answers", type=int, default=1, help="how many answers of a case are asked for")
    parser.add_argument("--keep-going", action="store_true", help="print failures, and go on")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    begun, failures = time.monotonic(), 0

    def each(stream: Stream, random: Random) -> None:
        nonlocal failures
        counts["cases"] += 1
        try:
            CauseCheck(stream, random, counts).run(options.answers)
        except (AssertionError, HeadraceError) as failure:
            failures += 1
            if not options.keep_going:
                raise
            sys.stdout.write(f"--- case {counts['cases']}: {stream.explain()}\n{type(failure).__name__}: {failure}\n")

    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    _of_plans(options.cases // 2, options.seed, each)
    _of_kinds(options.cases - options.cases // 2, options.seed, each)
    sys.stdout.write(f"{dict(counts)}; {failures} failures, {time.monotonic() - begun:.0f} s\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
