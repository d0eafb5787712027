"""Sessions: a run goes on by steps, stops at breakpoints, and at its end is the traced run."""

from __future__ import annotations

import io
import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace import col
from headrace.dashboard.traces import TraceData
from headrace.errors import ModuleFailed, PlanError, SqlError, TraceError, UnknownColumn
from headrace.tracing.debugging import DebugSession
from headrace.tracing.traced import TracedRun

READINGS = hr.events(
    """
    kind    | le | re | re_new | k | x
    insert  | 1  | 2  |        | a | 1
    insert  | 3  | 9  |        | b | 2
    insert  | 12 | 13 |        | a | 3
    insert  | 5  | 6  |        | a | 7
    retract | 3  | 9  | 11     | b | 2
    cti     | 20 |    |        |   |
    insert  | 11 | 12 |        | b | 9
    insert  | 25 | 26 |        | b | 4
    """,
    progress=hr.explicit(late="divert"),
)
#: 1 source, 2 admission, 3 filter, 4 windows, 5 diverted, 6 orphans.
SUMS = READINGS.where(col("x") > 1).group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), s=hr.sum("x"))


@pytest.fixture
def session() -> Iterator[DebugSession]:
    with SUMS.debug(batch_rows=1) as session:
        yield session


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-debug"]


def same(a: TracedRun, b: TracedRun) -> bool:
    """Whether two traces have equal tables, except for times on the clock."""
    return (
        a.changes.equals(b.changes)
        and a.edges.equals(b.edges)
        and a.batches.drop_columns(["seconds"]).equals(b.batches.drop_columns(["seconds"]))
        and a.operators.drop_columns(["seconds"]).equals(b.operators.drop_columns(["seconds"]))
    )


def test_batches(session: DebugSession):
    assert session.pause.reason == "start"
    pauses = [session.step_batch() for _ in range(9)]
    assert [(pause.reason, pause.batch) for pause in pauses] == [*(("batch", n) for n in range(8)), ("end", 8)]
    assert session.step_batch() == pauses[-1]
    assert same(session.trace, SUMS.trace(batch_rows=1))


def test_operators(session: DebugSession):
    places = [(pause.batch, pause.operator.number) for pause in (session.step_operator() for _ in range(5))]
    assert places == [(0, 1), (0, 2), (0, 3), (0, 6), (0, 4)]
    assert session.step_operator().batch == 1
    assert session.step_batch().text == "after batch 1"
    while not session.step_operator().finished:
        pass
    assert same(session.trace, SUMS.trace(batch_rows=1))


def test_events_divide_batches():
    other = hr.events("le | re | k | y\n1 | 9 | a | 7\n4 | 9 | b | 8\n30 | 31 | b | 9")
    joined = READINGS.join(other, on="k")
    with joined.debug() as session:
        first = [session.step_event() for _ in range(3)]
        assert [pause.reason for pause in first] == ["event"] * 3
        assert session.trace.operators["changes"].to_pylist()[:3] == [2, 2, 1]  # both sources in turn
        assert session.step_batch().batch == 3
        session.run()
        assert hr.history_diff(session.trace.history(), joined.trace().history()) == ""
        assert session.trace.of(4).num_rows == joined.trace().of(4).num_rows


def test_a_condition_on_changes(session: DebugSession):
    found = session.break_at(3, when=col("x") > 3)
    pause = session.run()
    assert (pause.reason, pause.batch, pause.operator.number) == ("breakpoint", 3, 3)
    assert pause.hits[0].rows.to_pylist() == [
        {"batch": 3, "operator": 3, "le": 5, "re": 6, "weight": 1, "k": "a", "x": 7}
    ]
    assert session.run().batch == 7
    assert session.run().finished
    assert found.hits == 2
    assert same(session.trace, SUMS.trace(batch_rows=1))


def test_a_condition_in_sql_on_what_goes_in(session: DebugSession):
    session.break_at(4, when="x > 3", on="input")
    pause = session.run()
    assert (pause.batch, pause.operator.number, pause.hits[0].breakpoint.operator.number) == (3, 3, 4)
    assert session.trace.history(4).num_rows == 1, "the windows have not seen it yet"
    session.step_batch()
    assert session.trace.history(4).num_rows == 2


