"""Whether the answers of a plan at one instant come in the order in which its input has happened."""

from __future__ import annotations

from headrace.plan.base import Node, walk
from headrace.plan.nodes import Fold, Match, Output, Over
from headrace.plan.source import Admit, Source

__all__ = ["keeps_order"]

_ORDERED = (Over, Fold, Match)


def keeps_order(output: Node) -> bool:
    """Whether a plan passes events of one source on in their order, where it runs in one bucket.

    Operators that look at each event alone do, and frames and patterns of one group. Groups, windows and joins bring
    events together, and give answers in an order of their own.
    """
    nodes = list(walk(output))
    if sum(isinstance(node, Source) for node in nodes) != 1:
        return False
    return all(
        node.linear or isinstance(node, (Output, Admit)) or (isinstance(node, _ORDERED) and not node.keys)
        for node in nodes
    )
