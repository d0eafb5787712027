"""`timestamping="time_bound"`: outputs change only at or after the input that caused it, however it is batched."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.errors import ModuleFailed, PlanError
from headrace.operators.per_window import bound
from headrace.testing.checks import check_output

BREACH = "before the input that caused it"

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # answers are left out here on purpose


class Timed(hr.Operator):
    input = "x DOUBLE"
    output = "o DOUBLE"
    time_sensitive = True


class FromTheFirst(Timed):
    """The sum of the window, from its first event on: each event changes what was said from the first on."""

    def compute(self, events: list[Any], window: Any) -> Any:
        return [self.event(max(events[0].le, window.le), window.re, sum(e.x for e in events))]


class Stepwise(Timed):
    """The sum so far, from each event to the next; 13 is not waited for: it breaks the bound."""

    def compute(self, events: list[Any], window: Any) -> Any:
        bad = sum(e.x for e in events if e.x == 13.0)
        total = 0.0
        for event, end in zip(events, [*(e.le for e in events[1:]), window.re], strict=True):
            total += event.x
            if max(event.le, window.le) < end:
                yield self.event(max(event.le, window.le), end, total + bad)


class ToldEnds(Timed):
    """When each event ends, from its start on."""

    def compute(self, events: list[Any], window: Any) -> Any:
        return [self.event(e.le, e.le + 1, float(e.re)) for e in events if e.le >= window.le]


def rows(table: Any) -> list[tuple]:
    return [tuple(row.values()) for row in table.to_pylist()]


def query(module: Any, table: str, window: Any = None, batches: Any = None, **policy: Any) -> hr.Stream:
    stream = hr.events(table, **({"batches": batches} if batches else {})).group_by("k")
    return stream.window(window or hr.tumbling(10), timestamping="time_bound", **policy).operate(module, "x")


def cuts(count: int) -> list[list[int]]:
    return [[count], [1] * count, [1, count - 1], [count - 1, 1]]


IN_ORDER = """
    kind   | le | re | k | x
    insert | 1  | 2  | a | 1.0
    insert | 4  | 5  | b | 2.0
    insert | 4  | 5  | a | 3.0
    insert | 12 | 13 | b | 4.0
"""


@pytest.mark.parametrize("batches", cuts(4))
@pytest.mark.parametrize("window", [hr.tumbling(10), hr.hopping(20, every=10, origin=-10), hr.session(9)], ids=str)
def test_a_breach_is_found_in_any_batching(window: Any, batches: list[int]):
    with pytest.raises(ModuleFailed) as caught:
        query(FromTheFirst(), IN_ORDER, window, batches).run()
    text = str(caught.value)
    assert f"changed its output at 1, {BREACH}, at 4" in text
    assert "FromTheFirst() broke its time bound in the window" in text
    assert "of k = 'a'" in text
    assert "takes back [1, " in text
    assert "on_error='skip'" in text


@pytest.mark.parametrize("batches", cuts(2))
def test_an_event_of_another_group_hides_nothing(batches: list[int]):
    class AtStart(Timed):
        def compute(self, events: list[Any], window: Any) -> Any:
            return [self.event(window.le, window.re, events[0].x)]

    table = "kind | le | re | k | x\ninsert | 0 | 1 | a | 1.0\ninsert | 7 | 8 | b | 2.0"
    with pytest.raises(ModuleFailed, match=f"window 0 .. 10 of k = 'b': it changed its output at 0, {BREACH}, at 7"):
        query(AtStart(), table, batches=batches).run()


@pytest.mark.parametrize("batches", [[2, 1], [1] * 3])
def test_a_changed_end_is_a_cause_at_the_lesser_end(batches: list[int]):
    inserts = "kind | le | re | re_new | k | x\ninsert | 1 | 9 | | a | 1.0\ninsert | 2 | 5 | | a | 1.0\n"
    assert len(rows(query(ToldEnds(), inserts).cht())) == 2
    with pytest.raises(ModuleFailed, match=f"changed its output at 1, {BREACH}, at 7"):
        query(ToldEnds(), f"{inserts}retract | 1 | 9 | 7 | a | 1.0", batches=batches).run()


@pytest.mark.slow
@pytest.mark.parametrize("batches", cuts(4))
@pytest.mark.parametrize(
    "window", [hr.tumbling(10), hr.hopping(20, every=10), hr.snapshot(), hr.session(5), hr.count_by_start(1)], ids=str
)
def test_what_keeps_the_bound_answers_the_same_in_any_batching(window: Any, batches: list[int]):
    stream = query(Stepwise(), IN_ORDER, window, batches)
    assert hr.same_history(stream.cht(), stream.history(engine="duckdb").cht())
    check_output(stream.run().events())


# --- windows that are left out --------------------------------------------------------------------------------------

SKIPPED = """
    kind   | le | re | k | x
    insert | 1  | 2  | a | 1.0
    insert | 2  | 3  | b | 2.0
    insert | 4  | 5  | a | 13.0
    insert | 6  | 7  | a | 3.0
    insert | 7  | 8  | b | 4.0
    cti    | 9  |    |   |
    insert | 12 | 13 | a | 5.0