def test_retractions_late_rows_and_ctis(session: DebugSession):
    session.break_at_retraction()
    session.break_at_late()
    session.break_at_cti(4, 20)
    session.break_at_cti(1, 15)
    stops = []
    while not (pause := session.run()).finished:
        stops.append((pause.batch, [(hit.breakpoint.number, hit.step.operator.number) for hit in pause.hits]))
    taken_back = [(4, [(1, number)]) for number in (1, 2, 3)]
    assert stops == [*taken_back, (5, [(4, 1)]), (5, [(3, 4)]), (6, [(2, 5)])]
    assert [one.hits for one in session.breakpoints] == [3, 1, 1, 1]


def test_rows_that_are_dropped_stop_the_run():
    rows = hr.events("le | re | x\n1 | 2 | 1\n20 | 21 | 2\n3 | 4 | 3", progress=hr.advance(delay=5, late="drop"))
    with rows.where(col("x") > 0).debug(batch_rows=1) as session:
        session.break_at_late()
        pause = session.run()
        assert (pause.batch, pause.hits[0].step.notes) == (2, ("1 dropped",))


def test_breakpoints_are_listed_disabled_and_deleted(session: DebugSession):
    first, second = session.break_at(3), session.break_at_retraction(4)
    assert [repr(one) for one in session.breakpoints] == ["1: output of #3 (0 hits)", "2: retraction by #4 (0 hits)"]
    first.enabled = False
    assert session.run().finished
    session.delete(first.number)
    assert session.breakpoints == [second]
    with pytest.raises(TraceError, match="no such breakpoint"):
        session.delete(1)


def test_plain_data(session: DebugSession):
    session.break_at(3, when=col("x") > 3)
    data = session.run().as_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["hits"][0]["rows"] == [{"batch": 3, "operator": 3, "le": 5, "re": 6, "weight": 1, "k": "a", "x": 7}]
    assert session.breakpoints[0].as_dict() == {
        "number": 1, "kind": "output", "operator": 3, "text": "output of #3 when x > 3", "enabled": True, "hits": 1
    }  # fmt: skip


def test_questions_at_a_pause(session: DebugSession):
    session.break_at(3, when=col("x") == 7)
    session.run()
    assert session.trace.of(3)["x"].to_pylist() == [2, 3, 7]
    assert session.trace.history(4)["s"].to_pylist() == [2]
    assert session.trace.why(s=2).inputs["x"].to_pylist() == [2]
    touched = session.trace.forward(x=7, operator=2)
    assert set(touched["operator"].to_pylist()) == {1, 2, 3}, "the windows have not seen it yet"
    assert session.step_operator().operator.number == 6
    assert session.step_operator().operator.number == 4
    assert 4 in session.trace.forward(x=7, operator=2)["operator"].to_pylist()
    assert sum(table.num_rows for table in session.trace.state(4).values()) > 0
    assert session.trace.batches.to_pylist()[-3]["cti"] is None
    session.step_batch()
    assert session.trace.batches.to_pylist()[-3]["cti"] is None


def test_questions_about_operators_that_have_not_run_yet():
    """A row is on its way to the windows, operator 4: their answer, and its causes, are those of before the batch."""
    rows = hr.events("le | re | x\n1 | 2 | 1\n15 | 16 | 2\n3 | 4 | 3")
    sums = rows.where(col("x") > 0).window(hr.tumbling(10)).aggregate(s=hr.sum("x"))
    with sums.debug(batch_rows=1) as session:
        session.break_at(3, when=col("x") == 3)
        assert session.run().batch == 2
        trace, page = session.trace, TraceData("sums", session.trace)
        for inputs in (trace.why(s=1).inputs, trace.why(s=1, batch=1).inputs):
            assert inputs["x"].to_pylist() == [1]
        assert page.why(4, 2, 0, "history")["inputs"] == 1
        missing = [(step.operator.number, reason.kind) for step, reason in trace.why_not(s=4).reasons]
        assert missing == [(4, "not run"), (4, "other values")]
        assert str(trace.why_cti(4)) == str(trace.why_cti(4, 1))
        session.step_operator()
        session.step_operator()
        assert session.trace.why(s=4).inputs["x"].to_pylist() == [1, 3]


