"""How a pattern runs: which part is columnar, and what is asked of runs one by one."""

from __future__ import annotations

from headrace.operators.choice import KernelChoice
from headrace.operators.kernel import Kernel
from headrace.plan.pattern import Match

__all__ = ["match_choice"]


def match_choice(node: Match) -> KernelChoice:
    """Always the native loop, which is given what conditions say of one tuple as columns."""
    asked = [name for name, own in zip(node.program.variables, node.program.guards, strict=True) if own[0] < own[1]]
    asked += ["the whole"] if node.program.accept[0] < node.program.accept[1] else []
    how = "native, all groups in one call, each from its first open tuple on"
    how += "; a match is given when no tuple can change it any more" if node.final else ""
    how += f"; conditions of {', '.join(asked)} asked of runs" if asked else "; conditions columnar"
    return KernelChoice(lambda: _kernel(node), how)


def _kernel(node: Match) -> Kernel:
    # Here, because loading the compiler takes longer than all the rest of a start-up, and most queries have no pattern.
    from headrace.operators.pattern.kernel import MatchKernel

    return MatchKernel(node)
