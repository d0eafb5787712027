"""The choice of a kernel for a node, with a text that says how the kernel runs and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.operators.kernel import Kernel
from headrace.plan.nodes import Node

__all__ = ["INCREMENTAL", "Choose", "KernelChoice", "always"]

INCREMENTAL = "columnar, incremental"


@dataclass(frozen=True)
class KernelChoice:
    """The constructor of a node's kernel; how the kernel runs, for `explain`; and code generated for it, by title."""

    kernel: Callable[[], Kernel]
    runs: str
    code: Callable[[], Mapping[str, str]] = dict


Choose = Callable[[Any], KernelChoice]


def always(kernel: Callable[[Any], Kernel]) -> Choose:
    """The choice of nodes that always run in the same kernel."""

    def choose(node: Node) -> KernelChoice:
        return KernelChoice(lambda: kernel(node), INCREMENTAL)

    return choose
