"""Messages with other columns than the declared ones: each form of value, each policy; whatever is read together."""

from __future__ import annotations

import json
import logging
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.io.test_registry import serving

from headrace.errors import SchemaDrift
from headrace.io import drift
from headrace.io.decoded import DecodedBlock
from headrace.io.drift import DriftRules
from headrace.io.json_shapes import WHOLE, ByteSpans, shapes_of
from headrace.io.value_drift import ValueDrift
from headrace.io.values import ValueDecoder, ValueFormat, encode_values
from headrace.schema import Field, Schema

DECLARED = Schema.of("t LONG, price DOUBLE, note STRING")
JSON = ValueFormat("json")
SAME, MISSING, NEW, BOTH, NONE = (
    {"t": 1, "price": 1.5, "note": "a"},
    {"t": 2, "note": "b"},
    {"t": 3, "price": 3.5, "note": "c", "more": {"deep": [1, "}"]}},
    {"t": 4, "cost": 4.5, "note": None},
    {"x": 1},
)
ROWS = [SAME, MISSING, NEW, BOTH, NONE]


def decoder(policy: Any, format: ValueFormat = JSON, *, fields: Schema = DECLARED, **options: Any) -> ValueDecoder:
    own = tuple(field for field in fields if field.name not in ("_op", "_ts", "kind", "le", "re", "re_new"))
    rules = DriftRules(policy, source="a topic", **options)
    return ValueDecoder(format, fields.fields, drift=ValueDrift(rules, own))


def decoded(policy: Any, values: list[Any], format: ValueFormat = JSON, **options: Any) -> DecodedBlock:
    encoded = [v if isinstance(v, (bytes, type(None))) else json.dumps(v).encode() for v in values]
    return decoder(policy, format, **options).decode(pa.array(encoded, pa.binary()), np.arange(len(values)) * 10)


def counts(block: DecodedBlock) -> dict[str, int]:
    return {name: count for name, count in block.drift.items() if count}


def test_widen_reads_null_and_counts():
    block = decoded("widen", ROWS)
    assert [row["price"] for row in block.table.to_pylist()] == [1.5, None, 3.5, None]
    assert block.rows.tolist() == [0, 10, 20, 30]
    assert block.refused["row"].to_pylist() == [40]
    assert block.refused["reason"].to_pylist() == [
        "schema drift: column 't' is missing; column 'price' is missing; column 'note' is missing; column 'x' is new"
    ]
    assert counts(block) == {"drifted_rows": 4, "missing_columns": 5, "new_columns": 3}


def test_divert_refuses_with_the_reason_and_the_text():
    block = decoded("divert", ROWS)
    assert block.table["t"].to_pylist() == [1]
    assert block.refused["row"].to_pylist() == [10, 20, 30, 40]
    assert block.refused["reason"].to_pylist()[:3] == [
        "schema drift: column 'price' is missing",
        "schema drift: column 'more' is new",
        "schema drift: column 'price' is missing; column 'cost' is new",
    ]
    assert json.loads(block.refused["raw"].to_pylist()[0]) == MISSING
    assert counts(block) == {"drifted_rows": 4, "missing_columns": 5, "new_columns": 3}


def test_raise_names_the_message_and_what_to_write():
    with pytest.raises(
        SchemaDrift, match="the columns of 'value 20' differ from the declared ones: column 'price' is "
    ) as e:
        decoded("raise", [SAME, SAME, MISSING])
    assert e.value.given == "t, note"
    assert e.value.instead.startswith("sparse=['price'], if messages may lack it; or on_drift='widen'")
    assert decoded("raise", [SAME, SAME]).drift == {}


def test_columns_that_a_message_may_lack():
    assert counts(decoded("raise", [SAME, MISSING], optional=("price",))) == {}
    assert counts(decoded("divert", [SAME, MISSING, {}], optional=("*",))) == {}


def test_a_value_that_does_not_fit_keeps_its_reason_and_broken_values_are_not_judged():
    block = decoded("divert", [{"t": "x", "note": "a"}, b"no", b"[1]", b'{"t": 1', None, b'{"t": tru}'])
    assert block.refused["row"].to_pylist() == [0, 10, 20, 30, 50]
    assert not any(reason.startswith("schema drift") for reason in block.refused["reason"].to_pylist()[:4])
    assert counts(block)["drifted_rows"] == 1


