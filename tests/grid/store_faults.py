"""Columns of the grid: calls of the store and of the file system fail, are slow, or lose their answers."""

from __future__ import annotations

from collections.abc import Callable

from tests.grid.disruptions import Disruption
from tests.grid.hook import Action, Fault, break_down, die, disk_full, fail, slow
from tests.grid.spark_daemon import in_workers
from tests.grid.world import Cell, Wrong

__all__ = ["STORE_FAULTS"]


def count(cell: Cell, where: str) -> int:
    """How many steps of a kind the undisturbed run has; half of them after an attempt that reached too few."""
    return max(1, sum(step.startswith(where) for step in cell.place.steps) >> cell.attempt)


def store_fails(where: str, action: Action = fail, *, lasting: bool = False) -> Callable[[Cell], None]:
    """A random call of a kind fails, or that one and all that follow; then the cause is removed."""

    def disturb(cell: Cell) -> None:
        calls = count(cell, where)
        fault = Fault(where, action, at=1 + cell.draw.randrange(calls), lasting=lasting)
        error = cell.disturbed(fault, names=cell.places if "create" in where else "")
        if error is None and lasting and fault.happened:
            raise Wrong(f"calls {where!r} fail, and nobody noticed")

    return disturb


def full(folder: str) -> Callable[[Cell], None]:
    """The disk of the checkpoint or of the sinks is full, from a random step on, until somebody frees it."""

    def disturb(cell: Cell) -> None:
        where = f"file {cell.folder / folder}"
        # A step that removes a file needs no space.
        fault = Fault(where, disk_full, at=1 + cell.draw.randrange(count(cell, where)), lasting=True)
        for _ in range(2):  # it is still full at the next start
            cell.disturbed(fault)

    return disturb


def answers_lost(times: int) -> Callable[[Cell], None]:
    """A file is created, and the answer is an error."""

    def disturb(cell: Cell) -> None:
        for _ in range(times):
            calls = count(cell, "created ")
            cell.disturbed(Fault("created ", fail, at=1 + cell.draw.randrange(calls)))

    return disturb


def commit_answer_lost(cell: Cell) -> None:
    """The commit is written, and the driver hears that it failed."""
    fault = Fault(f"created commits/{cell.feature.begun:012d}", fail)
    cell.disturbed(fault)
    if not fault.happened:
        raise Wrong("there was no commit")


def all_slow(cell: Cell) -> None:
    """Every call takes a while."""
    cell.disturbed(*(Fault(f"{call} ", slow, lasting=True) for call in ("create", "read", "keys", "remove")))


def power_lost(cell: Cell) -> None:
    """The process ends, and files that are not flushed to disk lose their content."""
    cell.die(Fault(f"commit {cell.feature.begun}", die))
    store = cell.state / "store"
    for path in [store / "plans" / f"{cell.feature.begun:012d}", *(store / "published").glob("*")]:
        path.write_bytes(b"")
    (store / ".drafts").mkdir(exist_ok=True)
    (store / ".drafts" / "left").write_bytes(b"half of a file")


def task_fails(point: str) -> Callable[[Cell], None]:
    """A task fails once: the query ends with an error that says why, or runs the task again."""

    def disturb(cell: Cell) -> None:
        where = point.format(number=cell.feature.begun)
        if cell.host == "spark":
            with in_workers("fail", where) as taken:
                cell.refused(names="the task breaks down", task=True)
                if not taken.exists():
                    raise Wrong(f"there was no task {point!r}")
            return
        fault = Fault(where, break_down)
        cell.disturbed(fault, names="the task breaks down", task=True)
        if not fault.happened:
            raise Wrong(f"there was no task {point!r}")

    return disturb


STORE_FAULTS = [
    Disruption("store: a create fails", "store", store_fails("create ")),
    Disruption("store: creates fail for good", "store", store_fails("create ", lasting=True)),
    Disruption("store: a read fails", "store", store_fails("read ")),
    Disruption("store: a listing fails", "store", store_fails("keys ")),
    Disruption("store: a removal fails", "store", store_fails("remove "), needs=("begun",)),
    Disruption("store: a removal's answer is lost", "store", store_fails("removed "), needs=("begun",)),
    Disruption("store: slow", "store", all_slow),
    Disruption("store: an answer is lost", "store", answers_lost(1)),
    Disruption("store: answers are lost twice", "store", answers_lost(2)),
    Disruption("store: the commit's answer is lost", "store", commit_answer_lost),
    Disruption("store: power lost", "store", power_lost, needs=("checkpoint files",)),
    Disruption("disk of the checkpoint full", "disk", full("state"), needs=("checkpoint files",)),
    Disruption("disk of the sink full", "disk", full("out"), needs=("sink files",)),
    Disruption("intake task fails", "task", task_fails("intake {number}/0")),
    Disruption("stage task fails", "task", task_fails("stage {number}/1/"), needs=("stage",)),
]
