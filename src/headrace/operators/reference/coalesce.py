"""The twin of coalescing: two events that meet or overlap are made one, until no two do."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from headrace.operators.reference.rows import Row, payload_identity
from headrace.plan.nodes import Coalesce

__all__ = ["coalesce"]


def coalesce(node: Coalesce, rows: Sequence[Row]) -> list[Row]:  # noqa: ARG001 - called like its kin
    """For each payload, events of which no two touch, alive exactly when one of `rows` is."""
    found: dict[Hashable, list[Row]] = {}
    for row in rows:
        apart = found.setdefault(payload_identity(row[2]), [])
        whole = row
        while touching := [other for other in apart if other[0] <= whole[1] and whole[0] <= other[1]]:
            apart.remove(touching[0])
            whole = (min(whole[0], touching[0][0]), max(whole[1], touching[0][1]), row[2])
        apart.append(whole)
    return [row for apart in found.values() for row in apart]
