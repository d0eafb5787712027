"""The rules, drawn: small streams and the histories that `docs/semantics.md` gives them."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace import col
from headrace.errors import EventError, LateEvent, PlanError
from headrace.operators.reference import bag, history_of, reference_history, rows_of
from headrace.testing import Violation, check_output
from headrace.testing.verify.differential import differential_reference, seen_after


def drawn(text: str) -> list[tuple]:
    """A drawn history as rows."""
    return [tuple(row.values()) for row in hr.events(text).cht().to_pylist()]


def given(stream: hr.Stream, **options: object) -> list[tuple]:
    return [tuple(row.values()) for row in stream.cht(**options).to_pylist()]


SEED = """
    kind    | le | re | re_new | p
    insert  | 1  | ∞  |        | P1
    retract | 1  | ∞  | 10     | P1
    retract | 1  | 10 | 5      | P1
    insert  | 4  | 9  |        | P2
"""


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 4])
def test_1_4_the_seed_example(batch_rows: int):
    assert given(hr.events(SEED), batch_rows=batch_rows) == [(1, 5, "P1"), (4, 9, "P2")]


def test_1_4_the_twin_reads_it_the_same():
    rows = history_of(hr.events(SEED).node.inputs[0].origin.table.to_pylist())
    assert bag(rows) == bag(rows_of(hr.events(SEED).cht()))


def test_1_4_a_retraction_of_nothing_is_an_error():
    with pytest.raises(EventError):
        history_of([{"kind": "retract", "le": 1, "re": 2, "re_new": 1, "p": 1}])


def test_2_3_a_correction_is_one_retraction():
    events = hr.events(SEED).run(batch_rows=1).events().to_pylist()
    assert [(e["kind"], e["le"], e["re"], e["re_new"]) for e in events[:-1]] == [
        ("insert", 1, 2**63 - 1, None),
        ("retract", 1, 2**63 - 1, 10),
        ("retract", 1, 10, 5),
        ("insert", 4, 9, None),
    ]


def test_2_2_what_cancels_within_a_batch_does_not_leave():
    kinds = hr.events(SEED).run().events().column("kind").to_pylist()
    assert kinds == ["insert", "insert", "cti"]


def test_3_1_ends_after_the_cti_may_still_move():
    stream = hr.events("""
        kind    | le | re | re_new | p
        insert  | 1  | 9  |        | a
        cti     | 5  |    |        |
        retract | 1  | 9  | 5      | a
    """)
    assert given(stream) == [(1, 5, "a")]


def test_3_1_what_is_before_the_cti_may_not():
    stream = hr.events(
        "kind | le | re | re_new | p \n insert | 1 | 9 | | a \n cti | 5 | | | \n retract | 1 | 9 | 4 | a"
    )
    with pytest.raises(LateEvent):
        stream.run()


POINTS = """
    kind   | le | n
    insert | 0  | 1
    insert | 4  | 2
    insert | 5  | 3
    insert | 11 | 4
