"""The messages of PostgreSQL's logical decoding (plugin `pgoutput`, protocol 1), in columns.

Messages come in order of commits: *begin* (B), the changes of a transaction, *commit* (C). A *relation* (R) describes a
table before its first change, and again when its columns change. An *insert* (I) has a new row, an *update* (U) a new
row and perhaps the old key (K) or the old row (O), a *delete* (D) one of the latter. Values are texts.

All messages of a block lie in one array of bytes. A row is a chain: each value begins where the one before ends. So a
loop over the columns of the table follows the chains of all rows at once, and no loop goes over the rows.

**A transaction is atomic.** Of several changes of a key, only the net change is kept: from an insert and an update, an
insert; from an insert and a delete, nothing; from a delete and an insert, an update. An update that changes the key is
a delete and an insert.

**Large values.** PostgreSQL stores long values apart, and its log omits them from updates that leave them as they are.
Such a value is taken from the old row (REPLICA IDENTITY FULL) or from an earlier change in the same transaction. If
neither has it, the row is refused. A truncated table is a refused row, too: which rows it deleted is not in the log.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.columnar import factorize
from headrace.errors import SourceError
from headrace.io.decoded import REFUSED, DecodedBlock, finish
from headrace.schema import Field, Schema, Type

__all__ = [
    "ADDED", "CHANGE_TYPE", "LogDecoder", "LoggedTable", "booleans", "raw_texts", "text_block", "whole_transactions",
]  # fmt: skip

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

CHANGE_TYPE, COMMIT_TIME, LSN = "_change_type", "_commit_time", "_lsn"
#: The columns that the source adds.
ADDED = (Field(CHANGE_TYPE, Type.STRING), Field(COMMIT_TIME, Type.DATETIME), Field(LSN, Type.LONG))
_EPOCH = 946_684_800_000_000  # 2000-01-01, from which PostgreSQL counts microseconds, in ticks
_INSERT, _UPDATE, _DELETE = 0, 1, 2
_KINDS = pa.array(["insert", "update", "delete"])
_UTC = pa.timestamp("us", tz="UTC")
_TRUNCATED = (
    "the table was truncated: the log does not say which rows were deleted; to go on from the table as it is now, read "
    "it under a new name"
)
_UNCHANGED = "column {!r} was not changed, and is too long to be in the log; ALTER TABLE … REPLICA IDENTITY FULL"


@dataclass(frozen=True)
class LoggedTable:
    """The columns of a table, in the order of its rows in the log."""

    oid: int
    columns: tuple[str, ...]


@dataclass(frozen=True)
class RowPlaces:
    """Rows as places in the bytes: for each column (first axis) and row, its kind, its start and its length."""

    kinds: Bytes
    starts: Ints
    lengths: Ints


@dataclass(frozen=True)
class LogRows:
    """Changes in the order of the log: texts by column, the column's values that are not in the log, and more."""

    texts: dict[str, pa.Array]
    unknown: dict[str, Mask]
    change: Ints
    lsn: Ints
    time: Ints
    message: Ints