def test_a_restart(session: DebugSession):
    session.break_at(3, when=col("x") == 7)
    session.run()
    assert session.restart().reason == "start"
    assert session.breakpoints[0].hits == 0
    assert session.run().batch == 3
    session.run()
    assert same(session.trace, SUMS.trace(batch_rows=1))


def test_a_run_that_fails():
    @hr.udf
    def inverse(x: int) -> float:
        return 1 / (x - 3)

    with READINGS.select("k", y=inverse("x")).debug(batch_rows=1) as session:
        with pytest.raises(ModuleFailed, match="inverse"):
            session.run()
        assert (session.pause.reason, session.pause.batch) == ("error", 2)
        assert session.trace.of(1)["x"].to_pylist() == [1, 2, 3], "what it did until then"
        with pytest.raises(TraceError, match="has failed") as raised:
            session.step_batch()
        assert str(raised.value.given).startswith("failed in batch 2: [MODULE_FAILED] the function inverse raised")
        assert session.restart().reason == "start"


def test_what_became_of_a_row_before_a_run_fails():
    @hr.udf
    def inverse(x: int) -> float:
        return 1 / (x - 3)

    with READINGS.select("k", y=inverse("x")).debug(batch_rows=1) as session:
        session.break_at(2, when=col("x") == 3)
        session.run()
        before = session.trace.forward(x=1)
        assert before["operator"].to_pylist() == [1, 2, 3]
        with pytest.raises(ModuleFailed):
            session.run()
        assert session.trace.forward(x=1).equals(before)


def test_a_session_that_is_forgotten_or_closed_ends_its_thread():
    forgotten = SUMS.debug()
    forgotten.step_operator()
    del forgotten
    closed = SUMS.debug()
    closed.step_operator()
    closed.close()
    assert closed.trace.of(1).num_rows == 7
    with pytest.raises(TraceError, match="closed"):
        closed.run()
    with pytest.raises(TraceError, match="closed"):
        closed.restart()


def test_one_thread_at_a_time():
    """While one thread runs the session, others may only interrupt it."""
    inside, leave = threading.Event(), threading.Event()

    class Slow(hr.Aggregate):
        input, output = "x LONG", "LONG"

        def compute(self, values: list[int]) -> int:
            inside.set()
            leave.wait(60)
            return len(values)

    stream = READINGS.window(hr.tumbling(10)).aggregate(n=Slow().of("x"))
    with stream.debug() as busy:
        driver = threading.Thread(target=busy.run)
        driver.start()
        assert inside.wait(60)
        with pytest.raises(TraceError, match="another thread"):
            busy.step_batch()
        busy.interrupt()
        leave.set()
        driver.join(60)
        assert busy.pause.reason == "interrupt"
        assert busy.run().finished


def test_what_is_wrong_is_named(session: DebugSession):
    with pytest.raises(PlanError, match="1 to 6"):
        session.break_at(7)
    with pytest.raises(UnknownColumn):
        session.break_at(3, when=col("nothing") > 1)
    with pytest.raises(SqlError):
        session.break_at(3, when="x >")
    with pytest.raises(TraceError, match="no input"):
        session.break_at(1, on="input")
    with pytest.raises(TraceError, match="in or out"):
        session.break_at(1, on="both")  # type: ignore[arg-type]


# --- calls ------------------------------------------------------------------------------------------------------------


@hr.udf
def inverse(x: int) -> float:
    """A function with two lines, for the debugger."""
    doubled = 2 * x
    return 1 / doubled


class Widest(hr.IncrementalAggregate):
    """The greatest distance of two values."""

    input, output = "x LONG", "LONG"

    def initial(self) -> list[int]:
        return []

    def add(self, state: list[int], items: list[int]) -> list[int]:
        return [*state, *items]

    def compute(self, state: list[int]) -> int:
        return max(state) - min(state)


CALLS = READINGS.select("k", y=inverse("x"), x=col("x")).window(hr.tumbling(10)).aggregate(w=Widest().of("x"))


