"""Columns of the grid: files are cut short, altered or removed; restoring them gives the exact answer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.grid.disruptions import Disruption
from tests.grid.hook import Fault, die
from tests.grid.stored import StoredFile
from tests.grid.world import Cell, Wrong, in_order

from headrace.errors import BadRow, HeadraceError, SourceError
from headrace.store import blocks

__all__ = ["DAMAGES"]

Harm = Callable[[StoredFile, Cell], None]


def cut(file: StoredFile, cell: Cell) -> None:
    data = file.read()
    file.write(data[: cell.draw.randrange(len(data))])


def flip(file: StoredFile, cell: Cell) -> None:
    """Alter a bit of a byte that is not 0: zeros may be the padding between blocks, which nothing reads."""
    data = bytearray(file.read())
    data[cell.draw.choice([place for place, byte in enumerate(data) if byte])] ^= 1 << cell.draw.randrange(8)
    file.write(bytes(data))


def delete(file: StoredFile, cell: Cell) -> None:  # noqa: ARG001 - as the others
    file.remove()


@contextmanager
def harmed(cell: Cell, file: StoredFile, harm: Harm) -> Iterator[None]:
    """A file that is damaged, and restored afterwards."""
    saved = file.save()
    harm(file, cell)
    try:
        yield
    finally:
        file.restore(saved)


def commit_harmed(harm: Harm) -> Callable[[Cell], None]:
    """The newest commit is damaged: a start is refused.

    If it is deleted and no sink has anything of its batch, the batch was never there, and runs again.
    """

    def disturb(cell: Cell) -> None:
        newest = StoredFile.below(cell.checkpoint, "store/commits")[-1]
        with harmed_unless_written(cell, newest, harm):
            if cell.refused() is None and harm is not delete:
                raise Wrong("a damaged commit was not noticed")

    return disturb


def plan_harmed(harm: Harm) -> Callable[[Cell], None]:
    """The process ends before its commit, and the plan is damaged."""

    def disturb(cell: Cell) -> None:
        cell.die(Fault(f"commit {cell.feature.begun}", die))
        plan = cell.stored(f"store/plans/{cell.feature.begun:012d}")
        with harmed_unless_written(cell, plan, harm):
            cell.refused()

    return disturb


@contextmanager
def harmed_unless_written(cell: Cell, file: StoredFile, harm: Harm) -> Iterator[None]:
    """A file that is damaged; it is restored only if the damage was refused, since otherwise another is in use."""
    saved, seen = file.save(), len(cell.errors)
    harm(file, cell)
    yield
    if len(cell.errors) > seen:
        file.restore(saved)


def segments_harmed(harm: Harm) -> Callable[[Cell], None]:
    """A batch writes its state to files; one of them is damaged before the next process needs it."""

    def disturb(cell: Cell) -> None:
        inline, blocks.MOST_INLINE = blocks.MOST_INLINE, 0
        try:
            cell.die(Fault(f"plan {cell.feature.begun + 1}", die))
        finally:
            blocks.MOST_INLINE = inline
        number = f"{cell.feature.begun:012d}"
        data = StoredFile.below(cell.checkpoint, "store/data")
        named = [file for file in data if "-trip-" not in file.name and file.name.startswith(number)]
        if not named:
            raise Wrong("the state is in no file")
        with harmed(cell, cell.draw.choice(named), harm):
            cell.refused()

    return disturb


def source_harmed(harm: Harm) -> Callable[[Cell], None]:
    """A file of the input is damaged after a batch has planned to read it, and before it is read."""

    def disturb(cell: Cell) -> None:
        cell.die(Fault(f"planned {cell.feature.begun}", die))
        path = next(path for path in in_order(cell.folder / "in") if path.stem == f"{cell.feature.begun:03d}")
        with harmed(cell, StoredFile.of(path), harm):
            if cell.refused(names=path.name) is None:
                raise Wrong("the damaged input was not noticed")

    return disturb


def source_altered(cell: Cell) -> None:
    """A bit of the input is altered, and nothing else shows it: an error, or the answer of the altered input."""
    cell.die(Fault(f"planned {cell.feature.begun}", die))
    path = next(path for path in in_order(cell.folder / "in") if path.stem == f"{cell.feature.begun:03d}")
    file = StoredFile.of(path)
    saved = file.save()
    flip(file, cell)
    os.utime(path, ns=saved.times)
    try:
        cell.live()
    except HeadraceError as error:
        file.restore(saved)
        if isinstance(error, (BadRow, SourceError)):
            cell.check_error(error, path.name)
        else:  # later rows contradict what was altered, and may be of a later batch: the input must be read again
            cell.check_error(error, str(path.parent))
            cell.begin()
        return
    found = cell.answers()
    for name in ("state", "out"):
        shutil.rmtree(cell.folder / name)
    cell.live()
    cell.expected = cell.answers()
    if found != cell.expected:
        raise Wrong("the altered input gives another answer in another run")


def sink_harmed(cell: Cell) -> None:
    """A published batch is removed from the directory of a sink."""
    folders = sorted(path for path in (cell.folder / "out").rglob("batch-*") if path.is_dir())
    path = cell.draw.choice(folders)
    shutil.rmtree(cell.folder / "saved", ignore_errors=True)
    shutil.move(path, cell.folder / "saved")
    cell.refused(names=str(path.parent))
    if not path.exists():  # the last batch is published again, if the commit has all of it
        shutil.move(cell.folder / "saved", path)
    shutil.rmtree(cell.folder / "saved", ignore_errors=True)


def epochs_lost(cell: Cell) -> None:
    """The folder that says who owns the query is gone."""
    for file in StoredFile.below(cell.checkpoint, "store/epochs"):
        file.remove()
    cell.refused()


def about_harmed(harm: Harm) -> Callable[[Cell], None]:
    """The description of the checkpoint is damaged."""

    def disturb(cell: Cell) -> None:
        with harmed(cell, cell.stored("headrace.json"), harm):
            if cell.refused() is None and harm is not flip:
                raise Wrong("a damaged headrace.json was not noticed")

    return disturb


WAYS: dict[str, Harm] = {"cut short": cut, "altered": flip, "deleted": delete}
DAMAGES = [
    *(Disruption(f"commit {way}", "damage", commit_harmed(harm), needs=("begun",)) for way, harm in WAYS.items()),
    *(Disruption(f"plan {way}", "damage", plan_harmed(harm)) for way, harm in WAYS.items()),
    *(
        Disruption(f"segment {way}", "damage", segments_harmed(harm), needs=("state", "two batches"))
        for way, harm in WAYS.items()
    ),
    *(
        Disruption(f"source file {way}", "damage", source_harmed(harm), needs=("files",))
        for way, harm in (("cut short", cut), ("deleted", delete))
    ),
    Disruption("source file altered", "damage", source_altered, needs=("files",)),
    Disruption("headrace.json cut short", "damage", about_harmed(cut), needs=("begun",)),
    Disruption("published batch deleted", "damage", sink_harmed, needs=("sink files", "begun")),
    Disruption("epochs deleted", "damage", epochs_lost, needs=("begun",)),
]
