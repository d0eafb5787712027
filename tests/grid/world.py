"""A cell of the grid: a query that has run some batches, is disturbed, continues, and must give the exact answer."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
from tests.fixtures.tcp_proxy import NetworkFault, TcpProxy
from tests.grid.features import Feature, Pairs
from tests.grid.hook import Death, Fault, Hook, die
from tests.grid.stored import StoredFile

import headrace as hr
from headrace.border import shown
from headrace.errors import HeadraceError, HostError
from headrace.events import history, to_changes
from headrace.host.driving.query import Query
from headrace.io.adapter import SinkAdapter
from headrace.io.commit import BatchDirectory
from headrace.io.sinks import FileSink, Memory, read_events_output, rows_of
from headrace_sqlite import SqliteSink

__all__ = ["Answers", "Cell", "HostName", "Workplace", "Wrong", "hook"]

#: What each sink has, as a multiset of rows; and the counts of the input's rows.
Answers = dict[str, Any]
HostName = Literal["local", "spark"]
#: The one hook of this process.
hook = Hook()


class Wrong(AssertionError):
    """A cell whose answer is not exact, or whose error is not the one that users need."""


def start(pairs: Pairs, state: str, **options: Any) -> Query:
    """Start a query, or continue it."""
    settings = {"host": "local", "files_per_batch": 1, **options}
    return hr.start_all(pairs, checkpoint=state, **settings)


@dataclass
class Workplace:
    """The folder of a feature: its input, a checkpoint that has begun, and the answers of an undisturbed run."""

    feature: Feature
    folder: Path
    expected: Answers = field(default_factory=dict)
    #: The steps of the undisturbed run from the begun checkpoint on.
    steps: list[str] = field(default_factory=list)
    #: How many calls of services it makes.
    calls: int = 0
    #: What sinks in memory had when the query had begun.
    kept: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    #: Where disturbed queries run; they begin on the local host.
    host: HostName = "local"

    def prepare(self) -> None:
        """Write the input, begin the query, and run it undisturbed to the end of its input."""
        self.folder.mkdir(parents=True, exist_ok=True)
        cell = Cell(self, random.Random(0))
        cell.begin_anew()
        if not self.feature.anew:
            self._save()
            self.kept = dict(cell.kept)
            cell.begin()
        hook.watch(self.folder, note=True)
        with TcpProxy.disturbed():
            cell.live()
            self.calls = TcpProxy.calls
        self.expected = cell.answers()
        self._check_with_batch()
        if self.host == "spark":  # which has other steps
            cell.begin()
            hook.watch(self.folder, note=True)
            cell.live(host="spark")
            cell.expected = self.expected
            cell.check("undisturbed on Spark")
        self.steps = list(hook.steps or ())
        hook.rest()

    def _save(self) -> None:
        for name in ("state", "out", "in"):
            if (self.folder / name).exists():
                shutil.copytree(self.folder / name, self.folder / "begun" / name, copy_function=shutil.copy2)

    def _check_with_batch(self) -> None:
        """The undisturbed run gives what a run over the whole input gives, and batch SQL."""
        for number, (stream, sink) in enumerate(self.feature.pairs(self.folder)):
            if sink.encoding == "events" and isinstance(sink, FileSink) and "batch" not in self.feature.lacks:
                found = self.expected[f"sink {number}"]
                whole = stream.run(finish=False)
                if found != _multiset(whole.cht().to_pylist()):
                    raise Wrong(f"{self.feature.name}: the live run and the run in batches differ")
                with suppress(hr.HeadraceError):  # some queries have no translation
                    batch = stream.history("duckdb").cht()
                    if different := hr.history_diff(stream.cht(), batch, names=("live", "batch SQL")):
                        raise Wrong(f"{self.feature.name}: {different}")


@dataclass
class Cell:
    """One run of a feature with a disruption."""

    place: Workplace
    draw: random.Random
    #: How often a fault was aimed at it that did not take place.
    attempt: int = 0
    #: The typed errors that were shown, as texts.
    errors: list[str] = field(default_factory=list)
    #: The faults that were aimed at it, and at its calls of services.
    faults: list[Fault] = field(default_factory=list)
    network: list[NetworkFault] = field(default_factory=list)
    counts: Mapping[str, Any] = field(default_factory=dict)
    #: The batches that sinks in memory got, in any life.
    kept: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    #: The right answers; another input has others.
    expected: Answers = field(init=False)
    host: HostName = "local"
    #: The checkpoint's folder, which may be moved.
    state: Path = field(init=False)

    def __post_init__(self) -> None:
        self.state, self.expected = self.folder / "state", self.place.expected

    @property
    def folder(self) -> Path:
        return self.place.folder

    @property
    def feature(self) -> Feature:
        return self.place.feature

    @property
    def checkpoint(self) -> str:
        """The place of the checkpoint: a directory, or a URL."""
        return str(self.state) if self.feature.checkpoint is None else self.feature.checkpoint(self.folder)

    @property
    def places(self) -> tuple[str, ...]:
        """What errors about a store name: the folder, or the place on an object store."""
        return (str(self.folder), *([self.feature.home(self.folder)] if self.feature.home is not None else []))

    def stored(self, key: str) -> StoredFile:
        """A file of the checkpoint."""
        return StoredFile(self.checkpoint, key)

    def _clear(self) -> None:
        for name in ("state", "out", "in", "moved", "more"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def begin_anew(self) -> None:
        """Write the input, and run the first batches of a new checkpoint."""
        self._clear()
        self.kept = {}
        self.feature.write(self.folder)
        if self.feature.later is not None:
            self.die(Fault("plan 1", die))
            self.feature.later(self.folder)
        if self.feature.begun:
            self.die(Fault(f"plan {self.feature.begun}", die))
        self.faults.clear()  # those of the cell count

    def begin(self) -> None:
        """Bring back the begun checkpoint, its sinks and the input."""
        if self.feature.anew:
            self.begin_anew()
            return
        self._clear()
        for saved in (self.folder / "begun").glob("*"):
            shutil.copytree(saved, self.folder / saved.name, copy_function=shutil.copy2)
        self.kept = dict(self.place.kept)

    # --- lives --------------------------------------------------------------------------------------------------------

    def start(self, pairs: Pairs | None = None, **options: Any) -> Query:
        new = not self.stored("headrace.json").exists()
        buckets = self.feature.buckets if new else None
        settings = {"buckets": buckets, "host": self.host, **self.feature.options, **options}
        return start(pairs or self.feature.pairs(self.folder), self.checkpoint, **settings)

    def live(self, **options: Any) -> None:
        """One life of the query: process everything that is there."""
        query = self.start(**options)
        try:
            query.process_all_available()
        finally:
            query.stop()
            self.keep(query)
        self.counts = query.counts

    def keep(self, query: Query) -> None:
        """Keep what a sink in memory has; a batch that it gets again is the same."""
        for sink in query.sinks:
            if isinstance(sink, Memory):
                for number, (changes, _) in zip(sink.numbers, sink.batches, strict=True):
                    self.kept[number] = rows_of(changes, sink, number).to_pylist()

    def die(self, *faults: Fault) -> bool:
        """A life that ends at a fault, which leaves everything on disk as it is; gives whether it took place."""
        self.faults += faults
        hook.watch(self.folder, *faults)
        try:
            with suppress(Death, HeadraceError):
                self.live()
        finally:
            hook.rest()
        return any(fault.happened for fault in faults)

    def disturbed(self, *faults: Fault, **about: Any) -> HeadraceError | None:
        """A life with faults, which end with it: gives the typed error that ended it, if one did."""
        self.faults += faults

        def live() -> None:
            hook.watch(self.folder, *faults)
            try:
                self.live()
            finally:
                hook.rest()

        return self.refused(live=live, **about)

    def refused(
        self, names: str | tuple[str, ...] = "", live: Callable[[], None] | None = None, *, task: bool = False
    ) -> HeadraceError | None:
        """A life that may be refused by a typed error, which must name something, or one of several: gives the error.

        The failure of a `task` has no type of its own: the error of the host says what it was.
        """
        try:
            (live or self.live)()
        except HeadraceError as error:
            self.check_error(error, names, task=task)
            return error
        self.check("before the cause is removed")
        return None

    def check_error(self, error: HeadraceError, names: str | tuple[str, ...], *, task: bool = False) -> None:
        """Note an error; raise `Wrong` if it is not the one that users need."""
        inner = error.__cause__
        if isinstance(error, HostError) and not isinstance(inner, HeadraceError) and not task:
            raise Wrong(f"not a typed error: {error!s:.300}") from error
        wanted = (names,) if isinstance(names, str) else names
        if not any(name in str(error) for name in wanted):
            raise Wrong(f"the error does not name {names!r}: {error!s:.300}") from error
        self.errors.append(f"{type(error).__name__}: {error}"[:300])

    # --- answers ------------------------------------------------------------------------------------------------------

    def answers(self) -> Answers:
        """What is in the sinks, and the counts of rows."""
        found: Answers = {"counts": _counted(self.counts)}
        for number, (stream, sink) in enumerate(self.feature.pairs(self.folder)):
            found[f"sink {number}"] = self._content(stream, sink)
        return found

    def _content(self, stream: hr.Stream, sink: Any) -> Counter[str]:
        if isinstance(sink, Memory):
            return _net([row for rows in self.kept.values() for row in rows])
        if self.feature.rows is not None:
            return _net(self.feature.rows(self.folder, stream, sink))
        return _content(stream, sink, self.folder)

    def check(self, when: str = "at the end") -> None:
        """Raise `Wrong` unless the answers are those of the undisturbed run."""
        try:
            found = self.answers()
        except HeadraceError as error:
            raise Wrong(f"{when}: the sink cannot be read: {error!s:.300}") from error
        for name, right in self.expected.items():
            if found[name] != right:
                raise Wrong(f"{when}, {name}: {_difference(right, found[name])}")


def _counted(counts: Mapping[str, Any]) -> dict[str, int]:
    """The sums over all sources: names of sources contain the folder of the checkpoint."""
    total: Counter[str] = Counter()
    for of_source in counts.values():
        total.update(of_source)
    return {name: n for name, n in total.items() if n}


def _content(stream: hr.Stream, sink: Any, folder: Path) -> Counter[str]:
    """The meaning of a sink's content: the history of physical events and changes, the rows of other encodings."""
    if isinstance(sink, FileSink):
        if not Path(sink.path).exists():
            return Counter()
        if sink.encoding == "events":
            found = history(to_changes(read_events_output(sink.path, stream.schema), stream.schema))
            return _multiset(shown(found, dates=stream.node.dates).to_pylist())
        return _net(_rows(Path(sink.path)))
    if isinstance(sink, SqliteSink):
        return _net(_stored(sink))
    if isinstance(sink, SinkAdapter):
        return _net(hr.delta_table(folder / "out" / "table").to_pylist())
    return _net([row for path in sorted((folder / "out" / "rows").glob("*")) for row in json.loads(path.read_text())])


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of all published files of a directory."""
    rows: list[dict[str, Any]] = []
    held = BatchDirectory(str(path)).folders()  # those that a merged batch stands for do not count
    for file in sorted(file for folder in held for file in folder.path.rglob("*")):
        hidden = any(part.startswith(("_", ".")) for part in file.relative_to(path).parts)
        if hidden or not file.is_file():
            continue
        inside = dict(part.split("=", 1) for part in file.relative_to(path).parts if "=" in part)
        read = pq.ParquetFile(file).read().to_pylist() if file.suffix == ".parquet" else _lines(file)
        rows += [row | inside for row in read]
    return rows


def _stored(sink: SqliteSink) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(sink.database)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {sink.table}")]


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _net(rows: list[dict[str, Any]]) -> Counter[str]:
    """Rows as a multiset; a change that deletes a row removes it. An upgrade or a rescaling has a number of its own."""
    found: Counter[str] = Counter()
    for row in rows:
        sign = -1 if row.get("_change_type") == "delete" and "le" in row else 1
        found[repr(sorted((n, v) for n, v in row.items() if n not in ("_change_type", "_batch")))] += sign
    return Counter({text: n for text, n in found.items() if n})


def _multiset(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


def _difference(right: Any, found: Any) -> str:
    if isinstance(right, Counter) and isinstance(found, Counter):
        missing, more = right - found, found - right
        return f"{missing.total()} rows are missing, {more.total()} are too many: {[*missing][:2]} {[*more][:2]}"
    return f"{found} instead of {right}"


def in_order(folder: Path) -> list[Path]:
    """The files below a folder, by name."""
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else []


def shift_times(paths: list[Path], seconds: int) -> None:
    """Change when files were modified."""
    for path in paths:
        when = path.stat().st_mtime + seconds
        os.utime(path, (when, when))