@dataclass
class LogDecoder:
    """Decodes the messages of one table, block after block; a block has whole transactions.

    `start` and `end` bound the transactions by the places of their commits in the log. `known` are the columns that
    the table has now: one that a relation lacks was added later, and is null until then.
    """

    oid: int
    columns: Schema
    key: tuple[str, ...]
    start: int
    end: int
    known: frozenset[str] = frozenset()
    relation: LoggedTable | None = field(default=None, init=False)

    def decode(self, messages: Sequence[bytes]) -> DecodedBlock:
        """The changes of whole transactions."""
        buffer = np.frombuffer(b"".join(messages), np.uint8)
        ends = np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)))
        starts = np.r_[np.int64(0), ends[:-1]] if len(messages) else ends
        kinds = buffer[starts]
        begins = starts[kinds == ord("B")]
        commits, times = _number(buffer, begins + 1, 8), _number(buffer, begins + 9, 8) + _EPOCH
        of = np.cumsum(kinds == ord("B")) - 1
        lsn, time = commits[of], times[of]
        inside = (lsn >= self.start) & (lsn < self.end)
        rows: list[LogRows] = []
        is_row = inside & np.isin(kinds, np.frombuffer(b"IUD", np.uint8))
        is_row[is_row] = _number(buffer, starts[is_row] + 1, 4) == self.oid
        bounds = [int(i) for i in np.flatnonzero(kinds == ord("R"))]
        for first, last in zip([0, *bounds], [*bounds, len(messages)], strict=True):
            self._describe(messages[first] if first < len(messages) else b"")
            chosen = first + np.flatnonzero(is_row[first:last])
            if len(chosen):
                rows.append(self._rows(buffer, starts, kinds, chosen, lsn, time))
        truncated = np.flatnonzero(inside & (kinds == ord("T")))
        emptied = lsn[[i for i in truncated.tolist() if self._truncates(messages[i])]]
        return self._block(_joined(rows, self._wanted), emptied)

    @property
    def _wanted(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.columns.names, *self.key]))

    def _describe(self, message: bytes) -> None:
        """Take the columns from a relation message, if it is one of this table."""
        if message[:1] != b"R" or struct.unpack_from(">I", message, 1)[0] != self.oid:
            return
        _, rest = message[5:].split(b"\0", 1)
        _, rest = rest.split(b"\0", 1)
        count = struct.unpack_from(">H", rest, 1)[0]
        rest, names = rest[3:], []
        for _ in range(count):
            name, rest = rest[1:].split(b"\0", 1)
            names.append(name.decode())
            rest = rest[8:]
        self.relation = LoggedTable(self.oid, tuple(names))
        lost = [name for name in self._wanted if name not in names and name not in self.known]
        if lost:
            raise SourceError(
                f"columns of the table were dropped or renamed: {', '.join(lost)}",
                given=", ".join(self._wanted), allowed=", ".join(names), instead="the names of columns that exist",
            )  # fmt: skip

    def _truncates(self, message: bytes) -> bool:
        count = struct.unpack_from(">I", message, 1)[0]
        return self.oid in struct.unpack_from(f">{count}I", message, 6)

    def _rows(self, buffer: Bytes, starts: Ints, kinds: Bytes, chosen: Ints, lsn: Ints, time: Ints) -> LogRows:
        """The changes of messages with the same columns."""
        relation = self.relation
        if relation is None:
            raise SourceError("the log has a change before the columns of its table", given=f"table {self.oid}")
        place, kind = starts[chosen] + 5, kinds[chosen]
        has_old = buffer[place] != ord("N")
        old, after = _tuples(buffer, place + 1, has_old, len(relation.columns))
        has_new = kind != ord("D")
        new, _ = _tuples(buffer, np.where(has_old, after, place) + 1, has_new, len(relation.columns))
        at = {name: relation.columns.index(name) for name in self._wanted if name in relation.columns}
        moved = _moved(buffer, old, new, [at[name] for name in self.key], has_old & has_new)
        # An update that changes the key has two rows: of the old one, then of the new one.
        repeat = np.repeat(np.arange(len(chosen)), np.where(moved, 2, 1))
        second = np.r_[False, repeat[1:] == repeat[:-1]][: len(repeat)]
        from_old = ~has_new[repeat] | (moved[repeat] & ~second)
        change = np.where(from_old, _DELETE, np.where((kind[repeat] == ord("I")) | second, _INSERT, _UPDATE))
        texts, unknown = {}, {}
        for name in self._wanted:
            if name in at:
                texts[name], unknown[name] = _column(buffer, old, new, at[name], repeat, from_old)
            else:
                texts[name], unknown[name] = pa.nulls(len(repeat), pa.string()), np.zeros(len(repeat), np.bool_)
        message = chosen[repeat]
        return LogRows(texts, unknown, change, lsn[message], time[message], message)

    def _block(self, rows: LogRows, emptied: Ints) -> DecodedBlock:
        rows = _net(rows, self.key)
        unknown = np.zeros(len(rows.lsn), np.bool_)
        for mask in rows.unknown.values():
            unknown |= mask
        refused = [_refusals(rows, unknown), _truncations(emptied)]
        kept = _chosen(rows, np.flatnonzero(~unknown)) if unknown.any() else rows
        names = self.columns.names
        table = pa.table([kept.texts[name] for name in names], names=list(names))
        block = text_block(table, self.columns, kept.lsn, _KINDS.take(pa.array(kept.change)), kept.time, kept.lsn)
        everything = pa.concat_tables([block.refused, *(table for table in refused if table is not None)])
        return replace(block, refused=everything.sort_by("row"))


def whole_transactions(messages: list[bytes]) -> int:
    """How many of the messages belong to transactions that end among them."""
    for i in range(len(messages) - 1, -1, -1):
        if messages[i][:1] == b"C":
            return i + 1
    return 0


