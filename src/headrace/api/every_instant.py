"""Aggregates over streams whose events last, without a window: what holds at every instant (rule 8.4).

A group without events has no answer. Without groups there is always one, as in SQL: over an empty relation it is one
row, from the first instant that the stream has shown. So one more event takes part, which lasts from that instant on.
All its values are null, which aggregates ignore.

In the same way, different values are counted at the cost of a change and not of the group: for each value, a span that
lasts as long as some event has it takes part, with a column that only these spans have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.api.times import Named, payloads, with_argument_times, with_window_times
from headrace.expr import AggregateCall, Expr, col, lit
from headrace.expr.aggregates import computed
from headrace.expr.nodes import Column
from headrace.modules import ModuleCall
from headrace.plan.nodes import Aggregate, Coalesce, Node, Select, SetDuration, Union, Where
from headrace.plan.windows import PLAIN_POLICY, Snapshot, WindowPolicy
from headrace.schema import Schema
from headrace.time import INFINITY

__all__ = ["aggregate_node"]

#: The column that is 1 in events, and null in what takes part beside them, for `count(*)`.
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
    built_in = list(found.split[0].values())
    distinct = any(call.function == "distinct_count" for call in built_in)
    if (distinct or not keys) and not any(isinstance(call, ModuleCall) for call in built_in):
        found = _UnitedAggregate(found).aggregate([] if keys else shown or (below,))
    return found if above is None else payloads(found, above)


class _UnitedAggregate:
    """An aggregate over a union: events with keys and arguments as columns, and what takes part beside them."""

    def __init__(self, aggregate: Aggregate) -> None:
        self.given = aggregate
        calls = list(aggregate.split[0].values())
        self.keys = {f"_key{i}": expr for i, (_, expr) in enumerate(aggregate.keys)}
        plain = [call.argument for call in calls if call.argument is not None and call.function != "distinct_count"]
        counted = [call.argument for call in calls if call.argument is not None and call.function == "distinct_count"]
        self.arguments = {_name(expr, i): expr for i, expr in enumerate(_different(plain))}
        self.values = {f"_value{i}": expr for i, expr in enumerate(_different(counted))}

    def aggregate(self, shown: Sequence[Node]) -> Aggregate:
        """The same aggregate, over all parts."""
        below, marks = self.given.input, dict.fromkeys(self.values, lit(None).cast("INT"))
        rows = Select(below, (*self.keys.items(), *self.arguments.items(), (_ROW, lit(1)), *marks.items()))
        parts = [rows, *(self._spans(rows.schema, name, expr) for name, expr in self.values.items())]
        if shown:
            parts.append(_with_nulls(_since_first(shown), rows.schema, {}))
        keys = tuple((name, col(new)) for (name, _), new in zip(self.given.keys, self.keys, strict=True))
        outputs = tuple(
            (name, self._over_columns(computed(expr, self.given.input.schema))) for name, expr in self.given.outputs
        )
        whole = parts[0] if len(parts) == 1 else Union(tuple(parts))
        return Aggregate(whole, keys, self.given.window, outputs, policy=self.given.policy)

    def _spans(self, schema: Schema, name: str, value: Expr) -> Node:
        """For each value of each group, the spans in which it is there."""
        there = Where(Select(self.given.input, (*self.keys.items(), (name, value))), col(name).is_not_null())
        return _with_nulls(Coalesce(there), schema, {**{key: col(key) for key in self.keys}, name: lit(1)})

    def _over_columns(self, expr: Expr) -> Expr:
        if not isinstance(expr, AggregateCall):
            return expr.with_children([self._over_columns(child) for child in expr.children])
        if expr.argument is None:
            return AggregateCall("count", col(_ROW))
        columns = self.values if expr.function == "distinct_count" else self.arguments
        name = next(name for name, one in columns.items() if str(one) == str(expr.argument))
        function = "count" if expr.function == "distinct_count" else expr.function
        return AggregateCall(function, col(name), expr.parameters)


def _different(exprs: Sequence[Expr]) -> list[Expr]:
    return list({str(expr): expr for expr in exprs}.values())


def _name(expr: Expr, number: int) -> str:
    """The name of an argument: a column keeps its own, unless it could be one of the names given here."""
    return expr.name if isinstance(expr, Column) and not expr.name.startswith("_") else f"_{number}"


def _with_nulls(node: Node, schema: Schema, given: Mapping[str, Expr]) -> Node:
    """Events with all columns of a schema: those given, and nulls."""
    return Select(node, tuple((f.name, given.get(f.name, lit(None)).cast(f.type)) for f in schema))


def _since_first(shown: Sequence[Node]) -> Node:
    """One event, from the first instant of these streams on."""
    marks = [Select(node, ((_ROW, lit(1)),)) for node in shown]
    return Coalesce(SetDuration(marks[0] if len(marks) == 1 else Union(tuple(marks)), INFINITY))
