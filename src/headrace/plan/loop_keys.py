"""Whether a loop stays inside a key, so that its rows may be spread over buckets by it (rule 9.1).

A column of the result is such a key when the body passes it on, and when everything that meets a fact on the way
agrees with it: the streams of a join have it among the columns that must be equal. Then no derivation ever needs rows
of two keys, and each key has a loop of its own. What is needed to see that is which columns, at each operator of the
body, hold the value that the result's column had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.expr.nodes import Column
from headrace.plan.aggregate import Aggregate
from headrace.plan.base import Node, walk
from headrace.plan.coalesce import Coalesce
from headrace.plan.group_apply import GroupApply
from headrace.plan.join import Join
from headrace.plan.operate import Top
from headrace.plan.span import Select, Shift, Union, Where
from headrace.plan.table import TableJoin

__all__ = ["loop_keys"]

#: The columns of each operator's output that hold the key.
Held = Mapping[str, set[str]]


def loop_keys(body: Node, ports: Sequence[Node]) -> tuple[str, ...] | None:
    """A column of each input of a loop, the result first, by which rows may be spread; None if there is none."""
    found = (_spread_by(name, body, ports) for name in ports[0].schema.names)
    return next((keys for keys in found if keys is not None), None)


def _spread_by(key: str, body: Node, ports: Sequence[Node]) -> tuple[str, ...] | None:
    routes: dict[str, set[str]] = {port.fingerprint: set() for port in ports}
    routes[ports[0].fingerprint] = {key}
    held: dict[str, set[str]] = {ports[0].fingerprint: {key}}
    for node in walk(body):
        if node.fingerprint not in routes:
            held[node.fingerprint] = _held(node, held, routes, key)
    keys = [next(iter(routes[port.fingerprint]), "") for port in ports]
    alike = all(len(routes[port.fingerprint]) == 1 for port in ports)
    return tuple(keys) if alike and key in held[body.fingerprint] else None


def _held(node: Node, held: Held, routes: dict[str, set[str]], key: str) -> set[str]:
    below = [held.get(child.fingerprint, set()) for child in node.inputs]
    if isinstance(node, (Where, Shift, Coalesce, GroupApply, TableJoin)):
        return below[0]
    if isinstance(node, Select):
        return {name for name, expr in node.outputs if isinstance(expr, Column) and expr.name in below[0]}
    if isinstance(node, (Aggregate, Top)):
        keys = {name for name, expr in node.keys if isinstance(expr, Column) and expr.name in below[0]}
        return keys and (keys | below[0]) & set(node.schema.names) if isinstance(node, Top) else keys
    if isinstance(node, Union):
        return _of_union(node, below, held, routes, key)
    return _of_join(node, below, held, routes) if isinstance(node, Join) else set()


def _of_union(node: Union, below: list[set[str]], held: Held, routes: dict[str, set[str]], key: str) -> set[str]:
    """What all parts hold; a part from outside is spread by the column that is the key there."""
    inside = [mine for part, mine in zip(node.parts, below, strict=True) if part.fingerprint in held]
    common = set.intersection(*inside)
    for part in node.parts:
        if part.fingerprint not in held:
            common &= {key}
            routes[part.fingerprint] |= common or {""}
    return common


def _of_join(node: Join, below: list[set[str]], held: Held, routes: dict[str, set[str]]) -> set[str]:
    """What either side holds, if both agree on it; one from outside is spread by what must be equal to the key."""
    for side, child in enumerate(node.inputs):
        if child.fingerprint not in held:
            other = below[1 - side]
            equal = [pair[side] for pair in node.on if pair[1 - side] in other]
            routes[child.fingerprint] |= {equal[0] if equal else ""}
            below[side] = set(equal[:1])
    if not any(mine in below[0] and theirs in below[1] for mine, theirs in node.on):
        return set()
    right = {node.right_columns[name] for name in below[1] if name in node.right_columns}
    return below[0] | (right if node.kind == "inner" else set())
