"""Runs that a tap sees: to the end of the input, in one thread, so that steps are in order and times add up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from time import perf_counter

from headrace.host.local.run import Block, Runner, TakenBatch, batches_of
from headrace.host.received import received
from headrace.host.report import operators_of
from headrace.host.result import FinishedRun
from headrace.io.json_fields import check_fields
from headrace.plan.nodes import Output, Source
from headrace.stages.cut import Line, line_of
from headrace.stages.load import stage_loads
from headrace.stages.measures import RunCost

__all__ = ["measure_local", "read_batches", "tapped_batches"]


def measure_local(
    outputs: Sequence[Output], *, buckets: int = 1, batch_rows: int | None = None
) -> tuple[Line, RunCost, FinishedRun]:
    """Run to the end of all sources; the plan that ran, its cost, and its results."""
    with received(outputs) as bounded:
        line = line_of(bounded, buckets)
        cost, began = RunCost(), perf_counter()
        runner = Runner(line, buckets, None, tap=cost)
        for taken in tapped_batches(runner, batch_rows):
            runner.run(taken)
            cost.batches += 1
            cost.hold(operators_of(runner.done.statistics[-1]))
        runner.end()
        cost.seconds = perf_counter() - began
        cost.loads = stage_loads(chain.from_iterable(runner.done.statistics))
    return line, cost, runner.done


def tapped_batches(runner: Runner, batch_rows: int | None) -> Iterator[TakenBatch]:
    """Every batch of a run with a tap, judged, in order; the caller runs each before it takes the next."""
    assert runner.tap is not None
    return map(runner.take, read_batches(runner.line.sources, batch_rows, runner.tap.wait))


def read_batches(
    sources: Sequence[Source], batch_rows: int | None, wait: Callable[[Source, float], None]
) -> Iterator[dict[str, Sequence[Block]]]:
    """The rows of every batch, by the fingerprint of their source; `wait` gets the time that a source took."""
    for source in sources:
        check_fields(source)
    feeds = {source: batches_of(source, batch_rows) for source in sources}
    while feeds:
        blocks: dict[str, Sequence[Block]] = {}
        for source, feed in list(feeds.items()):
            start = perf_counter()
            read = next(feed, None)
            wait(source, perf_counter() - start)
            if read is None:
                del feeds[source]
            else:
                blocks[source.fingerprint] = read
        if feeds:
            yield blocks
