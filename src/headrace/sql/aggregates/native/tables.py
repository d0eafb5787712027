"""Native code for tables of many rows: their variables, and the operations on them.

`rows.py` defines how a table is stored. The values of a row are pairs, as for any other column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headrace.schema import Type
from headrace.sql.aggregates.front import definition as d
from headrace.sql.aggregates.native.rows import LEAVING
from headrace.sql.aggregates.native.values import CodeLines, NotNative, Pair
from headrace.sql.aggregates.python.names import Names

__all__ = ["TableCode"]

_MOST_COLUMNS = 60


class TableCode:
    """Writes the code for one table."""

    def __init__(self, table: d.StateTable, names: Names, text: CodeLines) -> None:
        if len(table.schema) > _MOST_COLUMNS:
            raise NotNative(f"the table {table.name} has more than {_MOST_COLUMNS} columns")
        self.table, self.text = table, text
        self.kinds = [field.type for field in table.schema]
        self.words, self.floats, self.used, self.live, self.slots, self.size = (
            names.give(f"{table.name}_{what}") for what in ("rows", "decimals", "used", "live", "slots", "size")
        )
        self.width = len(self.kinds) + 1
        #: The arguments for functions of keys.
        decimals = sum(1 << place for place, kind in enumerate(self.kinds) if kind.is_floating)
        self.shape = f"{self.width}, {sum(1 << place for place in table.key)}, {decimals}"

    @property
    def keyed(self) -> bool:
        return bool(self.table.key)

    # --- between calls -----------------------------------------------------------------------------------------------

    def declare(self) -> None:
        """Before the first group."""
        self.text.add(f"{self.words} = np.empty({16 * self.width}, np.int64)")
        if self.keyed:
            self.text.add(f"{self.slots} = np.empty(32, np.int64)")

    def load(self) -> None:
        """Load the `live` rows of a group from the position `at` in the states, and advance `at`."""
        text = self.text
        text.add(f"{self.used} = {self.live} * {self.width}")
        text.add(f"{self.words} = longer({self.words}, {self.used} + {2 * self.width})")
        text.add(f"copied({self.words}, 0, held, at, {self.used})", f"at += {self.used}")
        if self.keyed:
            text.add(f"{self.size} = 32")
            self._widen()
        else:
            self._view()

    def _widen(self) -> None:
        """Make room, and drop deleted rows."""
        if self.keyed:
            made = f"keyed_room({self.words}, {self.slots}, {self.size}, {self.used}, {self.shape})"
            self.text.add(f"{self.words}, {self.slots}, {self.size}, {self.used} = {made}")
        else:
            self.text.add(f"{self.words}, {self.used} = roomier({self.words}, {self.used}, {self.width})")
        self._view()

    def _view(self) -> None:
        self.text.add(f"{self.floats} = {self.words}.view(np.float64)")

    def clear(self) -> None:
        """Delete all rows."""
        self.text.add(f"{self.used} = {self.live} = 0")
        if self.keyed:
            self._widen()

    # --- reading -----------------------------------------------------------------------------------------------------

    @contextmanager
    def each(self, row: str) -> Iterator[None]:
        """Code added inside runs for each row."""
        every, there = f"for {row} in range(0, {self.used}, {self.width}):", f"if {self._flags(row)} >= 0:"
        with self.text.block(every), self.text.block(there):
            yield

    def _flags(self, row: str, words: str = "") -> str:
        return f"{words or self.words}[{row} + {self.width - 1}]"

    @contextmanager
    def found(self, row: str, values: Sequence[Pair]) -> Iterator[None]:
        """Code added inside runs for the row with a key, if there is one; nothing equals NULL."""
        text = self.text
        for place, value in zip(self.table.key, values, strict=True):
            text.add(f"{self._cell(self.used, place)} = {value.value}")
        text.add(f"{self._flags(self.used)} = 0", f"{row} = {self._row_of(self.used)}")
        nulls = " or ".join(dict.fromkeys(name for value in values for name in value.nulls))
        with text.block(f"if {row} >= 0" + (f" and not ({nulls}):" if nulls else ":")):
            yield

    def _row_of(self, row: str) -> str:
        return f"row_of({self.words}, {self.floats}, {self.slots}, {self.size}, {row}, {self.shape})"

    def _cell(self, row: str, place: int, words: str = "", floats: str = "") -> str:
        mine = (floats or self.floats) if self.kinds[place].is_floating else (words or self.words)
        return f"{mine}[{row} + {place}]" if place else f"{mine}[{row}]"

    def columns(self, row: str, names: Sequence[str]) -> list[Pair]:
        """The columns of a row, under these names."""
        found = []
        for place, (name, kind) in enumerate(zip(names, self.kinds, strict=True)):
            whether = " != 0" if kind is Type.BOOLEAN else ""
            null = f"{self._flags(row)} & {1 << place} != 0"
            self.text.add(f"{name} = {self._cell(row, place)}{whether}", f"{name}_null = {null}")
            found.append(Pair(name, (f"{name}_null",)))
        return found

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, row: str, values: Sequence[Pair | None], words: str = "", floats: str = "") -> None:
        """Write values into a row at once; None keeps a value. It may be a row of another array."""
        targets, news, flags = [], [], []
        stay = sum(1 << place for place, value in enumerate(values) if value is None)
        for place, value in enumerate(values):
            if value is not None:
                targets.append(self._cell(row, place, words, floats))
                news.append(value.value)
                if value.nulls:
                    flags.append(f"np.int64({value.null}) << {place}")
        own = self._flags(row, words)
        before = [f"{own} & {stay}"] if stay else []
        self.text.add(f"{', '.join([*targets, own])} = {', '.join([*news, ' | '.join([*before, *flags]) or '0'])}")

    def add(self, values: Sequence[Pair], failed: str) -> None:
        """Add a row; `failed` is the code of the failure if the table is full."""
        self.make_room()
        self.write(self.used, values)
        self._settle(failed)

    def add_from(self, words: str, row: str, failed: str) -> None:
        """Add a row from another array."""
        self.make_room()
        self.text.add(f"copied({self.words}, {self.used}, {words}, {row}, {self.width})")
        self._settle(failed)

    def make_room(self) -> None:
        """Make room for a row, and for the lookup row after it."""
        words = f"{self.size} // 2 * {self.width}" if self.keyed else f"len({self.words})"
        with self.text.block(f"if {self.used} + {2 * self.width} > {words}:"):
            self._widen()

    def _settle(self, failed: str) -> None:
        """Make the row after the last one part of the table, or let it replace a row with its key."""
        text = self.text
        if not self.keyed:
            self._count(failed)
            return
        text.add(f"stands = {self._row_of(self.used)}")
        with text.block("if stands >= 0:"):
            text.add(f"copied({self.words}, stands, {self.words}, {self.used}, {self.width})")
        with text.block("else:"):
            self._count(failed, f"{self.slots}[-1 - stands] = {self.used}")

    def _count(self, failed: str, *more: str) -> None:
        with self.text.block(f"if {self.live} < {self.table.limit}:"):
            self.text.add(*more, f"{self.used} += {self.width}", f"{self.live} += 1")
        with self.text.block("elif failed == 0:"):
            self.text.add(f"failed = {failed}")

    def delete(self, row: str, *, later: bool) -> None:
        """Delete a row; `later`, if the statement still reads it."""
        if later:
            self.text.add(f"{self._flags(row)} |= {LEAVING}")
        else:
            self.text.add(f"{self._flags(row)} = -1", f"{self.live} -= 1")

    def sweep(self) -> None:
        """Delete the rows that were marked for deletion."""
        self.text.add(f"{self.live} -= swept({self.words}, {self.used}, {self.width})")

    def index(self) -> None:
        """Rebuild the index after keys have changed; of equal keys one row stays."""
        self.text.add(f"{self.live} -= indexed({self.words}, {self.slots}, {self.size}, {self.used}, {self.shape})")
