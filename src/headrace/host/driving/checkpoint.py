"""A query's checkpoint: a directory that belongs to one query.

headrace.json   whose it is: the version, the plan's fingerprint and text, its sources and outputs, how many buckets it
                began with, and what its operators say of their state
lock            held by the process that runs the query
store/          batches and state: see `headrace.store`
spark/          for sources that only Spark can read: its own log of what it has read
events/         events that were held in memory, and batch data frames of Spark's, written down
spool/          lines that hosts have sent, and rows that only Spark can read
diverted/       rows that were not used, with the reason
"""

from __future__ import annotations

import difflib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from headrace.errors import CheckpointError
from headrace.io.files import local_path
from headrace.io.formats import Format
from headrace.io.locks import hold
from headrace.io.origins import Events, Files
from headrace.io.sinks import FileSink, Sink
from headrace.stages.cut import Line
from headrace.stages.declared import declared
from headrace.store.log import Log
from headrace.store.storage import LocalStorage

__all__ = ["FORMAT", "Checkpoint", "difference", "read_about", "write_about"]

#: Changes when what is stored can no longer be read by the code before it.
FORMAT = 3

#: The checkpoints that queries of this process hold.
_HELD: dict[Path, Checkpoint] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_HELD.clear)


class Checkpoint:
    """The directory, and what is checked about it before a query may use it."""

    def __init__(self, path: str | None) -> None:
        self.temporary = path is None
        local = tempfile.mkdtemp(prefix="headrace-") if path is None else local_path(str(path))
        if not local:
            raise CheckpointError("a checkpoint must be a path that the driver and every worker can reach", given=path)
        self.path = Path(local).absolute()
        with self._errors():
            self.path.mkdir(parents=True, exist_ok=True)
        self.storage = LocalStorage(self.path / "store", durable=not self.temporary)
        #: Marks the outputs of this query; known once it is claimed.
        self.owner = ""
        #: Whether the query that holds the lock still runs.
        self.in_use: Callable[[], bool] = lambda: True
        self._lock: IO[bytes] | None = None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What goes wrong while it is written is a CheckpointError that names it."""
        try:
            yield
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint cannot be written: {error.strerror}",
                given=str(self.path),
                instead="a directory that this user may write, with space left",
            ) from error

    def lock(self) -> None:
        """Hold it: two queries with one checkpoint would each go on from what the other writes.

        A query of this process that has failed, and that nobody has stopped, lets it go.
        """
        if self.temporary:
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
                given=str(self.path),
                allowed="one running query for each checkpoint",
                instead="stop() the other query first, or another checkpoint directory",
            )
        _HELD[place] = self

    def unlock(self) -> None:
        """Let others have it."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
            _HELD.pop(self.path.resolve(), None)

    def buckets(self, asked: int | None, usual: int) -> int:
        """The number of buckets: what it has, if it is a query's already; another number is refused."""
        begun = (self.path / "headrace.json").exists()
        count = int(read_about(self.path).get("buckets", asked or usual)) if begun else asked or usual
        last = Log(self.storage).last() if begun else None
        if last is not None:  # those that it began with may have been changed since
            count = int(last.record.get("buckets", count))
        if asked is not None and asked != count:
            raise CheckpointError(
                "the state in the checkpoint is divided into another number of buckets",
                given=f"buckets={asked}",
                allowed=f"buckets={count}, or none given",
                instead=f"buckets={count}, or first headrace checkpoint rescale {self.path} --buckets {asked}",
            )
        return count

    def claim(self, line: Line, buckets: int, sinks: Sequence[Sink] = ()) -> None:
        """Make it this query's, or check that it is."""
        plan = [f"{line.levels[n.fingerprint]} {n.describe()}" for n in line.nodes]
        mine: dict[str, Any] = {"format": FORMAT, "fingerprint": line.fingerprint, "plan": plan, "buckets": buckets}
        # What the plan does not say: columns that the query does not use, and how outputs are written.
        mine["sources"] = [f"{source.origin} ({source.columns})" for source in line.sources]
        mine["sinks"] = [_form(sink) for sink in sinks]
        theirs = read_about(self.path) if (self.path / "headrace.json").exists() else None
        if theirs is not None:
            self._check(theirs, mine)
        self.owner = uuid.uuid4().hex if theirs is None else str(theirs["owner"])
        if theirs is None or "operators" not in theirs:
            with self._errors():
                write_about(self.path, mine | (theirs or {}) | {"owner": self.owner, "operators": declared(line)})

    def _check(self, theirs: dict[str, Any], mine: dict[str, Any]) -> None:
        instead = "another checkpoint directory, or delete this one to start afresh"
        if theirs.get("format") != FORMAT:
            raise CheckpointError(
                "the checkpoint was written by another version of Headrace",
                given=f"{self.path}: format {theirs.get('format')}", allowed=f"format {FORMAT}", instead=instead,
            )  # fmt: skip
        if theirs["fingerprint"] != mine["fingerprint"]:
            raise CheckpointError(
                f"the checkpoint belongs to another query:\n{difference(theirs['plan'], mine['plan'])}",
                given=str(self.path),
                instead=instead,
            )
        for part, what in (("sources", "sources have other columns"), ("sinks", "outputs are written in another form")):
            if theirs[part] != mine[part]:
                changed = difference(theirs[part], mine[part])
                raise CheckpointError(
                    f"in the checkpoint the query's {what}:\n{changed}", given=str(self.path), instead=instead
                )

    def spill(self, events: Events) -> Files:
        """Events in memory as files, one a batch, in order."""
        folder = self.path / "events" / str(events).replace(" ", "-").replace("#", "")
        if not folder.exists():
            with self._errors():
                _write_events(folder, events)
        return Files(str(folder), Format("arrow"), label=str(events), holds_stamps=True)

    def close(self) -> None:
        """Let others have it; remove it if it was only for this run."""
        self.unlock()
        if self.temporary:
            shutil.rmtree(self.path, ignore_errors=True)


def write_about(folder: Path, about: dict[str, Any]) -> None:
    """Write headrace.json, whole and on disk."""
    file = folder / "headrace.json"
    draft = file.with_suffix(".tmp")
    with draft.open("w") as opened:
        opened.write(json.dumps(about, indent=1))
        opened.flush()
        os.fsync(opened.fileno())
    draft.replace(file)


def _write_events(folder: Path, events: Events) -> None:
    draft = folder.with_suffix(".tmp")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    for number, table in enumerate(events.batches()):
        path = draft / f"{number:06d}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        os.utime(path, (number + 1, number + 1))  # files are read in the order of their times
    draft.rename(folder)


def _form(sink: Sink) -> str:
    """How an output is written, as far as the plan does not say."""
    return f"{sink.format} files" if isinstance(sink, FileSink) else type(sink).__name__.lower()


def difference(theirs: Sequence[str], mine: Sequence[str]) -> str:
    """The lines of two plans that are not in both: those of the checkpoint with -, those of this query with +."""
    changed = [line for line in difflib.ndiff(theirs, mine) if line[0] in "-+"]
    if not changed:
        return "    their operators read the same; what differs does not show, such as the code of a function"
    return "\n".join(["    - in the checkpoint", "    + this query", *(f"    {line}" for line in changed)])


def read_about(folder: Path) -> dict[str, Any]:
    """What headrace.json says."""
    file = folder / "headrace.json"
    try:
        found = json.loads(file.read_text())
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"the checkpoint's headrace.json cannot be read: {error}", given=str(file)) from error
