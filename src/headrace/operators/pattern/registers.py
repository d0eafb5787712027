"""The values of registers in matches, for measures: the tuples of the matches are replayed.

Runs do not carry registers that only measures use: runs in the same state with different registers would have to be
kept apart for no use.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.columnar import Bools, Int64s
from headrace.operators.pattern import machine
from headrace.operators.pattern.tables import FoundMatches, PatternNumbers
from headrace.plan.nodes import Match

__all__ = ["Registers"]


class Registers:
    """The registers that the measures of a pattern use."""

    def __init__(self, node: Match) -> None:
        self.program, self.kinds = node.carried, node.references.registers
        self.numbers = PatternNumbers(node, node.carried)

    def values(self, matches: FoundMatches, tuples: pa.Table) -> dict[str, pa.Array]:
        """By name, the value of each register after each tuple of each match, one match after the other."""
        if not self.program.registers:
            return {}
        tables, words, texts = self.numbers.of(tuples)
        numbers = machine.PatternTuples(matches.first[:0], np.empty((0, 0), bool), words)
        length = matches.last - matches.first + 1
        slots = machine.replay(tables, numbers, matches.first, length, matches.labels)
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
