"""Compare the local host with the slow twins: after every batch, history and CTI must be the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.changes import Changes
from headrace.errors import PlanError
from headrace.events import history
from headrace.host.local.run import run_local
from headrace.host.result import FinishedRun
from headrace.io.origins import Events
from headrace.operators.reference import Row, bag, history_of, progress_of, reference_stream, rows_of
from headrace.operators.reference.plan import Seen
from headrace.optimizer import RULES, Rule
from headrace.optimizer.final_by_answer import final_by_answer
from headrace.plan.nodes import Final, HeldEventTimes, Match, Node, Output, PerWindow, Recurse, Shift, sources_of, walk
from headrace.progress import Progress
from headrace.testing.checks import Violation, check_output
from headrace.time import INFINITY, format_ticks

__all__ = ["differential_reference", "seen_after"]


def differential_reference(node: Node, *, buckets: int = 1, rules: Sequence[Rule] = RULES) -> FinishedRun:
    """Run a plan over physical streams held in memory; raise where it and the twins disagree."""
    done = run_local([Output(node, "out")], buckets=buckets, rules=rules)
    result = done.results["out"]
    same_progress = buckets == 1 or not any(map(_is_shifting_loop, walk(node)))
    parts = [Changes.empty(result.schema)]
    for number, (changes, progress) in enumerate(result.batches):
        parts.append(changes)
        ended = number == len(result.batches) - 1
        _compare(
            node,
            parts,
            progress,
            number,
            ended=ended,
            exact=buckets == 1 or not _waits_by_bucket(node),
            same_progress=same_progress,
        )
    check_output(result.events())
    return done


def _compare(
    node: Node, parts: list[Changes], progress: Progress, number: int, *, ended: bool, exact: bool, same_progress: bool
) -> None:
    rows, expected = reference_stream(node, seen_after(node, number + 1), ended=ended)
    limit = INFINITY if exact else min(progress.cti, expected.cti)
    actual, expected_rows = bag(_until(rows_of(history(Changes.concat(parts))), limit)), bag(_until(rows, limit))
    if actual != expected_rows:
        lines = [f"  only given: {row}" for row in (actual - expected_rows).elements()]
        lines += [f"  not given:  {row}" for row in (expected_rows - actual).elements()]
        raise Violation("\n".join([f"after batch {number + 1} the history differs from the twins'", *lines]))
    # Where promises depend on buckets they may be later than those of the twins, which have one bucket.
    if progress.cti < expected.cti or (progress.cti != expected.cti and exact and same_progress):
        raise Violation(
            f"after batch {number + 1} the CTI is {format_ticks(progress.cti)}, not {format_ticks(expected.cti)}"
        )


def _waits_by_bucket(node: Node) -> bool:
    """Whether an operator that uses promises reads another whose promise depends on its state.

    Each bucket makes its own promise, so the output before the slowest bucket has caught up depends on the buckets; the
    output up to the CTI does not.
    """
    (plan,) = final_by_answer((Output(node, "out"),))  # where windows decide what is final, no promise is used
    waiting = [n for n in walk(plan) if _promises_by_state(n)]
    readers = [n for n in walk(plan) if isinstance(n, (Final, PerWindow))]
    return any(n in list(walk(reader))[:-1] for n in waiting for reader in readers)


def _promises_by_state(node: Node) -> bool:
    if isinstance(node, (Final, HeldEventTimes)):
        return not node.input.properties.settled
    return (isinstance(node, (Match, PerWindow)) and node.waits) or _is_shifting_loop(node)


def _is_shifting_loop(node: Node) -> bool:
    """Whether a node is a loop whose body shifts: across buckets its promise includes rows from the body."""
    return isinstance(node, Recurse) and any(isinstance(inner, Shift) for inner in walk(node.body))


def _until(rows: Iterable[Row], time: int) -> list[Row]:
    return [(le, min(re, time), payload) for le, re, payload in rows if le < time]


def seen_after(node: Node, batches: int) -> Seen:
    """The history and progress of a plan's sources after this many batches."""
    found = {}
    for source in sources_of(node):
        if not isinstance(source.origin, Events):
            raise PlanError("only streams held in memory can be replayed", given=str(source.origin))
        rows = [row for table in list(source.origin.batches())[:batches] for row in table.to_pylist()]
        found[source.fingerprint] = (history_of(rows), progress_of(rows))
    return found
