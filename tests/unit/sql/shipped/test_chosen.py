"""Rankings, samples and counts of the library against plain Python: over all tuples so far, and over windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fixtures.tuples import FEWER, FRAMES, Told, Tuple, frame, rows_before, streams

from headrace import stdlib
from headrace.sql.parse import parse

WORDS = ("x", "y", "z", "", None)
SCORES = (0.0, 1.0, -2.5, 7.0, 7.0, None)
#: Some meet under one of the hashes or two, and one meets 1 under all.
ITEMS = (1, 1, 1, 2, -1, 1022, 1021 * 1019 + 1, 1021 * 1019 * 1013 + 1, 2**62, None)
Window = Callable[[list[Tuple]], Iterator[Tuple]]


def windowed(over: tuple[str, int] | None, answer: Callable[[list[Tuple]], Iterator[Tuple]]) -> Window:
    """What is given at each tuple of a group, of the tuples that count there: all so far, if no frame is said."""

    def model(group: list[Tuple]) -> Iterator[Tuple]:
        for place, (time, *_) in enumerate(group):
            seen = group[: place + 1] if over is None else rows_before(group, place, *over)
            yield from ((time, *row) for row in answer(seen))

    return model


def said(over: tuple[str, int] | None) -> str:
    return "OVER (PARTITION BY k)" if over is None else frame(*over)


MAYBE = st.none() | FRAMES


@FEWER
@given(streams("item STRING, score DOUBLE", WORDS, SCORES), MAYBE, st.integers(1, 3))
def test_top_k(told: Told, over: tuple[str, int] | None, k: int) -> None:
    def best(seen: list[Tuple]) -> Iterator[Tuple]:
        ranked = sorted((one for one in seen if one[2] is not None), key=lambda one: (-one[2], one[0]))
        yield from ((item, score) for _, item, score in ranked[:k])

    assert told.given(f"SELECT k, top_k(item, score, {k}) {said(over)} FROM s") == told.expected(windowed(over, best))


@FEWER
@given(streams("item STRING, score DOUBLE", WORDS, SCORES), st.integers(1, 3))
def test_top_k_of_a_window_stands_in_order(told: Told, k: int) -> None:
    """The base version gives rows when all tuples are there."""
    module = stdlib.top_k
    for _, group in told.groups():
        ranked = sorted((one for one in group if one[2] is not None), key=lambda one: (-one[2], one[0]))
        assert module.compute([(item, score, k) for _, item, score in group]) == [one[1:] for one in ranked[:k]]


@FEWER
@given(streams("item STRING, score DOUBLE", WORDS, SCORES), MAYBE)
def test_priority_sample(told: Told, over: tuple[str, int] | None) -> None:
    def drawn(seen: list[Tuple]) -> Iterator[Tuple]:
        known = [one for one in seen if one[2] is not None]
        yield (max(known, key=lambda one: one[2])[1] if known else None,)

    text = f"SELECT k, priority_sample(item, score) {said(over)} AS item FROM s"
    assert told.given(text) == told.expected(windowed(over, drawn))


def slots(item: int) -> list[tuple[int, int]]:
    """Where an item is counted."""
    return [(size, item % size) for size in (1021, 1019, 1013)]


@pytest.mark.slow
@FEWER
@given(streams("item LONG", ITEMS), MAYBE, st.sampled_from([0.0, 0.3, 0.6]))
def test_frequent_items(told: Told, over: tuple[str, int] | None, share: float) -> None:
    def frequent(seen: list[Tuple]) -> Iterator[Tuple]:
        items = [item for _, item in seen if item is not None]
        counts = Counter(slot for item in items for slot in slots(item))
        item = seen[-1][1]
        if item is not None:
            estimate = min(counts[slot] for slot in slots(item))
            assert estimate >= items.count(item)
            if estimate >= share * len(items):
                yield item, estimate

    text = f"SELECT k, frequent_items(item, {share}) {said(over)} FROM s"
    assert told.given(text) == told.expected(windowed(over, frequent))


def test_few_items_are_counted_exactly():
    """No two of so many meet under every hash."""
    places = [tuple(slots(item)) for item in [*range(-2000, 2000), *range(10**8, 10**8 + 2000)]]
    assert len(set(places)) == len(places)


class Histogram:
    """Datar's exponential histogram, one bucket after the other."""

    def __init__(self, last: int, most: int) -> None:
        self.last, self.most, self.n = last, most, 0
        #: The newest one and the size of each, the oldest first.
        self.buckets: list[tuple[int, int]] = []

    def add(self, bit: bool | None) -> int:
        self.n += 1
        self.buckets = [one for one in self.buckets if one[0] > self.n - self.last]
        if bit:
            self.buckets.append((self.n, 1))
            self._merge(1)
        sizes = [size for _, size in self.buckets]
        return sum(sizes) - max(sizes, default=0) // 2

    def _merge(self, size: int) -> None:
        same = [one for one in self.buckets if one[1] == size]
        if len(same) > self.most:
            oldest, second = same[:2]
            self.buckets[self.buckets.index(second)] = (second[0], 2 * size)
            self.buckets.remove(oldest)
            self._merge(2 * size)


@pytest.mark.slow
@FEWER
@given(streams("bit BOOLEAN", (True, True, False, None), most=30), st.sampled_from([1, 3, 8, 20]), st.integers(2, 4))
def test_approx_ones(told: Told, last: int, most: int) -> None:
    def model(group: list[Tuple]) -> Iterator[Tuple]:
        histogram = Histogram(last, most)
        for time, bit in group:
            yield time, histogram.add(bit)

    text = f"SELECT k, approx_ones(bit, {last}, {most}) OVER (PARTITION BY k) AS n FROM s"
    assert told.given(text) == told.expected(model)


@given(st.lists(st.booleans(), max_size=300), st.sampled_from([1, 10, 100]), st.integers(2, 5))
def test_approx_ones_is_as_wrong_as_it_says(bits: list[bool], last: int, most: int) -> None:
    module, histogram = stdlib.approx_ones, Histogram(last, most)
    for bit in bits:
        estimate = histogram.add(bit)
    if bits:
        true = sum(bits[-last:])
        assert module.compute([(bit, last, most) for bit in bits]) == estimate
        assert abs(estimate - true) <= true / most
        assert len(histogram.buckets) <= most * (last.bit_length() + 1)


def test_texts_have_the_two_versions_they_speak_of():
    for name, module in stdlib.LIBRARY.items():
        statements = parse(module.text).statements
        assert {part.name.text for part in statements} == {name}
        windows = "under ROWS and RANGE" in stdlib.about(name) or module.versions.base is None
        assert any(part.window for part in statements) == windows
