"""Scripted inputs: pauses cut batches and move the clock, aborts never show, one input may end before the others."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import EventError, LateEvent, PlanError, TimeError
from headrace.host.local.run import Runner
from headrace.testing.checks import Violation, check_output
from headrace.testing.clock import ManualClock
from headrace.testing.same import assert_same_history
from headrace.testing.script import run_scripted
from headrace.testing.strategies import SCHEMA, physical_streams, without_ids
from headrace.time import NEG_INFINITY

EVENTS = """
kind    | le | re | re_new | k | n
insert  | 1  | ∞  |        | a | 1
insert  | 3  | 9  |        | b | 2
{}
retract | 1  | ∞  | 7      | a | 1
{}
cti     | 6  |    |        |   |
insert  | 8  | 9  |        | a | 3
{}
"""


def counted(s: hr.Stream) -> hr.Stream:
    return s.group_by("k").window(hr.snapshot()).aggregate(n=hr.count(), most=hr.max("n"))


def script(*faults: str) -> str:
    return EVENTS.format(*faults)


PLAIN = script("", "", "")


@pytest.mark.parametrize(("faults", "restarts", "batches"), [
    (("", "", ""), 0, 2),
    (("pause", "pause", ""), 0, 4),
    (("abort", "", ""), 1, 2),
    (("abort", "abort", "abort"), 3, 2),
    (("pause", "abort", "pause"), 1, 4),
    (("pause\nabort", "pause\nabort", "abort\nabort"), 4, 4),
    (("ABORT |", "", "eof"), 1, 2),
])  # fmt: skip
@pytest.mark.parametrize("buckets", [1, 3])
def test_faults_do_not_show_in_the_answer(faults: tuple[str, ...], restarts: int, batches: int, buckets: int):
    run = run_scripted({"s": script(*faults)}, counted, buckets=buckets)
    assert run.restarts == restarts
    assert len(run.results["out"].batches) == batches
    assert_same_history(run, counted(hr.events(PLAIN)))
    check_output(run.events())


def test_the_events_are_those_of_an_undisturbed_run_row_for_row():
    disturbed = run_scripted({"s": script("abort\npause", "abort", "abort")}, counted)
    undisturbed = run_scripted({"s": script("pause", "", "")}, counted)
    assert disturbed.restarts == 3
    assert disturbed.events() == undisturbed.events()
    assert disturbed.counts == undisturbed.counts
    assert len(disturbed.statistics) == len(undisturbed.statistics) == 3


def test_scripts_have_several_forms():
    rows: list[dict[str, Any]] = [
        {"le": 1, "re": 4, "n": 1},
        {"kind": "Pause", "le": "1 s"},
        {"kind": "insert", "le": 2, "re": 4, "n": 2},
        {"kind": "abort"},
        {"kind": "eof"},
    ]
    table = pa.table({
        "kind": ["insert", "pause", "insert", "abort", "eof"],
        "le": pa.array([1, 1_000_000, 2, None, None], pa.int64()),
        "re": pa.array([4, None, 4, None, None], pa.int64()),
        "n": pa.array([1, None, 2, None, None], pa.int64()),
    })  # fmt: skip
    framed = """
    |--------|------|----|---|
    | kind   | le   | re | n |
    |--------|------|----|---|
    | insert | 1    | 4  | 1 |
    | pause  | 1 s  |    |   |
    | insert | 2    | 4  | 2 |
    | abort  |      |    |   |
    | eof    |
    """.replace("|--------|------|----|---|\n    | kind", "| kind")
    for data in (rows, table, framed):
        clock = ManualClock(5)
        run = run_scripted({"s": data}, lambda s: s.where(hr.col("n") > 0), clock=clock)
        assert (clock.now, run.restarts, len(run.results["out"].batches)) == (1_000_005, 1, 3)
        assert_same_history(run, "le | re | n\n1 | 4 | 1\n2 | 4 | 2")


def test_a_stream_without_kinds_is_a_script_without_faults():
    for data in ("le | n\n1 | 1", [{"le": 1, "n": 1}], pa.table({"le": [1], "re": [2], "n": [1]})):
        run = run_scripted({"s": data}, lambda s: s.where(hr.col("n") > 0))
        assert_same_history(run, "le | n\n1 | 1")


def test_inputs_that_pause_together_pause_once():
    clock = ManualClock()
    one = "kind | le | k\ninsert | 1 | a\npause | 10 |\ninsert | 2 | a\npause | 5 |"
    other = "kind | le | k\ninsert | 1 | a\npause | 30 |\ninsert | 2 | a"
    run_scripted({"one": one, "other": other}, lambda one, other: one.join(other, "k"), clock=clock)
    assert clock.now == 35


def test_equal_events_may_come_in_different_batches():
    late = "kind | le | k\npause | |\npause | |\ninsert | 1 | a"
    run = run_scripted({"a": "le | k\n1 | a", "b": late}, lambda a, b: a.union(b))
    assert [len(changes) for changes, _ in run.results["out"].batches] == [1, 0, 1, 0]


def test_an_input_that_ends_holds_nobody_back():
    """The window closes when the right side has ended and the left has passed it, long before all is over."""
    left = "kind | le | re | k\ninsert | 1 | 3 | a\npause |\ncti | 10 |\npause |\ncti | 20 |"
    for right, promises in (
        ("kind | le | re | k\ninsert | 2 | 4 | a\neof |", [NEG_INFINITY, 10, 20, hr.INFINITY]),
        ("kind | le | re | k\ninsert | 2 | 4 | a\npause |\neof |", [NEG_INFINITY, 10, 20, hr.INFINITY]),
        ("kind | le | re | k\ninsert | 2 | 4 | a", [NEG_INFINITY, NEG_INFINITY, NEG_INFINITY, hr.INFINITY]),
    ):
        run = run_scripted({"left": left, "right": right}, lambda left, right: left.join(right, "k"))
        assert [progress.cti for _, progress in run.results["out"].batches] == promises
        assert_same_history(run, "le | re | k\n2 | 3 | a")


def test_a_process_may_die_when_one_input_has_ended():
    left = "kind | le | re | k\ninsert | 1 | 9 | a\neof |"
    right = (
        "kind | le | re | k\ncti | 1 |\npause |\ninsert | 2 | 4 | a\nabort |\ncti | 3 |\npause |\ninsert | 5 | 6 | a"
    )
    run = run_scripted({"left": left, "right": right}, lambda left, right: left.anti_join(right, "k"), buckets=2)
    assert run.restarts == 1
    assert_same_history(run, "le | re | k\n1 | 2 | a\n4 | 5 | a\n6 | 9 | a")


def test_an_abort_of_one_input_is_the_death_of_all():
    one = "kind | le | k\ninsert | 1 | a\nabort |\ninsert | 2 | a"
    run = run_scripted(
        {"one": one, "other": one.replace("a", "b").replace("bbort", "abort")}, lambda one, other: one.union(other)
    )
    assert run.restarts == 2
    assert run.cht().num_rows == 4


def test_counts_are_not_counted_twice():
    text = "kind | le | n\ncti | 5 |\ninsert | 3 | 1\nabort |\ninsert | 7 | 2"
    run = run_scripted({"s": text}, lambda s: s.where(hr.col("n") > 0), progress={"s": hr.explicit(late="divert")})
    (counts,) = run.counts.values()
    assert (counts["rows"], counts["late"], counts["diverted"], counts["accepted"]) == (3, 1, 1, 2)
    assert run.diverted().num_rows == 1


def test_a_schema_says_what_cannot_be_guessed():
    run = run_scripted({"s": [{"kind": "eof"}]}, lambda s: s.where(hr.col("n") > 0), schemas={"s": "n DOUBLE"})
    assert_same_history(run, [])
    assert run.cht().column_names == ["le", "re", "n"]


def test_a_module_that_keeps_something_to_itself_is_found_out():
    class Forgetful(hr.Aggregate):
        input = "n LONG"
        output = "LONG"
        calls: ClassVar[list[int]] = []

        def compute(self, values: list[int]) -> int:
            self.calls.append(len(values))
            return len(self.calls)

    def query(s: hr.Stream) -> hr.Stream:
        return s.window(hr.tumbling(5)).aggregate(c=Forgetful().of("n"))

    with pytest.raises(Violation, match=r"after 1 restarts, in 'out', batch 1 .*\n.*only with:"):
        run_scripted({"s": "kind | le | n\ninsert | 1 | 1\ncti | 9 |\nabort |"}, query)


@pytest.mark.parametrize(("text", "message"), [
    ("kind | le | n\neof | |\ninsert | 1 | 1", "row 2: the input has ended"),
    ("kind | le | n\ninsert | 1 | 1\npause | soon |", "row 2: le of a pause is its duration"),
    ("kind | le | n\ninsert | 1 | 1\npause | -5 |", "row 2: a pause cannot be negative"),
    ("kind | le | n\nstop | 1 | 1", "kind must be insert, retract or cti"),
    (7, "not a script"),
    ([7], "not a script"),
])  # fmt: skip
def test_what_a_script_cannot_say(text: object, message: str):
    with pytest.raises(EventError, match=message):
        run_scripted({"s": text}, counted)


def test_a_broken_promise_is_still_one():
    with pytest.raises(LateEvent):
        run_scripted({"s": "kind | le | n\ncti | 5 |\nabort | |\ninsert | 3 | 1"}, lambda s: s.where(hr.col("n") > 0))


def test_other_inputs_are_refused():
    other = hr.events("le | k\n1 | a")
    with pytest.raises(PlanError, match="scripted inputs only"):
        run_scripted({"s": "le | k\n1 | a"}, lambda s: s.union(other))


def test_a_clock_cannot_be_moved_too_far():
    with pytest.raises(TimeError):
        run_scripted({"s": f"kind | le | n\ninsert | 1 | 1\npause | {2**63 - 1} |"}, lambda s: s, clock=ManualClock(1))


QUERIES = {
    "windows": lambda a, b: a.union(b).group_by("k").window(hr.tumbling(4)).aggregate(n=hr.count(), m=hr.max("i")),
    "join": lambda a, b: a.left_join(b, "k"),
    "anti": lambda a, b: a.anti_join(b, "k").coalesce(),
    "final": lambda a, b: a.clip(b, "k").final(),
}


@st.composite
def faulty(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A legal stream with faults anywhere."""
    rows = without_ids(draw(physical_streams(max_events=6, odd=False)))
    for fault in draw(st.lists(st.sampled_from(["pause", "abort", "abort"]), max_size=4)):
        rows.insert(draw(st.integers(0, len(rows))), {"kind": fault})
    return [*rows, {"kind": "eof"}] if draw(st.booleans()) else rows