def test_names_with_escapes_are_names():
    block = decoded(
        "divert", [b'{"t": 1, "pr\\u0069ce": 2.5, "note": null}', b'{"t": 1, "pr\\u006fce": 2, "note": ""}']
    )
    assert block.table.to_pylist() == [{"t": 1, "price": 2.5, "note": None}]
    assert block.refused["reason"].to_pylist() == ["schema drift: column 'price' is missing; column 'proce' is new"]


def test_changes_of_debezium_are_judged_by_their_row():
    format = ValueFormat("json", envelope="debezium")
    changes: list[dict[str, Any]] = [
        {"op": "c", "after": SAME, "before": None},
        {"op": "u", "after": NEW, "before": {"t": 1}},
        {"payload": {"op": "c", "after": MISSING}, "schema": {"op": 1}},
        {"op": "d", "before": {"t": 9}, "after": None},
        {"op": "t"},
    ]
    fields = Schema((*DECLARED, Field("_op", Schema.of("x STRING")["x"].type)))
    block = decoded("divert", changes, format, fields=fields)
    assert block.table["_op"].to_pylist() == ["c", "d", "t"]
    assert block.refused["reason"].to_pylist() == [
        "schema drift: column 'more' is new",
        "schema drift: column 'price' is missing",
    ]
    widened = decoded("widen", changes, format, fields=fields)
    assert widened.table["t"].to_pylist() == [1, 3, 2, 9, None]
    assert counts(widened) == {"drifted_rows": 2, "missing_columns": 1, "new_columns": 1}


def test_physical_events_are_judged_by_their_payload():
    fields = Schema.of("kind STRING, le LONG, re LONG, re_new LONG, t LONG, price DOUBLE, note STRING")
    events = [
        {"kind": "insert", "le": 1, "re": 2, "payload": SAME},
        {"kind": "cti", "le": 2},
        {"kind": "insert", "le": 3, "re": 4, "payload": MISSING},
    ]
    block = decoded("divert", events, ValueFormat("json", nested=True), fields=fields)
    assert block.table["kind"].to_pylist() == ["insert", "cti"]
    assert block.refused["reason"].to_pylist() == ["schema drift: column 'price' is missing"]


def test_schemas_of_avro_are_judged_once_each():
    with serving() as registry:
        format = ValueFormat("avro", registry=registry.url, subject="s")
        tables = [
            pa.table({"t": [1, 2], "price": [1.5, 2.5], "note": ["a", "b"]}),
            pa.table({"t": [3], "note": ["c"]}),
            pa.table({"t": pa.array([4], pa.int32()), "price": [4.5], "note": ["d"], "more": [True]}),
        ]
        values = pa.concat_arrays([encode_values(table, format) for table in tables])
        offsets = np.arange(4)
        widened = decoder("widen", format).decode(values, offsets)
        assert widened.table["price"].to_pylist() == [1.5, 2.5, None, 4.5]
        assert counts(widened) == {"drifted_rows": 2, "missing_columns": 1, "new_columns": 1, "changed_types": 1}
        diverted = decoder("divert", format).decode(values, offsets)
        assert diverted.rows.tolist() == [0, 1]
        assert diverted.refused["reason"].to_pylist() == [
            "schema drift: column 'price' is missing",
            "schema drift: column 't' is int32, not LONG; column 'more' is new",
        ]
        with pytest.raises(SchemaDrift, match="the columns of 'schema 2 of the registry' differ"):
            decoder("raise", format).decode(values, offsets)
        assert decoder("raise", format).decode(values.slice(0, 2), offsets[:2]).drift == {}


@pytest.mark.parametrize("policy", ["raise", "divert", "widen"])
def test_types_that_avro_does_not_have_are_no_drift(policy: str):
    schema = {
        "type": "record", "name": "r", "fields": [
            {"name": "small", "type": "int"}, {"name": "at", "type": "long"},
            {"name": "flag", "type": ["null", "boolean"]},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "text", "type": {"type": "enum", "name": "e", "symbols": ["a"]}},
        ],
    }  # fmt: skip
    format = ValueFormat("avro", avro_schema=json.dumps(schema))
    fields = Schema.of("small SHORT, at DATETIME, flag BOOLEAN, day DATE, text STRING")
    block = decoder(policy, format, fields=fields).decode(pa.array([b"\x02\x04\x02\x01\x06\x00"]), np.arange(1))
    assert counts(block) == {}
    assert block.table["flag"].to_pylist() == [True]


