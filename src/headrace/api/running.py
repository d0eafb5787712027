"""Running queries: to the end of bounded inputs, or until stopped.

A run that did not use all rows (late, malformed, shed) warns once, with the category `headrace.errors.RowsNotUsed`.
Rows that the query itself reads, by `stream.diverted()`, count as used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from inspect import currentframe
from itertools import chain
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from headrace.api.checks import HasNode, checked_options, checked_pairs, checked_sinks, checked_streams, options_of
from headrace.api.options import Consistency, Host, PlotOptions, RunOptions, StartOptions, shows_options
from headrace.border import LIFETIME, TimeColumns, shown
from headrace.display.timeline import Timeline
from headrace.display.words import clipped, counted
from headrace.errors import PlanError, RowsNotUsed
from headrace.events import history
from headrace.frames import frame_of
from headrace.host.driving.bounded import run_driven
from headrace.host.driving.query import Query
from headrace.host.driving.shedding import using_every_row
from headrace.host.live_tables import as_of_now, followed
from headrace.host.local import run_local, start_local
from headrace.host.losses import describe_losses, lost
from headrace.host.report import BatchReport
from headrace.host.result import DIVERTED, FinishedRun, Result
from headrace.io.adapter import SinkAdapter
from headrace.io.console import show_table
from headrace.io.origins import AdapterRead, SparkRead, check_frames
from headrace.io.sinks import Console, Sink
from headrace.meter import working
from headrace.plan.nodes import DIVERTED as DIVERTED_ROWS
from headrace.plan.nodes import Diverted, Failures, Final, Node, Output, Source, diverted_streams, sources_of, walk
from headrace.stages.egress import check_places, deliver, prepared, show_losses
from headrace.stages.load import stage_loads

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run", "consistent", "needs_driver", "outputs_of", "run", "run_quietly", "start_all"]

CONSISTENCIES = ("speculative", "final")
_PACKAGE = __name__.partition(".")[0]
_SHOWN = 3  # outputs in a notebook


@dataclass
class Run:
    """A finished run: the results, the counts of rows, and the statistics of every batch."""

    results: dict[str, Result]
    counts: dict[str, dict[str, int]]
    statistics: list[list[dict[str, Any]]]
    #: For every source, the first row that was diverted or dropped.
    examples: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        names = clipped(", ".join(self._named()), 60) or "nothing"
        first, *others = self.losses().splitlines() or ["every row was used"]
        more = f"; and {counted(len(others), 'source')} more" if others else ""
        return f"Run of {names}: {clipped(first, 300)}{more}"

    def _repr_html_(self) -> str:
        shown = [f"<p><b>{escape(name)}</b></p>\n{result._repr_html_()}" for name, result in self._named().items()]
        more = f"<p>and {counted(len(shown) - _SHOWN, 'output')} more</p>" if len(shown) > _SHOWN else ""
        losses = f"<p>{escape(self.losses())}</p>" if self.lost else ""
        return f"<p>{escape(repr(self))}</p>\n" + "\n".join(shown[:_SHOWN]) + more + losses

    def _named(self) -> dict[str, Result]:
        """The outputs, without those of diverted rows."""
        return {name: result for name, result in self.results.items() if not name.startswith(DIVERTED)}

    def _result(self, name: str | None) -> Result:
        if name is None:
            name = next(iter(self._named()))
        if name not in self.results:
            raise PlanError("there is no such output", given=name, allowed=", ".join(self.results))
        return self.results[name]

    def cht(self, name: str | None = None, *, time_columns: TimeColumns = LIFETIME) -> pa.Table:
        """The history of an output, by default of the first; `time_columns` name its columns of times."""
        return self._result(name).cht(time_columns)

    def to_pandas(self, name: str | None = None, *, time_columns: TimeColumns = LIFETIME) -> pd.DataFrame:
        """The history of an output, as `cht` gives it, as a pandas frame."""
        frame: pd.DataFrame = self.cht(name, time_columns=time_columns).to_pandas()
        return frame

    def to_polars(self, name: str | None = None, *, time_columns: TimeColumns = LIFETIME) -> Any:
        """The history of an output, as `cht` gives it, as a data frame of Polars, which must be installed."""
        return frame_of(self.cht(name, time_columns=time_columns), "polars")

    def show(self, n: int = 20, name: str | None = None) -> None:
        """Print the first `n` rows of the history of an output."""
        show_table(self._result(name).table(), n)

    def events(self, name: str | None = None, *, time_columns: TimeColumns = LIFETIME) -> pa.Table:
        """The physical events of an output, in the order they left."""
        return self._result(name).events(time_columns)

    def cti(self, name: str | None = None) -> int:
        """The last promise of an output, in ticks."""
        return self._result(name).cti

    @shows_options(PlotOptions)
    def plot(self, by: str | Sequence[str] = (), *, name: str | None = None, **look: Unpack[PlotOptions]) -> Timeline:
        """A timeline of an output, by default of the first; see `Stream.plot`."""
        return self._result(name).plot(by, **look)

    def diverted(self) -> pa.Table:
        """The rows that were not used, with their source, the reason, and the file and line where known.

        With a checkpoint, those since its first start.
        """
        sides = [result for name, result in self.results.items() if name.startswith(DIVERTED)]
        rows = [history(side.changes()) for side in [Result(DIVERTED_ROWS), *sides]]
        return shown(pa.concat_tables(rows), dates=any(side.dates for side in sides))

    def progress(self) -> BatchReport:
        """The report of the last batch: progress of the sources, sizes of operators' states, trips of loops.

        How evenly rows were divided among buckets is that of all batches.
        """
        latest = self.statistics[-1] if self.statistics else []
        sources, dated = (latest[0]["sources"], latest[0].get("dates", ())) if latest else ({}, ())
        report = BatchReport.of(len(self.statistics) - 1, sources, self.counts, latest, self.examples, dated)
        report["stages"] = [load.to_json() for load in stage_loads(chain.from_iterable(self.statistics))]
        return report

    @property
    def lost(self) -> int:
        """The number of rows that were not used; with a checkpoint, since its first start."""
        return sum(map(lost, self.counts.values()))

    def losses(self, *, but: Collection[str] = ()) -> str:
        """The rows that were not used, as text: a line for each source, with one row as an example; empty if none.

        `but` names sources whose diverted rows the query itself reads.
        """
        missing = [name for name, counts in self.counts.items() if lost(counts) and name not in self.examples]
        diverted = self.diverted() if missing else pa.table({"source": []})
        examples = dict(self.examples)
        for name in missing:  # retractions of unknown events, and failed modules
            for row in diverted.filter(pc.equal(diverted["source"], name)).slice(0, 1).to_pylist():
                examples[name] = row
        return describe_losses(self.counts, examples, but)


def outputs_of(streams: Mapping[str, Node]) -> list[Output]:
    """The outputs of a query: the named streams, and the diverted rows of every source."""
    outputs = [Output(node, name) for name, node in streams.items()]
    return outputs + [Output(side, f"{DIVERTED} {i}") for i, side in enumerate(diverted_streams(*outputs, whole=False))]


@shows_options(RunOptions)
def run(
    streams: Mapping[str, Node | HasNode],
    *,
    host: Host = "local",
    consistency: Consistency = "speculative",
    sinks: Mapping[str, Any] | None = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Run one or several streams over bounded inputs to their end, as one query.

    Streams that `sinks` names go to their sinks; the returned run has the results of the others.

    With `consistency="final"` only final events leave, and none is ever retracted; the history is the same. On the
    local host the options are `buckets`, `threads`, `batch_rows`, `clock`, `finish`; on Spark `master`, `spark`,
    `buckets`, `checkpoint`, `finish`. With a `checkpoint` the local host takes the options of Spark except the first
    two; the run then continues from the checkpoint and saves its state there. A source without an end (Kafka, a
    streaming data frame) is refused.

    If rows were not used, a warning (`headrace.errors.RowsNotUsed`) says how many and why, and shows one.
    """
    done = run_quietly(streams, host=host, consistency=consistency, sinks=sinks, **options)
    _warn(done.losses(but=_read_by(checked_streams(streams).values())))
    return done


