"""The choice of the kernel that runs the windows of a node, and why.

If all aggregates add up, changes are added and subtracted. Otherwise windows of a grid and snapshots continue from what
is kept of them where that is enough; other windows are recomputed when something in them changes. Only users' modules
run in Python.
"""

from __future__ import annotations

from headrace.modules import Module
from headrace.operators.aggregate.snapshots import SnapshotKernel, adds_up
from headrace.operators.choice import INCREMENTAL, KernelChoice
from headrace.operators.ordered.kernel import OrderedKernel
from headrace.operators.per_window.bound import BoundWindowKernel
from headrace.operators.per_window.content import Content, content_of
from headrace.operators.per_window.grid import GridKernel, runs_on_grid
from headrace.operators.per_window.kernel import WindowKernel
from headrace.operators.per_window.sessions import SessionKernel, keeps_sessions
from headrace.operators.per_window.snapshot import SnapshotWindowKernel, continues
from headrace.plan.nodes import Aggregate, PerWindow, Top
from headrace.plan.ordered import Ordered
from headrace.plan.windows import Session

__all__ = ["aggregate_choice", "window_choice"]


def aggregate_choice(node: Aggregate) -> KernelChoice:
    """Sums for sessions, running sums over snapshots, if the aggregates add up; else the choice for other windows."""
    if keeps_sessions(node):
        return KernelChoice(lambda: SessionKernel(node), _session_text(node))
    return KernelChoice(lambda: SnapshotKernel(node), INCREMENTAL) if adds_up(node) else window_choice(node)


def _session_text(node: Aggregate) -> str:
    once = "; answers once, when a session is closed" if node.final else ""
    starts = "" if node.input.properties.insert_only else ", and for each start after the CTI"
    return f"{INCREMENTAL}; keeps sums for each session{starts}{once}"


def window_choice(node: PerWindow) -> KernelChoice:
    """Kernels that recompute windows, or continue from them."""
    kernel = _kernel(node)
    runs = _once_text(node) if node.final else _again_text(node, kernel)
    return KernelChoice(lambda: kernel(node), runs, lambda: _sources(node))


_Kernel = type[GridKernel | OrderedKernel | SnapshotWindowKernel | WindowKernel]


def _kernel(node: PerWindow) -> _Kernel:
    if isinstance(node.window, Ordered):
        return OrderedKernel
    if runs_on_grid(node):
        return GridKernel
    if node.timestamping == "time_bound" and node.modules:  # without modules, answers over snapshots are always bound
        return BoundWindowKernel
    return SnapshotWindowKernel if continues(node) else WindowKernel


def _sources(node: PerWindow) -> dict[str, str]:
    """The code that aggregates written in SQL compile to."""
    return {f"{module}, over whole windows: Python": getattr(module, "source", "") for module in node.modules}


def _once_text(node: PerWindow) -> str:
    """For queries that give only final answers."""
    names = ", ".join(module.name for module in node.modules)
    how = f"Python; {names} called with all items of a window" if names else "columnar, all items of a window"
    return f"{how} once, when it is closed"


def _again_text(node: PerWindow, kernel: _Kernel) -> str:
    if not node.modules:
        return _columnar_text(node, kernel)
    if kernel is OrderedKernel:
        names = ", ".join(module.name for module in node.modules)
        return f"Python; {names} called for open windows of changed groups with all their items"
    reads = "" if kernel in _CONTINUE else "; reads the events of changed groups"
    return "Python; " + "; ".join(map(_module_text, node.modules)) + reads


_CONTINUE: tuple[_Kernel, ...] = (GridKernel, SnapshotWindowKernel)


def _columnar_text(node: PerWindow, kernel: _Kernel) -> str:
    if kernel is OrderedKernel:
        return "columnar, open windows of changed groups anew"
    content = content_of(node)
    if kernel is GridKernel and content.adds_up:
        return INCREMENTAL
    if kernel in _CONTINUE and isinstance(node, Top) and node.around:
        return "columnar, the frames of changed windows anew: a change costs the events of its group that are alive"
    if kernel is SnapshotWindowKernel and isinstance(node, Top) and not content.from_outputs:
        return "columnar, changed windows from their first events, found in order"
    if kernel in _CONTINUE and isinstance(node, Top) and content.from_outputs:
        return f"columnar, changed windows from their outputs; {_next_one(kernel, content, 'one of these')}"
    if kernel in _CONTINUE and content.sums is not None:
        return f"columnar, changed windows from sums; {_next_one(kernel, content, 'a least or greatest value')}"
    bounded = isinstance(node.window, Session) and node.window.longest is not None
    return "columnar, changed windows anew" + ("; with longest=, all starts of a group decide" if bounded else "")


def _next_one(kernel: _Kernel, content: Content, lost: str) -> str:
    """What happens when something is taken back that an answer consists of."""
    if kernel is SnapshotWindowKernel and content.orders:
        return f"when {lost} is taken back, the next is found in order"
    return f"anew when {lost} is taken back"


def _module_text(module: Module) -> str:
    if not module.incremental:
        return f"{module.name} called for changed windows with all their items"
    if module.invertible:
        return f"{module.name} keeps a state that takes changes in and out (invertible)"
    if module.order_sensitive:
        return f"{module.name}'s state made anew in order (order-sensitive)"
    return f"{module.name} keeps a state that grows, made anew when items are taken back"
