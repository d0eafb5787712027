"""A consistent copy of a checkpoint, also of a query that runs.

The copy holds the newest commit, which is pinned while it is read, what that commit names, and what the checkpoint
keeps of the query's input. A query that is started with it goes on behind that batch.

It goes on into **new sinks**. The directories of the original belong to the original: two queries that write the same
batches to one place would hide each other's, so the copy has an owner's mark of its own and is refused there. Its new
directories get what comes after the copied batch; what the original's have up to then and what the copy adds are
together the whole output. Rows that were diverted before stay with the original, too.

Files of input that a running query removes after reading them (`spool/`, `spark/`) cannot be pinned: a checkpoint that
has any is copied only while its query is stopped.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError
from headrace.host.driving.checkpoint import write_about
from headrace.host.saved.folder import Folder
from headrace.store.blocks import open_file
from headrace.store.log import COMMITS, EPOCHS, FLOORS, Commit, process_mark
from headrace.store.storage import LocalStorage

__all__ = ["copy"]

#: What a checkpoint keeps of the input: written once, and such as is removed after it was read.
_KEPT_INPUT, _PASSING_INPUT = ("events",), ("spool", "spark")


def copy(folder: Folder, to: Path) -> None:
    """Copy the newest commit and everything it needs to a directory that does not exist yet."""
    if to.exists():
        raise CheckpointError(
            "the place for the copy is taken", given=str(to), allowed="a directory that does not exist yet"
        )
    passing = [name for name in _PASSING_INPUT if (folder.path / name).exists()]
    draft = to.with_name(f".{to.name}-{uuid.uuid4().hex}")
    try:
        with folder.locked("copying input that is removed once it is read") if passing else nullcontext():
            _copy(folder, draft, [*_KEPT_INPUT, *passing])
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


def _copy(folder: Folder, draft: Path, inputs: list[str]) -> None:
    about = folder.about()
    draft.mkdir(parents=True)
    target = LocalStorage(draft / "store")
    with folder.last() as commit:
        copied = _with_new_sinks(commit)
        for name, (length, checksum) in copied.files.items():
            bundle = open_file(folder.storage, name, length, checksum)
            for block in bundle.blocks:
                bundle.block(block)  # a copy of something damaged would be worth nothing
            target.create(name, bundle.data)
        target.create(f"{EPOCHS}/{commit.epoch:08d}", process_mark())
        target.create(f"{FLOORS}/{commit.batch:012d}", b"")
        target.create(f"{COMMITS}/{commit.batch:012d}", copied.packed())
    for name in inputs:
        if (folder.path / name).exists():
            shutil.copytree(folder.path / name, draft / name)  # with the times of the files, which positions compare
    write_about(draft, about | {"owner": uuid.uuid4().hex})


def _with_new_sinks(commit: Commit) -> Commit:
    """The commit without what it has to publish: the sinks of the copy have had nothing, and lack nothing."""
    outputs = [_unwritten(output) for output in commit.record["outputs"]]
    shown = {output["rows"] for output in commit.record["outputs"] if "rows" in output}
    inline = {name: data for name, data in commit.inline.items() if name not in shown}
    blocks = {name: file for name, file in commit.blocks.items() if name not in shown}
    files = {file: commit.files[file] for file in dict.fromkeys(blocks.values())}
    return Commit(commit.batch, commit.epoch, {**commit.record, "outputs": outputs}, files, blocks, inline)


def _unwritten(output: Mapping[str, Any]) -> dict[str, Any]:
    about = {"cti": output["cti"], "high": output["high"]}
    return about | ({"parts": [], "moved": False, "batches": 0, "sum": 0, "new": True} if "parts" in output else {})
