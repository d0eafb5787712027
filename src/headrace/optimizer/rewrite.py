"""Rewriting a plan bottom up, each shared node once."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from headrace.plan.nodes import Node, Output, Source, walk

__all__ = ["rewrite", "rewrite_sources"]


def rewrite(outputs: tuple[Output, ...], change: Callable[[Node], Node]) -> tuple[Output, ...]:
    """The plan with `change` applied to every node, after its inputs."""
    new: dict[str, Node] = {}
    for node in walk(*outputs):
        inputs = [new[child.fingerprint] for child in node.inputs]
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        new[node.fingerprint] = change(node if same else node.with_inputs(*inputs))
    return tuple(cast("Output", new[output.fingerprint]) for output in outputs)


def rewrite_sources(outputs: tuple[Output, ...], change: Callable[[Source], Node]) -> tuple[Output, ...]:
    """The plan with `change` applied to its sources."""
    return rewrite(outputs, lambda node: change(node) if isinstance(node, Source) else node)
