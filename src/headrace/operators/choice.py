"""The choice of a kernel: what runs a node, and how and why so, in words."""

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
    """What makes a fresh kernel for a node; how that runs, as `explain` tells; and code that was made for it, if any.

    The code has titles, which say what it is of.
    """

    kernel: Callable[[], Kernel]
    runs: str
    code: Callable[[], Mapping[str, str]] = dict


Choose = Callable[[Any], KernelChoice]


def always(kernel: Callable[[Any], Kernel]) -> Choose:
    """The choice of nodes that one kernel runs, whatever is asked of them."""

    def choose(node: Node) -> KernelChoice:
        return KernelChoice(lambda: kernel(node), INCREMENTAL)

    return choose
