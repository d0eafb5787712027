"""Why an event is not there: where each kind of operator loses events, drawn; and what sources did not accept."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace import col
from headrace.errors import TraceError
from headrace.operators.reference.lineage import ABSENCE, LINEAGE
from headrace.tracing.why_not import WhyNot

EVENTS = hr.events(
    """
    le | re | k | x
    1  | 5  | a | 1
    2  | 3  | b | 2
    4  | 9  | a | 3
    6  | 7  | b | 2
    11 | 12 | a | 5
    """
)
OTHERS = hr.events(
    """
    le | re | k | y
    0  | 2  | a | 7
    3  | 5  | a | 8
    """
)


def kinds(found: WhyNot) -> list[tuple[int, str]]:
    """The operators and the kinds of the reasons."""
    return [(step.operator.number, reason.kind) for step, reason in found.reasons]


def only(found: WhyNot, kind: str) -> str:
    """The text of the one reason of a kind, and of the events that explain it."""
    reasons = [reason for _, reason in found.reasons if reason.kind == kind]
    assert len(reasons) == 1, found
    return "\n".join([reasons[0].text, *(f"{role}: {event.text}" for role, event in reasons[0].events)])


def test_every_operator_with_causes_says_what_it_lost():
    assert ABSENCE.keys() == LINEAGE.keys()


def test_filters_say_which_part_of_the_condition_failed():
    trace = EVENTS.where((col("x") > 1) & (col("k") == "b")).select("k", double=col("x") * 2).trace()
    text = only(trace.why_not(double=6), "filtered")
    assert text.startswith("k = 'b' is FALSE (k = a)")
    assert "event: #2 [4, 9): k = a, x = 3" in text
    assert trace.why_not(double=6).inputs["x"].to_pylist() == [3]


def test_nulls_are_not_false():
    trace = hr.events("le | re | k\n1 | 2 | ").where(col("k") == "b").trace()
    assert "is NULL (k = NULL)" in only(trace.why_not(at=1), "filtered")


def test_a_lifetime_of_which_nothing_is_left():
    assert "nothing is left" in only(EVENTS.extend(-2).trace().why_not(k="b", at=2), "no lifetime")
    endless = hr.events("le | re | k\n1 | inf | a").point_at_end().trace()
    assert only(endless.why_not(k="a"), "endless").startswith("it never ends")


def test_no_such_event_was_read():
    found = EVENTS.where(col("x") > 0).trace().why_not(k="c", x=9)
    assert kinds(found) == [(2, "not read")]
    near = EVENTS.where(col("x") > 0).trace().why_not(k="b", x=3)
    assert (2, "not read") in kinds(near)
    assert "the nearest has x = 2, not 3" in repr(near)
    nulls = hr.events("le | re | k | x\n1 | 2 | a | \n1 | 2 | b | 1").trace()
    assert "the nearest has x = NULL, not 3" in repr(nulls.why_not(k="a", x=3))


def test_a_pair_without_a_common_lifetime():
    trace = EVENTS.join(OTHERS, on="k").trace()
    text = only(trace.why_not(x=5), "no partner")
    assert "no event with k = a lasts while it does: the nearest is [3, 5)" in text
    assert "left: #2 at 11: k = a, x = 5" in text


def test_a_pair_without_an_equal_key():
    found = EVENTS.join(OTHERS, on="k").trace().why_not(x=2, at=6)
    assert only(found, "no partner").startswith("no event has k = b\nleft: #2 at 6: k = b, x = 2")
    near = EVENTS.join(OTHERS.extend(9), on="k").trace().why_not(x=2, at=6)
    assert "no event has k = b; others last while it does" in only(near, "no partner")
    assert "near: #" in only(near, "no partner")


def test_a_pair_whose_condition_fails():
    joined = EVENTS.join(OTHERS, on="k", where=col("y") > 7)
    text = only(joined.trace().why_not(x=1, y=7), "no partner")
    assert "no partner fulfils the condition: y > 7 is FALSE (y = 7)" in text


def test_events_that_have_a_partner():
    trace = EVENTS.anti_join(OTHERS, on="k").trace()
    text = only(trace.why_not(x=1, at=4), "has a partner")
    assert "it has a partner [3, 5)" in text
    assert "partner: #4 [3, 5): k = a, y = 8" in text


def test_windows_without_events_and_the_events_lost_before():
    trace = EVENTS.where(col("x") != 5).group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count()).trace()
    found = trace.why_not(k="a", le=10)
    assert kinds(found)[:2] == [(4, "no events"), (3, "filtered")]


def test_answers_with_other_values_go_on_with_their_causes():
    trace = EVENTS.where(col("x") != 3).group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count()).trace()
    found = trace.why_not(k="a", le=0, n=2)
    assert "n is 1, not 2" in only(found, "other values")
    assert "event: #2 [4, 9): k = a, x = 3" in only(found, "filtered")
    other = next(reason for _, reason in found.reasons if reason.kind == "other values")
    assert [cause.row[2]["x"] for _, cause in other.instead[0].causes] == [1]


def test_windows_that_are_open():
    trace = EVENTS.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count()).trace(batch_rows=1)
    found = trace.why_not(k="a", le=0, batch=0)
    assert "window [0, 10) is open: its answer is given when the CTI or an event reaches 10" in only(found, "not final")


def test_answers_that_are_not_final():
    final = EVENTS.final().trace(batch_rows=1)
    assert "it is not final: the CTI is -∞, and must pass 5" in only(final.why_not(x=1, batch=0), "not final")


def test_below_the_top():
    found = EVENTS.window(hr.tumbling(10)).top(1, by=col("x")).trace().why_not(x=1)
    text = only(found, "below the top")
    assert text.startswith("below the top 1: in place 4 with x = 1; the last of the top has x = 3")


def test_lifetimes_that_end_earlier():
    clipped = EVENTS.clip(OTHERS, on="k").trace()
    found = clipped.why_not(x=1, re=5)
    assert "it lasts [1, 3)" in only(found, "other lifetime")
    assert "cut: #4 [3, 5): k = a, y = 8" in repr(found)


def test_patterns_say_how_far_they_got():
    ups = hr.events("le | re | k | x\n1 | 2 | a | 1\n2 | 3 | a | 2\n3 | 4 | a | 1")
    higher = col("x") > hr.prev("x")
    rising = ups.group_by("k").match(hr.pattern("A B C", define={"B": higher, "C": higher}), n=hr.count())
    text = only(rising.trace().why_not(k="a"), "no match")
    assert "the furthest way maps 2 of 3 tuples (A B); the next tuple does not fit" in text
    assert "does not fit: #2 at 3: k = a, x = 1" in text


def test_loops_that_do_not_derive_it():
    links = hr.events("le | re | k | to\n1 | 9 | a | b\n2 | 9 | b | c")
    paths = hr.recurse(links, lambda found: found.join(links, on={"to": "k"}).select("k", to=col("to_right")))
    assert "not derived" in {kind for _, kind in kinds(paths.trace().why_not(k="a", to="d"))}


def test_events_that_were_taken_back():
    events = hr.events(
        """
        kind    | le | re | re_new | k
        insert  | 1  | 9  |        | a
        insert  | 2  | 9  |        | b
        retract | 1  | 9  | 4      | a
        """
    )
    found = events.where(col("k") == "a").trace(batch_rows=1).why_not(k="a", at=5)
    assert "it was added in batch 0, and batch 2 took it back" in repr(found)


def test_the_last_addition_before_it_was_taken_back():
    events = hr.events(
        """
        kind    | le | re | re_new | k
        insert  | 2  | 9  |        | b
        insert  | 1  | 9  |        | a
        retract | 1  | 9  | 1      | a
        insert  | 1  | 9  |        | a
        retract | 1  | 9  | 1      | a
        """
    )
    found = events.shift(10).trace(batch_rows=1).why_not(k="a", le=11)
    assert {reason.text for _, reason in found.reasons if reason.kind == "taken back"} == {
        "it was added in batch 3, and batch 4 took it back"
    }
    assert "#3 [11, 19): k = a, batch 3" in repr(found)
    assert "batch 0" not in repr(found)


def test_late_and_refused_rows_of_files(tmp_path: Path):
    (tmp_path / "rows.csv").write_text("k,t,x\na,1,1\na,90,2\nb,3,3\nc,91,none\n")
    rows = hr.read_csv(
        str(tmp_path / "rows.csv"),
        schema="k STRING, t LONG, x INT",
        lifetime=hr.point("t"),
        progress=hr.advance(delay=5),
    )
    trace = rows.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count()).trace()
    late = only(trace.why_not(k="b"), "late")
    assert "its sync time 3 is before the CTI 85; late='divert' diverted the row" in late
    assert '"k": "b"' in late
    assert trace.why_not(k="b").inputs["reason"].to_pylist()[0].startswith("late")
    assert "c,91,none" in only(trace.why_not(k="c"), "refused")
    assert kinds(trace.why_not(k="d")) == [(2, "no events"), (1, "not read")]
    dropped = hr.read_csv(
        str(tmp_path / "rows.csv"), schema="k STRING, t LONG, x INT", lifetime=hr.point("t"),
        progress=hr.advance(delay=5, late="drop"),
    )  # fmt: skip
    assert "late='drop'" in only(dropped.trace().why_not(k="b"), "dropped")


def test_an_event_that_is_there_and_questions_that_say_nothing():
    trace = EVENTS.trace()
    with pytest.raises(TraceError, match="this event is there"):
        trace.why_not(x=1)
    with pytest.raises(TraceError, match="nothing is said"):
        trace.why_not()
    with pytest.raises(TraceError, match="no column 'z'"):
        trace.why_not(z=1)
    with pytest.raises(TraceError, match="no column 'z'"):
        trace.why_not(col("z") > 1)


def test_the_reasons_as_plain_values():
    trace = EVENTS.where(col("x") != 3).group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count()).trace()
    found = json.loads(json.dumps(trace.why_not((col("k") == "a") & (col("n") == 2)).as_dict()))
    assert found["steps"][0]["wanted"] == "k = a, n = 2"
    assert [one["kind"] for one in found["reasons"]] == ["other values", "other values", "filtered"]
    below = found["steps"][found["steps"][0]["below"][0]]
    assert below["reasons"][0]["events"][0]["values"] == {"k": "a", "x": 3}
    assert found["inputs"][0]["x"] == 3


def asked_of(found: WhyNot, operator: int) -> str:
    """What is wanted of an operator, in all questions."""
    return "; ".join(step.wanted.text(dates=False) for step in found.steps() if step.operator.number == operator)


def test_a_semi_join_wants_a_partner():
    """Found by `tests/verification/causes.py`: the partner of an anti join is there because it has none itself."""
    trace = EVENTS.semi_join(OTHERS, on="k").trace()
    assert "k = b, lasts at 2" in asked_of(trace.why_not(k="b", le=2), 4)


def test_the_events_that_bound_a_snapshot_are_wanted_too():
    """Found by `tests/verification/causes.py`: without its bounds an answer lasts longer."""
    events = hr.events("le | re | k\n1 | 9 | a")
    trace = events.window(hr.snapshot()).top(1, by=col("k")).trace()
    assert "lasts in [0, 6)" in asked_of(trace.why_not(k="a", le=1, re=5), 2)
    assert "it lasts [1, 9)" in only(trace.why_not(k="a", le=1, re=5), "other lifetime")
    counted = events.window(hr.snapshot()).aggregate(n=hr.count()).coalesce().trace()
    assert "lasts in [0, 6)" in asked_of(counted.why_not(n=1, le=1, re=5), 2)


def test_the_next_sample_is_wanted_where_the_end_is_not_known():
    """Found by `tests/verification/causes.py`: a projected end depends on the next sample, whatever its values are."""
    rows = pa.table({"k": ["a"], "t": [1], "x": [1]})
    signal = hr.from_arrow(rows, lifetime=hr.edge("t", key="k"))
    trace = signal.alter_lifetime(end=hr.end() - 1).trace()
    found = trace.why_not(k="a", x=1, le=1, re=4)
    assert "k = a" in asked_of(found, 1).split("; ")


def test_a_null_of_a_left_join_says_nothing_of_its_left_key():
    """Found by `tests/verification/causes.py`: an unmatched part has no right key, whatever its own is."""
    joined = EVENTS.left_join(OTHERS, on={"k": "k"}).select("x", y=col("y") + 1).trace()
    found = joined.why_not(x=9, y=None)
    assert asked_of(found, 2) == "x = 9"


def test_a_description_that_every_event_fits():
    nothing = EVENTS.where(col("x") > 9).group_by("k").window(hr.tumbling(5)).aggregate(n=hr.count()).trace()
    found = nothing.why_not(n=1)
    assert only(found, "no events") == "there are no events"
    assert "with any event" not in str(found)
