"""Schema drift in values: messages whose members, or whose writer's schema, are not the declared columns.

A file is judged once (`drift.py`). A topic has messages of many writers, so each value is judged for itself: of JSON by
its members, of Avro by the schema that it was written with, of a change in Debezium's envelope by the row that it
describes (a deletion need not have all columns, and is not judged). So the verdict on a message never depends on those
that are read with it.

`divert` refuses the message, `raise` ends the query, and `widen` reads null for what is missing; a message that has
none of the declared columns is no row of the stream, and is refused under `widen`, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.io.decoded import DecodedBlock, added, refused_table
from headrace.io.drift import DriftRules, DriftVerdict
from headrace.io.json_members import parsed_members
from headrace.io.json_shapes import ESCAPED, WHOLE, ByteSpans, Form, Shapes, objects_of, shapes_of
from headrace.schema import Field

__all__ = ["JsonDrift", "ValueDrift", "with_verdicts"]

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class ValueDrift:
    """How values with other columns are read: the declared columns, and those that are known from elsewhere."""

    rules: DriftRules
    columns: tuple[Field, ...]
    elsewhere: tuple[str, ...] = ()

    def verdict(self, where: str, found: Mapping[str, pa.DataType | None] | None) -> DriftVerdict:
        """The verdict on a value that has these columns; `where` names it in an error. None: it has no columns."""
        if found is None:
            return DriftVerdict()
        own = {name: kind for name, kind in found.items() if name not in self.elsewhere}
        return self.rules.judge_value(where, self.columns, own)


def with_verdicts(block: DecodedBlock, refused: Mapping[int, str], counts: Mapping[str, int]) -> DecodedBlock:
    """A block without the values that are refused, by their places, and with the counts."""
    if refused:
        keep = ~np.isin(block.rows, np.fromiter(refused, np.int64, len(refused)))
        before = set(block.refused["row"].to_pylist())  # what cannot be read has its own reason
        more = refused_table((place, reason, "") for place, reason in refused.items() if place not in before)
        both = pa.concat_tables([block.refused, more]).sort_by("row")
        block = replace(block, table=block.table.filter(pa.array(keep)), rows=block.rows[keep], refused=both)
    return replace(block, drift=counts)


@dataclass
class JsonDrift:
    """The drift of JSON values. `form` says where an object has the columns: `nested` is in its payload."""

    drift: ValueDrift
    form: Form = ""
    _noted: set[str] = field(default_factory=set, init=False)

    def __call__(self, values: pa.Array, block: DecodedBlock, where: Callable[[int], str]) -> DecodedBlock:
        """A block after the verdicts on its values; `where` names a value by its place."""
        objects = objects_of(ByteSpans.of(values), self.form)
        names = tuple(column.name for column in self.drift.columns)
        shapes = shapes_of(objects, (*names, *self.drift.elsewhere))
        missing, new = self._differing(shapes, len(names))
        whole = (shapes.known == WHOLE) & ((missing > 0) | (new > 0))
        escaped = shapes.known == ESCAPED
        if not (whole | escaped).any():
            return block
        # Values that are read with nulls are only counted; of the others, each is looked at: a text names what differs.
        counted = whole & shapes.seen[:, : len(names)].any(axis=1) & (self.drift.rules.policy == "widen")
        counted[self._to_note({"missing_columns": counted & (missing > 0), "new_columns": counted & (new > 0)})] = False
        sums = {"missing_columns": int(missing[counted].sum()), "new_columns": int(new[counted].sum())}
        counts: list[Mapping[str, int]] = [{"drifted_rows": int(counted.sum()), **sums}]
        refused: dict[int, str] = {}
        for row in np.flatnonzero((whole | escaped) & ~counted).tolist():
            verdict = self.drift.verdict(where(row), parsed_members(objects[row]))
            counts.append(verdict.counts)
            if verdict.refused:
                refused[row] = verdict.refused
        return with_verdicts(block, refused, added(counts))

    def _differing(self, shapes: Shapes, count: int) -> tuple[Numbers, Numbers]:
        """How many declared columns each value lacks, and how many it has that are not declared."""
        may_lack = self.drift.rules.optional
        needed = [i for i, name in enumerate(shapes.names[:count]) if "*" not in may_lack and name not in may_lack]
        return len(needed) - shapes.seen[:, needed].sum(axis=1), shapes.others

    def _to_note(self, kinds: Mapping[str, NDArray[np.bool_]]) -> list[int]:
        """The first value of each kind of difference that this decoder has not met: what is logged names it."""
        met = {kind: int(np.argmax(mask)) for kind, mask in kinds.items() if kind not in self._noted and mask.any()}
        self._noted |= met.keys()
        return list(met.values())
