"""`group_by(...).apply` equals its twin, which runs the plan for each group by itself (rule 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import aggregates, sources, spans

import headrace as hr
from headrace import col
from headrace.errors import PlanError
from headrace.plan.nodes import Coalesce, Node
from headrace.testing.strategies import batch_sizes, buckets, physical_streams
from headrace.testing.verify.differential import differential_reference

MEETINGS = ("join", "left", "anti", "clip", "nested")
HALF = max(5, settings().max_examples // 2)
#: Nullable text; floats with NaN and both zeros; several; a computed one that may be null.
KEYS: tuple[Callable[[hr.Stream], hr.api.stream.Grouped], ...] = (
    lambda s: s.group_by("k"),
    lambda s: s.group_by("x"),
    lambda s: s.group_by("k", "i"),
    lambda s: s.group_by(k=col("i") > 0),
)


@st.composite
def streams(draw: st.DrawFn, max_events: int = 8) -> hr.Stream:
    events = draw(physical_streams(max_events=max_events))
    return sources(events, draw(batch_sizes(len(events))))


def plain(stream: hr.Stream) -> hr.Stream:
    """The columns that every stream here has."""
    named = {"k": "k", "i": "i", "x": "x_right" if "x_right" in stream.schema.names else "x"}
    return stream.select(**{name: col(column) for name, column in named.items()})


@st.composite
def bodies(draw: st.DrawFn, group: hr.Stream, outside: hr.Stream, depth: int = 3) -> hr.Stream:
    """A plan over the stream of a group: anything, made of what there is so far, with at most one meeting."""
    made, met = [group], False
    for _ in range(draw(st.integers(1, depth))):
        current, other = made[-1], draw(st.sampled_from(made))
        kind = draw(st.sampled_from(["span", "aggregate", "union", "coalesce", *(() if met else MEETINGS)]))
        if kind in MEETINGS:
            current, met = plain(draw(meetings(kind, current, other, outside))), True
        elif kind in ("span", "aggregate"):
            current = draw(spans(current) if kind == "span" else aggregates(current))
        elif kind == "union":
            current = current.union(other)
        else:
            few = current.select("k", i=hr.lit(1).cast("LONG"), x=0.5)
            current = draw(st.sampled_from([current, few])).coalesce()
        made.append(current)
    return made[-1]


@st.composite
def meetings(draw: st.DrawFn, kind: str, current: hr.Stream, other: hr.Stream, outside: hr.Stream) -> hr.Stream:
    """Two streams meet: of the group both, or one from outside; or groups within the group are made."""
    on = draw(st.sampled_from([(), "k", "i"]))
    later = draw(st.sampled_from([other.shift(2), outside]))
    if kind == "nested":  # to groups within it, the group is an outside stream
        keys = draw(st.sampled_from([("i",), ("k",), ("x", "k")]))
        return current.group_by(*keys).apply(lambda inner: draw(bodies(inner, other, depth=2)))
    if kind == "join":
        return draw(st.sampled_from([current.join(later, on), outside.join(current, on)]))
    if kind == "left":
        return current.left_join(later, on, where=col("x").is_not_null())
    return current.clip(later, on) if kind == "clip" else current.anti_join(later, on)


@settings(max_examples=2 * settings().max_examples)
@given(streams(), streams(max_events=3), st.sampled_from(KEYS), st.data(), buckets())
def test_differential_apply(stream: hr.Stream, outside: hr.Stream, keys: Callable, data: st.DataObject, n: int):
    applied = keys(stream).apply(lambda group: data.draw(bodies(group, outside)))
    differential_reference(applied.node, buckets=n)


@settings(max_examples=HALF)
@given(streams(), streams(max_events=3), st.data(), buckets())
def test_differential_apply_among_others(stream: hr.Stream, outside: hr.Stream, data: st.DataObject, n: int):
    """What comes out is where its keys say it is, and so are things that come in."""
    counted = stream.group_by("k").window(hr.tumbling(3)).aggregate(i=hr.count(), x=hr.max("x"))
    into = data.draw(st.sampled_from([stream, counted]))
    applied = into.group_by("k").apply(lambda group: data.draw(bodies(group, outside, depth=2)))
    over = applied.group_by("k").window(hr.tumbling(5)).aggregate(n=hr.count(), s=hr.sum("i"))
    differential_reference(over.join(counted, "k").node, buckets=n)


@settings(max_examples=HALF)
@given(streams(), st.sampled_from(KEYS), st.sampled_from([0, 3]), buckets())
def test_differential_apply_of_finality(stream: hr.Stream, keys: Callable, by: int, n: int):
    differential_reference(keys(stream).apply(lambda group: group.final().extend(by)).node, buckets=n)


@settings(max_examples=HALF)
@given(streams(), st.sampled_from(KEYS), st.data(), buckets())
def test_differential_apply_of_windows_of_their_own(stream: hr.Stream, keys: Callable, data: st.DataObject, n: int):
    window = data.draw(st.sampled_from([hr.snapshot(), hr.session(4), hr.count_by_start(2), hr.count_by_end(2)]))
    of_one = data.draw(
        st.sampled_from(
            [
                lambda group: group.window(window).aggregate(n=hr.count(), m=hr.max("x")),
                lambda group: group.group_by("i").window(window).aggregate(n=hr.count()),
                lambda group: group.group_by("i").top(2, "x"),
                lambda group: group.window(hr.tumbling(4)).top(1, by=["i", "x"]).coalesce(),
            ]
        )
    )
    differential_reference(keys(stream).apply(of_one).node, buckets=n)


# --- drawn ----------------------------------------------------------------------------------------------------------

TRADES = hr.events("""
    le | re | symbol | price
    1  | 4  | A      | 10
    2  | 5  | B      | 20
    3  | 9  | A      | 12
    6  | 8  |        | 30
    7  | 9  |        | 31
