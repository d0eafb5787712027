"""Where events are in a trace: the batches and the rows of the changes that added or removed them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headrace.changes import Changes
from headrace.operators.reference.rows import Row, row_identity
from headrace.schema import Schema

__all__ = ["ChangePlace", "ChangePlaces"]


class ChangePlace(NamedTuple):
    """A change of an operator: the number of its batch, and of its row among the changes of that batch."""

    batch: int
    row: int


class ChangePlaces:
    """The changes of an operator in the order of their starts, so that an event is found without reading all."""

    def __init__(self, parts: Sequence[tuple[int, Changes]], schema: Schema) -> None:
        changes = Changes.concat([Changes.empty(schema), *(part for _, part in parts)])
        self._changes = changes.with_payload(changes.payload.combine_chunks())
        self._order = np.argsort(changes.le, kind="stable")
        self._starts = changes.le[self._order]
        self._batches = np.repeat([n for n, _ in parts], [len(part) for _, part in parts]).astype(np.int64)

    def find(self, row: Row, *, removals: bool = False) -> list[ChangePlace]:
        """The changes that added an event, or those that removed it; in the order of batches."""
        first, last = np.searchsorted(self._starts, row[0], "left"), np.searchsorted(self._starts, row[0], "right")
        among = np.sort(self._order[first:last])
        weight = self._changes.weight[among]
        among = among[(self._changes.re[among] == row[1]) & (weight < 0 if removals else weight > 0)]
        payloads = self._changes.payload.take(among).to_pylist() if row[2] else [{} for _ in among]
        wanted = row_identity(row)
        return [
            ChangePlace(int(self._batches[i]), int(i - np.searchsorted(self._batches, self._batches[i])))
            for i, payload in zip(among, payloads, strict=True)
            if row_identity((row[0], row[1], payload)) == wanted
        ]
