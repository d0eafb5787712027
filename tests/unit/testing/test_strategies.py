"""Drawn streams of any columns are legal, reach every type, and print as a table when a test fails."""

from __future__ import annotations

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import SchemaError
from headrace.events import check_events
from headrace.io.origins import Events
from headrace.schema import Field, Schema, Type
from headrace.testing.checks import output_violations
from headrace.testing.order import check_order
from headrace.testing.same import assert_same_history, cell
from headrace.testing.strategies import payloads, physical_streams, streams, tables, values

KINDS = [*Type.PLAIN, *(kind.array for kind in Type.PLAIN)]
EVERY_TYPE = Schema(tuple(Field(f"c{i}", kind) for i, kind in enumerate(KINDS)))

#: Found is enough here; the smallest example takes long.
SEARCH = settings(database=None, max_examples=500, phases=[Phase.generate])


def origin(stream: hr.Stream) -> Events:
    found = stream.node.inputs[0].origin
    assert isinstance(found, Events)
    return found


@given(streams(EVERY_TYPE, max_events=8))
def test_streams_of_every_type_keep_their_promises(stream: hr.Stream):
    table = origin(stream).table
    check_events(table)
    check_order(table, "corrections")
    assert not list(output_violations(table))
    assert stream.schema.arrow == EVERY_TYPE.arrow
    assert_same_history(stream, table)


@given(streams("k STRING, n LONG", retractions=False, ctis=False), streams("k STRING", unit="1 s", odd=False))
def test_options_leave_things_out(plain: hr.Stream, scaled: hr.Stream):
    assert set(origin(plain).table["kind"].to_pylist()) <= {"insert"}
    times = [t for name in ("le", "re", "re_new") for t in origin(scaled).table[name].to_pylist()]
    assert all(t is None or t == hr.INFINITY or t % 1_000_000 == 0 for t in times)
    assert set(scaled.cht()["k"].to_pylist()) <= {"a", "b", "c", None}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
@pytest.mark.parametrize("odd", [True, False])
def test_values_fit_their_type(kind: Type, odd: bool):
    schema = Schema((Field("v", kind),))

    @settings(max_examples=20, database=None)
    @given(st.lists(values(kind, odd=odd), min_size=1, max_size=5))
    def fit(drawn: list):
        rows = [{"kind": "insert", "le": 1, "re": 2, "re_new": None, "v": value} for value in drawn]
        given_back = tables(rows, schema)["v"].to_pylist()
        assert list(map(cell, given_back)) == list(map(cell, drawn))

    fit()


@pytest.mark.parametrize("wanted", [
    lambda t: "retract" in t["kind"].to_pylist(),
    lambda t: "cti" in t["kind"].to_pylist(),
    lambda t: hr.INFINITY in t["re"].to_pylist(),
    lambda t: "🌊" in t["k"].to_pylist(),
    lambda t: t.num_rows == 0,
])  # fmt: skip
def test_there_is_everything(wanted: object):
    find(streams("k STRING, n LONG"), lambda stream: wanted(origin(stream).table), settings=SEARCH)


def test_streams_come_in_batches():
    found = find(
        streams("n LONG"), lambda stream: len(origin(stream).sizes) > 1 and max(origin(stream).sizes) > 1,
        settings=SEARCH,
    )  # fmt: skip
    assert sum(origin(found).sizes) == origin(found).table.num_rows


def test_a_failing_example_is_printed_as_a_drawn_table():
    @settings(SEARCH, print_blob=False)
    @given(streams("symbol STRING, price DOUBLE", odd=False))
    def fails(stream: hr.Stream):
        assert stream.cht().num_rows < 2

    with pytest.raises(AssertionError) as caught:
        fails()
    (printed,) = [note for note in caught.value.__notes__ if note.startswith("a stream of")]
    head, text = printed.split("\n", 1)
    assert head == "a stream of symbol STRING, price DOUBLE:"
    assert hr.events(text, "symbol STRING, price DOUBLE").cht().num_rows >= 2


def test_a_stream_has_columns():
    with pytest.raises(SchemaError, match="payload"):
        find(streams("le LONG"), lambda _: True)


@given(payloads(), physical_streams(max_events=3))
def test_the_streams_of_our_own_tests_are_as_they_were(payload: dict, events: list):
    assert set(payload) == {"k", "i", "x"}
    assert all({"kind", "le", "re", "re_new", "k", "i", "x", "id"} == set(event) for event in events)
