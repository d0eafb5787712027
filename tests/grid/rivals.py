"""Columns of the grid: two processes at once, and a query that goes on elsewhere or otherwise."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.grid.disruptions import IN_TASKS, Disruption
from tests.grid.hook import PATIENCE, Fault, Gate, die
from tests.grid.spark_daemon import in_workers
from tests.grid.world import Cell, Wrong, hook, in_order, shift_times

import headrace as hr
from headrace.errors import CheckpointError, HeadraceError, Superseded
from headrace.host.driving import start
from headrace.host.driving.in_process import InProcessExecutor
from headrace.host.driving.plan import Batch
from headrace.stages.message import Message

__all__ = ["RIVALS", "replaced", "unlock"]


def zombie(point: str) -> Callable[[Cell], None]:
    """A query sleeps at a step while another process takes over and answers everything; then it wakes up."""

    def disturb(cell: Cell) -> None:
        gate = Gate()
        hook.watch(cell.folder, Fault(point.format(number=cell.feature.begun), gate))
        sleeper = cell.start()
        try:
            if not gate.reached.wait(PATIENCE):
                raise Wrong(f"the step {point!r} was not reached")
            unlock(cell)
            cell.live()
            cell.check("while the other sleeps")
            gate.opened.set()
            _must_stop(sleeper, cell)
        finally:
            gate.opened.set()
            sleeper.stop()
            hook.rest()

    return disturb


def unlock(cell: Cell) -> None:
    """Remove the lock of a checkpoint, as on another machine, or on a file system or a store without locks."""
    (cell.state / "lock").unlink(missing_ok="checkpoint files" in cell.feature.lacks)


def _must_stop(sleeper: Any, cell: Cell) -> None:
    try:
        ended = sleeper.await_termination(PATIENCE)
    except Superseded as error:
        cell.errors.append(f"Superseded: {error}"[:300])
    else:
        raise Wrong(f"the sleeper {'ended' if ended else 'goes on'} without an error")


def locked(cell: Cell) -> None:
    """A second start while the first one runs is refused."""
    gate = Gate()
    hook.watch(cell.folder, Fault(f"commit {cell.feature.begun}", gate))
    first = cell.start()
    try:
        if not gate.reached.wait(PATIENCE):
            raise Wrong("the first start has no commit")
        try:
            cell.live()
        except CheckpointError as error:
            cell.errors.append(f"CheckpointError: {error}"[:300])
        else:
            raise Wrong("two queries use one checkpoint")
        gate.opened.set()
        first.process_all_available()
    finally:
        gate.opened.set()
        first.stop()
        cell.keep(first)
        hook.rest()


def two_at_once(cell: Cell) -> None:
    """Two starts at the same moment: one of them is refused, or both run one after the other."""
    together, errors = threading.Barrier(2), []

    def begin() -> None:
        together.wait(PATIENCE)
        try:
            cell.live()
        except HeadraceError as error:
            errors.append(error)

    threads = [threading.Thread(target=begin) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for error in errors:
        if not isinstance(error, CheckpointError):
            raise Wrong(f"not the error of a checkpoint in use: {error!r:.300}") from error
        cell.errors.append(f"{type(error).__name__}: {error}"[:300])


class Twice(InProcessExecutor):
    """Runs every batch twice; the second run counts."""

    def run(self, batch: Batch) -> list[Message]:
        super().run(batch)
        return super().run(batch)


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute that has another value for a while."""
    old = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, old)


def tasks_twice(cell: Cell) -> None:
    """Every task runs twice, as after a failure or with speculative execution; on Spark it fails when it is done."""
    if cell.host == "spark":
        with in_workers("fail all", "took ", "staged ") as taken:
            cell.live()
            if not taken.exists():
                raise Wrong("no task ran twice")
        return
    from headrace.host.local import live  # patched here, so that the module is named where that happens

    with replaced(live, "InProcessExecutor", Twice):
        cell.live()


def clock(seconds: int) -> Callable[[Cell], None]:
    """The clock jumps while the query is down: of the process, and of new files."""

    def disturb(cell: Cell) -> None:
        now = start._now
        new = [path for path in in_order(cell.folder / "in") if path.stem >= f"{cell.feature.begun:03d}"]
        shift_times([path for path in new if path.stem.isdecimal()], seconds)
        with replaced(start, "_now", lambda: now() + seconds * 1_000_000):
            cell.die(Fault(f"published {cell.feature.begun}", die))

    return disturb


def rescaled(*counts: int) -> Callable[[Cell], None]:
    """The state is divided among other numbers of buckets."""

    def disturb(cell: Cell) -> None:
        for count in counts:
            try:
                hr.checkpoint(cell.checkpoint).rescale(count)
            except CheckpointError as error:
                cell.errors.append(f"CheckpointError: {error}"[:300])

    return disturb


