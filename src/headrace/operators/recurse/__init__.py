"""Loops: a body run round by round until nothing new comes of it."""

from headrace.operators.kernel import Kernel
from headrace.operators.recurse.body import KernelOf
from headrace.operators.recurse.kernel import DistinctLoop, PlainLoop
from headrace.operators.recurse.unrolled import UnrolledLoop
from headrace.plan.recurse import Recurse

__all__ = ["loop_of"]


def loop_of(node: Recurse, kernel_of: KernelOf) -> Kernel:
    """The kernel of a loop; `kernel_of` gives those of the operators on it."""
    if not node.distinct:
        return PlainLoop(node, kernel_of)
    return DistinctLoop(node, kernel_of) if node.circulates else UnrolledLoop(node, kernel_of)