def _warn(losses: str) -> None:
    """Warn, with the position of the user's call."""
    if losses:
        frame, level = currentframe(), 1
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
            frame, level = frame.f_back, level + 1
        warnings.warn(losses, RowsNotUsed, stacklevel=level)


def _read_by(nodes: Iterable[Node]) -> set[str]:
    """The sources whose diverted rows a query reads, and the modules whose failures it reads."""
    plan = list(walk(*nodes))
    modules = {", ".join(map(str, node.input.modules)) for node in plan if isinstance(node, Failures)}  # type: ignore[attr-defined]
    return {str(node.source.origin) for node in plan if isinstance(node, Diverted)} | modules


def run_quietly(
    streams: Mapping[str, Node | HasNode],
    *,
    host: Host = "local",
    consistency: Consistency = "speculative",
    sinks: Mapping[str, Any] | None = None,
    **options: Unpack[RunOptions],
) -> Run:
    """`run` without a warning: for callers that show the losses themselves."""
    nodes = {name: consistent(node, consistency) for name, node in checked_streams(streams).items()}
    if options.get("checkpoint") is None:  # a run with one continues, and follows its tables
        nodes = {name: as_of_now(using_every_row(node)) for name, node in nodes.items()}
    checked = {name: s.showing(dates=nodes[name].dates) for name, s in checked_sinks(sinks or {}, nodes).items()}
    with working(f"live on {host}", quiet=any(isinstance(sink, Console) for sink in checked.values())):
        return _run(nodes, host, checked, options)


