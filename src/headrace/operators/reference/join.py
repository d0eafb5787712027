"""The twins of joins: all pairs, one by one; parts without match, instant by instant."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from headrace.operators.reference.rows import Payload, Row, identity, value_of
from headrace.plan.nodes import Join

__all__ = ["join"]


def join(node: Join, left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    """Pairs with equal keys while both last, and the unmatched parts for a left or anti join.

    Nulls are equal only in keys of groups.
    """
    pairs = []
    unmatched = []
    for row in left:
        matches = [other for other in right if _match(node, row, other)]
        pairs += [(max(row[0], le), min(row[1], re), _beside(node, row[2], payload)) for le, re, payload in matches]
        unmatched += [(le, re, row[2]) for le, re in _uncovered(row, matches)]
    if node.kind == "inner":
        return pairs
    if node.kind == "anti":
        return unmatched
    nulls = dict.fromkeys(node.right_columns.values())
    return pairs + [(le, re, payload | nulls) for le, re, payload in unmatched]


def _match(node: Join, row: Row, other: Row) -> bool:
    overlap = row[0] < other[1] and other[0] < row[1]
    return overlap and _equal(node, row[2], other[2]) and _passes(node, _beside(node, row[2], other[2]))


def _beside(node: Join, left: Payload, right: Payload) -> Payload:
    return left | {new: right[name] for name, new in node.right_columns.items()}


def _equal(node: Join, left: Payload, right: Payload) -> bool:
    keys = [(left[a], right[b]) for a, b in node.on]
    grouped = (identity(a) == identity(b) for a, b in keys[: node.groups])
    plain = (a is not None and b is not None and identity(a) == identity(b) for a, b in keys[node.groups :])
    return all(grouped) and all(plain)


def _passes(node: Join, payload: Payload) -> bool:
    return node.where is None or value_of(node.where, payload, node.paired) is True


def _uncovered(row: Row, others: Sequence[Row]) -> list[tuple[int, int]]:
    """The longest stretches of a lifetime during which none of the others lasts.

    Between two neighbouring endpoints nothing changes, so one instant of each step is enough.
    """
    times = sorted({t for le, re, _ in [row, *others] for t in (le, re) if row[0] <= t <= row[1]})
    free = [(a, b) for a, b in pairwise(times) if not any(le <= a < re for le, re, _ in others)]
    stretches: list[tuple[int, int]] = []
    for a, b in free:
        if stretches and stretches[-1][1] == a:
            stretches[-1] = (stretches[-1][0], b)
        else:
            stretches.append((a, b))
    return stretches