def stopped_each_batch(cell: Cell) -> None:
    """The query is stopped after each batch, and started again."""
    for batch in range(cell.feature.begun, 50):
        gate = Gate()
        fault = Fault(f"published {batch}", gate)
        hook.watch(cell.folder, fault)
        query = cell.start()
        waiting = threading.Thread(target=_let_end, args=(query,))
        waiting.start()
        while not gate.reached.wait(0.005) and waiting.is_alive():
            pass
        query.end_soon()
        gate.opened.set()
        query.stop()
        cell.keep(query)
        waiting.join(PATIENCE)
        hook.rest()
        if not fault.happened:
            return


def _let_end(query: Any) -> None:
    query.process_all_available()


def moved(cell: Cell) -> None:
    """The checkpoint is moved to another directory, from which the query goes on."""
    target = cell.folder / "moved"
    shutil.move(cell.state, target)
    cell.state = target


def moved_and_back(cell: Cell) -> None:
    """The checkpoint is copied away and back by `cp`, in mid-batch: times of files are new."""
    cell.die(Fault(f"commit {cell.feature.begun}", die))
    target = cell.folder / "moved"
    shutil.copytree(cell.state, target, copy_function=shutil.copyfile)
    shutil.rmtree(cell.state)
    shutil.copytree(target, cell.state, copy_function=shutil.copyfile)


def older_description(cell: Cell) -> None:
    """The checkpoint was made by an earlier Headrace of the same format, which described less."""
    file = cell.stored("headrace.json")
    about = json.loads(file.read())
    for name in ("operators", "dates", "source_dates"):
        about.pop(name, None)
    file.write(json.dumps(about).encode())


def other_format(cell: Cell) -> None:
    """The checkpoint is of a format that this Headrace cannot read."""
    file = cell.stored("headrace.json")
    saved = file.save()
    about = json.loads(saved.data)
    file.write(json.dumps({**about, "format": about["format"] + 1}).encode())
    if cell.refused(names=cell.checkpoint) is None:
        raise Wrong("another format was not noticed")
    file.restore(saved)


def other_query(cell: Cell) -> None:
    """Another query is started with the checkpoint by mistake."""
    other = [(stream.where(hr.lit(True)).shift(1), sink) for stream, sink in cell.feature.pairs(cell.folder)]

    def live() -> None:
        hr.start_all(other, host="local", checkpoint=cell.checkpoint).stop()

    if cell.refused(names=cell.checkpoint, live=live) is None:
        raise Wrong("another query could use the checkpoint")


def tidied(cell: Cell) -> None:
    """`headrace checkpoint gc` between two starts, and a check of all files."""
    cell.die(Fault(f"commit {cell.feature.begun}", die))
    hr.checkpoint(cell.checkpoint).gc()
    problems: Sequence[str] = hr.checkpoint(cell.checkpoint).verify()["problems"]
    if problems:
        raise Wrong(f"the checkpoint has problems: {problems}")


RIVALS = [
    Disruption("zombie wakes before its plan", "rival", zombie("plan {number}")),
    Disruption("zombie wakes in a task", "rival", zombie("intake {number}/0"), not_on=IN_TASKS),
    Disruption("zombie wakes before its commit", "rival", zombie("commit {number}")),
    Disruption("zombie wakes while it publishes", "rival", zombie("committed {number}"), needs=("two batches",)),
    Disruption("second start refused", "rival", locked, needs=("checkpoint files",)),
    Disruption("two starts at once", "rival", two_at_once),
    Disruption("tasks run twice", "task", tasks_twice),
    Disruption("clock jumps back a day", "clock", clock(-86_400), needs=("clock",)),
    Disruption("clock jumps forward ten years", "clock", clock(315_360_000), needs=("clock",)),
    Disruption("buckets 2 → 3", "change", rescaled(3), needs=("begun",)),
    Disruption("buckets 2 → 1", "change", rescaled(1), needs=("begun",)),
    Disruption("buckets 2 → 5 → 2", "change", rescaled(5, 2), needs=("begun",)),
    Disruption("stopped after each batch", "change", stopped_each_batch),
    Disruption("checkpoint moved", "change", moved, needs=("begun", "checkpoint files")),
    Disruption("checkpoint copied away and back", "change", moved_and_back, needs=("begun", "checkpoint files")),
    Disruption("description of an earlier version", "change", older_description, needs=("begun",)),
    Disruption("other format", "change", other_format, needs=("begun",)),
    Disruption("other query", "change", other_query, needs=("begun",)),
    Disruption("gc in mid-batch", "change", tidied),
]