def test_each_kind_is_logged_once(caplog: pytest.LogCaptureFixture):
    drift._logged.clear()
    one = decoder("widen")
    with caplog.at_level(logging.WARNING, logger="headrace"):
        for first in (0, 3):
            values = pa.array([json.dumps(row).encode() for row in [MISSING, MISSING, NEW]])
            one.decode(values, np.arange(first, first + 3), "t/0, offset")
    assert [record.getMessage() for record in caplog.records] == [
        "a topic: the columns of 't/0, offset 0' differ from the declared ones: column 'price' is missing",
        "a topic: the columns of 't/0, offset 2' differ from the declared ones: column 'more' is new",
    ]


# --- whatever is read together, and whatever a value is ---------------------------------------------------------------

NAMES = st.sampled_from(["t", "price", "note", "more", 'od"d', "ä", "t\\", ""])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False), st.text(max_size=4)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)
SPACES = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n\t", " :\r\n")])


def text_of(value: object, separators: tuple[str, str], *, ascii: bool) -> bytes:
    return json.dumps(value, separators=separators, ensure_ascii=ascii).encode()


@given(st.lists(st.tuples(OBJECTS | VALUES, SPACES, st.booleans(), st.sampled_from([b"", b" ", b"\n"])), max_size=8))
def test_differential_shapes_and_python(drawn: list[tuple[Any, tuple[str, str], bool, bytes]]):
    names = ("t", "price", "note")
    texts = [around + text_of(value, spaces, ascii=ascii) + around for value, spaces, ascii, around in drawn]
    shapes = shapes_of(ByteSpans.of(pa.array(texts, pa.binary())), names)
    for row, (value, *_) in enumerate(drawn):
        assert (shapes.known[row] > 0) == isinstance(value, dict)
        if shapes.known[row] == WHOLE:
            assert [name for i, name in enumerate(names) if shapes.seen[row, i]] == [n for n in names if n in value]
            assert shapes.others[row] == len(value.keys() - set(names))
            for name in value.keys() & set(names):
                assert json.loads(shapes.values(name)[row]) == value[name]


@given(st.lists(st.binary(max_size=12) | st.text('{}[]":,\\ t1', max_size=14).map(str.encode), max_size=6))
def test_no_bytes_lead_the_scan_astray(texts: list[bytes]):
    shapes = shapes_of(ByteSpans.of(pa.array(texts, pa.binary())), ("t", "1"))
    for row, text in enumerate(texts):
        try:
            value = json.loads(text)
        except ValueError:
            continue
        assert (shapes.known[row] > 0) == isinstance(value, dict)


@given(
    st.lists(OBJECTS.map(lambda row: {k: v for k, v in row.items() if not isinstance(v, (dict, list))}), max_size=12),
    st.lists(st.integers(0, 12), max_size=3),
    st.sampled_from(["divert", "widen"]),
)
def test_what_is_read_together_does_not_change_a_verdict(rows: list[dict[str, Any]], cuts: list[int], policy: str):
    values = pa.array([json.dumps(row).encode() for row in rows], pa.binary())
    whole = decoder(policy).decode(values, np.arange(len(rows)))
    one, totals, kept, refused = decoder(policy), dict[str, int](), list[int](), list[tuple[int, str]]()
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    for start, end in pairwise(bounds):
        part = one.decode(values.slice(start, end - start), np.arange(start, end))
        totals = {name: totals.get(name, 0) + part.drift.get(name, 0) for name in totals | part.drift}
        kept += part.rows.tolist()
        refused += zip(part.refused["row"].to_pylist(), part.refused["reason"].to_pylist(), strict=True)
    assert kept == whole.rows.tolist()
    assert refused == list(zip(whole.refused["row"].to_pylist(), whole.refused["reason"].to_pylist(), strict=True))
    assert {n: c for n, c in totals.items() if c} == counts(whole)
    drifts = [row for row in rows if row.keys() != set(DECLARED.names)]
    assert counts(whole).get("drifted_rows", 0) == len(drifts)