def test_a_call_of_a_function():
    with CALLS.debug(batch_rows=1) as session:
        found = session.break_at_call("inverse")
        pause = session.run()
        assert (pause.batch, pause.operator.number, pause.call) == (0, 3, "inverse(x=1)")
        assert pause.text.splitlines()[-1] == "  breakpoint 1, call of inverse: inverse(x=1)"
        assert session.trace.of(3).num_rows == 0, "the operator runs"
        assert session.step_operator().call == ""
        assert session.trace.of(3)["y"].to_pylist() == [0.5]
        assert [session.run().call for _ in range(2)] == ["inverse(x=2)", "inverse(x=3)"]
        found.enabled = False
        assert session.run().finished
        assert same(session.trace, CALLS.trace(batch_rows=1))


def test_a_call_of_a_module_and_of_a_method():
    with CALLS.debug(batch_rows=1) as session:
        session.break_at_call("Widest.compute")
        pause = session.run()
        assert (pause.operator.number, pause.call) == (4, "compute(state=[1, 2])")
        assert json.dumps(pause.as_dict())
        session.delete(1)
        session.break_at_call("Widest")
        assert session.run().call.startswith("add(")
        session.interrupt()
    with CALLS.debug() as session:
        with pytest.raises(TraceError, match=r"inverse, Widest\.compute, Widest, Widest\.add"):
            session.break_at_call("Widesst")
        with pytest.raises(TraceError, match="not at a call"):
            session.step_into()


def test_python_debugger_inside_a_call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("sys.stdin", io.StringIO("next\nprint('doubled is', doubled)\ncontinue\nquit\n"))
    with CALLS.debug(batch_rows=1) as session:
        session.break_at_call("inverse")
        session.run()
        pause = session.step_into()
        assert (pause.reason, pause.operator.number, pause.call) == ("operator", 3, "")
        shown = capsys.readouterr().out
        assert "doubled = 2 * x" in shown
        assert "doubled is 2" in shown
        assert session.run().call == "inverse(x=2)"
        session.step_into()
        assert session.run().call == "inverse(x=3)"


def test_functions_with_a_limit_are_named():
    limited = hr.udf(inverse.function, time_limit=60.0, name="limited")
    with READINGS.select(y=limited("x")).debug() as session, pytest.raises(TraceError, match="time limit"):
        session.break_at_call("limited")


# --- changes ----------------------------------------------------------------------------------------------------------


def sums(trace: TracedRun) -> list[tuple[int, str, int]]:
    return sorted((row["le"], row["k"], row["s"]) for row in trace.history().to_pylist())


BEFORE = [(0, "a", 7), (0, "b", 2), (10, "a", 3), (10, "b", 2), (20, "b", 4)]


def test_rows_of_an_input_are_removed(session: DebugSession):
    session.break_at(4, when="s = 4")
    session.run()
    pause = session.change_input(1, remove={"x": 7})
    assert pause.text == "after batch 2", "the batches before the change have run"
    assert same_batches(session.trace, session.original, 3)
    session.breakpoints[0].enabled = False
    session.run()
    assert sums(session.trace) == [row for row in BEFORE if row != (0, "a", 7)]
    assert sums(session.original) == BEFORE


def same_batches(a: TracedRun, b: TracedRun, batches: int) -> bool:
    """Whether two traces have the same changes in their first batches."""
    first = [trace.changes.filter(pc.less(trace.changes["batch"], batches)) for trace in (a, b)]
    return first[0].equals(first[1])


def test_rows_of_an_input_are_replaced_and_added(session: DebugSession):
    session.change_input(1, replace=("x = 7", {"x": 8, "k": "b"}))
    session.change_input(1, add=[{"le": 13, "re": 14, "k": "a", "x": 5}], batch=3)
    assert session.pause.reason == "start", "it was at the start"
    session.run()
    assert sums(session.trace) == [(0, "b", 10), (10, "a", 8), (10, "b", 2), (20, "b", 4)]
    assert session.restart().reason == "start"
    assert session.run().finished
    assert sums(session.trace) == [(0, "b", 10), (10, "a", 8), (10, "b", 2), (20, "b", 4)], "changes stay"


