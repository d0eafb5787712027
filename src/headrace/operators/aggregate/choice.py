"""The choice of the kernels for the halves of an aggregate, `Combine` and `Merge`, and their state."""

from __future__ import annotations

from headrace.operators.aggregate.accumulators import Layout
from headrace.operators.aggregate.merge import MergeKernel
from headrace.operators.aggregate.overlapping import OverlappingKernel, can_slide
from headrace.operators.choice import INCREMENTAL, KernelChoice
from headrace.plan.nodes import Combine, Merge

__all__ = ["combine_runs", "merge_choice"]


def merge_choice(node: Merge) -> KernelChoice:
    """Overlapping windows by steps, if all aggregates add up or are extremes; else window by window."""
    layout = Layout(node.aggregate)
    # Numbers too large for 64 bits are Python integers, one answer at a time.
    squared = [str(argument.expr) for argument in layout.arguments.values() if argument.squared]
    exact = f"; variance of {', '.join(squared)} in exact arithmetic, answer by answer" if squared else ""
    kernel: type[OverlappingKernel | MergeKernel] = OverlappingKernel if can_slide(node) else MergeKernel
    ends = [str(argument.expr) for argument in layout.arguments.values() if argument.mergeable_extremes]
    slid = f"; keeps what may still be an extreme of {', '.join(ends)}" if ends and kernel is OverlappingKernel else ""
    return KernelChoice(lambda: kernel(node), f"{INCREMENTAL}{_kept(layout)}{slid}{exact}")


def combine_runs(node: Combine) -> str:
    """How the first half runs."""
    return f"{INCREMENTAL}{_kept(Layout(node.aggregate))}"


def _kept(layout: Layout) -> str:
    bags = [str(a.expr) for a in layout.arguments.values() if a.bag and not a.sketch]
    sketches = [str(a.expr) for a in layout.arguments.values() if a.sketch]
    how = f"; keeps the values of {', '.join(bags)}" if bags else ""
    how += f"; keeps a sketch of the values of {', '.join(sketches)}" if sketches else ""
    return how + "".join(
        f"; {call} is exact, because its input takes events back"
        for call in layout.node.split[0].values()
        if call.function == "approx_distinct" and not layout.insert_only
    )
