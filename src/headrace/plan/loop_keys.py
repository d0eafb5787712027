"""Whether a loop has a key, by which its rows may be divided into buckets (rule 9.1).

A column of the result is a key of the loop if the body passes it on, and if every operator of the body only combines
rows that agree on it: joins have it among the columns that must be equal, aggregates and rankings are grouped by it,
and it is a key of inner loops. Then no derivation needs rows with two values of it, and each value has its own loop. To
find this out, the columns that hold the value of the result's column are tracked through the operators of the body.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.expr.nodes import Column
from headrace.plan.aggregate import Aggregate
from headrace.plan.base import Node, walk
from headrace.plan.coalesce import Coalesce
from headrace.plan.group_apply import GroupApply
from headrace.plan.join import Join
from headrace.plan.operate import Top
from headrace.plan.span import EachAlone, Select, Union
from headrace.plan.table import TableJoin

__all__ = ["loop_keys", "why_no_key"]

#: Operators that pass every column on, and combine no rows.
_KEEP = (Coalesce, EachAlone, GroupApply, TableJoin)


def loop_keys(body: Node, ports: Sequence[Node]) -> tuple[str, ...] | None:
    """A column of each input of a loop, the result first, by which rows may be divided; None if there is none."""
    candidates = (_KeyTracker(name, body, ports).keys for name in ports[0].schema.names)
    return next((keys for keys in candidates if keys is not None), None)


def why_no_key(body: Node, ports: Sequence[Node]) -> str:
    """Why no column of the result is a key."""
    ways = [_KeyTracker(name, body, ports) for name in ports[0].schema.names]
    return "; ".join(f"{way.key}: {way.lost}" for way in ways if way.keys is None)


class _KeyTracker:
    """Tracks a column of the result through the body."""

    def __init__(self, key: str, body: Node, ports: Sequence[Node]) -> None:
        self.key = key
        #: The first reason why it is not a key, as text for users.
        self.lost = ""
        #: The columns of each operator's output that hold its value, and the columns by which inputs would be divided.
        self._held: dict[str, set[str]] = {ports[0].fingerprint: {key}}
        self._routes: dict[str, set[str]] = {port.fingerprint: set() for port in ports}
        self._routes[ports[0].fingerprint] = {key}
        for node in walk(body):
            if node.fingerprint not in self._routes:
                self._held[node.fingerprint] = self._through(node)
        self.keys = self._find_keys(body, ports)

    def _find_keys(self, body: Node, ports: Sequence[Node]) -> tuple[str, ...] | None:
        routes = [sorted(self._routes[port.fingerprint]) for port in ports]
        twice = next((route for route in routes if len(route) > 1), None)
        back = self._held[body.fingerprint]
        if back and self.key not in back:
            self._lose(f"it comes back as {', '.join(sorted(back))}")
        elif twice is not None:
            self._lose(f"it is met by a stream from outside as {' and as '.join(twice)}")
        elif not (back and all(routes)):
            self._lose("rows from outside do not have it")
        return None if self.lost else tuple(route[0] for route in routes)

    def _lose(self, why: str) -> set[str]:
        self.lost = self.lost or why
        return set()

    def _through(self, node: Node) -> set[str]:
        below = [self._held.get(child.fingerprint, set()) for child in node.inputs]
        if not any(below):
            return set()  # it was lost before
        if isinstance(node, Union):
            return self._through_union(node, below)
        if isinstance(node, Join):
            return self._through_join(node, below)
        if node.inside:
            return self._through_loop(node, below)
        if isinstance(node, _KEEP):
            return below[0]
        if isinstance(node, Select):
            kept = {name for name, expr in node.outputs if isinstance(expr, Column) and expr.name in below[0]}
            return kept or self._lose(f"{node.describe()} does not pass it on")
        if isinstance(node, (Aggregate, Top)):
            kept = {name for name, expr in node.keys if isinstance(expr, Column) and expr.name in below[0]}
            if kept and isinstance(node, Top):
                return (kept | below[0]) & set(node.schema.names)
            return kept or self._lose(f"{node.describe()} is not grouped by it")
        return self._lose(f"{node.describe()} looks at more than one value of it")

    def _through_union(self, node: Union, below: list[set[str]]) -> set[str]:
        """The columns that hold it in all parts; a part from outside is divided by the column of the same name."""
        inside = [columns for part, columns in zip(node.parts, below, strict=True) if part.fingerprint in self._held]
        common = set.intersection(*inside)
        outside = [part for part in node.parts if part.fingerprint not in self._held]
        if outside:
            common &= {self.key}
        for part in outside:
            self._routes[part.fingerprint] |= common
        return common or self._lose(f"{node.describe()} adds rows that have it in another column, or not at all")

    def _through_join(self, node: Join, below: list[set[str]]) -> set[str]:
        """The columns of both sides, if both agree on it; a side from outside is divided by the column equal to it."""
        for side, child in enumerate(node.inputs):
            if child.fingerprint not in self._held:
                equal = [pair[side] for pair in node.on if pair[1 - side] in below[1 - side]]
                self._routes[child.fingerprint] |= set(equal[:1])
                below[side] = set(equal[:1])
        if not any(left in below[0] and other in below[1] for left, other in node.on):
            return self._lose(f"{node.describe()} brings rows together that differ in it")
        right = {node.right_columns[name] for name in below[1] if name in node.right_columns}
        return below[0] | (right if node.kind == "inner" else set())

    def _through_loop(self, node: Node, below: list[set[str]]) -> set[str]:
        """An inner loop, whose inputs must each be divided by one column."""
        needs = [node.need(position) or () for position in range(len(node.inputs))]
        for child, need, columns in zip(node.inputs, needs, below, strict=True):
            inside = child.fingerprint in self._held
            if len(need) != 1 or (inside and need[0] not in columns):
                return self._lose(f"{node.describe()} inside of it brings rows together that differ in it")
            if not inside:
                self._routes[child.fingerprint] |= set(need)
        return set(needs[0])
