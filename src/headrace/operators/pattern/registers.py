"""What registers come to in the matches that were found, for measures: their tuples are gone through once more.

Runs do not carry along what only measures ask for: runs that come to the same state with different registers would
have to be kept apart for nothing.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.columnar import Bools, Int64s
from headrace.operators.pattern import machine
from headrace.operators.pattern.tables import Found, PatternNumbers
from headrace.plan.nodes import Match

__all__ = ["Registers"]


class Registers:
    """The registers that the measures of a pattern ask for."""

    def __init__(self, node: Match) -> None:
        self.program, self.kinds = node.carried, node.references.registers
        self.numbers = PatternNumbers(node, node.carried)

    def values(self, found: Found, tuples: pa.Table) -> dict[str, pa.Array]:
        """By name, what each is after each tuple of each match, one match after the other."""
        if not self.program.registers:
            return {}
        tables, words, texts = self.numbers.of(tuples)
        given = machine.PatternTuples(found.first[:0], np.empty((0, 0), bool), words)
        length = found.last - found.first + 1
        slots = machine.replayed(tables, given, found.first, length, found.labels)
        return {
            name: self._column(name, slots[:, 2 * slot].copy(), slots[:, 2 * slot + 1] != 0, texts)
            for name, slot in self.program.registers.items()
        }

    def _column(self, name: str, words: Int64s, none: Bools, texts: pa.Array) -> pa.Array:
        kind = self.kinds[name]
        if kind.is_text:
            return texts.take(pa.array(words - 1, mask=none)).cast(kind.arrow)
        values = words.view(np.float64) if kind.is_floating else words
        return pa.array(values, mask=none).cast(kind.arrow)