@settings(max_examples=max(5, settings().max_examples // 3))
@given(faulty(), faulty(), st.sampled_from(sorted(QUERIES)), st.integers(1, 3))
def test_faults_anywhere_never_show(a: list, b: list, name: str, buckets: int):
    query, schemas = QUERIES[name], {"a": SCHEMA, "b": SCHEMA}
    run = run_scripted({"a": a, "b": b}, query, buckets=buckets, schemas=schemas)
    assert run.restarts == sum(row["kind"] == "abort" for row in [*a, *b])
    plain = [[row for row in rows if row["kind"] not in ("pause", "abort", "eof")] for rows in (a, b)]
    assert_same_history(run, query(*(hr.events(rows, SCHEMA) for rows in plain)))


def test_without_a_restored_state_the_difference_would_be_seen(monkeypatch: pytest.MonkeyPatch):
    """The check is not empty: a process that starts again with nothing gives something else."""

    def forgotten(cls: type[Runner], line: Any, buckets: int, clock: Any, saved: Any) -> Runner:
        runner = cls(line, buckets, clock)
        runner.done = saved.done
        return runner

    monkeypatch.setattr(Runner, "restored", classmethod(forgotten))
    with pytest.raises((Violation, EventError)):
        run_scripted({"s": "kind | le | k | n\ninsert | 1 | a | 1\npause |\ninsert | 1 | a | 2\nabort |"}, counted)
