"""The cost of a measured run as text: what `EXPLAIN ANALYZE` adds to a plan."""

from __future__ import annotations

from headrace.plan.nodes import Node, Output
from headrace.stages.measures import OperatorCost, RunCost

__all__ = ["cost_of_run", "cost_of_step", "load_of_stage"]

_UNITS = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))


def cost_of_run(cost: RunCost) -> str:
    """The cost of the whole run, in one text line."""
    batches = f"{cost.batches:,} batch{'' if cost.batches == 1 else 'es'}, {_time(cost.seconds)}"
    if not _operators(cost):
        return f"measured on {cost.host}: {batches}; times of single operators are measured in process only"
    return f"measured in one thread: {batches}; operators take {_time(_operators(cost))} of it"


def _operators(cost: RunCost) -> float:
    return sum(part.seconds or 0.0 for part in cost.operators.values())


def cost_of_step(node: Node, cost: RunCost) -> str:
    """The cost of one operator: rows, time and its share, and the largest state; what is not known is left out."""
    found = cost.operators.get(node.fingerprint)
    if found is None:
        below = cost.operators.get(node.inputs[0].fingerprint) if isinstance(node, Output) else None
        found = OperatorCost(None if below is None else below.rows_out)
    parts = []
    if found.rows_in is not None:
        out = "" if isinstance(node, Output) or found.rows_out is None else f", {found.rows_out:,} out"
        parts.append(f"rows: {found.rows_in:,} in{out}")
    if found.seconds is not None:
        share = found.seconds / max(_operators(cost), 1e-9)
        parts.append(f"time: {_time(found.seconds)} ({share:.0%})")
    if found.state_rows is not None:
        parts.append(f"state at most: {found.state_rows:,} rows, {_size(found.state_bytes or 0)}")
    return "; ".join(parts) or "nothing known"


def load_of_stage(level: int, cost: RunCost | None) -> list[str]:
    """How evenly rows were divided among the buckets of a stage, and advice; nothing for one bucket."""
    loads = [] if cost is None else [load for load in cost.loads if load.level == level]
    return [f"measured: {line}" if not place else line for load in loads for place, line in enumerate(load.lines())]


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"


def _size(size: int) -> str:
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
