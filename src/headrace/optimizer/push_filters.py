"""Plain predicates directly over a source go into its reader, when progress does not depend on the rows left out.

Under `advance` and with physical events, rows move the CTI even if a filter drops them later, so they must be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import and_

from headrace.expr import Expr
from headrace.expr.pushdown import conjuncts, to_arrow_filter
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Diverted, Node, Output, Source, Where, walk
from headrace.plan.policies import Advance, Physical

__all__ = ["push_filters"]


def push_filters(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """`Where(Source)` becomes a source that reads less."""
    readers: dict[str, list[Node]] = {}
    for node in walk(*outputs):
        for child in node.inputs:
            readers.setdefault(child.fingerprint, []).append(node)
    return rewrite(outputs, _pusher(readers))


def _pusher(readers: dict[str, list[Node]]) -> Callable[[Node], Node]:
    def push(node: Node) -> Node:
        if not (isinstance(node, Where) and isinstance(node.input, Source)):
            return node
        source = node.input
        others = [r for r in readers.get(source.fingerprint, []) if not isinstance(r, Diverted)]
        if len(others) > 1 or isinstance(source.policy, Advance) or isinstance(source.lifetime, Physical):
            return node
        return _pushed(source, node.predicate)

    return push


def _pushed(source: Source, predicate: Expr) -> Node:
    parts = conjuncts(predicate)
    plain = [part for part in parts if to_arrow_filter(part, source.schema) is not None]
    rest = [part for part in parts if to_arrow_filter(part, source.schema) is None]
    if not plain:
        return Where(source, predicate)
    narrowed = replace(source, pushed=reduce(and_, plain))
    return Where(narrowed, reduce(and_, rest)) if rest else narrowed
