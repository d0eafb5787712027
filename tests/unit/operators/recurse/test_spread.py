"""Loops that go across buckets: what goes round travels from batch to batch, and new input comes in on every trip."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field

import pytest
from tests.unit.operators.recurse.loops import EDGES, SEEDS, closure
from tests.unit.operators.recurse.test_closure import Row, Told, searched

import headrace as hr
from headrace import col
from headrace.errors import Diverged, HostError
from headrace.host.local.run import Runner, batches_of
from headrace.host.result import Result
from headrace.operators.recurse.trips import TripReport, Trips
from headrace.optimizer import optimize
from headrace.plan.nodes import Output
from headrace.stages.cut import Line, cut
from headrace.testing import check_output
from headrace.time import INFINITY, NEG_INFINITY

STRATEGIES = ("hwm", "probing", "hybrid")


@dataclass
class Freely:
    """A run whose loops never come to rest before the next batch; it may be restored at any moment."""

    line: Line
    buckets: int
    rng: random.Random
    restarts: bool = False
    runner: Runner = field(init=False)

    def __post_init__(self) -> None:
        self.runner = Runner(self.line, self.buckets, None, drain=False)

    def run(self) -> Result:
        feeds = {source.fingerprint: list(batches_of(source)) for source in self.line.sources}
        while any(feeds.values()):
            mine = {f: batches.pop(0) for f, batches in feeds.items() if batches and self.rng.random() < 0.7}
            self.runner.round(mine)
            self._restart()
        self.runner.end_of_input()
        while self.runner.feedback:
            self._restart()
            self.runner.trip()
        (result,) = self.runner.done.results.values()
        return result

    def _restart(self) -> None:
        if self.restarts and self.rng.random() < 0.5:
            self.runner = Runner.restored(self.line, self.buckets, None, self.runner.save(), drain=False)


def freely(stream: hr.Stream, buckets: int, rng: random.Random, *, restarts: bool = False) -> Result:
    line = cut(optimize([Output(stream.node, "out")]), buckets)
    assert line.loops
    return Freely(line, buckets, rng, restarts).run()


def rows(result: Result) -> set[Row]:
    check_output(result.events())
    found = result.cht().to_pylist()
    return {(row.pop("le"), row.pop("re"), tuple(row.values())) for row in found}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_oracle_free_running_reachability(seed: int):
    rng = random.Random(seed)
    starts, edges = Told(rng, ("node",)), Told(rng, ("src", "dst"))
    for _ in range(80):
        rng.choice([starts, edges, edges, edges]).tell()
    links = edges.stream()
    query = hr.recurse(
        starts.stream(),
        lambda found: found.join(links, on={"node": "src"}).select(node=col("dst")),
        progress=STRATEGIES[seed % 3],
    )
    result = freely(query, 2 + seed % 3, rng, restarts=seed % 2 == 0)
    assert rows(result) == searched(edges.alive, starts.alive)
    assert result.batches[-1][1].cti == INFINITY


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_oracle_free_running_pairs(seed: int):
    rng = random.Random(seed)
    edges = Told(rng, ("src", "dst"))
    for _ in range(50):
        edges.tell()
    result = freely(closure(edges.stream()), 2 + seed % 3, rng, restarts=seed % 2 == 0)
    assert rows(result) == searched(edges.alive, edges.alive)


@pytest.mark.parametrize("seed", SEEDS)
def test_differential_free_running_bags(seed: int):
    rng = random.Random(seed)
    edges = Told(rng, ("src", "dst"))
    for _ in range(30):
        edges.tell()
    query = closure(edges.stream().where(col("src") < col("dst")), distinct=False)
    found = freely(query, 2 + seed % 3, rng, restarts=seed % 2 == 0)
    assert hr.history_diff(query.cht(), found.cht(), names=("at rest", "freely")) == ""


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_chain_takes_a_trip_a_round_and_promises_leave_as_guesses_come_home(strategy: str):
    links = [{"kind": "insert", "le": t, "re": "inf", "src": t, "dst": t + 1} for t in range(6)]
    begin = [{"kind": "insert", "le": 0, "re": "inf", "node": 0}, {"kind": "cti", "le": 4}]
    edges = hr.events([*links, {"kind": "cti", "le": 3}], "src LONG, dst LONG")
    found = hr.recurse(
        hr.events(begin, "node LONG"),
        lambda mine: mine.join(edges, on={"node": "src"}).select(node=col("dst")),
        progress=strategy,  # type: ignore[arg-type]
    )
    line = cut(optimize([Output(found.node, "out")]), 2)
    runner = Runner(line, 2, None, drain=False)
    runner.round({source.fingerprint: next(batches_of(source)) for source in line.sources})
    told = []
    while runner.feedback:
        runner.trip()
        told.append(runner.done.results["out"].batches[-1][1].cti)
    rounds = [len(changes) for changes, _ in runner.done.results["out"].batches]
    assert rounds[:7] == [1] * 7  # the seed, then a node a trip
    assert sum(rounds) == 7
    assert told == sorted(told)
    assert told[-1] == 3, "as far as both inputs have promised, and there it rests"
    assert len(told) < 12


def test_what_comes_too_early_to_be_sure_of_is_not_promised():
    trips = Trips("hybrid")
    trips.hear([])
    trips.hear([TripReport(1, home=9, rows=2, earliest=5, latest=7), TripReport(1, home=9, held=6, pending=3)])
    assert (trips.definite, trips.turn, trips.circulating) == (5, 1, 2)
    assert trips.teaches(6)
    assert not trips.teaches(5)
    trips.hear([TripReport(2, home=9, held=6, pending=3)])
    assert (trips.definite, trips.turn, trips.fresh) == (6, 3, False)
    trips.hear([TripReport(3, home=9, later=2, held=6)])
    assert (trips.turn, trips.fresh) == (2, True)
    trips.hear([TripReport(4, home=INFINITY)])
    assert (trips.definite, trips.turn, trips.fresh) == (INFINITY, 0, True)


def test_the_highest_time_is_promised_once_all_of_it_is_proved():
    trips = Trips("hwm")
    trips.hear([])
    trips.hear([TripReport(1, home=9, rows=1, earliest=5, latest=7)])
    trips.hear([TripReport(2, home=7, rows=1, earliest=9, latest=9)])
    assert trips.definite == NEG_INFINITY, "the guess was 8"
    assert not trips.teaches(7)
    assert trips.teaches(8)
    trips.hear([TripReport(3, home=9)])
    assert trips.definite == 8
    trips.hear([TripReport(4, home=12)])
    assert trips.definite == 10, "the next guess, behind the highest time seen by then"
    trips.hear([TripReport(5, home=15)])
    assert trips.definite == 10


def test_a_guess_that_has_just_set_out_is_not_home():
    trips = Trips("hwm")
    trips.hear([])
    trips.hear([TripReport(1, home=INFINITY, rows=1, earliest=5, latest=7)])
    assert trips.definite == NEG_INFINITY, "5 is on its way"
    trips.hear([TripReport(2, home=INFINITY, rows=1, earliest=6, latest=6)])
    assert trips.definite == NEG_INFINITY, "the guess was 8, and 6 came past: it goes round once more"
    trips.hear([TripReport(3, home=INFINITY, rows=1, earliest=9, latest=9)])
    assert trips.definite == 8
    trips.hear([TripReport(4, home=INFINITY)])
    assert trips.definite == INFINITY


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_known_outlives_a_restart(strategy: str):
    trips = Trips(strategy)  # type: ignore[arg-type]
    for number, report in enumerate([[], [TripReport(1, home=9, rows=2, earliest=5, latest=7, later=3)]]):
        trips.hear(report)
        again = Trips.from_json(json.loads(json.dumps(trips.to_json())))
        assert again == trips, number


def test_a_trip_that_is_lost_or_comes_twice_is_found_out():
    trips = Trips("hybrid")
    trips.hear([])
    with pytest.raises(HostError, match="changes of a loop are lost, or arrived twice"):
        trips.hear([TripReport(0, home=9)])


@pytest.mark.parametrize("distinct", [True, False])
def test_a_loop_across_buckets_that_never_ends_is_stopped(distinct: bool):
    begin = hr.events([{"kind": "insert", "le": 0, "re": "inf", "node": 0}], "node LONG")
    step = hr.events([{"kind": "insert", "le": 0, "re": "inf", "by": n} for n in (1, 2)], "by LONG")
    query = hr.recurse(
        begin, lambda f: f.join(step).select(node=col("node") + col("by")), distinct=distinct, max_rounds=20
    )
    with pytest.raises(
        Diverged, match=r"has not come to rest after 20 rounds: Select node = node . by keeps giving"
    ) as told:
        query.run(buckets=3)
    assert re.search(r"changes in its last rounds: [\d,]+( → [\d,]+){3,}", str(told.value)), told.value


def test_explain_says_that_a_loop_goes_across_buckets():
    edges = hr.events([], "src LONG, dst LONG")
    assert "across buckets, if there are several: one round per trip" in closure(edges).explain()
    keyed = hr.recurse(edges, lambda f: f.where(col("dst") > 0).select("src", dst=col("dst") - 1))
    assert "across buckets" not in keyed.explain()


def links(*pairs: tuple[int, int]) -> list[dict[str, object]]:
    return [{"kind": "insert", "le": 0, "re": "inf", "src": src, "dst": dst} for src, dst in pairs]


def begun(*rows: dict[str, object]) -> hr.Stream:
    return hr.events(list(rows), "node LONG", batches=[1] * len(rows))


def paths(seed: hr.Stream, edges: hr.Stream, **options: object) -> hr.Stream:
    return hr.recurse(seed, lambda f: f.join(edges, on={"node": "src"}).select(node=col("dst")), **options)  # type: ignore[arg-type]


def trip_by_trip(query: hr.Stream, *feeds: dict[str, int]) -> Result:
    """Batches of the sources by their columns, so many at a time, or a trip where there are none."""
    line = cut(optimize([Output(query.node, "out")]), 2)
    runner = Runner(line, 2, None, drain=False)
    sources = {s.schema.names[0]: (s.fingerprint, batches_of(s)) for s in line.sources}
    for feed in feeds:
        given = {
            sources[name][0]: [b for _ in range(count) for b in next(sources[name][1])] for name, count in feed.items()
        }
        runner.round(given)
    runner.end()
    return runner.done.results["out"]


def test_an_event_and_its_retraction_do_not_chase_each_other_round_a_ring():
    """The historical divergence of the paper's section 6, for all derivations: they wait for their turns, and meet."""
    there = {"kind": "insert", "le": 0, "re": "inf", "node": 1}
    gone = {"kind": "retract", "le": 0, "re": "inf", "re_new": 0, "node": 1}
    edges = hr.events([*links((1, 2), (2, 3), (3, 4)), *links((4, 1))], EDGES, batches=[3, 1])
    query = paths(begun(there, gone), edges, distinct=False)
    found = trip_by_trip(query, {"src": 1, "node": 1}, *[{}] * 9, {"node": 1}, {"src": 1})
    assert found.cht().num_rows == 0


