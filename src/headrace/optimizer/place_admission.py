"""Admission happens where the groups are: equal events agree on all columns, so any of them can bring them together."""

from __future__ import annotations

from dataclasses import replace

from headrace.expr import col
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Admit, Aggregate, EdgeLifetimes, Node, Output, walk

__all__ = ["place_admission"]


def place_admission(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """`Admit` brings rows together by the keys of the first grouped operator over it, and so shares its stage."""
    keys: dict[str, tuple[str, ...]] = {}
    for node in walk(*outputs):
        found = _keys(node)
        if found:
            for below in _reached(node.inputs[0]):
                keys.setdefault(below.fingerprint, found)

    def place(node: Node) -> Node:
        by = keys.get(node.fingerprint, ())
        return replace(node, by=by) if isinstance(node, Admit) and set(by) <= set(node.schema.names) else node

    return rewrite(outputs, place)


def _keys(node: Node) -> tuple[str, ...]:
    if isinstance(node, Aggregate):
        plain = [name for name, expr in node.keys if str(expr) == str(col(name))]
        return tuple(plain) if len(plain) == len(node.keys) else ()
    return node.key if isinstance(node, EdgeLifetimes) else ()


def _reached(node: Node) -> list[Node]:
    """The admissions below, through linear operators."""
    if isinstance(node, Admit):
        return [node]
    return [found for child in node.inputs for found in _reached(child)] if node.linear else []
