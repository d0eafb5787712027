"""The choice of the kernel that runs the windows of a node, and why.

If all aggregates add up, changes are added and subtracted. Otherwise a window is recomputed when something in it
changes; only users' modules run in Python.
"""

from __future__ import annotations

from headrace.modules import Module
from headrace.operators.aggregate.snapshots import SnapshotKernel, adds_up
from headrace.operators.choice import INCREMENTAL, KernelChoice
from headrace.operators.ordered.kernel import OrderedKernel
from headrace.operators.per_window.bound import BoundWindowKernel
from headrace.operators.per_window.grid import GridKernel, runs_on_grid
from headrace.operators.per_window.kernel import WindowKernel
from headrace.operators.per_window.snapshot import SnapshotWindowKernel, continues
from headrace.plan.nodes import Aggregate, PerWindow
from headrace.plan.ordered import Ordered

__all__ = ["aggregate_choice", "window_choice"]


def aggregate_choice(node: Aggregate) -> KernelChoice:
    """Running sums over snapshots if the aggregates add up, else the choice for other windows."""
    return KernelChoice(lambda: SnapshotKernel(node), INCREMENTAL) if adds_up(node) else window_choice(node)


def window_choice(node: PerWindow) -> KernelChoice:
    """Kernels that recompute windows."""
    # Without modules, answers over snapshots are always bound in time.
    bound = node.timestamping == "time_bound" and node.modules
    kernel: type[GridKernel | OrderedKernel | SnapshotWindowKernel | WindowKernel] = WindowKernel
    if isinstance(node.window, Ordered):
        kernel = OrderedKernel
    elif runs_on_grid(node):
        kernel = GridKernel
    elif bound:
        kernel = BoundWindowKernel
    elif continues(node):
        kernel = SnapshotWindowKernel
    return KernelChoice(
        lambda: kernel(node), _once_text(node) if node.final else _again_text(node), lambda: _sources(node)
    )


def _sources(node: PerWindow) -> dict[str, str]:
    """The code that aggregates written in SQL compile to."""
    return {f"{module}, over whole windows: Python": getattr(module, "source", "") for module in node.modules}


def _once_text(node: PerWindow) -> str:
    """For queries that give only final answers."""
    names = ", ".join(module.name for module in node.modules)
    how = f"Python; {names} called with all items of a window" if names else "columnar, all items of a window"
    return f"{how} once, when it is closed"


def _again_text(node: PerWindow) -> str:
    ordered = isinstance(node.window, Ordered)
    if not node.modules:
        return "columnar, open windows of changed groups anew" if ordered else "columnar, changed windows anew"
    if ordered:
        names = ", ".join(module.name for module in node.modules)
        return f"Python; {names} called for open windows of changed groups with all their items"
    return "Python; " + "; ".join(map(_module_text, node.modules))


def _module_text(module: Module) -> str:
    if not module.incremental:
        return f"{module.name} called for changed windows with all their items"
    if module.invertible:
        return f"{module.name} keeps a state that takes changes in and out (invertible)"
    if module.order_sensitive:
        return f"{module.name}'s state made anew in order (order-sensitive)"
    return f"{module.name} keeps a state that grows, made anew when items are taken back"