def test_what_comes_too_late_for_its_round_does_not_count_as_depth():
    there = {"kind": "insert", "le": 0, "re": "inf", "node": 0}
    chain = links(*((n, n + 1) for n in range(5)))
    edges = hr.events([*chain, *links((0, 10), (5, 10), (10, 11), (11, 12))], EDGES, batches=[5, 4])
    query = paths(begun(there), edges, max_rounds=6)
    found = trip_by_trip(query, {"src": 1, "node": 1}, {}, {}, {"src": 1})
    assert {row["node"] for row in found.cht().to_pylist()} == {0, 1, 2, 3, 4, 5, 10, 11, 12}


def test_a_column_may_be_called_as_one_of_the_engine_might_be():
    edges = hr.events([{"round_1": 1, "round_1_lost": 2, "le": 0, "re": 9}], "round_1 LONG, round_1_lost LONG")
    query = hr.recurse(edges, lambda f: f.join(edges, on={"round_1_lost": "round_1"}).select("round_1", "round_1_lost"))
    assert query.run(buckets=3).cht().num_rows == 1


@pytest.mark.parametrize("distinct", [True, False])
def test_progress_tells_of_loops_across_buckets(distinct: bool):
    there = {"kind": "insert", "le": 0, "re": "inf", "node": 0}
    query = paths(begun(there), hr.events(links(*((n, n + 1) for n in range(5))), EDGES), distinct=distinct)
    (loop,) = query.run(buckets=3).progress()["loops"]
    assert loop["circulated_in_all"] == 6
    assert loop["most_rounds"] >= 2
    assert loop["trips"] >= 6
