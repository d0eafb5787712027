"""Running queries: to the end of bounded inputs, or on Spark until stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from headrace.api.checks import HasNode, checked_options, checked_pairs, checked_sinks, checked_streams, options_of
from headrace.errors import PlanError
from headrace.events import history
from headrace.host.local import run_local
from headrace.host.report import Report
from headrace.host.result import Finished, Result
from headrace.io.deliver import check_free, deliver
from headrace.io.origins import SparkRead, check_frames
from headrace.io.sinks import Sink, prepared
from headrace.plan.nodes import Final, Node, Output, Source, set_aside, walk
from headrace.time import NEG_INFINITY

__all__ = ["Run", "outputs_of", "run", "start"]

Host = Literal["local", "spark"]
Consistency = Literal["speculative", "final"]
CONSISTENCIES = ("speculative", "final")
#: Begins the names of the outputs that every query has; a user may well name an output "diverted".
DIVERTED = "(diverted)"


@dataclass
class Run:
    """A finished run: what came out, what was set aside, and what was remembered."""

    results: dict[str, Result]
    counts: dict[str, dict[str, int]]
    statistics: list[list[dict[str, Any]]]

    def _result(self, name: str | None) -> Result:
        if name is None:
            name = next(n for n in self.results if not n.startswith(DIVERTED))
        if name not in self.results:
            raise PlanError("there is no such output", given=name, allowed=", ".join(self.results))
        return self.results[name]

    def cht(self, name: str | None = None) -> pa.Table:
        """The history of an output (the first, if not named)."""
        return self._result(name).cht()

    def events(self, name: str | None = None) -> pa.Table:
        """The physical events of an output, in the order they left."""
        return self._result(name).events()

    def cti(self, name: str | None = None) -> int:
        """The last promise of an output."""
        batches = self._result(name).batches
        return batches[-1][1].cti if batches else NEG_INFINITY

    def diverted(self) -> pa.Table:
        """The rows set aside, with their source and the reason."""
        sides = [result.changes() for name, result in self.results.items() if name.startswith(DIVERTED)]
        return pa.concat_tables([history(side) for side in sides])

    def progress(self) -> Report:
        """How far it is after the last batch: sources, what every operator remembers, what went round in loops."""
        latest = self.statistics[-1] if self.statistics else []
        sources = latest[0]["sources"] if latest else {}
        return Report.of(len(self.statistics) - 1, sources, self.counts, latest)

    @property
    def set_aside(self) -> int:
        """How many rows were set aside; those that are kept in a checkpoint are counted since it began."""
        if any(name.startswith(DIVERTED) for name in self.results):
            return int(self.diverted().num_rows)
        return sum(counts.get("diverted", 0) for counts in self.counts.values())


def outputs_of(streams: Mapping[str, Node]) -> list[Output]:
    """The outputs of a query: the named streams, and for every source the rows it sets aside."""
    outputs = [Output(node, name) for name, node in streams.items()]
    return outputs + [Output(side, f"{DIVERTED} {i}") for i, side in enumerate(set_aside(*outputs, whole=False))]


def run(
    streams: Mapping[str, Node | HasNode],
    *,
    host: Host = "local",
    consistency: Consistency = "speculative",
    sinks: Mapping[str, Any] | None = None,
    **options: Any,
) -> Run:
    """Run one or several streams over bounded inputs to their end, as one query.

    Streams that `sinks` names go there; what left the others is in the run that is given back.

    With `consistency="final"` only what nothing can change any more leaves, and nothing is ever taken back; the history
    is the same. On the local host the options are `buckets`, `batch_rows`, `clock`, `finish`; on Spark `master`,
    `spark`, `buckets`, `checkpoint`, `finish`. A source that has no end (Kafka, a streaming data frame) is refused.
    """
    nodes = {name: _consistent(node, consistency) for name, node in checked_streams(streams).items()}
    places = checked_sinks(sinks or {}, nodes)
    outputs = outputs_of(nodes)
    _check_bounded(outputs)
    ours = ["host", "consistency", "sinks"]
    if host == "local":
        given = checked_options(options, ours + options_of(run_local))
        done = _run_local(outputs, places, {name: value for name, value in given.items() if value is not None})
    elif host == "spark":
        # Spark is loaded only when it is asked for.
        from headrace.host.spark.bounded import run_spark
        from headrace.host.spark.launch import start_query  # for the options that run_spark passes on to it

        given = checked_options(options, ours + options_of(run_spark, start_query))
        if given.get("finish") is False:  # it goes on another time: what is set aside belongs to its checkpoint
            outputs = outputs[: len(nodes)]
        done = run_spark(outputs, sinks=places, **given)
    else:
        raise PlanError("unknown host", given=host, allowed="local, spark")
    return Run(done.results, done.counts, done.statistics)


def _check_bounded(outputs: list[Output]) -> None:
    """Refuse what has no end: a run over it would never come back."""
    check_frames(*outputs, named=False)
    for node in walk(*outputs):
        if isinstance(node, Source) and isinstance(node.origin, SparkRead) and node.origin.endless:
            raise PlanError(
                "this source has no end, and neither would a run over it",
                given=str(node.origin),
                allowed="files, events, hosts, tables, batch data frames",
                instead="start(hr.memory()), which runs until stop(); process_all_available() waits for what is there",
            )


def _run_local(outputs: list[Output], sinks: Mapping[str, Sink], options: Mapping[str, Any]) -> Finished:
    check_free(sinks.values())
    ready = [Output(prepared(o.input, sinks[o.name]), o.name) if o.name in sinks else o for o in outputs]
    done = run_local(ready, **options)
    for name, sink in sinks.items():
        result = done.results.pop(name)
        deliver(sink, name, result.schema, result.batches)
    return done


def start(
    pairs: Sequence[tuple[Node | HasNode, Any]], *, consistency: Consistency = "speculative", **options: Any
) -> Any:
    """Run streams on Spark, each into its sink, as one query, until stopped.

    Options: `checkpoint`, `master`, `spark`, `buckets`, `trigger`, `files_per_batch`, `name`. `spark` is a session to
    run on, whose options stay as they are; without it the active session is taken, or one is started.
    """
    wanted = [(_consistent(node, consistency), sink) for node, sink in checked_pairs(pairs)]
    # Spark is loaded only when it is asked for.
    from headrace.host.spark.launch import start_query

    return start_query(wanted, **checked_options(options, ["consistency", *options_of(start_query)]))


def _consistent(node: Node, consistency: Consistency) -> Node:
    if consistency not in CONSISTENCIES:
        raise PlanError("unknown consistency", given=consistency, allowed=", ".join(CONSISTENCIES))
    return Final(node) if consistency == "final" else node
