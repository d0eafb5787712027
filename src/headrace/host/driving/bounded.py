"""Runs bounded inputs to their end by the loop of a query, on any host, with the results of `run_local`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import to_numpy
from headrace.host.driving.query import Query
from headrace.host.received import received
from headrace.host.result import DIVERTED, FinishedRun, Result
from headrace.io.formats import Format, read_file
from headrace.io.object_batches import batches_at
from headrace.io.sinks import FileSink, Memory, Sink
from headrace.meter import Work, current
from headrace.plan.nodes import Output
from headrace.progress import Progress
from headrace.schema import Field, Schema, Type
from headrace.time import INFINITY

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
    processes the rows that are there and leaves the streams open, so that a checkpoint can continue. The diverted rows
    that a checkpoint holds are results, too.
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
    if options.get("checkpoint") is not None:
        results |= _diverted(query, len(pairs))
    return FinishedRun(results, query.counts, query.statistics, query.examples)


def _diverted(query: Query, outputs: int) -> dict[str, Result]:
    """The diverted rows in the checkpoint of a query that has so many outputs of its own."""
    results: dict[str, Result] = {}
    for output, sink in zip(query.line.outputs[outputs:], query.sinks[outputs:], strict=True):
        if isinstance(sink, FileSink):
            rows = _final_rows(sink.path, output.schema)
            results[f"{DIVERTED} {len(results)}"] = Result.of(output, [(rows, Progress())])
    return results


def _final_rows(path: str, payload: Schema) -> Changes:
    """The rows of a files sink that has final rows only, as lines of JSON."""
    times = (Field("le", Type.LONG), Field("re", Type.LONG))
    schema = Schema((*times, *payload))
    files = (file for file in batches_at(path).files() if file.endswith(".jsonl"))
    blocks = (block for file in files for block in read_file(file, Format("json"), schema))
    rows = pa.concat_tables([schema.arrow.empty_table(), *(block.table for block in blocks)])
    le, re = (to_numpy(pc.fill_null(rows[field.name], INFINITY)) for field in times)  # null in dates (rule 1.1)
    return Changes.inserts(le, re, rows.select(list(payload.names)))


def _show(query: Query, work: Work) -> None:
    """Let the progress bar show the query's batches, and its rows where other processes read them."""

    def refresh() -> None:
        report = query.progress()
        work.batch = report.get("batch", work.batch)
        work.rows = max(work.rows, sum(counts.get("rows", 0) for counts in report.get("counts", {}).values()))

    work.refresh = refresh