"""


def test_5_1_tumbling():
    #  0    5    10   15
    #  |1  2|3   | 4  |
    assert given(hr.events(POINTS).window(hr.tumbling(5)).aggregate(s=hr.sum("n"))) == [
        (0, 5, 3),
        (5, 10, 3),
        (10, 15, 4),
    ]


def test_5_1_hopping():
    #  [-5,5): 1 2   [0,10): 1 2 3   [5,15): 3 4   [10,20): 4
    query = hr.events(POINTS).window(hr.hopping(10, every=5)).aggregate(s=hr.sum("n"))
    assert given(query) == [(-5, 5, 3), (0, 10, 6), (5, 15, 7), (10, 20, 4)]


def test_5_1_jumping_windows_leave_gaps():
    #  [0,2): 1   [5,7): 3   [10,12): 4     (the event at 4 is in no window)
    query = hr.events(POINTS).window(hr.hopping(2, every=5)).aggregate(s=hr.sum("n"))
    assert given(query) == [(0, 2, 1), (5, 7, 3), (10, 12, 4)]


def test_5_1_an_origin_moves_the_grid():
    query = hr.events(POINTS).window(hr.tumbling(5, origin=-1)).aggregate(s=hr.sum("n"))
    assert given(query) == [(-1, 4, 1), (4, 9, 5), (9, 14, 4)]


def test_5_1_an_event_belongs_to_every_window_it_overlaps():
    query = hr.events("le | re | n \n 3 | 10 | 1").window(hr.tumbling(5)).aggregate(c=hr.count())
    assert given(query) == [(0, 5, 1), (5, 10, 1)]


def test_5_3_windows_are_given_up_to_what_has_been_seen():
    stream = hr.events("le | re | n \n 1 | 30 | 1 \n 12 | 13 | 2", batches=[1, 1])
    query = stream.window(hr.tumbling(5)).aggregate(c=hr.count())
    assert given(query, finish=False) == [(0, 5, 1), (5, 10, 1)]
    assert len(given(query)) == 6


def test_5_3_events_that_never_end_stop_with_the_last_endpoint_of_their_group():
    stream = hr.events("""
        le | re | k
        1  | ∞  | a
        2  | 12 | a
        1  | ∞  | b
    """)
    query = stream.group_by("k").window(hr.tumbling(5)).aggregate(n=hr.count())
    assert given(query) == [(0, 5, "a", 2), (0, 5, "b", 1), (5, 10, "a", 2), (10, 15, "a", 2)]


def test_5_3_or_with_the_last_promise():
    stream = hr.events("kind | le | re | k \n insert | 1 | ∞ | a \n cti | 10 | |")
    assert given(stream.window(hr.tumbling(5)).aggregate(n=hr.count())) == [(0, 5, 1), (5, 10, 1)]


def test_5_2_a_window_whose_last_event_is_deleted_gives_nothing():
    stream = hr.events(
        "kind | le | re | re_new | n \n insert | 1 | 2 | | 7 \n insert | 8 | 9 | | 1 \n retract | 1 | 2 | 1 | 7"
    )
    query = stream.window(hr.tumbling(5)).aggregate(c=hr.count())
    assert given(query, batch_rows=1) == [(5, 10, 1)]


def test_6_4_the_cti_of_windows_is_the_start_of_the_first_open_one():
    stream = hr.events("kind | le | n \n insert | 1 | 1 \n cti | 12 |")
    for window, promise in ((hr.tumbling(5), 10), (hr.hopping(10, every=5), 5), (hr.hopping(2, every=5), 15)):
        assert stream.window(window).aggregate(n=hr.count()).run(finish=False).cti() == promise


def test_3_5_final_waits_for_the_cti_and_takes_nothing_back():
    stream = hr.events("""
        kind    | le | re | re_new | p
        insert  | 1  | 9  |        | a
        retract | 1  | 9  | 7      | a
        cti     | 7  |    |        |
        cti     | 8  |    |        |
    """, batches=[1, 1, 1, 1]).final()  # fmt: skip
    run = stream.run(finish=False)
    assert run.events().select(["kind", "le", "re"]).to_pylist() == [
        {"kind": "cti", "le": 1, "re": None},
        {"kind": "insert", "le": 1, "re": 7},
        {"kind": "cti", "le": 8, "re": None},
    ]


def test_4_a_negative_extension_lowers_the_cti():
    stream = hr.events("kind | le | re | n \n insert | 1 | 9 | 1 \n insert | 1 | 3 | 2 \n cti | 6 | | ").extend(-2)
    assert given(stream) == [(1, 7, 1)]
    assert stream.run(finish=False).cti() == 4


def test_4_where_keeps_what_is_true_and_not_what_is_unknown():
    stream = hr.events("le | n \n 1 | 5 \n 2 | \n 3 | -5").where(col("n") > 0)
    assert given(stream) == [(1, 2, 5)]


def test_a_plan_and_its_twin():
    stream = hr.events(SEED).window(hr.tumbling(3)).aggregate(n=hr.count(), last=hr.last("p"))
    rows = reference_history(stream.node, seen_after(stream.node, 1))
    assert bag(rows) == bag(rows_of(stream.cht()))
    differential_reference(stream.node, buckets=3)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind | le | re | re_new | n \n cti | 5 | | | \n insert | 4 | 6 | | 1", "before the CTI"),
        ("kind | le | re | re_new | n \n retract | 4 | 6 | 5 | 1", "retracts an event that does not exist"),
        ("kind | le | re | re_new | n \n cti | 5 | | | \n cti | 5 | | | ", "does not rise"),
        ("kind | le | re | re_new | n \n insert | 4 | 6 | | 1 \n cti | 6 | | | \n retract | 4 | 6 | 5 | 1", "before"),
        ("kind | le | re | re_new | n \n insert | 4 | 6 | | 1 \n retract | 4 | 6 | 6 | 1", "changes nothing"),
    ],
)  # fmt: skip
def test_10_2_the_checker_names_what_is_wrong(text: str, problem: str):
    table = hr.events(text).node.inputs[0].origin.table
    with pytest.raises(Violation, match=problem):
        check_output(table)


def test_10_2_shapes():
    table = hr.events("kind | le | re | re_new | n \n insert | 4 | 6 | | 1").node.inputs[0].origin.table
    check_output(table)
    for shape in ("point", "edge"):
        with pytest.raises(Violation):
            check_output(table, shape)


def test_a_window_without_size_cannot_be_built():
    with pytest.raises(PlanError):
        hr.tumbling(0)
