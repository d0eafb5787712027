"""Load shedding: chooses the rows of a batch that a started query drops (rule 3.7).

Rows are judged before some are shed. So all rows count for progress, and the rule does not change which rows are late.
The choice depends on the rows of a part, their order and the name of the part, and not on blocks and tasks: a batch
that runs again sheds the same rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Int64s
from headrace.hashing import hash_texts, mixed
from headrace.io.ingress import Channel, row_texts
from headrace.plan.nodes import Source

__all__ = ["Shedder"]

#: So many rows more than are kept may wait before some are shed.
_WAITING = 50_000


class Shedder:
    """Keeps at most `most` of the accepted rows of one part of a batch: a file, or a range of a partition."""

    def __init__(self, source: Source, most: int, part: str) -> None:
        assert source.shedding is not None
        self.source, self.rule, self.most = source, source.shedding, most
        self.shed = 0
        #: One of the rows that were shed, as text.
        self._example: str | None = None
        self._seed = hash_texts(pa.array([part]))[0]
        self._waiting: list[Changes] = []
        #: The places of the rows that wait, among all rows of the part.
        self._places: list[Int64s] = []
        self._rows = self._seen = 0

    def take(self, accepted: Changes) -> None:
        """Take more rows of the part."""
        self._waiting.append(accepted)
        self._places.append(np.arange(self._seen, self._seen + len(accepted)))
        self._seen += len(accepted)
        self._rows += len(accepted)
        if self._rows > 2 * self.most + _WAITING:
            self._reduce()

    def end(self, channel: Channel) -> Changes:
        """The rows that are kept, in their order; the others are counted in the report of the channel."""
        self._reduce()
        counts = channel.report.counts
        counts["accepted"] -= self.shed
        counts["dropped"] += self.shed
        counts["shed"] += self.shed
        if self._example is not None and channel.report.example is None:
            reason = f"the source {self.rule}"
            channel.report.example = {"reason": reason, "file": channel.file, "line": None, "row": self._example}
        return self._waiting[0]

    def _reduce(self) -> None:
        """Shed the rows of least rank, if there are too many."""
        rows = Changes.concat(self._waiting) if self._waiting else Changes.empty(self.source.schema)
        places = np.concatenate([np.empty(0, np.int64), *self._places])
        if len(rows) > self.most:
            order = self._ranked(rows, places)
            kept, shed = np.sort(order[: self.most]), order[self.most :]
            if self._example is None:
                self._example = row_texts(rows.payload.slice(int(shed.min()), 1), self.source)[0]
            self.shed += len(shed)
            rows, places = rows.take(kept), places[kept]
        self._waiting, self._places, self._rows = [rows], [places], len(rows)

    def _ranked(self, rows: Changes, places: Int64s) -> Int64s:
        """The rows in the order in which they are kept; rows of equal rank by their place, nulls last."""
        if self.rule.by is None:
            return np.argsort(mixed(places.astype(np.uint64) + self._seed), kind="stable")
        ranks = pa.table({"rank": rows.payload.column(self.rule.by), "place": places})
        keys = [("rank", "descending"), ("place", "ascending")]
        return np.asarray(pc.sort_indices(ranks, sort_keys=keys), np.int64)