""")


def test_the_keys_come_first_and_the_result_may_have_dropped_or_changed_them():
    dropped = TRADES.group_by("symbol").apply(lambda group: group.select("price"))
    changed = TRADES.group_by("symbol").apply(lambda group: group.select("price", symbol=col("symbol").coalesce("-")))
    named = TRADES.group_by(dear=col("price") > 15).apply(lambda group: group.select("price", "symbol"))
    assert dropped.schema.names == changed.schema.names == ("symbol", "price")
    assert named.schema.names == ("dear", "price", "symbol")
    assert dropped.cht().equals(TRADES.cht())
    assert changed.cht().equals(TRADES.cht())
    assert named.cht()["dear"].to_pylist() == [False, True, False, True, True]


def test_a_null_key_is_a_group_like_any_other_even_where_the_group_meets_itself():
    rising = TRADES.group_by("symbol").apply(
        lambda group: group.join(group.select(next=col("price")), where=col("next") > col("price"))
    )
    assert rising.cht().to_pylist() == [
        {"le": 3, "re": 4, "symbol": "A", "price": 10, "next": 12},
        {"le": 7, "re": 8, "symbol": None, "price": 30, "next": 31},
    ]


def test_nulls_of_keys_that_the_query_names_still_equal_nothing():
    met = TRADES.group_by(all=col("price") > 0).apply(lambda group: group.join(group, on="symbol"))
    assert None not in met.cht()["symbol"].to_pylist()


def test_nan_is_one_group_and_both_zeros_are_one():
    rows = [{"le": 1, "re": 4, "x": x, "n": n} for n, x in enumerate([float("nan"), float("nan"), 0.0, -0.0])]
    pairs = hr.events(rows).group_by("x").apply(lambda group: group.select("n").join(group.select(m=col("n"))))
    found = pairs.cht(buckets=3)
    assert sorted(zip(found["n"].to_pylist(), found["m"].to_pylist(), strict=True)) == [
        (0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (2, 3), (3, 2), (3, 3),
    ]  # fmt: skip


def test_a_stream_from_outside_meets_every_group_even_if_it_is_the_one_that_is_grouped():
    dearer = TRADES.group_by("symbol").apply(
        lambda group: group.select(mine=col("price")).join(TRADES.select("price"), where=col("price") > col("mine"))
    )
    found = {(row["symbol"], row["mine"], row["price"]) for row in dearer.cht().to_pylist()}
    assert found == {("A", 10, 20), ("A", 10, 12), ("A", 12, 20), ("A", 12, 30), ("A", 12, 31), (None, 30, 31)}


def test_a_left_join_inside_tells_what_has_no_match_in_its_own_group():
    alone = TRADES.group_by("symbol").apply(
        lambda group: group.anti_join(group.select(other=col("price")), where=col("other") != col("price"))
    )
    assert [(row["le"], row["re"], row["symbol"]) for row in alone.cht().to_pylist()] == [
        (1, 3, "A"), (2, 5, "B"), (4, 9, "A"), (6, 7, None), (8, 9, None),
    ]  # fmt: skip


def test_groups_within_groups():
    counted = TRADES.group_by("symbol").apply(
        lambda group: group.group_by(dear=col("price") > 11).apply(
            lambda part: part.window(hr.tumbling(5)).aggregate(n=hr.count()).join(group.select("price"))
        )
    )
    assert counted.schema.names == ("symbol", "dear", "n", "price")
    first = counted.where((col("symbol") == "A") & (col("price") == 10)).cht().to_pylist()
    assert [(row["le"], row["re"], row["dear"], row["n"]) for row in first] == [(1, 4, False, 1), (1, 4, True, 1)]


def test_all_groups_share_one_kernel_of_each_kind():
    rows = [{"le": t, "re": t + 5, "k": t % 50, "x": t} for t in range(200)]
    applied = hr.events(rows).group_by("k").apply(
        lambda group: group.join(group.shift(1).window(hr.tumbling(50)).aggregate(n=hr.count()))
    )  # fmt: skip
    run = applied.run()
    operators = [op["operator"].split()[0] for part in run.statistics[0] for op in part["operators"].values()]
    assert sorted(operators) == ["Admit", "Join", "Merge"]
    assert len({row["k"] for row in run.cht().to_pylist()}) == 50


def test_everything_inside_runs_in_the_stage_that_the_group_is_in():
    applied = TRADES.group_by("symbol").apply(
        lambda group: group.join(group.shift(1).select("price"), on="price").coalesce()
    )
    over = applied.group_by("symbol").window(hr.tumbling(5)).aggregate(n=hr.count())
    assert "stage 1" in over.explain()
    assert "stage 2" not in over.explain()


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda group: group.union(TRADES), "a union inside apply needs streams of the group"),
        (TRADES.union, "a union inside apply needs streams of the group"),
        (
            lambda group: TRADES.left_join(group, "symbol"),
            "left_join inside apply needs the group's stream on its left",
        ),
        (
            lambda group: TRADES.anti_join(group, "symbol"),
            "anti_join inside apply needs the group's stream on its left",
        ),
        (lambda group: TRADES.clip(group, "symbol"), "clip inside apply clips the group's stream"),
        (lambda _: TRADES.where(col("price") > 1), "apply needs a result that is made from the group's stream"),
        (lambda _: None, "this is not a stream"),
        (lambda group: group.group_by("symbol"), "this is not a stream"),
        (None, "apply needs a function"),
        (TRADES, "apply needs a function"),
    ],
)
def test_what_has_no_meaning_for_a_group_is_refused_when_it_is_built(function: Callable, said: str):
    with pytest.raises(PlanError) as raised:
        TRADES.group_by("symbol").apply(function)
    assert said in raised.value.message
    assert raised.value.given is not None
    assert raised.value.allowed
    assert raised.value.instead


@dataclass(frozen=True, eq=False)
class Unheard(Coalesce):
    """An operator that nobody has said how to lift."""

    lifted = Node.lifted


def test_an_operator_that_is_not_known_to_keep_groups_apart_is_refused_by_name():
    with pytest.raises(PlanError, match="cannot yet hold Unheard"):
        TRADES.group_by("symbol").apply(lambda group: hr.Stream(Unheard(group.node)))


def test_a_group_that_leaves_its_apply_is_refused():
    kept: list[hr.Stream] = []

    def keep(group: hr.Stream) -> hr.Stream:
        kept.append(group)
        return group

    TRADES.group_by("symbol").apply(keep)
    with pytest.raises(PlanError, match="only inside its apply"):
        kept[0].cht()
    with pytest.raises(PlanError, match="only inside its apply"):
        TRADES.group_by("symbol").apply(lambda group: group.join(kept[0])).cht()


def test_the_same_query_is_the_same_plan_however_often_it_is_built():
    first, second = (TRADES.group_by("symbol").apply(lambda group: group.join(group, "price")) for _ in range(2))
    assert first.node == second.node
