"""Running bounded inputs to their end on Spark: the same answer as the local host's, by the way the product runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.host.result import Finished, Result
from headrace.host.spark.query import start_query
from headrace.io.sinks import Memory
from headrace.plan.nodes import Output

__all__ = ["run_spark"]


def run_spark(outputs: Sequence[Output], *, files_per_batch: int | None = 1, **options: Any) -> Finished:
    """Run to the end of all sources; by default every file, or batch of events, is a batch of Spark's."""
    sinks = [Memory() for _ in outputs]
    query = start_query(
        [(o.input, s) for o, s in zip(outputs, sinks, strict=True)], files_per_batch=files_per_batch, **options
    )
    try:
        query.finish()
    finally:
        query.stop()
    results = {o.name: Result(o.schema, s.batches) for o, s in zip(outputs, sinks, strict=True)}
    return Finished(results, query.counts, query.statistics)
