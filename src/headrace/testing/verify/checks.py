"""The checks of a case: its answer equals batch SQL over the history, its output keeps its promises, and variations
that must not matter do not.

The first three checks are absolute. The others are *metamorphic*: they run the same query another way, or over an
equivalent stream, and compare the two answers. So they find mistakes that the oracle shares.
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
from headrace.border import as_ticks, shown
from headrace.events import history_diff
from headrace.expr import Expr, col
from headrace.history.duckdb import DuckDBHistory
from headrace.host.local.run import Runner, batches_of, run_local
from headrace.host.result import Result
from headrace.optimizer import RULES, Rule
from headrace.optimizer.read_tables import read_tables
from headrace.plan.calendar import Calendar
from headrace.plan.nodes import (
    Admit,
    AlterLifetime,
    Chop,
    EdgeLifetimes,
    EventTimes,
    Final,
    Node,
    Output,
    PerWindow,
    sources_of,
    walk,
)
from headrace.plan.ordered import Fixed, Landmark, Ordered
from headrace.plan.windows import Hopping
from headrace.schema import Schema, Type
from headrace.sql import sql
from headrace.sql.unbind import NotInSql, unbind
from headrace.stages.cut import line_of
from headrace.testing.batches import check_same_batches
from headrace.testing.checks import Violation, check_output
from headrace.testing.generators.stories import Promise, Story, StoryStream
from headrace.testing.order import check_order
from headrace.testing.verify.case import VerifyCase, cut_randomly
from headrace.testing.verify.differential import differential_reference
from headrace.time import INFINITY

__all__ = ["ALWAYS", "CHECKS", "VARIANTS", "NotApplicable", "Trial"]

#: The most rows of a case for the twins, which recompute every batch one row at a time.
MOST_ROWS_FOR_TWINS = 40


class NotApplicable(Exception):
    """A check does not apply to a case."""


@dataclass
class Trial:
    """A case under test: results that several checks need are computed once."""

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
        """The result of the live query."""
        run = restarted if self.case.interrupted else live
        return run(self.node, self.case.buckets)

    @cached_property
    def cht(self) -> pa.Table:
        """The history of the live query."""
        return self.result.cht()

    def same(self, other: pa.Table, name: str) -> None:
        """Raise unless another history equals the live query's."""
        difference = history_diff(self.cht, other, names=("as it was", name))
        if difference:
            raise Violation(difference)

    def plan_over(self, streams: tuple[StoryStream, ...]) -> Node:
        """The plan over equivalent streams."""
        return self.case.with_streams(streams).plan(Path(self._folder.name) / "again").node


def live(node: Node, buckets: int, rules: tuple[Rule, ...] = RULES) -> Result:
    """The result of a plan on the local host."""
    return run_local([Output(node, "out")], buckets=buckets, rules=rules).results["out"]


def restarted(node: Node, buckets: int) -> Result:
    """The result of a plan whose process dies after every batch and is restored from the saved state."""
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
    """The live answer equals batch SQL over the history (rule 10.1)."""
    difference = history_diff(trial.cht, trial.oracle.cht(trial.node), names=("live", "history"))
    if difference:
        raise Violation(difference)


def output(trial: Trial) -> None:
    """No promise is broken, and shape and order are as declared: corrections follow what they correct (rule 10.2)."""
    events = trial.result.events()
    check_output(events, trial.case.shape)
    check_order(events, trial.case.order)


def in_sql(trial: Trial) -> None:
    """The query in SQL is the same plan, or gives the same answer; queries that SQL cannot express are skipped."""
    names = {node: f"s{number}" for number, node in enumerate(_inputs(trial.node))}
    try:
        statement = unbind(trial.node, names)
    except NotInSql:
        raise NotApplicable from None
    streams: dict[str, Any] = {name: Stream(node) for node, name in names.items()}
    bound = sql(statement.text, functions=statement.functions, **streams).node
    if bound != trial.node:
        trial.same(live(bound, trial.case.buckets).cht(), f"in SQL:\n{statement.text}\n")


def _inputs(node: Node) -> list[Node]:
    """The input streams of a query, each after its ingress."""
    nodes = list(walk(node))
    entering = [n for n in nodes if isinstance(n, (Admit, EdgeLifetimes))]
    return entering + [n for n in sources_of(node) if not any(n == e.input for e in entering)]


def twins(trial: Trial) -> None:
    """After every batch, history and CTI are those of the slow twins; and the oracle agrees with them."""
    if trial.case.rows > MOST_ROWS_FOR_TWINS:
        raise NotApplicable
    differential_reference(trial.node, buckets=trial.case.buckets)


# --- the same query, run another way --------------------------------------------------------------------------------


def buckets(trial: Trial) -> None:
    """The number of buckets does not change the answer."""
    trial.same(live(trial.node, 1 if trial.case.buckets > 1 else 3).cht(), "in other buckets")


def optimizer(trial: Trial) -> None:
    """The optimizer's rules do not change the answer."""
    trial.same(live(trial.node, trial.case.buckets, (read_tables,)).cht(), "without the optimizer")


def final(trial: Trial) -> None:
    """The final stream has no retractions, and the same history (rule 3.5)."""
    result = live(Final(trial.node), trial.case.buckets)
    check_output(result.events(), retractions=False)
    trial.same(result.cht(), "final")


