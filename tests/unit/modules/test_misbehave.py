"""Modules that misbehave: the query stops with an error that helps, or their windows alone are left out and counted.

Every module here goes wrong when the value 13 is among its items and is otherwise right, so that group `a` has one bad
window and everything else must come out exactly (rule 6 and `on_error`).
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.fixtures.waiting import PATIENCE

import headrace as hr
from headrace.errors import ModuleFailed
from headrace.operators.per_window import calling

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose

TRADES = """
    kind   | le | re | k | x
    insert | 1  | 2  | a | 1.0
    insert | 3  | 4  | a | 13.0
    insert | 5  | 6  | a | 4.0
    insert | 12 | 13 | a | 5.0
    insert | 2  | 3  | b | 6.0
    insert | 15 | 16 | b | 7.0
"""
EXACT = [(0, 10, "b", 6.0), (10, 20, "a", 5.0), (10, 20, "b", 7.0)]


class Sum(hr.Aggregate):
    input = "v DOUBLE"
    output = "DOUBLE"

    def compute(self, values: list[float]) -> Any:
        return self.wrong(values) if 13.0 in values else sum(values)

    def wrong(self, values: list[float]) -> Any:
        raise NotImplementedError


class Raises(Sum):
    def wrong(self, values: list[float]) -> Any:
        raise ValueError(f"cannot take {values[values.index(13.0)]}")


class Exits(Sum):
    def wrong(self, values: list[float]) -> Any:
        sys.exit(f"{len(values)} is enough")


class Recurses(Sum):
    def wrong(self, values: list[float]) -> Any:
        return self.wrong(values)


class GivesText(Sum):
    def wrong(self, values: list[float]) -> Any:
        return f"{len(values)} values"


class GivesList(Sum):
    def wrong(self, values: list[float]) -> Any:
        return values


class Counts(Sum):
    """Not deterministic: it remembers how often it was called."""

    calls = itertools.count()

    def wrong(self, values: list[float]) -> Any:
        return sum(values) + next(self.calls)


class Sorts(Sum):
    def wrong(self, values: list[float]) -> Any:
        values.sort(reverse=True)
        return values[0]


class Empties(Sum):
    def wrong(self, values: list[float]) -> Any:
        total = sum(values)
        values.clear()
        return total


class Loops(Sum):
    def wrong(self, values: list[float]) -> Any:
        while values:
            with contextlib.suppress(Exception):  # even one that catches everything must be stopped
                time.sleep(0.001)


class Each(hr.Operator):
    input = "v DOUBLE"
    output = "o DOUBLE"

    def compute(self, values: list[float]) -> Any:
        return self.wrong(values) if 13.0 in values else [sum(values)]

    def wrong(self, values: list[float]) -> Any:
        raise NotImplementedError


class GivesOtherColumns(Each):
    def wrong(self, values: list[float]) -> Any:
        return [{"price": v} for v in values]


class GivesTooMany(Each):
    def wrong(self, values: list[float]) -> Any:
        return [(v, v) for v in values]


class GivesNumber(Each):
    def wrong(self, values: list[float]) -> Any:
        return len(values)


class NeverEnds(Each):
    def wrong(self, values: list[float]) -> Iterator[float]:
        while True:
            yield values[0]


class Spans(hr.Operator):
    """Time-sensitive: the sum, for a lifetime of its own."""

    input = "v DOUBLE"
    output = "o DOUBLE"
    time_sensitive = True

    def compute(self, events: list[Any], window: Any) -> Any:
        bad = any(e.v == 13.0 for e in events)
        le, re = self.wrong(window) if bad else (window.le, window.re)
        return [self.event(le, re, sum(e.v for e in events))]

    def wrong(self, window: Any) -> Any:
        raise NotImplementedError


class StartsEarly(Spans):
    def wrong(self, window: Any) -> Any:
        return window.le - 1, window.re


class EndsAtOnce(Spans):
    def wrong(self, window: Any) -> Any:
        return window.le, window.le


class TellsNoTime(Spans):
    def wrong(self, window: Any) -> Any:
        return str(window.le), window.re


class Grows(hr.IncrementalAggregate):
    input = "v DOUBLE"
    output = "DOUBLE"

    def initial(self) -> dict[str, Any]:
        return {"sum": 0.0, "ballast": b""}

    def add(self, state: dict[str, Any], items: list[float]) -> None:
        state["sum"] += sum(items)
        if 13.0 in items:
            self.wrong(state)

    def wrong(self, state: dict[str, Any]) -> None:
        state["ballast"] = bytes(calling._MOST_STATE_BYTES)

    def compute(self, state: dict[str, Any]) -> float:
        return float(state["sum"])


class KeepsLock(Grows):
    def wrong(self, state: dict[str, Any]) -> None:
        state["ballast"] = threading.Lock()


def query(module: Any, window: Any = None, table: str = TRADES, batches: Any = None, **policy: Any) -> hr.Stream:
    stream = hr.events(table, batches=batches) if batches else hr.events(table)
    windowed = stream.group_by("k").window(window or hr.tumbling(10), **policy)
    if isinstance(module, hr.Operator):
        return windowed.operate(module, "x")
    return windowed.aggregate(v=module.of("x"))


def rows(table: Any) -> list[tuple]:
    return [tuple(row.values()) for row in table.to_pylist()]


CASES: list[tuple[Any, dict[str, Any], str]] = [
    (Raises(), {}, "it raised ValueError: cannot take 13.0"),
    (Recurses(), {}, "it raised RecursionError"),
    (Exits(), {}, "it raised SystemExit"),
    (GivesText(), {}, "values', which is no DOUBLE"),
    (GivesList(), {}, "which is no DOUBLE"),
    (Counts(), {"verify": True}, "not deterministic"),
    (Sorts(), {"verify": True}, "changes the list it is given"),
    (Empties(), {"verify": True}, "changes the list it is given"),
    (Loops(), {"time_limit": 0.3}, "did not return within 0.3 s"),
    (GivesOtherColumns(), {}, "it gave the columns price, not o"),
    (GivesTooMany(), {}, "it gave 2 values, not o"),
    (GivesNumber(), {}, "not a list of outputs"),
    (StartsEarly(), {}, "starts at -1, before its window"),
    (StartsEarly(), {"timestamping": "unchanged", "clipping": "full"}, "starts at -1, before its window"),
    (EndsAtOnce(), {}, "lasts from 0 to 0"),
    (EndsAtOnce(), {"timestamping": "clip"}, "lasts from 0 to 0"),
    (TellsNoTime(), {}, "lasts from '0' to 10"),
    (Grows(), {}, "its state for one window has grown to"),
    (KeepsLock(), {}, "it raised TypeError: cannot pickle"),
]
each_case = pytest.mark.parametrize(
    ("module", "policy", "reason"), CASES, ids=[f"{m.name}-{'-'.join(map(str, p.values()))}" for m, p, _ in CASES]
)


@each_case
def test_a_failure_stops_the_query_and_says_all_there_is_to_know(module: Any, policy: dict[str, Any], reason: str):
    with pytest.raises(ModuleFailed) as caught:
        query(module, **policy).run()
    text = str(caught.value)
    assert str(module) in text, "which module"
    assert "window 0 .. 10" in text, "which window"
    assert "k = 'a'" in text, "which group"
    assert reason in text, "what it did"
    assert any(getattr(item, "v", item) == 13.0 for item in caught.value.given), "what to"
    assert len(caught.value.given) <= 2, "and nothing that does not matter"


@pytest.mark.slow
@each_case
@pytest.mark.parametrize(("batches", "buckets"), [(None, 1), ([1] * 6, 3)])
def test_a_failing_window_is_left_out_and_its_neighbours_are_exact(
    module: Any, policy: dict[str, Any], reason: str, batches: Any, buckets: int
):
    stream = query(module, on_error="skip", batches=batches, **policy)
    run = stream.run(buckets=buckets)
    assert rows(run.cht()) == EXACT
    ((le, re, source, why, file, line, what),) = rows(run.diverted())
    assert (file, line) == (None, None), "a window has no place in a file"
    assert (le, re, source, what) == (0, 10, str(module), "window 0 .. 10, k = 'a'")
    assert reason in why
    assert run.counts[str(module)] == {"failed": 1}
    assert rows(stream.diverted().cht(buckets=buckets))[0][2] == str(module)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_outputs_without_end_are_stopped(on_error: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(calling, "_MOST_OUTPUTS", 10_000)
    stream = query(NeverEnds(), on_error=on_error)
    if on_error == "fail":
        with pytest.raises(ModuleFailed, match="more than 10,000 outputs for one window"):
            stream.run()
        return
    run = stream.run()
    assert rows(run.cht()) == EXACT
    assert "more than 10,000 outputs" in run.diverted()["reason"].to_pylist()[0]


def in_thread(call: Any) -> Any:
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(call())
        except Exception as error:  # noqa: BLE001 - handed over to the thread that looks at it
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    return found[0]


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_module_that_never_returns_is_stopped_in_a_worker_thread_too(on_error: str):
    found = in_thread(query(Loops(), time_limit=0.3, on_error=on_error).run)
    if on_error == "fail":
        assert isinstance(found, ModuleFailed)
        assert "did not return within 0.3 s" in str(found)
    else:
        assert rows(found.cht()) == EXACT
        assert found.counts["Loops()"] == {"failed": 1}


@pytest.mark.parametrize("in_worker", [False, True])
def test_a_time_limit_that_is_kept_changes_nothing(in_worker: bool):
    class Twice(hr.Aggregate):
        input = "v DOUBLE"
        output = "DOUBLE"

        def compute(self, values: list[float]) -> float:
            return 2 * sum(values)

    run = query(Twice(), time_limit=30.0).run
    found = in_thread(run) if in_worker else run()
    assert [row[-1] for row in rows(found.cht())] == [36.0, 12.0, 10.0, 14.0]


def test_an_alarm_of_somebody_else_still_rings():
    rang: list[int] = []
    handler = signal.signal(signal.SIGALRM, lambda *_: rang.append(1))
    left = signal.setitimer(signal.ITIMER_REAL, 60.0)  # what pytest's own time limit has set comes back at the end
    try:
        query(Loops(), time_limit=0.3, on_error="skip").run()
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60.0
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        signal.sigtimedwait([], 0.1)
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *left)
    assert rang == [1]


@pytest.mark.slow
def test_a_time_limit_that_is_just_met_breaks_nothing_behind_it():
    """The alarm for a call that takes about as long as it may must not go off in what comes after it."""

    class Takes(hr.Aggregate):
        input = "v DOUBLE"
        output = "DOUBLE"

        def compute(self, values: list[float]) -> float:
            end = time.monotonic() + 0.01
            while time.monotonic() < end:
                pass
            return sum(values)

    for _ in range(20):
        found = in_thread(query(Takes(), time_limit=0.0101, on_error="skip").run)
        assert found.cht().num_rows + found.diverted().num_rows == 4


def test_without_verify_a_module_may_do_as_it_likes_with_its_list():
    stream = query(Empties())
    assert rows(stream.cht()) == [(0, 10, "a", 18.0), *EXACT]


@pytest.mark.parametrize("timestamping", ["clip", "align"])
def test_an_early_start_is_cut_off_where_the_policy_says_so(timestamping: Any):
    assert rows(query(StartsEarly(), timestamping=timestamping).cht()) == [(0, 10, "a", 18.0), *EXACT]


CORRECTED = """
    kind    | le | re | re_new | k | x
    insert  | 1  | 2  |        | a | 1.0
    insert  | 3  | 4  |        | a | 13.0
    insert  | 12 | 13 |        | a | 5.0
    insert  | 2  | 3  |        | b | 6.0
    retract | 3  | 4  | 3      | a | 13.0
