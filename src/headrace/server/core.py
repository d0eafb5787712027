"""The server: a data directory, the catalog in memory and on disk, logs, and running queries."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from headrace.errors import HeadraceError, ServerError
from headrace.host.live_tables import table_reads
from headrace.io.locks import hold
from headrace.metrics.queries import QueryFigures
from headrace.plan.nodes import Node
from headrace.schema import Schema
from headrace.server.access import Access, Limits, Slots
from headrace.server.catalog import StoredCatalog, StoredObject, key_of
from headrace.server.checking import checked
from headrace.server.computing import Workers
from headrace.server.connection import ServerConnection
from headrace.server.insert_queue import InsertQueue, stream_inserts, table_inserts
from headrace.server.interface import Who
from headrace.server.log import EventLog
from headrace.server.modules import ServerModules
from headrace.server.published import DiskLog, PublishedStream
from headrace.server.queries import ServedQuery
from headrace.server.query_log import QueryLog
from headrace.server.retention import LogRetention
from headrace.server.runs import QueryRuns
from headrace.server.shared_pieces import SharedPieces
from headrace.server.texts import DroppedStep, TextChanges
from headrace.server.tracing import trace_query
from headrace.server.watching import watch_queries, watch_query
from headrace.sql.bind.catalog import Catalog, LiveEntry
from headrace.sql.shipped import LIBRARY
from headrace.tracing.traced import TracedRun

__all__ = ["HeadraceServer", "ServedObject"]

_log = logging.getLogger("headrace.server")
#: Threads that carry out inserts for ways in that do not wait; each object has one at a time.
_INSERTING = 8


@dataclass
class ServedObject:
    """What the server holds for an object of its catalog: its log, its query, its answers."""

    stored: StoredObject
    log: EventLog | None = None
    query: ServedQuery | None = None
    published: PublishedStream | None = None
    #: Whether the answer is a relation of tables.
    relation: bool = False
    #: Held by a statement that finds rows of a table and then changes them.
    changing: threading.Lock = field(default_factory=threading.Lock)
    #: The installed packages that its statement uses.
    packages: frozenset[int] = frozenset()
    #: The inserts of clients, if it takes any.
    inserts: InsertQueue | None = None
    #: What its subscriptions share.
    shared: SharedPieces | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What `ALTER … SET` has set."""
        found: dict[str, Any] = json.loads(self.stored.settings) if self.query is None else self.query.settings
        return found

    def change_settings(self, settings: dict[str, Any]) -> None:
        """Take other settings; the catalog has them, too."""
        self.stored = replace(self.stored, settings=json.dumps(settings))
        if self.query is not None:
            self.query.settings = settings


