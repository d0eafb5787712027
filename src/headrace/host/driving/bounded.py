"""Runs bounded inputs to their end by the loop of a query, on any host, with the results of `run_local`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.host.driving.query import Query
from headrace.host.received import received
from headrace.host.result import FinishedRun, Result
from headrace.io.sinks import Memory, Sink
from headrace.meter import Work, current
from headrace.plan.nodes import Output

__all__ = ["run_driven"]


def run_driven(
    start: Callable[..., Query],
    outputs: Sequence[Output],
    *,
    sinks: Mapping[str, Sink] | None = None,
    finish: bool = True,
    files_per_batch: int | None = 1,
    **options: Any,
) -> FinishedRun:
    """Run to the end of all sources; by default every file, or batch of events, is a batch of the query.

    `start` starts the query on a host. Outputs that `sinks` names go there, the others are returned. `finish=False`
    processes the rows that are there and leaves the streams open, so that a checkpoint can continue.
    """
    kept: dict[str, Memory] = {o.name: Memory() for o in outputs if o.name not in (sinks or {})}
    targets: dict[str, Sink] = {**kept, **(sinks or {})}
    with received(outputs) as bounded:
        pairs = [(o.input, targets[o.name]) for o in bounded]
        query = start(pairs, files_per_batch=files_per_batch, **options)
        _show(query, current())
        try:
            if finish:
                query.finish()
            else:
                query.process_all_available()
        finally:
            query.stop()
    results = {o.name: Result.of(o, m.batches, next(iter(m.numbers), 0)) for o in outputs if (m := kept.get(o.name))}
    return FinishedRun(results, query.counts, query.statistics, query.examples)


def _show(query: Query, work: Work) -> None:
    """Let the progress bar show the query's batches, and its rows where other processes read them."""

    def refresh() -> None:
        report = query.progress()
        work.batch = report.get("batch", work.batch)
        work.rows = max(work.rows, sum(counts.get("rows", 0) for counts in report.get("counts", {}).values()))

    work.refresh = refresh
