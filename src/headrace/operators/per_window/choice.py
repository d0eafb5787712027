"""Which kernel runs the windows of a node, and why.

Where all that is asked for adds up, changes are added and subtracted. Otherwise windows are looked at again when
something in them changes; only users' modules run in Python.
"""

from __future__ import annotations

from headrace.modules import Module
from headrace.operators.aggregate.snapshots import SnapshotKernel, adds_up
from headrace.operators.choice import INCREMENTAL, KernelChoice
from headrace.operators.ordered.kernel import OrderedKernel
from headrace.operators.per_window.bound import BoundWindowKernel
from headrace.operators.per_window.kernel import WindowKernel
from headrace.plan.nodes import Aggregate, PerWindow
from headrace.plan.ordered import Ordered

__all__ = ["aggregate_choice", "window_choice"]


def aggregate_choice(node: Aggregate) -> KernelChoice:
    """Running sums over snapshots, where the aggregates add up; else as any other."""
    return KernelChoice(lambda: SnapshotKernel(node), INCREMENTAL) if adds_up(node) else window_choice(node)


def window_choice(node: PerWindow) -> KernelChoice:
    """Windows that are looked at anew."""
    # Without modules, over snapshots, answers are bound in time by themselves.
    bound = node.timestamping == "time_bound" and node.modules
    kernel: type[WindowKernel | OrderedKernel] = BoundWindowKernel if bound else WindowKernel
    if isinstance(node.window, Ordered):
        kernel = OrderedKernel
    return KernelChoice(lambda: kernel(node), _once(node) if node.final else _again(node), lambda: _sources(node))


def _sources(node: PerWindow) -> dict[str, str]:
    """Of aggregates that are written in SQL, the code they became."""
    return {f"{module}, over whole windows: Python": getattr(module, "source", "") for module in node.modules}


def _once(node: PerWindow) -> str:
    """Where only final answers are asked for."""
    names = ", ".join(module.name for module in node.modules)
    how = f"Python; {names} called with all items of a window" if names else "columnar, all items of a window"
    return f"{how} once, when it is closed"


def _again(node: PerWindow) -> str:
    ordered = isinstance(node.window, Ordered)
    if not node.modules:
        return "columnar, open windows of changed groups anew" if ordered else "columnar, changed windows anew"
    if ordered:
        names = ", ".join(module.name for module in node.modules)
        return f"Python; {names} called for open windows of changed groups with all their items"
    return "Python; " + "; ".join(map(_kept_up, node.modules))


def _kept_up(module: Module) -> str:
    if not module.incremental:
        return f"{module.name} called for changed windows with all their items"
    if module.invertible:
        return f"{module.name} keeps a state that takes changes in and out (invertible)"
    if module.order_sensitive:
        return f"{module.name}'s state made anew in order (order-sensitive)"
    return f"{module.name} keeps a state that grows, made anew when items are taken back"
