"""Loops, drawn for people: the operators of the body, and how the last leads back to the first."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.operators.registry import runs_as
from headrace.plan.convergence import why_it_may_not_end
from headrace.plan.nodes import LoopInput, Recurse, walk
from headrace.stages.spread import goes_across

__all__ = ["how_it_runs", "loop_lines"]


def loop_lines(node: Recurse, number: int, reads: Sequence[int]) -> tuple[str, ...]:
    """The body of loop `number`, whose inputs have the numbers `reads`."""
    names = {port.fingerprint: f"#{read}" for port, read in zip(node.ports, reads, strict=True)}
    names[node.ports[0].fingerprint] = "result"
    lines = [f"loop: again and again, until nothing new comes; {_its_end(node)}"]
    for inner in walk(node.body):
        if not isinstance(inner, LoopInput):
            mine = names[inner.fingerprint] = f"#{number}.{len(lines)}"
            from_ = ", ".join(names[child.fingerprint] for child in inner.inputs)
            lines.append(f"  {mine} {inner.describe()} ← {from_}")
    lines.append(f"  ↺ result ← #{reads[0]}, {names[node.body.fingerprint]}")
    if not goes_across(node) and node.why_in_one_bucket is not None:
        lines.append(f"  in one bucket, since no column is kept all the way round: {node.why_in_one_bucket}")
    return tuple(lines)


def _its_end(node: Recurse) -> str:
    why = why_it_may_not_end(node)
    return "always ends" if why is None else f"stopped after {node.bound:,} rounds, since {why}"


def how_it_runs(node: Recurse) -> str:
    """What goes round in it, and where."""
    return f"{runs_as(node)}; {_where(node)}"


def _where(node: Recurse) -> str:
    if goes_across(node):
        return "across buckets, if there are several: a round a trip"
    if node.why_in_one_bucket is None:
        return f"in every bucket a loop of its own, by {', '.join(node.need(0) or ())}"
    return "all in one bucket"
