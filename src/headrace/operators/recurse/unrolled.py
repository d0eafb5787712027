"""Loops whose bodies may take back outputs when more facts are known: minima, anti joins, rankings.

With such a body the order of the rounds matters: the loop must follow `X₀ = nothing, Xᵢ₊₁ = seed ∪ body(Xᵢ)` exactly,
or it might rest at another result. So every round has operators of its own, and Xᵢ₊₁ is the output stream of round i. A
batch changes the rounds one after the other, each by the changes of the one before.

A loop is at rest when its last two rounds are equal. If they differ after a batch, it needs more rounds. A new round
has the same input up to this batch as the last one, so it starts as a copy of it, which shares its rows. If more rounds
at the end are equal, the last is removed.

The cost is one set of operators per round. So only bodies that need it run like this, and `max_rounds` bounds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.changes import Changes
from headrace.operators.coalesce import CoalesceKernel
from headrace.operators.kernel import Data, Kernel, SavedTraces, consolidated_rows
from headrace.operators.recurse.body import Body, KernelOf, part_of, trace_state
from headrace.operators.recurse.guard import Guard
from headrace.operators.recurse.tally import Tally
from headrace.plan.nodes import Coalesce
from headrace.plan.recurse import Recurse
from headrace.progress import Progress
from headrace.time import INFINITY
from headrace.trace import Segment, Trace

__all__ = ["UnrolledLoop"]


class UnrolledLoop(Kernel):
    """A loop as a sequence of rounds."""

    def __init__(self, node: Recurse, kernel_of: KernelOf) -> None:
        super().__init__(node)
        self.loop, self.kernel_of = node, kernel_of
        self.rounds = [_Round(node, kernel_of)]
        self.tally = Tally(dates=node.dates)
        self.guard = Guard(node, self.tally)
        self._collect_state()

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        self.tally.begin()
        changes = [part for part in inputs if isinstance(part, Changes)]
        spare = self.rounds[-1].copy()
        before, promise = Changes.empty(self.loop.schema), Progress.together(progress)
        number, at_rest = 0, False
        while number < len(self.rounds) or not at_rest:
            if number == len(self.rounds):
                self.rounds.append(spare.copy())
            if number:
                self.guard.round(before, self.rounds[number - 1].body, number - 1)
            after, promise = self.rounds[number].step(before, promise, changes, progress)
            at_rest = self.rounds[number].note(before, after)
            before, number = after, number + 1
        settled = self.loop.progress(list(progress))
        self._forget(settled.cti)
        self.tally.promised(progress, settled)
        self._collect_state()
        return before, settled

    def _forget(self, cti: int) -> None:
        for round_ in self.rounds:
            round_.gap.drop(cti if cti == INFINITY else cti - 1)
        while len(self.rounds) > 1 and self.rounds[-2].repeats():
            self.rounds.pop()

    # --- state -------------------------------------------------------------------------------------------------------

    def _collect_state(self) -> None:
        self.traces = {
            f"{i} {name}": trace for i, round_ in enumerate(self.rounds) for name, trace in round_.traces().items()
        }
        numbers = {f"{i} {name}": v for i, round_ in enumerate(self.rounds) for name, v in round_.scalars().items()}
        tally = {f"tally {name}": value for name, value in self.tally.scalars().items()}
        self.scalars = numbers | tally | {"rounds": len(self.rounds)}

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        self.rounds = [_Round(self.loop, self.kernel_of) for _ in range(scalars["rounds"])]
        for number, round_ in enumerate(self.rounds):
            round_.restore(part_of(str(number), scalars), part_of(str(number), traces), held)
        self.tally.restore(part_of("tally", scalars))
        self._collect_state()

    def held_by(self) -> str:
        return f"what {len(self.rounds)} rounds have found and the CTI has not ended"

    def state(self) -> dict[str, Any]:
        parts = zip(*(round_.state() for round_ in self.rounds), strict=True)
        loop = [same[-1] | {name: sum(part[name] for part in same) for name in ("rows", "bytes")} for same in parts]
        return super().state() | self.tally.state() | {"loop": loop}


class _Round:
    """One round: from the result before it to the result after it."""

    def __init__(self, node: Recurse, kernel_of: KernelOf) -> None:
        self.node, self.kernel_of = node, kernel_of
        self.body = Body(node.body, kernel_of)
        self.united = CoalesceKernel(Coalesce(node.seed))
        #: The difference between this round and the one before.
        self.gap = Trace(consolidated_rows)

    def step(
        self, before: Changes, promise: Progress, inputs: Sequence[Changes], progress: Sequence[Progress]
    ) -> tuple[Changes, Progress]:
        """The changes of the result after the round, from changes of the result before it and of the loop's inputs."""
        ports = [port.fingerprint for port in self.node.ports]
        fed = dict(zip(ports, [before, *inputs[1:]], strict=True))
        promised = dict(zip(ports, [promise, *progress[1:]], strict=True))
        derived, reached = self.body.step(fed, promised)
        return self.united.step([Changes.concat([inputs[0], derived])], [Progress.together([progress[0], reached])])

    def note(self, before: Changes, after: Changes) -> bool:
        """Store the new differences from the round before; whether both are equal."""
        less = before.negated()
        gap = Changes.concat([after, less]).consolidate()
        if len(gap):
            self.gap.append(gap.to_table(), gap.le.view("uint64"), gap.re)
        return self.repeats()

    def repeats(self) -> bool:
        """Whether its result equals that of the round before."""
        rows = self.gap.scan()
        if rows is None:
            return True
        left = Changes.from_table(rows).consolidate()
        self.gap.replace(left.to_table(), left.le.view("uint64"), left.re)
        return len(left) == 0

    def copy(self) -> _Round:
        """A copy with the same state."""
        copy = _Round(self.node, self.kernel_of)
        saved = {name: t.saved() for name, t in self.traces().items()}
        held = {s.name: s for t in self.traces().values() for s in t.segments}
        copy.restore(self.scalars(), saved, held)
        return copy

    def traces(self) -> dict[str, Trace]:
        result = {f"result {name}": trace for name, trace in self.united.traces.items()}
        return {"gap": self.gap} | result | {f"body {name}": t for name, t in self.body.traces().items()}

    def scalars(self) -> dict[str, int]:
        result = {f"result {name}": value for name, value in self.united.scalars.items()}
        return result | {f"body {name}": value for name, value in self.body.scalars().items()}

    def state(self) -> list[dict[str, Any]]:
        """The sizes of its operators' states and of its result."""
        return [*self.body.state(), trace_state("found, by round", {"gap": self.gap, **self.united.traces})]

    def restore(self, scalars: Mapping[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        self.gap.restore(traces["gap"], held)
        self.united.restore(part_of("result", scalars), part_of("result", traces), held)
        self.body.restore(part_of("body", scalars), part_of("body", traces), held)
