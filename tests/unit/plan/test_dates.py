"""A stream remembers whether its times are dates (rule 1.1): `Node.dates`, derived for every node of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.plan.test_declared import leaves

import headrace as hr
from headrace.api.stream import Stream
from headrace.expr import col
from headrace.optimizer import optimize
from headrace.plan.nodes import EdgeLifetimes, GroupApply, Node, Output, diverted_streams, walk
from headrace.stages.spread import spread_loops

NUMBERS = hr.events("le | re | k | x | y \n 1 | 5 | 1 | 2 | 3")
DATES = hr.events("le | re | k | x | y \n 2024-05-01 | ∞ | 1 | 2 | 3")
OTHER = hr.events("le | re | k | z \n 2 | 9 | 1 | 2")
TABLE = pa.table({"k": [1], "name": ["one"]})


class Total(hr.IncrementalAggregate):
    """A sum whose states merge."""

    input = "x LONG"
    output = "LONG"
    algebraic = True

    def initial(self) -> int:
        return 0

    def add(self, state: int, values: list[Any]) -> int:
        return state + sum(values)

    def merge(self, left: int, right: int) -> int:
        return left + right

    def compute(self, state: int) -> int:
        return state


class Size(hr.Operator):
    """The number of items of a window."""

    input = "x LONG"
    output = "size LONG"

    def compute(self, values: list[Any]) -> Any:
        yield len(values)


BUILDS: dict[str, Callable[[hr.Stream], hr.Stream]] = {
    "where": lambda s: s.where(col("x") > 2),
    "select": lambda s: s.select(a=col("x") + 1),
    "shift": lambda s: s.shift(3),
    "extend": lambda s: s.extend(2),
    "set_duration": lambda s: s.set_duration(2),
    "cap_duration": lambda s: s.cap_duration(2),
    "point_at_start": lambda s: s.point_at_start(),
    "point_at_end": lambda s: s.point_at_end(),
    "times": lambda s: s.where(hr.start() < hr.end()),
    "starts": lambda s: s.select(at=hr.start()),
    "alter_lifetime": lambda s: s.alter_lifetime(duration=col("x")),
    "chop": lambda s: s.chop("1 d"),
    "explode": lambda s: s.with_columns(y=hr.array(1, 2)).explode("y"),
    "union": lambda s: s.union(s.shift(1)),
    "join": lambda s: s.join(s.select("k", z=col("x")), "k"),
    "left join": lambda s: s.left_join(s.select("k", z=col("x")), "k"),
    "clip": lambda s: s.clip(s.select("k"), "k"),
    "distinct": lambda s: s.distinct(),
    "table": lambda s: s.join_table(TABLE, on="k"),
    "final": lambda s: s.final(),
    "tumbling": lambda s: s.group_by("k").window(hr.tumbling(4)).aggregate(n=hr.count()),
    "session": lambda s: s.window(hr.session(4)).aggregate(n=hr.count()),
    "module": lambda s: s.final().window(hr.tumbling(4)).aggregate(n=Total().of("x")),
    "module that may fail": lambda s: s.window(hr.tumbling(4), on_error="skip").aggregate(n=Total().of("x")),
    "operator": lambda s: s.window(hr.tumbling(4)).operate(Size(), "x"),
    "top": lambda s: s.window(hr.snapshot()).top(1, by="x"),
    "contents": lambda s: s.window(hr.tumbling(5)).contents(),
    "tuples": lambda s: s.point_at_start().window(hr.sliding(2)).aggregate(n=hr.min("x")),
    "over": lambda s: s.point_at_start().over(rows=2).aggregate(n=hr.min("x")),
    "fold": lambda s: s.point_at_start().over(range=5, active=True).aggregate(n=Total().of("x")),
    "match": lambda s: s.point_at_start().match(hr.pattern("A B", define={"A": col("x") > 1}), n=hr.count()),
    "samples": lambda s: Stream(EdgeLifetimes(s.point_at_start().node, ("k",))),
    "apply": lambda s: s.group_by("k").apply(lambda group: group.where(col("x") > 1)),
    "loop": lambda s: hr.recurse(s, lambda found: found.join(s.select("k"), "k").select("k", "x", "y")),
    "loop across buckets": lambda s: hr.recurse(
        s,
        lambda found: found.join(s.select("k", a=col("x")), on={"x": "k"}).select("k", x=col("a"), y=col("y")),
    ),
    "diverted": lambda s: s.diverted(),
}


def nodes_of(*streams: hr.Stream) -> Iterator[Node]:
    """Every node of the plans, as they are written and as they run, inside loops and groups too."""
    outputs = tuple(Output(stream.node, f"out {i}") for i, stream in enumerate(streams))
    running = optimize(outputs)
    for plan in (outputs, running, spread_loops(running)):
        for node in walk(*plan, *diverted_streams(*plan, whole=True)):
            yield node
            yield from walk(*node.inside)
            yield from walk(node.body) if isinstance(node, GroupApply) else ()


@pytest.mark.parametrize("name", BUILDS)
def test_every_node_of_a_plan_knows_whether_its_times_are_dates(name: str):
    assert {node.dates for node in nodes_of(BUILDS[name](DATES))} == {True}
    assert {node.dates for node in nodes_of(BUILDS[name](NUMBERS))} == {False}


def test_the_plans_here_have_nodes_of_every_class():
    built = [build(DATES) for build in BUILDS.values()]
    found = {type(node) for node in nodes_of(*built)}
    assert {kind.__name__ for kind in leaves(Node) - found} == set()


@pytest.mark.parametrize(
    ("lifetime", "dates"),
    [
        (hr.point("at"), True),
        (hr.point("n"), False),
        (hr.interval("n", "at"), True),
        (hr.interval("n", "n"), False),
        (hr.edge("at", key="x"), True),
        (hr.edge("n", key="x"), False),
        (hr.by_arrival(), True),
    ],
)
def test_the_lifetime_of_rows_shows_it(lifetime: Any, dates: bool, tmp_path: Path):
    stream = hr.read_csv(str(tmp_path / "*.csv"), "at DATETIME, n LONG, x LONG", lifetime=lifetime)
    assert {node.dates for node in nodes_of(stream, stream.diverted())} == {dates}


@pytest.mark.parametrize(
    ("time", "dates"),
    [
        (5, False),
        ("5", False),
        (1_714_521_600_000_000, False),  # however large a number is
        ("-5", False),
        (5.0, False),
        ("2024-05-01", True),
        ("2024-05-01T12:00:00Z", True),
        (date(2024, 5, 1), True),
        (datetime(2024, 5, 1, tzinfo=UTC), True),
        (datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC), True),  # however small
    ],
)
def test_events_in_memory_have_the_times_that_are_given(time: Any, dates: bool):
    assert hr.events([{"le": time, "x": 1}]).node.dates is dates
    assert (
        hr.events([{"kind": "insert", "le": time, "re": "inf", "x": 1}, {"kind": "cti", "le": time}]).node.dates
        is dates
    )


def test_a_null_end_of_dates_is_endless_and_a_missing_one_is_an_instant():
    start = datetime(2024, 5, 1, tzinfo=UTC)
    endless = {"kind": "insert", "le": start, "re": "inf", "x": 1}
    table = pa.table({"le": [start], "re": pa.nulls(1, pa.timestamp("us")), "x": [1]})
    for data in ([{"le": start, "re": None, "x": 1}], table, table.to_pandas()):
        assert hr.same_history(hr.events(data).cht(), hr.events([endless]).cht())
    drawn = hr.events("le | re | x \n 2024-05-01 | | 1")
    assert hr.same_history(hr.events([{"le": start, "x": 1}]).cht(), drawn.cht())


def test_where_dates_and_numbers_meet_all_are_dates():
    assert DATES.join(OTHER, "k").node.dates
    assert OTHER.join(DATES, "k").node.dates
    assert NUMBERS.union(DATES).node.dates
    assert not NUMBERS.join(OTHER, "k").node.dates


def test_a_loop_has_dates_if_its_seed_or_another_stream_has():
    def reached(seed: hr.Stream, other: hr.Stream) -> hr.Stream:
        return hr.recurse(seed, lambda found: found.join(other.select("k"), "k").select("k", "x", "y"))

    def result(loop: hr.Stream) -> set[bool]:
        return {node.dates for node in walk(*loop.node.inside) if getattr(node, "name", "").startswith("result")}

    for seed, other, dates in ((DATES, NUMBERS, True), (NUMBERS, DATES, True), (NUMBERS, NUMBERS.shift(1), False)):
        loop = reached(seed, other)
        assert (loop.node.dates, result(loop)) == (dates, {dates})
    assert loop.node.with_inputs(
        DATES.node, DATES.shift(1).select("k").node
    ).dates  # as of a table, when it is followed


def test_arrivals_in_memory_are_dates_if_they_come_from_dates():
    ticks = hr.generated("trades", rows=3)
    text = "SELECT symbol, count(*) AS n FROM s [SIZE 2] GROUP BY symbol"
    assert hr.sql(text, s=ticks).node.dates
    numbered = hr.events("le | re | symbol \n 1 | 2 | A \n 3 | 4 | A")
    assert not hr.sql(text, s=numbered).node.dates
