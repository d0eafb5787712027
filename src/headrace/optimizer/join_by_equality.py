"""A join of everything with everything, whose pairs a filter keeps if columns are equal, is a join by these columns.

`WHERE id = (SELECT max(id) …)` is such a plan: the answer of the sub-query is beside every row. By its column only the
rows that it is equal to are looked at, and a new answer costs these, not the whole relation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import reduce
from operator import and_

from headrace.expr import Expr
from headrace.expr.nodes import Call, Column
from headrace.expr.pushdown import conjuncts
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Join, Node, Output, Where, walk

__all__ = ["join_by_equality"]


def join_by_equality(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """`Where(a = b, Join on everything)` becomes a join on a and b, also a left join: nulls are equal to nothing."""
    readers = Counter(child.fingerprint for node in walk(*outputs) for child in node.inputs)

    def joined(node: Node) -> Node:
        join = node.input if isinstance(node, Where) else None
        if not isinstance(node, Where) or not isinstance(join, Join) or readers[join.fingerprint] > 1:
            return node
        if join.on or join.groups or join.kind == "anti":
            return node
        parts = conjuncts(node.predicate)
        keys = {str(part): key for part in parts if (key := _key(part, join)) is not None}
        if not keys:
            return node
        on, names = tuple(dict.fromkeys(keys.values())), tuple(join.right_columns.items())
        by_keys = replace(join, on=on, kind="inner", names=names)
        rest = [part for part in parts if str(part) not in keys]
        return Where(by_keys, reduce(and_, rest)) if rest else by_keys

    return rewrite(outputs, joined)


def _key(part: Expr, join: Join) -> tuple[str, str] | None:
    """The columns of both sides that a condition says are equal; floats are compared in another way by keys."""
    if not (isinstance(part, Call) and part.function == "eq" and all(isinstance(arg, Column) for arg in part.args)):
        return None
    right = {new: name for name, new in join.right_columns.items()}
    for a, b in (part.args, part.args[::-1]):
        if a.name in join.left.schema and b.name in right:
            kinds = join.left.schema[a.name].type, join.right.schema[right[b.name]].type
            return (
                (a.name, right[b.name])
                if kinds[0] is kinds[1] and not (kinds[0].is_floating or kinds[0].is_nested)
                else None
            )
    return None
