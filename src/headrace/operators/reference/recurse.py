"""The twin of recursion: the body over the whole history so far, again and again, until it stays the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.errors import Diverged
from headrace.operators.reference.coalesce import coalesce
from headrace.operators.reference.rows import Row, bag
from headrace.plan.nodes import Coalesce, Recurse

__all__ = ["recurse", "rounds"]

_MOST_ROUNDS = 200


def recurse(node: Recurse, seed: Sequence[Row], body: Callable[[Sequence[Row]], list[Row]]) -> list[Row]:
    """The first history that equals the union of `seed` and its `body`."""
    return rounds(node, seed, body)[-1]


def rounds(node: Recurse, seed: Sequence[Row], body: Callable[[list[Row]], list[Row]]) -> list[list[Row]]:
    """The histories from nothing to the first one that stays."""
    found: list[list[Row]] = [[]]
    for _ in range(_MOST_ROUNDS):
        next_history = [*seed, *body(found[-1])]
        if node.distinct:
            next_history = coalesce(Coalesce(node.seed), next_history)
        if bag(next_history) == bag(found[-1]):
            return found
        found.append(next_history)
    raise Diverged("the twin of a loop never comes to rest", given=node.describe())
