"""What the operators of a query say of their state, for those who handle a checkpoint without the query.

It is written down when a checkpoint is made. Like the columns of traces, it belongs to the format of checkpoints.
"""

from __future__ import annotations

from typing import Any

from headrace.operators.kernel import Kernel
from headrace.operators.registry import kernel_of
from headrace.plan.nodes import Node
from headrace.stages.cut import Line

__all__ = ["declared"]


def declared(line: Line) -> dict[str, dict[str, Any]]:
    """Of every operator with state, by fingerprint: what it does, what its columns are to users, and how its state is
    divided among buckets.

    `routes` has for every trace the columns whose hash decides the bucket of a row: none of them for one bucket. It is
    None where the state cannot be divided. `merged` says which numbers are not the same in all buckets; an operator
    that is `spread` exists only where there are several.
    """
    found = {}
    for node in line.nodes:
        kernel = None if node.linear else kernel_of(node)
        if kernel is not None and (kernel.traces or kernel.scalars):
            routes = {name: _route(line, node, kernel, name) for name in kernel.traces} if kernel.divisible else None
            found[node.fingerprint] = {
                "operator": node.describe(),
                "columns": kernel.column_names(),
                "routes": routes,
                "merged": dict(kernel.merged),
                "spread": kernel.spread,
            }
    return found


def _route(line: Line, node: Node, kernel: Kernel, trace: str) -> list[str]:
    """The columns of a trace that its rows are routed by: those that the rows of its input are where they are by."""
    position = kernel.inputs_of.get(trace, 0)
    child = node.inputs[position]
    stays = line.levels[child.fingerprint] == line.levels[node.fingerprint]
    columns = child.properties.keys if stays else node.need(position)
    own = {shown: name for name, shown in reversed(kernel.column_names().items())}
    return [own.get(column, column) for column in columns or ()]
