"""Operators declare themselves: what others have to know of a node stands on its class, and nowhere else."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
import headrace.plan
from headrace.errors import PlanError
from headrace.expr import AggregateCall, col
from headrace.expr.aggregates import AGGREGATES
from headrace.operators.aggregate.accumulators import Layout
from headrace.operators.reference.plan import TWINS, WHOLE_PLANS
from headrace.operators.registry import RUN_BY_THE_STAGE, STATEFUL, kernel_of, runs_as
from headrace.operators.span import LINEAR
from headrace.plan import nodes
from headrace.plan.aggregate import Aggregate
from headrace.plan.base import Node, OneInput
from headrace.plan.coalesce import Coalesce
from headrace.plan.columns import columns_used
from headrace.plan.times import EventTimes, HeldEventTimes
from headrace.plan.windows import Snapshot, WindowKind
from headrace.sql.unbind import UNSPOKEN, NotInSql, Unbinder, unbind

STREAM = hr.events("le | re | k | x | y \n 1 | 5 | 1 | 2 | 3")


def subclasses(kind: type) -> Iterator[type]:
    for below in kind.__subclasses__():
        yield below
        yield from subclasses(below)


def ours(kind: type) -> list[type]:
    """The classes of the engine, without those of tests."""
    return [one for one in subclasses(kind) if one.__module__.startswith("headrace.")]


def leaves(kind: type) -> set[type]:
    """The classes of the engine that others of it do not derive from."""
    found = ours(kind)
    return {one for one in found if not any(one in other.__mro__[1:] for other in found)}


def test_every_node_declares_all_that_is_abstract():
    undeclared = {
        kind.__name__: sorted(getattr(kind, "__abstractmethods__", ()))
        for kind in leaves(Node) | leaves(WindowKind)
        if inspect.isabstract(kind)
    }
    assert undeclared == {}


def test_every_node_is_in_the_list_of_nodes():
    for module in pkgutil.iter_modules(headrace.plan.__path__, "headrace.plan."):
        importlib.import_module(module.name)  # also one that nobody has imported yet
    assert {kind.__name__ for kind in leaves(Node)} <= set(nodes.__all__)


def test_a_node_that_declares_nothing_cannot_be_built():
    @dataclass(frozen=True, eq=False)
    class Undeclared(OneInput):
        pass

    with pytest.raises(TypeError, match=r"abstract class Undeclared .*liveliness.*uses"):
        Undeclared(STREAM.node)


def used(stream: hr.Stream) -> set[str]:
    """The columns of the first input that a query whose readers use nothing of its own uses."""
    return stream.node.uses(0, set())


def test_columns_that_operators_use():
    other = hr.events("le | re | k | z \n 1 | 5 | 1 | 2")
    assert used(STREAM.where(col("x") > 1)) == {"x"}
    assert used(STREAM.select(a=col("x") + col("y"))) == {"x", "y"}
    assert used(STREAM.shift(3)) == set()
    assert used(STREAM.union(STREAM)) == {"k"}
    assert used(STREAM.join(other, "k", where=col("z") > col("x"))) == {"k", "x", "z"}
    assert used(STREAM.clip(other, "k")) == {"k"}
    assert used(STREAM.distinct()) == {"k", "x", "y"}
    assert used(STREAM.group_by("k").window(hr.tumbling(5)).aggregate(s=hr.sum("x"))) == {"k", "x"}
    assert used(STREAM.window(hr.sliding(2)).aggregate(s=hr.sum("x"))) >= {"k", "x", "y"}  # which decide the order


def test_columns_of_the_other_side():
    other = hr.events("le | re | k | z | w \n 1 | 5 | 1 | 2 | 3")
    joined = STREAM.join(other, "k", where=col("z") > col("x")).node
    assert joined.uses(1, {"w"}) == {"k", "z", "w"}
    clipped = STREAM.clip(other, "k").node
    assert clipped.uses(1, {"x"}) == {"k"}


def test_columns_used_of_a_plan():
    plan = STREAM.select("k", a=col("x")).where(col("k") == 1).node
    assert columns_used(plan)[STREAM.node.fingerprint] == {"k", "x"}


@pytest.mark.parametrize("function", AGGREGATES)
@pytest.mark.parametrize("insert_only", [True, False])
def test_what_adds_up_is_kept_as_sums_alone(function: str, insert_only: bool):
    stream = hr.events("le | re | s | x \n 1 | 5 | a | 2")
    stream = stream.final() if insert_only else stream
    parameters = {"quantile": (0.5,), "percentile_disc": (0.5,), "top_frequent": (2,), "concat": (",",)}.get(
        function, ()
    )
    call = AggregateCall(function, col("s" if function == "concat" else "x"), parameters)
    node = Aggregate(stream.node, (), Snapshot(), (("a", call),))
    arguments = Layout(node).arguments.values()
    assert node.adds_up == (not any(one.bag or one.mergeable_extremes for one in arguments))


# ---- what an output follows from

OTHER = hr.events("le | re | k | z \n 2 | 9 | 1 | 2")
REACHES: dict[str, tuple[Callable[[hr.Stream], hr.Stream], str]] = {
    "where": (lambda s: s.where(col("x") > 2), "event"),
    "select": (lambda s: s.select(a=col("x") + 1), "event"),
    "shift": (lambda s: s.shift(3), "event"),
    "shift back": (lambda s: s.shift(-3), "event, back in time"),
    "extend": (lambda s: s.extend(2), "event, another time"),
    "extend back": (lambda s: s.extend(-2), "event, back in time"),
    "set_duration": (lambda s: s.set_duration(2), "event, another time"),
    "cap_duration": (lambda s: s.cap_duration(2), "event, another time"),
    "point_at_start": (lambda s: s.point_at_start(), "event, another time"),
    "point_at_end": (lambda s: s.point_at_end(), "event, another time"),
    "start": (lambda s: hr.Stream(EventTimes(s.node, "start()")), "event, another time"),
    "end": (lambda s: hr.Stream(HeldEventTimes(s.node, None, "end()")), "event, back in time"),
    "alter_lifetime": (lambda s: s.alter_lifetime(duration=col("x")), "event, another time"),
    "alter_lifetime back": (lambda s: s.alter_lifetime(start=col("x"), earliest=9), "event, back in time"),
    "chop": (lambda s: s.chop(3), "event, another time"),
    "explode": (lambda s: s.select("x", y=hr.array("x", 1)).explode("y"), "event"),
    "union": (lambda s: s.union(s.shift(1)), "event"),
    "join": (lambda s: s.join(OTHER, "k"), "pair"),
    "left join": (lambda s: s.left_join(OTHER, "k"), "instant"),
    "anti join": (lambda s: s.anti_join(OTHER, "k"), "instant"),
    "clip": (lambda s: s.clip(OTHER, "k"), "streams"),
    "distinct": (lambda s: s.distinct(), "instant"),
    "snapshot": (lambda s: s.window(hr.snapshot()).aggregate(n=hr.count()), "instant"),
    "top at instants": (lambda s: s.window(hr.snapshot()).top(1, by="x"), "instant"),
    "tumbling": (lambda s: s.window(hr.tumbling(4)).aggregate(n=hr.count()), "streams"),
    "session": (lambda s: s.window(hr.session(4)).aggregate(n=hr.count()), "streams"),
    "recurse": (lambda s: hr.recurse(s, lambda found: found.where(col("x") > 9)), "instant"),
}
TWO = (
    hr.events("le | re | k | x | y \n 1 | 5 | 1 | 2 | 3 \n 2 | 4 | 1 | 3 | 3"),
    hr.events("le | re | k | x | y \n 3 | 8 | 1 | 2 | 3 \n 4 | 7 | 2 | 5 | 1"),
)


@pytest.mark.parametrize("name", REACHES)
def test_what_an_output_follows_from(name: str):
    build, reach = REACHES[name]
    assert build(STREAM).node.reach == reach


@pytest.mark.parametrize("name", [name for name, (_, reach) in REACHES.items() if reach.startswith("event")])
def test_what_is_made_of_each_event_alone_is_the_same_of_parts(name: str):
    build, one, other = REACHES[name][0], *TWO
    assert build(STREAM).node.by_event
    whole, parts = build(one.union(other)).cht(), build(one).union(build(other)).cht()
    assert hr.history_diff(whole, parts, names=("of all", "of each part")) == ""


@pytest.mark.parametrize(
    "name", [n for n, (_, r) in REACHES.items() if r in ("event", "pair", "instant") and n != "shift"]
)
def test_what_is_made_of_instants_is_the_same_wherever_events_are_cut(name: str):
    """Events that are cut in two hold the same at every instant, and so must what is made of them."""
    build, stream = REACHES[name][0], TWO[0].union(TWO[1])
    left = stream.cap_duration(1)
    right = stream.shift(1).extend(-1)  # the rest of each event, if there is any
    assert build(stream).node.instant_wise
    whole, cut = build(stream).distinct().cht(), build(left.union(right)).distinct().cht()
    assert hr.history_diff(whole, cut, names=("whole", "cut")) == ""


# ---- what runs it


def test_every_node_has_one_place_that_runs_it():
    never_run = {"GroupInput", "LoopInput"}  # which stand for streams inside `apply` and loops
    tables = (set(STATEFUL), set(LINEAR), set(RUN_BY_THE_STAGE))
    assert {kind.__name__ for kind in leaves(Node) - set().union(*tables)} == never_run
    assert sum(map(len, tables)) == len(set().union(*tables))
    assert all(not kind.linear for kind in STATEFUL)
    assert all(kind.linear for kind in (*LINEAR, *RUN_BY_THE_STAGE))


class Total(hr.Aggregate):
    """Called with all items."""

    input = "x LONG"
    output = "LONG"

    def compute(self, events: list[Any]) -> int:
        return sum(event.x for event in events)


CHOICES: dict[str, tuple[Callable[[hr.Stream], hr.Stream], str, str]] = {
    "join": (lambda s: s.join(OTHER, "k"), "JoinKernel", "columnar, incremental"),
    "sums at instants": (
        lambda s: s.window(hr.snapshot()).aggregate(n=hr.sum("x")),
        "SnapshotKernel",
        "columnar, incremental",
    ),
    "minima at instants": (
        lambda s: s.window(hr.snapshot()).aggregate(n=hr.min("x")),
        "SnapshotWindowKernel",
        "columnar, changed windows from sums; when a least or greatest value is taken back, the next is found in order",
    ),
    "medians at instants": (
        lambda s: s.window(hr.snapshot()).aggregate(n=hr.median("x")),
        "WindowKernel",
        "columnar, changed windows anew",
    ),
    "sums of sessions": (
        lambda s: s.window(hr.session(5)).aggregate(n=hr.sum("x")),
        "SessionKernel",
        "columnar, incremental; keeps sums for each session, and for each start after the CTI",
    ),
    "sums of sessions that are cut": (
        lambda s: s.window(hr.session(5, longest=20)).aggregate(n=hr.sum("x")),
        "WindowKernel",
        "columnar, changed windows anew; with longest=, all starts of a group decide",
    ),
    "medians of sessions": (
        lambda s: s.window(hr.session(5)).aggregate(n=hr.median("x")),
        "WindowKernel",
        "columnar, changed windows anew",
    ),
    "top of windows": (
        lambda s: s.window(hr.tumbling(5)).top(1, "x"),
        "GridKernel",
        "columnar, changed windows from their outputs; anew when one of these is taken back",
    ),
    "contents": (lambda s: s.window(hr.tumbling(5)).contents(), "GridKernel", "columnar, incremental"),
    "a module": (
        lambda s: s.window(hr.tumbling(5)).aggregate(n=Total().of("x")),
        "GridKernel",
        "Python; Total called for changed windows with all their items",
    ),
    "a module in sessions": (
        lambda s: s.window(hr.session(5)).aggregate(n=Total().of("x")),
        "WindowKernel",
        "Python; Total called for changed windows with all their items; reads the events of changed groups",
    ),
    "tuples": (
        lambda s: s.window(hr.sliding(2)).aggregate(n=hr.min("x")),
        "OrderedKernel",
        "columnar, open windows of changed groups anew",
    ),
    "loop": (
        lambda s: hr.recurse(s, lambda found: found.where(col("x") > 9)),
        "DistinctLoop",
        "columnar, incremental; a round costs what is new in it; by level",
    ),
    "loop that may take back": (
        lambda s: hr.recurse(s, lambda found: found.anti_join(STREAM)),
        "UnrolledLoop",
        "columnar, incremental; operators of their own for every round, since the body may take back",
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_kernel_and_how_it_runs_are_one_choice(name: str):
    build, kernel, runs = CHOICES[name]
    node = build(STREAM).node
    assert type(kernel_of(node)).__name__ == kernel
    assert runs_as(node) == runs
    assert runs in build(STREAM).explain()


def test_every_node_has_a_twin_or_is_made_for_running():
    made = {"Combine", "Merge", "Panes", "LoopStart", "LoopEnd"}  # by the optimizer, and where loops are cut open
    diverted = {"Diverted", "Failures", "Orphans"}  # by a run
    assert {kind.__name__ for kind in leaves(Node) - set(TWINS) - set(WHOLE_PLANS)} == made | diverted
    assert not set(TWINS) & set(WHOLE_PLANS)


# ---- how SQL says it


def test_every_node_is_said_in_sql_or_says_why_not():
    assert {kind.__name__ for kind in leaves(Node) - set(Unbinder.spoken) - set(UNSPOKEN)} == set()
    assert not set(Unbinder.spoken) & set(UNSPOKEN)


def test_what_sql_has_no_words_for_says_so():
    table = pa.table({"k": [1], "name": ["one"]})
    with pytest.raises(NotInSql, match="tables are joined by a name"):
        unbind(STREAM.join_table(table, on="k").node, {STREAM.node: "s"})


@dataclass(frozen=True, eq=False)
class Forgotten(Coalesce):
    """A node that nobody has found words for, nor said why there are none."""


def test_a_node_that_was_forgotten_is_not_taken_for_one_without_words():
    with pytest.raises(PlanError, match="Forgotten is neither said nor unspoken") as caught:
        unbind(Forgotten(STREAM.node), {STREAM.node: "s"})
    assert not isinstance(caught.value, NotInSql)