def text_block(table: pa.Table, columns: Schema, rows: Ints, change: pa.Array, time: Ints, lsn: Ints) -> DecodedBlock:
    """Rows of texts as a block with the columns of a source of changes."""
    for i, one in enumerate(columns):
        if one.type is Type.BOOLEAN:
            table = table.set_column(i, one.name, booleans(table[one.name]))
    added = (change, pa.array(time).cast(_UTC), pa.array(lsn))
    for one, values in zip(ADDED, added, strict=True):
        table = table.append_column(one.name, values)
    fields = [*columns, *ADDED]
    # The place in the block is the number while rows are converted: several rows may have the same offset.
    block = finish(table, np.arange(table.num_rows), fields, lambda places: raw_texts(table, places))
    kept = block.rows
    refused = block.refused
    if refused.num_rows:
        refused = refused.set_column(0, "row", pa.array(rows[refused["row"].to_numpy()]))
    return replace(block, rows=rows[kept], arrived=time[kept], refused=refused)


def booleans(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """PostgreSQL's `t` and `f` as truth values; other texts stay, and are refused later."""
    known = pc.or_(pc.equal(texts, "t"), pc.equal(texts, "f"))
    return pc.equal(texts, "t") if pc.all(known).as_py() in (True, None) else texts


def raw_texts(table: pa.Table, places: Ints) -> list[str]:
    """Rows as texts that show a person what they hold."""
    return [json.dumps(row, default=str, ensure_ascii=False) for row in table.take(pa.array(places)).to_pylist()]


# Bytes to columns.


def _number(buffer: Bytes, places: Ints, width: int) -> Ints:
    """The numbers of this many bytes at these places, the highest byte first."""
    result = np.zeros(len(places), np.int64)
    for i in range(width):
        result = (result << 8) | buffer[places + i]
    return result


def _tuples(buffer: Bytes, places: Ints, present: Mask, count: int) -> tuple[RowPlaces, Ints]:
    """The rows that begin at these places, and where they end; a row that is not present has only nulls."""
    kinds = np.full((count, len(places)), ord("n"), np.uint8)
    starts, lengths = np.zeros((2, count, len(places)), np.int64)
    after = places.copy()
    chosen = np.flatnonzero(present)
    place = places[chosen]
    if len(chosen) and (_number(buffer, place, 2) != count).any():
        raise SourceError("a row in the log has another number of columns than its table", given=str(count))
    place = place + 2
    for column in range(count):
        kind = buffer[place]
        has_text = kind == ord("t")
        length = np.zeros(len(place), np.int64)
        length[has_text] = _number(buffer, place[has_text] + 1, 4)
        kinds[column, chosen], starts[column, chosen], lengths[column, chosen] = kind, place + 5, length
        place = place + np.where(has_text, 5 + length, 1)
    after[chosen] = place
    return RowPlaces(kinds, starts, lengths), after


def _gathered(buffer: Bytes, kinds: Bytes, starts: Ints, lengths: Ints) -> pa.Array:
    """Values as an array of texts."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    if total >= 2**31:
        raise SourceError("a column has 2 GB of text in one block", given=f"{total} bytes", instead="smaller batches")
    offsets = np.r_[np.int64(0), ends]
    data = buffer[np.arange(total) + np.repeat(starts - offsets[:-1], lengths)]
    valid = kinds == ord("t")
    bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bits, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(kinds), buffers)


def _moved(buffer: Bytes, old: RowPlaces, new: RowPlaces, key: list[int], both: Mask) -> Mask:
    """Which updates change the key."""
    moved = np.zeros(len(both), np.bool_)
    chosen = np.flatnonzero(both)
    for column in key if len(chosen) else ():
        before, now = (_gathered(buffer, *_at(side, column, chosen)) for side in (old, new))
        known = new.kinds[column, chosen] != ord("u")
        both_null = pc.and_(pc.is_null(before), pc.is_null(now))
        moved[chosen] |= known & ~np.asarray(pc.or_(both_null, pc.fill_null(pc.equal(before, now), False)))
    return moved


def _at(side: RowPlaces, column: int, chosen: Ints) -> tuple[Bytes, Ints, Ints]:
    return side.kinds[column, chosen], side.starts[column, chosen], side.lengths[column, chosen]


def _column(
    buffer: Bytes, old: RowPlaces, new: RowPlaces, column: int, repeat: Ints, from_old: Mask
) -> tuple[pa.Array, Mask]:
    """One column of all changes, and which of its values are not in the log."""
    omitted = (new.kinds[column] == ord("u")) & (old.kinds[column] == ord("t"))
    use_old = from_old | omitted[repeat]
    kinds, starts, lengths = (
        np.where(use_old, before[column][repeat], now[column][repeat])
        for before, now in ((old.kinds, new.kinds), (old.starts, new.starts), (old.lengths, new.lengths))
    )
    return _gathered(buffer, kinds, starts, lengths), kinds == ord("u")


# Net changes.


def _joined(rows: list[LogRows], names: tuple[str, ...]) -> LogRows:
    if len(rows) == 1:
        return rows[0]
    none = np.zeros(0, np.int64)
    texts = {n: pa.concat_arrays([part.texts[n] for part in rows] or [pa.array([], pa.string())]) for n in names}
    unknown = {n: np.concatenate([part.unknown[n] for part in rows] or [none.astype(np.bool_)]) for n in names}
    numbers = [
        np.concatenate([getattr(part, name) for part in rows] or [none])
        for name in ("change", "lsn", "time", "message")
    ]
    return LogRows(texts, unknown, *numbers)


def _chosen(rows: LogRows, places: Ints) -> LogRows:
    taken = pa.array(places)
    texts = {name: values.take(taken) for name, values in rows.texts.items()}
    unknown = {name: mask[places] for name, mask in rows.unknown.items()}
    return LogRows(texts, unknown, *(n[places] for n in (rows.change, rows.lsn, rows.time, rows.message)))


def _net(rows: LogRows, key: tuple[str, ...]) -> LogRows:
    """The net change of each key in each transaction."""
    if not len(rows.lsn):
        return rows
    codes, first = factorize(pa.table([pa.array(rows.lsn), *(rows.texts[name] for name in key)],
                                      names=[str(i) for i in range(len(key) + 1)]))  # fmt: skip
    if len(first) == len(codes):
        return rows
    last = np.zeros(len(first), np.int64)
    np.maximum.at(last, codes, np.arange(len(codes)))
    rows = _with_earlier_values(rows, codes, last)
    began = rows.change[first] == _INSERT  # the key had no row before the transaction
    gone = rows.change[last] == _DELETE
    change = rows.change.copy()
    change[last] = np.where(gone, _DELETE, np.where(began, _INSERT, _UPDATE))
    change[last] = np.where(first == last, rows.change[last], change[last])
    kept = np.sort(last[~(began & gone)])
    return _chosen(replace(rows, change=change), kept)


def _with_earlier_values(rows: LogRows, codes: Ints, last: Ints) -> LogRows:
    """Fill values that the last change of a key omits from earlier changes in the transaction; these are few."""
    texts, unknown = dict(rows.texts), dict(rows.unknown)
    for name, mask in rows.unknown.items():
        missing = last[mask[last]]
        if not len(missing):
            continue
        has_value = np.flatnonzero(~mask & (rows.change != _DELETE))
        order = has_value[np.argsort(codes[has_value], kind="stable")]
        ends = np.searchsorted(codes[order], codes[missing], side="right") - 1
        found = (ends >= 0) & (codes[order[ends]] == codes[missing]) if len(order) else np.zeros(len(missing), np.bool_)
        source = np.arange(len(mask))
        source[missing[found]] = order[ends[found]]
        texts[name] = texts[name].take(pa.array(source))
        unknown[name] = mask.copy()
        unknown[name][missing[found]] = False
    return replace(rows, texts=texts, unknown=unknown)


# Refused rows.


def _refusals(rows: LogRows, unknown: Mask) -> pa.Table | None:
    if not unknown.any():
        return None
    places = np.flatnonzero(unknown)
    reasons = ["; ".join(_UNCHANGED.format(name) for name, mask in rows.unknown.items() if mask[i]) for i in places]
    return _refused(rows.lsn[places], reasons, raw_texts(pa.table(rows.texts), places))


def _truncations(emptied: Ints) -> pa.Table | None:
    return _refused(emptied, [_TRUNCATED] * len(emptied), ["TRUNCATE"] * len(emptied)) if len(emptied) else None


def _refused(rows: Ints, reasons: list[str], raw: list[str]) -> pa.Table:
    return pa.table([pa.array(rows), reasons, raw, pa.nulls(len(raw), pa.int64())], schema=REFUSED)
