"""Filters go before windows: on group keys always, on other columns where a module says they may (rule 6.5).

A filter on the keys drops complete groups, and windows belong to their group, so it may drop them before the windows. A
module's `filter_through` names output columns that are input fields of the same name, such that filtering events before
the module gives the same outputs as filtering its outputs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import reduce
from operator import and_

from headrace.expr import Expr
from headrace.expr.nodes import Column
from headrace.expr.pushdown import conjuncts
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Node, Output, PerWindow, Where, walk

__all__ = ["filter_before_windows"]


def filter_before_windows(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """`Where(PerWindow(x))` becomes `PerWindow(Where(x))`, for the parts of the filter that commute."""
    readers = Counter(child.fingerprint for node in walk(*outputs) for child in node.inputs)

    def push(node: Node) -> Node:
        if not isinstance(node, Where) or not isinstance(node.input, PerWindow):
            return node
        window = node.input
        # Other readers need all outputs; and where the CTI waits for groups, leaving some out would change it.
        if readers[window.fingerprint] > 1 or window.waits or window.policy.on_error == "skip":
            return node
        through = window.filtered_before
        parts = conjuncts(node.predicate)
        early = [part for part in parts if part.columns() <= through.keys()]
        late = [part for part in parts if not part.columns() <= through.keys()]
        if not early:
            return node
        before = reduce(and_, (part.transform(lambda e: _renamed(e, through)) for part in early))
        moved = replace(window, input=Where(window.input, before))
        return Where(moved, reduce(and_, late)) if late else moved

    return rewrite(outputs, push)


def _renamed(expr: Expr, through: dict[str, Expr]) -> Expr:
    return through[expr.name] if isinstance(expr, Column) else expr