"""


@pytest.mark.parametrize("batches", [[7], [1] * 7, [2, 5], [3, 4], [5, 2]])
def test_a_breach_is_skipped_from_its_cause_on(batches: list[int]):
    run = query(Stepwise(), SKIPPED, batches=batches, on_error="skip").run()
    assert sorted(rows(run.cht())) == [
        (1, 4, "a", 1.0), (2, 7, "b", 2.0), (7, 10, "b", 6.0), (12, 20, "a", 5.0),
    ]  # fmt: skip
    assert run.counts["Stepwise()"] == {"failed": 1}
    (told,) = run.diverted().to_pylist()
    assert BREACH in told["reason"]
    assert told["row"] == "window 0 .. 10, k = 'a'"
    check_output(run.events())


@pytest.mark.parametrize("batches", [[3, 1, 1], [1] * 5])
@pytest.mark.parametrize("window", [hr.tumbling(10), hr.session(9)], ids=str)
def test_a_correction_cures_a_breach(window: Any, batches: list[int]):
    table = """
        kind    | le | re | re_new | k | x
        insert  | 1  | 2  |        | a | 1.0
        insert  | 4  | 5  |        | a | 13.0
        cti     | 2  |    |        |   |
        retract | 4  | 5  | 4      | a | 13.0
        insert  | 6  | 7  |        | a | 2.0
    """
    run = query(Stepwise(), table, window, batches, on_error="skip").run()
    end = 10 if window == hr.tumbling(10) else 15
    assert rows(run.cht()) == [(1, 6, "a", 1.0), (6, end, "a", 3.0)]
    assert run.diverted().num_rows == 0
    check_output(run.events())


@pytest.mark.parametrize("window", [hr.snapshot(), hr.session(9), hr.count_by_start(2), hr.hopping(8, 3)], ids=str)
@pytest.mark.parametrize("module", [FromTheFirst(), Stepwise()], ids=str)
def test_what_is_skipped_never_breaks_a_promise(window: Any, module: Any):
    table = """
        kind    | le | re | re_new | k | x
        insert  | 1  | 9  |        | a | 1.0
        insert  | 2  | 3  |        | b | 13.0
        insert  | 4  | 8  |        | a | 13.0
        cti     | 3  |    |        |   |
        insert  | 3  | 5  |        | b | 3.0
        retract | 1  | 9  | 6      | a | 1.0
        insert  | 6  | 7  |        | a | 3.0
        cti     | 5  |    |        |   |
        retract | 4  | 8  | 5      | a | 13.0
        insert  | 9  | 20 |        | b | 3.0
    """
    for batches in ([10], [1] * 10, [3, 3, 4]):
        run = query(module, table, window, batches, on_error="skip", clipping="full").run()
        check_output(run.events())
        assert run.counts.get(str(module), {"failed": 0})["failed"] == run.diverted().num_rows


def test_a_module_that_fails_keeps_what_was_promised():
    class Raises(Stepwise):
        def compute(self, events: list[Any], window: Any) -> Any:
            if any(e.x == 13.0 for e in events):
                raise ValueError("no 13")
            return super().compute(events, window)

    run = query(Raises(), SKIPPED, batches=[1] * 7, on_error="skip").run()
    assert (1, 4, "a", 1.0) in rows(run.cht())
    assert run.diverted()["reason"].to_pylist() == ["it raised ValueError: no 13"]
    check_output(run.events())


def test_many_times_in_one_batch_are_taken_in_fewer_steps(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bound, "MOST_STEPS", 3)
    table = "kind | le | re | k | x\n" + "\n".join(f"insert | {n} | {n + 1} | a | 1.0" for n in range(50))
    stream = query(Stepwise(), table, hr.tumbling(50))
    assert hr.same_history(stream.cht(), stream.history(engine="duckdb").cht())
    with pytest.raises(ModuleFailed, match=BREACH):
        query(FromTheFirst(), table, hr.tumbling(50)).run()


# --- aggregates -----------------------------------------------------------------------------------------------------


class Busy(hr.Aggregate):
    """How many events there are, and whether it sees the end of its window."""

    input = "x DOUBLE"
    output = "LONG"
    time_sensitive = True

    def __init__(self, ends: bool = False) -> None:
        self.ends = ends

    def compute(self, events: list[Any], window: Any) -> int:
        return window.re if self.ends else len(events)


LASTING = """
    kind   | le | re | k | x
    insert | 1  | 9  | a | 1.0
    insert | 4  | 6  | a | 1.0
    cti    | 5  |    |   |
    insert | 7  | 8  | a | 1.0
