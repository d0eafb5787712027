"""A small run on Spark that can be disturbed, gone on with, and begun again.

Usage, for a driver in a process of its own: `python -m tests.recovery.small_run FOLDER STEP`. It is killed at a step of
its own (`steps.py`), given by the end of its path; without STEP it lives.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.recovery.driver import queries, write_input
from tests.recovery.steps import Steps, kill

import headrace as hr
from headrace.host.spark.session import get_session


def live(folder: Path) -> None:
    """One life of a driver: answer all that is there, in two levels, to files of two formats."""
    streams = queries(folder)
    sinks = [
        (streams["counts"], hr.files(str(folder / "out" / "counts"), format="jsonl")),
        (streams["nested"], hr.files(str(folder / "out" / "nested"), format="parquet")),
    ]
    query = hr.start_all(sinks, checkpoint=str(folder / "state"), files_per_batch=1, buckets=2)
    try:
        query.process_all_available()
    finally:
        query.stop()


def published(folder: Path) -> dict[str, bytes]:
    """Everything in the directories of the sinks, but for the mark of the owner."""
    files = [path for path in (folder / "out").rglob("*") if path.is_file() and path.name != "_owner"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


class Run:
    """A run from nothing, or one that goes on after some batches; and what its sinks have in the end."""

    def __init__(self, folder: Path, files: int, before: int = 0) -> None:
        self.folder, self.before, self._begun = folder, before, folder / "begun"
        write_input(folder / "all", 1, files)
        (folder / "in").mkdir()
        self._bring(0, before)
        if before:
            live(folder)
            for name in ("state", "out"):
                shutil.copytree(folder / name, self._begun / name)
        self._bring(before, files)
        live(folder)
        self.expected = published(folder)
        self.begin_again()

    def _bring(self, first: int, last: int) -> None:
        for file in sorted((self.folder / "all").iterdir())[first:last]:
            shutil.copy2(file, self.folder / "in")

    def begin_again(self) -> None:
        """Make everything as it was."""
        for name in ("state", "out"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            if (self._begun / name).exists():
                shutil.copytree(self._begun / name, self.folder / name)

    @property
    def watched(self) -> tuple[Path, Path]:
        return self.folder / "state", self.folder / "out"

    def right(self) -> bool:
        """Whether the sinks have what they should, and nothing else."""
        return published(self.folder) == self.expected


def main(folder: Path, step: str | None) -> None:
    """A life in this process."""
    get_session("local[2,4]", app="headrace recovery")
    steps = Steps()
    steps.watch(folder / "state", folder / "out", at=step, fault=kill)
    live(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
