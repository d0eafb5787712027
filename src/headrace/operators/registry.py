"""The kernels of all nodes, in tables: a missing kernel fails with the node's name; `explain` shows the choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.errors import PlanError
from headrace.operators.admit import AdmitKernel
from headrace.operators.aggregate.choice import combine_runs, merge_choice
from headrace.operators.choice import Choose, KernelChoice, always
from headrace.operators.clip import ClipKernel
from headrace.operators.coalesce import CoalesceKernel
from headrace.operators.edge import EdgeKernel
from headrace.operators.final import FinalKernel
from headrace.operators.join import JoinKernel
from headrace.operators.kernel import Kernel
from headrace.operators.ordered.choice import fold_choice, over_choice
from headrace.operators.output import OutputKernel
from headrace.operators.pattern.choice import match_choice
from headrace.operators.per_window.choice import aggregate_choice, window_choice
from headrace.operators.recurse import loop_choice
from headrace.operators.recurse.spread import spread_loop_of
from headrace.operators.span import LINEAR
from headrace.operators.times import HeldTimesKernel
from headrace.plan.nodes import (
    Admit,
    Aggregate,
    Clip,
    Coalesce,
    Combine,
    Contents,
    Diverted,
    EdgeLifetimes,
    Failures,
    Final,
    Fold,
    HeldEventTimes,
    Join,
    LoopEnd,
    LoopStart,
    Match,
    Merge,
    Node,
    Operate,
    Orphans,
    Output,
    Over,
    Recurse,
    Source,
    Top,
)

__all__ = ["RUN_BY_THE_STAGE", "STATEFUL", "code_of", "kernel_of", "linear_of", "runs_as"]

#: The choice of a kernel for every node with a state.
STATEFUL: Mapping[type[Node], Choose] = {
    Admit: always(AdmitKernel),
    Aggregate: aggregate_choice,
    Clip: always(ClipKernel),
    Coalesce: always(CoalesceKernel),
    Contents: window_choice,
    EdgeLifetimes: always(EdgeKernel),
    Final: always(FinalKernel),
    Fold: fold_choice,
    HeldEventTimes: always(HeldTimesKernel),
    Join: always(JoinKernel),
    LoopEnd: always(spread_loop_of),
    Match: match_choice,
    Merge: merge_choice,
    Operate: window_choice,
    Output: always(OutputKernel),
    Over: over_choice,
    Recurse: lambda node: loop_choice(node, kernel_of),
    Top: window_choice,
}

#: Nodes without a kernel. The stage itself has their rows: it reads them, or another operator has diverted them, or
#: they went round a loop.
RUN_BY_THE_STAGE: frozenset[type[Node]] = frozenset({Diverted, Failures, LoopStart, Orphans, Source})


def _choice(node: Node) -> KernelChoice:
    if type(node) not in STATEFUL:
        raise PlanError(f"no kernel runs {type(node).__name__}", allowed=", ".join(t.__name__ for t in STATEFUL))
    return STATEFUL[type(node)](node)


def kernel_of(node: Node) -> Kernel:
    """A fresh kernel for a stateful node."""
    return _choice(node).kernel()


def linear_of(node: Node) -> Callable[[Any, Any], Any]:
    """The function of a linear node."""
    if type(node) not in LINEAR:
        raise PlanError(f"no kernel runs {type(node).__name__}", allowed=", ".join(t.__name__ for t in LINEAR))
    return LINEAR[type(node)]


def runs_as(node: Node) -> str:
    """How a node runs and, where there is a choice, why."""
    if not node.linear:
        return _choice(node).runs
    if isinstance(node, Combine):
        return combine_runs(node)
    return "columnar, filter in the reader" if isinstance(node, Source) and node.pushed is not None else "columnar"


def code_of(node: Node) -> Mapping[str, str]:
    """The code generated for a node, by title."""
    return {} if node.linear else _choice(node).code()
