"""The twin of the join: all pairs, one by one."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.operators.reference.rows import Payload, Row, identity, value_of
from headrace.plan.nodes import Join

__all__ = ["join"]


def join(node: Join, left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    """Pairs with equal keys, none of them null, for as long as both last."""
    pairs = []
    for mine_le, mine_re, mine in left:
        for their_le, their_re, theirs in right:
            le, re = max(mine_le, their_le), min(mine_re, their_re)
            payload = mine | {new: theirs[name] for name, new in node.right_columns.items()}
            if le < re and _equal(node, mine, theirs) and _passes(node, payload):
                pairs.append((le, re, payload))
    return pairs


def _equal(node: Join, mine: Payload, theirs: Payload) -> bool:
    keys = [(mine[a], theirs[b]) for a, b in node.on]
    return all(a is not None and b is not None and identity(a) == identity(b) for a, b in keys)


def _passes(node: Join, payload: Payload) -> bool:
    return node.where is None or value_of(node.where, payload, node.schema) is True
