"""Declarations of operators about their state, for operations on a checkpoint without its query.

They are stored when a checkpoint is created. Like the columns of traces, they belong to the format of checkpoints.
"""

from __future__ import annotations

from typing import Any

from headrace.operators.kernel import Kernel
from headrace.operators.registry import kernel_of
from headrace.plan.nodes import Node
from headrace.stages.cut import Line

__all__ = ["declared"]


def declared(line: Line) -> dict[str, dict[str, Any]]:
    """For every operator with state, by fingerprint: its description, the public names of its columns, and how its
    state is divided among buckets.

    `routes` has for every trace the columns whose hash decides the bucket of a row: no columns for one bucket. It is
    None if the state cannot be divided. `merged` has the numbers that differ between buckets; an operator that is
    `spread` exists only with several buckets.
    """
    declarations = {}
    for node in line.nodes:
        kernel = None if node.linear else kernel_of(node)
        if kernel is not None and (kernel.traces or kernel.scalars):
            routes = {name: _route(line, node, kernel, name) for name in kernel.traces} if kernel.divisible else None
            declarations[node.fingerprint] = {
                "operator": node.describe(),
                "columns": kernel.column_names(),
                "routes": routes,
                "merged": dict(kernel.merged),
                "spread": kernel.spread,
            }
    return declarations


def _route(line: Line, node: Node, kernel: Kernel, trace: str) -> list[str]:
    """The columns by which a trace's rows are routed: those that decide the bucket of its input's rows."""
    position = kernel.inputs_of.get(trace, 0)
    child = node.inputs[position]
    stays = line.levels[child.fingerprint] == line.levels[node.fingerprint]
    columns = child.properties.keys if stays else node.need(position)
    own = {shown: name for name, shown in reversed(kernel.column_names().items())}
    return [own.get(column, column) for column in columns or ()]
