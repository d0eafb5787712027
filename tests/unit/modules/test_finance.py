"""The sample package, and the time-weighted average that comes with Headrace: their answers, worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import ModuleError
from headrace.testing.strategies import SCHEMA, batch_sizes, buckets, physical_streams, tables


def rows(stream: hr.Stream, **options: Any) -> list[tuple]:
    return [tuple(row.values()) for row in stream.cht(**options).to_pylist()]


def ticks(prices: Sequence[float | None], every: int = 1) -> hr.Stream:
    """Point events, one price after the other."""
    events = [{"le": i * every, "re": i * every + 1, "price": price} for i, price in enumerate(prices)]
    return hr.events(events, "price DOUBLE")


# --- averages -------------------------------------------------------------------------------------------------------

TRADES = """
    kind   | le | re | symbol | price | quantity
    insert | 1  | 2  | A      | 10.0  | 1
    insert | 3  | 4  | A      | 20.0  | 3
    insert | 5  | 6  | A      |       | 5
    insert | 6  | 7  | A      | nan   | 5
    insert | 7  | 8  | A      | 99.0  | 0
    insert | 12 | 13 | B      | 50.0  | 2
    insert | 22 | 23 | B      |       | 2
"""


@pytest.mark.parametrize("batch_rows", [None, 1])
def test_vwap_is_what_a_unit_cost(batch_rows: int | None):
    vwap = hr.module("finance.vwap").of("price", "quantity")
    answers = hr.events(TRADES).group_by("symbol").window(hr.tumbling(10)).aggregate(vwap=vwap)
    assert rows(answers, batch_rows=batch_rows) == [(0, 10, "A", 17.5), (10, 20, "B", 50.0), (20, 30, "B", None)]


def test_vwap_equals_the_built_in_sums():
    vwap, volume = hr.module("finance.vwap"), hr.sum(hr.col("price") * hr.col("quantity")) / hr.sum("quantity")
    known = hr.events(TRADES).where(hr.col("price") < 90)
    answers = known.group_by("symbol").window(hr.hopping(10, every=3)).aggregate(a=vwap, b=volume)
    assert all(a == b for *_, a, b in rows(answers))


def test_the_moving_average_follows_the_latest_price():
    ema = hr.module("finance.ema", alpha=0.5)
    assert rows(ticks([8.0, None, 4.0, 2.0, math.nan]).window(hr.tumbling(10)).aggregate(e=ema)) == [(0, 10, 4.0)]


def test_the_moving_average_goes_by_time_not_by_arrival():
    forth, back = ([{"le": t, "price": p} for t, p in some] for some in ([(1, 8.0), (2, 4.0)], [(2, 4.0), (1, 8.0)]))
    ema = hr.module("finance.ema", alpha=0.25)
    answers = [rows(hr.events(some).window(hr.tumbling(10)).aggregate(e=ema), batch_rows=1) for some in (forth, back)]
    assert answers[0] == answers[1] == [(0, 10, 7.0)]


@pytest.mark.parametrize("alpha", [0.0, 1.5, -1.0])
def test_the_weight_of_a_moving_average_is_checked(alpha: float):
    with pytest.raises(ModuleError, match="alpha is a weight"):
        hr.module("finance.ema", alpha=alpha)


def test_in_the_time_weighted_price_each_holds_until_the_next():
    stream = hr.events("le | price \n 2 | 10.0 \n 4 | 40.0 \n 4 | 20.0 \n 8 | \n 12 | 7.0")
    answers = stream.window(hr.tumbling(10), clipping="right").aggregate(t=hr.module("finance.twap"))
    assert rows(answers) == [(0, 10, (2 * 10.0 + 6 * 40.0) / 8), (10, 20, 7.0)]


def test_a_price_from_before_the_window_holds_from_its_start():
    stream = hr.events("le | re | price \n -5 | 3 | 1.0 \n -2 | 20 | 5.0 \n 4 | 5 | 10.0")
    answers = stream.window(hr.hopping(10, every=100)).aggregate(t=hr.module("finance.twap"))
    assert rows(answers) == [(0, 10, (4 * 5.0 + 6 * 10.0) / 10)]


# --- patterns -------------------------------------------------------------------------------------------------------

PEAKS = [10.0, 12.0, 11.0, 15.0, 11.2, 12.1, 9.0]


def found(prices: Sequence[float | None], module: Any, window: Any = None, **policy: Any) -> list[tuple]:
    return rows(ticks(prices).window(window or hr.tumbling(100), **policy).operate(module))


def test_head_and_shoulders_are_found_where_they_are():
    assert found(PEAKS, hr.module("finance.head_and_shoulders")) == [(1, 6, 12.0, 15.0, 12.1, 11.0)]
    assert found(PEAKS, hr.module("finance.head_and_shoulders", tolerance=0.001)) == []


@pytest.mark.parametrize(
    "prices",
    [
        PEAKS[:-1],  # the right shoulder has not turned yet
        [10.0, 12.0, 11.0, 12.0, 11.2, 12.1, 9.0],  # no head
        [10.0, 12.0, 11.0, 15.0, 8.0, 12.1, 7.0],  # a crooked neckline
        [10.0, 12.0, 11.0, 15.0, 11.2, 14.0, 9.0],  # shoulders too different
        [-p for p in PEAKS],  # upside down
        [5.0] * 9,
    ],
)
def test_other_shapes_are_no_head_and_shoulders(prices: list[float]):
    assert found(prices, hr.module("finance.head_and_shoulders")) == []


def test_plateaus_and_missing_prices_do_not_hide_a_pattern():
    stretched = [10.0, 12.0, 12.0, None, 11.0, 15.0, 15.0, math.nan, 11.2, 12.1, 12.1, 9.0]
    assert found(stretched, hr.module("finance.head_and_shoulders")) == [(1, 10, 12.0, 15.0, 12.1, 11.0)]


def test_a_w_is_two_equal_lows_with_a_high_between():
    module = hr.module("finance.w_pattern")
    assert found([10.0, 5.0, 8.0, 5.1, 9.0], module) == [(1, 4, 5.0, 8.0, 5.1)]
    assert found([10.0, 5.0, 5.2, 5.1, 9.0], module) == [], "the high must stand out"
    assert found([10.0, 5.0, 8.0, 6.0, 9.0], module) == [], "the lows must be equal"
    assert found([1.0, 5.0, 3.0, 5.0, 1.0], module) == [], "an M is no W"
    assert found([9.0, 5.0, 8.0, 5.0, 8.0, 5.0, 9.0], module) == [(1, 4, 5.0, 8.0, 5.0), (3, 6, 5.0, 8.0, 5.0)]


def test_a_pattern_is_found_in_every_window_that_holds_it_whole():
    module = hr.module("finance.w_pattern")
    prices = [10.0, 5.0, 8.0, 5.1, 9.0]
    assert found(prices, module, hr.tumbling(4)) == [], "no window holds it"
    assert len(found(prices, module, hr.hopping(10, every=5))) == 2
    assert found(prices, module, hr.hopping(10, every=5), timestamping="align") == [
        (-5, 5, 5.0, 8.0, 5.1),
        (0, 10, 5.0, 8.0, 5.1),
    ]


def test_a_late_tick_takes_a_pattern_back():
    events = [{"le": 2 * i, "re": 2 * i + 1, "price": p} for i, p in enumerate([10.0, 5.0, 8.0, 5.1, 9.0])]
    stream = hr.events([*events, {"le": 30, "re": 31, "price": 9.0}, {"le": 5, "re": 6, "price": 1.0}], batches=[6, 1])
    run = stream.window(hr.tumbling(20)).operate(hr.module("finance.w_pattern")).run()
    kinds = [(e["kind"], e["le"], e["re"], e["re_new"]) for e in run.events().to_pylist() if e["kind"] != "cti"]
    assert kinds == [("insert", 2, 7, None), ("retract", 2, 7, 2)]


@pytest.mark.parametrize("name", ["finance.head_and_shoulders", "finance.w_pattern"])
def test_a_tolerance_is_checked(name: str):
    with pytest.raises(ModuleError, match="a tolerance is a fraction"):
        hr.module(name, tolerance=5.0)


# --- hr.time_weighted_avg -------------------------------------------------------------------------------------------

SIGNAL = """
    kind   | le | re | k | x
    insert | -3 | 4  | a | 2.0
    insert | 4  | 25 | a | 6.0
    insert | 5  | 7  | a |
    insert | 12 | 13 | b | 1.0
    insert | 12 | 16 | b | 5.0
