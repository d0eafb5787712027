"""Sources read only the columns that somebody needs."""

from __future__ import annotations

from dataclasses import replace

from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import (
    Admit,
    Aggregate,
    Clip,
    Coalesce,
    Contents,
    Diverted,
    EdgeLifetimes,
    Failures,
    Fold,
    Join,
    Match,
    Node,
    Operate,
    Orphans,
    Output,
    Over,
    Recurse,
    Select,
    Source,
    TableJoin,
    Top,
    Union,
    Where,
    walk,
)
from headrace.plan.ordered import Ordered

__all__ = ["prune_columns"]

#: Operators that look at whole payloads: to tell events apart, or to put them in order.
_WHOLE = (Admit, Coalesce, Fold, Match, Output, Over, Top)


def prune_columns(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """Sources keep the payload columns that their readers use; a source whose diverted rows are read keeps all."""
    needed = _needed(*outputs)

    def narrow(node: Node) -> Node:
        if not isinstance(node, Source):
            return node
        kept = tuple(name for name in node.schema.names if name in needed[node.fingerprint])
        kept = kept or node.schema.names[:1]  # a table without columns would forget how many rows it has
        return node if len(kept) == len(node.schema) else replace(node, read_columns=kept)

    return rewrite(outputs, narrow)


def _needed(*outputs: Node) -> dict[str, set[str]]:
    """The columns of every operator that its readers use."""
    needed: dict[str, set[str]] = {node.fingerprint: set() for node in walk(*outputs)}
    for node in reversed(list(walk(*outputs))):
        mine = needed[node.fingerprint]
        for side, child in enumerate(node.inputs):
            if isinstance(node, Recurse):
                used = _of_loop(node, side)
            else:
                used = _of_side(node, side, mine) if isinstance(node, (Clip, Join)) else _uses(node, mine)
            needed[child.fingerprint] |= used & set(child.schema.names)
    return needed


def _of_loop(node: Recurse, side: int) -> set[str]:
    """What goes round goes round whole; of the streams from outside, what the body uses."""
    return set(node.schema.names) if side == 0 else _needed(Output(node.body, "body"))[node.ports[side].fingerprint]


def _uses(node: Node, needed: set[str]) -> set[str]:
    """The columns of its input that a node uses, when its own readers need `needed`."""
    if isinstance(node, (Aggregate, Contents, Operate)):
        return _of_windows(node, needed)
    if isinstance(node, TableJoin):
        return needed | {name for name, _ in node.on}
    if isinstance(node, Select):
        return set().union(*(expr.columns() for _, expr in node.outputs))
    if isinstance(node, Where):
        return needed | node.predicate.columns()
    if isinstance(node, EdgeLifetimes):
        return needed | set(node.key) | (set(node.closes.columns()) if node.closes is not None else set())
    if isinstance(node, _WHOLE) or (isinstance(node, Diverted) and node.whole):
        return set(node.inputs[0].schema.names)
    if isinstance(node, (Diverted, Failures, Orphans)):
        return set()
    if isinstance(node, Union):
        return needed or {node.schema.names[0]}  # its inputs must agree on which column they keep
    return needed


def _of_windows(node: Aggregate | Contents | Operate, needed: set[str]) -> set[str]:
    """The keys, and what goes in; the content of windows is what its readers take of it.

    Where windows depend on the order of tuples, all columns do, which decide it.
    """
    if isinstance(node.window, Ordered):
        return set(node.input.schema.names)
    if isinstance(node, Contents):
        return needed.union(*(expr.columns() for _, expr in node.keys))
    taken = node.outputs if isinstance(node, Aggregate) else node.mapping
    return set().union(*(expr.columns() for _, expr in (*node.keys, *taken)))


def _of_side(node: Clip | Join, side: int, needed: set[str]) -> set[str]:
    """As `_uses`, for one side of an operator that matches keys; columns keep the names that a join gave them."""
    keys = {pair[side] for pair in node.on}
    if isinstance(node, Clip):
        return keys if side else keys | needed
    used = needed | (node.where.columns() if node.where is not None else set())
    return keys | ({name for name, new in node.right_columns.items() if new in used} if side else used)
