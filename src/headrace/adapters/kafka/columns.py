"""Columns of records: the value's, the key's, and those of the record itself.

| column | type | |
|---|---|---|
| `_key` | STRING | the key as text |
| `_topic` | STRING | |
| `_partition` | INT | |
| `_offset` | LONG | |
| `_timestamp` | DATETIME | when the record was created or appended, as the topic is set |
| `_headers` | STRING | a JSON object: names with texts, or with a list of texts if a name is there more than once |
| `_tombstone` | BOOLEAN | whether the value is null; only if tombstones are asked for |

With a format of keys, columns of the key have their own names. A column that both the key and the value have is taken
from the key, so that tombstones have it too.

A record without a value is a *tombstone*. If tombstones are asked for it is a row with the columns of its key and nulls
for those of the value; otherwise it is refused, so that the input's policy for bad rows counts it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import UnknownColumn
from headrace.io.decoded import REFUSED, DecodedBlock
from headrace.io.drift import DriftRules
from headrace.io.envelope import OP, TS
from headrace.io.value_drift import ValueDrift
from headrace.io.values import ValueDecoder, ValueFormat
from headrace.schema import RESERVED, Field, Schema, Type

__all__ = ["METADATA", "TOMBSTONE", "RecordColumns", "RecordDecoder"]

METADATA = Schema((
    Field("_key", Type.STRING), Field("_topic", Type.STRING), Field("_partition", Type.INT),
    Field("_offset", Type.LONG), Field("_timestamp", Type.DATETIME), Field("_headers", Type.STRING),
))  # fmt: skip
TOMBSTONE = Field("_tombstone", Type.BOOLEAN)
_NO_VALUE = "the value is null: a tombstone, which is a row only under tombstones=True"

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RecordColumns:
    """Columns of records as arrays: what a consumer gives, before values are decoded.

    `keys` and `headers` are None if no column needs them; times are in milliseconds, -1 if a record has none.
    """

    topic: str
    partition: int
    offsets: Ints
    values: pa.Array
    times: Ints
    keys: pa.Array | None = None
    headers: Sequence[Sequence[tuple[str, bytes | None]] | None] | None = None

    def within(self, nbytes: int) -> tuple[RecordColumns, int]:
        """The first records, up to the one whose value reaches so many bytes; and what is left of the bytes."""
        sizes = np.cumsum(pc.fill_null(pc.binary_length(self.values), 0).to_numpy(), dtype=np.int64)
        if sizes[-1] < nbytes:
            return self, nbytes - int(sizes[-1])
        count = int(np.searchsorted(sizes, nbytes)) + 1
        keys = None if self.keys is None else self.keys.slice(0, count)
        headers = None if self.headers is None else self.headers[:count]
        values, offsets, times = self.values.slice(0, count), self.offsets[:count], self.times[:count]
        return RecordColumns(self.topic, self.partition, offsets, values, times, keys, headers), 0


class RecordDecoder:
    """Decodes records to a block with the columns `names`."""

    def __init__(
        self,
        names: Sequence[str],
        value: tuple[ValueFormat, Schema],
        key: tuple[ValueFormat, Schema] | None = None,
        *,
        tombstones: bool = False,
        drift: DriftRules | None = None,
    ) -> None:
        self._names = tuple(names)
        self._tombstones, self._envelope = tombstones, bool(value[0].envelope)
        key_names = key[1].names if key else ()
        self._of_value = tuple(f for f in value[1] if f.name in names and f.name not in key_names)
        self._of_key = tuple(f for f in key[1] if f.name in names) if key else ()
        rest = [n for n in names if n not in {f.name for f in (*self._of_value, *self._of_key)}]
        own = {*METADATA.names, *((TOMBSTONE.name,) if tombstones else ())}
        for name in rest:
            if name not in own:
                raise UnknownColumn.of(name, (*value[1].names, *key_names, *own), "the records of a topic")
        self._metadata = tuple(rest)
        # All columns of a CSV value have to be named, also if few are read.
        beside = (OP, TS) if self._envelope else RESERVED if value[0].nested else ()
        judged = tuple(field for field in self._of_value if field.name not in beside)
        of_values = ValueDrift(drift, judged, tuple(key_names)) if drift is not None else None
        self._values = ValueDecoder(value[0], self._of_value, names=value[1].names, drift=of_values)
        self._keys = ValueDecoder(key[0], self._of_key, names=key[1].names) if key and self._of_key else None

    @property
    def needs_keys(self) -> bool:
        return self._keys is not None or "_key" in self._metadata

    @property
    def needs_headers(self) -> bool:
        return "_headers" in self._metadata

    def decode(self, records: RecordColumns) -> DecodedBlock:
        """The block of some records; `rows` and `lines` are offsets."""
        missing = records.values.null_count > 0
        place = f"{records.topic}/{records.partition}, offset"
        block = self._values.decode(records.values, records.offsets, place)
        refused = [block.refused]
        places = None if len(block.rows) == len(records.offsets) else np.searchsorted(records.offsets, block.rows)
        if missing:
            empty = pc.is_null(records.values).to_numpy(zero_copy_only=False)
            if self._tombstones:
                places = np.flatnonzero(empty | _marked(places, len(empty)))
            elif not self._envelope:  # Debezium sends a tombstone after each delete, which says the same
                refused.append(_refused(records.offsets[empty], _NO_VALUE, _texts(records.keys, empty)))
        columns = {f.name: _spread(block.table[f.name], block.rows, records, places) for f in self._of_value}
        if self._keys is not None:
            places = self._add_keys(self._keys, records, columns, places, refused)
        return replace(self._block(records, columns, places, refused), drift=block.drift)

    def _add_keys(
        self, decoder: ValueDecoder, records: RecordColumns, columns: dict[str, Any], places: Ints | None,
        refused: list[pa.Table],
    ) -> Ints | None:  # fmt: skip
        """Add the columns of the keys, and refuse rows whose keys cannot be read; the places of the rows left."""
        keys = records.keys if places is None else records.keys.take(pa.array(places))  # type: ignore[union-attr]
        offsets = records.offsets if places is None else records.offsets[places]
        block = decoder.decode(keys, offsets)
        part = RecordColumns(records.topic, records.partition, offsets, keys, records.times)
        bad = np.isin(offsets, block.refused["row"].to_numpy()) if block.refused.num_rows else None
        for f in self._of_key:
            columns[f.name] = _spread(block.table[f.name], block.rows, part, np.arange(len(offsets)))
        if bad is None:
            return places
        reasons = pc.binary_join_element_wise("key: ", block.refused["reason"], "")
        refused.append(block.refused.set_column(1, REFUSED.field("reason"), reasons))
        good = pa.array(~bad)
        columns.update({name: column.filter(good) for name, column in columns.items()})
        return (np.arange(len(offsets)) if places is None else places)[~bad]

    def _block(
        self, records: RecordColumns, columns: dict[str, Any], places: Ints | None, refused: Sequence[pa.Table]
    ) -> DecodedBlock:
        offsets = records.offsets if places is None else records.offsets[places]
        times = records.times if places is None else records.times[places]
        for name in self._metadata:
            columns[name] = _METADATA[name](records, places, offsets, times)
        schema = pa.schema([(name, _type(name, self._of_value, self._of_key)) for name in self._names])
        # A table without columns has no rows; so a count of them still needs one, which is dropped.
        table = pa.table([columns[name] for name in self._names], schema=schema)
        if not self._names:
            table = pa.table({"": pa.nulls(len(offsets))}).select([])
        broken = pa.concat_tables(refused).sort_by("row") if len(refused) > 1 else refused[0]
        arrived = times * 1000 if not len(times) or times.min() >= 0 else None
        return DecodedBlock(table, broken, offsets, offsets, arrived=arrived)


def _marked(places: Ints | None, count: int) -> NDArray[np.bool_]:
    marks = np.zeros(count, np.bool_)
    marks[slice(None) if places is None else places] = True
    return marks


def _spread(column: pa.ChunkedArray, rows: Ints, records: RecordColumns, places: Ints | None) -> pa.ChunkedArray:
    """A decoded column for the rows at `places`, with nulls where nothing was decoded."""
    offsets = records.offsets if places is None else records.offsets[places]
    if len(rows) == len(offsets):
        return column
    found = np.searchsorted(rows, offsets)
    known = found < len(rows)
    known[known] = rows[found[known]] == offsets[known]
    return column.take(pa.array(found, mask=~known))


def _refused(offsets: Ints, reason: str, texts: list[str]) -> pa.Table:
    return pa.table([offsets, [reason] * len(offsets), texts, offsets], schema=REFUSED)


def _texts(keys: pa.Array | None, mask: NDArray[np.bool_]) -> list[str]:
    """The keys at the marked places as text for people."""
    if keys is None:
        return [""] * int(mask.sum())
    return ["" if k is None else k.decode("utf-8", "backslashreplace") for k in keys.filter(pa.array(mask)).to_pylist()]


def _type(name: str, *fields: Sequence[Field]) -> pa.DataType:
    known = {f.name: f.type for f in (*METADATA, TOMBSTONE, *(f for part in fields for f in part))}
    return known[name].arrow


def _taken(values: pa.Array, places: Ints | None) -> pa.Array:
    return values if places is None else values.take(pa.array(places))


def _key_texts(records: RecordColumns, places: Ints | None, _offsets: Ints, _times: Ints) -> pa.Array:
    keys = _taken(records.keys, places)
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:  # bytes that are no text are shown escaped
        return pa.array([None if k is None else k.decode("utf-8", "backslashreplace") for k in keys.to_pylist()])


def _header_texts(records: RecordColumns, places: Ints | None, _offsets: Ints, _times: Ints) -> pa.Array:
    assert records.headers is not None
    found = records.headers if places is None else [records.headers[i] for i in places]
    return pa.array([None if not pairs else _header_text(pairs) for pairs in found], pa.string())


def _header_text(pairs: Sequence[tuple[str, bytes | None]]) -> str:
    values: dict[str, list[str | None]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(None if value is None else value.decode("utf-8", "backslashreplace"))
    return json.dumps({name: v[0] if len(v) == 1 else v for name, v in values.items()}, ensure_ascii=False)


def _repeated(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


_METADATA: dict[str, Callable[[RecordColumns, Ints | None, Ints, Ints], pa.Array]] = {
    "_key": _key_texts,
    "_headers": _header_texts,
    "_topic": lambda r, _, offsets, __: _repeated(r.topic, pa.string(), len(offsets)),
    "_partition": lambda r, _, offsets, __: _repeated(r.partition, pa.int32(), len(offsets)),
    "_offset": lambda _r, _, offsets, __: pa.array(offsets),
    "_timestamp": lambda _r, _, __, times: pa.array(times * 1000, mask=times < 0).cast(Type.DATETIME.arrow),
    "_tombstone": lambda r, places, _, __: pc.is_null(_taken(r.values, places)),
}
