"""A consistent copy of a checkpoint, also of a running query.

The copy contains the newest commit, which is pinned while it is read, the files that it names, and the query's input
that the checkpoint keeps. A query that is started with the copy continues after that batch.

It continues into **new sinks**. The directories of the original belong to the original: two queries that write the same
batches to one place would hide each other's, so the copy has a new owner's mark and is refused there. Its new
directories get the batches after the copied one; the original's batches up to it and those of the copy are together the
complete output. Rows that were diverted before stay with the original, too.

Input files that a running query removes after reading (`spool/`, `spark/`) cannot be pinned: a checkpoint with such
files is copied only while its query is stopped.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError
from headrace.host.driving.checkpoint import checked_place, create_about
from headrace.host.saved.folder import SavedCheckpoint
from headrace.io.files import local_path
from headrace.store.blocks import open_file
from headrace.store.log import COMMITS, EPOCHS, FLOORS, Commit, process_mark
from headrace.store.objects import ObjectStorage
from headrace.store.storage import LocalStorage, Storage

__all__ = ["copy"]

#: Folders of input in a checkpoint: written once, and removed after reading.
_KEPT_INPUT, _PASSING_INPUT = ("events",), ("spool", "spark")
_STORE = "store"
#: Marks the process that copies to an object store.
_COPYING = "copied-by"


def copy(folder: SavedCheckpoint, to: str | Path) -> str:
    """Copy the newest commit and everything it needs to a new place; return the place."""
    passing = [] if folder.path is None else [name for name in _PASSING_INPUT if (folder.path / name).exists()]
    local = local_path(checked_place(to))
    if local is None and passing:
        raise CheckpointError(
            "a checkpoint with input of hosts, or of sources that only Spark can read, must be in a directory",
            given=str(to),
            allowed="a directory that does not exist yet",
        )
    with folder.locked("copying input that is removed once it is read") if passing else nullcontext():
        if local is None:
            return _copy_to_objects(folder, str(to).rstrip("/"))
        return _copy_to_directory(folder, Path(local).absolute(), passing)


def _copy_to_directory(folder: SavedCheckpoint, to: Path, passing: Sequence[str]) -> str:
    """The copy appears as a whole, by a rename."""
    if to.exists():
        raise _taken(str(to))
    draft = to.with_name(f".{to.name}-{uuid.uuid4().hex}")
    try:
        for name in passing:
            shutil.copytree(f"{folder.place}/{name}", draft / name)  # with times, which define the order of reading
        _copy(folder, LocalStorage(draft))
        draft.rename(to)
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"the copy cannot be written: {error.strerror}",
            given=str(to),
            instead="a directory that this user may write, with space left",
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return str(to)


def _copy_to_objects(folder: SavedCheckpoint, to: str) -> str:
    """The copy exists from its commit on, which is written last; a start before that is an error, or begins anew."""
    target = ObjectStorage(to)
    target.check()
    if target.sizes() or not target.create(_COPYING, process_mark()):  # of two simultaneous copies, one continues
        raise _taken(to)
    _copy(folder, target)
    return to


def _taken(place: str) -> CheckpointError:
    return CheckpointError(
        "the place for the copy is taken",
        given=place,
        allowed="a directory that does not exist yet, or a URL below which there is nothing",
    )


def _copy(folder: SavedCheckpoint, target: Storage) -> None:
    """Write in this order: before the floor exists nothing counts, and with it nothing until the commit exists."""
    about = folder.about()
    with folder.last() as commit:
        copied = _with_new_sinks(commit)
        for name, (length, checksum) in copied.files.items():
            bundle = open_file(folder.storage, name, length, checksum)
            for block in bundle.blocks:
                bundle.block(block)  # a copy of a damaged block would be useless
            target.create(f"{_STORE}/{name}", bundle.data)
        for name in _KEPT_INPUT:
            for key in folder.root.sizes(name):
                target.create(key, folder.root.read(key))
        target.create(f"{_STORE}/{FLOORS}/{commit.batch:012d}", b"")
        create_about(target, about | {"owner": uuid.uuid4().hex})
        target.create(f"{_STORE}/{EPOCHS}/{commit.epoch:08d}-ended", process_mark(ended=True))
        target.create(f"{_STORE}/{COMMITS}/{commit.batch:012d}", copied.packed())


def _with_new_sinks(commit: Commit) -> Commit:
    """The commit without outputs to publish: the sinks of the copy are new, and lack nothing."""
    outputs = [_unwritten(output) for output in commit.record["outputs"]]
    shown = {output["rows"] for output in commit.record["outputs"] if "rows" in output}
    shown |= {name for o in commit.record["outputs"] for _, names, _ in o.get("deliveries", ()) for name in names}
    inline = {name: data for name, data in commit.inline.items() if name not in shown}
    blocks = {name: file for name, file in commit.blocks.items() if name not in shown}
    files = {file: commit.files[file] for file in dict.fromkeys(blocks.values())}
    return Commit(commit.batch, commit.epoch, {**commit.record, "outputs": outputs}, files, blocks, inline)


def _unwritten(output: Mapping[str, Any]) -> dict[str, Any]:
    about = {"cti": output["cti"], "high": output["high"]}
    if "deliveries" in output:
        return about | {"deliveries": [], "moved": False, "new": True}
    return about | ({"parts": [], "moved": False, "batches": 0, "sum": 0, "new": True} if "parts" in output else {})
