"""How a pattern runs: which conditions are columnar, and which are evaluated run by run."""

from __future__ import annotations

from headrace.operators.choice import KernelChoice
from headrace.operators.kernel import Kernel
from headrace.plan.pattern import Match

__all__ = ["match_choice"]


def match_choice(node: Match) -> KernelChoice:
    """Always the native loop; conditions on a single tuple are columns of its input."""
    by_run = [
        name for name, guard in zip(node.program.variables, node.program.guards, strict=True) if guard[0] < guard[1]
    ]
    by_run += ["the whole"] if node.program.accept[0] < node.program.accept[1] else []
    how = "native, all groups in one call, each from its first open tuple on"
    how += "; a match is given when no tuple can change it any more" if node.final else ""
    how += f"; conditions of {', '.join(by_run)} asked of runs" if by_run else "; conditions columnar"
    return KernelChoice(lambda: _kernel(node), how)


def _kernel(node: Match) -> Kernel:
    # Imported here, because loading the compiler takes most of a start-up, and most queries have no pattern.
    from headrace.operators.pattern.kernel import MatchKernel

    return MatchKernel(node)
