"""Describe how a batch of a cut plan runs on Spark.

Every batch is one job. Its first tasks, the *intake*, read files, and each later level has a task for every bucket.
Between two levels there is one shuffle for all edges: their rows, reports and CTIs travel in the same few chunks.
"""

from __future__ import annotations

from headrace.plan.nodes import Node, Output
from headrace.stages.cut import Line, PlanEdge

__all__ = ["in_place", "job_of", "shuffled_to"]


def job_of(line: Line) -> str:
    """The job of a batch, in one text line."""
    if line.depth == 0:
        return (
            "on Spark a batch is one job without a shuffle: each task reads a share of the files and writes the sinks"
        )
    shuffles = "one shuffle" if line.depth == 1 else f"{line.depth} shuffles"
    tasks = "the intake has a task for each share of the files, every stage one for each bucket"
    return f"on Spark a batch is one job with {shuffles}: {tasks}"


def shuffled_to(line: Line, level: int, numbers: dict[str, int]) -> tuple[str, ...]:
    """The operators whose rows are shuffled to a level, by number, each with its route."""
    edges = [edge for edge in line.edges if edge.to == level]
    return tuple(f"#{numbers[edge.producer.fingerprint]} {_route(edge)}" for edge in edges)


def _route(edge: PlanEdge) -> str:
    if edge.route is None:
        target = "to any bucket"
    else:
        stays = edge.start > 0 and edge.producer.properties.keys == edge.route
        target = _partition_text(edge.route) + (", to the bucket where it is" if stays else "")
    passed = [str(level) for level in range(edge.start + 1, edge.to)]
    return target + (f", handed through stage {' and '.join(passed)}" if passed else "")


def in_place(line: Line, node: Node, numbers: dict[str, int]) -> str:
    """The inputs of an operator that are already partitioned as it needs them; empty if there are none."""
    if isinstance(node, Output):
        return ""
    found = []
    for position, child in enumerate(node.inputs):
        same_level = line.levels[child.fingerprint] == line.levels[node.fingerprint]
        if same_level and node.need(position) is not None and child.properties.keys is not None:
            found.append(f"#{numbers[child.fingerprint]} {_partition_text(child.properties.keys)}")
    return f"{' and '.join(found)} for #{numbers[node.fingerprint]}" if found else ""


def _partition_text(keys: tuple[str, ...]) -> str:
    return f"by {', '.join(keys)}" if keys else "in one bucket"
