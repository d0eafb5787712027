"""The queries of a server: each runs from a checkpoint of its own, and one that fails takes no other down."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headrace.api.running import start_all
from headrace.errors import HeadraceError, ServerError
from headrace.host.driving.query import Query
from headrace.host.live_tables import table_reads
from headrace.io.live_table import LiveTableRead
from headrace.io.origins import AdapterRead
from headrace.io.sinks import Sink
from headrace.plan.nodes import Node
from headrace.server.catalog import StoredObject

__all__ = ["QUERY_SETTINGS", "QueryState", "ServedQuery"]

#: What `ALTER QUERY … SET` changes, as options of a start.
QUERY_SETTINGS = ("trigger", "rows_per_batch", "files_per_batch", "timeout", "max_trips", "retention")
QueryState = Literal["running", "stopped", "failed", "ended"]
_log = logging.getLogger("headrace.server")


@dataclass
class ServedQuery:
    """A query of the catalog: its plan and sink, its checkpoint, and the running query, if it runs."""

    stored: StoredObject
    node: Node
    sink: Sink
    checkpoint: Path
    #: Where it runs.
    options: Mapping[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    running: Query | None = None
    failure: HeadraceError | None = None

    def __post_init__(self) -> None:
        self.settings = json.loads(self.stored.settings)
        self._lock = threading.RLock()
        #: Up to where it had read streams of the server when it was stopped.
        self._reached: dict[str, int] = {}

    def reached(self, stream: str) -> int:
        """The offset up to which it has read a stream of the server; 0 if that is not known."""
        with self._lock:
            if self.running is None:
                return self._reached.get(stream, 0)
            sources = {
                source.fingerprint for source in self.running.line.sources
                if isinstance(source.origin, AdapterRead) and isinstance(source.origin.adapter, LiveTableRead)
                and source.origin.adapter.table.name == stream
            }  # fmt: skip
            return min(
                (offset for (source, _), offset in self.running.driver.delivered.items() if source in sources),
                default=0,
            )

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def state(self) -> QueryState:
        """Whether it runs, was stopped, or has failed."""
        if self.error is not None:
            return "failed"
        if self.running is None:
            return "stopped"
        return "running" if self.running.is_active else "ended"

    @property
    def error(self) -> BaseException | None:
        """Why it has failed."""
        if self.failure is not None:
            return self.failure
        return None if self.running is None else self.running.exception()

    def start(self) -> None:
        """Start it, or go on from its checkpoint; an error is raised, and kept."""
        with self._lock:
            if self.state == "running":
                return
            self.stop()
            try:
                self.running = start_all(
                    [(self.node, self.sink)], checkpoint=str(self.checkpoint), name=self.name,
                    **self.options, **{name: value for name, value in self.settings.items() if name != "retention"},
                )  # fmt: skip
            except HeadraceError as error:
                self.failure = error
                raise
            self.failure = None

    def start_if_possible(self) -> None:
        """Start it at a start of the server: what fails is kept, for people to see."""
        try:
            self.start()
        except HeadraceError as error:
            _log.debug("query %s does not start: %s", self.name, error)  # its log says it
        except Exception as error:  # noqa: BLE001 - of any kind: the other queries go on
            _log.exception("query %s does not start", self.name)
            self.failure = ServerError(f"query {self.name} does not start: {error}")

    def stop(self) -> None:
        """Stop it after its batch; the checkpoint stays."""
        with self._lock:
            if self.running is not None:
                reads = {read.table.name for read in table_reads(self.node)}
                self.running.stop()
                self._reached = {stream: self.reached(stream) for stream in reads}
            self.running, self.failure = None, None

    def drop(self) -> None:
        """Stop it and remove its checkpoint."""
        self.stop()
        shutil.rmtree(self.checkpoint, ignore_errors=True)