"""


@pytest.mark.parametrize("batches", [[5], [4, 1], [1] * 5])
@pytest.mark.parametrize("window", [hr.tumbling(10), hr.snapshot(), hr.count_by_start(1), hr.session(3)], ids=str)
def test_a_correction_cures_a_window(batches: list[int], window: Any):
    """What fails is a function of what the window holds, as any answer: a cured window is not diverted any more."""
    run = query(Raises(), window, CORRECTED, batches, on_error="skip").run()
    without = "\n".join(line for line in CORRECTED.splitlines() if "13.0" not in line)
    assert rows(run.cht()) == rows(query(Raises(), window, without).cht())
    assert run.diverted().num_rows == 0
    assert run.counts.get("Raises()", {"failed": 0}) == {"failed": 0}


def test_a_window_fails_when_a_correction_brings_what_it_cannot_take():
    table = """
        kind   | le | re | k | x
        insert | 1  | 2  | a | 1.0
        insert | 12 | 13 | a | 5.0
        insert | 3  | 4  | a | 13.0
    """
    run = query(Raises(), table=table, batches=[2, 1], on_error="skip").run()
    assert [(e["kind"], e["le"], e["v"]) for e in run.events().to_pylist() if e["kind"] != "cti"] == [
        ("insert", 0, 1.0),
        ("retract", 0, 1.0),
        ("insert", 10, 5.0),
    ]
    assert run.diverted().num_rows == 1


def test_a_failing_module_takes_the_whole_row_of_its_window_with_it():
    stream = hr.events(TRADES).group_by("k").window(hr.tumbling(10), on_error="skip")
    run = stream.aggregate(v=Raises().of("x"), n=hr.count(), most=hr.max("x")).run()
    assert rows(run.cht()) == [(0, 10, "b", 6.0, 1, 6.0), (10, 20, "a", 5.0, 1, 5.0), (10, 20, "b", 7.0, 1, 7.0)]


def test_what_is_said_of_a_window_does_not_depend_on_the_batch_it_came_in():
    table = TRADES + "    insert | 17 | 18 | b | 13.0\n"
    told = [
        rows(query(StartsEarly(), table=table, on_error="skip", batches=b).run().diverted()) for b in ([7], [1] * 7)
    ]
    assert told[0] == told[1]
    assert [row[3][:32] for row in told[0]] == ["it gave an event that starts at ", "it gave an event that starts at "]
    assert "starts at 9," in told[0][1][3]


def test_the_search_for_the_smallest_input_comes_to_an_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(calling, "_PATIENCE", 0.2)
    table = "kind | le | re | k | x\n" + "\n".join(f"insert | {i % 9} | {i % 9 + 1} | a | 13.0" for i in range(200))
    started = time.monotonic()
    with pytest.raises(ModuleFailed, match="did not return"):
        query(Loops(), table=table, time_limit=0.1).run()
    assert time.monotonic() - started < 60  # it would be 20 s for each of 200 rows


def test_counts_add_up_over_groups_and_windows():
    table = TRADES + "    insert | 17 | 18 | b | 13.0\n"
    run = query(Raises(), hr.hopping(10, every=5), table, on_error="skip", batches=[1] * 7).run(buckets=2)
    # 13 is in the windows of `a` from -5 and 0, and in those of `b` from 10 and 15.
    assert run.counts["Raises()"] == {"failed": 4} == {"failed": run.diverted().num_rows}
    assert rows(run.cht()) == [
        (-5, 5, "b", 6.0), (0, 10, "b", 6.0), (5, 15, "a", 9.0), (10, 20, "a", 5.0),
    ]  # fmt: skip


def test_an_operator_that_breaks_its_time_bound_is_an_error():
    class Late(hr.Operator):
        input = "v DOUBLE"
        output = "o DOUBLE"
        time_sensitive = True

        def compute(self, events: list[Any], window: Any) -> Any:
            return [self.event(window.le, window.re, sum(e.v for e in events))]

    with pytest.raises(ModuleFailed, match="before the input that caused it"):
        query(Late(), timestamping="time_bound", batches=[1] * 6).run()


def test_the_smallest_input_is_shown_whatever_its_size():
    class NoThree(hr.Aggregate):
        input = "v DOUBLE"
        output = "DOUBLE"

        def compute(self, values: list[float]) -> float:
            if len(set(values)) > 3:
                raise ValueError("more than three kinds")
            return 0.0

    table = "kind | le | re | k | x\n" + "\n".join(
        f"insert | {i % 9} | {i % 9 + 1} | a | {i % 50}.0" for i in range(300)
    )
    with pytest.raises(ModuleFailed) as caught:
        query(NoThree(), table=table).run()
    assert len(caught.value.given) == len(set(caught.value.given)) == 4


class ReadsBadly(hr.IncrementalAggregate):
    """Goes wrong when its state is read, or an item is taken from it."""

    input = "v DOUBLE"
    output = "DOUBLE"

    def __init__(self, where: str) -> None:
        self.where = where

    def initial(self) -> list[float]:
        return []

    def add(self, state: list[float], items: list[float]) -> None:
        state.extend(items)

    def remove(self, state: list[float], items: list[float]) -> None:
        if self.where == "remove":
            raise ValueError(f"cannot take back {items}")
        for item in items:
            state.remove(item)

    def compute(self, state: list[float]) -> float:
        if self.where == "compute" and 13.0 in state:
            raise ValueError("cannot read 13.0")
        return sum(state)


@pytest.mark.parametrize("where", ["compute", "remove"])
def test_the_failure_of_a_state_shows_the_items_it_was_made_of(where: str):
    with pytest.raises(ModuleFailed) as caught:
        query(ReadsBadly(where), table=CORRECTED, batches=[4, 1]).run()
    assert caught.value.given == [13.0]
