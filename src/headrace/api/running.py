"""Running queries: to the end of bounded inputs, or until stopped.

A run whose answer lacks rows (late, malformed, dropped) says so once, by a warning of the category
`headrace.errors.RowsNotUsed`. Rows that the query itself reads, by `stream.diverted()`, are not missing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import currentframe
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from headrace.api.checks import HasNode, checked_options, checked_pairs, checked_sinks, checked_streams, options_of
from headrace.api.options import Consistency, Host, RunOptions, StartOptions, showing
from headrace.changes import Changes
from headrace.errors import PlanError, RowsNotUsed
from headrace.events import history
from headrace.host.driving.bounded import run_driven
from headrace.host.driving.query import Query
from headrace.host.local import run_local, start_local
from headrace.host.losses import lost, told_losses
from headrace.host.report import BatchReport
from headrace.host.result import Finished, Result
from headrace.io.origins import SparkRead, check_frames
from headrace.io.sinks import Sink
from headrace.plan.nodes import DIVERTED as DIVERTED_ROWS
from headrace.plan.nodes import Diverted, Failures, Final, Node, Output, Source, diverted_streams, walk
from headrace.stages.egress import check_places, deliver, prepared, show_losses
from headrace.time import NEG_INFINITY

__all__ = ["Run", "outputs_of", "run", "run_quietly", "start"]

CONSISTENCIES = ("speculative", "final")
_PACKAGE = __name__.partition(".")[0]
#: Begins the names of the outputs that every query has; a user may well name an output "diverted".
DIVERTED = "(diverted)"


@dataclass
class Run:
    """A finished run: what came out, what was not used, and what was remembered."""

    results: dict[str, Result]
    counts: dict[str, dict[str, int]]
    statistics: list[list[dict[str, Any]]]
    #: Of every source the first row that was diverted or dropped.
    examples: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        names = ", ".join(name for name in self.results if not name.startswith(DIVERTED))
        return f"Run of {names or 'nothing'}: {self.losses() or 'every row was used'}"

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
        """The rows that were not used: their source, the reason, and their file and line where those are known."""
        sides = [result.changes() for name, result in self.results.items() if name.startswith(DIVERTED)]
        return pa.concat_tables([history(side) for side in [Changes.empty(DIVERTED_ROWS), *sides]])

    def progress(self) -> BatchReport:
        """How far it is after the last batch: sources, what every operator remembers, what went round in loops."""
        latest = self.statistics[-1] if self.statistics else []
        sources = latest[0]["sources"] if latest else {}
        return BatchReport.of(len(self.statistics) - 1, sources, self.counts, latest, self.examples)

    @property
    def lost(self) -> int:
        """How many rows were not used; a query with a checkpoint counts since it began."""
        return sum(map(lost, self.counts.values()))

    def losses(self, *, but: Collection[str] = ()) -> str:
        """What was not used, in words: a line for each source that lost rows, with one of them; empty if none did.

        `but` names sources whose diverted rows the query reads itself.
        """
        silent = [who for who, counts in self.counts.items() if lost(counts) and who not in self.examples]
        found = self.diverted() if silent else pa.table({"source": []})
        examples = dict(self.examples)
        for who in silent:  # retractions of nothing, and failed modules
            for row in found.filter(pc.equal(found["source"], who)).slice(0, 1).to_pylist():
                examples[who] = row
        return told_losses(self.counts, examples, but)


def outputs_of(streams: Mapping[str, Node]) -> list[Output]:
    """The outputs of a query: the named streams, and for every source the rows it diverts."""
    outputs = [Output(node, name) for name, node in streams.items()]
    return outputs + [Output(side, f"{DIVERTED} {i}") for i, side in enumerate(diverted_streams(*outputs, whole=False))]


@showing(RunOptions)
def run(
    streams: Mapping[str, Node | HasNode],
    *,
    host: Host = "local",
    consistency: Consistency = "speculative",
    sinks: Mapping[str, Any] | None = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Run one or several streams over bounded inputs to their end, as one query.

    Streams that `sinks` names go there; what left the others is in the run that is given back.

    With `consistency="final"` only what nothing can change any more leaves, and nothing is ever taken back; the history
    is the same. On the local host the options are `buckets`, `batch_rows`, `clock`, `finish`; on Spark `master`,
    `spark`, `buckets`, `checkpoint`, `finish`. With a `checkpoint` the local host takes the same ones, but for the
    first two: then it goes on from there, and keeps there how far it is. A source that has no end (Kafka, a streaming
    data frame) is refused.

    If rows were not used, a warning (`headrace.errors.RowsNotUsed`) says how many, why, and shows one.
    """
    done = run_quietly(streams, host=host, consistency=consistency, sinks=sinks, **options)
    _warn(done.losses(but=_read_by(checked_streams(streams).values())))
    return done


