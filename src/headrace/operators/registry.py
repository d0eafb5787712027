"""Which kernel runs which node: one table, so that a missing kernel fails with the node's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.errors import PlanError
from headrace.operators.admit import AdmitKernel
from headrace.operators.aggregate.merge import MergeKernel
from headrace.operators.aggregate.overlapping import OverlappingKernel, slides
from headrace.operators.aggregate.snapshots import SnapshotKernel, adds_up
from headrace.operators.clip import ClipKernel
from headrace.operators.coalesce import CoalesceKernel
from headrace.operators.edge import EdgeKernel
from headrace.operators.final import FinalKernel
from headrace.operators.join import JoinKernel
from headrace.operators.kernel import Kernel
from headrace.operators.ordered.kernel import OrderedKernel
from headrace.operators.ordered.tumbling import over_kernel, returning_kernel
from headrace.operators.output import OutputKernel
from headrace.operators.recurse import loop_of
from headrace.operators.recurse.spread import spread_loop_of
from headrace.operators.span import LINEAR
from headrace.operators.windows.bound import BoundWindowKernel
from headrace.operators.windows.kernel import WindowKernel
from headrace.plan.nodes import (
    Admit,
    Aggregate,
    Clip,
    Coalesce,
    Contents,
    EdgeLifetimes,
    Final,
    Fold,
    Join,
    LoopEnd,
    Match,
    Merge,
    Node,
    Operate,
    Output,
    Over,
    PerWindow,
    Recurse,
    Top,
)
from headrace.plan.ordered import Ordered

__all__ = ["kernel_of", "linear_of"]


def _windows(node: PerWindow) -> Kernel:
    if isinstance(node.window, Ordered):
        return OrderedKernel(node)
    if isinstance(node, Aggregate) and adds_up(node):
        return SnapshotKernel(node)
    # Without modules, over snapshots, answers are bound in time by themselves.
    bound = node.timestamping == "time_bound" and node.modules
    return BoundWindowKernel(node) if bound else WindowKernel(node)


def _match(node: Match) -> Kernel:
    # Here, because loading the compiler takes longer than all the rest of a start-up, and most queries have no pattern.
    from headrace.operators.pattern.kernel import MatchKernel

    return MatchKernel(node)


STATEFUL: dict[type[Node], Callable[[Any], Kernel]] = {
    Admit: AdmitKernel,
    Clip: ClipKernel,
    Coalesce: CoalesceKernel,
    Aggregate: _windows,
    Contents: _windows,
    EdgeLifetimes: EdgeKernel,
    Final: FinalKernel,
    Fold: returning_kernel,
    Join: JoinKernel,
    LoopEnd: spread_loop_of,
    Match: _match,
    Merge: lambda node: OverlappingKernel(node) if slides(node) else MergeKernel(node),
    Operate: _windows,
    Output: OutputKernel,
    Over: over_kernel,
    Recurse: lambda node: loop_of(node, kernel_of),
    Top: _windows,
}


def kernel_of(node: Node) -> Kernel:
    """A fresh kernel for a stateful node."""
    if type(node) not in STATEFUL:
        raise PlanError(f"no kernel runs {type(node).__name__}", allowed=", ".join(t.__name__ for t in STATEFUL))
    return STATEFUL[type(node)](node)


def linear_of(node: Node) -> Callable[[Any, Any], Any]:
    """The function of a linear node."""
    if type(node) not in LINEAR:
        raise PlanError(f"no kernel runs {type(node).__name__}", allowed=", ".join(t.__name__ for t in LINEAR))
    return LINEAR[type(node)]