def determinism(trial: Trial) -> None:
    """A second run gives the same events in the same order."""
    again = (restarted if trial.case.interrupted else live)(trial.node, trial.case.buckets).events()
    if repr(again.to_pylist()) != repr(trial.result.events().to_pylist()):  # as text, NaN equals itself
        raise Violation("a second run gave other events, or in another order")


def restart(trial: Trial) -> None:
    """Restarts after every batch change no batch."""
    runs = [run(trial.node, trial.case.buckets) for run in (restarted, live)]
    check_same_batches(runs[0], runs[1], "restarted after every batch")


def partition(trial: Trial) -> None:
    """The answers for which a condition is true, false and unknown add up to all answers."""
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


# --- equivalent streams ---------------------------------------------------------------------------------------------


def batches(trial: Trial) -> None:
    """The division of rows into batches does not change the answer."""
    random = trial.case.random
    trial.same(_again(trial, lambda stream: stream.in_batches(cut_randomly(len(stream), random))), "in other batches")


def arrival(trial: Trial) -> None:
    """Rows between two CTIs may change places; where arrival orders rows that start together, these may not."""
    random = trial.case.random
    ordered = any(source.stamped for source in sources_of(trial.node))

    def shuffle(stream: StoryStream) -> StoryStream:
        steps: list[int | Promise] = []
        part: list[int] = []

        def start(number: int) -> int:
            return stream.stories[number].le

        for step in [*stream.steps, None]:
            if isinstance(step, int):
                part.append(step)
                continue
            before = list(part)
            random.shuffle(part)
            if ordered:
                waiting = {le: [number for number in before if start(number) == le] for le in map(start, part)}
                part = [waiting[le].pop(0) for le in map(start, part)]
            steps += part if step is None else [*part, step]
            part = []
        return replace(stream, steps=tuple(steps))

    trial.same(_again(trial, shuffle), "in another order")


def corrections(trial: Trial) -> None:
    """An event may have a wrong end first and be corrected at once."""
    random = trial.case.random

    def with_wrong_ends(stream: StoryStream) -> StoryStream:
        wrong = {number for number in range(len(stream.stories)) if random.random() < 0.5}
        stories = tuple(
            replace(story, ends=(_other_end(story, random), *story.ends)) if number in wrong else story
            for number, story in enumerate(stream.stories)
        )
        steps: list[int | Promise] = []
        for step, which in zip(stream.steps, stream.numbered_steps(), strict=True):
            first = not isinstance(which, Promise) and which[1] == 0
            steps += [step, step] if first and step in wrong else [step]
        return StoryStream(stream.schema, stories, tuple(steps)).in_batches(cut_randomly(len(steps), random))

    trial.same(_again(trial, with_wrong_ends), "with wrong ends first")


def _other_end(story: Story, random: Random) -> int:
    first = story.ends[0]
    finite = story.le + 3 if first == INFINITY else first
    return random.choice([end for end in (finite + 2, story.le + 1, INFINITY) if end != first])


def times(trial: Trial) -> None:
    """If all times move by a multiple of the windows' period, so do the answers, unless something else sees times."""
    nodes = [part for n in walk(trial.node) for part in (n, *walk(*n.inside))]
    windows = [n for n in nodes if isinstance(n, PerWindow)]
    if any(n.sensitive for n in windows) or any(isinstance(n, (AlterLifetime, EventTimes)) for n in nodes):
        raise NotApplicable
    if any(isinstance(n.window, (Calendar, Fixed, Landmark)) for n in windows):  # which have fixed times
        raise NotApplicable
    hops = [n.window.hop for n in windows if isinstance(n.window, (Hopping, Ordered)) and n.window.hop is not None]
    hops += [n.every for n in nodes if isinstance(n, Chop)]
    by = lcm(*hops) * (1 + 7 // lcm(*hops))
    if by > 2**40:
        raise NotApplicable

    def moved(time: int) -> int:
        return time if time == INFINITY else time + by

    def later(stream: StoryStream) -> StoryStream:
        stories = tuple(replace(s, le=moved(s.le), ends=tuple(map(moved, s.ends))) for s in stream.stories)
        steps = tuple(Promise(moved(s.time)) if isinstance(s, Promise) else s for s in stream.steps)
        return replace(stream, stories=stories, steps=steps)

    cht = as_ticks(_again(trial, later))
    for name in ("le", "re"):
        back = pc.if_else(pc.equal(cht[name], INFINITY), cht[name], pc.subtract(cht[name], by))
        cht = cht.set_column(cht.schema.get_field_index(name), name, back)
    trial.same(shown(cht, dates=trial.node.dates), f"{by} ticks later")


def _again(trial: Trial, change: Callable[[StoryStream], StoryStream]) -> pa.Table:
    streams = tuple(map(change, trial.case.streams))
    return live(trial.plan_over(streams), trial.case.buckets).cht()


Check = Callable[[Trial], None]

#: The checks of every case.
ALWAYS: Mapping[str, Check] = {"output": output, "history": history, "sql": in_sql}
#: Each case gets one or two of these, in turn. The last four need streams of which only the history matters.
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
