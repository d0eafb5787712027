"""Aggregates over the same windows of the same stream are computed once, from one state.

Two queries may ask for different aggregates of the same windows. Each alone would keep the content, or the partial
results, of every window. Together they are one aggregate with the outputs of both, each computed once, and every query
selects its own.
"""

from __future__ import annotations

from headrace.expr import Expr, col
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Aggregate, Node, Output, Select, walk

__all__ = ["share_windows"]


def share_windows(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """`Aggregate(x)` beside another one of the same keys and windows becomes a `Select` over one for both."""
    # Aggregates may be above others: with those below shared, those above may have become alike.
    for _ in walk(*outputs):
        groups = _alike(outputs)
        if not groups:
            break
        shared = {node.fingerprint: _selected(node, alike) for alike in groups for node in alike}
        outputs = rewrite(outputs, lambda node, shared=shared: shared.get(node.fingerprint, node))  # type: ignore[misc]
    return outputs


def _alike(outputs: tuple[Output, ...]) -> list[list[Aggregate]]:
    """Several aggregates of the same windows, none above another."""
    groups: dict[tuple[str, ...], list[Aggregate]] = {}
    for node in walk(*outputs):
        if type(node) is Aggregate and not node.modules:
            keys = ", ".join(str(expr) for _, expr in node.keys)
            about = (node.input.fingerprint, keys, str(node.window), repr(node.policy), str(node.final))
            groups.setdefault(about, []).append(node)
    return [alike for alike in groups.values() if len(alike) > 1][:1]


def _selected(node: Aggregate, alike: list[Aggregate]) -> Node:
    """The columns of one of the aggregates, from one aggregate for all of them."""
    first = alike[0]
    names = dict(_all_outputs(alike))
    outputs = tuple((name, expr) for name, expr in names.values())
    both = Aggregate(first.input, first.keys, first.window, outputs, policy=first.policy, final=first.final)
    keys = zip(node.key_names, first.key_names, strict=True)
    own = [(name, col(theirs)) for name, theirs in keys]
    own += [(name, col(names[str(expr)][0])) for name, expr in node.outputs]
    return Select(both, tuple(own))


def _all_outputs(alike: list[Aggregate]) -> list[tuple[str, tuple[str, Expr]]]:
    """Each output once, by its text, under a name that no other column has."""
    found: dict[str, tuple[str, Expr]] = {}
    taken = set(alike[0].key_names)
    for name, expr in (output for node in alike for output in node.outputs):
        if str(expr) not in found:
            new = next(one for one in (name, *(f"{name}_{n}" for n in range(2, len(taken) + 3))) if one not in taken)
            found[str(expr)] = new, expr
            taken.add(new)
    return list(found.items())
