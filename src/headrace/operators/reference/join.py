"""The twins of joins: all pairs, one by one, and for what has no match one instant after the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from headrace.operators.reference.rows import Payload, Row, identity, value_of
from headrace.plan.nodes import Join

__all__ = ["join"]


def join(node: Join, left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    """Pairs with equal keys, none of them null, for as long as both last, and what a left or anti join adds."""
    pairs = []
    alone = []
    for mine in left:
        others = [theirs for theirs in right if _match(node, mine, theirs)]
        pairs += [(max(mine[0], le), min(mine[1], re), _beside(node, mine[2], payload)) for le, re, payload in others]
        alone += [(le, re, mine[2]) for le, re in _uncovered(mine, others)]
    if node.kind == "inner":
        return pairs
    if node.kind == "anti":
        return alone
    nulls = dict.fromkeys(node.right_columns.values())
    return pairs + [(le, re, payload | nulls) for le, re, payload in alone]


def _match(node: Join, mine: Row, theirs: Row) -> bool:
    overlap = mine[0] < theirs[1] and theirs[0] < mine[1]
    return overlap and _equal(node, mine[2], theirs[2]) and _passes(node, _beside(node, mine[2], theirs[2]))


def _beside(node: Join, mine: Payload, theirs: Payload) -> Payload:
    return mine | {new: theirs[name] for name, new in node.right_columns.items()}


def _equal(node: Join, mine: Payload, theirs: Payload) -> bool:
    keys = [(mine[a], theirs[b]) for a, b in node.on]
    return all(a is not None and b is not None and identity(a) == identity(b) for a, b in keys)


def _passes(node: Join, payload: Payload) -> bool:
    return node.where is None or value_of(node.where, payload, node.paired) is True


def _uncovered(mine: Row, others: Sequence[Row]) -> list[tuple[int, int]]:
    """The longest stretches of a lifetime during which none of the others lasts.

    Between two neighbouring ends of lifetimes nothing changes, so one instant of each such step tells all of it.
    """
    times = sorted({t for le, re, _ in [mine, *others] for t in (le, re) if mine[0] <= t <= mine[1]})
    free = [(a, b) for a, b in pairwise(times) if not any(le <= a < re for le, re, _ in others)]
    stretches: list[tuple[int, int]] = []
    for a, b in free:
        if stretches and stretches[-1][1] == a:
            stretches[-1] = (stretches[-1][0], b)
        else:
            stretches.append((a, b))
    return stretches
