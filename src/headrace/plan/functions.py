"""The users' functions of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from headrace.expr import Expr
from headrace.expr.python import Udf, functions_in
from headrace.plan.base import Node, walk

__all__ = ["calls_python", "functions_of", "udfs_of"]


def functions_of(*nodes: Node) -> tuple[str, ...]:
    """The names of the users' functions that these nodes and their inputs call."""
    return tuple(dict.fromkeys(function.name for node in walk(*nodes) for function in udfs_of(node)))


def udfs_of(node: Node) -> tuple[Udf, ...]:
    """The users' functions that one node calls."""
    exprs = _expressions(node, node.inputs)
    return tuple(dict.fromkeys(function for expr in exprs for function in functions_in(expr)))


def _expressions(value: Any, inputs: tuple[Node, ...] = ()) -> Iterator[Expr]:
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _expressions(part, inputs)
    elif is_dataclass(value) and not (isinstance(value, Node) and value in inputs):
        for field in fields(value):
            yield from _expressions(getattr(value, field.name), inputs)


def calls_python(*nodes: Node) -> bool:
    """Whether these nodes or their inputs call users' code: functions, or modules."""
    return any(getattr(node, "modules", ()) for node in walk(*nodes)) or bool(functions_of(*nodes))
