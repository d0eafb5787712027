"""Verification: whether every file that the kept commits name exists and is undamaged, down to its blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.errors import CheckpointError
from headrace.host.saved.folder import SavedCheckpoint
from headrace.stages.stage import segment_names
from headrace.store.blocks import open_file
from headrace.store.cleanup import pinned
from headrace.store.log import Commit

__all__ = ["Verification", "verify"]


class Verification(dict[str, Any]):
    """The numbers of checked commits, files and blocks, and the problems, as JSON values."""

    def __str__(self) -> str:
        looked = f"{self['commits']} commits, {self['files']:,} files with {self['blocks']:,} blocks"
        if not self["problems"]:
            return f"{looked}: whole"
        return "\n".join([f"{looked}: {len(self['problems'])} problems", *(f"  {text}" for text in self["problems"])])


def verify(folder: SavedCheckpoint) -> Verification:
    """Check every kept commit and every file that it names, each once."""
    seen: dict[str, int] = {}
    problems: list[str] = []
    commits = 0
    for step in (folder.about, folder.log.last):
        try:
            step()
        except CheckpointError as error:
            problems.append(error.message)
    for batch in folder.log.batches():
        try:
            with pinned(folder.log, batch) as commit:
                if commit is not None:  # otherwise the running query has removed it
                    commits += 1
                    problems += _problems(folder, commit, seen)
        except CheckpointError as error:
            problems.append(f"commit {batch}: {error.message}")
    distinct = list(dict.fromkeys(problems))
    return Verification(commits=commits, files=len(seen), blocks=sum(seen.values()), problems=distinct)


def _problems(folder: SavedCheckpoint, commit: Commit, seen: dict[str, int]) -> Iterator[str]:
    """The problems of a commit and of its files that are not in `seen`, which counts their blocks."""
    for name, (length, checksum) in commit.files.items():
        if name not in seen:
            seen[name] = 0
            try:
                bundle = open_file(folder.storage, name, length, checksum)
                for block in bundle.blocks:
                    seen[name] += 1
                    bundle.block(block)
            except CheckpointError as error:
                yield error.message
    operators = [state for buckets in commit.record["state"].values() for state in buckets.values()]
    wanted = [*segment_names([*operators, *commit.record["positions"].values()]), *commit.record["feedback"]]
    for name in wanted:
        if name not in commit.inline and commit.blocks.get(name) not in commit.files:
            yield f"commit {commit.batch} names the block {name!r}, and no file that holds it"
