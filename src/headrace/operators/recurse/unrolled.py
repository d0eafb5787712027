"""Loops whose bodies may take back what they gave when more is known: minima, anti joins, rankings.

With such a body the order of the rounds matters: `X₀ = nothing, Xᵢ₊₁ = seed ∪ body(Xᵢ)` must be followed as it is
said, or the loop might rest at something else. So every round has operators of its own, and Xᵢ₊₁ is kept as the
stream that round i gives. A batch changes the rounds one after the other, each by what has changed in the one before.

The last two rounds are equal, which is how one knows that the loop is at rest. If they are not after a batch, more are
needed. A round that was never there would have seen, up to this batch, what the last one has seen, so it begins as a
copy of that: the rows of a copy are shared. Where rounds at the end have become equal, one of them goes.

It costs as many operators as there are rounds. So it is for bodies that need it, and it is bounded by `max_rounds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.changes import Changes
from headrace.operators.coalesce import CoalesceKernel
from headrace.operators.kernel import Data, Kernel, SavedTraces, consolidated_rows
from headrace.operators.recurse.body import Body, KernelOf, kept, under
from headrace.operators.recurse.guard import Guard
from headrace.operators.recurse.tally import Tally
from headrace.plan.nodes import Coalesce
from headrace.plan.recurse import Recurse
from headrace.progress import Progress
from headrace.time import INFINITY
from headrace.trace import Segment, Trace

__all__ = ["UnrolledLoop"]


class UnrolledLoop(Kernel):
    """A loop as a line of rounds."""

    def __init__(self, node: Recurse, kernel_of: KernelOf) -> None:
        super().__init__(node)
        self.loop, self.kernel_of = node, kernel_of
        self.rounds = [_Round(node, kernel_of)]
        self.tally = Tally()
        self.guard = Guard(node, self.tally)
        self._write_down()

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
        self._write_down()
        return before, settled

    def _forget(self, cti: int) -> None:
        for each in self.rounds:
            each.gap.drop(cti if cti == INFINITY else cti - 1)
        while len(self.rounds) > 1 and self.rounds[-2].repeats():
            self.rounds.pop()

    # --- state -------------------------------------------------------------------------------------------------------

    def _write_down(self) -> None:
        self.traces = {
            f"{i} {name}": trace for i, each in enumerate(self.rounds) for name, trace in each.traces().items()
        }
        numbers = {f"{i} {name}": v for i, each in enumerate(self.rounds) for name, v in each.scalars().items()}
        told = {f"tally {name}": value for name, value in self.tally.scalars().items()}
        self.scalars = numbers | told | {"rounds": len(self.rounds)}

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        self.rounds = [_Round(self.loop, self.kernel_of) for _ in range(scalars["rounds"])]
        for number, each in enumerate(self.rounds):
            each.restore(under(str(number), scalars), under(str(number), traces), held)
        self.tally.restore(under("tally", scalars))
        self._write_down()

    def held_by(self) -> str:
        return f"what {len(self.rounds)} rounds have found and the CTI has not ended"

    def state(self) -> dict[str, Any]:
        parts = zip(*(each.state() for each in self.rounds), strict=True)
        loop = [same[-1] | {name: sum(part[name] for part in same) for name in ("rows", "bytes")} for same in parts]
        return super().state() | self.tally.state() | {"loop": loop}


class _Round:
    """From what was found up to a round to what is found after it."""

    def __init__(self, node: Recurse, kernel_of: KernelOf) -> None:
        self.node, self.kernel_of = node, kernel_of
        self.body = Body(node.body, kernel_of)
        self.united = CoalesceKernel(Coalesce(node.seed))
        #: What this round has more than the one before.
        self.gap = Trace(consolidated_rows)

    def step(
        self, found: Changes, promise: Progress, inputs: Sequence[Changes], progress: Sequence[Progress]
    ) -> tuple[Changes, Progress]:
        """Changes of what was found before and of the loop's inputs to changes of what is found now."""
        ports = [port.fingerprint for port in self.node.ports]
        fed = dict(zip(ports, [found, *inputs[1:]], strict=True))
        promised = dict(zip(ports, [promise, *progress[1:]], strict=True))
        given, reached = self.body.step(fed, promised)
        return self.united.step([Changes.concat([inputs[0], given])], [Progress.together([progress[0], reached])])

    def note(self, before: Changes, after: Changes) -> bool:
        """Remember how this round and the one before have come to differ; whether they still are equal."""
        less = before.negated()
        gap = Changes.concat([after, less]).consolidate()
        if len(gap):
            self.gap.append(gap.to_table(), gap.le.view("uint64"), gap.re)
        return self.repeats()

    def repeats(self) -> bool:
        """Whether it gives what the round before gave."""
        rows = self.gap.scan()
        if rows is None:
            return True
        left = Changes.from_table(rows).consolidate()
        self.gap.replace(left.to_table(), left.le.view("uint64"), left.re)
        return len(left) == 0

    def copy(self) -> _Round:
        """Another one that has seen the same, and gives the same as this."""
        made = _Round(self.node, self.kernel_of)
        saved = {name: t.saved() for name, t in self.traces().items()}
        held = {s.name: s for t in self.traces().values() for s in t.segments}
        made.restore(self.scalars(), saved, held)
        return made

    def traces(self) -> dict[str, Trace]:
        result = {f"result {name}": trace for name, trace in self.united.traces.items()}
        return {"gap": self.gap} | result | {f"body {name}": t for name, t in self.body.traces().items()}

    def scalars(self) -> dict[str, int]:
        result = {f"result {name}": value for name, value in self.united.scalars.items()}
        return result | {f"body {name}": value for name, value in self.body.scalars().items()}

    def state(self) -> list[dict[str, Any]]:
        """What its operators remember, and what is found up to it."""
        return [*self.body.state(), kept("found, by round", {"gap": self.gap, **self.united.traces})]

    def restore(self, scalars: Mapping[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        self.gap.restore(traces["gap"], held)
        self.united.restore(under("result", scalars), under("result", traces), held)
        self.body.restore(under("body", scalars), under("body", traces), held)
