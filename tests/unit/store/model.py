"""A model of the store's protocol, small enough to look at everything that can happen.

A state is the store's files and where every process stands. A step is one call of the store by one process, or the
crash of a driver and the start of the next one in its place. `explore` visits every state that any order of steps leads
to, and raises `Broken` with the way there if a promise does not hold. Processes are programs over the calls, as in
`headrace.store`, step for step; a plan is known by who wrote it, a file by its batch and epoch.

A *change* is a process that commits a batch without input and output: an upgrade or a division among other buckets. The
batches after it are of the next version, and a driver of another version must not make them.

`faults` change the protocol in one place each: the model must notice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Broken(AssertionError):
    """A promise does not hold."""


File = tuple[int, int]  # batch, epoch


class Commit(NamedTuple):
    batch: int
    epoch: int
    plan: int
    files: frozenset[File]
    version: int = 0
    #: Whether it is the batch of a change.
    change: bool = False


class Store(NamedTuple):
    """What is on disk; `sink` is what was published: of every batch the epoch that made it."""

    epochs: frozenset[int] = frozenset()
    plans: frozenset[tuple[int, int]] = frozenset()
    data: frozenset[File] = frozenset()
    commits: frozenset[Commit] = frozenset()
    floor: int = 0
    pins: frozenset[int] = frozenset()
    sink: frozenset[tuple[int, int]] = frozenset()
    #: All commits that ever counted: not on disk, but what the promises are about.
    counted: tuple[Commit, ...] = ()
    #: The plans with which batches were tried.
    tried: frozenset[tuple[int, int]] = frozenset()


class Driver(NamedTuple):
    """A process that drives: the next call, and what it remembers."""

    step: str = "list epochs"
    epoch: int = 0
    seen: int = 0
    planned: int = -1
    found: tuple[int, ...] = ()
    floor: int = 0
    last: Commit | None = None
    plan: int = 0
    todo: tuple[object, ...] = ()
    #: Whether the last commit is its own, and whether it has just begun.
    own: bool = False
    starting: bool = True
    crashes: int = 0
    #: The version that it drives, or that it changes; and whether it changes it.
    version: int = 0
    changes: bool = False
    #: The step with which it starts.
    first: str = "list epochs"

    @property
    def batch(self) -> int:
        return self.last.batch + 1 if self.last is not None else 0

    def go(self, step: str, **changed: object) -> Driver:
        return self._replace(step=step, **changed)


class Reader(NamedTuple):
    """A process that reads a commit: which one, and which of its files are left."""

    step: str = "find commit"
    batch: int = -1
    todo: tuple[File, ...] = ()

    def go(self, step: str, **changed: object) -> Reader:
        return self._replace(step=step, **changed)


Process = Driver | Reader
State = tuple[Store, tuple[Process, ...]]
ENDED = ("done", "superseded", "changed", "refused")


def newest(commits: frozenset[Commit]) -> Commit | None:
    return max(commits, key=lambda c: c.batch, default=None)


class Protocol:
    """The programs of drivers and readers, and the promises."""

    def __init__(self, batches: int, faults: frozenset[str] = frozenset()) -> None:
        self.batches, self.faults = batches, faults
        self.kept = 1 if "keep one" in faults else 2
        self._order = ["list plans", "list commits", "list floors"]
        if "commits before plans" in faults:
            self._order = ["list commits", "list plans", "list floors"]
        if "floor before commits" in faults:
            self._order = ["list plans", "list floors", "list commits"]
        self._steps: dict[str, Callable[[Store, Any], tuple[Store, Process]]] = {
            name.removeprefix("_do_").replace("_", " "): getattr(self, name) for name in dir(self) if name[:4] == "_do_"
        }

    def after(self, store: Store, process: Process) -> Iterator[tuple[str, Store, Process]]:
        """What one process can do."""
        if process.step in ENDED:
            return
        yield process.step, *self._steps[process.step](store, process)
        if isinstance(process, Driver) and process.crashes:
            left = process.crashes - 1
            yield "crash", store, Driver(process.first, crashes=left, changes=process.changes, first=process.first)

    # --- starting ----------------------------------------------------------------------------------------------------

    def _do_look_at_version(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        last = newest(store.commits)
        return store, me.go("list epochs", version=last.version if last is not None else 0)

    def _do_list_epochs(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        return store, me.go("create epoch", seen=max(store.epochs, default=0) + 1)

    def _do_create_epoch(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        if me.seen in store.epochs:
            return store, me.go("create epoch", seen=me.seen + 1)
        return store._replace(epochs=store.epochs | {me.seen}), me.go("remove epochs", epoch=me.seen, seen=0)

    def _do_remove_epochs(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        return store._replace(epochs=frozenset(e for e in store.epochs if e >= me.epoch)), me.go(self._order[0])

    def _do_list_plans(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        return store, self._look(me, planned=max((n for n, _ in store.plans), default=-1))

    def _do_list_commits(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        return store, self._look(me, found=tuple(sorted(c.batch for c in store.commits)))

    def _do_list_floors(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        return store, self._look(me, floor=store.floor)

    def _look(self, me: Driver, **seen: object) -> Driver:
        """Go on with the next listing; after the last one, see whether there is a gap."""
        me = me._replace(**seen)
        place = self._order.index(me.step) + 1
        if place < len(self._order):
            return me.go(self._order[place])
        found = [n for n in me.found if n >= me.floor]
        last = found[-1] if found else -1
        if me.floor and not found:
            return self._look_again(me)  # newer drivers have gone on
        if found != list(range(me.floor, last + 1)) or me.planned > last + 1:
            raise Broken(f"a gap that is none: {me.found} from {me.floor}, planned {me.planned}")
        return me.go("read last", found=(last,), planned=-1, floor=0)

    def _look_again(self, me: Driver) -> Driver:
        return me.go(self._order[0], last=None, found=(), planned=-1, floor=0)

    def _do_read_last(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        if me.found == (-1,):
            return store, me.go("refused" if me.changes else "create plan", found=())
        found = [c for c in store.commits if c.batch == me.found[0]]
        if not found:
            return store, self._look_again(me)
        if self._is_another(me, found[0]):
            return store, me.go("superseded")
        if "no resume" in self.faults:
            return store, me.go(self._next(found[0]), last=found[0], found=())
        return store, me.go("look at sink", last=found[0], found=())

    def _is_another(self, me: Driver, found: Commit) -> bool:
        """Whether a commit is of another version than the one that a process drives or changes."""
        return found.version != me.version and "version ignored" not in self.faults

    # --- publishing --------------------------------------------------------------------------------------------------

    def _do_look_at_sink(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        assert me.last is not None
        there = {n for n, _ in store.sink}
        if me.changes:
            ready = me.last.change or me.last.batch in there or "change unpublished" in self.faults
            return store, me.go("write data" if ready else "refused")
        if me.starting and any(n > me.last.batch for n in there):
            return store, self._look_again(me)  # an older driver has published more
        if me.last.batch in there or me.last.change:  # a change has nothing to publish
            return store, self._published(me)
        return store, me.go("publish")

    def _do_publish(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        assert me.last is not None
        if any(n == me.last.batch for n, _ in store.sink):
            return store, self._published(me)
        if me.last not in store.counted:
            raise Broken(f"{me.last} is published and does not count")
        return store._replace(sink=store.sink | {me.last[:2]}), self._published(me)

    def _published(self, me: Driver) -> Driver:
        assert me.last is not None
        if me.own and "clean before commit" not in self.faults:
            return me.go("create floor", starting=False)
        return me.go(self._next(me.last), starting=False)

    def _next(self, last: Commit) -> str:
        return "create plan" if last.batch + 1 < self.batches else "done"

    # --- a batch -----------------------------------------------------------------------------------------------------

    def _do_create_plan(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        me = me.go("read plan", starting=False, own=False)
        if any(n == me.batch for n, _ in store.plans):
            return store, me
        return store._replace(plans=store.plans | {(me.batch, me.epoch)}), me

    def _do_read_plan(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        plans = [plan for n, plan in store.plans if n == me.batch]
        if not plans:
            return store, me.go("superseded")
        plan = me.epoch if "plan not fixed" in self.faults else plans[0]
        tried = store.tried | {(me.batch, plan)} if me.batch >= store.floor else store.tried
        return store._replace(tried=tried), me.go("read state", plan=plan)

    def _do_read_state(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        """Tasks read the last commit and its files."""
        if me.last is None or (me.last in store.commits and me.last.files <= store.data):
            return store, me.go("write data")
        if max(store.epochs) == me.epoch:
            raise Broken(f"{me.last}, or files of it, are removed, and the newest driver's tasks need them")
        return store, me.go("superseded")

    def _do_write_data(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        """A task writes; what it read is known now. Its file is there also if the driver is not any more."""
        written = store._replace(data=store.data | {(me.batch, me.epoch)})
        if "clean before commit" in self.faults:
            return written, me.go("list named", own=True)
        if "publish before commit" in self.faults:
            return written, me.go("publish", last=self._commit(me), own=False)
        return written, me.go("list owner")

    def _do_list_owner(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        if "no owner" not in self.faults and max(store.epochs) != me.epoch:
            return store, me.go("superseded")
        return store, me.go("create commit")

    def _commit(self, me: Driver) -> Commit:
        """Names what the batch wrote, and what the batch before wrote: state lives for two batches."""
        before = frozenset(f for f in me.last.files if f[0] == me.batch - 1) if me.last is not None else frozenset()
        files = before | {(me.batch, me.epoch)}
        return Commit(me.batch, me.epoch, me.plan, files, me.version + me.changes, me.changes)

    def _do_create_commit(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        commit = self._commit(me)
        taken = [c for c in store.commits if c.batch == commit.batch]
        if taken and "overwrite" not in self.faults:
            if "no adoption" in self.faults:
                return store, me.go(self._next(commit), last=commit)
            return store, me.go("list owner again")
        commits = store.commits - set(taken) | {commit}
        return self._count(store._replace(commits=commits), commit), me.go("check floor", last=commit, own=True)

    def _count(self, store: Store, commit: Commit) -> Store:
        """The promises about commits."""
        if commit.batch < store.floor and "no floor check" not in self.faults:
            return store
        if missing := commit.files - store.data:
            raise Broken(f"{commit} names {missing}, which are not there")
        if any(c.batch == commit.batch for c in store.counted):
            raise Broken(f"{commit} is the second of its batch")
        if commit.batch != len(store.counted):
            raise Broken(f"{commit} leaves a gap")
        if store.counted and commit.version < store.counted[-1].version:
            raise Broken(f"{commit} is of an older version than {store.counted[-1]}")
        if store.counted and commit.epoch < store.counted[-1].epoch:
            raise Broken(f"{commit} is made by a driver that was superseded, after {store.counted[-1]}")
        return store._replace(counted=(*store.counted, commit))

    def _do_check_floor(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        assert me.last is not None
        if me.last.batch < store.floor and "no floor check" not in self.faults:
            return store, me.go("superseded")
        return store, me.go("changed" if me.changes else "look at sink")

    def _do_list_owner_again(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        if "no owner" not in self.faults and max(store.epochs) != me.epoch:
            return store, me.go("superseded")
        if me.changes:  # it begins anew from the commit of the other driver
            return store, self._look_again(me)
        return store, me.go("adopt")

    def _do_adopt(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        """Another driver was faster: go on from its commit."""
        found = newest(store.commits)
        if found is None or found.batch != me.batch:
            return store, me.go("superseded")
        if self._is_another(me, found):
            return store, me.go("superseded")
        return store, me.go("look at sink", last=found, own=False)

    # --- clean-up ----------------------------------------------------------------------------------------------------

    def _do_create_floor(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        assert me.last is not None
        floor = me.last.batch - self.kept + 1
        if "pins before floor" in self.faults and not me.todo:
            return store, me.go("create floor", todo=tuple(sorted(store.pins)) or (-1,))
        pinned = me.todo if "pins before floor" in self.faults else None
        if "no floor" not in self.faults:
            store = store._replace(floor=max(store.floor, floor))
        if pinned is not None:
            return store, self._doomed(store, me, frozenset(pinned))
        return store, me.go("list pins", todo=())

    def _do_list_pins(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        return store, self._doomed(store, me, store.pins)

    def _doomed(self, store: Store, me: Driver, pins: frozenset[int]) -> Driver:
        assert me.last is not None
        floor = me.last.batch - self.kept + 1
        batches = {c.batch for c in store.commits if c.batch < floor and c.batch not in pins}
        return me.go("remove commits", todo=tuple(sorted(batches)))

    def _do_remove_commits(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        if not me.todo:
            assert me.last is not None
            floor = me.last.batch - self.kept + 1
            kept = frozenset(p for p in store.plans if p[0] >= floor)
            return store._replace(plans=kept), me.go("list named")
        left = frozenset(c for c in store.commits if c.batch != me.todo[0])
        return store._replace(commits=left), me.go("remove commits", todo=me.todo[1:])

    def _do_list_named(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        named = frozenset().union(*(c.files for c in store.commits))
        up_to = me.batch if "clean before commit" in self.faults else me.batch - 1
        up_to += "clean running batch" in self.faults
        if me.last is not None:
            named |= me.last.files
        if "clean before commit" in self.faults:
            named |= {(me.batch, me.epoch)}
        epoch = 99 if "clean all epochs" in self.faults else me.epoch
        doomed = tuple(sorted(f for f in store.data if f[0] <= up_to and f[1] <= epoch and f not in named))
        return store, me.go("remove data", todo=doomed)

    def _do_remove_data(self, store: Store, me: Driver) -> tuple[Store, Driver]:
        if not me.todo:
            if "clean before commit" in self.faults:
                return store, me.go("list owner", own=False)
            assert me.last is not None
            return store, me.go(self._next(me.last))
        file = me.todo[0]
        named = [c for c in store.commits if file in c.files and c.batch >= store.floor]
        if named and file in store.data:
            raise Broken(f"{file} is removed, and {named} name it")
        return store._replace(data=store.data - {file}), me.go("remove data", todo=me.todo[1:])

    # --- reading -----------------------------------------------------------------------------------------------------

    def _do_find_commit(self, store: Store, me: Reader) -> tuple[Store, Reader]:
        found = newest(store.commits)
        if found is None:
            return store, me.go("done")
        return store, me.go("look at floor" if "pin after floor" in self.faults else "pin", batch=found.batch)

    def _do_pin(self, store: Store, me: Reader) -> tuple[Store, Reader]:
        pinned = store._replace(pins=store.pins | {me.batch})
        return pinned, me.go("read commit" if "pin after floor" in self.faults else "look at floor")

    def _do_look_at_floor(self, store: Store, me: Reader) -> tuple[Store, Reader]:
        if me.batch < store.floor:
            return store, me.go("unpin")
        return store, me.go("pin" if "pin after floor" in self.faults else "read commit")

    def _do_read_commit(self, store: Store, me: Reader) -> tuple[Store, Reader]:
        found = [c for c in store.commits if c.batch == me.batch]
        if not found:
            raise Broken(f"the pinned commit {me.batch} is gone")
        return store, me.go("read file", todo=tuple(sorted(found[0].files)))

    def _do_read_file(self, store: Store, me: Reader) -> tuple[Store, Reader]:
        if not me.todo:
            return store._replace(pins=store.pins - {me.batch}), me.go("done")
        if me.todo[0] not in store.data:
            raise Broken(f"the file {me.todo[0]} of the pinned commit {me.batch} is gone")
        return store, me.go("read file", todo=me.todo[1:])

    def _do_unpin(self, store: Store, me: Reader) -> tuple[Store, Reader]:
        return store._replace(pins=store.pins - {me.batch}), me.go("find commit", batch=-1)

    # --- promises ----------------------------------------------------------------------------------------------------

    def check(self, store: Store, processes: tuple[Process, ...]) -> None:
        """What holds in every state; commits and files are checked where they are made and removed."""
        for batch, epoch in store.sink:
            if not any(c[:2] == (batch, epoch) for c in store.counted):
                raise Broken(f"batch {batch} is published as of epoch {epoch}: {store.counted}")
        if len({n for n, _ in store.sink}) != len(store.sink):
            raise Broken(f"published twice: {store.sink}")
        if len({n for n, _ in store.tried}) != len(store.tried):
            raise Broken(f"a batch is tried with another plan: {store.tried}")
        drivers = [p for p in processes if isinstance(p, Driver) and not p.changes]
        changed = {commit.batch for commit in store.counted if commit.change}
        if any(d.step == "done" for d in drivers):
            missing = set(range(self.batches)) - {n for n, _ in store.sink} - changed
            if missing:
                raise Broken(f"a driver is done, and {missing} are not published")
        if all(d.step == "superseded" for d in drivers) and not any(p.changes for p in processes if p not in drivers):
            raise Broken("every driver believes that another one drives")


def explore(protocol: Protocol, processes: tuple[Process, ...]) -> int:
    """Visit all states; how many there are."""
    start: State = (Store(), processes)
    came: dict[State, tuple[State, str] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        store, running = state
        for who, process in enumerate(running):
            for label, changed in _steps(protocol, store, process, lambda s=state: way(came, s)):
                following = (changed[0], (*running[:who], changed[1], *running[who + 1 :]))
                if following in came:
                    continue
                came[following] = (state, f"{who}: {label}")
                try:
                    protocol.check(*following)
                except Broken as error:
                    error.add_note(way(came, following))
                    raise
                queue.append(following)
    return len(came)


def _steps(
    protocol: Protocol, store: Store, process: Process, told: Callable[[], str]
) -> list[tuple[str, tuple[Store, Process]]]:
    try:
        return [(label, (after, changed)) for label, after, changed in protocol.after(store, process)]
    except Broken as error:
        error.add_note(f"{told()}\n{process}: {process.step}")
        raise


def way(came: dict[State, tuple[State, str] | None], state: State) -> str:
    """The steps that lead to a state."""
    steps = []
    while (before := came[state]) is not None:
        state, label = before
        steps.append(label)
    return "\n".join(reversed(steps))
