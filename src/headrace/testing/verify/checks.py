"""What must hold of a case: its answer is that of batch SQL over the history, its output keeps its promises, and what
should make no difference makes none.

The first three checks are absolute. The others are *metamorphic*: they run the same query another way, over the same
stream told another way, and compare the two answers. So they would find a mistake that the oracle shares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from headrace.api.stream import Stream
from headrace.events import history_diff
from headrace.expr import Expr, col
from headrace.history.duckdb import DuckDBHistory
from headrace.host.local.run import Runner, batches_of, run_local
from headrace.host.result import Result
from headrace.optimizer import RULES, Rule
from headrace.optimizer.read_tables import read_tables
from headrace.plan.nodes import Admit, EdgeLifetimes, Final, Node, Output, PerWindow, sources_of, walk
from headrace.plan.ordered import Fixed, Landmark, Ordered
from headrace.plan.windows import Grid
from headrace.schema import Schema, Type
from headrace.sql import sql
from headrace.sql.unbind import NoWords, unbind
from headrace.stages.cut import line_of
from headrace.testing.batches import check_same_batches
from headrace.testing.checks import Violation, check_output
from headrace.testing.generators.stories import Promise, Story, Told
from headrace.testing.order import check_order
from headrace.testing.verify.case import VerifyCase, cut_randomly
from headrace.testing.verify.differential import differential_reference
from headrace.time import INFINITY

__all__ = ["ALWAYS", "CHECKS", "VARIANTS", "Trial", "Unasked"]

#: Twins look at every batch anew and one row at a time: so many rows are enough for them.
MOST_ROWS_FOR_TWINS = 40


class Unasked(Exception):
    """A check has nothing to say of a case."""


@dataclass
class Trial:
    """A case on its way through the checks: what several of them need is computed once."""

    case: VerifyCase
    oracle: DuckDBHistory

    def __post_init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="headrace-verify-")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    @cached_property
    def node(self) -> Node:
        """The plan."""
        return self.case.plan(Path(self._folder.name) / "own").node

    @cached_property
    def result(self) -> Result:
        """What the live query gave."""
        run = restarted if self.case.interrupted else live
        return run(self.node, self.case.buckets)

    @cached_property
    def cht(self) -> pa.Table:
        """Its history."""
        return self.result.cht()

    def same(self, other: pa.Table, name: str) -> None:
        """Raise unless another history is that of the live query."""
        difference = history_diff(self.cht, other, names=("as it was", name))
        if difference:
            raise Violation(difference)

    def told_again(self, streams: tuple[Told, ...]) -> Node:
        """The plan over streams that say the same."""
        return self.case.over(streams).plan(Path(self._folder.name) / "again").node


def live(node: Node, buckets: int, rules: tuple[Rule, ...] = RULES) -> Result:
    """What a plan gives on the local host."""
    return run_local([Output(node, "out")], buckets=buckets, rules=rules).results["out"]


def restarted(node: Node, buckets: int) -> Result:
    """The same, by a process that dies after every batch and another that goes on from what was saved."""
    line = line_of([Output(node, "out")], buckets)
    feeds = {source.fingerprint: list(batches_of(source)) for source in line.sources}
    runner = Runner(line, buckets, None)
    for number in range(max(map(len, feeds.values()), default=0)):
        runner.round({f: blocks[number] for f, blocks in feeds.items() if number < len(blocks)})
        runner = Runner.restored(line, buckets, None, runner.save())
    runner.end()
    return runner.done.results["out"]


# --- absolute --------------------------------------------------------------------------------------------------------


def history(trial: Trial) -> None:
    """The live answer is that of batch SQL over the history (rule 10.1)."""
    difference = history_diff(trial.cht, trial.oracle.cht(trial.node), names=("live", "history"))
    if difference:
        raise Violation(difference)


def output(trial: Trial) -> None:
    """No promise is broken, and shape and order are as declared: corrections follow what they correct (rule 10.2)."""
    events = trial.result.events()
    check_output(events, trial.case.shape)
    check_order(events, trial.case.order)


def in_sql(trial: Trial) -> None:
    """The query said in SQL is the same query, or gives the same answer; what SQL has no words for is not asked."""
    names = {node: f"s{number}" for number, node in enumerate(_inputs(trial.node))}
    try:
        spoken = unbind(trial.node, names)
    except NoWords:
        raise Unasked from None
    streams: dict[str, Any] = {name: Stream(node) for node, name in names.items()}
    bound = sql(spoken.text, functions=spoken.functions, **streams).node
    if bound != trial.node:
        trial.same(live(bound, trial.case.buckets).cht(), f"in SQL:\n{spoken.text}\n")


def _inputs(node: Node) -> list[Node]:
    """The streams that a query begins with, each as it enters."""
    nodes = list(walk(node))
    entering = [n for n in nodes if isinstance(n, (Admit, EdgeLifetimes))]
    return entering + [n for n in sources_of(node) if not any(n == e.input for e in entering)]


def twins(trial: Trial) -> None:
    """After every batch, history and CTI are those of the slow twins; and the oracle agrees with them."""
    if trial.case.rows > MOST_ROWS_FOR_TWINS:
        raise Unasked
    differential_reference(trial.node, buckets=trial.case.buckets)


# --- the same query, run another way --------------------------------------------------------------------------------


def buckets(trial: Trial) -> None:
    """The number of partitions does not show."""
    trial.same(live(trial.node, 1 if trial.case.buckets > 1 else 3).cht(), "in other buckets")


def optimizer(trial: Trial) -> None:
    """The optimizer's rules change nothing."""
    trial.same(live(trial.node, trial.case.buckets, (read_tables,)).cht(), "without the optimizer")