def _run(nodes: Mapping[str, Node], host: Host, checked: Mapping[str, Sink], options: RunOptions) -> Run:
    outputs = outputs_of(nodes)
    _check_bounded(outputs)
    common = ["host", "consistency", "sinks"]
    if host == "local" and options.get("checkpoint") is None and not needs_driver(outputs, checked.values()):
        arguments = checked_options(options, [*common, *options_of(run_local), "checkpoint"])
        done = _run_local(outputs, checked, {name: value for name, value in arguments.items() if value is not None})
    else:
        begin = _starter(host)
        arguments = checked_options(options, common + options_of(run_driven, begin))
        if arguments.get("checkpoint") is not None:  # it holds the diverted rows, as that of a started query does
            outputs = outputs[: len(nodes)]
        done = run_driven(begin, outputs, sinks=checked, **arguments)
    return Run(done.results, done.counts, done.statistics, done.examples)


def needs_driver(outputs: Sequence[Output], sinks: Iterable[Sink] = ()) -> bool:
    """Whether a run needs the loop of a started query: adapters are read and written batch by batch."""
    services = any(isinstance(sink, SinkAdapter) for sink in sinks)
    return services or any(isinstance(source.origin, AdapterRead) for source in sources_of(*outputs))


def _check_bounded(outputs: list[Output]) -> None:
    """Refuse sources without an end: a run over one never returns."""
    check_frames(*outputs, named=False)
    for node in walk(*outputs):
        if isinstance(node, Source) and isinstance(node.origin, SparkRead) and node.origin.endless:
            raise PlanError(
                "a run over a source without an end never ends",
                given=str(node.origin),
                allowed="files, events, hosts, tables, batch data frames",
                instead="start(hr.memory()), which runs until stop(); process_all_available() waits for what is there",
            )


def _run_local(outputs: list[Output], sinks: Mapping[str, Sink], options: Mapping[str, Any]) -> FinishedRun:
    check_places(sinks.values(), new=True)
    ready = [Output(prepared(o.input, sinks.get(o.name)), o.name) for o in outputs]
    done = run_local(ready, **options)
    for name, sink in sinks.items():
        result = done.results.pop(name)
        deliver(sink, name, result.schema, result.batches)
    show_losses(sinks.values(), describe_losses(done.counts, done.examples))
    return done


@shows_options(StartOptions)
def start_all(
    pairs: Sequence[tuple[Node | HasNode, Any]],
    *,
    host: Host = "spark",
    consistency: Consistency = "speculative",
    **options: Unpack[StartOptions],
) -> Query:
    """Run streams, each into its sink, as one query, until stopped.

    `host` is `"spark"`, or `"local"` for this process, which needs no Java and reads no sources of Spark. Both take the
    options `checkpoint`, `buckets`, `trigger`, `files_per_batch`, `name` and `max_trips` (the most trips of a loop
    across buckets in one batch; by default as many as fit in a second). A checkpoint of one host continues on the
    other. Spark also takes `master` and `spark`, a session to run in, whose options stay as they are; by default it
    uses the active session, or starts one.
    """
    plans = [(followed(consistent(node, consistency)), sink) for node, sink in checked_pairs(pairs)]
    begin = _starter(host)
    return begin(plans, **checked_options(options, ["host", "consistency", *options_of(begin)]))


def _starter(host: Host) -> Callable[..., Query]:
    if host == "local":
        return start_local
    if host != "spark":
        raise PlanError("unknown host", given=host, allowed="local, spark")
    # Spark is loaded only when it is needed.
    from headrace.host.spark.launch import start_query

    return start_query


def consistent(node: Node, consistency: Consistency) -> Node:
    """The plan that gives early answers, or only final ones."""
    if consistency not in CONSISTENCIES:
        raise PlanError("unknown consistency", given=consistency, allowed=", ".join(CONSISTENCIES))
    return Final(node) if consistency == "final" else node
