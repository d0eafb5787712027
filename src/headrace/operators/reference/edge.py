"""The twin of edge lifetimes (rule 1.2): a sample lasts until the next sample time of its key.

If samples have an order, only the last of those at one time lasts, or closes the signal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.operators.reference.rows import Row, identity, value_of
from headrace.plan.nodes import EdgeLifetimes
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["edge_lifetimes"]


def edge_lifetimes(node: EdgeLifetimes, rows: Sequence[Row]) -> list[Row]:
    """Signals of samples; a sample that closes the signal ends the one before and is not part of it."""
    result = []
    for le, _, payload in rows:
        key = [identity(payload[name]) for name in node.key]
        same = [other for t, _, other in rows if t == le and [identity(other[name]) for name in node.key] == key]
        if any(_rank(node, other) > _rank(node, payload) for other in same):
            continue
        later = [t for t, _, other in rows if t > le and [identity(other[name]) for name in node.key] == key]
        closing = node.closes is not None and value_of(node.closes, payload, node.input.schema) is True
        if not closing:
            shown = {name: payload[name] for name in node.schema.names}
            result.append((le, min(later, default=INFINITY), shown))
    return result


def _rank(node: EdgeLifetimes, payload: dict[str, Any]) -> list[int]:
    return [NEG_INFINITY if payload[name] is None else payload[name] for name in node.order]
