"""Run a stream and keep what its operators did."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from headrace.api.checks import HasNode, checked_options, checked_streams
from headrace.api.options import Consistency
from headrace.api.running import consistent, needs_driver, outputs_of
from headrace.errors import PlanError
from headrace.host.driving.shedding import using_every_row
from headrace.host.live_tables import as_of_now, followed
from headrace.host.saved.replay import BatchRange, Replay
from headrace.io.origins import AdapterRead, endless_origins
from headrace.plan.nodes import Node, Output, sources_of
from headrace.tracing.debugging import Conditions, DebugSession
from headrace.tracing.record import record_local, record_replay
from headrace.tracing.traced import TracedRun

__all__ = ["debugged", "trace_checkpoint", "traced", "traced_again"]


def traced(node: Node, *, batch_rows: int | None, state: bool, consistency: Consistency) -> TracedRun:
    """Run a stream in this process, to the end of its inputs."""
    checked_options({"batch_rows": batch_rows}, ("batch_rows",))
    return TracedRun(record_local(_bounded(node, consistency), batch_rows=batch_rows, state=state))


def debugged(
    node: Node, *, batch_rows: int | None, state: bool, consistency: Consistency, conditions: Conditions
) -> DebugSession:
    """A session over a run of a stream in this process."""
    checked_options({"batch_rows": batch_rows}, ("batch_rows",))
    bounded = partial(_bounded, consistency=consistency)
    return DebugSession(node, bounded, batch_rows=batch_rows, state=state, conditions=conditions)


def _bounded(node: Node, consistency: Consistency) -> list[Output]:
    """The outputs of a stream whose inputs have an end."""
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
    return outputs


def trace_checkpoint(
    checkpoint: str | Path,
    stream: HasNode | tuple[HasNode, Any],
    *others: HasNode | tuple[HasNode, Any],
    batches: tuple[int, int] | None = None,
    state: bool = False,
) -> TracedRun:
    """Run batches of a query again as they ran, from its checkpoint, and keep what every operator did.

    `stream`, and the `others` if it has several, are those of the start, in its order: the query is not in the
    checkpoint, and another one is refused, with what differs. An output with `encoding="upsert"` is given with its
    sink, as a pair. `batches` are the first and the last number; by default all that are kept: those of the time that
    `start(..., record="1 h")` sets, else about the last ten. The query may run meanwhile.

    The trace has the operators that ran, the changes of these batches, and with `state=True` what operators remembered
    after each. `TraceError` if batches, or what they read, are no longer kept; it says which are.
    """
    given = [one if isinstance(one, tuple) else (one, None) for one in (stream, *others)]
    nodes = checked_streams({str(number): one for number, (one, _) in enumerate(given)})
    pairs = [(node, sink) for node, (_, sink) in zip(nodes.values(), given, strict=True)]
    return traced_again(checkpoint, pairs, None if batches is None else _batch_range(batches), state=state)


def traced_again(
    checkpoint: str | Path,
    pairs: Sequence[tuple[Node, Any]],
    batches: BatchRange | None,
    *,
    state: bool = False,
    output: int | None = None,
) -> TracedRun:
    """Run batches of a checkpoint again; with `output`, the trace has only what this output depends on."""
    replay = Replay(checkpoint, [(followed(node), sink) for node, sink in pairs], batches)
    return TracedRun(record_replay(replay, state=state, output=output))


def _batch_range(batches: Any) -> BatchRange:
    if not isinstance(batches, tuple) or len(batches) != 2 or any(type(number) is not int for number in batches):
        raise PlanError(
            "these are not numbers of batches",
            given=batches,
            allowed="the first and the last",
            instead="batches=(2, 4)",
        )
    return BatchRange(*batches)
