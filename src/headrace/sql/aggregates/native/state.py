"""What native code keeps of a group between two calls, as text: words, from a place on in an array of all groups.

The first three are whether a tuple has come, how many tuples are in the window (in slots: how many there have been),
and what is broken. Then come the variables, bits for those that are NULL, how many rows the tables have, and these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from headrace.columnar import Int64s
from headrace.schema import Type
from headrace.sql.aggregates.front import definition as d
from headrace.sql.aggregates.native.tables import TableCode
from headrace.sql.aggregates.native.values import CodeLines, Pair

__all__ = ["LIVING", "StateWriter"]

#: The position of the number of tuples in the window.
LIVING = 1
_HEAD, _BITS = 3, 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StateWriter:
    """Writes the code that loads and stores variables and tables."""

    def __init__(
        self, text: CodeLines, single: Mapping[d.StateTable, Sequence[Pair]], many: Sequence[TableCode]
    ) -> None:
        self.text, self.single, self.many = text, single, many
        self.variables = [
            (pair, field.type)
            for table, pairs in single.items()
            for pair, field in zip(pairs, table.schema, strict=True)
        ]
        self._bits = _HEAD + len(self.variables)
        self._counts = self._bits + -(-len(self.variables) // _BITS)
        self.width = self._counts + len(many)

    def declare(self) -> None:
        """Before the first group."""
        self.text.add("top = 0", f"saved = np.empty(len(begin) * {self.width}, np.int64)")
        self.text.add("saved_decimals = saved.view(np.float64)")
        for table in self.many:
            table.declare()

    def finish(self) -> None:
        """Behind the last group."""
        self.text.add("saved_at[len(begin)] = top")

    def load(self) -> None:
        """The variables of a group, from the place `at` on."""
        text = self.text
        text.add("started, broken = held[at] != 0, held[at + 2]")
        for place, (pair, kind) in enumerate(self.variables):
            text.add(f"{pair.value} = {_read('held', f'at + {_HEAD + place}', kind)}")
            text.add(f"{pair.null} = held[at + {self._bits + place // _BITS}] & {1 << place % _BITS} != 0")
        text.add(f"at += {self.width}")
        for place, table in enumerate(self.many):
            # The numbers of rows are read before `at` has moved past the rows of earlier tables.
            text.add(f"{table.live} = held[at - {len(self.many) - place}]")
        for table in self.many:
            table.load()

    def first(self, body: Any, attributes: Mapping[d.StateTable, Sequence[str]]) -> Int64s:
        """The words of a group before its first tuple: the initial state of the Python body."""
        words = [0] * _HEAD
        nulls = 0
        for place, (value, kind) in enumerate(self._first_values(body, attributes)):
            words.append(_word(value, kind))
            nulls |= (value is None) << place
        words += [nulls >> bit & ((1 << _BITS) - 1) for bit in range(0, len(self.variables), _BITS)]
        rows = [_rows_of(getattr(body, attributes[many.table][0])) for many in self.many]
        words += map(len, rows)
        for many, every in zip(self.many, rows, strict=True):
            for row in every:
                words += [_word(value, kind) for value, kind in zip(row, many.kinds, strict=True)]
                words.append(sum((value is None) << place for place, value in enumerate(row)))
        return np.array(words, np.int64)

    def _first_values(self, body: Any, attributes: Mapping[d.StateTable, Sequence[str]]) -> Iterator[tuple[Any, Type]]:
        for table in self.single:
            for name, field in zip(attributes[table], table.schema, strict=True):
                yield getattr(body, name), field.type

    def store(self, worth: str) -> None:
        """Store the variables of a group, if the condition `worth` holds."""
        text = self.text
        text.add("saved_at[g] = top")
        with text.block(f"if {worth}:"):
            if self.many:
                rows = "".join(f" + {table.live} * {table.width}" for table in self.many)
                text.add(f"saved = longer(saved, top + {self.width}{rows})", "saved_decimals = saved.view(np.float64)")
            text.add("saved[top], saved[top + 1], saved[top + 2] = started, living, broken")
            for place, (pair, kind) in enumerate(self.variables):
                into = "saved_decimals" if kind.is_floating else "saved"
                text.add(f"{into}[top + {_HEAD + place}] = {pair.value}")
            for place in range(self._counts - self._bits):
                pairs = [pair for pair, _ in self.variables[place * _BITS : (place + 1) * _BITS]]
                bits = " | ".join(f"np.int64({pair.null}) << {bit}" for bit, pair in enumerate(pairs))
                text.add(f"saved[top + {self._bits + place}] = {bits}")
            for place, table in enumerate(self.many):
                text.add(f"saved[top + {self._counts + place}] = {table.live}")
            text.add(f"top += {self.width}")
            for table in self.many:
                text.add(f"top = kept(saved, top, {table.words}, {table.used}, {table.width})")


def _rows_of(table: Any) -> list[tuple[Any, ...]]:
    return list(table.values()) if isinstance(table, dict) else table


def _word(value: Any, kind: Type) -> int:
    """A value as its stored word."""
    if value is None:
        return 0
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return int(np.float64(value).view(np.int64)) if kind.is_floating else int(value)


def _read(array: str, at: str, kind: Type) -> str:
    if kind.is_floating:
        return f"{array}_decimals[{at}]"
    return f"{array}[{at}] != 0" if kind is Type.BOOLEAN else f"{array}[{at}]"