"""


@pytest.mark.parametrize("batches", cuts(4))
def test_aggregates_may_be_bound_in_time(batches: list[int]):
    stream = hr.events(LASTING, batches=batches)
    bound_ = stream.window(hr.snapshot(), clipping="full", timestamping="time_bound").aggregate(n=Busy())
    assert rows(bound_.cht()) == [(1, 4, 1), (4, 6, 2), (6, 7, 1), (7, 8, 2), (8, 9, 1)]
    assert hr.same_history(bound_.cht(), bound_.history(engine="duckdb").cht())
    waits = stream.window(hr.snapshot(), clipping="full").aggregate(n=Busy())
    promised = [[e["le"] for e in s.run().events().to_pylist() if e["kind"] == "cti"] for s in (bound_, waits)]
    assert promised[0][0] == 5
    assert promised[1][0] == 4
    check_output(bound_.run().events())


@pytest.mark.parametrize("batches", cuts(4))
@pytest.mark.parametrize("window", [hr.snapshot(), hr.tumbling(10)], ids=str)
def test_an_aggregate_that_breaks_its_bound_is_found(window: Any, batches: list[int]):
    stream = hr.events(LASTING, batches=batches)
    with pytest.raises(ModuleFailed, match=BREACH):
        stream.window(window, clipping="full", timestamping="time_bound").aggregate(n=Busy(ends=True)).run()


def test_answers_over_snapshots_are_bound_by_themselves():
    stream = hr.events(LASTING).window(hr.snapshot(), timestamping="time_bound")
    assert rows(stream.aggregate(n=hr.count()).cht()) == [(1, 4, 1), (4, 6, 2), (6, 7, 1), (7, 8, 2), (8, 9, 1)]
    assert len(rows(stream.aggregate(m=hr.max("x")).cht())) == 5
    with pytest.raises(PlanError, match="answers last as long as their window"):
        hr.events(LASTING).window(hr.tumbling(5), timestamping="time_bound").aggregate(n=hr.count())
