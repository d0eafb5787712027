"""The operators of a loop's body with their state; they run on batches of changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from headrace.changes import Changes
from headrace.operators.kernel import Kernel, SavedTraces
from headrace.operators.span import LINEAR
from headrace.plan.nodes import Node, Union, walk
from headrace.plan.recurse import LoopInput
from headrace.progress import Progress
from headrace.trace import Segment, Trace

__all__ = ["Body", "KernelOf", "part_of", "trace_state"]

KernelOf = Callable[[Node], Kernel]
Saved = TypeVar("Saved")


class Body:
    """A plan over `LoopInput`s, whose changes the caller passes by their fingerprints."""

    def __init__(self, root: Node, kernel_of: KernelOf, written: Mapping[str, str] | None = None) -> None:
        self.root = root
        #: Operators as the user wrote them, if they run in another form.
        self.written = written or {}
        self.nodes = [node for node in walk(root) if not isinstance(node, LoopInput)]
        self.kernels = {node.fingerprint: kernel_of(node) for node in self.nodes if not node.linear}
        #: The number of changes from every operator in the latest step.
        self.counts: dict[str, int] = {}
        self._empty = {node.fingerprint: Changes.empty(node.schema) for node in walk(root)}
        self._reached: dict[str, tuple[list[Progress], Progress]] = {}

    def step(self, fed: Mapping[str, Changes], promised: Mapping[str, Progress]) -> tuple[Changes, Progress]:
        """Process changes of some inputs, with the promises of all; the output and its promise."""
        data, progress = {**self._empty, **fed}, dict(promised)
        for node in self.nodes:
            inputs = [data[child.fingerprint] for child in node.inputs]
            now = [progress[child.fingerprint] for child in node.inputs]
            data[node.fingerprint], progress[node.fingerprint] = self._run(node, inputs, now)
        self.counts = {name: len(changes) for name, changes in data.items()}
        return data[self.root.fingerprint], progress[self.root.fingerprint]

    def _run(self, node: Node, inputs: list[Changes], now: list[Progress]) -> tuple[Changes, Progress]:
        idle = not any(map(len, inputs))
        nothing = self._empty[node.fingerprint]
        if node.linear:
            return nothing if idle else LINEAR[type(node)](node, Changes.concat(inputs)), node.progress(now)
        before, after = self._reached.get(node.fingerprint, ([], Progress()))
        if idle and before == now:
            return nothing, after
        changes, after = self.kernels[node.fingerprint].step(inputs, now)
        self._reached[node.fingerprint] = now, after
        return changes, after

    def busiest(self) -> str:
        """The operator with the most changes in the latest step: of united branches, the largest."""
        node = self.root
        while isinstance(node, Union):
            node = max(node.inputs, key=lambda child: self.counts.get(child.fingerprint, 0))
        return self.describe(node)

    def describe(self, node: Node) -> str:
        """An operator, as a text for users."""
        return self.written.get(node.fingerprint, node.describe())

    # --- state -------------------------------------------------------------------------------------------------------

    def traces(self) -> dict[str, Trace]:
        """The traces of its operators, by operator."""
        kernels = enumerate(self.kernels.values())
        return {f"{i} {name}": trace for i, kernel in kernels for name, trace in kernel.traces.items()}

    def scalars(self) -> dict[str, int]:
        """The scalars of its operators, by operator."""
        kernels = enumerate(self.kernels.values())
        return {f"{i} {name}": value for i, kernel in kernels for name, value in kernel.scalars.items()}

    def restore(self, scalars: Mapping[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        """Restore the saved state; `held` has the segments."""
        for i, kernel in enumerate(self.kernels.values()):
            kernel.restore(part_of(str(i), scalars), part_of(str(i), traces), held)

    def state(self) -> list[dict[str, Any]]:
        """The size of each operator's state."""
        return [{"operator": self.describe(k.node)} | k.state() for k in self.kernels.values()]


def trace_state(what: str, traces: Mapping[str, Trace]) -> dict[str, Any]:
    """The size of a loop's own traces, in the form of an operator's state."""
    return {
        "operator": what,
        "rows": sum(trace.rows for trace in traces.values()),
        "bytes": sum(trace.nbytes for trace in traces.values()),
    }


def part_of(part: str, saved: Mapping[str, Saved]) -> dict[str, Saved]:
    """The saved values of one part of a loop, by its own names."""
    return {name.removeprefix(f"{part} "): value for name, value in saved.items() if name.startswith(f"{part} ")}
