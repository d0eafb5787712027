"""Admission runs where the groups are: equal events agree on all columns, so any of these can bring them together."""

from __future__ import annotations

from dataclasses import replace

from headrace.expr import col
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Admit, Final, Node, Output, PerWindow, Select, walk

__all__ = ["place_admission"]


def place_admission(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """`Admit` brings rows together by the keys of the first operator with keys above it, and so shares its stage."""
    keys: dict[str, tuple[str, ...]] = {}
    for node in walk(*outputs):
        for child, wanted in zip(node.inputs, _keys(node), strict=True):
            for below, by in _reached(child, wanted):
                keys.setdefault(below.fingerprint, by)

    def place(node: Node) -> Node:
        by = keys.get(node.fingerprint) or node.schema.names
        return replace(node, by=by) if isinstance(node, Admit) else node

    return rewrite(outputs, place)


def _keys(node: Node) -> list[tuple[str, ...]]:
    """For each input, the columns by which the operator needs its rows together; () if there are none."""
    if isinstance(node, PerWindow):
        plain = [name for name, expr in node.keys if str(expr) == str(col(name))]
        return [tuple(plain) if len(plain) == len(node.keys) else ()]
    wants = not node.linear and not isinstance(node, (Admit, Final, Output))
    return [(node.need(i) if wants else None) or () for i in range(len(node.inputs))]


def _reached(node: Node, keys: tuple[str, ...]) -> list[tuple[Node, tuple[str, ...]]]:
    """The admissions below, through linear operators, and the names of the columns there."""
    found: list[tuple[Node, tuple[str, ...]]] = []
    waiting = [(node, keys)]
    while waiting:
        node, keys = waiting.pop()
        if isinstance(node, Select):
            plain = {name: expr.name for name, expr in node.outputs if str(expr) == str(col(expr.name))}
            keys = tuple(plain[name] for name in keys) if set(keys) <= set(plain) else ()
        if isinstance(node, Admit):
            found += [(node, keys)] if keys and set(keys) <= set(node.schema.names) else []
        elif keys and node.linear:
            waiting += [(child, keys) for child in reversed(node.inputs)]
    return found
