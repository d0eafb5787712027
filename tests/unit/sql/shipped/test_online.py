"""Averages of the library against plain Python: over all tuples so far, and over windows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fixtures.tuples import FEWER, FRAMES, Told, Tuple, frame, rows_before, streams

NUMBERS = (0.0, 1.0, -2.5, 0.1, 100.0, 3.0, None)


class Welford:
    """Count, mean and sum of squares, kept up as values come and go; the same steps as the library's."""

    def __init__(self) -> None:
        self.n, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, value: float | None) -> None:
        if value is None:
            return
        mean = value if self.n == 0 else self.mean + (value - self.mean) / (self.n + 1)
        self.squares += (value - self.mean) * (value - mean)
        self.n, self.mean = self.n + 1, mean

    def remove(self, value: float | None) -> None:
        if value is None:
            return
        if self.n == 1:
            self.n, self.mean, self.squares = 0, 0.0, 0.0
            return
        mean = self.mean - (value - self.mean) / (self.n - 1)
        self.squares -= (value - self.mean) * (value - mean)
        self.n, self.mean = self.n - 1, mean

    @property
    def answers(self) -> dict[str, float | None]:
        return {
            "online_mean": self.mean if self.n else None,
            "online_variance": self.squares / (self.n - 1) if self.n > 1 else None,
        }


@FEWER
@given(streams("x DOUBLE", NUMBERS), st.sampled_from([0.25, 0.0, 1.0]))
def test_ewma_forgets(told: Told, weight: float) -> None:
    def model(group: list[Tuple]) -> Iterator[Tuple]:
        mean = None
        for time, value in group:
            if value is not None:
                mean = value if mean is None else weight * value + (1.0 - weight) * mean
            if mean is not None:
                yield time, mean

    assert told.given(f"SELECT k, ewma(x, {weight}) AS m FROM s GROUP BY k") == told.expected(model)


@pytest.mark.parametrize("name", ["online_mean", "online_variance"])
@FEWER
@given(streams("x DOUBLE", NUMBERS))
def test_so_far(name: str, told: Told) -> None:
    def model(group: list[Tuple]) -> Iterator[Tuple]:
        state = Welford()
        for time, value in group:
            state.add(value)
            yield time, state.answers[name]

    assert told.given(f"SELECT k, {name}(x) OVER (PARTITION BY k) AS m FROM s") == told.expected(model)


@pytest.mark.parametrize("name", ["online_mean", "online_variance"])
@FEWER
@given(streams("x DOUBLE", NUMBERS), FRAMES)
def test_in_a_window(name: str, told: Told, over: tuple[str, int]) -> None:
    def model(group: list[Tuple]) -> Iterator[Tuple]:
        state, there = Welford(), list[Tuple]()
        for place, (time, value) in enumerate(group):
            left = rows_before(group, place, *over)
            for gone in there:
                if gone not in left:
                    state.remove(gone[1])
            there = left
            state.add(value)
            yield time, state.answers[name]

    assert told.given(f"SELECT k, {name}(x) {frame(*over)} AS m FROM s") == told.expected(model)


@pytest.mark.slow
@FEWER
@given(streams("x DOUBLE", NUMBERS), FRAMES)
def test_they_are_the_mean_and_the_variance(told: Told, over: tuple[str, int]) -> None:
    """Up to what rounding on the way costs."""
    text = f"SELECT k, online_mean(x) {frame(*over)} AS m, online_variance(x) {frame(*over)} AS v FROM s"
    given = {(row[0], row[1]): row[2:] for row in told.given(text)}
    for key, group in told.groups():
        for place, (time, _) in enumerate(group):
            values = [value for _, value in rows_before(group, place, *over) if value is not None]
            mean, variance = given[time, key]
            assert (mean is None) == (not values)
            assert mean is None or math.isclose(mean, statistics.fmean(values), rel_tol=1e-9, abs_tol=1e-9)
            assert (variance is None) == (len(values) < 2)
            assert variance is None or math.isclose(variance, statistics.variance(values), rel_tol=1e-9, abs_tol=1e-9)
