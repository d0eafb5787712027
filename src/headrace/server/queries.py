"""The queries of a server: their plans, settings and states. `runs.py` lets them run."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headrace.border import shown_time
from headrace.errors import HeadraceError, ServerError
from headrace.host.driving.changed import DIVERTED
from headrace.host.driving.figures import QueryPart, figures_of
from headrace.host.driving.past import PastBatch, PastBatches, together
from headrace.host.driving.query import Query
from headrace.host.live_tables import followed, table_reads
from headrace.io.live_table import ChangingTable, LiveTableRead
from headrace.io.origins import AdapterRead
from headrace.io.sinks import Sink
from headrace.metrics.queries import QueryFigures
from headrace.optimizer import SHARED_RULES, optimize
from headrace.plan.nodes import Node, Output, Recurse, diverted_streams, sources_of, walk
from headrace.plan.policies import Heartbeat
from headrace.server.catalog import StoredObject
from headrace.server.published import ClientRows, DiskLog, LogSink
from headrace.stages.cut import Line, cut, line_of

if TYPE_CHECKING:
    from headrace.server.log import EventLog
    from headrace.server.runs import QueryRuns

__all__ = ["QUERY_SETTINGS", "START_SETTINGS", "QueryState", "ServedQuery"]

#: The settings that are options of a start, and all that `ALTER QUERY … SET` changes.
START_SETTINGS = ("trigger", "rows_per_batch", "files_per_batch", "timeout", "max_trips", "record")
QUERY_SETTINGS = (*START_SETTINGS, "retention", "isolated")
QueryState = Literal["running", "stopped", "failed", "ended"]
_log = logging.getLogger("headrace.server")


@dataclass(eq=False)
class ServedQuery:
    """A query of the catalog: its plan and sink, and its part of a run, if it runs."""

    stored: StoredObject
    node: Node
    sink: Sink
    runs: QueryRuns
    settings: dict[str, Any] = field(default_factory=dict)
    failure: HeadraceError | None = None
    #: Whether it was created to share no work.
    isolated: bool = False

    def __post_init__(self) -> None:
        self.settings = json.loads(self.stored.settings)
        #: Up to where it had read streams of the server when it was stopped.
        self._reached: dict[str, int] = {}
        #: Its batches before the present run.
        self._past = PastBatches()
        #: Whether its plan is made to be shared; fixed from the beginning, because its checkpoint depends on it.
        self.shares = self._why_never() == ""

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def running(self) -> Query | None:
        """The running query of the host, which may compute others, too."""
        run = self.runs.run_of(self)
        return None if run is None else run.query

    @property
    def checkpoint(self) -> Path:
        """Where its state is."""
        return self.runs.checkpoint(self)

    @property
    def state(self) -> QueryState:
        """Whether it runs, was stopped, or has failed."""
        run = self.runs.run_of(self)
        if self.error is not None:
            return "failed"
        if run is None:
            return "stopped"
        # A run of several that fails is divided, and goes on.
        return "running" if run.failure is not None or run.query.is_active else "ended"

    @property
    def error(self) -> BaseException | None:
        """Why it has failed."""
        if self.failure is not None:
            return self.failure
        run = self.runs.run_of(self)
        return run.failure if run is not None and len(run.members) == 1 else None

    # --- sharing -----------------------------------------------------------------------------------------------------

    @property
    def start_settings(self) -> dict[str, Any]:
        """The settings that queries have in common that run together."""
        return {name: value for name, value in self.settings.items() if name in START_SETTINGS}

    def why_alone(self) -> str:
        """Why it may not run together with others now; empty if it may."""
        if self.settings.get("isolated"):
            return "it is isolated"
        for name in ("trigger", "timeout", "record"):
            if name in self.settings:
                return f"it has a {name} of its own"
        cut = [log for log in self.logs if log.kept]
        return self._why_never() or ("a stream that it reads has lost its beginning" if cut else "")

    def _why_never(self) -> str:
        if self.isolated:
            return "it was created WITH (ISOLATED)"
        if not isinstance(self.sink, LogSink):
            return "its answers leave the server"
        if any(isinstance(node, Recurse) for node in walk(self.node)):
            return "it has a loop, which may go round for long"
        for source in sources_of(followed(self.node)):
            adapter = source.origin.adapter if isinstance(source.origin, AdapterRead) else None
            if not isinstance(adapter, (ClientRows, LiveTableRead)):
                return f"it reads {source.origin}, which is not a stream of the server"
            if isinstance(source.policy, Heartbeat) or source.policy.idle is not None:
                return f"the progress of {source.origin} follows the clock"
        return ""

    @property
    def logs(self) -> list[EventLog]:
        """The logs that it reads."""
        found = []
        for source in sources_of(self.node):
            adapter = source.origin.adapter if isinstance(source.origin, AdapterRead) else None
            if isinstance(adapter, ClientRows) and adapter.log is not None:
                found.append(adapter.log)
            if isinstance(adapter, LiveTableRead) and isinstance(adapter.table, ChangingTable):
                log = adapter.table.row_log
                found += [log.log] if isinstance(log, DiskLog) else []
        return found

    # --- its part of a run -------------------------------------------------------------------------------------------

    @cached_property
    def planned(self) -> tuple[Output, ...]:
        """Its output and those of its diverted rows, as they are planned where queries share work."""
        output = Output(followed(self.node), self.name)
        sides = [Output(side, self.name) for side in diverted_streams(output, whole=False)]
        return optimize((output, *sides), SHARED_RULES)

    @property
    def report(self) -> Mapping[str, Any]:
        """The report of the latest batch, about its own sources and operators."""
        run = self.runs.run_of(self)
        if run is None or len(run.members) == 1:
            return {} if run is None else run.query.report
        report, last = run.query.report, run.query.driver.last
        if not report or last is None:
            return report
        own = sources_of(*self.planned)
        names, prints = {str(source.origin) for source in own}, {source.fingerprint for source in own}
        foreign = {str(source.origin) for source in run.query.line.sources} - names
        cti = min(reached[0] for source, reached in last.record["sources"].items() if source in prints)
        parts = ("counts", "examples", "intake", "lateness")
        return report | {
            "cti": shown_time(cti, dates=self.dates),
            "sources": {name: times for name, times in report["sources"].items() if name in prints},
            "operators": self.own(report["operators"]),
            "loops": self.own(report["loops"]),
            **{part: {n: v for n, v in report[part].items() if n not in foreign} for part in parts if part in report},
        }

    def past(self, *, seconds: bool = False, since: float = 0.0) -> list[PastBatch]:
        """Its part of the latest batches, or of the latest seconds, since a time and since the server was started."""
        with self.runs.lock:  # else a run that ends meanwhile would count twice
            running = self.running
            known = [self._past] if running is None else [self._past, running.past]
            found = [one for past in known for one in (past.seconds if seconds else past.batches) if one.ended >= since]
        if not self.shares:
            return [one.own(one.rows, {*one.ctis, *one.flows.rows, *one.state}, [self._output]) for one in found]
        return [one.own(self.origins, self._prints, [self._output]) for one in found]

    def figures(self) -> QueryFigures | None:
        """Its part of the figures of its run, for metrics; None if it does not run."""
        with self.runs.lock:  # else a run that ends meanwhile would count twice
            running = self.running
            if running is None:
                return None
            total = together(self._past.total, running.past.total)
        operators = self._prints if self.shares else frozenset(node.fingerprint for node in running.line.nodes)
        return figures_of(running, QueryPart(self.name, self.state, operators, {self._output: self.name}, total))

    def total(self, fate: str) -> int | None:
        """The rows of its sources with a fate, so far; None if it does not run."""
        running = self.running
        if running is None:
            return None
        return sum(c.get(fate, 0) for name, c in running.counts.items() if not self.shares or name in self.origins)

    @cached_property
    def origins(self) -> frozenset[str]:
        """What it reads, as reports name it."""
        return frozenset(str(source.origin) for source in sources_of(*self.planned))

    @cached_property
    def _prints(self) -> frozenset[str]:
        """The fingerprints of its operators."""
        return frozenset(node.fingerprint for node in walk(*self.planned))

    @property
    def line(self) -> Line:
        """Its plan in stages: as it runs, or as it would run alone."""
        running = self.running
        if self.shares:
            return cut(self.planned, 1 if running is None else running.driver.job.buckets)
        return line_of((Output(followed(self.node), self.name),)) if running is None else running.line

    def ctis(self) -> dict[str, int]:
        """The latest CTIs of its sources, and of its output, by fingerprint; of one that runs."""
        running = self.running
        last = None if running is None else running.driver.last
        if running is None or last is None:
            return {}
        found = {source: cti for source, (cti, _) in last.record["sources"].items()}
        by_name = {
            output.name: about["cti"]
            for output, about in zip(running.line.outputs, last.record["outputs"], strict=True)
        }
        found = {source: cti for source, cti in found.items() if not self.shares or source in self._prints}
        output = self.planned[0] if self.shares else running.line.outputs[0]
        return found | {output.fingerprint: by_name[self._output]}

    @cached_property
    def dates(self) -> bool:
        """Whether its times are dates."""
        return any(source.dates for source in sources_of(followed(self.node)))

    @property
    def _output(self) -> str:
        """The name of its output in a run."""
        return str(self.sink) if self.shares else f"0 {type(self.sink).__name__.lower()}"

    def own(self, operators: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Those among the reports of operators that are about its own."""
        texts = {node.describe() for node in walk(*self.planned)} if self.shares else None
        return [one for one in operators if texts is None or one["operator"] in texts]

    @property
    def diverted(self) -> list[Path]:
        """The directories of its diverted rows."""
        folder = self.checkpoint / DIVERTED
        if not self.shares:
            return sorted(folder.iterdir()) if folder.is_dir() else []
        return [folder / side.input.fingerprint for side in self.planned[1:]]

    # --- progress ----------------------------------------------------------------------------------------------------

    def reached(self, stream: str) -> int:
        """The offset up to which it has read a stream of the server; 0 if that is not known."""
        running = self.running
        return self._reached.get(stream, 0) if running is None else _reached(running, stream)

    def note_ended(self, ended: Query) -> None:
        """Note up to where it has read, and its batches, when the query of the host has ended."""
        self._past.extend(ended.past)
        self._reached = {read.table.name: _reached(ended, read.table.name) for read in table_reads(self.node)}

    def process_all_available(self) -> None:
        """Wait until it has processed all input that exists now, also if it joins a run or leaves one meanwhile."""
        while (running := self.running) is not None:
            running.process_all_available()
            if running is self.running:
                return

    # --- start and stop ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, or go on from its checkpoint; an error is raised, and kept."""
        if self.state == "running":
            return
        self.stop()
        try:
            self.runs.start(self)
        except HeadraceError as error:
            self.failure = error
            raise

    def start_if_possible(self) -> None:
        """Start it; what fails is kept, for people to see."""
        try:
            self.start()
        except HeadraceError as error:
            _log.debug("query %s does not start: %s", self.name, error)  # its log says it
        except Exception as error:  # noqa: BLE001 - of any kind: the other queries go on
            _log.exception("query %s does not start", self.name)
            self.failure = ServerError(f"query {self.name} does not start: {error}")

    def stop(self) -> None:
        """Stop it after its batch; the checkpoint stays."""
        self.runs.stop(self)
        self.failure = None


def _reached(running: Query, stream: str) -> int:
    sources = {
        source.fingerprint for source in running.line.sources
        if isinstance(source.origin, AdapterRead) and isinstance(source.origin.adapter, LiveTableRead)
        and source.origin.adapter.table.name == stream
    }  # fmt: skip
    return min((offset for (source, _), offset in running.driver.delivered.items() if source in sources), default=0)
