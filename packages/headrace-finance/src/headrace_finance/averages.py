"""Averages of prices.

Sums are made of fractions, which are exact: added in any order and taken back again they give the same answer, to the
last digit. That is what lets `Vwap` be kept up to date instead of being computed anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import headrace as hr
from headrace.errors import ModuleError

__all__ = ["ExponentialMovingAverage", "TimeWeightedAverage", "Vwap", "known"]

Sums = tuple[Fraction, Fraction]


def known(*values: float | None) -> bool:
    """Whether all these values are numbers."""
    return all(value is not None and math.isfinite(value) for value in values)


class Vwap(hr.IncrementalAggregate):
    """The volume-weighted average price: what a unit cost on average. Null when nothing was traded.

    A trade of no quantity, or a negative one, does not count: in Headrace a trade is taken back by retracting it.
    """

    input = "price DOUBLE, quantity DOUBLE"
    output = "DOUBLE"

    def initial(self) -> Sums:
        return Fraction(0), Fraction(0)

    def add(self, state: Sums, items: Iterable[Any]) -> Sums:
        trades = [
            (Fraction(t.price), Fraction(t.quantity)) for t in items if known(t.price, t.quantity) and t.quantity > 0
        ]
        return state[0] + sum(p * q for p, q in trades), state[1] + sum(q for _, q in trades)

    def remove(self, state: Sums, items: Iterable[Any]) -> Sums:
        value, volume = self.add(self.initial(), items)
        return state[0] - value, state[1] - volume

    def merge(self, state: Sums, other: Sums) -> Sums:
        return state[0] + other[0], state[1] + other[1]

    def compute(self, state: Sums) -> float | None:
        value, volume = state
        return float(value / volume) if volume else None


class TimeWeightedAverage(hr.Aggregate):
    """The time-weighted average price: each price holds until the next one, the last until the window ends.

    For ticks, which have no duration of their own; `hr.time_weighted_avg` weighs by lifetimes. Of several prices at one
    time the highest holds. What the price was before the first tick of the window is not known, and does not count.
    """

    input = "price DOUBLE"
    output = "DOUBLE"
    time_sensitive = True
    within_window = True
    order_sensitive = True

    def compute(self, events: list[Any], window: Any) -> float | None:
        ticks = sorted((e.le, e.price) for e in events if known(e.price))
        times = [min(max(le, window.le), window.re) for le, _ in ticks]
        held = [b - a for a, b in pairwise([*times, window.re])]
        total = sum((duration * Fraction(price) for duration, (_, price) in zip(held, ticks, strict=True)), Fraction(0))
        return float(total / sum(held)) if any(held) else None


class ExponentialMovingAverage(hr.Aggregate):
    """The exponential moving average of the prices in order of time; `alpha` is the weight of the latest one.

    Prices of one time count from the lowest to the highest, whatever the order they came in.
    """

    input = "price DOUBLE"
    output = "DOUBLE"
    order_sensitive = True

    def __init__(self, alpha: float = 0.1) -> None:
        if not 0 < alpha <= 1:
            raise ModuleError("alpha is a weight", given=alpha, allowed="above 0, up to 1", instead="alpha=0.1")
        self.alpha = alpha

    def compute(self, prices: list[float | None]) -> float | None:
        average = None
        for price in prices:
            if price is not None and known(price):
                average = price if average is None else self.alpha * price + (1 - self.alpha) * average
        return average
