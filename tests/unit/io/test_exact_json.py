"""JSON for readers whose numbers are 64-bit floats: what they would round is a text."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.io.encode import json_objects
from headrace.time import INFINITY


def exact(values: list[Any], kind: pa.DataType, name: str = "x") -> list[Any]:
    batch = pa.record_batch([pa.array(values, kind)], names=[name])
    return [json.loads(text)[name] for text in json_objects(batch, exact=True).to_pylist()]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_integers_survive_floats(values: list[int | None]):
    found = exact(values, pa.int64())
    assert [None if v is None else int(v) if isinstance(v, str) else int(float(v)) for v in found] == values
    assert [isinstance(v, str) for v in found] == [v is not None and abs(v) > 2**53 for v in values]


@pytest.mark.parametrize(
    ("values", "kind", "wanted"),
    [
        ([Decimal("1.5")], pa.decimal128(15, 2), [1.5]),
        ([Decimal("1.5"), None], pa.decimal128(16, 2), ["1.50", None]),
        ([[1, 2**60], None], pa.list_(pa.int64()), [[1, str(2**60)], None]),
        ([{"a": 2**60}], pa.struct([("a", pa.int64())]), [{"a": str(2**60)}]),
        ([2**31 - 1], pa.int32(), [2**31 - 1]),
    ],
)
def test_other_types(values: list[Any], kind: pa.DataType, wanted: list[Any]):
    assert exact(values, kind) == wanted


def test_an_infinite_end_has_a_name():
    assert exact([1, INFINITY, None], pa.int64(), "re") == [1, "inf", None]
    assert exact([INFINITY], pa.int64(), "n") == [str(INFINITY)]
