"""Queries that run together: what several of them have in common is read and computed once.

A *run* is one running query of the host, with one checkpoint and an output for each of its members. Every query that a
server starts begins in a run of its own, at once, and reads the history of its streams as far as it is kept. When it
has caught up with a run that reads one of its streams, too, the two become one run (`_join`):

1. All of them are held: they plan no new rows. When the batches that run have ended, they read up to the same offsets.
2. They are stopped, and a new run starts, whose checkpoint adopts what theirs have (`host/driving/adoption.py`).

Each member's plan is made apart from the others, by rules that leave sources as they are: so an operator is the same
whichever queries run beside it, it is computed once for all members that have it, and its state is adopted as it is.

A query that is stopped, altered or dropped leaves in the same way, between two batches: the others go on as a new run,
and it keeps its place in the old checkpoint, which exists as long as a query has its place there.

**A query that fails takes no other down.** When a run of several fails, it is divided into two halves, which go on from
its last commit. The half that fails again is divided again, until the query that fails is alone; the others join again.

**Who shares.** Queries with the same settings, whose answers go to logs of the server, and whose sources are logs of
the server that have their whole history: then all of them have read the same rows (`why_alone`).

The catalog records the place of each query: the directory of a checkpoint, and the number of its output there.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, ServerError
from headrace.host.driving.adoption import Adoption, check_aligned
from headrace.host.driving.query import Query
from headrace.host.driving.ranges import RangePositions
from headrace.host.driving.start import Host, StartRequest, start_on
from headrace.host.live_tables import followed
from headrace.host.local.live import LocalHost
from headrace.server.catalog import QueryPlace, StoredCatalog

if TYPE_CHECKING:
    from headrace.server.queries import ServedQuery

__all__ = ["QueryRun", "QueryRuns"]

_log = logging.getLogger("headrace.server")
#: How often runs are looked at that may join, or have failed, in seconds.
_LOOK_SECONDS = 0.1
#: How long queries are waited for that are started one after the other, in seconds: they join together.
_WAIT_SECONDS = 0.3
#: A query has caught up when it has so many rows or fewer to read.
_NEAR_ROWS = 20_000
#: When runs that could not become one are tried again, in seconds.
_AGAIN_SECONDS = 30.0
_SOON_SECONDS = 1.0


@dataclass(eq=False)
class QueryRun:
    """Queries that run together, in the order of their outputs."""

    members: list[ServedQuery]
    folder: str
    query: Query
    #: When it may be tried again to join another run, in seconds of the monotonic clock.
    tried_again: float = 0.0

    @property
    def failure(self) -> BaseException | None:
        return self.query.exception()

    @property
    def sources(self) -> set[str]:
        """The sources, by fingerprint."""
        return {source.fingerprint for source in self.query.line.sources}

    @property
    def positions(self) -> dict[str, RangePositions]:
        return {s: p for s, p in self.query.driver.positions.items() if isinstance(p, RangePositions)}

    @property
    def waiting(self) -> int:
        """How many rows it has still to read, at the latest look."""
        found = self.positions.values()
        return sum(end - p.next.get(name, 0) for p in found for name, end in dict(p.ends).items())

    @property
    def is_going(self) -> bool:
        """Whether it has run a batch since its start, or found nothing to read: else it may be about to fail."""
        looked = all(positions.ends for positions in self.positions.values())
        return looked and (self.waiting == 0 or bool(self.query.batch_seconds))

    def hold(self, offsets: Mapping[str, Mapping[str, int]] | None) -> None:
        """Read up to these offsets for now, and nothing else; None: read everything."""
        for source, positions in self.positions.items():
            positions.hold = None if offsets is None else offsets.get(source, {})


@dataclass(eq=False)
class QueryRuns:
    """The runs of a server."""

    folder: Path
    stored: StoredCatalog
    #: Where they run: options of a start.
    options: Mapping[str, Any]
    runs: list[QueryRun] = field(default_factory=list)

    def __post_init__(self) -> None:
        #: Held while runs change.
        self.lock = threading.RLock()
        self._ended = threading.Event()
        #: When a query was started last, in seconds of the monotonic clock.
        self._started = 0.0
        self._thread = threading.Thread(target=self._loop, name="headrace-sharing", daemon=True)

    # --- one query ---------------------------------------------------------------------------------------------------

    def run_of(self, query: ServedQuery) -> QueryRun | None:
        """The run that a query is a member of."""
        with self.lock:
            return next((run for run in self.runs if query in run.members), None)

    def sharing(self, query: ServedQuery) -> list[ServedQuery]:
        """The queries that run with a query, and itself, in the order of their outputs; alone if it does not run."""
        run = self.run_of(query)
        return [query] if run is None else list(run.members)

    def members_of(self, name: str) -> list[str]:
        """The queries that run under a name of the host: one, or several that run together."""
        found = [run.members for run in list(self.runs) if run.query.name == name]
        return [member.name for member in found[0]] if found else [name]

    def checkpoint(self, query: ServedQuery) -> Path:
        """The checkpoint that has the state of a query."""
        place = self.stored.places().get(query.stored.id)
        return self.folder / (query.stored.folder if place is None else place.folder)

    def start(self, query: ServedQuery) -> None:
        """Let a query run, from its place."""
        with self.lock:
            self._start([query])
            self._started = time.monotonic()

    def start_together(self, queries: Sequence[ServedQuery]) -> None:
        """Let queries run as they did when the server ended; why one does not start is kept, for people to see."""
        with self.lock:
            places = self.stored.places()
            groups: dict[str, list[ServedQuery]] = {}
            for query in queries:
                place = places.get(query.stored.id)
                groups.setdefault(f"new {query.stored.id}" if place is None else place.folder, []).append(query)
            for members in groups.values():
                members.sort(key=lambda query: places[query.stored.id].output if query.stored.id in places else 0)
                self._start_or_divide(members)

    def _start_or_divide(self, members: list[ServedQuery]) -> None:
        """Start a run; if that fails, start its halves."""
        try:
            self._start(members)
        except Exception as error:  # noqa: BLE001 - of any kind: the other queries go on
            if len(members) == 1:
                _note_failure(members[0], error)
                return
            middle = len(members) // 2
            for half in (members[:middle], members[middle:]):
                self._start_or_divide(half)

    def stop(self, query: ServedQuery) -> None:
        """Stop a query after its batch; those that ran with it go on."""
        with self.lock:
            run = self.run_of(query)
            if run is None:
                return
            self._stop(run)
            others = [member for member in run.members if member is not query]
            if others:
                self._start_or_divide(others)

    def forget(self, number: int) -> None:
        """Remove what is kept for a query that does not run, by the number of its object."""
        with self.lock:
            self.stored.forget_place(number)
            self._remove_unused()

    # --- runs --------------------------------------------------------------------------------------------------------

    def _start(self, members: list[ServedQuery]) -> None:
        """Start a run of queries: from their checkpoint if it is that of these queries, else from a new one."""
        places, count = self.stored.places(), len(members)
        own = [places.get(member.stored.id) for member in members]
        first = own[0]
        if first is not None and own == [QueryPlace(first.folder, i, count) for i in range(count)]:
            self._begin(members, first.folder)
            return
        folder = f"{members[0].stored.folder}-{uuid.uuid4().hex[:8]}"
        origins = list(dict.fromkeys(place.folder for place in own if place is not None))
        adoption = Adoption(
            [self.folder / origin for origin in origins],
            [None if place is None else (origins.index(place.folder), place.output) for place in own],
            lambda: self.stored.set_places({m.stored.id: QueryPlace(folder, i, count) for i, m in enumerate(members)}),
        )
        try:
            self._begin(members, folder, adoption)
        except BaseException:
            if self.stored.places().get(members[0].stored.id) != QueryPlace(folder, 0, count):
                shutil.rmtree(self.folder / folder, ignore_errors=True)
            raise
        self._remove_unused()

    def _begin(self, members: list[ServedQuery], folder: str, adoption: Adoption | None = None) -> None:
        name = members[0].name if len(members) == 1 else f"{members[0].name} and {len(members) - 1} more"
        request = StartRequest(
            str(self.folder / folder),
            name=name,
            apart=members[0].shares,
            adoption=adoption,
            **members[0].start_settings,
        )
        pairs = [(followed(member.node), member.sink) for member in members]
        run = QueryRun(members, folder, start_on(self._host(), pairs, request))
        for member in members:
            member.failure = None
        self.runs.append(run)

    def _host(self) -> Host:
        options = {name: value for name, value in self.options.items() if name != "host"}
        if self.options["host"] == "local":
            return LocalHost()
        # Spark is loaded only when it is needed.
        from headrace.host.spark.launch import SparkHost

        return SparkHost(**options)

    def _stop(self, run: QueryRun) -> None:
        try:
            run.query.stop()
        except Exception:  # noqa: BLE001 - of any kind: its queries go on from the last commit, if they can
            _log.exception("queries that run together could not be stopped properly")
        for member in run.members:
            member.note_ended(run.query)
        self.runs.remove(run)

    def _remove_unused(self) -> None:
        """Remove checkpoints in which no query has its place."""
        used = {place.folder for place in self.stored.places().values()} | {run.folder for run in self.runs}
        for folder in self.folder.iterdir() if self.folder.is_dir() else ():
            if folder.name not in used:
                shutil.rmtree(folder, ignore_errors=True)

    # --- looking after them ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to look after runs."""
        with self.lock:
            self._remove_unused()
        self._thread.start()

    def end(self) -> None:
        """Stop all runs; they go on when the server starts again."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        with self.lock:
            for run in list(self.runs):
                self._stop(run)

    def _loop(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            if time.monotonic() - self._started >= _WAIT_SECONDS:
                try:
                    self.look()
                except Exception:  # noqa: BLE001 - it is tried again
                    _log.exception("queries could not be brought together")

    def look(self) -> None:
        """Divide runs that have failed, and bring runs together that may share work."""
        with self.lock:
            for run in list(self.runs):
                if run.failure is not None and len(run.members) > 1:
                    self._divide(run)
            found = self._joining()
            if found:
                self._join(found)

    def _divide(self, run: QueryRun) -> None:
        """Let the halves of a run that has failed go on from its last commit."""
        _log.warning("queries that run together have failed, and go on in two halves: %s", run.failure)
        self._stop(run)
        middle = len(run.members) // 2
        for half in (run.members[:middle], run.members[middle:]):
            self._start_or_divide(half)

    def _joining(self) -> list[QueryRun]:
        """Runs that may become one now; none or several."""
        now = time.monotonic()
        ready = [
            run for run in self.runs
            if run.tried_again <= now and run.failure is None and run.members[0].shares and run.query.is_active
            and run.is_going
            and all(member.why_alone() == "" for member in run.members)
        ]  # fmt: skip
        for first in sorted(ready, key=lambda run: -len(run.members)):
            found = [first]
            sources = first.sources
            for other in ready:
                alike = other.members[0].start_settings == first.members[0].start_settings
                if other is not first and alike and other.sources & sources and self._near(first, other):
                    found.append(other)
                    sources |= other.sources
            if len(found) > 1:
                return found
        return []

    def _near(self, first: QueryRun, other: QueryRun) -> bool:
        begun = [run.query.driver.last is not None for run in (first, other)]
        return begun[0] == begun[1] and max(first.waiting, other.waiting) <= _NEAR_ROWS

    def _join(self, runs: list[QueryRun]) -> None:
        """Make one run of several."""
        with self._aligned(runs) as why:
            if why:
                _log.info("queries run apart: %s", why)
                # The others are tried soon without the first, which may be the one that does not fit.
                for run in runs:
                    run.tried_again = time.monotonic() + (_AGAIN_SECONDS if run is runs[0] else _SOON_SECONDS)
                return
            for run in runs:
                self._stop(run)
        members = [member for run in runs for member in run.members]
        try:
            self._start(members)
        except Exception as error:  # noqa: BLE001 - of any kind: they were stopped, and must go on
            _log.warning("queries could not be brought together, and run apart: %s", error)
            for run in runs:
                self._start_or_divide(run.members)
                for again in self.runs[-1:]:
                    again.tried_again = time.monotonic() + _AGAIN_SECONDS

    @contextmanager
    def _aligned(self, runs: list[QueryRun]) -> Iterator[str]:
        """Hold runs at the same offsets of their common sources; a text says why that is impossible."""
        for run in runs:
            run.hold({})
        try:
            yield self._align(runs)
        finally:
            for run in runs:
                run.hold(None)

    def _align(self, runs: list[QueryRun]) -> str:
        try:
            for run in runs:
                run.query.process_all_available()
            goal: dict[str, dict[str, int]] = {}
            for run in runs:
                for source, positions in run.positions.items():
                    offsets = goal.setdefault(source, {})
                    for name, offset in dict(positions.next).items():
                        offsets[name] = max(offset, offsets.get(name, 0))
            for run in runs:
                run.hold(goal)
            for run in runs:
                run.query.process_all_available()
            commits = [run.query.driver.last for run in runs]
            if None in commits:
                return "" if commits == [None] * len(commits) else "one of them has read nothing yet"
            check_aligned([commit for commit in commits if commit is not None])
        except HeadraceError as error:
            return str(error)
        return ""


def _note_failure(query: ServedQuery, error: Exception) -> None:
    if isinstance(error, HeadraceError):
        query.failure = error
    else:
        query.failure = ServerError(f"query {query.name} does not start: {error}")
    _log.error("query %s does not start: %s", query.name, error)
