"""Rows as messages: values, keys, tombstones, and where they go."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.adapters.kafka.messages import BY_KEY, MessageFormat
from headrace.errors import SinkError
from headrace.io.values import ValueFormat

EVENTS = pa.table({
    "kind": ["insert", "cti"], "le": [1, 5], "re": pa.array([3, None], pa.int64()), "re_new": pa.nulls(2, pa.int64()),
    "s": ["line\nend", None],
})  # fmt: skip
UPSERTS = pa.table({"op": ["upsert", "delete"], "_batch": [0, 0], "le": [1, 2], "s": ["a", "b"], "t": ["x", "y"]})


def test_events_with_a_key_go_by_it_and_ctis_everywhere() -> None:
    event = b'{"kind": "insert", "le": 1, "re": 3, "re_new": null, "payload": {"s": "line\\nend"}}'
    cti = b'{"kind": "cti", "le": 5, "re": null, "re_new": null, "payload": {}}'
    assert [*MessageFormat("events", ("s",)).messages(EVENTS, 7, 2)] == [
        (event, b'{"s": "line\\nend"}', BY_KEY), (cti, None, 0), (cti, None, 1),
    ]  # fmt: skip
    assert [*MessageFormat("events", ()).messages(EVENTS, 7, 2)] == [(event, None, 1), (cti, None, 0), (cti, None, 1)]


def test_upserts_become_values_and_tombstones() -> None:
    assert [*MessageFormat("upsert", ("s", "t")).messages(UPSERTS, 0, 4)] == [
        (b'{"le": 1, "s": "a", "t": "x"}', b'{"s": "a", "t": "x"}', BY_KEY), (None, b'{"s": "b", "t": "y"}', BY_KEY),
    ]  # fmt: skip
    text = MessageFormat("upsert", ("s",), ValueFormat("csv"), "text")
    assert [*text.messages(UPSERTS, 0, 4)] == [(b"1,a,x", b"a", BY_KEY), (None, b"b", BY_KEY)]


def test_a_plain_key_of_an_upsert_may_not_be_null() -> None:
    rows = UPSERTS.set_column(3, "s", pa.array([None, "b"]))
    with pytest.raises(SinkError, match="1 rows have no key"):
        [*MessageFormat("upsert", ("s",), key_format="text").messages(rows, 0, 1)]


def test_many_rows_are_encoded_piece_by_piece() -> None:
    rows = pa.table({"n": range(120_000)})
    found = [*MessageFormat("final", ()).messages(rows, 0, 1)]
    assert len(found) == 120_000
    assert found[-1] == (b'{"n": 119999}', None, 0)
