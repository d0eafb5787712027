"""What windows give of their own content: the first rows in an order, and each row once.

The windows are divided first, by the keys of the group. Rows are compared inside each window afterwards, so which rows
are compared never changes what a window holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from headrace.expr import AggregateCall, Expr
from headrace.expr.nodes import Column
from headrace.plan.instants import always_ends
from headrace.plan.nodes import Aggregate, Node, Select, Top, Where
from headrace.plan.windows import Grid, WindowKind, WindowPolicy
from headrace.schema import STAMPS

__all__ = ["Named", "distinct_rows", "ranked", "without_stamps"]

#: Expressions, by what they are called.
Named = tuple[tuple[str, Expr], ...]


def ranked(
    below: Node,
    keys: Named,
    window: WindowKind,
    policy: WindowPolicy,
    *,
    k: int,
    by: Sequence[Expr],
    descending: bool,
    each: Sequence[Expr] = (),
    distinct: Sequence[Expr] = (),
) -> Node:
    """The first k rows of each window, of each combination of some values there; `distinct` leaves out equal ones."""
    names = [expr.name for expr in each]
    if _independent(below, window) and all(isinstance(expr, Column) for expr in each) and not {*names} & {*dict(keys)}:
        # Such windows are the same whatever is in them: rows may as well be brought together by these columns.
        keys, each = (*keys, *zip(names, each, strict=True)), ()
    return Top(below, keys, window, k, tuple(by), descending, tuple(each), tuple(distinct), policy=policy)


def distinct_rows(
    below: Node, keys: Named, window: WindowKind, policy: WindowPolicy, outputs: Named, where: Expr | None = None
) -> Node:
    """Each of the different outputs once for every window that has it, among its rows for which `where` holds."""
    values = [expr for _, expr in outputs]
    if where is None and _independent(below, window):
        free = (name for number in count() if (name := f"_{number}") not in dict(outputs))
        groups = tuple((next(free), expr) for _, expr in keys)
        counted = Aggregate(below, (*groups, *outputs), window, ((next(free), AggregateCall("count")),), policy=policy)
        return Select(counted, tuple((name, Column(name)) for name, _ in outputs))
    each = values if where is None else [*values, where]
    one = without_stamps(ranked(below, keys, window, policy, k=1, by=values[:1], descending=False, each=each))
    return Select(one if where is None else Where(one, where), outputs)


def without_stamps(node: Node) -> Node:
    """The plan without the columns of ingress, which only decide the order of tuples."""
    names = [name for name in node.schema.names if name not in STAMPS]
    return node if len(names) == len(node.schema) else Select(node, tuple((name, Column(name)) for name in names))


def _independent(below: Node, window: WindowKind) -> bool:
    """Whether the windows of a part of the rows are those of all."""
    return isinstance(window, Grid) and always_ends(below)
