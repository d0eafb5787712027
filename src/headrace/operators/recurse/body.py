"""The operators of a loop's body with their state, run on one batch of changes after the other."""

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

__all__ = ["Body", "KernelOf", "kept", "under"]

KernelOf = Callable[[Node], Kernel]
Saved = TypeVar("Saved")


class Body:
    """A plan over `LoopInput`s, which are fed by whoever runs it, by their fingerprints."""

    def __init__(self, root: Node, kernel_of: KernelOf, written: Mapping[str, str] | None = None) -> None:
        self.root = root
        #: Operators as their user wrote them, where they are run in another form.
        self.written = written or {}
        self.nodes = [node for node in walk(root) if not isinstance(node, LoopInput)]
        self.kernels = {node.fingerprint: kernel_of(node) for node in self.nodes if not node.linear}
        #: How much came of every operator in the latest step.
        self.given: dict[str, int] = {}
        self._nothing = {node.fingerprint: Changes.empty(node.schema) for node in walk(root)}
        self._reached: dict[str, tuple[list[Progress], Progress]] = {}

    def step(self, fed: Mapping[str, Changes], promised: Mapping[str, Progress]) -> tuple[Changes, Progress]:
        """Take changes of some inputs and the promises of all; give what comes of it."""
        data, progress = {**self._nothing, **fed}, dict(promised)
        for node in self.nodes:
            inputs = [data[child.fingerprint] for child in node.inputs]
            now = [progress[child.fingerprint] for child in node.inputs]
            data[node.fingerprint], progress[node.fingerprint] = self._run(node, inputs, now)
        self.given = {name: len(changes) for name, changes in data.items()}
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

    def busiest(self) -> str:
        """Which operator gave what came of the latest step: of branches that are united, the one that gave most."""
        node = self.root
        while isinstance(node, Union):
            node = max(node.inputs, key=lambda child: self.given.get(child.fingerprint, 0))
        return self.describe(node)

    def describe(self, node: Node) -> str:
        """An operator, for people."""
        return self.written.get(node.fingerprint, node.describe())

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

    def state(self) -> list[dict[str, Any]]:
        """How much each operator remembers."""
        return [{"operator": self.describe(k.node)} | k.state() for k in self.kernels.values()]


def kept(what: str, traces: Mapping[str, Trace]) -> dict[str, Any]:
    """How much there is in traces of a loop that are no operator's, told as if they were."""
    return {
        "operator": what,
        "rows": sum(trace.rows for trace in traces.values()),
        "bytes": sum(trace.nbytes for trace in traces.values()),
    }


def under(part: str, saved: Mapping[str, Saved]) -> dict[str, Saved]:
    """What one part of a loop wrote down, by its own names."""
    return {name.removeprefix(f"{part} "): value for name, value in saved.items() if name.startswith(f"{part} ")}