def _warn(losses: str) -> None:
    """Warn at the line that called this package."""
    if losses:
        frame, level = currentframe(), 1
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
            frame, level = frame.f_back, level + 1
        warnings.warn(losses, RowsNotUsed, stacklevel=level)


def _read_by(nodes: Iterable[Node]) -> set[str]:
    """The sources whose diverted rows a query reads, and the modules whose failures it reads."""
    found = list(walk(*nodes))
    modules = {", ".join(map(str, node.input.modules)) for node in found if isinstance(node, Failures)}  # type: ignore[attr-defined]
    return {str(node.source.origin) for node in found if isinstance(node, Diverted)} | modules


def run_quietly(
    streams: Mapping[str, Node | HasNode],
    *,
    host: Host = "local",
    consistency: Consistency = "speculative",
    sinks: Mapping[str, Any] | None = None,
    **options: Unpack[RunOptions],
) -> Run:
    """As `run`, without a warning: for callers that show the losses themselves."""
    nodes = {name: _consistent(node, consistency) for name, node in checked_streams(streams).items()}
    places = checked_sinks(sinks or {}, nodes)
    outputs = outputs_of(nodes)
    _check_bounded(outputs)
    ours = ["host", "consistency", "sinks"]
    if host == "local" and options.get("checkpoint") is None:
        given = checked_options(options, [*ours, *options_of(run_local), "checkpoint"])
        done = _run_local(outputs, places, {name: value for name, value in given.items() if value is not None})
    else:
        begin = _starter(host)
        given = checked_options(options, ours + options_of(run_driven, begin))
        if given.get("finish") is False:  # it goes on another time: what is diverted belongs to its checkpoint
            outputs = outputs[: len(nodes)]
        done = run_driven(begin, outputs, sinks=places, **given)
    return Run(done.results, done.counts, done.statistics, done.examples)


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
    check_places(sinks.values(), new=True)
    ready = [Output(prepared(o.input, sinks.get(o.name)), o.name) for o in outputs]
    done = run_local(ready, **options)
    for name, sink in sinks.items():
        result = done.results.pop(name)
        deliver(sink, name, result.schema, result.batches)
    show_losses(sinks.values(), told_losses(done.counts, done.examples))
    return done


@showing(StartOptions)
def start(
    pairs: Sequence[tuple[Node | HasNode, Any]],
    *,
    host: Host = "spark",
    consistency: Consistency = "speculative",
    **options: Unpack[StartOptions],
) -> Query:
    """Run streams, each into its sink, as one query, until stopped.

    `host` is `"spark"`, or `"local"` for this process, which needs no Java and cannot read what only Spark can. Options
    of both: `checkpoint`, `buckets`, `trigger`, `files_per_batch`, `max_trips` (how often a loop across buckets goes
    round in one batch at most; by default as often as fits in a second), `name`. A checkpoint that was made on one host
    goes on on the other. On Spark also `master` and `spark`, a session to run on, whose options stay as they are;
    without it the active session is taken, or one is started.
    """
    wanted = [(_consistent(node, consistency), sink) for node, sink in checked_pairs(pairs)]
    begin = _starter(host)
    return begin(wanted, **checked_options(options, ["host", "consistency", *options_of(begin)]))


def _starter(host: Host) -> Callable[..., Query]:
    if host == "local":
        return start_local
    if host != "spark":
        raise PlanError("unknown host", given=host, allowed="local, spark")
    # Spark is loaded only when it is asked for.
    from headrace.host.spark.launch import start_query

    return start_query


def _consistent(node: Node, consistency: Consistency) -> Node:
    if consistency not in CONSISTENCIES:
        raise PlanError("unknown consistency", given=consistency, allowed=", ".join(CONSISTENCIES))
    return Final(node) if consistency == "final" else node
