"""The input of a session: its rows as they were read, batch by batch, so that they can be run again and changed.

Rows are read once, when a run first needs them. A step by event divides a batch; a change removes, replaces or adds
rows before ingress judges them, so that promises and lateness follow from the changed rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.display.words import clipped
from headrace.drawn import read_plain
from headrace.errors import TraceError, UnknownColumn
from headrace.expr import Expr
from headrace.expr.evaluate import predicate_mask
from headrace.host.local.measured import read_batches
from headrace.host.local.run import Block
from headrace.io.decoded import DecodedBlock, refused_table
from headrace.operators.reference.rows import identity
from headrace.plan.nodes import Source
from headrace.plan.policies import Physical
from headrace.schema import RESERVED, Schema, Type
from headrace.time import ticks
from headrace.tracing.given import as_date, check_date, time_of

__all__ = ["InputEdit", "ReadBatch", "RecordedInput", "Rows", "check_change", "reading_of"]

#: Which rows of an input: those with these values, or those that fulfil a condition.
Rows = Mapping[str, Any] | Expr
#: The times of physical events.
_TIMES = tuple(name for name in RESERVED if name != "kind")
#: The number of an added row is none of a file's.
_ADDED = 1 << 40


@dataclass
class ReadBatch:
    """The rows of a batch by the fingerprint of their source, and the time that it took to read them."""

    blocks: dict[str, list[Block]]
    seconds: dict[Source, float] = field(default_factory=dict)


def reading_of(sources: Sequence[Source], batch_rows: int | None) -> Iterator[ReadBatch]:
    """The batches of sources."""
    seconds: dict[Source, float] = {}
    for blocks in read_batches(sources, batch_rows, seconds.__setitem__):
        yield ReadBatch({source: list(parts) for source, parts in blocks.items()}, dict(seconds))
        seconds.clear()


class _ReadOnce:
    """Batches that are read once; a reading that has failed fails again."""

    def __init__(self, batches: Iterator[ReadBatch]) -> None:
        self._batches, self._read = batches, list[ReadBatch]()
        self._error: BaseException | None = None

    def get(self, number: int) -> ReadBatch | None:
        while len(self._read) <= number:
            if self._error is not None:
                raise self._error
            try:
                batch = next(self._batches, None)
            except Exception as error:
                self._error = error
                raise
            if batch is None:
                return None
            self._read.append(batch)
        return self._read[number]


class RecordedInput:
    """The batches of a run, whole or divided."""

    def __init__(self, batches: Iterator[ReadBatch], reading: _ReadOnce | None = None) -> None:
        self._reading = _ReadOnce(batches) if reading is None else reading
        self._pieces: list[ReadBatch] = []
        #: How many of the batches that were read are among the pieces.
        self._taken = 0

    def whole(self) -> RecordedInput:
        """The same input, without divisions."""
        return RecordedInput(iter(()), self._reading)

    def batch(self, number: int, *, one: bool = False) -> ReadBatch | None:
        """A batch by its number, or only its first row; None after the last. With `one` the rest is the next batch."""
        while len(self._pieces) <= number:
            read = self._reading.get(self._taken)
            if read is None:
                return None
            self._taken += 1
            self._pieces.append(read)
        if one:
            self._pieces[number : number + 1] = _divided(self._pieces[number])
        return self._pieces[number]

    def all(self) -> list[ReadBatch]:
        """Every batch."""
        number = 0
        while self.batch(number) is not None:
            number += 1
        return list(self._pieces)

    def edited(self, edit: InputEdit) -> tuple[RecordedInput, int]:
        """The input with a change, and the first batch that it changes."""
        batches, first, before = list[ReadBatch](), None, self.all()
        if not 0 <= edit.batch < len(before):
            raise TraceError("there is no such batch of the input", given=edit.batch, allowed=f"0 to {len(before) - 1}")
        for number, batch in enumerate(before):
            changed = edit.apply(number, batch)
            batches.append(changed or batch)
            first = number if changed is not None and first is None else first
        if first is None:
            raise TraceError(
                "no row fits",
                given=clipped(edit.text, 200),
                allowed=f"rows of {edit.source.origin} in batches {edit.batch} to {len(batches) - 1}, by the columns "
                f"{', '.join(edit.source.columns.names)}",
            )
        return RecordedInput(iter(batches)), first

    def of_sources(self, known: Sequence[Source], wanted: Sequence[Source], batch_rows: int | None) -> RecordedInput:
        """The same rows for the sources of another query; a source that this input does not have is read."""
        same = {new: next((old for old in known if _same_rows(old, new)), None) for new in wanted}
        others = reading_of([new for new, old in same.items() if old is None], batch_rows)

        def batches() -> Iterator[ReadBatch]:
            for batch in self.all():
                blocks = {
                    new.fingerprint: batch.blocks[old.fingerprint]
                    for new, old in same.items()
                    if old is not None and old.fingerprint in batch.blocks
                }
                more = next(others, ReadBatch({}))
                yield ReadBatch(blocks | more.blocks, batch.seconds | more.seconds)
            yield from others

        return RecordedInput(batches())


def check_change(batch: Any, replaced: Any, added: Any) -> None:
    """Raise unless these say which rows of an input are replaced, and which are added to which batch."""
    if type(batch) is not int:
        raise TraceError("this is not the number of a batch", given=batch, allowed="0, 1, 2, …")
    if replaced is not None and not (
        isinstance(replaced, tuple) and len(replaced) == 2 and isinstance(replaced[1], Mapping)
    ):
        raise TraceError(
            "replace needs rows, and their other values",
            given=clipped(repr(replaced), 100),
            allowed="a pair",
            instead="replace=({'price': 99.0}, {'price': 9.9})",
        )
    if not isinstance(added, (list, tuple)) or not all(isinstance(row, Mapping) for row in added):
        raise TraceError(
            "add needs rows", given=clipped(repr(added), 100), allowed="a list of dicts", instead="add=[{'price': 9.9}]"
        )


def _same_rows(old: Source, new: Source) -> bool:
    """Whether two sources read the same rows; their policies may differ."""
    return (old.origin, old.columns, old.pushed) == (new.origin, new.columns, new.pushed)


def _divided(batch: ReadBatch) -> list[ReadBatch]:
    """The first row of a batch, and the rest: the sources are in turn, those without rows go with the first."""
    first, rest = dict[str, list[Block]](), dict(batch.blocks)
    while rest and not any(block.table.num_rows for blocks in first.values() for block, _ in blocks):
        source = next(iter(rest))
        first[source], left = _first_row(rest.pop(source))
        if left:
            rest[source] = left
    return [ReadBatch(first, batch.seconds), *([ReadBatch(rest)] if rest else [])]


def _first_row(blocks: list[Block]) -> tuple[list[Block], list[Block]]:
    """The blocks of the first row, and the rest; blocks without rows go with the row before them, or the first."""
    piece, left = list[Block](), list(blocks)
    while left and not sum(block.table.num_rows for block, _ in piece):
        block, path = left.pop(0)
        rows = block.table.num_rows
        piece.append((block.slice(0, 1) if rows > 1 else block, path))
        if rows > 1:
            left.insert(0, (block.slice(1, rows - 1), path))
    while left and not left[0][0].table.num_rows:
        piece.append(left.pop(0))
    return piece, left


@dataclass(frozen=True)
class InputEdit:
    """A change of the rows of a source, from a batch on; added rows are the last ones of that batch."""

    source: Source
    batch: int = 0
    remove: Rows | None = None
    replace: tuple[Rows, Mapping[str, Any]] | None = None
    add: Sequence[Mapping[str, Any]] = ()

    @property
    def text(self) -> str:
        """What it does."""
        parts = [f"remove {self.remove}"] if self.remove is not None else []
        parts += [f"replace {self.replace[0]} by {self.replace[1]}"] if self.replace is not None else []
        parts += [f"add {row}" for row in self.add]
        return "; ".join(parts)

    def apply(self, number: int, batch: ReadBatch) -> ReadBatch | None:
        """A changed batch; None if it stays as it is."""
        if number < self.batch:
            return None
        key = self.source.fingerprint
        before = batch.blocks.get(key, [])
        after = [(self._applied(block), path) for block, path in before]
        if number == self.batch and self.add:
            after.append((self._added(), before[-1][1] if before else None))
        if all(old is new for (old, _), (new, _) in zip(before, after, strict=False)) and len(before) == len(after):
            return None
        return replace(batch, blocks=batch.blocks | {key: after})

    def _applied(self, block: DecodedBlock) -> DecodedBlock:
        if self.replace is not None and (chosen := self._mask(self.replace[0], block)).any():
            new = self._row(self.replace[1])
            block = _with_tables(block, lambda table: _set(table, chosen, new))
        if self.remove is not None and (chosen := self._mask(self.remove, block)).any():
            kept = pa.array(~chosen)
            block = _with_tables(block, lambda table: table.filter(kept))
            lines = None if block.lines is None else block.lines[~chosen]
            arrived = None if block.arrived is None else block.arrived[~chosen]
            block = replace(block, rows=block.rows[~chosen], lines=lines, arrived=arrived)
        return block

    def _added(self) -> DecodedBlock:
        kind = {"kind": "insert"} if isinstance(self.source.lifetime, Physical) else {}
        tables = [self._row(dict.fromkeys(self.source.columns.names) | kind | dict(row)) for row in self.add]
        table = pa.concat_tables(tables)
        return DecodedBlock(table, refused_table(), _ADDED + np.arange(table.num_rows))

    def _mask(self, rows: Rows, block: DecodedBlock) -> np.ndarray[Any, np.dtype[np.bool_]]:
        table = block.table
        if isinstance(rows, Expr):
            return np.asarray(predicate_mask(rows, self._with_dates(table)))
        chosen = np.ones(table.num_rows, np.bool_)
        wanted = self._row(rows)
        for name in wanted.column_names:
            chosen &= _same(table[name], wanted[name][0])
        return chosen

    def _with_dates(self, table: pa.Table) -> pa.Table:
        """Rows with the times of physical events as conditions compare them."""
        for name in _TIMES if isinstance(self.source.lifetime, Physical) and self.source.dates else ():
            place = table.column_names.index(name)
            table = table.set_column(place, name, table[name].cast(Type.DATETIME.arrow))
        return table

    def _plain(self, name: str, value: Any) -> Any:
        """A value as the rows of the source have it: times in ticks. A number is no date."""
        kind = self.source.columns[name].type
        if isinstance(self.source.lifetime, Physical) and name in _TIMES:
            return time_of(str(self.source.origin), name, value, dates=self.source.dates)
        check_date(name, kind, value)
        return ticks(value) if kind is Type.DATETIME else as_date(value) if kind is Type.DATE else value

    def _row(self, values: Mapping[str, Any]) -> pa.Table:
        """Values of columns of the source as a table of one row."""
        columns = self.source.columns
        for name in values:
            if name not in columns.names:
                raise UnknownColumn.of(name, columns.names, str(self.source.origin))
        named = Schema(tuple(columns[name] for name in values))
        plain = {name: self._plain(name, value) for name, value in values.items() if value is not None}
        try:
            return read_plain({name: [value] for name, value in {**values, **plain}.items()}, named)
        except UnicodeEncodeError as error:  # half a character
            raise TraceError("this text is not UTF-8", given=ascii(error.object), allowed="whole characters") from error


def _same(column: pa.ChunkedArray, value: pa.Scalar) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The rows of a column that have a value; NaN is NaN."""
    if not value.is_valid:
        return np.asarray(pc.is_null(column))
    if pa.types.is_nested(column.type) or pa.types.is_floating(column.type):
        wanted = identity(value.as_py())
        return np.array([identity(one) == wanted for one in column.to_pylist()], np.bool_)
    return np.asarray(pc.fill_null(pc.equal(column, value), False))


def _with_tables(block: DecodedBlock, change: Callable[[pa.Table], pa.Table]) -> DecodedBlock:
    whole = None if block.whole is None else change(block.whole)
    return replace(block, table=change(block.table), whole=whole)


def _set(table: pa.Table, chosen: np.ndarray[Any, np.dtype[np.bool_]], new: pa.Table) -> pa.Table:
    mask = pa.array(chosen)
    for name in new.column_names:
        place = table.column_names.index(name)
        value = new[name][0].cast(table.schema.field(place).type)
        table = table.set_column(place, table.schema.field(place), pc.if_else(mask, value, table[name]))
    return table
