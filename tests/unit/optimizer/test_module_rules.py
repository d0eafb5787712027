"""The rules for modules (6.5): each shows in the plan and in `explain`, and changes no history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.api.running import outputs_of
from headrace.host.local import run_local
from headrace.optimizer import RULES, optimize
from headrace.optimizer.combine_modules import combine_modules
from headrace.optimizer.filter_before_windows import filter_before_windows
from headrace.plan.nodes import Aggregate, Node, Operate, Panes, PerWindow, Top, Where, walk


class Mean(hr.IncrementalAggregate):
    """The mean, from a sum and a count: algebraic."""

    input = "value DOUBLE"
    output = "DOUBLE"

    def initial(self) -> Any:
        return 0.0, 0

    def add(self, state: Any, items: list[float]) -> Any:
        return state[0] + sum(items), state[1] + len(items)

    def remove(self, state: Any, items: list[float]) -> Any:
        return state[0] - sum(items), state[1] - len(items)

    def merge(self, state: Any, other: Any) -> Any:
        return state[0] + other[0], state[1] + other[1]

    def compute(self, state: Any) -> float:
        return state[0] / state[1]


class PerSymbol(hr.Operator):
    """The largest value of each symbol: what is said of one does not depend on the others."""

    filter_through = ("symbol",)
    input = "symbol STRING, value DOUBLE"
    output = "symbol STRING, largest DOUBLE"

    def compute(self, rows: list[Any]) -> Any:
        for symbol in sorted({row.symbol for row in rows}):
            yield symbol, max(row.value for row in rows if row.symbol == symbol)


@pytest.fixture
def ticks(tmp_path: Path) -> hr.Stream:
    rows = "".join(f"{t},{'ABC'[t % 3]},{t % 7}.5\n" for t in range(60))
    for number in range(3):
        part = "\n".join(rows.splitlines()[number::3])
        (tmp_path / f"{number}.csv").write_text(f"t,k,x\n{part}\n")
    return hr.read_csv(str(tmp_path), "t LONG, k STRING, x DOUBLE", lifetime=hr.point("t"), progress=hr.advance(60))


def plan(stream: hr.Stream, *rules: Any) -> list[Node]:
    return list(walk(*optimize(outputs_of({"out": stream.node}), rules)))


def order(nodes: list[Node]) -> list[type]:
    return [type(node) for node in nodes if isinstance(node, (Where, PerWindow, Panes))]


def same_without(stream: hr.Stream, rule: Any) -> bool:
    """Whether the history is the same without a rule, in several batches and buckets."""
    outputs = outputs_of({"out": stream.node})
    rules = [other for other in RULES if other is not rule]
    with_it = run_local(outputs, buckets=3, batch_rows=7).results["out"].cht()
    assert with_it.num_rows, "an empty history proves nothing"
    return hr.same_history(with_it, run_local(outputs, rules=rules).results["out"].cht())


def test_algebraic_modules_combine_before_the_shuffle(ticks: hr.Stream):
    means = ticks.group_by("k").window(hr.hopping(10, 4)).aggregate(m=Mean().of("x"), twice=Mean().of("x") * 2)
    assert order(plan(means)) == [Aggregate]
    assert order(plan(means, combine_modules)) == [Panes, Aggregate]
    told = means.explain()
    assert "Panes for Aggregate" in told.partition("stage 1")[0], "states are made where the rows are read"
    assert "merged Mean" in told.partition("stage 1")[2]
    assert same_without(means, combine_modules)


def test_fewer_rows_cross_the_shuffle(ticks: hr.Stream):
    means = ticks.window(hr.tumbling(10)).aggregate(m=Mean().of("x"))
    panes = [node for node in plan(means, combine_modules) if isinstance(node, Panes)]
    (made,) = run_local(outputs_of({"out": panes[0]}), rules=()).results["out"].batches[:1]
    assert len(made[0]) == 6, "a state for each window of a batch, not one for each of its 60 rows"


@pytest.mark.parametrize("why", ["retractions", "snapshot", "skip", "not algebraic"])
def test_modules_stay_whole_where_states_cannot_be_made_before(ticks: hr.Stream, why: str):
    stream = hr.events("le | re | k | x \n 1 | 4 | A | 2.0 \n 2 | 9 | B | 3.0") if why == "retractions" else ticks
    window = hr.snapshot() if why == "snapshot" else hr.tumbling(10)
    calls = {"m": Mean().of("x")} | ({"n": hr.count()} if why == "not algebraic" else {})
    means = stream.group_by("k").window(window, on_error="skip" if why == "skip" else "fail").aggregate(**calls)
    assert Panes not in order(plan(means, combine_modules))


def test_a_filter_on_keys_goes_before_windows(ticks: hr.Stream):
    best = ticks.group_by("k").window(hr.tumbling(10)).top(2, by="x").where((col("k") == "A") & (col("x") > 1.0))
    assert order(plan(best)) == [Top, Where]
    nodes = plan(best, filter_before_windows)
    assert order(nodes) == [Where, Top, Where]
    assert [str(node.predicate) for node in nodes if isinstance(node, Where)] == ["k = 'A'", "x > 1.0"]
    assert same_without(best, filter_before_windows)


def test_a_filter_goes_through_a_module_that_lets_it(ticks: hr.Stream):
    largest = ticks.window(hr.tumbling(10)).operate(PerSymbol(), symbol=col("k").lower(), value="x")
    kept = largest.where(col("symbol") == "b")
    assert order(plan(kept, filter_before_windows)) == [Where, Operate]
    assert "Where lower(k) = 'b'" in kept.explain()
    assert order(plan(largest.where(col("largest") > 1.0), filter_before_windows)) == [Operate, Where]
    assert same_without(kept, filter_before_windows)


@pytest.mark.parametrize("why", ["snapshot", "endless"])
def test_a_filter_stays_behind_where_windows_depend_on_what_it_leaves_out(why: str):
    end = "∞" if why == "endless" else "9"
    stream = hr.events(f"le | re | k | x \n 1 | {end} | a | 2.0 \n 2 | 25 | b | 3.0 \n 3 | 5 | b | 3.0")
    window = hr.snapshot() if why == "snapshot" else hr.tumbling(10)
    kept = stream.window(window).operate(PerSymbol(), symbol="k", value="x").where(col("symbol") == "a")
    assert order(plan(kept, filter_before_windows)) == [Operate, Where]
    assert same_without(kept, filter_before_windows)


def test_a_filter_stays_behind_what_others_read_too(ticks: hr.Stream):
    counted = ticks.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count())
    both = counted.where(col("k") == "A").union(counted)
    assert order(plan(both, filter_before_windows)) == [Aggregate, Where]


def test_invertible_modules_are_told_apart(ticks: hr.Stream):
    told = ticks.window(hr.snapshot()).aggregate(m=Mean().of("x")).explain()
    assert "Mean keeps a state that takes changes in and out (invertible)" in told
