"""Records as columns: values, keys and the record's own, with every record a row or refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adapters.kafka.columns import RecordColumns, RecordDecoder
from headrace.errors import UnknownColumn
from headrace.io.values import ValueFormat
from headrace.schema import Schema

VALUE = (ValueFormat("json"), Schema.of("n LONG, s STRING"))
KEY = (ValueFormat("json"), Schema.of("id LONG"))


def records(values: list[bytes | None], keys: list[bytes | None] | None = None) -> RecordColumns:
    offsets = np.arange(len(values), dtype=np.int64) * 3 + 100
    found = pa.array(keys, pa.binary()) if keys is not None else None
    return RecordColumns("t", 2, offsets, pa.array(values, pa.binary()), offsets * 10, found, [None] * len(values))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b'{"n": 1}', b'{"n": 2, "s": "x"}', b"{", b"", b'{"n": "x"}', None]),
            st.sampled_from([b'{"id": 7}', b"no", None]),
        )
    ),
    st.booleans(),
)
def test_every_record_is_one_row_or_refused(drawn: list[tuple[bytes | None, bytes | None]], tombstones: bool) -> None:
    given_records = records([value for value, _ in drawn], [key for _, key in drawn])
    decoder = RecordDecoder(["id", "n", "_offset", "_key"], VALUE, KEY, tombstones=tombstones)
    block = decoder.decode(given_records)
    assert block.table["_offset"].to_pylist() == block.rows.tolist()
    assert block.arrived is not None
    assert block.arrived.tolist() == [offset * 10_000 for offset in block.rows.tolist()]
    assert sorted([*block.rows.tolist(), *block.refused["row"].to_pylist()]) == given_records.offsets.tolist()
    for row in block.table.to_pylist():
        value, key = drawn[(row["_offset"] - 100) // 3]
        assert row["id"] == (None if key is None else 7)
        assert row["n"] == {None: None, b'{"n": 1}': 1}.get(value, 2)
        assert row["_key"] == (None if key is None else key.decode())


def test_a_key_that_is_no_text_is_shown_escaped() -> None:
    decoder = RecordDecoder(["_key"], VALUE)
    assert decoder.decode(records([b"{}", b"{}"], [b"\xff\x00", b"a"])).table["_key"].to_pylist() == ["\\xff\x00", "a"]


def test_rows_are_counted_without_columns() -> None:
    block = RecordDecoder([], VALUE).decode(records([b"{}", b"{}"]))
    assert block.rows.tolist() == [100, 103]
    assert block.table.num_columns == 0


def test_unknown_columns_are_refused() -> None:
    with pytest.raises(UnknownColumn):
        RecordDecoder(["_tombstone"], VALUE)
    with pytest.raises(UnknownColumn):
        RecordDecoder(["m"], VALUE)
