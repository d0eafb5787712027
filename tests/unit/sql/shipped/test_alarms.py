"""What the library says about gaps and about nothing happening, against plain Python."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fixtures.tuples import FEWER, Told, Tuple, streams

import headrace as hr

SEEN = (0, 1, 2, 5, 9, 20, None)


@FEWER
@given(streams("seen LONG", SEEN), st.integers(0, 6))
def test_gap_group(told: Told, gap: int) -> None:
    def model(group: list[Tuple]) -> Iterator[Tuple]:
        number, latest = 1, None
        for time, seen in group:
            if None not in (seen, latest) and seen - latest > gap:
                number += 1
            latest = latest if seen is None else seen
            yield time, number

    assert told.given(f"SELECT k, gap_group(seen, {gap}) AS number FROM s GROUP BY k") == told.expected(model)


@FEWER
@given(streams("tag STRING, what STRING", ("p", "q", None), ("item", "item", "op", "cart", None)), st.integers(1, 9))
def test_theft_alarm(told: Told, d: int) -> None:
    def model(group: list[Tuple]) -> Iterator[Tuple]:
        people = [time for time, _, kind in group if kind == "op"]
        for time, tag, kind in group:
            if kind == "item" and not any(abs(time - person) <= d for person in people):
                yield time + d, tag

    over = f"OVER (PARTITION BY k RANGE {d} ticks PRECEDING ACTIVE EXPIRATION)"
    assert told.given(f"SELECT k, theft_alarm(tag, what) {over} AS tag FROM s") == told.expected(model)


@FEWER
@given(streams("heard STRING", ("hello", "still here", None)), st.integers(1, 9))
def test_silence(told: Told, d: int) -> None:
    def model(group: list[Tuple]) -> Iterator[Tuple]:
        times = [time for time, _ in group]
        for time, heard in group:
            if not any(time < other <= time + d for other in times):
                yield time + d, heard

    over = f"OVER (PARTITION BY k RANGE {d} ticks PRECEDING ACTIVE EXPIRATION)"
    assert told.given(f"SELECT k, silence(heard) {over} AS heard FROM s") == told.expected(model)


@pytest.mark.parametrize(
    ("seen", "alarms"),
    [
        ([(1, "p", "item")], [(6, "p")]),
        ([(1, "p", "item"), (6, "anna", "op")], []),  # just in time
        ([(1, "p", "item"), (7, "anna", "op")], [(6, "p")]),
        ([(1, "anna", "op"), (6, "p", "item")], []),
        ([(1, "anna", "op"), (7, "p", "item")], [(12, "p")]),
        ([(1, "p", "item"), (1, "q", "item"), (3, "anna", "op"), (20, "r", "item")], [(25, "r")]),
    ],
)
def test_a_door(seen: list[tuple[int, str, str]], alarms: list[tuple[int, str]]):
    """Who carries a product out may come up to five ticks before it or after it."""
    names = ("le", "tag", "what")
    door = hr.events([dict(zip(names, one, strict=True)) for one in seen], "tag STRING, what STRING")
    text = "SELECT theft_alarm(tag, what) OVER (RANGE 5 ticks PRECEDING ACTIVE EXPIRATION) AS tag FROM door"
    assert [(row["le"], row["tag"]) for row in hr.sql(text, door=door).cht().to_pylist()] == alarms
