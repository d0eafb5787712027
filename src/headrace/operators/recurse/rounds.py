"""A body whose facts say in which round they came up: a column that travels along.

What is derived from facts of rounds i and j comes from round max(i, j); the loop adds one when it takes it in. A fact
from outside the loop that a body unites with others needs no round before it: it counts as of round -1, and comes in
with the seed. Most operators only pass the column on, as they do with the key of a group (`Node.lifted`).
"""

from __future__ import annotations

from itertools import count

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import to_numpy
from headrace.expr import case, col, lit
from headrace.plan.nodes import Coalesce, Join, Node, Select, Union, walk
from headrace.plan.recurse import LoopInput
from headrace.schema import Field, Schema, Type

__all__ = ["further", "parted", "stamped", "with_rounds", "written"]


def with_rounds(body: Node, result: LoopInput) -> tuple[Node, LoopInput, str]:
    """The body with the column, what now stands for the result so far, and the column's name; it comes first."""
    new, start, name = _lifted(body, result)
    return new[body.fingerprint], start, name


def written(body: Node, result: LoopInput) -> dict[str, str]:
    """The operators of a body with the column, as its user wrote them."""
    new, _, _ = _lifted(body, result)
    pairs = [(new[node.fingerprint], node) for node in walk(body) if node.fingerprint in new]
    return {lifted.fingerprint: node.describe() for lifted, node in reversed(pairs)}  # the first of equal ones


def stamped(changes: Changes, column: str, rounds: int) -> Changes:
    """Changes with their round in front."""
    numbers = pa.array(np.full(len(changes), rounds, np.int64))
    return changes.with_payload(changes.payload.add_column(0, column, numbers))


def parted(changes: Changes) -> tuple[Changes, NDArray[np.int64]]:
    """Changes without their rounds, and these."""
    return changes.with_payload(changes.payload.remove_column(0)), to_numpy(changes.payload.column(0))


def further(changes: Changes) -> Changes:
    """What a body gave, with the round it counts in: the one after that of what it was derived from."""
    bare, rounds = parted(changes)
    return bare.with_payload(bare.payload.add_column(0, changes.payload.field(0), pa.array(rounds + 1)))


def _lifted(body: Node, result: LoopInput) -> tuple[dict[str, Node], LoopInput, str]:
    """What becomes of the operators that the column comes through, by fingerprint; the result so far; the name."""
    taken = {name for node in walk(body) for name in node.schema.names}
    name = next(n for i in count(1) if not {n := f"round_{i}", f"{n}_right"} & taken)
    start = LoopInput(Schema((Field(name, Type.LONG), *result.schema.fields)), result.name)
    new: dict[str, Node] = {result.fingerprint: start}
    for node in walk(body):
        derived = tuple(child.fingerprint in new for child in node.inputs)
        if any(derived):
            inputs = tuple(new.get(child.fingerprint, child) for child in node.inputs)
            new[node.fingerprint] = _passed_on(node, inputs, derived, name)
    return new, start, name


def _passed_on(node: Node, inputs: tuple[Node, ...], derived: tuple[bool, ...], name: str) -> Node:
    if isinstance(node, Coalesce):
        return inputs[0]  # the loop itself gives every payload once, and asks for no more than whether it is there
    if isinstance(node, Union):
        parts = zip(inputs, derived, strict=True)
        return Union(tuple(part if mine else _before_all(part, name) for part, mine in parts))
    if isinstance(node, Join) and all(derived):
        return _later(node, inputs, name)
    return node.lifted(inputs, (name,), derived)


def _before_all(part: Node, name: str) -> Node:
    return Select(part, ((name, lit(-1).cast("LONG")), *((n, col(n)) for n in part.schema.names)))


def _later(node: Join, inputs: tuple[Node, ...], name: str) -> Node:
    other = f"{name}_right"
    names = ((name, other), *node.right_columns.items())
    pairs = Join(inputs[0], inputs[1], node.on, node.where, node.kind, names, node.groups)
    later = case().when(col(name) >= col(other), col(name)).otherwise(col(other))
    return Select(pairs, ((name, later), *((n, col(n)) for n in node.schema.names)))
