"""A query's checkpoint: a directory, or a prefix on an object store, that belongs to one query.

headrace.json   the description: the format, the Headrace that created it, the plan's fingerprint and text, its sources
                and outputs, its first number of buckets, and what its operators declare about their state
lock            held by the process that runs the query
store/          batches and state: see `headrace.store`
spark/          for sources that only Spark can read: Spark's own log of what it has read
events/         events in memory, and Spark's batch data frames, as files
upgrade/        during an upgrade by backfill: the checkpoint of the new query
spool/          lines that hosts have sent, and rows that only Spark can read
diverted/       rows that were not used, with the reason

On an object store there is no lock: a query that is started anew takes over, and the running one stops with
`Superseded` before its next commit. There is no spool and no log of Spark either: lines of hosts, and sources that only
Spark can read, need a directory (`spool=`, `spark_checkpoint=`).
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from headrace.errors import CheckpointError
from headrace.host.driving.changed import DESCRIBED, columns_of, services_of, sink_form
from headrace.host.driving.changed import description as described
from headrace.host.driving.versions import FORMAT, module_versions, readable
from headrace.io.adapter import SinkAdapter
from headrace.io.files import local_path
from headrace.io.formats import Format
from headrace.io.locks import hold
from headrace.io.origins import Events, Files
from headrace.io.sinks import FileSink, Sink
from headrace.io.temporary import TemporaryFolder
from headrace.stages.cut import Line
from headrace.stages.declared import declared
from headrace.store.log import Log, has_ended, process_mark
from headrace.store.objects import ObjectStorage
from headrace.store.storage import LocalStorage, Storage
from headrace.version import VERSION

__all__ = [
    "SCRATCH", "Checkpoint", "checked_place", "create_about", "difference", "read_about", "replace_about",
    "spilled_into",
]  # fmt: skip

_log = logging.getLogger("headrace")
_ABOUT = "headrace.json"
#: The folder of a checkpoint with the checkpoint of the new query, during a backfill.
SCRATCH = "upgrade"
#: The file by which a new version of a query asks the running one to end.
_TAKEOVER = "takeover"
#: How long it waits for that, and between two looks, in seconds.
_TAKEOVER_SECONDS, _LOOK_SECONDS = 300.0, 0.02
_URL, _LIKE_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://"), re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]+:/")

#: The checkpoints that queries of this process hold.
_HELD: dict[Path, Checkpoint] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_HELD.clear)


class Checkpoint:
    """The place of a checkpoint, with the checks before a query may use it."""

    def __init__(self, path: str | None) -> None:
        self.temporary = path is None
        self._temporary = TemporaryFolder() if path is None else None
        local = local_path(checked_place(path)) if self._temporary is None else self._temporary.name
        #: None on an object store.
        self.path = None if local is None else Path(local).absolute()
        #: Its path or URL.
        self.place = str(path).rstrip("/") if self.path is None else str(self.path)
        #: The files of the checkpoint, and among them those of the store.
        self.root, self.storage = self._storage(""), self._storage("/store")
        #: Marks the outputs of this query; known after `claim`.
        self.owner = ""
        #: Whether the query that holds the lock still runs.
        self.in_use: Callable[[], bool] = lambda: True
        self._lock: IO[bytes] | None = None

    def _storage(self, below: str) -> Storage:
        if self.path is None:
            storage = ObjectStorage(f"{self.place}{below}", keep=True)
            if not below:
                storage.check()
            return storage
        with self._errors():
            self.path.mkdir(parents=True, exist_ok=True)
        return LocalStorage(f"{self.path}{below}", durable=not self.temporary)

    def folder(self, name: str, what: str, instead: str = "") -> Path:
        """A directory of the checkpoint; an error on an object store, which says that `what` needs a directory."""
        if self.path is None:
            raise CheckpointError(
                f"{what} need a checkpoint in a directory",
                given=self.place,
                allowed="on an object store: files, generated streams, events in memory, batch data frames",
                instead=instead or "a directory that the driver and every worker can reach",
            )
        return self.path / name

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn failures to write into a `CheckpointError` that names the checkpoint."""
        try:
            yield
        except CheckpointError:
            raise
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint cannot be written: {error.strerror}",
                given=self.place,
                instead="a directory that this user may write, with space left",
            ) from error

    def lock(self) -> None:
        """Lock it: two queries with one checkpoint would each continue from what the other writes.

        A failed query of this process that was not stopped loses its lock.
        """
        if not self.try_lock():
            assert self.path is not None
            process = "this" if self.path.resolve() in _HELD else "another"
            raise CheckpointError(
                f"another query uses this checkpoint, in {process} process",
                given=self.place,
                allowed="one running query for each checkpoint",
                instead="stop() the other query first, or another checkpoint directory",
            )

    def try_lock(self) -> bool:
        """Lock it, and return True, unless another query holds it; on an object store there is no lock."""
        if self.temporary or self.path is None:
            return True
        place = self.path.resolve()
        other = _HELD.get(place)
        if other is not None and not other.in_use():
            other.unlock()
        with self._errors():
            self._lock = hold(self.path / "lock")
        if self._lock is None:
            return False
        _HELD[place] = self
        with self._errors():
            (self.path / _TAKEOVER).unlink(missing_ok=True)  # a process that still waits asks again
        return True

    def take_over(self) -> None:
        """Lock it; the query that holds it is asked to end between two batches (`is_wanted`)."""
        deadline = time.monotonic() + _TAKEOVER_SECONDS
        while not self.try_lock():
            if time.monotonic() > deadline:
                self.root.remove(_TAKEOVER)
                raise CheckpointError(
                    f"the running query did not end within {_TAKEOVER_SECONDS:g} seconds, and continues",
                    given=self.place, instead="stop() it, and start the new version with upgrade='backfill'",
                )  # fmt: skip
            self.root.create(_TAKEOVER, process_mark())
            time.sleep(_LOOK_SECONDS)

    def is_wanted(self) -> bool:
        """Whether a new version of the query waits for this checkpoint."""
        if self.temporary or self.path is None:
            return False
        try:
            return not has_ended((self.path / _TAKEOVER).read_bytes())
        except FileNotFoundError:
            return False

    def unlock(self) -> None:
        """Release the lock."""
        if self._lock is not None and self.path is not None:
            self._lock.close()
            self._lock = None
            _HELD.pop(self.path.resolve(), None)

    def buckets(self, requested: int | None, default: int) -> int:
        """The number of buckets: that of an existing checkpoint; another requested number is refused."""
        about = read_about(self.root)
        count = int((about or {}).get("buckets", requested or default))
        last = Log(self.storage).last() if about is not None else None
        if last is not None:  # the first number may have been changed since
            count = int(last.record.get("buckets", count))
        if requested is not None and requested != count:
            raise CheckpointError(
                "the state in the checkpoint is divided into another number of buckets",
                given=f"buckets={requested}",
                allowed=f"buckets={count}, or none given",
                instead=f"buckets={count}, or first headrace checkpoint rescale {self.place} --buckets {requested}",
            )
        return count

    def description(
        self, line: Line, buckets: int, sinks: Sequence[Sink], left_out: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The content of headrace.json for a query, without the owner."""
        plan = [f"{line.levels[n.fingerprint]} {n.describe()}" for n in line.nodes]
        own: dict[str, Any] = {"format": FORMAT, "fingerprint": line.fingerprint, "plan": plan, "buckets": buckets}
        # The plan does not contain the columns that the query does not use, and the formats of outputs.
        own["sources"] = columns_of(line)
        own["sinks"] = [sink_form(sink) for sink in sinks]
        own |= {"dates": [sink.dates for sink in sinks], "source_dates": [source.dates for source in line.sources]}
        own |= {"operators": declared(line), **described(line, sinks, self.place)}
        own |= {"modules": module_versions(line), "headrace": VERSION, "services": services_of(sinks)}
        return own | ({"left_out": list(left_out)} if left_out else {})

    def settle(self) -> dict[str, Any] | None:
        """Finish an upgrade that a crash has interrupted after its commit; return the content of headrace.json."""
        stored = read_about(self.root)
        stored = None if stored is None else readable(self.place, stored)
        last = Log(self.storage).last()
        upgraded = last.record.get("about") if last is not None else None
        parts = ("fingerprint", "outputs", "sources")
        if upgraded is not None and (stored is None or any(stored.get(part) != upgraded[part] for part in parts)):
            with self._errors():
                self.remove_scratch()
                replace_about(self.root, upgraded)
            return dict(upgraded)
        return stored

    def remove_scratch(self) -> None:
        """Remove the checkpoints of backfills."""
        if self.path is not None:
            shutil.rmtree(self.path / SCRATCH, ignore_errors=True)
            return
        for key in self.root.sizes(SCRATCH):
            self.root.remove(key)

    def claim(
        self, line: Line, buckets: int, sinks: Sequence[Sink] = (), left_out: Sequence[str] = (), offers: str = ""
    ) -> None:
        """Make it the checkpoint of this query, or check that it is; `offers` says which upgrades are possible."""
        own = self.description(line, buckets, sinks, left_out)
        self.root.remove_drafts()
        stored = read_about(self.root)
        if stored is None:
            self._check_new()
            create_about(self.root, own | {"owner": uuid.uuid4().hex})
            stored = read_about(self.root) or {}  # its own, or that of another query that began at the same time
        stored = readable(self.place, stored)
        self._check(stored, own, offers)
        self.owner = str(stored["owner"])
        self._dates = stored.get("dates", [False] * len(sinks))
        added = {name: own[name] for name in ("operators", "services", *DESCRIBED) if name not in stored}
        if added and self.path is not None:  # by an earlier Headrace
            with self._errors():
                replace_about(self.root, stored | added)

    def _check_new(self) -> None:
        """Refuse a store that has commits and no description: a new one would have another owner than its outputs."""
        last = Log(self.storage).last()
        if last is not None:
            raise CheckpointError(
                f"the checkpoint's {_ABOUT} is missing, and it has batches up to {last.batch}",
                given=f"{self.root.place}/{_ABOUT}",
                instead="restore the file, or another checkpoint directory and new sinks",
            )

    def continued(self, sinks: Sequence[Sink]) -> list[Sink]:
        """The sinks of the claimed checkpoint: a place keeps the form of times with which it began.

        A checkpoint without that form is older, and dates were written as ticks. No place ever gets both.
        """
        found = []
        for sink, dates in zip(sinks, self._dates, strict=True):
            keeps = isinstance(sink, (FileSink, SinkAdapter)) and sink.dates != dates
            if keeps:
                form = ("numbers of ticks", "timestamps")
                _log.warning(
                    "%s began with times as %s and continues so; a new checkpoint and a new place get %s",
                    getattr(sink, "path", "") or sink, form[dates], form[sink.dates],
                )  # fmt: skip
            found.append(sink.showing(dates=dates) if keeps else sink)
        return found

    def _check(self, stored: dict[str, Any], own: dict[str, Any], offers: str) -> None:
        instead = "another checkpoint directory, or delete this one to start afresh"
        if stored["fingerprint"] != own["fingerprint"]:
            raise CheckpointError(
                f"the checkpoint belongs to another query:\n{difference(*_plans(stored, own))}",
                given=self.place,
                allowed=offers,
                instead=instead,
            )
        for part, what in (("sources", "sources have other columns"), ("sinks", "outputs are written in another form")):
            if stored[part] != own[part]:
                changed = difference(stored[part], own[part])
                raise CheckpointError(
                    f"in the checkpoint the query's {what}:\n{changed}", given=self.place, instead=instead
                )

    def spill(self, events: Events) -> Files:
        """Write events in memory to files, one per batch, in order."""
        return _spilled(events, self.root, self.place)

    def close(self) -> None:
        """Release the lock; remove a temporary checkpoint."""
        self.unlock()
        if self._temporary is not None:
            self._temporary.cleanup()


def spilled_into(folder: str, events: Events) -> Files:
    """Write events in memory to files of a temporary folder, one per batch, in order."""
    return _spilled(events, LocalStorage(folder, durable=False), folder)


def _spilled(events: Events, root: Storage, place: str) -> Files:
    """Write events in memory to files of a storage that is at this place, one per batch, in order."""
    folder = f"events/{str(events).replace(' ', '-').replace('#', '')}"
    complete = f"{folder}/_whole"
    if complete not in root.keys(folder):
        tables = {f"{folder}/{number:06d}.arrow": table for number, table in enumerate(events.batches())}
        same = [_keep(root, key, _ipc_file(table)) for key, table in tables.items()]
        if not all(same) or not set(root.keys(folder)) <= {*tables, complete}:
            raise CheckpointError(
                f"the checkpoint began with other events than {events}",
                given=place,
                instead="another checkpoint, or delete this one to start afresh",
            )
        root.create(complete, b"")
    return Files(f"{place}/{folder}", Format("arrow"), label=str(events), holds_stamps=True, order="name")


def _keep(root: Storage, key: str, data: pa.Buffer) -> bool:
    """Write a file, unless it exists; return whether it has this content."""
    return root.create(key, data) or bool(root.read(key).equals(data))


def _ipc_file(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _plans(stored: dict[str, Any], own: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The plans of two descriptions, with the versions of their modules if both have them: from 0.2.0 on.

    Operators do not show all columns of their sources: so the sources are there, too, if nothing else differs.
    """
    parts = ("plan", "modules") if "modules" in stored else ("plan",)
    if all(stored[part] == own[part] for part in parts):
        parts = ("sources",)
    before, now = ([line for part in parts for line in about[part]] for about in (stored, own))
    return before, now


def difference(stored: Sequence[str], own: Sequence[str]) -> str:
    """The lines that only one of two plans has: those of the checkpoint with -, those of this query with +."""
    changed = [line for line in difflib.ndiff(stored, own) if line[0] in "-+"]
    if not changed:
        other = "something else differs, such as the code of a function or the rules of a time zone"
        return f"    their operators have the same texts; {other}"
    return "\n".join(["    - in the checkpoint", "    + this query", *(f"    {line}" for line in changed)])


def read_about(root: Storage) -> dict[str, Any] | None:
    """The content of headrace.json; None if it does not exist."""
    try:
        about = json.loads(root.read(_ABOUT).to_pybytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CheckpointError(
            f"the checkpoint's headrace.json cannot be read: {error}", given=f"{root.place}/{_ABOUT}"
        ) from error
    return about if isinstance(about, dict) else {}


def checked_place(place: object) -> str:
    """A directory or URL as text; `CheckpointError` if it is neither, or looks like a misspelled URL."""
    text = str(place)
    if not isinstance(place, str | os.PathLike) or local_path(text) == "" or not text.partition("://")[0]:
        raise CheckpointError(
            "a checkpoint must be a path that the driver and every worker can reach, or a URL", given=repr(place)
        )
    if _URL.match(text) and not text.partition("://")[2].strip("/"):
        raise CheckpointError("this URL names no bucket", given=repr(place), instead="scheme://bucket/prefix")
    if _LIKE_URL.match(text) and not text.startswith("file:") and not _URL.match(text):
        raise CheckpointError(
            "this looks like a misspelled URL",
            given=repr(place),
            instead="scheme://bucket/prefix, or './' in front of a directory of that name",
        )
    return text


def create_about(root: Storage, about: dict[str, Any]) -> None:
    """Write headrace.json, if it does not exist."""
    root.create(_ABOUT, _as_json(about))


def replace_about(root: Storage, about: dict[str, Any]) -> None:
    """Write headrace.json in place of what was there: in a directory in one step, whole and on disk.

    On an object store it is missing for a moment. An upgrade has its content in a commit then, and `settle` finds it.
    """
    if not isinstance(root, LocalStorage):
        root.remove(_ABOUT)
        root.create(_ABOUT, _as_json(about))
        return
    file = root.path / _ABOUT
    draft = file.with_suffix(".tmp")
    with draft.open("wb") as opened:
        opened.write(_as_json(about))
        opened.flush()
        os.fsync(opened.fileno())
    draft.replace(file)


def _as_json(about: dict[str, Any]) -> bytes:
    return json.dumps(about, indent=1).encode()
