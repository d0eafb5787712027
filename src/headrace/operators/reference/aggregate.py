"""The twin of windowed aggregates (rules 5.1 to 5.4): every window of every group, recomputed from its events."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import pyarrow as pa

from headrace.operators.reference.functions import FUNCTIONS
from headrace.operators.reference.rows import Payload, Row, identity, value_of
from headrace.operators.reference.windows import WindowSpan, windows_over
from headrace.plan.nodes import Aggregate
from headrace.plan.windows import Grid
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["aggregate"]


def aggregate(node: Aggregate, rows: Sequence[Row], seen: int, *, ended: bool) -> list[Row]:
    """One event per group and window with events.

    Windows that end at or before `seen` (m of rule 5.3) are visible. When the input has `ended`, all others are too;
    those of endless events stop with the group's last finite endpoint.
    """
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        key = tuple(identity(value_of(expr, row[2], node.input.schema)) for _, expr in node.keys)
        groups.setdefault(key, []).append(row)
    return [
        (start, end, _answer(node, [row for row in group if row[0] < end and row[1] > start]))
        for group in groups.values()
        for start, end in _windows(node, group, seen, ended=ended)
    ]


def _windows(node: Aggregate, group: list[Row], seen: int, *, ended: bool) -> list[WindowSpan]:
    finite = [re for _, re, _ in group if re != INFINITY] + [le + 1 for le, _, _ in group]
    limit = max([*finite, seen] if seen != NEG_INFINITY else finite)
    assert isinstance(node.window, Grid)
    windows = {w for le, re, _ in group for w in windows_over(node.window, le, min(re, limit))}
    if not ended:
        return sorted(w for w in windows if w[1] <= seen)
    return sorted(w for w in windows if w[0] < max(finite) or w[1] <= seen)


def _answer(node: Aggregate, members: list[Row]) -> Payload:
    below = node.input.schema
    calls, outputs = node.split
    key = {name: value_of(expr, members[0][2], below) for name, expr in node.keys}
    results: Payload = {}
    for name, call in calls.items():
        argument = call.argument
        items = [(le, True if argument is None else value_of(argument, payload, below)) for le, _, payload in members]
        results[name] = FUNCTIONS[call.function](items, *call.parameters)
    types = pa.schema([(name, call.type(below).arrow) for name, call in calls.items()])
    return key | {name: value_of(expr, results, types) for name, expr in outputs.items()}
