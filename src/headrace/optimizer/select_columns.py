"""Operators get only the columns that the query uses, while sources stay as they are, for other queries to share."""

from __future__ import annotations

from headrace.expr import col
from headrace.optimizer.rewrite import rewrite
from headrace.plan.columns import columns_used
from headrace.plan.nodes import Admit, Aggregate, Diverted, Node, Orphans, Output, Select, Source

__all__ = ["select_columns"]


def select_columns(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """A `Select` above sources and the admission of their events, unless their reader keeps no columns anyway."""
    used = columns_used(*outputs)

    def narrow(child: Node) -> Node:
        needed = used.get(child.fingerprint)
        if not isinstance(child, (Source, Admit)) or needed is None:
            return child
        kept = tuple(name for name in child.schema.names if name in needed) or child.schema.names[:1]
        return child if len(kept) == len(child.schema) else Select(child, tuple((name, col(name)) for name in kept))

    def change(node: Node) -> Node:
        if not node.inputs or isinstance(node, (Admit, Aggregate, Diverted, Orphans, Select)):
            return node
        inputs = [narrow(child) for child in node.inputs]
        same = all(new is old for new, old in zip(inputs, node.inputs, strict=True))
        return node if same else node.with_inputs(*inputs)

    return rewrite(outputs, change)
