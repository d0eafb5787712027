"""Aggregates over streams whose events last, without a window: what holds at every instant (rule 8.4).

A group without events has no answer. Without groups there is always one, as in SQL: over an empty relation it is one
row, from the first instant that the stream has shown. So one more event takes part, which lasts from that instant on.
All its values are null, which aggregates ignore.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.api.times import Named, payloads, with_argument_times, with_window_times
from headrace.expr import AggregateCall, Expr, col, lit
from headrace.expr.nodes import Column
from headrace.modules import ModuleCall
from headrace.plan.nodes import Aggregate, Coalesce, Node, Select, SetDuration, Union
from headrace.plan.windows import PLAIN_POLICY, Snapshot, WindowPolicy
from headrace.time import INFINITY

__all__ = ["aggregate_node"]

#: The column that is null in the additional event alone, for `count(*)`.
_ROW = "_row"


def aggregate_node(
    below: Node,
    keys: Named,
    outputs: Named,
    policy: WindowPolicy = PLAIN_POLICY,
    shown: Sequence[Node] = (),
) -> Node:
    """Aggregates over the events alive; the first event of `shown`, by default `below`, begins a global answer."""
    inner, above = with_window_times([name for name, _ in keys], outputs)
    node, calls = with_argument_times(below, inner)
    found = Aggregate(node, keys, Snapshot(), calls, policy=policy)
    if not keys and not any(isinstance(call, ModuleCall) for call in found.split[0].values()):
        found = _never_empty(found, shown or (below,))
    return found if above is None else payloads(found, above)


def _never_empty(aggregate: Aggregate, shown: Sequence[Node]) -> Aggregate:
    """The same aggregate with an answer also while there are no events."""
    columns = _arguments(aggregate)
    rows = Select(aggregate.input, (*columns.items(), (_ROW, lit(1))))
    nulls = Select(_since_first(shown), tuple((field.name, lit(None).cast(field.type)) for field in rows.schema))
    names = {str(expr): name for name, expr in columns.items()}

    def over_columns(expr: Expr) -> Expr:
        if not isinstance(expr, AggregateCall):
            return expr.with_children([over_columns(child) for child in expr.children])
        argument = _ROW if expr.argument is None else names[str(expr.argument)]
        return AggregateCall(expr.function, col(argument), expr.parameters)

    outputs = tuple((name, over_columns(expr)) for name, expr in aggregate.outputs)
    return Aggregate(Union((rows, nulls)), (), aggregate.window, outputs, policy=aggregate.policy)


def _arguments(aggregate: Aggregate) -> dict[str, Expr]:
    """The arguments of all aggregates as columns; a column keeps its name."""
    found: dict[str, Expr] = {}
    known: set[str] = set()
    for call in aggregate.split[0].values():
        argument = call.argument
        if argument is not None and str(argument) not in known:
            known.add(str(argument))
            found[argument.name if isinstance(argument, Column) else f"_{len(found)}"] = argument
    return found


def _since_first(shown: Sequence[Node]) -> Node:
    """One event, from the first instant of these streams on."""
    marks = [Select(node, ((_ROW, lit(1)),)) for node in shown]
    return Coalesce(SetDuration(marks[0] if len(marks) == 1 else Union(tuple(marks)), INFINITY))
