"""The operators of a loop's body with their state, run on one batch of changes after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from headrace.changes import Changes
from headrace.operators.kernel import Kernel, SavedTraces
from headrace.operators.span import LINEAR
from headrace.plan.nodes import Node, walk
from headrace.plan.recurse import LoopInput
from headrace.progress import Progress
from headrace.trace import Segment, Trace

__all__ = ["Body", "KernelOf", "under"]

KernelOf = Callable[[Node], Kernel]
Saved = TypeVar("Saved")


class Body:
    """A plan over `LoopInput`s, which are fed by whoever runs it, by their fingerprints."""

    def __init__(self, root: Node, kernel_of: KernelOf) -> None:
        self.root = root
        self.nodes = [node for node in walk(root) if not isinstance(node, LoopInput)]
        self.kernels = {node.fingerprint: kernel_of(node) for node in self.nodes if not node.linear}
        #: How much came of every operator in the latest step.
        self.given: list[tuple[Node, int]] = []
        self._nothing = {node.fingerprint: Changes.empty(node.schema) for node in walk(root)}
        self._reached: dict[str, tuple[list[Progress], Progress]] = {}

    def step(self, fed: Mapping[str, Changes], promised: Mapping[str, Progress]) -> tuple[Changes, Progress]:
        """Take changes of some inputs and the promises of all; give what comes of it."""
        data, progress = {**self._nothing, **fed}, dict(promised)
        for node in self.nodes:
            inputs = [data[child.fingerprint] for child in node.inputs]
            now = [progress[child.fingerprint] for child in node.inputs]
            data[node.fingerprint], progress[node.fingerprint] = self._run(node, inputs, now)
        self.given = [(node, len(data[node.fingerprint])) for node in self.nodes]
        return data[self.root.fingerprint], progress[self.root.fingerprint]

    def _run(self, node: Node, inputs: list[Changes], now: list[Progress]) -> tuple[Changes, Progress]:
        idle = not any(map(len, inputs))
        nothing = self._nothing[node.fingerprint]
        if node.linear:
            return nothing if idle else LINEAR[type(node)](node, Changes.concat(inputs)), node.progress(now)
        before, after = self._reached.get(node.fingerprint, ([], Progress()))
        if idle and before == now:
            return nothing, after
        changes, after = self.kernels[node.fingerprint].step(inputs, now)
        self._reached[node.fingerprint] = now, after
        return changes, after

    # --- state -------------------------------------------------------------------------------------------------------

    def traces(self) -> dict[str, Trace]:
        """What its operators remember, by operator."""
        kernels = enumerate(self.kernels.values())
        return {f"{i} {name}": trace for i, kernel in kernels for name, trace in kernel.traces.items()}

    def scalars(self) -> dict[str, int]:
        """The numbers that its operators remember, by operator."""
        kernels = enumerate(self.kernels.values())
        return {f"{i} {name}": value for i, kernel in kernels for name, value in kernel.scalars.items()}

    def restore(self, scalars: Mapping[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        """Become what was saved; `held` has the segments."""
        for i, kernel in enumerate(self.kernels.values()):
            kernel.restore(under(str(i), scalars), under(str(i), traces), held)

    def state(self) -> dict[str, dict[str, Any]]:
        """How much each operator remembers."""
        return {kernel.node.describe(): kernel.state() for kernel in self.kernels.values()}


def under(part: str, saved: Mapping[str, Saved]) -> dict[str, Saved]:
    """What one part of a loop wrote down, by its own names."""
    return {name.removeprefix(f"{part} "): value for name, value in saved.items() if name.startswith(f"{part} ")}
