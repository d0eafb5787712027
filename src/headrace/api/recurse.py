"""Recursion: a seed, and a function of the recursive stream (rule 9.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, overload

from headrace.api.checks import checked_function, node_of
from headrace.api.columns import in_order_of
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
    """At every instant, the seed, the body's result for the seed, the body's result for that, and so on.

    `body` is called once, with the recursive stream, and returns a stream of the same columns, in any order; it may
    join other streams. Lifetimes intersect along a derivation, and a retraction also retracts all that was derived from
    it. Every payload is there at most once at an instant; with `distinct=False` once for each derivation, which
    terminates only if no event is derived from itself. A loop that still changes after `max_rounds` rounds is an error.

    Mutually recursive relations are passed and returned by name; the body takes them in the same order:
    `recurse({"a": a, "b": b}, lambda a, b: {"a": ..., "b": ...})`.
    """
    if isinstance(seed, Mapping):
        relations = {name: node_of(stream, _MORE) for name, stream in seed.items()}
        bodies = checked_function(body, "recurse", _MORE)

        def plans(found: dict[str, Node]) -> dict[str, Node]:
            results = bodies(*(Stream(node) for node in found.values()))
            if not isinstance(results, Mapping):
                raise PlanError("a body of several relations returns them by name", given=results, instead=_MORE)
            nodes = {name: node_of(stream, _MORE) for name, stream in results.items()}
            return {name: in_order_of(n, found[name].schema) if name in found else n for name, n in nodes.items()}

        nodes = mutual_recursion(relations, plans, distinct=distinct, max_rounds=max_rounds, strategy=progress)
        return {name: Stream(node) for name, node in nodes.items()}
    single = checked_function(body, "recurse", _ONE)

    def plan(found: Node) -> Node:
        return in_order_of(node_of(single(Stream(found)), _ONE), found.schema)

    node = recursion(node_of(seed, _ONE), plan, distinct=distinct, max_rounds=max_rounds, strategy=progress)
    return Stream(node)
