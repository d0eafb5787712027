"""Loops in one bucket: changes go through the body again, within a batch, until it derives nothing new.

If every operator of a loop needs only single events or pairs, its body and the circulating changes are enough:
semi-naive evaluation, in which the cost of a round depends on its new facts. There are three kinds of loops:

- `PlainLoop`, all events: the body's output is its next input. On data without cycles it comes to rest. Events have
  their depth of derivation, only for the guard.
- `DistinctLoop`, every payload once: the body's input is what is new at a level (`Levels`), and the answer is what all
  levels cover. Deletions are right on cycles, too.
- `UnrolledLoop` (`unrolled.py`), for all other bodies: every round has a body of its own.

The loop is drained within a batch. Until it is at rest, its body gets the promises of the batches before, because
changes that old may come round; then it gets the new promises and forgets. So the promise of a loop is the least of its
inputs'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.changes import Changes
from headrace.operators.coalesce import CoalesceKernel
from headrace.operators.kernel import Data, Kernel, SavedTraces
from headrace.operators.recurse.body import Body, KernelOf, part_of, trace_state
from headrace.operators.recurse.guard import Guard
from headrace.operators.recurse.levels import Levels, Turns
from headrace.operators.recurse.rounds import next_round, split_rounds, with_round, with_rounds, written_operators
from headrace.operators.recurse.tally import Tally
from headrace.plan.nodes import Coalesce
from headrace.plan.recurse import LoopInput, Recurse
from headrace.progress import Progress
from headrace.trace import Segment

__all__ = ["DistinctLoop", "Loop", "PlainLoop"]


class Promises:
    """The progress of a loop: the promises of its inputs before the batch and now."""

    def __init__(self, ports: Sequence[LoopInput]) -> None:
        self.ports = ports
        self.before = [Progress()] * len(ports)
        self.now = self.before

    def hear(self, progress: Sequence[Progress]) -> None:
        """Set the promises of the inputs after a batch."""
        self.before, self.now = self.now, list(progress)

    @property
    def settled(self) -> Progress:
        """The promise of the loop at rest."""
        return Progress.together(self.now)

    def circulating(self) -> dict[str, Progress]:
        """The promises to the body while changes circulate."""
        return self._of(self.before)

    def at_rest(self) -> dict[str, Progress]:
        """The promises to the body at rest."""
        return self._of(self.now)

    def _of(self, inputs: Sequence[Progress]) -> dict[str, Progress]:
        promised = [Progress.together(inputs), *inputs[1:]]
        return {port.fingerprint: p for port, p in zip(self.ports, promised, strict=True)}

    def scalars(self) -> dict[str, int]:
        return {f"{kind} {i}": getattr(p, kind) for i, p in enumerate(self.now) for kind in ("cti", "high")}

    def restore(self, scalars: Mapping[str, int]) -> None:
        self.now = [Progress(scalars[f"cti {i}"], scalars[f"high {i}"]) for i in range(len(self.ports))]


class Loop(Kernel):
    """A loop that circulates changes through one body."""

    def __init__(self, node: Recurse, kernel_of: KernelOf) -> None:
        super().__init__(node)
        self.loop = node
        body, result, self.column = with_rounds(node.body, node.ports[0])
        self.ports = (result, *node.ports[1:])
        self.body = Body(body, kernel_of, written_operators(node.body, node.ports[0]))
        self.promises = Promises(self.ports)
        self.tally = Tally(dates=node.dates)
        self.guard = Guard(node, self.tally)
        self.traces = {f"body {name}": trace for name, trace in self.body.traces().items()}

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        self.tally.begin()
        self.promises.hear(progress)
        seed, *outside = (part for part in inputs if isinstance(part, Changes))
        ports = [port.fingerprint for port in self.ports[1:]]
        changes = self._drain(seed, dict(zip(ports, outside, strict=True)))
        self.body.step({}, self.promises.at_rest())
        result = self._result(changes)
        self.tally.promised(progress, self.promises.settled)
        self.scalars = self._numbers()
        return result, self.promises.settled

    def _drain(self, seed: Changes, outside: dict[str, Changes]) -> Changes:
        """Run rounds until nothing is left to do; the changes of the result."""
        raise NotImplementedError

    def _result(self, changes: Changes) -> Changes:
        """The output of the loop."""
        return changes

    def _feed(self, changes: Changes, outside: Mapping[str, Changes] | None = None) -> Changes:
        """The body's output for changes of the result and of streams from outside."""
        fed = {self.ports[0].fingerprint: changes, **(outside or {})}
        return self.body.step(fed, self.promises.circulating())[0]

    # --- state -------------------------------------------------------------------------------------------------------

    def _numbers(self) -> dict[str, int]:
        own = {f"loop {name}": value for name, value in self.promises.scalars().items()}
        own |= {f"tally {name}": value for name, value in self.tally.scalars().items()}
        return own | {f"body {name}": value for name, value in self.body.scalars().items()}

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        super().restore(scalars, traces, held)
        self.promises.restore(part_of("loop", scalars))
        self.tally.restore(part_of("tally", scalars))
        self.body.restore(part_of("body", scalars), part_of("body", traces), held)

    def held_by(self) -> str:
        return "what the loop has found and the CTI has not ended, in its operators"

    def state(self) -> dict[str, Any]:
        return super().state() | self.tally.state() | {"loop": self.body.state()}


