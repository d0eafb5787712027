"""A body whose facts have their round as a column.

A fact derived from facts of rounds i and j has round max(i, j) in the body; the loop adds one. A fact from outside the
loop that a body unites with others has round -1 there, so it enters with the seed. Most operators only pass the column
on, as they do with the key of a group (`Node.lifted`).
"""

from __future__ import annotations

from itertools import count

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import to_numpy
from headrace.expr import col, if_else, lit
from headrace.plan.nodes import Coalesce, Join, Node, Select, Union, walk
from headrace.plan.recurse import LoopInput
from headrace.schema import Field, Schema, Type

__all__ = ["next_round", "split_rounds", "with_round", "with_rounds", "written_operators"]


def with_rounds(body: Node, result: LoopInput) -> tuple[Node, LoopInput, str]:
    """The body with the column, its new `LoopInput` of the result, and the column's name; the column is the first."""
    new, start, name = _lift(body, result)
    return new[body.fingerprint], start, name


def written_operators(body: Node, result: LoopInput) -> dict[str, str]:
    """The operators of a body with the column, as the user wrote them."""
    new, _, _ = _lift(body, result)
    pairs = [(new[node.fingerprint], node) for node in walk(body) if node.fingerprint in new]
    return {lifted.fingerprint: node.describe() for lifted, node in reversed(pairs)}  # the first of equal ones


def with_round(changes: Changes, column: str, rounds: int) -> Changes:
    """Changes with their round as the first column."""
    numbers = pa.array(np.full(len(changes), rounds, np.int64))
    return changes.with_payload(changes.payload.add_column(0, column, numbers))


def split_rounds(changes: Changes) -> tuple[Changes, NDArray[np.int64]]:
    """Changes without their rounds, and the rounds."""
    return changes.with_payload(changes.payload.remove_column(0)), to_numpy(changes.payload.column(0))


def next_round(changes: Changes) -> Changes:
    """The output of a body with the round it counts in: one more than that of the facts it is derived from."""
    bare, rounds = split_rounds(changes)
    return bare.with_payload(bare.payload.add_column(0, changes.payload.field(0), pa.array(rounds + 1)))


def _lift(body: Node, result: LoopInput) -> tuple[dict[str, Node], LoopInput, str]:
    """The new operators with the column, by old fingerprint; the new `LoopInput` of the result; the column's name."""
    taken = {name for node in walk(body) for name in node.schema.names}
    name = next(n for i in count(1) if not {n := f"round_{i}", f"{n}_right"} & taken)
    start = LoopInput(Schema((Field(name, Type.LONG), *result.schema.fields)), result.name, result.dates)
    new: dict[str, Node] = {result.fingerprint: start}
    for node in walk(body):
        derived = tuple(child.fingerprint in new for child in node.inputs)
        if any(derived):
            inputs = tuple(new.get(child.fingerprint, child) for child in node.inputs)
            new[node.fingerprint] = _pass_on(node, inputs, derived, name)
    return new, start, name


def _pass_on(node: Node, inputs: tuple[Node, ...], derived: tuple[bool, ...], name: str) -> Node:
    if isinstance(node, Coalesce):
        return inputs[0]  # the loop itself removes duplicates
    if isinstance(node, Union):
        parts = zip(inputs, derived, strict=True)
        return Union(tuple(part if is_derived else _before_first_round(part, name) for part, is_derived in parts))
    if isinstance(node, Join) and all(derived):
        return _greater_round(node, inputs, name)
    return node.lifted(inputs, (name,), derived)


def _before_first_round(part: Node, name: str) -> Node:
    return Select(part, ((name, lit(-1).cast("LONG")), *((n, col(n)) for n in part.schema.names)))


def _greater_round(node: Join, inputs: tuple[Node, ...], name: str) -> Node:
    other = f"{name}_right"
    names = ((name, other), *node.right_columns.items())
    pairs = Join(inputs[0], inputs[1], node.on, node.where, node.kind, names, node.groups)
    later = if_else(col(name) >= col(other), col(name), col(other))
    return Select(pairs, ((name, later), *((n, col(n)) for n in node.schema.names)))
