"""Explain a query by a run of it: what its operators did, and what they cost."""

from __future__ import annotations

from itertools import chain
from time import perf_counter
from typing import Any

from headrace.api.running import needs_driver, outputs_of, run_quietly
from headrace.errors import PlanError
from headrace.explain.steps import explain_line
from headrace.host.local.measured import measure_local
from headrace.host.report import operators_of
from headrace.io.origins import endless_origins
from headrace.plan.nodes import Node, Output
from headrace.stages.cut import Line, line_of
from headrace.stages.load import stage_loads
from headrace.stages.measures import OperatorCost, RunCost

__all__ = ["explain_analyzed"]

_OUT = "out"


def explain_analyzed(node: Node, *, liveliness: bool = False, host: str = "local", **options: Any) -> str:
    """The plan of a query after a run to the end of its inputs, with the cost of each operator.

    In this process all operators are measured. On Spark, and where an adapter reads, what the hosts report is known:
    rows that were read, how evenly buckets divide them, and the state.
    """
    if inputs := endless_origins(node):
        raise PlanError(
            "a query is analyzed by a run to the end of its inputs, and some have none",
            given=", ".join(inputs),
            allowed="files, tables, events, and hosts with a limit",
        )
    outputs = outputs_of({_OUT: node})
    if host == "local" and not needs_driver(outputs):
        line, cost, _ = measure_local(outputs, buckets=options.get("buckets", 1), batch_rows=options.get("batch_rows"))
    else:
        line, cost = _reported(node, outputs, host, options)
    return explain_line(line, liveliness=liveliness, cost=cost)


def _reported(node: Node, outputs: list[Output], host: Any, options: dict[str, Any]) -> tuple[Line, RunCost]:
    """What a host reports of a run."""
    start = perf_counter()
    run = run_quietly({_OUT: node}, host=host, **options)
    cost = RunCost(batches=len(run.statistics), seconds=perf_counter() - start, host=host)
    line = line_of(outputs, options.get("buckets", 1))
    for statistics in run.statistics:
        cost.hold(operators_of(statistics))
    cost.loads = stage_loads(chain.from_iterable(run.statistics))
    for source in line.sources:
        if (counts := run.counts.get(str(source.origin))) is not None:
            used = counts["rows"] - counts["diverted"] - counts["dropped"]
            cost.operators[source.fingerprint] = OperatorCost(counts["rows"], used)
    return line, cost
