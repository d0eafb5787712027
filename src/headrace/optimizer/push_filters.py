"""Simple predicates directly above a source go into its reader, if progress does not depend on the rows left out.

With `advance` and with physical events, rows move the CTI even if a filter drops them later, so they must be read. So
must intervals: if one has no end, the last LE decides where its windows stop (rule 5.3). A row's position is its number
among all rows of its file, so stamped sources read all rows, too; and so do those that shed rows, which count them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import and_

from headrace.expr import Expr
from headrace.expr.pushdown import conjuncts, to_arrow_filter
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Diverted, Node, Output, Source, Where, walk
from headrace.plan.policies import Advance, Interval, Physical

__all__ = ["push_filters"]


def push_filters(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """`Where(Source)` becomes a source that reads less, for all that read it."""
    wheres = {where.input.fingerprint: where for where in _candidates(outputs)}
    pushed = {source: _parts(where)[0] for source, where in wheres.items()}
    #: The predicate whose part a reader got: another filter above it may have another one, which stays.
    whole = {id(pushed[source]): where.predicate for source, where in wheres.items()}

    def push(node: Node) -> Node:
        if isinstance(node, Source) and pushed.get(node.fingerprint) is not None:
            return replace(node, pushed=pushed[node.fingerprint])
        if isinstance(node, Where) and isinstance(node.input, Source) and node.input.pushed is not None:
            if whole.get(id(node.input.pushed)) is not node.predicate:
                return node
            rest = _parts(node)[1]
            return node.input if rest is None else Where(node.input, rest)
        return node

    return rewrite(outputs, push)


def _candidates(outputs: tuple[Output, ...]) -> list[Where]:
    """Filters that are the only reader of their source, apart from those of the rows it diverts."""
    readers: dict[str, list[Node]] = {}
    for node in walk(*outputs):
        for child in node.inputs:
            if isinstance(child, Source) and not isinstance(node, Diverted):
                readers.setdefault(child.fingerprint, []).append(node)
    alone = [nodes[0] for nodes in readers.values() if len(nodes) == 1]
    return [node for node in alone if isinstance(node, Where) and _may_skip_rows(node.input)]


def _may_skip_rows(source: Node) -> bool:
    assert isinstance(source, Source)
    plain = not isinstance(source.policy, Advance) and not isinstance(source.lifetime, (Interval, Physical))
    return plain and not source.stamped and source.shedding is None


def _parts(where: Where) -> tuple[Expr | None, Expr | None]:
    """`(predicate for the reader, remaining predicate)`."""
    parts = conjuncts(where.predicate)
    plain = [part for part in parts if to_arrow_filter(part, where.input.schema) is not None]
    rest = [part for part in parts if to_arrow_filter(part, where.input.schema) is None]
    return (reduce(and_, plain) if plain else None), (reduce(and_, rest) if rest else None)
