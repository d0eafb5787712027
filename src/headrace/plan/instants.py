"""How long the events of a stream last, as far as a plan tells: instants, of which joins find none to meet; or not for
ever.
"""

from __future__ import annotations

from headrace.plan.base import Node

__all__ = ["BOTH_INSTANTS", "always_ends", "has_points"]

#: What is wrong with a join of two streams of instants.
BOTH_INSTANTS = "a join needs to know how long each tuple can be met, and both sides are instants"


def has_points(node: Node) -> bool:
    """Whether a stream is of instants."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node.instants is None:
            waiting += node.inputs
        elif not node.instants:
            return False
    return True


def always_ends(node: Node) -> bool:
    """Whether no event of a stream can last for ever, as far as the plan tells."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node.ends is None:
            waiting += node.inputs
        elif not node.ends:
            return False
    return True
