"""The twin of recursion: the body over the whole history found so far, again and again, until it stays the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.errors import Diverged
from headrace.operators.reference.coalesce import coalesce
from headrace.operators.reference.rows import Row, bag
from headrace.plan.nodes import Coalesce, Recurse

__all__ = ["recurse"]

_MOST_ROUNDS = 200


def recurse(node: Recurse, seed: Sequence[Row], body: Callable[[Sequence[Row]], list[Row]]) -> list[Row]:
    """The first history that `seed` and `body` of it give again."""
    found: list[Row] = []
    for _ in range(_MOST_ROUNDS):
        more = [*seed, *body(found)]
        if node.distinct:
            more = coalesce(Coalesce(node.seed), more)
        if bag(more) == bag(found):
            return found
        found = more
    raise Diverged("the twin of a loop never comes to rest", given=node.describe())
