"""Why an event is there: its causes through each kind of operator, drawn; and what became of an input event."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest

import headrace as hr
from headrace import col
from headrace.errors import TraceError
from headrace.operators.reference.lineage import LINEAGE
from headrace.operators.reference.plan import TWINS, WHOLE_PLANS
from headrace.plan.nodes import Admit, GroupInput, LoopInput, Source
from headrace.tracing.traced import TracedRun
from headrace.tracing.why import Why

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


def causes(why: Why) -> list[tuple[int, str]]:
    """The starts and keys of the input events."""
    return sorted((row["le"], row["k"]) for row in why.inputs.to_pylist())


def test_every_operator_says_what_its_output_stems_from():
    """Except inputs, where the way back ends."""
    assert (set(TWINS) | set(WHOLE_PLANS)) - set(LINEAGE) == {Admit, GroupInput, LoopInput, Source}


def test_filters_and_projections():
    trace = EVENTS.where(col("x") > 2).select("k", double=col("x") * 2).shift(10).trace()
    assert causes(trace.why(double=6)) == [(4, "a")]


def test_equal_events_have_the_causes_of_all():
    trace = EVENTS.select("k").set_duration(1).where(col("k") == "b").select("k").point_at_start().trace()
    assert causes(trace.why(k="b", le=2)) == [(2, "b")]
    united = EVENTS.union(EVENTS).trace()
    assert causes(united.why(x=1)) == [(1, "a")]


def test_windows_have_their_members():
    trace = EVENTS.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count()).trace()
    why = trace.why(k="a", le=0)
    assert causes(why) == [(1, "a"), (4, "a")]
    assert why.root.through == "window [0, 10) of k = a"


def test_snapshots_have_the_events_that_bound_them():
    trace = EVENTS.window(hr.snapshot()).aggregate(n=hr.count()).trace()
    assert causes(trace.why(le=3, re=4)) == [(1, "a"), (2, "b"), (4, "a")]


def test_joins_have_pairs_and_unmatched_parts_their_bounds():
    assert causes(EVENTS.join(OTHERS, on="k").trace().why(y=8, x=3)) == [(3, "a"), (4, "a")]
    unmatched = EVENTS.left_join(OTHERS, on="k").trace()
    assert causes(unmatched.why(x=1, y=None)) == [(0, "a"), (1, "a"), (3, "a")]


def test_a_pair_of_a_left_join_has_no_bounds():
    left = hr.events("le | re | k\n1 | 10 | x")
    right = hr.events("le | re | k | w\n0 | 5 | x | 7\n5 | 20 | x | 9")
    why = left.join(right, on="k", how="left").trace().why(w=7)
    assert [role for role, _ in why.root.causes] == ["pair", "pair"]
    assert why.inputs["w"].to_pylist() == [None, 7]


def test_nulls_of_a_pair_are_no_unmatched_part():
    left = hr.events("le | re | k\n1 | 10 | x")
    right = hr.events([{"le": 2, "re": 5, "k": "x", "w": None}, {"le": 5, "re": 7, "k": "x", "w": 9}])
    trace = left.join(right, on="k", how="left").trace()
    assert [role for role, _ in trace.why(w=None, le=2).root.causes] == ["pair", "pair"]
    assert [role for role, _ in trace.why(w=None, le=7).root.causes] == ["unmatched", "ends the match"]
    assert [role for role, _ in trace.why(w=None, le=1).root.causes] == ["unmatched", "ends the match"]


def test_the_top_has_the_event_itself():
    trace = EVENTS.window(hr.tumbling(10)).top(1, by=col("x")).trace()
    assert causes(trace.why(x=3)) == [(4, "a")]


def test_frames_see_the_tuples_before():
    trace = EVENTS.point_at_start().group_by("k").over(rows=1).aggregate(s=hr.sum("x")).trace()
    assert causes(trace.why(s=8)) == [(4, "a"), (11, "a")]


def test_loops_go_back_round_by_round():
    links = hr.events("le | re | k | to\n1 | 9 | a | b\n2 | 9 | b | c\n3 | 9 | c | d\n4 | 9 | x | y")
    paths = hr.recurse(links, lambda found: found.join(links, on={"to": "k"}).select("k", to=col("to_right")))
    why = paths.trace().why(k="a", to="d")
    assert causes(why) == [(1, "a"), (2, "b"), (3, "c")]
    assert "round" in repr(why)


def test_what_was_true_after_an_earlier_batch():
    trace = EVENTS.window(hr.tumbling(10)).aggregate(n=hr.count()).trace(batch_rows=1)
    late = hr.events("le | re | k | x\n1 | 2 | a | 1\n15 | 16 | a | 2\n3 | 4 | a | 3").group_by("k")
    trace = late.window(hr.tumbling(10)).aggregate(n=hr.count()).trace(batch_rows=1)
    assert causes(trace.why(le=0, n=1, batch=1)) == [(1, "a")]
    assert causes(trace.why(le=0)) == [(1, "a"), (3, "a")]
    with pytest.raises(TraceError, match="no event fits"):
        trace.why(le=0, n=1)


def test_a_row_that_is_not_there_or_not_the_only_one():
    trace = EVENTS.where(col("x") > 0).trace()
    with pytest.raises(TraceError, match=r"2 events of operator #\d fit"):
        trace.why(k="b")
    with pytest.raises(TraceError, match="no column 'z'"):
        trace.why(z=1)
    with pytest.raises(TraceError, match="not an input"):
        trace.forward(operator=3, x=1)
    assert causes(trace.why(col("x") == 5)) == [(11, "a")]


def test_what_became_of_an_event():
    trace = EVENTS.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count()).trace()
    touched = [row for row in trace.forward(operator=2, x=3).to_pylist() if row["n"] is not None]
    assert sorted((row["weight"], row["n"]) for row in touched) == [(-1, 1), (1, 2)]


def test_a_run_without_some_events():
    trace: TracedRun = EVENTS.where(col("x") > 1).trace()
    assert sorted(trace.without((2, {"x": 3}), (2, {"x": 5})).history()["x"].to_pylist()) == [2, 2]


def test_why_a_correction_was_made():
    late = hr.events("le | re | k | x\n1 | 2 | a | 1\n15 | 16 | a | 2\n3 | 4 | a | 3\n5 | 6 | b | 4").group_by("k")
    trace = late.window(hr.tumbling(10)).aggregate(n=hr.count()).trace(batch_rows=1)
    why = trace.why_retracted(le=0, k="a", n=1)
    assert (why.root.batch, causes(why)) == (2, [(3, "a")])
    with pytest.raises(TraceError, match="no event fits"):
        trace.why_retracted(k="b")


def test_why_a_retraction_was_passed_on():
    events = hr.events(
        """
        kind    | le | re | re_new | k | x
        insert  | 1  | 9  |        | a | 1
        insert  | 2  | 9  |        | b | 2
        retract | 1  | 9  | 4      | a | 1
        """
    )
    trace = events.where(col("x") > 0).select("k").trace(batch_rows=1)
    why = trace.why_retracted(k="a", re=9)
    assert causes(why) == [(1, "a")]
    assert [step.through for step in why.steps()][-1] == "corrected to [1, 4): k = a, x = 1"


def test_why_a_part_is_no_longer_unmatched():
    others = hr.events("le | re | k\n20 | 21 | z\n2 | 4 | a")
    left = hr.events("le | re | k | x\n1 | 9 | a | 1\n19 | 20 | b | 2")
    why = left.anti_join(others, on="k").trace(batch_rows=1).why_retracted(k="a", le=1, re=9)
    assert causes(why) == [(2, "a")]


def test_why_one_of_two_equal_events_is_no_longer_among_the_first():
    events = hr.events(
        """
        le | re | k | v
        1  | 7  | b | 0
        5  | 12 | b | 0
        1  | 9  | a | 2
        """
    )
    trace = events.window(hr.snapshot()).top(2, by="v").trace(batch_rows=1)
    assert causes(trace.why_retracted(le=5, re=7, k="b")) == [(1, "a")]


def test_the_steps_as_plain_values():
    why = EVENTS.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count()).trace().why(k="b")
    found = json.loads(json.dumps(why.as_dict()))
    first = found["steps"][0]
    assert (first["le"], first["re"], first["values"]) == (0, 10, {"k": "b", "n": 2})
    assert first["through"] == "window [0, 10) of k = b"
    members = [found["steps"][cause["step"]] for cause in first["causes"] if cause["role"] == "member"]
    assert [(member["le"], member["values"]["x"]) for member in members] == [(2, 2), (6, 2)]
    assert [row["le"] for row in found["inputs"]] == [2, 6]


def test_dates_and_ends_as_plain_values():
    rows = pa.table({"ts": pa.array([0], pa.timestamp("us", "UTC")), "big": [2**60], "nan": [math.nan]})
    events = hr.from_arrow(rows, lifetime=hr.edge("ts", key=[]))
    step = events.trace().why(big=2**60).as_dict()["steps"][0]
    assert (step["le"], step["re"]) == ("1970-01-01T00:00:00Z", "inf")
    assert (step["values"]["big"], step["values"]["nan"]) == (str(2**60), "NaN")


def test_a_semi_join_has_the_partner_which_keeps_another_away():
    """Found by `tests/verification/causes.py`: two anti joins, one above the other."""
    trace = EVENTS.semi_join(OTHERS, on="k").trace()
    why = trace.why(x=1, le=1)
    assert {row.get("y") for row in why.inputs.to_pylist()} >= {7, 8}
    assert "keeps a partner away" in repr(why)


def test_a_match_after_another_one_has_the_tuples_of_that():
    """Found by `tests/verification/causes.py`: a tuple that a condition looks at would begin a match by itself."""
    tuples = hr.events("le | re | k | x\n1 | 2 | a | 1\n4 | 5 | a | 2\n6 | 7 | a | 3")
    higher = hr.pattern("A B*", define={"B": col("x") >= hr.prev("x")}, within=4)
    trace = tuples.group_by("k").match(higher, n=hr.count()).trace()
    assert sorted(trace.history()["n"].to_pylist()) == [1, 2]
    assert causes(trace.why(n=1)) == [(1, "a"), (4, "a"), (6, "a")]


def test_groups_of_nulls_and_of_long_texts():
    table = pa.table({"k": [None, "long " * 100], "ts": [1, 2]})
    counts = hr.from_arrow(table, lifetime=hr.point("ts")).group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count())
    trace = counts.trace()
    assert trace.why(k=None).root.through == "window [0, 10) of k = null"
    long = trace.why(k="long " * 100).root.through
    assert long.startswith("window [0, 10) of k = long long")
    assert len(long) < 100
