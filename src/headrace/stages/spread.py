"""Cutting open loops across buckets (rule 9.2, `plan/spread.py`).

A loop with a key runs inside each bucket, within a batch. A loop without a key would have to run in one bucket. With
several buckets it is cut open instead: its operators run in all buckets like others, and its feedback travels from one
trip to the next (`host/driving/trips.py`). Only loops whose body uses single events or pairs can run so; all others
stay in one bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from headrace.operators.recurse.rounds import with_rounds
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import LoopEnd, LoopStart, Node, Output, Recurse, walk

__all__ = ["goes_across", "spread_loops"]


def goes_across(node: Node) -> TypeGuard[Recurse]:
    """Whether a node is a loop that runs across buckets, if there are several."""
    return isinstance(node, Recurse) and node.circulates and node.need(0) == ()


def spread_loops(outputs: Sequence[Output]) -> tuple[Output, ...]:
    """The same plan, with its loops across buckets cut open."""
    return rewrite(tuple(outputs), lambda node: _opened(node) if goes_across(node) else node)


def _opened(loop: Recurse) -> LoopEnd:
    body, result, _ = with_rounds(loop.body, loop.ports[0])
    start = LoopStart(result.schema, loop.fingerprint, loop.dates)
    new: dict[str, Node] = {result.fingerprint: start}
    new |= {port.fingerprint: node for port, node in zip(loop.ports[1:], loop.outside, strict=True)}
    for node in walk(body):
        if node.fingerprint not in new:
            new[node.fingerprint] = node.with_inputs(*(new[child.fingerprint] for child in node.inputs))
    return LoopEnd(loop.seed, new[body.fingerprint], loop)
