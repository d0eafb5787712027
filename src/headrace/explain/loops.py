"""Draw loops as text: the operators of the body, and the way back from the last to the first."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.operators.registry import runs_as
from headrace.plan.convergence import why_it_may_not_end
from headrace.plan.nodes import LoopInput, Recurse, walk
from headrace.stages.spread import goes_across

__all__ = ["loop_lines", "loop_runs_as"]


def loop_lines(node: Recurse, number: int, reads: Sequence[int]) -> tuple[str, ...]:
    """The body of loop `number`, whose inputs have the numbers `reads`."""
    names = {port.fingerprint: f"#{read}" for port, read in zip(node.ports, reads, strict=True)}
    names[node.ports[0].fingerprint] = "result"
    lines = [f"loop: repeats until a round derives nothing new; {_end_text(node)}"]
    for inner in walk(node.body):
        if not isinstance(inner, LoopInput):
            own_number = names[inner.fingerprint] = f"#{number}.{len(lines)}"
            inputs = ", ".join(names[child.fingerprint] for child in inner.inputs)
            lines.append(f"  {own_number} {inner.describe()} ← {inputs}")
    lines.append(f"  ↺ result ← #{reads[0]}, {names[node.body.fingerprint]}")
    if not goes_across(node) and node.why_in_one_bucket is not None:
        lines.append(f"  in one bucket, since no column keeps its values all the way round: {node.why_in_one_bucket}")
    return tuple(lines)


def _end_text(node: Recurse) -> str:
    reason = why_it_may_not_end(node)
    return "always ends" if reason is None else f"stopped after {node.bound:,} rounds, since {reason}"


def loop_runs_as(node: Recurse) -> str:
    """What goes round in a loop, and in which buckets."""
    return f"{runs_as(node)}; {_buckets_text(node)}"


def _buckets_text(node: Recurse) -> str:
    if goes_across(node):
        return "across buckets, if there are several: one round per trip"
    if node.why_in_one_bucket is None:
        return f"a loop of its own in every bucket, by {', '.join(node.need(0) or ())}"
    return "all in one bucket"
