"""The columns of operators that a plan uses."""

from __future__ import annotations

from headrace.plan.base import Node, walk

__all__ = ["columns_used"]


def columns_used(*roots: Node) -> dict[str, set[str]]:
    """The columns of every operator that its readers use, by fingerprint; all columns of the roots."""
    used: dict[str, set[str]] = {node.fingerprint: set() for node in walk(*roots)}
    used |= {root.fingerprint: set(root.schema.names) for root in roots}
    for node in reversed(list(walk(*roots))):
        needed = used[node.fingerprint]
        for side, child in enumerate(node.inputs):
            used[child.fingerprint] |= node.uses(side, needed) & set(child.schema.names)
    return used