def test_lateness_follows_from_the_changed_rows(session: DebugSession):
    session.change_input(2, remove={"kind": "cti"})
    session.run()
    assert session.trace.of(5).num_rows == 0
    assert (10, "b", 11) in sums(session.trace)


def test_rows_of_files(tmp_path: Path):
    (tmp_path / "a.csv").write_text("ts,x\n2024-05-01T12:00:01Z,1\n2024-05-01T12:00:02Z,2\nbroken,3\n")
    rows = hr.read_csv(
        str(tmp_path / "a.csv"), schema="ts DATETIME, x LONG", lifetime=hr.point("ts"), bad_rows="divert"
    )
    counted = rows.window(hr.tumbling("1 m")).aggregate(s=hr.sum("x"))
    with counted.debug() as session:
        session.step_event()
        (tmp_path / "a.csv").unlink()
        session.change_input(1, replace=({"ts": "2024-05-01T12:00:02Z"}, {"x": 10}))
        session.change_input(1, add=[{"ts": "2024-05-01T12:00:09Z", "x": 100}], batch=1)
        session.run()
        assert session.trace.history()["s"].to_pylist() == [111]
        assert session.original.history()["s"].to_pylist() == [3]
        assert session.restart().reason == "start"


def test_another_query_over_the_same_rows(session: DebugSession):
    session.break_at(3)
    session.break_at_retraction()
    session.step_batch()
    assert session.step_batch().batch == 1
    other = READINGS.where(col("x") > 2).group_by("k").window(hr.tumbling(10)).aggregate(s=hr.sum("x"))
    pause = session.change_query(other)
    assert pause.text == "after batch 0"
    assert [one.number for one in session.breakpoints] == [2], "operators are others"
    session.delete(2)
    session.run()
    assert sums(session.trace) == sums(other.trace(batch_rows=1))
    assert sums(session.original) == BEFORE


def test_another_query_with_other_promises_and_another_input():
    lenient = hr.events(READINGS.node.input.origin.table, progress=hr.advance(delay=30, late="divert"))
    more = hr.events("le | re | k\n0 | 99 | a")
    with SUMS.debug(batch_rows=1) as session:
        session.step_batch()
        session.change_query(lenient.join(more, on="k"))
        assert session.run().finished
        assert session.trace.history().num_rows == 3


def test_changes_that_change_nothing(session: DebugSession):
    with pytest.raises(TraceError, match="no row fits"):
        session.change_input(1, remove={"x": 77})
    with pytest.raises(TraceError, match="no row fits"):
        session.change_input(1, remove={"x": 1}, batch=1)
    with pytest.raises(UnknownColumn):
        session.change_input(1, remove={"price": 1})
    with pytest.raises(TraceError, match="not an input"):
        session.change_input(3, remove={"x": 1})
    assert session.run().finished


def test_breakpoints_that_could_never_stop_a_run_are_refused(session: DebugSession):
    with pytest.raises(TraceError, match="only inputs have late rows"):
        session.break_at_late(4)
    with pytest.raises(TraceError, match="the times of operator #4 are numbers"):
        session.break_at_cti(4, "2024-05-01T12:00:00Z")
    with pytest.raises(TraceError, match="this names no event"):
        session.break_at(4, when=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [-1, 8])
def test_a_change_of_a_batch_that_is_not_there(session: DebugSession, batch: int):
    with pytest.raises(TraceError, match="no such batch of the input") as caught:
        session.change_input(1, add=[{"le": 13, "re": 14, "k": "a", "x": 5}], batch=batch)
    assert caught.value.allowed == "0 to 7"


def test_rows_are_named_by_nan_and_by_lists():
    rows = [{"le": 1, "re": 9, "x": math.nan, "l": [1, 2]}, {"le": 2, "re": 9, "x": 2.0, "l": [3]}]
    with hr.events(rows).debug() as session:
        session.change_input(1, remove={"x": math.nan})
        session.run()
        assert session.trace.history()["x"].to_pylist() == [2.0]
        session.change_input(1, remove={"l": [3]})
        session.run()
        assert session.trace.history().num_rows == 0
