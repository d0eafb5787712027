"""A query's checkpoint: a directory, or a prefix on an object store, that belongs to one query.

headrace.json   the description: the version, the plan's fingerprint and text, its sources and outputs, its first number
                of buckets, and what its operators declare about their state
lock            held by the process that runs the query
store/          batches and state: see `headrace.store`
spark/          for sources that only Spark can read: Spark's own log of what it has read
events/         events in memory, and Spark's batch data frames, as files
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
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from headrace.border import LIFETIME
from headrace.errors import CheckpointError
from headrace.io.adapter import SinkAdapter
from headrace.io.files import local_path
from headrace.io.formats import Format
from headrace.io.locks import hold
from headrace.io.origins import Events, Files
from headrace.io.sinks import FileSink, Sink
from headrace.stages.cut import Line
from headrace.stages.declared import declared
from headrace.store.log import Log
from headrace.store.objects import ObjectStorage
from headrace.store.storage import LocalStorage, Storage

__all__ = ["FORMAT", "Checkpoint", "checked_place", "create_about", "difference", "read_about"]

_log = logging.getLogger("headrace")
#: Changes when earlier code can no longer read what is stored.
FORMAT = 3
_ABOUT = "headrace.json"
_URL, _LIKE_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://"), re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]+:/")

#: The checkpoints that queries of this process hold.
_HELD: dict[Path, Checkpoint] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_HELD.clear)


class Checkpoint:
    """The place of a checkpoint, with the checks before a query may use it."""

    def __init__(self, path: str | None) -> None:
        self.temporary = path is None
        local = tempfile.mkdtemp(prefix="headrace-") if path is None else local_path(checked_place(path))
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
        if self.temporary or self.path is None:
            return
        place = self.path.resolve()
        other = _HELD.get(place)
        if other is not None and not other.in_use():
            other.unlock()
        with self._errors():
            self._lock = hold(self.path / "lock")
        if self._lock is None:
            raise CheckpointError(
                f"another query uses this checkpoint, in {'this' if place in _HELD else 'another'} process",
                given=self.place,
                allowed="one running query for each checkpoint",
                instead="stop() the other query first, or another checkpoint directory",
            )
        _HELD[place] = self

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

    def claim(self, line: Line, buckets: int, sinks: Sequence[Sink] = ()) -> None:
        """Make it the checkpoint of this query, or check that it is."""
        plan = [f"{line.levels[n.fingerprint]} {n.describe()}" for n in line.nodes]
        own: dict[str, Any] = {"format": FORMAT, "fingerprint": line.fingerprint, "plan": plan, "buckets": buckets}
        # The plan does not contain the columns that the query does not use, and the formats of outputs.
        own["sources"] = [f"{source.origin} ({source.columns})" for source in line.sources]
        own["sinks"] = [_form(sink) for sink in sinks]
        own |= {"dates": [sink.dates for sink in sinks], "source_dates": [source.dates for source in line.sources]}
        self.root.remove_drafts()
        stored = read_about(self.root)
        if stored is None:
            own |= {"owner": uuid.uuid4().hex, "operators": declared(line)}
            create_about(self.root, own)
            stored = read_about(self.root) or {}  # its own, or that of another query that began at the same time
        self._check(stored, own)
        self.owner = str(stored["owner"])
        self._dates = stored.get("dates", [False] * len(sinks))
        if "operators" not in stored and self.path is not None:  # by an earlier Headrace, which had only directories
            with self._errors():
                _write_about(self.path, stored | {"operators": declared(line)})

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

    def _check(self, stored: dict[str, Any], own: dict[str, Any]) -> None:
        instead = "another checkpoint directory, or delete this one to start afresh"
        if stored.get("format") != FORMAT:
            raise CheckpointError(
                "the checkpoint was written by another version of Headrace",
                given=f"{self.place}: format {stored.get('format')}", allowed=f"format {FORMAT}", instead=instead,
            )  # fmt: skip
        if stored["fingerprint"] != own["fingerprint"]:
            raise CheckpointError(
                f"the checkpoint belongs to another query:\n{difference(stored['plan'], own['plan'])}",
                given=self.place,
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
        folder = f"events/{str(events).replace(' ', '-').replace('#', '')}"
        complete = f"{folder}/_whole"
        if complete not in self.root.keys(folder):
            tables = {f"{folder}/{number:06d}.arrow": table for number, table in enumerate(events.batches())}
            same = [self._keep(key, _ipc_file(table)) for key, table in tables.items()]
            if not all(same) or not set(self.root.keys(folder)) <= {*tables, complete}:
                raise CheckpointError(
                    f"the checkpoint began with other events than {events}",
                    given=self.place,
                    instead="another checkpoint, or delete this one to start afresh",
                )
            self.root.create(complete, b"")
        return Files(f"{self.place}/{folder}", Format("arrow"), label=str(events), holds_stamps=True, order="name")

    def _keep(self, key: str, data: pa.Buffer) -> bool:
        """Write a file, unless it exists; return whether it has this content."""
        return self.root.create(key, data) or bool(self.root.read(key).equals(data))

    def close(self) -> None:
        """Release the lock; remove a temporary checkpoint."""
        self.unlock()
        if self.temporary and self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)


def _ipc_file(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _form(sink: Sink) -> str:
    """The format of an output, which the plan does not contain."""
    names = "" if sink.time_columns == LIFETIME else f", times in {' and '.join(sink.time_columns)}"
    if isinstance(sink, SinkAdapter):
        return f"{sink}{names}"
    return f"{sink.format} files{names}" if isinstance(sink, FileSink) else type(sink).__name__.lower()


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


def _write_about(folder: Path, about: dict[str, Any]) -> None:
    """Write headrace.json to a directory, whole and on disk, in place of what was there."""
    file = folder / _ABOUT
    draft = file.with_suffix(".tmp")
    with draft.open("wb") as opened:
        opened.write(_as_json(about))
        opened.flush()
        os.fsync(opened.fileno())
    draft.replace(file)


def _as_json(about: dict[str, Any]) -> bytes:
    return json.dumps(about, indent=1).encode()
