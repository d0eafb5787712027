"""Run a stream and keep what its operators did."""

from __future__ import annotations

from headrace.api.options import Consistency
from headrace.api.running import consistent, needs_driver, outputs_of
from headrace.errors import PlanError
from headrace.host.driving.shedding import using_every_row
from headrace.host.live_tables import as_of_now
from headrace.io.origins import AdapterRead, endless_origins
from headrace.plan.nodes import Node, sources_of
from headrace.tracing.record import record_local
from headrace.tracing.traced import TracedRun

__all__ = ["traced"]


def traced(node: Node, *, batch_rows: int | None, state: bool, consistency: Consistency) -> TracedRun:
    """Run a stream in this process, to the end of its inputs."""
    plan = as_of_now(using_every_row(consistent(node, consistency)))
    outputs = outputs_of({"out": plan})
    if (inputs := endless_origins(plan)) or needs_driver(outputs):
        inputs += [str(s.origin) for s in sources_of(plan) if isinstance(s.origin, AdapterRead)]
        raise PlanError(
            "a trace runs in this process over input that is there, and these inputs are services or have no end",
            given=", ".join(inputs),
            allowed="files, tables, events, data frames, and hosts with a limit",
            instead="a trace of the files or events that the service gave",
        )
    return TracedRun(record_local(outputs, batch_rows=batch_rows, state=state))
