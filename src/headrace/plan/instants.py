"""What a plan shows about the durations of events: whether they are instants, and whether they end."""

from __future__ import annotations

from headrace.plan.base import Node

__all__ = ["BOTH_INSTANTS", "always_ends", "has_points"]

#: The error of a join of two streams of instants.
BOTH_INSTANTS = "a join needs to know how long each tuple can be met, and both sides are instants"


def has_points(node: Node) -> bool:
    """Whether all events of a stream are instants. Other streams last: they are relations at every instant (8.4)."""
    return node.all_instants


def always_ends(node: Node) -> bool:
    """Whether the plan shows that all events of a stream end."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node.ends is None:
            waiting += node.inputs
        elif not node.ends:
            return False
    return True
