"""Covering arrays: few rows in which every two values of different dimensions occur together (as AETG finds them).

Most faults need one value, or a pair. So the first rows cover as many new pairs as possible, until none is left; after
that rows are random, without end. The same arguments give the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from random import Random

from headrace.errors import IntentError

__all__ = ["pairwise"]

#: The number of candidates for each row; the one with the most new pairs wins.
_CANDIDATES = 12
#: The most steps of a search for values that can be combined, and the number of orders of dimensions to try: the search
#: is slow if a dimension that excludes many values comes late.
_STEPS, _ORDERS = 2_000, 10

#: A value of a dimension, and two of them, by their numbers.
Cell = tuple[int, int]
Pair = tuple[Cell, Cell]
Row = dict[int, int]


def pairwise(
    dimensions: Mapping[str, Sequence[str]],
    seed: int | str,
    *,
    allowed: Callable[[Mapping[str, str]], bool] | None = None,
) -> Iterator[dict[str, str]]:
    """Rows with one value for each dimension: first all pairs in few rows, then at random.

    `allowed` tells whether values can be combined; it also gets partial rows, and must return true if undecided.
    """
    empty = [name for name, values in dimensions.items() if not values]
    if empty:
        raise IntentError("a dimension has no value left", given=", ".join(empty), allowed="at least one for each")
    array = _Array(dimensions, Random(f"{seed} pairs"), allowed)  # noqa: S311 - nothing secret
    array.drawn()  # fails here, not at the first row, if no values can be combined
    return _rows(array)


def _rows(array: _Array) -> Iterator[dict[str, str]]:
    while array.missing:
        row = array.best() or array.completed_pair()
        if row is not None:
            yield array.named(row)
    while True:
        yield array.named(array.drawn())


class _Array:
    """The state of the array: the pairs that are still missing."""

    def __init__(
        self,
        dimensions: Mapping[str, Sequence[str]],
        random: Random,
        allowed: Callable[[Mapping[str, str]], bool] | None,
    ) -> None:
        self._names = list(dimensions)
        self._values = [list(values) for values in dimensions.values()]
        self._random = random
        self._allowed = allowed
        # With a single dimension each value makes a pair with itself.
        cells = [[(d, v) for v in range(len(values))] for d, values in enumerate(self._values)]
        pairs = ((a, b) for own_cells, other_cells in combinations(cells, 2) for a in own_cells for b in other_cells)
        self.missing: dict[Pair, None] = dict.fromkeys([(a, a) for a in cells[0]] if len(cells) == 1 else pairs)

    def named(self, row: Row) -> dict[str, str]:
        """A row by names; its pairs are no longer missing."""
        for pair in self._pairs(row):
            self.missing.pop(pair, None)
        return self._text(dict(sorted(row.items())))

    def _text(self, row: Row) -> dict[str, str]:
        return {self._names[d]: self._values[d][v] for d, v in row.items()}

    def _pairs(self, row: Row) -> list[Pair]:
        cells = sorted(row.items())
        return list(combinations(cells, 2)) if len(self._names) > 1 else [(cell, cell) for cell in cells]

    def _fits(self, row: Row) -> bool:
        return self._allowed is None or self._allowed(self._text(row))

    # --- the first rows ----------------------------------------------------------------------------------------------

    def best(self) -> Row | None:
        """The best of some candidates; None if none of them has a new pair."""
        counts: dict[Cell, int] = {}
        for pair in self.missing:
            for cell in pair:
                counts[cell] = counts.get(cell, 0) + 1
        most = max(counts.values())
        firsts = [cell for cell, number in counts.items() if number == most]
        candidates = [row for _ in range(_CANDIDATES) if (row := self._candidate(self._random.choice(firsts)))]
        gains = [sum(pair in self.missing for pair in self._pairs(row)) for row in candidates]
        gain = max(gains, default=0)
        return candidates[gains.index(gain)] if gain else None

    def _candidate(self, first: Cell) -> Row | None:
        """A row with this value, and in every other dimension the value with the most new pairs."""
        row = dict([first])
        others = [d for d in range(len(self._names)) if d != first[0]]
        self._random.shuffle(others)
        for d in others:
            best: list[int] = []
            most = -1
            for v in range(len(self._values[d])):
                gain = sum((((e, w), (d, v)) if e < d else ((d, v), (e, w))) in self.missing for e, w in row.items())
                if gain >= most and self._fits(row | {d: v}):
                    best = [*best, v] if gain == most else [v]
                    most = gain
            if not best:
                return None
            row[d] = self._random.choice(best)
        return row

    def completed_pair(self) -> Row | None:
        """A row with the pair that has been missing longest; None if the pair is impossible."""
        pair = next(iter(self.missing))
        del self.missing[pair]
        return self._completed(dict(pair))

    # --- any rows ----------------------------------------------------------------------------------------------------

    def drawn(self) -> Row:
        """A random row."""
        row = self._completed({})
        if row is None:
            raise IntentError(
                "no values of these dimensions can be combined",
                given=", ".join(f"{n}={'|'.join(values)}" for n, values in zip(self._names, self._values, strict=True)),
                allowed="values that can be combined",
                instead="leave some of them open",
            )
        return row

    def _completed(self, row: Row) -> Row | None:
        """A random allowed row with these values, if there is one."""
        rest = [d for d in range(len(self._names)) if d not in row]
        for _ in range(_ORDERS):
            self._random.shuffle(rest)
            found, finished = self._searched(row, rest)
            if finished:
                return found
        return None

    def _searched(self, row: Row, rest: list[int]) -> tuple[Row | None, bool]:
        """The row with values for the rest, chosen in this order; and whether the search was complete."""
        steps = 0

        def fill(row: Row, rest: list[int]) -> Row | None:
            nonlocal steps
            steps += 1
            if steps > _STEPS or not self._fits(row):
                return None
            if not rest:
                return row
            values = list(range(len(self._values[rest[0]])))
            self._random.shuffle(values)
            found = (fill(row | {rest[0]: v}, rest[1:]) for v in values)
            return next((full_row for full_row in found if full_row is not None), None)

        found = fill(row, rest)
        return found, found is not None or steps <= _STEPS
