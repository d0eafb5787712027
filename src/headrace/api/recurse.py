"""Recursion, as people write it: a seed, and a function of the stream that is being found (rule 9.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, overload

from headrace.api.checks import checked_function, node_of
from headrace.api.stream import Stream
from headrace.errors import PlanError
from headrace.plan.mutual import mutual_recursion
from headrace.plan.nodes import Node
from headrace.plan.recurse import LoopProgress, recursion

__all__ = ["recurse"]

_ONE = "recurse(seed, lambda found: found.join(edges, on={'node': 'src'}).select(node=col('dst')))"
_MORE = "recurse({'a': a, 'b': b}, lambda a, b: {'a': ..., 'b': ...})"


@overload
def recurse(
    seed: Stream,
    body: Callable[[Stream], Stream],
    *,
    distinct: bool = True,
    max_rounds: int | None = None,
    progress: LoopProgress = "hybrid",
) -> Stream: ...


@overload
def recurse(
    seed: Mapping[str, Stream],
    body: Callable[..., Mapping[str, Stream]],
    *,
    distinct: bool = True,
    max_rounds: int | None = None,
    progress: LoopProgress = "hybrid",
) -> dict[str, Stream]: ...


def recurse(
    seed: Stream | Mapping[str, Stream],
    body: Callable[..., Any],
    *,
    distinct: bool = True,
    max_rounds: int | None = None,
    progress: LoopProgress = "hybrid",
) -> Stream | dict[str, Stream]:
    """At every instant, what the seed gives, what the body makes of that, what it makes of that again, and so on.

    `body` is called once, with the stream that is being found, and gives a stream of the same columns; other streams
    may be joined to it. Lifetimes intersect along a derivation, and what is taken back takes back what was derived from
    it. Every payload is there at most once at an instant; with `distinct=False` as often as it is derived, which comes
    to an end only where nothing is derived from itself. A loop that has not come to rest after `max_rounds` is an
    error.

    Several relations that are made from each other are given and returned by name, and taken in that order:
    `recurse({"a": a, "b": b}, lambda a, b: {"a": ..., "b": ...})`.
    """
    if isinstance(seed, Mapping):
        relations = {name: node_of(stream, _MORE) for name, stream in seed.items()}
        several = checked_function(body, "recurse", _MORE)

        def plans(found: dict[str, Node]) -> dict[str, Node]:
            made = several(*(Stream(node) for node in found.values()))
            if not isinstance(made, Mapping):
                raise PlanError("a body of several relations gives them by name", given=made, instead=_MORE)
            return {name: node_of(stream, _MORE) for name, stream in made.items()}

        nodes = mutual_recursion(relations, plans, distinct=distinct, max_rounds=max_rounds, strategy=progress)
        return {name: Stream(node) for name, node in nodes.items()}
    one = checked_function(body, "recurse", _ONE)

    def plan(found: Node) -> Node:
        return node_of(one(Stream(found)), _ONE)

    node = recursion(node_of(seed, _ONE), plan, distinct=distinct, max_rounds=max_rounds, strategy=progress)
    return Stream(node)
