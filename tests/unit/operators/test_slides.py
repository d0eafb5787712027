"""Frames that slide: only yield tuples have results, whatever comes late, leaves or ends elsewhere (rule 7.5)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.ordered import long_streams

import headrace as hr
from headrace import col
from headrace.errors import PlanError
from headrace.optimizer import optimize
from headrace.plan.nodes import Output, Over, walk
from headrace.plan.ordered import NUMBER, Frame, Time, Tuples
from headrace.testing.batches import check_same_batches
from headrace.testing.checks import check_output
from headrace.testing.verify.checks import live, restarted
from headrace.testing.verify.differential import differential_reference


def points(*rows: tuple[int, int], every: int = 1) -> hr.Stream:
    """Values at times, so many a batch."""
    told = [{"kind": "insert", "le": le, "re": le + 1, "re_new": None, "v": v} for le, v in rows]
    return hr.events(told, "v LONG", batches=[every] * (len(rows) // every))


def results(stream: hr.Stream, name: str = "s") -> list[tuple[int, Any]]:
    return [(row["le"], row[name]) for row in stream.cht().to_pylist()]


NUMBERS = points(*((t, t) for t in range(1, 61)), every=5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ({"rows": 4, "slide": 3}, [(t, sum(range(max(1, t - 4), t + 1))) for t in range(3, 61, 3)]),
        ({"rows": 9, "slide": 28}, [(28, sum(range(19, 29))), (56, sum(range(47, 57)))]),
        ({"range": 7, "slide": 20}, [(t, sum(range(t - 7, t + 1))) for t in (19, 39, 59)] + [(60, sum(range(53, 61)))]),
        ({"slide": 25}, [(25, 325), (50, 1275)]),
        ({"slide": "40 ticks"}, [(39, 780), (60, 1830)]),
    ],
)
def test_only_yield_tuples_have_results(frame: dict[str, Any], expected: list[tuple[int, int]]):
    out = NUMBERS.over(**frame).aggregate(s=hr.sum("v"), m=hr.max("v"))
    assert results(out) == expected
    plain = {
        row["v"]: row for row in NUMBERS.over(**frame | {"slide": None}).aggregate(s=hr.sum("v")).cht().to_pylist()
    }
    assert all(plain[le]["s"] == value for le, value in results(out))  # as without the slide
    differential_reference(out.node)


def test_slots_are_those_of_the_group():
    stream = hr.events("""
        le | re | k | v
        1  | 2  | a | 1
        2  | 3  | b | 2
        3  | 4  | a | 3
        4  | 5  | a | 4
        5  | 6  | b | 5
    """)
    out = stream.group_by("k").over(rows=0, slide=2).aggregate(n=hr.sum("v"))
    assert [(row["le"], row["k"]) for row in out.cht().to_pylist()] == [(3, "a"), (5, "b")]


def test_a_tuple_before_the_others_moves_all_slots():
    stream = hr.events("""
        kind    | le | re | re_new | v
        insert  | 2  | 3  |        | 2
        insert  | 3  | 4  |        | 3
        insert  | 4  | 5  |        | 4
        insert  | 1  | 2  |        | 1
        retract | 2  | 3  | 2      | 2
        cti     | 9  |    |        |
    """, batches=[1] * 6)  # fmt: skip
    run = stream.over(rows=1, slide=2).aggregate(s=hr.sum("v")).run()
    assert [(row["le"], row["s"]) for row in run.cht().to_pylist()] == [(3, 4)]
    check_output(run.events())


@pytest.mark.slow
def test_places_are_counted_though_tuples_are_forgotten():
    rows: list[dict[str, Any]] = []
    for t in range(1, 31):
        rows.append({"kind": "insert", "le": t, "re": t + 1, "re_new": None, "v": t})
        rows.append({"kind": "cti", "le": t + 1, "re": None, "re_new": None, "v": None})
    out = hr.events(rows, "v LONG", batches=[2] * 30).over(rows=2, slide=7).aggregate(s=hr.sum("v"), m=hr.max("v"))
    assert results(out) == [(7, 18), (14, 39), (21, 60), (28, 81)]
    sizes = [op["rows"] for batch in out.run(buckets=1, finish=False).statistics for part in batch
             for op in part["operators"].values() if op["operator"].startswith("Over")]  # fmt: skip
    assert max(sizes) <= 6, sizes  # not the first tuples of a slot, and a row for the group


# --- slots of time ----------------------------------------------------------------------------------------------------

OPEN = """
    kind   | le | re | re_new | v
    insert | 3  | 9  |        | 3
    cti    | 5  |    |        |
    insert | 7  | 9  |        | 7
    cti    | 9  |    |        |
    cti    | 10 |    |        |
    insert | 25 | 26 |        | 25
