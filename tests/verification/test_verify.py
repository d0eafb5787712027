"""The default run, a slice of it: generated queries over generated streams, live against batch SQL over the history."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from tests.verification.faults import fault
from tests.verification.planting import planted

import headrace as hr
from headrace import col
from headrace.errors import IntentError
from headrace.history.duckdb import DuckDBHistory
from headrace.io.origins import Events
from headrace.plan.nodes import Source
from headrace.schema import Schema
from headrace.testing import Violation, intent, traits
from headrace.testing.generators.stories import Promise
from headrace.testing.generators.traits import Traits
from headrace.testing.intents import KINDS, read_intent
from headrace.testing.verify import VerificationReport, verify_cases, verify_intent, verify_node
from headrace.testing.verify.campaign import default_cases, try_case
from headrace.testing.verify.checks import CHECKS, Trial
from headrace.testing.verify.own_query import own_cases
from headrace.testing.verify.pool import run_shares, shares_of_intents
from headrace.testing.verify.tables import coverage, operators

#: Each part tries so many cases of the default run, nearly one of each kind of query; xdist shares the parts.
PARTS, SOME, EACH = 8, 4, 27
MORE = pytest.mark.volume("more cases of each kind; test_caught.py has those that found the planted faults")


@pytest.mark.parametrize("part", [*range(SOME), *(pytest.param(part, marks=MORE) for part in range(SOME, PARTS))])
def test_the_default_run_finds_nothing(part: int):
    cases = islice(default_cases(seed=1), part * EACH, (part + 1) * EACH)
    report = verify_cases(case for _, case in cases)
    assert report.cases == EACH
    assert report.ok, str(report.failures[0])


def test_every_kind_of_query_is_in_the_default_run():
    kinds = [kind for kind, _ in islice(default_cases(0), len(KINDS))]
    assert kinds == list(KINDS)


def test_the_same_seed_makes_the_same_run():
    def told(report: VerificationReport) -> tuple[object, ...]:
        return report.rows, report.checks, report.covered

    runs = [verify_intent(read_intent("left_join over highly_out_of_order & revised"), seed=5, cases=8) for _ in "12"]
    assert told(runs[0]) == told(runs[1])
    assert told(runs[0]) != told(verify_intent(read_intent("left_join"), seed=6, cases=8))


def test_several_processes_share_a_run():
    told: list[int] = []
    shares = shares_of_intents(["where", "shift"], seed=3, cases=12, jobs=2, stop_after=1)
    report = run_shares(shares, 2, lambda part: told.append(part.cases))
    alone = run_shares(shares_of_intents(["where", "shift"], 3, 12, 1, 1), 1, lambda _: None)
    assert report.ok
    assert (report.cases, report.rows, report.covered) == (12, alone.rows, alone.covered)
    assert told[-1] == 12


@pytest.mark.volume("which checks chance chooses; test_every_check_can_be_asked_alone tries each")
def test_all_checks_are_asked_sooner_or_later():
    report = verify_intent(intent.where(), seed=0, cases=80)
    assert set(report.checks) == set(CHECKS)


@pytest.mark.parametrize("check", [name for name in CHECKS if name not in ("output", "history")])
def test_every_check_can_be_asked_alone(check: str):
    oracle = DuckDBHistory()
    try:
        made = (case for _, case in default_cases(4) if case.physical)
        assert try_case(next(made), oracle, only=[check]) is None
        with pytest.raises(IntentError, match="no check"):
            try_case(next(made), oracle, only=["chekc"])
    finally:
        oracle.close()


def test_streams_come_in_many_ways():
    """In batches that end with CTIs, all but one at once, and as rows of which some are wanted."""
    cases = [case for _, case in islice(default_cases(2), 300)]
    ends = [told.steps[told.cuts[0] - 1] for case in cases for told in case.streams if told.cuts]
    assert {type(step) for step in ends} == {int, Promise}
    several = [[len(told.cuts) for told in case.streams] for case in cases if len(case.streams) > 1]
    assert any(max(counts) > 1 and sorted(counts)[-2] == 0 for counts in several)
    assert any("where" in str(feed) for case in cases for feed in case.feeds)


def test_the_twins_are_asked_about_queries_for_each_group():
    assert verify_intent(intent.group_apply(), seed=0, cases=6).checks["twins"] > 3


# --- what is told of a failure --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def failed() -> VerificationReport:
    with planted(fault("session that ends one tick late")):
        return verify_intent(intent.aggregate(window="session", function="count"), seed=2, cases=200)


def test_a_failure_is_told_on_the_smallest_stream(failed: VerificationReport):
    (failure,) = failed.failures
    assert failure.check == "history"
    assert failure.rows <= 2
    text = str(failure)
    assert "only in live" in text
    assert "hr.session" in text
    assert failure.case in text


def test_what_is_told_of_a_failure_is_a_program_that_shows_it(failed: VerificationReport):
    (failure,) = failed.failures
    program = str(failure).split("rows):\n")[1]
    names: dict[str, object] = {"hr": hr}
    exec(program, names)  # noqa: S102 - our own text
    stream = names["out"]
    assert isinstance(stream, hr.Stream)
    assert stream.verify(seeds=0) is not None  # right without the fault
    with planted(fault("session that ends one tick late")):
        exec(program, names)  # noqa: S102 - same; plans remember what they derived
        assert isinstance(names["out"], hr.Stream)
        with pytest.raises(Violation, match="not that of the history"):
            names["out"].verify(seeds=0)


def test_coverage_is_told_as_tables():
    report = verify_intent(intent.equi_join(over=traits.in_order | traits.out_of_order), seed=1, cases=10)
    header, row = operators(report)
    assert header[0] == "operator"
    assert row[0] == "equi_join"
    assert row[2] == row[4] == "–"  # neither slightly nor highly out of order
    assert sum(int(cell) for cell in row[1:] if cell != "–") >= 10
    assert {"duration", "disorder", "ctis", "payload", "fed as"} <= {row[0] for row in coverage(report)}


# --- a user's own query ---------------------------------------------------------------------------------------------


def own_queries(folder: Path) -> dict[str, hr.Stream]:
    (folder / "ticks.csv").write_text(
        "symbol,at,price,quantity\nA,2024-05-01T00:00:00Z,10.5,3\nB,2024-05-01T00:00:04Z,2,1\n"
    )
    columns = "symbol STRING, at DATETIME, price DOUBLE, quantity INT"
    progress = hr.advance("10 s", late="divert")
    ticks = hr.read_csv(str(folder / "ticks.csv"), columns, lifetime=hr.point("at"), progress=progress)
    signal = hr.read_csv(str(folder / "ticks.csv"), columns, lifetime=hr.edge("at", key="symbol"), progress=progress)
    spans = "code STRING, a LONG, b LONG"
    pa_rows = pa.table([["x", "y"], [1, 2], [5, 9]], schema=Schema.of(spans).arrow)
    intervals = hr.Stream(Source(Events(pa_rows), Schema.of(spans), hr.interval("a", "b"), hr.explicit()))
    orders = [{"op": "insert", "ts": 1, "id": 1, "v": 3}, {"op": "delete", "ts": 4, "id": 1, "v": None}]
    return {
        "changes": hr.read_changes(orders, key="id", at="ts").window(hr.snapshot()).aggregate(v=hr.sum("v")),
        "log": hr.read_changes(orders, "id LONG, v LONG", key="id"),
        "vwap": ticks.where(col("quantity") > 0)
        .group_by("symbol")
        .window(hr.hopping("60 s", every="10 s"))
        .aggregate(vwap=hr.sum(col("price") * col("quantity")) / hr.sum("quantity"), n=hr.count()),
        "signal": signal.window(hr.snapshot()).aggregate(total=hr.sum("price")),
        "apply": ticks.group_by("symbol").apply(lambda g: g.set_duration("30 s").top(2, by="price")),
        "join": ticks.set_duration("20 s").join(signal, on="symbol", where=col("price") > col("price_right")),
        "intervals": intervals.where(col("code") == "x").group_by("code").window(hr.session(3)).aggregate(n=hr.count()),
    }


@pytest.mark.parametrize("name", ["vwap", "signal", "apply", "join", "intervals", "changes", "log"])
def test_own_queries_are_verified(name: str, tmp_path: Path):
    seeds = max(8, settings().max_examples // 4)
    report = own_queries(tmp_path)[name].verify(seeds=seeds, seed=3)
    assert report.cases == seeds
    assert report.rows > 2 * seeds


def test_own_streams_reach_what_the_query_asks_for(tmp_path: Path):
    stream = own_queries(tmp_path)["vwap"]
    with planted(fault("in the window that starts at its end")):
        report = verify_node(own_queries(tmp_path)["vwap"].node, seed=1, cases=60)
    assert not report.ok
    assert stream.verify(seeds=5, over="highly_out_of_order & revised").covered["speculation"]["revised"] == 5


def test_nonsense_is_refused(tmp_path: Path):
    stream = own_queries(tmp_path)["vwap"]
    with pytest.raises(hr.HeadraceError, match="seeds"):
        stream.verify(seeds=-1)
    with pytest.raises(IntentError, match="highly_out"):
        stream.verify(over="highly_out_of_ordr")


def test_what_is_told_as_covered_was_tried(tmp_path: Path):
    report = own_queries(tmp_path)["signal"].verify(seeds=5, over="revised & infinite & eager_ctis")
    assert set(report.covered["speculation"]) == {"certain"}  # samples of a signal bring no corrections
    assert set(report.covered["duration"]) == {"points"}
    assert "ctis" not in report.covered


def test_own_data_is_left_out_where_it_is_not_stored_what_came_late():
    schema = Schema.of("t LONG, k STRING")
    rows = pa.table([[1, 2], ["a", "b"]], schema=schema.arrow)
    stream = hr.Stream(Source(Events(rows), schema, hr.point("t"), hr.heartbeat("1 s")))
    assert stream.verify(seeds=3).cases == 3


def test_policies_of_modules_are_told():
    stream = hr.events("le | re | k | x\n1 | 5 | a | 2.5")
    query = stream.window(hr.tumbling(4), clipping="full").aggregate(x=hr.time_weighted_avg("x"))
    assert set(query.verify(seeds=3).policies) == {"full align"}


def test_a_failure_says_how_to_repeat_it(failed: VerificationReport):
    text = str(failed.failures[0])
    asked = str(intent.aggregate(window="session", function="count"))
    assert f"headrace verify --intent {asked!r} --case {failed.failures[0].case}" in text


@pytest.mark.parametrize(
    ("lifetime", "number"),
    [(hr.point("ts", unit="ms"), 1), (hr.edge(col("ts") * 10, "k"), 3)],
    ids=["an instant of dates", "samples"],
)
def test_a_lifetime_may_be_computed_from_columns(tmp_path: Path, lifetime: Any, number: int):
    """The answer of a query of dates has dates, also moved ones; samples have the times that are generated."""
    (tmp_path / "a.csv").write_text("k,ts,d\na,1,2\n")
    rows = hr.read_csv(str(tmp_path / "a.csv"), schema="k STRING, ts LONG, d LONG", lifetime=lifetime)
    query = rows.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count())
    case = next(islice(own_cases(query.node, Traits(), 3), number, None))
    with Trial(case, DuckDBHistory()) as trial:
        for check in ("output", "history", "times"):
            CHECKS[check](trial)