"""


@pytest.mark.parametrize("clipping", ["none", "left", "right", "full"])
def test_the_time_weighted_average_is_the_same_under_every_clipping(clipping: Any):
    stream = hr.events(SIGNAL).group_by("k").window(hr.tumbling(10), clipping=clipping)
    assert rows(stream.aggregate(a=hr.time_weighted_avg("x"))) == [
        (-10, 0, "a", 2.0),
        (0, 10, "a", (4 * 2.0 + 6 * 6.0) / 10),
        (10, 20, "a", 6.0),
        (10, 20, "b", (1 * 1.0 + 4 * 5.0) / 5),
        (20, 30, "a", 6.0),
    ]


def test_it_takes_expressions_and_whole_numbers_and_stands_in_expressions():
    stream = hr.events("le | re | n \n 0 | 2 | 1 \n 2 | 3 | 4").window(hr.tumbling(10))
    assert rows(stream.aggregate(a=hr.time_weighted_avg(hr.col("n") * 2) + 1, b=hr.time_weighted_avg("n"))) == [
        (0, 10, 5.0, 2.0)
    ]


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ([None], None),
        ([None, 3.0], 3.0),
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1.0], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, 1.0], math.nan),
        ([math.nan, math.inf], math.nan),
        ([1e308, 1e308, 1e308], 1e308),
        ([1e16, 1.0, -1e16], 1 / 3),
    ],
)
def test_nulls_and_odd_values(values: list[float | None], answer: float | None):
    events = [{"le": i, "re": i + 1, "x": x} for i, x in enumerate(values)]
    stream = hr.events(events, "x DOUBLE").window(hr.tumbling(10))
    ((_, _, found_),) = rows(stream.aggregate(a=hr.time_weighted_avg("x")))
    assert found_ == answer or (math.isnan(found_) and math.isnan(answer))


def test_a_value_that_never_held_inside_the_window_does_not_count():
    # In windows that count ends, an event belongs where it ends: the first has ended when the window starts.
    stream = hr.events("le | re | x \n 1 | 5 | 2.0 \n 5 | 8 | 4.0").window(hr.count_by_end(2))
    assert rows(stream.aggregate(a=hr.time_weighted_avg("x"))) == [(5, 9, 4.0)]
    alone = hr.events("le | re | x \n 1 | 5 | 2.0").window(hr.count_by_end(1))
    assert rows(alone.aggregate(a=hr.time_weighted_avg("x"))) == [(5, 6, None)]


def by_hand(history: list[tuple], size: int) -> list[tuple]:
    """Instant by instant."""
    out = []
    for group in sorted({row[2] or "" for row in history}):
        mine = [row for row in history if (row[2] or "") == group]
        for start in range(-size, 400, size):
            inside = [(le, re, x) for le, re, _, _, x in mine if le < start + size and re > start]
            held = [x for t in range(start, start + size) for le, re, x in inside if le <= t < re and x is not None]
            if inside:
                mean = sum(map(Fraction, held), Fraction(0)) / len(held) if held else None
                out.append((start, start + size, group or None, None if mean is None else float(mean)))
    return sorted(out, key=str)


@pytest.mark.slow
@given(physical_streams(max_events=9, odd=False), st.data())
def test_oracle_time_weighted_average_instant_by_instant(events: list, data: st.DataObject):
    bounded = [{k: 300 if v == hr.INFINITY else v for k, v in event.items()} for event in events]
    stream = hr.events(tables(bounded), SCHEMA, batches=data.draw(batch_sizes(len(bounded))))
    clipping = data.draw(st.sampled_from(["none", "right", "full"]))
    averages = stream.group_by("k").window(hr.tumbling(20), clipping=clipping)
    given_ = rows(averages.aggregate(a=hr.time_weighted_avg("x")), buckets=data.draw(buckets()))
    assert sorted(given_, key=str) == by_hand(rows(stream), 20)
