"""Loops in one bucket: what goes round is fed to the body again, within a batch, until nothing new comes of it.

A loop in which every operator looks at single events or pairs needs no more than its body and the changes that
circulate: semi-naive evaluation, whose rounds cost what is new in them. Three kinds of loops share that:

- `PlainLoop`, all events: what the body gives is fed to it as it is. On data without cycles it comes to rest. Events
  know how deep they were derived, only for the guard.
- `DistinctLoop`, every payload once: what is fed is what `Levels` say is new at a level, and the answer is what all
  levels cover. Deletion is right on cycles, too.
- `UnrolledLoop` (`unrolled.py`), for all other bodies: every round has a body of its own.

The loop is drained within a batch. Meanwhile its body hears the promises of the batches before, because until the
loop is at rest changes as old as these may come round; then it hears the new ones and forgets. So the promise of a
loop is the least of its inputs'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.changes import Changes
from headrace.operators.coalesce import CoalesceKernel
from headrace.operators.kernel import Data, Kernel, SavedTraces
from headrace.operators.recurse.body import Body, KernelOf, kept, under
from headrace.operators.recurse.guard import Guard
from headrace.operators.recurse.levels import Levels, Turns
from headrace.operators.recurse.rounds import further, parted, stamped, with_rounds, written
from headrace.operators.recurse.tally import Tally
from headrace.plan.nodes import Coalesce
from headrace.plan.recurse import LoopInput, Recurse
from headrace.progress import Progress
from headrace.trace import Segment

__all__ = ["DistinctLoop", "Loop", "PlainLoop"]


class Promises:
    """The progress of a loop: what its inputs promised before the batch, and what they promise now."""

    def __init__(self, ports: Sequence[LoopInput]) -> None:
        self.ports = ports
        self.before = [Progress()] * len(ports)
        self.now = self.before

    def hear(self, progress: Sequence[Progress]) -> None:
        """The promises of the inputs after another batch."""
        self.before, self.now = self.now, list(progress)

    @property
    def settled(self) -> Progress:
        """What the loop promises when it is at rest."""
        return Progress.together(self.now)

    def circulating(self) -> dict[str, Progress]:
        """What the body may rely on as long as changes go round."""
        return self._of(self.before)

    def at_rest(self) -> dict[str, Progress]:
        """What it may rely on then."""
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
        self.body = Body(body, kernel_of, written(node.body, node.ports[0]))
        self.promises = Promises(self.ports)
        self.tally = Tally()
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
        """Go round until nothing is left to do; what has changed of the result."""
        raise NotImplementedError

    def _result(self, changes: Changes) -> Changes:
        """What leaves the loop."""
        return changes

    def _feed(self, changes: Changes, outside: Mapping[str, Changes] | None = None) -> Changes:
        """What the body gives for changes of the result so far, and of streams from outside."""
        fed = {self.ports[0].fingerprint: changes, **(outside or {})}
        return self.body.step(fed, self.promises.circulating())[0]

    # --- state -------------------------------------------------------------------------------------------------------

    def _numbers(self) -> dict[str, int]:
        own = {f"loop {name}": value for name, value in self.promises.scalars().items()}
        own |= {f"tally {name}": value for name, value in self.tally.scalars().items()}
        return own | {f"body {name}": value for name, value in self.body.scalars().items()}

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        super().restore(scalars, traces, held)
        self.promises.restore(under("loop", scalars))
        self.tally.restore(under("tally", scalars))
        self.body.restore(under("body", scalars), under("body", traces), held)

    def held_by(self) -> str:
        return "what the loop has found and the CTI has not ended, in its operators"

    def state(self) -> dict[str, Any]:
        return super().state() | self.tally.state() | {"loop": self.body.state()}


class PlainLoop(Loop):
    """All events, as often as they are derived."""

    def __init__(self, node: Recurse, kernel_of: KernelOf) -> None:
        super().__init__(node, kernel_of)
        self.scalars = self._numbers()

    def _drain(self, seed: Changes, outside: dict[str, Changes]) -> Changes:
        at_first = [stamped(seed, self.column, 0), further(self._feed(Changes.empty(self.ports[0].schema), outside))]
        changes = Changes.concat(at_first).consolidate()
        found = [Changes.empty(self.loop.schema)]
        while len(changes):
            bare, rounds = parted(changes)
            self.guard.round(changes, self.body, int(rounds.max()))
            found.append(bare)
            changes = further(self._feed(changes)).consolidate()
        return Changes.concat(found).consolidate()


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
        found = [Changes.empty(self.loop.schema)]
        while (rounds := turns.next()) is not None:
            changes = turns.take(rounds)
            if len(changes):
                self.guard.round(changes, self.body, rounds)
                found.append(changes)
                turns.add_stamped(self._feed(self.levels.stamped(changes, rounds)))
        turns.finish()
        return Changes.concat(found).consolidate()

    def _result(self, changes: Changes) -> Changes:
        self.levels.settle(self.promises.settled.cti)
        return self.united.step([changes], [self.promises.settled])[0]

    def _numbers(self) -> dict[str, int]:
        return super()._numbers() | {f"result {name}": value for name, value in self.united.scalars.items()}

    def state(self) -> dict[str, Any]:
        told = super().state()
        parts = {"found, by round": self.levels.traces, "found, in one": self.united.traces}
        return told | {"loop": told["loop"] + [kept(name, traces) for name, traces in parts.items()]}

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        super().restore(scalars, traces, held)
        self.levels.floor = self.promises.settled.cti
        self.united.restore(under("result", scalars), under("result", traces), held)