def final(trial: Trial) -> None:
    """What only lets out what is final takes nothing back, and has the same history (rule 3.5)."""
    result = live(Final(trial.node), trial.case.buckets)
    check_output(result.events(), retractions=False)
    trial.same(result.cht(), "final")


def determinism(trial: Trial) -> None:
    """A second run gives the same events in the same order."""
    again = (restarted if trial.case.interrupted else live)(trial.node, trial.case.buckets).events()
    if repr(again.to_pylist()) != repr(trial.result.events().to_pylist()):  # as text, NaN equals itself
        raise Violation("a second run gave other events, or in another order")


def restart(trial: Trial) -> None:
    """Processes that die after every batch, and others that go on from what was saved, show in no batch."""
    runs = [run(trial.node, trial.case.buckets) for run in (restarted, live)]
    check_same_batches(runs[0], runs[1], "restarted after every batch")


def partition(trial: Trial) -> None:
    """The answers for which a condition is true, false and unknown are together all answers."""
    stream = Stream(trial.node)
    condition = _condition(stream.schema, trial.case.random)
    parts = [stream.where(condition), stream.where(~condition), stream.where(condition.is_null())]
    trial.same(live(parts[0].union(*parts[1:]).node, trial.case.buckets).cht(), f"in three parts by {condition}")


def _condition(schema: Schema, random: Random) -> Expr:
    column = random.choice(schema.fields)
    if column.type.is_numeric:
        return col(column.name) > random.choice((0, 1))
    if column.type is Type.BOOLEAN:
        return col(column.name)
    if column.type.is_text:
        return col(column.name) > "a"
    return col(column.name).is_null()


# --- the same streams, told another way -----------------------------------------------------------------------------


def batches(trial: Trial) -> None:
    """How the rows are cut into batches does not show."""
    random = trial.case.random
    trial.same(_again(trial, lambda told: told.in_batches(cut_randomly(len(told), random))), "in other batches")


def arrival(trial: Trial) -> None:
    """Rows between two CTIs may change places."""
    random = trial.case.random

    def mixed(told: Told) -> Told:
        steps: list[int | Promise] = []
        part: list[int | Promise] = []
        for step in [*told.steps, None]:
            if isinstance(step, int):
                part.append(step)
                continue
            random.shuffle(part)
            steps += part if step is None else [*part, step]
            part = []
        return replace(told, steps=tuple(steps))

    trial.same(_again(trial, mixed), "in another order")


def corrections(trial: Trial) -> None:
    """An event may be told wrongly first and corrected at once."""
    random = trial.case.random

    def wrongly(told: Told) -> Told:
        wrong = {number for number in range(len(told.stories)) if random.random() < 0.5}
        stories = tuple(
            replace(story, ends=(_other_end(story, random), *story.ends)) if number in wrong else story
            for number, story in enumerate(told.stories)
        )
        steps: list[int | Promise] = []
        for step, which in zip(told.steps, told.told(), strict=True):
            first = not isinstance(which, Promise) and which[1] == 0
            steps += [step, step] if first and step in wrong else [step]
        return Told(told.schema, stories, tuple(steps)).in_batches(cut_randomly(len(steps), random))

    trial.same(_again(trial, wrongly), "told wrongly first")


def _other_end(story: Story, random: Random) -> int:
    first = story.ends[0]
    finite = story.le + 3 if first == INFINITY else first
    return random.choice([end for end in (finite + 2, story.le + 1, INFINITY) if end != first])


def times(trial: Trial) -> None:
    """When everything happens later by as much as windows repeat, so do the answers; unless a module tells the time."""
    windows = [n for n in walk(trial.node) if isinstance(n, PerWindow)]
    if any(n.sensitive for n in windows):
        raise Unasked
    if any(isinstance(n.window, (Fixed, Landmark)) for n in windows):  # which are bound to a time
        raise Unasked
    hops = [n.window.hop for n in windows if isinstance(n.window, (Grid, Ordered)) and n.window.hop is not None]
    by = lcm(*hops) * (1 + 7 // lcm(*hops))
    if by > 2**40:
        raise Unasked

    def moved(time: int) -> int:
        return time if time == INFINITY else time + by

    def later(told: Told) -> Told:
        stories = tuple(replace(s, le=moved(s.le), ends=tuple(map(moved, s.ends))) for s in told.stories)
        steps = tuple(Promise(moved(s.time)) if isinstance(s, Promise) else s for s in told.steps)
        return replace(told, stories=stories, steps=steps)

    cht = _again(trial, later)
    for name in ("le", "re"):
        back = pc.if_else(pc.equal(cht[name], INFINITY), cht[name], pc.subtract(cht[name], by))
        cht = cht.set_column(cht.schema.get_field_index(name), name, back)
    trial.same(cht, f"{by} ticks later")


def _again(trial: Trial, change: Callable[[Told], Told]) -> pa.Table:
    streams = tuple(map(change, trial.case.streams))
    return live(trial.told_again(streams), trial.case.buckets).cht()


Check = Callable[[Trial], None]

#: What is asked of every case.
ALWAYS: Mapping[str, Check] = {"output": output, "history": history, "sql": in_sql}
#: Of these, one or two are asked of each case, in turn. The last four need streams of which only the history counts.
VARIANTS: Mapping[str, Check] = {
    "twins": twins,
    "buckets": buckets,
    "optimizer": optimizer,
    "final": final,
    "determinism": determinism,
    "restart": restart,
    "partition": partition,
    "batches": batches,
    "arrival": arrival,
    "corrections": corrections,
    "times": times,
}
CHECKS: Mapping[str, Check] = {**ALWAYS, **VARIANTS}
