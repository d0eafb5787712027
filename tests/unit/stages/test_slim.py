"""Columns that follow from others do not travel, and come back as they were."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pieces import joined
from headrace.stages.message import Message, pack, unpack
from headrace.stages.slim import full, slim

ROWS = 1200
UTC = pa.timestamp("us", "UTC")
LEAST, MOST = -(2**63), 2**63 - 1


def instants() -> pa.Table:
    """Rows of instants, as an intake sends them."""
    at = np.random.default_rng(1).integers(0, 10**15, ROWS)
    return pa.table({
        "k": np.arange(ROWS) % 7, "ts": pa.array(at).cast(UTC), "__le": at, "__re": at + 1,
        "__weight": np.ones(ROWS, np.int64),
    })  # fmt: skip


def test_instants_travel_by_their_time_alone():
    few, left = slim(instants())
    assert few.column_names == ["k", "ts"]
    assert [name for _, name, *_ in left] == ["__le", "__re", "__weight"]
    assert full(few, left).equals(instants())
    assert full(few, left).schema == instants().schema


def test_small_tables_travel_as_they_are():
    assert slim(instants().slice(0, 100)) == (instants().slice(0, 100), [])


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Columns that follow from each other in all ways, at the bounds of 64 bits, too, or nearly do."""
    seed = draw(st.integers(0, 100))
    columns: dict[str, pa.Array] = {}
    arrays: list[np.ndarray] = []
    for place in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["new", "constant", "follows", "nearly", "nulls", "text", "double"]))
        amount = draw(st.sampled_from([0, 1, -1, 10**12, LEAST, MOST]))
        values = np.random.default_rng(seed + place).integers(LEAST, MOST, ROWS)
        if kind == "constant":
            values = np.full(ROWS, amount)
        if kind in ("follows", "nearly") and arrays:
            with np.errstate(over="ignore"):
                values = arrays[draw(st.integers(0, len(arrays) - 1))] + np.int64(amount)
        if kind == "nearly":
            values[draw(st.sampled_from([0, 50, 500, ROWS - 1]))] ^= 1
        column = pa.array(values)
        if kind == "nulls":
            column = pa.array(values, mask=values < 0)
        if kind in ("text", "double"):
            column = column.cast(pa.string() if kind == "text" else pa.float64(), safe=False)
        elif draw(st.booleans()):
            column = column.view(UTC)
        columns[f"c{place}"] = column
        arrays.append(values)
    return pa.table(columns)


@given(tables())
def test_every_table_comes_back(table: pa.Table):
    assert full(*slim(table)).equals(table)
    (row,) = pack(Message(0, 1, table))
    assert unpack(0, 1, joined(row[2])).table.equals(table)


def test_a_column_in_several_chunks_cuts_all_others():
    """The stream of such a table has several batches, so each column comes back in as many chunks."""
    halves = pa.chunked_array([["a"] * 700, ["b"] * (ROWS - 700)])
    table = instants().append_column("text", halves)
    (row,) = pack(Message(0, 1, table))
    found = unpack(0, 1, joined(row[2])).table
    assert found["text"].num_chunks == 2
    assert found.equals(table)


@pytest.mark.parametrize("rows", [0, 1, ROWS])
def test_messages_come_back(rows: int):
    ((bucket, edge, chunk),) = pack(Message(1, 2, instants().slice(0, rows), extra={"a": 1}))
    found = unpack(bucket, edge, pa.py_buffer(joined(chunk)))
    assert (found.bucket, found.edge, found.extra) == (1, 2, {"a": 1})
    assert found.table.equals(instants().slice(0, rows))
