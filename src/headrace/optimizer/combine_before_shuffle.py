"""Aggregates combine where the rows are, and merge where the groups are: the pane rewriting of the papers."""

from __future__ import annotations

from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Aggregate, Combine, Merge, Node, Output

__all__ = ["combine_before_shuffle"]


def combine_before_shuffle(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """`Aggregate(x)` becomes `Merge(Combine(x))`: only partial results cross the shuffle."""
    return rewrite(outputs, _split)


def _split(node: Node) -> Node:
    return Merge(Combine(node.input, node), node) if isinstance(node, Aggregate) and node.splits else node