"""


@pytest.mark.parametrize("frame", [{"range": 2, "slide": 10}, {"range": 20, "slide": 10}, {"slide": "10 ticks"}])
def test_an_open_slot_holds_the_cti(frame: dict[str, Any]):
    run = hr.events(OPEN, batches=[1] * 6).over(**frame).aggregate(n=hr.count()).run(finish=False)
    events = run.events().to_pylist()
    assert [row["le"] for row in events if row["kind"] == "cti"] == [3, 7, 10]
    assert [row["le"] for row in events if row["kind"] == "insert"] == [7]
    assert [progress.cti for _, progress in run.results["out"].batches[1:]] == [3, 3, 7, 10, 10]


def test_a_later_tuple_takes_the_place_of_the_last():
    stream = hr.events("""
        kind    | le | re | re_new | v
        insert  | 3  | 9  |        | 3
        insert  | 12 | 13 |        | 12
        cti     | 5  |    |        |
        insert  | 7  | 9  |        | 7
        retract | 7  | 9  | 7      | 7
        cti     | 10 |    |        |
    """, batches=[1] * 6)  # fmt: skip
    run = stream.over(range=9, slide=10).aggregate(s=hr.sum("v")).run(finish=False)
    told = [(row["kind"], row["le"], row["s"]) for row in run.events().to_pylist() if row["kind"] != "cti"]
    assert told == [
        ("insert", 3, 3), ("retract", 3, 3), ("insert", 7, 10), ("retract", 7, 10), ("insert", 3, 3)
    ]  # fmt: skip
    check_output(run.events())


@pytest.mark.parametrize("frame", [{"rows": 1, "slide": 2}, {"slide": 2}, {"range": 3, "slide": 4}])
def test_of_equal_tuples_the_one_that_ends_last_yields_whichever_end_moves(frame: dict[str, Any]):
    stream = hr.events("""
        kind    | le | re | re_new | v
        insert  | 1  | ∞  |        | 1
        insert  | 1  | 8  |        | 1
        cti     | 5  |    |        |
        retract | 1  | ∞  | 6      | 1
    """, batches=[1] * 4)  # fmt: skip
    out = stream.over(**frame).aggregate(n=hr.count())
    assert [(row["le"], row["re"], row["n"]) for row in out.cht().to_pylist()] == [(1, 8, 2)]
    differential_reference(out.node)


# --- modules that go from tuple to tuple ------------------------------------------------------------------------------


class Mean(hr.IncrementalAggregate):
    """An average whose states merge."""

    input = "v LONG"
    output = "DOUBLE"

    def initial(self) -> tuple[int, int]:
        return 0, 0

    def add(self, state: tuple[int, int], items: list[int | None]) -> tuple[int, int]:
        there = [item for item in items if item is not None]
        return state[0] + sum(there), state[1] + len(there)

    def merge(self, state: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        return state[0] + other[0], state[1] + other[1]

    def compute(self, state: tuple[int, int]) -> float | None:
        return state[0] / state[1] if state[1] else None


class Window(hr.IncrementalAggregate):
    """The values in the window, in their order."""

    input = "v LONG"
    output = "STRING"

    def initial(self) -> list[Any]:
        return []

    def add(self, state: list[Any], items: list[Any]) -> list[Any]:
        return [*state, *items]

    def remove(self, state: list[Any], items: list[Any]) -> list[Any]:
        return state[len(items) :]

    def compute(self, state: list[Any]) -> str:
        return str(state)


SLIDES: list[dict[str, Any]] = [
    {"rows": 2, "slide": 2}, {"rows": 1, "slide": 3}, {"range": 3, "slide": 2}, {"range": 1, "slide": 5}, {"slide": 2},
    {"slide": Time(3)},
]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=max(5, settings().max_examples // 10))
@given(long_streams(), st.sampled_from(SLIDES), st.sampled_from([None, "k"]), st.integers(1, 2))
def test_differential_modules(stream: hr.Stream, frame: dict[str, Any], key: str | None, buckets: int):
    grouped: Any = stream if key is None else stream.group_by(key)
    out = grouped.over(**frame).aggregate(w=Window().of("i"), n=hr.count() + 1, a=Mean().of("i"))
    differential_reference(out.node, buckets=buckets)
    plain = {key: value for key, value in frame.items() if key != "slide"}
    every = grouped.over(**plain).aggregate(w=Window().of("i"), n=hr.count() + 1, a=Mean().of("i"))
    assert {str(row) for row in out.cht().to_pylist()} <= {str(row) for row in every.cht().to_pylist()}


class Picky(Mean):
    """Does not take ones."""

    def add(self, state: tuple[int, int], items: list[int | None]) -> tuple[int, int]:
        if 1 in items:
            raise ValueError("a one")
        return super().add(state, items)


class AtOnce(hr.Aggregate):
    """The same, computed of all items at once."""

    input = "v LONG"
    output = "DOUBLE"

    def compute(self, items: list[int | None]) -> float | None:
        return Picky().compute(Picky().add((0, 0), items))


@pytest.mark.slow
@settings(max_examples=max(5, settings().max_examples // 10))
@given(long_streams(), st.sampled_from([(0, 2), (1, 2), (1, 3)]), st.sampled_from([None, "k"]))
@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_a_slot_that_fails_says_nothing_of_the_next(stream: hr.Stream, frame: tuple[int, int], key: str | None):
    grouped: Any = stream if key is None else stream.group_by(key)
    framed = grouped.over(rows=frame[0], slide=frame[1], on_error="skip")
    out = framed.aggregate(p=Picky().of("i"))
    assert hr.same_history(out.cht(), framed.aggregate(p=AtOnce().of("i")).cht())
    check_same_batches(restarted(out.node, 2), live(out.node, 2), "restarted after every batch")


def test_results_of_equal_tuples_are_not_mixed_up():
    """What one module says must not decide which tuple the next one takes for the first."""
    stream = hr.events("""
        kind    | le | re | re_new | v
        insert  | 0  | 1  |        | 1
        insert  | 1  | 2  |        | 0
        insert  | 1  | 2  |        | 0
        insert  | 5  | 6  |        | 0
        retract | 5  | 6  | 5      | 0
    """)
    out = stream.over(rows=1).aggregate(w=Window().of("v"), n=hr.sum("v"), x=Window().of(col("v") + 1))
    found = [(row["w"], row["n"], row["x"]) for row in out.cht().to_pylist()]
    assert sorted(found) == [("[0, 0]", 0, "[1, 1]"), ("[1, 0]", 1, "[2, 1]"), ("[1]", 1, "[2]")]


# --- panes ------------------------------------------------------------------------------------------------------------


def panes(stream: hr.Stream) -> list[str]:
    """The frames that a query runs, behind the numbering of tuples."""
    nodes = [node for node in walk(*optimize([Output(stream.node, "out")])) if isinstance(node, Over)]
    return [str(node.window) for node in nodes if NUMBER not in dict(node.outputs)]


def test_windows_are_made_of_panes():
    out = NUMBERS.over(rows=49, slide=10).aggregate(a=Mean().of("v"), n=hr.count())
    assert panes(out) == ["9 rows preceding, slide 10 tuples", "4 rows preceding"]
    assert results(out, "a") == [(t, (max(1, t - 49) + t) / 2) for t in range(10, 61, 10)]
    assert panes(NUMBERS.over(rows=5, slide=4).aggregate(m=hr.max("v"))) == [
        "1 rows preceding, slide 2 tuples", "2 rows preceding, slide 2 tuples"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("frame", "call"),
    [
        ({"rows": 49, "slide": 10}, hr.sum("v")),  # which may be null of a pane, and not of the window
        ({"rows": 49, "slide": 10}, hr.median("v")),
        ({"rows": 48, "slide": 10}, hr.max("v")),
        ({"rows": 9, "slide": 10}, hr.max("v")),
        ({"range": 49, "slide": 10}, hr.max("v")),
    ],
)
def test_other_windows_are_not(frame: dict[str, Any], call: Any):
    assert len(panes(NUMBERS.over(**frame).aggregate(x=call))) == 1


PANES = st.sampled_from([(3, 2), (5, 2), (5, 4), (7, 4), (5, 3)])


@pytest.mark.slow
@settings(max_examples=max(5, settings().max_examples // 10))
@given(long_streams(), PANES, st.sampled_from([None, "k", "computed"]), st.integers(1, 2))
def test_differential_panes(stream: hr.Stream, frame: tuple[int, int], key: str | None, buckets: int):
    grouped: Any = stream
    if key is not None:
        grouped = stream.group_by("k") if key == "k" else stream.group_by(positive=col("i") > 0)
    out = grouped.over(rows=frame[0], slide=frame[1]).aggregate(a=Mean().of("i") * 2, n=hr.count("i"), m=hr.max("x"))
    assert len(panes(out)) == 2
    differential_reference(out.node, buckets=buckets)


def test_equal_tuples_stay_in_their_order_behind_panes():
    """A pane has a number: values that panes come to must not change places."""
    rows = [{"kind": "insert", "le": 1, "re": 2 + i // 3, "re_new": None, "v": 0} for i in range(9)]
    rows = [{"kind": "insert", "le": 0, "re": 1, "re_new": None, "v": 9 - i} for i in range(4)] + rows
    retracted = {"kind": "retract", "le": 0, "re": 1, "re_new": 0, "v": 9}
    stream = hr.events([*rows, retracted], "v LONG", batches=[14])
    for frame in ({"rows": 3, "slide": 2}, {"rows": 5, "slide": 4}):
        out = stream.over(**frame).aggregate(m=hr.min("v"), n=hr.count(), h=hr.max("v"))
        assert len(panes(out)) == 2
        differential_reference(out.node)


# --- what is written and what is refused ------------------------------------------------------------------------------


def test_how_slides_are_written():
    one = points((1, 1))
    assert one.over(rows=9, slide=10).frame == Frame(9, slide=Tuples(10))
    assert one.over(range="60 s", slide="10 s").frame == Frame(range=60_000_000, slide=Time(10_000_000))
    assert one.over(range=60, slide=10).frame == Frame(range=60, slide=Time(10))
    assert one.over(slide=10).frame == Frame(slide=Tuples(10))
    assert one.over(slide="10 s").frame == Frame(slide=Time(10_000_000))
    assert (Frame(9, slide=Tuples(10)).tumbles, Frame(9, slide=Tuples(9)).tumbles) == (True, False)
    assert (Frame(range=9, slide=Time(10)).tumbles, Frame(range=9, slide=Time(9)).tumbles) == (True, False)


@pytest.mark.parametrize(
    "frame",
    [{"rows": 9, "slide": 0}, {"rows": 9, "slide": "1 s"}, {"range": 9, "slide": Tuples(2)}, {"slide": -1},
     {"slide": 1.5}, {"rows": 3, "slide": True}],
)  # fmt: skip
def test_slides_that_make_no_sense_are_refused(frame: dict[str, Any]):
    with pytest.raises(PlanError) as caught:
        points((1, 1)).over(**frame)
    assert caught.value.instead


def test_explain_says_how_a_frame_runs():
    said = {
        "all that precedes (box 1), by a total of each group": {},
        "windows (box 2), by running sums": {"rows": 9},
        "tumbles (box 3), by running sums": {"rows": 9, "slide": 28},
        "windows that slide without panes (box 5), by running sums": {"rows": 49, "slide": 9},
        "windows made of panes (box 4)": {"rows": 49, "slide": 10},
        "CTI: the last tuple of the first open slot": {"range": 9, "slide": 10},
    }
    for text, frame in said.items():
        assert text in NUMBERS.over(**frame).aggregate(n=hr.count()).explain(), text


def test_rows_behind_over_are_where_its_keys_brought_them():
    """Columns that are passed on said where rows were before, and a join relied on it."""
    rows = [
        {"kind": "insert", "le": i, "re": i + 1, "re_new": None, "v": i % 5, "k": "abcdef"[i % 6]} for i in range(30)
    ]
    left = hr.events(rows, "v LONG, k STRING").group_by("v").over(rows=1).aggregate(m=hr.count())
    others = [{"kind": "insert", "le": 0, "re": 99, "re_new": None, "v": i, "w": i} for i in range(5)]
    right = hr.events(others, "v LONG, w LONG").group_by("v").over(rows=0).aggregate(z=hr.count())
    out = left.group_by("k").over(rows=1).aggregate(n=hr.count()).join(right, on="v")
    assert out.cht(buckets=3).num_rows == 30
