"""Columns of the grid: the query changes between two starts or while it runs, and changes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.grid.disruptions import Disruption
from tests.grid.features import Pairs
from tests.grid.hook import PATIENCE, Fault, Gate, die
from tests.grid.world import Cell, Wrong, hook

import headrace as hr
from headrace.errors import CheckpointError
from headrace.events import history, to_changes
from headrace.host.driving.query import Query
from headrace.io.sinks import read_events_output

__all__ = ["UPGRADES"]


def with_output(cell: Cell, *faults: Fault) -> None:
    """One life of the query with one output more."""
    pairs = cell.feature.pairs(cell.folder)
    pairs.append((pairs[0][0], hr.files(str(cell.folder / "more"))))
    hook.watch(cell.folder, *faults)
    try:
        cell.live(pairs=pairs, upgrade="keep")
    finally:
        hook.rest()


def upgraded(cell: Cell, *faults: Fault) -> None:
    """The query gets one output more, runs, and loses it again; or the upgrade is refused."""
    try:
        with_output(cell, *faults)
    except CheckpointError as error:
        cell.check_error(error, "")
    except BaseException:
        if not any(fault.happened for fault in faults):
            raise
    try:
        cell.live(upgrade="keep")
    except CheckpointError as error:  # an output lacks the last batch, which the query with all outputs must publish
        cell.check_error(
            error, (str(cell.folder), "not reached a service", "not reached a sink of the query's process")
        )
        with_output(cell)
        cell.live(upgrade="keep")


def killed_in_upgrade(cell: Cell) -> None:
    """The process that upgrades ends at a random step."""
    upgraded(cell, Fault("", die, at=1 + cell.draw.randrange(len(cell.place.steps))))


# --- computed over the history ----------------------------------------------------------------------------------------


def changed(cell: Cell) -> Pairs:
    """The query with another answer more, which needs all operators of the first one."""
    pairs = cell.feature.pairs(cell.folder)
    return [*pairs, (pairs[0][0].shift(1), hr.files(str(cell.folder / "more")))]


def check_changed(cell: Cell) -> None:
    """The answers are exact, and the new output has the whole history."""
    cell.check("after the upgrade")
    if "batch" in cell.feature.lacks:
        return
    stream, sink = changed(cell)[-1]
    found = history(to_changes(read_events_output(sink.path, stream.schema), stream.schema))
    right = stream.run(finish=False).cht()
    if different := hr.history_diff(right, found, names=("a run over all files", "the new output")):
        raise Wrong(f"after the upgrade: {different}")


def backfilled(cell: Cell, pairs: Pairs | None = None) -> None:
    """A life that begins with a backfill. Memories are empty then, and get everything."""
    before, cell.kept = cell.kept, {}
    for _ in range(5):
        try:
            cell.live(pairs=pairs, upgrade="backfill")
        except CheckpointError as error:  # the old query ended before it knew that a service has its last batch
            if "the last batch has not reached" not in str(error):
                raise
            cell.check_error(error, "start the query with the checkpoint once, stop it, and try again")
            end(cell, cell.start(), before)  # which may be stopped before a service has a batch that it runs now
        else:
            return
    raise Wrong("starts of the old query do not deliver its last batch")


def end(cell: Cell, old: Query, before: dict[int, Any]) -> None:
    """Stop the old query, and add what its memories have to what they had before."""
    old.stop()
    new, cell.kept = cell.kept, before
    cell.keep(old)
    cell.kept = new


def beside(cell: Cell) -> None:
    """The changed query takes over from one that is in the middle of a batch."""
    gate = Gate()
    asked = Fault(f"file {cell.state / 'takeover'}", gate.opened.set)
    hook.faults += [Fault(f"commit {cell.feature.begun}", gate), asked]
    old = cell.start()
    before, cell.kept = cell.kept, {}
    try:
        if not gate.reached.wait(PATIENCE):
            raise Wrong("the old query has no commit")
        cell.live(pairs=changed(cell), upgrade="side by side")
        if not asked.happened:
            raise Wrong("the old query was not asked to end")
        if not old.await_termination(PATIENCE):
            raise Wrong("the old query goes on")
    finally:
        gate.opened.set()
        end(cell, old, before)


def upgrade(live: Callable[[Cell], None]) -> Callable[[Cell], None]:
    """The query changes, runs to its end, and changes back."""

    def disturb(cell: Cell) -> None:
        hook.watch(cell.folder)
        live(cell)
        hook.rest()
        check_changed(cell)
        backfilled(cell)

    return disturb


def killed_in(live: Callable[[Cell], None]) -> Callable[[Cell], None]:
    """The process ends at a random step of the upgrade; then the old query goes on, or the new one."""

    def disturb(cell: Cell) -> None:
        hook.watch(cell.folder, note=True)
        live(cell)
        hook.rest()
        steps = len(hook.steps or ())
        cell.begin()
        kept, fault = cell.kept, Fault("", die, at=1 + cell.draw.randrange(steps))
        cell.faults.append(fault)
        hook.watch(cell.folder, fault)
        try:
            live(cell)
        except BaseException:
            if not fault.happened:
                raise
        finally:
            hook.rest()
        go_on(cell, kept)
        check_changed(cell)
        backfilled(cell)

    return disturb


def go_on(cell: Cell, kept: dict[int, Any]) -> None:
    """After an upgrade that was interrupted: the same start again; or the old query, if it still can, and then that."""
    new, cell.kept = cell.kept, kept
    if new:  # memories of the new query have got something
        cell.kept = new
        cell.live(pairs=changed(cell))
        return
    if cell.draw.random() < 0.5:
        try:
            cell.live()
        except CheckpointError as error:
            if "belongs to another query" not in str(error):
                raise
        else:
            cell.check("as before the upgrade")
    backfilled(cell, changed(cell))


def by_backfill(cell: Cell) -> None:
    backfilled(cell, changed(cell))


BEGUN = ("begun",)
#: Of columns that compute the new query over the history.
PAST = (*BEGUN, "past")
#: On an object store there is no lock: the new process supersedes the old one, and does not ask it to end.
BESIDE = (*PAST, "checkpoint files")
UPGRADES = [
    Disruption("output added and removed", "change", upgraded, needs=BEGUN),
    Disruption("killed while an output is added", "change", killed_in_upgrade, needs=BEGUN),
    Disruption("upgrade: backfill", "change", upgrade(by_backfill), needs=PAST),
    Disruption("upgrade: killed in a backfill", "change", killed_in(by_backfill), needs=PAST),
    Disruption("upgrade: side by side", "change", upgrade(beside), needs=BESIDE),
    Disruption("upgrade: killed side by side", "change", killed_in(beside), needs=BESIDE),
]
