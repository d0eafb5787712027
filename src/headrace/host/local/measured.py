"""Run a query to the end of its input and measure its operators: in one thread, so that times add up."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from time import perf_counter

from headrace.host.local.run import Block, Runner, batches_of
from headrace.host.received import received
from headrace.host.report import operators_of
from headrace.host.result import FinishedRun
from headrace.io.json_fields import check_fields
from headrace.plan.nodes import Output
from headrace.stages.cut import Line, line_of
from headrace.stages.load import stage_loads
from headrace.stages.measures import RunCost

__all__ = ["measure_local"]


def measure_local(
    outputs: Sequence[Output], *, buckets: int = 1, batch_rows: int | None = None
) -> tuple[Line, RunCost, FinishedRun]:
    """Run to the end of all sources; the plan that ran, its cost, and its results."""
    with received(outputs) as bounded:
        line = line_of(bounded, buckets)
        for source in line.sources:
            check_fields(source)
        cost, began = RunCost(), perf_counter()
        runner = Runner(line, buckets, None, cost=cost)
        feeds = {source.fingerprint: batches_of(source, batch_rows) for source in line.sources}
        while feeds:
            blocks: dict[str, Sequence[Block]] = {}
            for fingerprint, feed in list(feeds.items()):
                start = perf_counter()
                read = next(feed, None)
                cost.add(fingerprint, seconds=perf_counter() - start)
                if read is None:
                    del feeds[fingerprint]
                else:
                    blocks[fingerprint] = read
            if feeds:
                runner.round(blocks)
                cost.batches += 1
                cost.hold(operators_of(runner.done.statistics[-1]))
        runner.end()
        cost.seconds = perf_counter() - began
        cost.loads = stage_loads(chain.from_iterable(runner.done.statistics))
    return line, cost, runner.done
