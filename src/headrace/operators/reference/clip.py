"""The twin of clipping: of all starts inside a lifetime, the first."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.operators.reference.rows import Payload, Row, identity
from headrace.plan.clip import Clip

__all__ = ["clip"]


def clip(node: Clip, rows: Sequence[Row], by: Sequence[Row]) -> list[Row]:
    """Lifetimes that end where the first matching event starts strictly inside them."""
    result = []
    for le, re, payload in rows:
        inside = [start for start, _, other in by if le < start < re and _equal(node, payload, other)]
        result.append((le, min([re, *inside]), payload))
    return result


def _equal(node: Clip, payload: Payload, other: Payload) -> bool:
    keys = [(payload[a], other[b]) for a, b in node.on]
    return not any(a is None or b is None or identity(a) != identity(b) for a, b in keys)
