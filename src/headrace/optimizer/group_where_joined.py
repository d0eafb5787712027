"""Groups that are joined come together by the keys of the join, so that the join runs where they are.

All keys identify a group, but any of them bring its rows together. If a join uses only some of the keys, its inputs
would be shuffled again; if the rows are brought together by these keys in the first place, they stay.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Join, Merge, Node, Output, walk

__all__ = ["group_where_joined"]


def group_where_joined(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """The merges below a join, if only the join reads them, come together by keys of the join."""
    readers = Counter(child.fingerprint for node in walk(*outputs) for child in node.inputs)
    chosen: dict[str, Merge] = {}
    for node in walk(*outputs):
        if isinstance(node, Join) and node.on:
            chosen |= _chosen(node, readers)
    return rewrite(outputs, lambda node: chosen.get(node.fingerprint, node)) if chosen else outputs


def _chosen(join: Join, readers: Counter[str]) -> dict[str, Merge]:
    """The merges of both sides with new keys to bring rows together, by the fingerprint of the merge they replace."""
    sides = [_merge_below(side, readers) for side in join.inputs]
    if any(merge is None and side.properties.keys is not None for merge, side in zip(sides, join.inputs, strict=True)):
        return {}  # one side is shuffled in any case
    pairs = [[None if merge is None else _origin(side, merge, name) for merge, side, name in
              zip(sides, join.inputs, pair, strict=True)] for pair in join.on]  # fmt: skip
    found = {}
    for position, merge in enumerate(sides):
        shared = [pair[position] for pair in pairs if all(m is None or key for m, key in zip(sides, pair, strict=True))]
        by = tuple(key for key in shared if key is not None)
        if merge is not None and by and by != merge.aggregate.key_names:
            found[merge.fingerprint] = replace(merge, by=by)
    return found


def _merge_below(node: Node, readers: Counter[str]) -> Merge | None:
    """The merge below a side, through operators with one input and one reader."""
    while readers[node.fingerprint] == 1 and len(node.inputs) == 1:
        if isinstance(node, Merge):
            return node if node.by is None and node.input.properties.keys is None else None
        node = node.inputs[0]
    return None


def _origin(side: Node, merge: Merge, column: str) -> str | None:
    """The key of a merge for a column of a side; None if there is none, or it does not decide the bucket."""
    for key in merge.aggregate.key_names:
        if _with_merge(side, merge, replace(merge, by=(key,))).properties.keys == (column,):
            return key
    return None


def _with_merge(side: Node, merge: Node, new: Node) -> Node:
    """A side with another merge below it."""
    chain = []
    while side is not merge:
        chain.append(side)
        side = side.inputs[0]
    for node in reversed(chain):
        new = node.with_inputs(new)
    return new
