"""Columns of the grid: the process ends at a step, or its tasks fail."""

from __future__ import annotations

from collections.abc import Callable

from tests.grid.disruptions import IN_TASKS, Disruption
from tests.grid.hook import Fault, die
from tests.grid.world import Cell, Wrong

__all__ = ["KILLS"]


def killed(where: str, batch: int = 0, ends: str = "") -> Callable[[Cell], None]:
    """The process ends at a step of a batch, counted from the first one after the begun checkpoint."""

    def disturb(cell: Cell) -> None:
        number = cell.feature.begun + batch
        if not cell.die(Fault(where.format(number=number, key=f"{number:012d}"), die, ends=ends)):
            raise Wrong(f"the step {where!r} was not reached")

    return disturb


def killed_anywhere(times: int) -> Callable[[Cell], None]:
    """The process ends at random steps, life after life."""

    def disturb(cell: Cell) -> None:
        for _ in range(times):
            cell.die(Fault("", die, at=1 + cell.draw.randrange(len(cell.place.steps))))

    return disturb


def killed_at_random_files(cell: Cell) -> None:
    """The process ends before a random change of a file."""
    files = sum(step.startswith("file ") for step in cell.place.steps)
    cell.die(Fault("file ", die, at=1 + cell.draw.randrange(files)))


def at_start(cell: Cell) -> None:
    """The process ends when it has claimed the query."""
    if not cell.die(Fault("created epochs/", die)):
        raise Wrong("the query has claimed no epoch")


def planned_thrice(cell: Cell) -> None:
    """The same batch runs again and again, and never gets to its commit."""
    for _ in range(3):
        cell.die(Fault(f"commit {cell.feature.begun}", die))


def after_each_batch(cell: Cell) -> None:
    """The process ends after each batch."""
    for batch in range(cell.feature.begun, 50):
        if not cell.die(Fault(f"published {batch}", die)):
            return


KILLS = [
    Disruption("killed at its start", "killed", at_start),
    Disruption("killed before the plan", "killed", killed("plan {number}")),
    Disruption("killed after the plan", "killed", killed("planned {number}")),
    Disruption("killed in an intake task", "killed", killed("intake {number}/0"), not_on=IN_TASKS),
    Disruption("killed in a stage", "killed", killed("stage {number}/1/"), needs=("stage",), not_on=IN_TASKS),
    Disruption(
        "killed when the state is written", "killed", killed("staged {number}/1/"), needs=("stage",), not_on=IN_TASKS
    ),
    Disruption("killed before the commit", "killed", killed("commit {number}")),
    Disruption("killed after the commit", "killed", killed("committed {number}")),
    Disruption("killed after publishing", "killed", killed("published {number}")),
    Disruption("killed at random steps", "killed", killed_anywhere(1)),
    Disruption("killed at random steps, 4 times", "killed", killed_anywhere(4)),
    Disruption("killed at a random file", "killed", killed_at_random_files),
    Disruption("killed after each batch", "killed", after_each_batch),
    Disruption("batch replayed 3 times", "killed", planned_thrice),
]
