"""Modules that come with Headrace, written like users' modules."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

from headrace.expr import Expr
from headrace.modules.base import Aggregate, Window

__all__ = ["TimeWeightedAverage", "time_weighted_avg"]


class TimeWeightedAverage(Aggregate):
    """The average of a value, weighted by how long it held inside the window.

    Every value counts with the part of its lifetime that lies inside the window, so that the answer is the same under
    every clipping policy. The weights are divided by their sum: instants at which nothing held do not count, and where
    several values held at once each of them does. Nulls are ignored. The answer is null when nothing is left: no value,
    or none that held for any time inside the window (which happens in windows that count ends). NaN and infinities give
    what a sum of them gives: an infinity alone is the answer, and NaN, or infinities of both signs, give NaN.

    The sum is exact and rounded once, so the order of events never shows.
    """

    input = "value DOUBLE"
    output = "DOUBLE"
    time_sensitive = True
    within_window = True

    def compute(self, items: list[Any], window: Window) -> float | None:
        # Numerators by denominator: whole numbers add exactly, and a fraction is made once for each.
        sums: defaultdict[int, int] = defaultdict(int)
        odd, total = set(), 0
        for item in items:
            weight = min(item.re, window.re) - max(item.le, window.le)
            if item.value is None or weight <= 0:
                continue
            if not math.isfinite(item.value):
                odd.add(str(item.value))
                continue
            numerator, denominator = item.value.as_integer_ratio()
            sums[denominator] += numerator * weight
            total += weight
        if odd:
            return float(odd.pop()) if len(odd) == 1 else math.nan
        if not total:
            return None
        return float(sum(Fraction(n, d) for d, n in sums.items()) / total)


def time_weighted_avg(value: str | Expr) -> Expr:
    """The average of a column or expression, weighted by how long each value held inside the window.

    It sees lifetimes, so `window(..., clipping="right")` lets its windows close in time; see `TimeWeightedAverage`.
    """
    return TimeWeightedAverage().of(value)
