"""The twin of coalescing: two events that meet or overlap are made one, until no two do."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from headrace.operators.reference.rows import Row, payload_identity
from headrace.plan.nodes import Coalesce

__all__ = ["coalesce"]


def coalesce(node: Coalesce, rows: Sequence[Row]) -> list[Row]:  # noqa: ARG001 - called like its kin
    """For each payload, events of which no two touch, alive exactly when one of `rows` is."""
    spans: dict[Hashable, list[Row]] = {}
    for row in rows:
        disjoint = spans.setdefault(payload_identity(row[2]), [])
        merged = row
        while touching := [other for other in disjoint if other[0] <= merged[1] and merged[0] <= other[1]]:
            disjoint.remove(touching[0])
            merged = (min(merged[0], touching[0][0]), max(merged[1], touching[0][1]), row[2])
        disjoint.append(merged)
    return [row for disjoint in spans.values() for row in disjoint]
