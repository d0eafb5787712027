"""The screens Queries and A query, as plain values: what batches did lately, as rates, points of charts and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from headrace.explain.graph import plan_graph
from headrace.explain.steps import explain_line
from headrace.host.driving.past import PHASES, PastBatch, cti_and_lag
from headrace.plan.nodes import Output, Source
from headrace.stages.cut import Line

__all__ = ["SPARK_SECONDS", "batch_rows", "chart_points", "lately", "nodes_lately", "plan_shown"]

#: The seconds of a small curve, and those over which a rate is a mean.
SPARK_SECONDS = 60
_RATE_SECONDS = 5


def lately(seconds: Sequence[PastBatch], now: float) -> dict[str, Any]:
    """Rows for each second of the last minute, the mean of the last ones, and the corrections of that minute."""
    curve = [0] * SPARK_SECONDS
    corrections = 0
    for one in seconds:
        age = int(now) - int(one.ended)
        if 0 <= age < SPARK_SECONDS:
            curve[SPARK_SECONDS - 1 - age] += one.fate("rows")
            corrections += one.removals
    return {"curve": curve, "rate": _rate(seconds, now, lambda one: one.fate("rows")), "corrections": corrections}


def _rate(seconds: Iterable[PastBatch], now: float, size: Callable[[PastBatch], int]) -> float:
    """The mean for a second over the last ones."""
    recent = [one for one in seconds if now - one.ended < _RATE_SECONDS]
    return round(sum(size(one) for one in recent) / _RATE_SECONDS, 2)


def chart_points(seconds: Sequence[PastBatch], *, dates: bool) -> dict[str, list[Any]]:
    """The curves of charts: a value for each second that had a batch."""
    return {
        "at": [int(one.ended) for one in seconds],
        "rows": [one.fate("rows") for one in seconds],
        "changes": [one.changes for one in seconds],
        "corrections": [one.removals for one in seconds],
        "seconds": [round(one.seconds / one.batches, 6) for one in seconds],
        "lag": [cti_and_lag(one.cti, one.ended, dates=dates)[1] for one in seconds],
        "state_bytes": [one.state_size[1] for one in seconds],
    }


def batch_rows(batches: Sequence[PastBatch], *, dates: bool) -> list[dict[str, Any]]:
    """Batches as rows, the newest first."""
    return [_batch_row(one, dates=dates) for one in reversed(batches)]


def _batch_row(one: PastBatch, *, dates: bool) -> dict[str, Any]:
    cti, lag = cti_and_lag(one.cti, one.ended, dates=dates)
    rows, size = one.state_size
    return {
        "batch": one.number, "at": one.ended, "seconds": round(one.seconds, 6),
        "phases": {phase: round(one.phases[phase], 6) for phase in PHASES},
        "rows": one.fate("rows"), "diverted": one.fate("diverted"), "dropped": one.fate("dropped"),
        "changes": one.changes, "corrections": one.removals, "cti": str(cti), "lag": lag,
        "state_rows": rows, "state_bytes": size, "sources": one.rows,
    }  # fmt: skip


def nodes_lately(
    line: Line,
    seconds: Sequence[PastBatch],
    now: float,
    ctis: Mapping[str, int],
    held: Mapping[str, Mapping[str, Any]],
    *,
    dates: bool,
) -> dict[str, dict[str, Any]]:
    """The live values of each operator, by fingerprint: its rate, its state and what holds it, its CTI, its skew.

    `ctis` are those of sources and outputs; `held` is the state of operators, by fingerprint.
    """
    latest = seconds[-1] if seconds else None
    loads = {load.level: load for load in latest.loads} if latest is not None else {}
    found: dict[str, dict[str, Any]] = {}
    for node in line.nodes:
        name = node.fingerprint
        known = any(name in one.flows.rows for one in seconds)  # what stays inside of the intake is not counted
        about: dict[str, Any] = {"rate": _rate(seconds, now, partial(_out_of, name)) if known else None}
        if isinstance(node, Source):
            fates = ("rows", "accepted", "diverted", "dropped", "late")
            counts = {fate: sum(one.rows.get(str(node.origin), {}).get(fate, 0) for one in seconds) for fate in fates}
            about["counts"] = counts
            about["rate"] = _rate(seconds, now, partial(_read_of, str(node.origin)))
        if isinstance(node, Output):
            about["rate"] = _rate(seconds, now, lambda one: one.changes)
        if name in held:
            state = held[name]
            about |= {"state_rows": state["rows"], "state_bytes": state["bytes"], "held_by": str(state["held_by"])}
        if name in ctis:
            about["cti"], about["lag"] = cti_and_lag(ctis[name], now, dates=dates)
        load = loads.get(line.levels[name])
        if load is not None and not isinstance(node, Source):
            about["skew"] = round(load.fullest_by_mean, 2)
            about["skew_text"] = " ".join(load.lines())
        found[name] = about
    return found


def _out_of(operator: str, one: PastBatch) -> int:
    return one.flows.rows.get(operator, 0)


def _read_of(origin: str, one: PastBatch) -> int:
    return one.rows.get(origin, {}).get("rows", 0)


def plan_shown(line: Line, name: str) -> dict[str, Any]:
    """The graph of the plan of a query, and what `EXPLAIN LIVELINESS` says of it."""
    graph = plan_graph(line)
    for node in graph["nodes"]:
        if node["kind"] == "Output":
            node["text"] = name  # hosts have names of their own for outputs
    return {"graph": graph, "explain": explain_line(line, liveliness=True)}
