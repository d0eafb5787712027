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
from headrace.host.driving.adoption import DIVERTED
from headrace.host.driving.query import Query
from headrace.host.live_tables import followed, table_reads
from headrace.io.live_table import ChangingTable, LiveTableRead
from headrace.io.origins import AdapterRead
from headrace.io.sinks import Sink
from headrace.optimizer import SHARED_RULES, optimize
from headrace.plan.nodes import Node, Output, Recurse, diverted_streams, sources_of, walk
from headrace.plan.policies import Heartbeat
from headrace.server.catalog import StoredObject
from headrace.server.published import ClientRows, DiskLog, LogSink

if TYPE_CHECKING:
    from headrace.server.log import EventLog
    from headrace.server.runs import QueryRuns

__all__ = ["QUERY_SETTINGS", "START_SETTINGS", "QueryState", "ServedQuery"]

#: The settings that are options of a start, and all that `ALTER QUERY … SET` changes.
START_SETTINGS = ("trigger", "rows_per_batch", "files_per_batch", "timeout", "max_trips")
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
        for name in ("trigger", "timeout"):
            if name in self.settings:
                return f"it has a {name} of its own"
        cut = [log for log in self._logs() if log.kept]
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

    def _logs(self) -> list[EventLog]:
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
            "cti": shown_time(cti, dates=any(source.dates for source in own)),
            "sources": {name: times for name, times in report["sources"].items() if name in prints},
            "operators": self.own(report["operators"]),
            "loops": self.own(report["loops"]),
            **{part: {n: v for n, v in report[part].items() if n not in foreign} for part in parts if part in report},
        }

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

    def note_reached(self, ended: Query) -> None:
        """Note up to where it has read, when the query of the host has ended."""
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
