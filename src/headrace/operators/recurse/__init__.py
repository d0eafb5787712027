"""Loops: a body runs round by round until it derives nothing new."""

from headrace.operators.choice import INCREMENTAL, KernelChoice
from headrace.operators.recurse.body import KernelOf
from headrace.operators.recurse.kernel import DistinctLoop, PlainLoop
from headrace.operators.recurse.unrolled import UnrolledLoop
from headrace.plan.recurse import Recurse

__all__ = ["loop_choice"]


def loop_choice(node: Recurse, kernel_of: KernelOf) -> KernelChoice:
    """The choice of the kernel of a loop; `kernel_of` creates the kernels of the operators in its body."""
    if not node.circulates:
        how = f"{INCREMENTAL}; operators of their own for every round, since the body may take back"
        return KernelChoice(lambda: UnrolledLoop(node, kernel_of), how)
    how = f"{INCREMENTAL}; a round costs what is new in it"
    if not node.distinct:
        return KernelChoice(lambda: PlainLoop(node, kernel_of), how)
    return KernelChoice(lambda: DistinctLoop(node, kernel_of), f"{how}; by level")