class PlainLoop(Loop):
    """All events, one copy for each derivation."""

    def __init__(self, node: Recurse, kernel_of: KernelOf) -> None:
        super().__init__(node, kernel_of)
        self.scalars = self._numbers()

    def _drain(self, seed: Changes, outside: dict[str, Changes]) -> Changes:
        start = [with_round(seed, self.column, 0), next_round(self._feed(Changes.empty(self.ports[0].schema), outside))]
        changes = Changes.concat(start).consolidate()
        results = [Changes.empty(self.loop.schema)]
        while len(changes):
            bare, rounds = split_rounds(changes)
            self.guard.round(changes, self.body, int(rounds.max()))
            results.append(bare)
            changes = next_round(self._feed(changes)).consolidate()
        return Changes.concat(results).consolidate()


class DistinctLoop(Loop):
    """Every payload at most once at an instant."""

    def __init__(self, node: Recurse, kernel_of: KernelOf) -> None:
        super().__init__(node, kernel_of)
        self.levels = Levels(node.schema, self.column)
        self.united = CoalesceKernel(Coalesce(node.seed))
        self.traces |= self.levels.traces | {f"result {name}": t for name, t in self.united.traces.items()}
        self.scalars = self._numbers()

    def _drain(self, seed: Changes, outside: dict[str, Changes]) -> Changes:
        turns = Turns(self.levels)
        turns.add(seed, 0)
        turns.add_stamped(self._feed(Changes.empty(self.ports[0].schema), outside))
        results = [Changes.empty(self.loop.schema)]
        while (rounds := turns.next()) is not None:
            changes = turns.take(rounds)
            if len(changes):
                self.guard.round(changes, self.body, rounds)
                results.append(changes)
                turns.add_stamped(self._feed(self.levels.with_round(changes, rounds)))
        turns.finish()
        return Changes.concat(results).consolidate()

    def _result(self, changes: Changes) -> Changes:
        self.levels.settle(self.promises.settled.cti)
        return self.united.step([changes], [self.promises.settled])[0]

    def _numbers(self) -> dict[str, int]:
        return super()._numbers() | {f"result {name}": value for name, value in self.united.scalars.items()}

    def state(self) -> dict[str, Any]:
        state = super().state()
        parts = {"found, by round": self.levels.traces, "found, in one": self.united.traces}
        return state | {"loop": state["loop"] + [trace_state(name, traces) for name, traces in parts.items()]}

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        super().restore(scalars, traces, held)
        self.levels.floor = self.promises.settled.cti
        self.united.restore(part_of("result", scalars), part_of("result", traces), held)
