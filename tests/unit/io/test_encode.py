"""Writing JSON lines, and reading them back."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BadRow
from headrace.io.encode import PHYSICAL, jsonl_to_physical, physical_to_jsonl, rows_to_jsonl
from headrace.schema import Schema
from headrace.time import INFINITY

PAYLOAD = Schema.of("i INT, l LONG, d DOUBLE, f FLOAT, b BOOLEAN, s STRING, c CHAR, t DATETIME")
WHOLE = Schema((*PHYSICAL, *PAYLOAD))


def events(*rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=WHOLE.arrow)


def test_physical_events():
    table = events(
        {"kind": "insert", "le": 1, "re": INFINITY, "i": 5, "s": 'say "hi"\n', "d": 1.0, "t": 1_500_000, "b": True},
        {"kind": "retract", "le": 1, "re": INFINITY, "re_new": 7, "d": math.nan},
        {"kind": "cti", "le": 9},
    )
    first, second, third = physical_to_jsonl(table).decode().splitlines()
    payload = {"i": 5, "l": None, "d": 1.0, "f": None, "b": True, "s": 'say "hi"\n', "c": None}
    payload["t"] = "1970-01-01T00:00:01.500000Z"
    assert json.loads(first) == {"kind": "insert", "le": 1, "re": "inf", "re_new": None, "payload": payload}
    assert '"d": 1.0' in first
    assert json.loads(second)["re_new"] == 7
    assert json.loads(second)["payload"]["d"] == "NaN"
    assert json.loads(third) == {"kind": "cti", "le": 9, "re": None, "re_new": None, "payload": {}}


def test_rows():
    table = pa.table({"a": [1, None], 'né"e': ["x", "\\"], "d": [math.inf, -math.inf]})
    assert [json.loads(line) for line in rows_to_jsonl(table).splitlines()] == [
        {"a": 1, 'né"e': "x", "d": "Infinity"},
        {"a": None, 'né"e': "\\", "d": "-Infinity"},
    ]


def test_nothing():
    assert physical_to_jsonl(events()) == b""
    assert jsonl_to_physical(b"", PAYLOAD).schema == WHOLE.arrow
    assert rows_to_jsonl(pa.table({"a": []})) == b""


@pytest.mark.slow
def test_files_and_many_chunks(tmp_path: Path):
    table = events({"kind": "insert", "le": 1, "re": 2, "s": "x"}).take(pa.array([0] * 300_000))
    (tmp_path / "a.jsonl").write_bytes(physical_to_jsonl(table))
    (tmp_path / "b.jsonl").write_bytes(physical_to_jsonl(table.slice(5, 3)))
    back = jsonl_to_physical([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")], PAYLOAD)
    assert back.num_rows == 300_003
    assert jsonl_to_physical(str(tmp_path / "b.jsonl"), PAYLOAD).num_rows == 3


def test_a_broken_line_is_named():
    with pytest.raises(BadRow, match="line 2"):
        jsonl_to_physical(b'{"kind": "cti", "le": 1}\n{"kind":\n', PAYLOAD)


def test_times_beyond_four_digit_years_and_nulls():
    times = pa.array([None, 253_402_300_800_000_000, 0], pa.timestamp("us", tz="UTC"))
    texts = [json.loads(line)["t"] for line in rows_to_jsonl(pa.table({"t": times})).splitlines()]
    assert texts == [None, "10000-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000000Z"]


TICKS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
EVENT = st.fixed_dictionaries({
    "kind": st.sampled_from(["insert", "retract"]),
    "le": TICKS, "re": TICKS, "re_new": TICKS,
    "i": st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
    "l": TICKS,
    "d": st.one_of(st.none(), st.floats()),
    "f": st.one_of(st.none(), st.floats(width=32)),
    "b": st.one_of(st.none(), st.booleans()),
    "s": st.one_of(st.none(), TEXT, st.sampled_from(["NaN", "inf", '"re": "inf"'])),
    "c": st.one_of(st.none(), st.characters(codec="utf-8")),
    "t": st.one_of(st.none(), st.integers(-(2**55), 2**57)),
})  # fmt: skip


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(st.lists(EVENT, max_size=30))
def test_what_is_written_is_read_back(rows: list[dict[str, object]]):
    table = events(*rows)
    back = jsonl_to_physical(physical_to_jsonl(table), PAYLOAD)
    assert back.schema == WHOLE.arrow
    assert repr(back.to_pylist()) == repr(table.to_pylist())
