"""The rows of windows: the first k in an order, or each distinct row once.

The keys of the group divide windows first. Rows are compared inside each window afterwards, so comparing never changes
what a window holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import count

from headrace.expr import AggregateCall, Expr
from headrace.expr.nodes import Column
from headrace.plan.around import Around
from headrace.plan.instants import always_ends, has_points
from headrace.plan.nodes import Aggregate, Coalesce, Node, Select, Top, Where
from headrace.plan.operate import Place
from headrace.plan.times import only
from headrace.plan.windows import Grid, Snapshot, WindowKind, WindowPolicy
from headrace.schema import STAMPS
from headrace.time import INFINITY

__all__ = ["Named", "distinct_rows", "first_rows", "ranked_node", "top_node", "unmerged", "without_stamps"]

#: Expressions with their names.
Named = tuple[tuple[str, Expr], ...]


def top_node(
    below: Node,
    keys: Named,
    window: WindowKind,
    policy: WindowPolicy,
    *,
    k: int,
    by: Sequence[Expr],
    descending: bool | Sequence[bool],
    each: Sequence[Expr] = (),
    distinct: Sequence[Expr] = (),
    skip: int = 0,
) -> Node:
    """The first k rows of each window, or of each combination of `each` in it; of rows with equal `distinct`, one.

    With `skip`, the k rows after the first few.
    """
    names = [expr.name for expr in each]
    if _independent(below, window) and all(isinstance(expr, Column) for expr in each) and not {*names} & {*dict(keys)}:
        # Grid windows do not depend on their rows, so rows may be brought together by these columns.
        keys, each = (*keys, *zip(names, each, strict=True)), ()
    directions = descending if isinstance(descending, bool) else tuple(descending)
    return Top(below, keys, window, k, tuple(by), directions, tuple(each), tuple(distinct), skip, policy=policy)


def first_rows(
    below: Node,
    keys: Named,
    policy: WindowPolicy,
    *,
    k: int,
    by: Sequence[Expr],
    descending: bool | Sequence[bool],
    distinct: Sequence[Expr] = (),
    skip: int = 0,
) -> Node:
    """At every instant, the first k rows of each group; a row is one event for as long as it is among them.

    Instants stay separate, and so do rows with a list, which cannot be compared.
    """
    top = top_node(below, keys, Snapshot(), policy, k=k, by=by, descending=descending, distinct=distinct, skip=skip)
    lists = any(field.type.is_array for field in top.schema)
    return top if has_points(below) or lists else _merged(top)


def _merged(top: Node) -> Node:
    """Neighbours that are equal as one event. Equal rows of one instant are numbered, so that each stays."""
    names = top.schema.names
    number = _free_name(names)
    by = (Column(names[0]),)
    copies = Top(top, tuple((n, Column(n)) for n in names), Snapshot(), INFINITY, by, places=((number, "row_number"),))
    return only(Coalesce(copies), names)


def unmerged(node: Node) -> Top | None:
    """The ranking whose equal neighbours a plan of `first_rows` makes one event."""
    copies = node.input.input if isinstance(node, Select) and isinstance(node.input, Coalesce) else None
    top = copies.input if isinstance(copies, Top) else None
    return top if isinstance(top, Top) and _merged(top) == node else None


def _free_name(taken: Collection[str]) -> str:
    return next(name for n in count() if (name := f"_{n}") not in taken)


def ranked_node(
    below: Node,
    keys: Named,
    by: Sequence[Expr],
    descending: bool | Sequence[bool],
    places: Mapping[str, Place | Around],
) -> Node:
    """At every instant, each event with its places among those of its group, or with what it sees of those around it.

    Equal neighbours are one event: a number keeps events with equal columns separate.
    """
    taken = {*below.schema.names, *dict(keys), *places}
    number = _free_name(taken)
    hidden: dict[str, Place | Around] = {} if "row_number" in places.values() else {number: "copy"}
    directions = descending if isinstance(descending, bool) else tuple(descending)
    wanted = (*places.items(), *hidden.items())
    whole = Coalesce(Top(below, keys, Snapshot(), INFINITY, tuple(by), directions, places=wanted))
    return without_stamps(whole if not hidden else only(whole, [name for name in whole.schema.names if name != number]))


def distinct_rows(
    below: Node, keys: Named, window: WindowKind, policy: WindowPolicy, outputs: Named, where: Expr | None = None
) -> Node:
    """Each distinct output once for every window that has it, among the window's rows for which `where` holds."""
    values = [expr for _, expr in outputs]
    if where is None and _independent(below, window):
        free = (name for number in count() if (name := f"_{number}") not in dict(outputs))
        groups = tuple((next(free), expr) for _, expr in keys)
        counted = Aggregate(below, (*groups, *outputs), window, ((next(free), AggregateCall("count")),), policy=policy)
        return Select(counted, tuple((name, Column(name)) for name, _ in outputs))
    each = values if where is None else [*values, where]
    first = without_stamps(top_node(below, keys, window, policy, k=1, by=values[:1], descending=False, each=each))
    return Select(first if where is None else Where(first, where), outputs)


def without_stamps(node: Node) -> Node:
    """The plan without the columns that ingress adds for the order of tuples."""
    names = [name for name in node.schema.names if name not in STAMPS]
    return node if len(names) == len(node.schema) else Select(node, tuple((name, Column(name)) for name in names))


def _independent(below: Node, window: WindowKind) -> bool:
    """Whether windows over a part of the rows are those over all rows."""
    return isinstance(window, Grid) and always_ends(below)