class HeadraceServer:
    """A server over a data directory."""

    def __init__(
        self, data: str | Path, *, host: Literal["local", "spark"] = "local", master: str | None = None,
        roots: list[str] | None = None, durable: bool = True, tokens_required: bool = False,
        limits: Limits | None = None,
    ) -> None:  # fmt: skip
        self.data = Path(data).absolute()
        _check_roots(self.data, roots or [])
        self.durable, self.limits = durable, limits or Limits()
        self.subscriptions = Slots("subscriptions", self.limits.subscriptions)
        self._tokens_required = tokens_required
        self.options: dict[str, Any] = {"host": host} | ({"master": master} if master is not None else {})
        #: Held by a thread that changes the catalog.
        self.lock = threading.RLock()
        self.modules = ServerModules(self.data / "modules", self.lock)
        self.catalog = Catalog(
            shipped=LIBRARY, base=self.data, roots=tuple(Path(root) for root in roots or []), any_adapter=True,
            modules=self.modules,
        )  # fmt: skip
        #: By `key_of`.
        self.objects: dict[str, ServedObject] = {}
        #: What could not be created again at the start, and why; the next start tries it again.
        self.unrecovered: dict[str, tuple[StoredObject, HeadraceError]] = {}
        #: The object whose statement is executed again, at a start.
        self.recovering: StoredObject | None = None
        self.running = False

    # --- start and stop ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the data directory, execute the catalog's statements, and let its queries go on."""
        self.data.mkdir(parents=True, exist_ok=True)
        held = hold(self.data / "lock")
        if held is None:
            raise ServerError(
                "another server uses this data directory", given=str(self.data),
                instead="stop it first, or another --data",
            )  # fmt: skip
        self._held = held
        self._workers = ThreadPoolExecutor(_INSERTING, "headrace-insert")
        self.stored = StoredCatalog(self.data / "catalog.db")
        self.runs = QueryRuns(self.data / "checkpoints", self.stored, self.options)
        self.access = Access(self.data, tokens_required=self._tokens_required)
        self.catalog.secret = self.access.secrets.value
        self.computing = Workers(self.data / "computing", self.limits)
        self.query_log = QueryLog(self.access.database, self.runs.members_of)
        self.query_log.attach()
        try:
            self.modules.open(self.stored.packages)
            self._recover()
        except BaseException:
            self.stop()
            raise
        self.running = True
        self.runs.begin()
        self.retention = LogRetention(lambda: list(self.objects.values()))
        self.retention.start()

    def _recover(self) -> None:
        left = []
        for stored in self.stored.objects():
            if stored.state in ("creating", "dropped"):
                self.remove_folders(stored)
                self.stored.remove(stored.id)
            else:
                left.append(stored)
        connection = ServerConnection(self, Who("server", "admin"))
        while left:
            failed: list[tuple[StoredObject, HeadraceError]] = []
            for stored in left:
                self.recovering = stored
                try:
                    connection.recover(stored)
                except HeadraceError as error:  # it may read what a later statement creates
                    failed.append((stored, error))
                finally:
                    self.recovering = None
            if len(failed) == len(left):
                for lost, why in failed:
                    self.query_log.note(lost.name, f"{lost.kind} cannot be created again: {why}", logging.ERROR)
                    self.unrecovered[key_of(lost.kind, lost.name)] = lost, why
                break
            left = [stored for stored, _ in failed]
        wanted = [
            served.query for served in list(self.objects.values())
            if served.query is not None and served.stored.state != "stopped"
        ]  # fmt: skip
        self.runs.start_together(wanted)
        for query in wanted:
            if query.failure is None:
                self.query_log.note(query.name, "the server was started: it goes on")
            else:
                self.query_log.note(query.name, f"it does not start: {query.failure}", logging.ERROR)

    def stop(self) -> None:
        """Finish running batches, keep checkpoints, and release the data directory."""
        if self.running:
            self.retention.stop()
        self.running = False
        self.computing.close()
        self.runs.end()
        self._workers.shutdown()  # what was begun is carried out
        with self.lock:
            for served in self.objects.values():
                if served.log is not None:
                    served.log.close()
            self.objects.clear()
            self.modules.close()
            self.query_log.detach()
            self.access.close()
            self.stored.close()
            self._held.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- objects -----------------------------------------------------------------------------------------------------

    def add(self, kind: str, name: str, text: str, owner: str) -> StoredObject:
        """Store an object, or find the one that is being recovered."""
        if self.recovering is not None:
            return self.recovering
        return self.stored.add(kind, name, text, owner)

    def serve(self, served: ServedObject, text: TextChanges) -> None:
        """Make an object known, after all of it was created; a view may be in the place of another."""
        stored, key = served.stored, key_of(served.stored.kind, served.stored.name)
        before = self.objects.get(key)
        if stored.state == "creating":
            if before is not None:
                text.created.pop(before.stored.id, None)
                text.replaced.add(before.stored.id)
            if served.packages:
                self.stored.use(stored.id, served.packages)
            text.created[stored.id] = "there"
            served.stored = replace(stored, state="there")
        served.inserts = self._insert_queue(served)
        served.shared = None if served.log is None else SharedPieces(served.log)
        self.objects[key] = served

    def _insert_queue(self, served: ServedObject) -> InsertQueue | None:
        if served.log is None or served.published is not None:
            return None
        entry = self.catalog.tables.get(served.stored.name)
        if served.stored.kind == "stream":
            return InsertQueue(stream_inserts(served.stored.name, served.log), self._workers)
        if not isinstance(entry, LiveEntry) or not isinstance(entry.table.live.row_log, DiskLog):
            return None
        return InsertQueue(table_inserts(entry.table, entry.table.live.row_log), self._workers)

    def open_log(self, stored: StoredObject, columns: Schema) -> EventLog:
        """The log of an object."""
        return EventLog(self.data / "logs" / stored.folder, columns, durable=self.durable)

    def abandon(self, stored: StoredObject) -> None:
        """Remove what was begun for an object."""
        if stored.state == "creating":
            self.remove_folders(stored)
            self.stored.remove(stored.id)

    def drop(self, kind: str, name: str, text: TextChanges) -> None:
        """Forget an object; its log and its checkpoint are removed when the text ends."""
        served = self.objects.pop(key_of(kind, name), None)
        if served is None and (found := self.unrecovered.pop(key_of(kind, name), None)) is not None:
            served = ServedObject(found[0])
        if served is None:
            return
        ran = served.query is not None and served.query.running is not None
        if served.query is not None:
            served.query.stop()
        if served.log is not None:
            served.log.close()
        if text.created.pop(served.stored.id, None) is None:
            text.dropped.append(served)
            text.steps.append(DroppedStep(served, ran))
        else:
            self._remove(served)

    def _remove(self, served: ServedObject) -> None:
        if served.query is not None and key_of(served.stored.kind, served.stored.name) not in self.objects:
            self.query_log.forget(served.query.name)
        self.remove_folders(served.stored)
        self.stored.remove(served.stored.id)

    def end_text(self, text: TextChanges) -> None:
        """Make the changes of a text durable, all at once, and remove the files of what it has dropped."""
        states = dict(text.created)
        states |= {served.stored.id: "dropped" for served in text.dropped}
        if states or text.replaced:
            self.stored.end_text(states, text.replaced)
        for served in text.dropped:
            self._remove(served)
        text.clear()

    def restore(self, connection: ServerConnection, step: DroppedStep) -> None:
        """Create again what a text has dropped or replaced, because it failed."""
        stored, key = step.served.stored, key_of(step.served.stored.kind, step.served.stored.name)
        text, instead = connection.session.text, self.objects.get(key)
        text.dropped = [one for one in text.dropped if one is not step.served]
        text.replaced.discard(stored.id)
        self.recovering = stored
        try:
            connection.recover(stored)
        except HeadraceError as error:
            _log.warning("what a text dropped cannot be created again: %s", error)
            self.unrecovered[key] = stored, error
        finally:
            self.recovering = None
        if instead is not None and text.created.pop(instead.stored.id, None) is not None:
            self._remove(instead)
        if step.ran and (there := self.objects.get(key)) is not None and there.query is not None:
            there.query.start_if_possible()

    def remove_folders(self, stored: StoredObject) -> None:
        """Remove the log of an object, and forget its state."""
        self.runs.forget(stored.id)
        shutil.rmtree(self.data / "logs" / stored.folder, ignore_errors=True)

    def catch_up(self, node: Node) -> None:
        """Let the queries whose answers a plan reads take in what is there now; those that do not run stay behind."""
        for read in table_reads(node):
            served = self.objects.get(key_of("stream", read.table.name))
            query = served.query if served is not None and served.published is read.table else None
            if query is not None and query.state == "running":
                self.catch_up(query.node)
                with suppress(HeadraceError):  # it has failed meanwhile
                    query.process_all_available()

    # --- clients -----------------------------------------------------------------------------------------------------

    def connect(self, who: Who, origin: str = "") -> ServerConnection:
        """A connection of a client; `origin` is its address, for the audit log."""
        if not self.running:
            raise ServerError("the server does not run")
        return ServerConnection(self, who, origin)

    def authenticate(self, token: str | None, *, loopback: bool) -> Who:
        """Who a client is."""
        return self.access.authenticate(token, loopback=loopback)

    def inside_roots(self, place: str) -> bool:
        """Whether a path or URL is under the roots."""
        return self.catalog.may_use_place(place)

    def health(self) -> Mapping[str, Any]:
        """What `/health` shows."""
        objects = list(self.objects.values())
        queries = {one.name: one for served in objects if (one := served.query) is not None}
        alive = self.running and not any(served.log.failed for served in objects if served.log is not None)
        return {
            "alive": alive,
            "ok": alive and not self.unrecovered and all(q.state != "failed" for q in queries.values()),
            "queries": {name: query.state for name, query in queries.items()}
            | {stored.name: "failed" for stored, _ in self.unrecovered.values()},
        }

    def trace(self, name: str, *, batch_rows: int | None = None, batches: tuple[int, int] | None = None) -> TracedRun:
        return trace_query(self, name, batches, batch_rows=batch_rows, state=True)

    def watch(self, query: str | None = None, part: str = "now", since: float = 0.0) -> Mapping[str, Any]:
        """What the dashboard shows of all queries, or of one."""
        return watch_queries(self) if query is None else watch_query(self, query, part, since)

    def check(self, who: Who, text: str, caret: int | None = None) -> Mapping[str, Any]:
        return checked(self, who, text, caret)

    def figures(self) -> Mapping[str, Any]:
        """What `/metrics` shows of the server itself."""
        logs = {served.stored.name: served.log for served in list(self.objects.values()) if served.log is not None}
        return {
            "subscribers": self.subscriptions.in_use(),
            "log_bytes": {name: log.size for name, log in logs.items()},
        }

    def query_figures(self) -> Sequence[QueryFigures]:
        """What `/metrics` shows of every query that runs."""
        served = [one.query for one in list(self.objects.values()) if one.query is not None]
        return [figures for query in served if (figures := query.figures()) is not None]


def _check_roots(data: Path, roots: Sequence[str]) -> None:
    """Refuse roots with the data directory in them: statements could read the key of the secrets."""
    for root in roots:
        if data.resolve().is_relative_to(Path(root).resolve()):
            raise ServerError(
                "statements may not use the data directory of the server", given=f"--root {root}",
                allowed=f"directories that do not contain {data}", instead="a directory beside it, for files alone",
            )  # fmt: skip
