"""A plan as a graph of plain values: what `explain` prints, for pictures of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.explain.steps import Stage, Step, stages
from headrace.plan.nodes import Node, Recurse
from headrace.stages.cut import Line

__all__ = ["plan_graph"]


def plan_graph(line: Line) -> dict[str, Any]:
    """`{"stages": [...], "nodes": [...]}`: nodes have the numbers of `explain`, and name those that they read."""
    found = [stage for stage in stages(line) if stage.steps]
    return {"stages": [_stage(stage) for stage in found], "nodes": _nodes(found, line.nodes)}


def _stage(stage: Stage) -> dict[str, Any]:
    return {"level": stage.level, "title": stage.title, "moves": stage.moves()}


def _nodes(found: Sequence[Stage], nodes: Sequence[Node]) -> list[dict[str, Any]]:
    return [_node(step, nodes[step.number - 1]) for stage in found for step in stage.steps]


def _node(step: Step, node: Node) -> dict[str, Any]:
    kind, _, text = step.operator.partition(" ")
    return {
        "id": step.number,
        "level": step.level,
        "kind": type(node).__name__,
        "title": kind,
        "text": text,
        "inputs": list(step.reads),
        "loop": isinstance(node, Recurse),
        "fingerprint": node.fingerprint,
        "runs": step.runs,
        "state": step.state,
        "cti": step.cti,
        "delay": step.delay,
        "advice": list(step.advice),
        "corrects": not step.insert_only,
        "lines": list(step.loop),
    }
