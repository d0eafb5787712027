"""Random streams for property tests, drawn by hypothesis: physical streams that keep their promises, and deliveries.

A stream is decoded from a list of small numbers, so that a failing one shrinks to few events with small times.

`streams` is for tests of your own query, with any columns:

    from hypothesis import given
    from headrace.testing.strategies import streams

    @given(streams("symbol STRING, price DOUBLE", unit="1 s"))
    def test_dear_trades_are_trades(trades):
        dear = trades.where(col("price") > 100)
        assert dear.cht().num_rows <= trades.cht().num_rows

The other strategies draw streams of `SCHEMA` as plain events, for tests that deliver them in several ways.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import note
from hypothesis import strategies as st

from headrace.api.inputs import events as stream_of
from headrace.api.stream import Stream
from headrace.errors import SchemaError
from headrace.events import physical_schema
from headrace.schema import Schema, SchemaLike, Type
from headrace.testing.generators.values import SCHEMA
from headrace.testing.same import aligned, cell
from headrace.time import INFINITY, DurationLike, duration, format_ticks

__all__ = [
    "SCHEMA", "batch_sizes", "buckets", "payloads", "physical_streams", "shuffled", "streams", "tables", "values",
    "without_ids",
]  # fmt: skip

Event = dict[str, Any]

_KEYS = ("a", "b", "c", None)
_WHOLE = (0, 1, 2, -1, 7, None, 2**63 - 1, -(2**63), 2**53 + 1)
_FLOATS = (0.0, 1.0, -2.5, 0.1, 3.0, None, math.nan, math.inf, -math.inf, -0.0, 1e300, 5e-324, 1e16)
_SINGLE = (*_FLOATS[:3], 0.5, 3.0, None, math.nan, math.inf, -math.inf, -0.0, 2.0**127, 2.0**-149, 2.0**24)
_ODD_TEXT = ("", "é", "e\u0301", "🌊", "א", 'say "a"', "a'b", "a|b", "A")
_TIMES = (
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    None,
    datetime(1900, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
)
_span = lambda ticks: None if ticks is None else timedelta(microseconds=ticks)  # noqa: E731
_DATES = [time and time.date() for time in _TIMES]
#: By type: the plain values, and odd but legal ones.
_VALUES: dict[Type, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    Type.BYTE: (_WHOLE[:6], (2**7 - 1, -(2**7))),
    Type.SHORT: (_WHOLE[:6], (2**15 - 1, -(2**15))),
    Type.INT: (_WHOLE[:6], (2**31 - 1, -(2**31))),
    Type.LONG: (_WHOLE[:6], _WHOLE[6:]),
    Type.FLOAT: (_SINGLE[:6], _SINGLE[6:]),
    Type.DOUBLE: (_FLOATS[:6], _FLOATS[6:]),
    Type.BOOLEAN: ((False, True, None), ()),
    Type.CHAR: (_KEYS, ("é", "🌊", "A")),
    Type.STRING: (_KEYS, _ODD_TEXT),
    Type.DATETIME: (_TIMES[:4], _TIMES[4:]),
    Type.DATE: (tuple(_DATES[:4]), tuple(_DATES[4:])),
    Type.TIME: (tuple(time and time.time() for time in _TIMES[:4]), (_TIMES[-1].time(),)),
    Type.INTERVAL: (tuple(map(_span, (0, 1, 60_000_000, None))), tuple(map(_span, (-1, 3_000_000_000_000_001)))),
}
_DURATIONS = (1, 1, 2, 3, 5, 8, 13, 40, None)  # points, short, long, endless
_KINDS = 12


def payloads(*, odd: bool = True) -> st.SearchStrategy[Event]:
    """Payloads with few distinct values, nulls among them; `odd` adds NaN, infinities and very large numbers."""
    whole, floats = (_WHOLE, _FLOATS) if odd else (_WHOLE[:6], _FLOATS[:6])
    return st.builds(
        lambda k, i, x: {"k": k, "i": i, "x": x},
        st.sampled_from(_KEYS),
        st.sampled_from(whole),
        st.sampled_from(floats),
    )


def values(type: Type, *, odd: bool = True) -> st.SearchStrategy[Any]:
    """Values of a column: few distinct ones, null among them; `odd` adds extremes, NaN and text beyond ASCII."""
    if type.element.is_nested:
        inner = values(type.element, odd=odd) if type.is_array else structs(type, odd=odd)
        return st.none() | (st.lists(inner, max_size=3) if type.is_array else inner)
    plain, strange = _decimals(type.element) if type.element.is_decimal else _VALUES[type.element]
    element = st.sampled_from((*plain, *strange) if odd else plain)
    return st.none() | st.lists(element, max_size=3) if type.is_array else element


def structs(type: Type, *, odd: bool) -> st.SearchStrategy[Any]:
    """Structs of values of their fields."""
    return st.fixed_dictionaries({name: values(kind, odd=odd) for name, kind in type.fields})


def _decimals(kind: Type) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    most = 10**kind.precision - 1
    plain = [Decimal(value).scaleb(-kind.scale) for value in (0, 1, 5, -3, 9)]
    return (*plain, None), tuple(Decimal(value).scaleb(-kind.scale) for value in (most, -most))


@st.composite
def streams(
    draw: st.DrawFn,
    schema: SchemaLike,
    *,
    max_events: int = 12,
    retractions: bool = True,
    ctis: bool = True,
    odd: bool = True,
    unit: DurationLike = 1,
) -> Stream:
    """A stream of any columns, in batches of any size, that keeps its promises; see `physical_streams` and `values`.

    Times are small multiples of `unit`, which is best about as long as the query's shortest window. An example that
    fails is printed as a drawn table, with a bar after every batch.
    """
    columns = Schema.of(schema).payload
    if not len(columns):
        raise SchemaError("a stream needs a payload", given=str(schema), allowed="'name TYPE, name TYPE'")
    payload_strategy = st.fixed_dictionaries({field.name: values(field.type, odd=odd) for field in columns})
    drawn = draw(_events(payload_strategy, columns, max_events=max_events, retractions=retractions, ctis=ctis))
    step = duration(unit)
    for event in drawn:
        for name in ("le", "re", "re_new"):
            event[name] = event[name] if event[name] in (None, INFINITY) else event[name] * step
    sizes = draw(batch_sizes(len(drawn)))
    note(_stream_text(without_ids(drawn), columns, sizes))
    return stream_of(tables(drawn, columns), columns, batches=sizes)


def _stream_text(drawn: Sequence[Event], columns: Schema, sizes: Sequence[int]) -> str:
    names = physical_schema(columns).names
    rows = [[_time(event[name]) if name in ("le", "re", "re_new") else cell(event[name]) for name in names]
            for event in drawn]  # fmt: skip
    lines = aligned([names, *rows])
    for end in reversed([sum(sizes[: i + 1]) for i in range(len(sizes))]):
        lines.insert(end + 1, "-" * len(lines[0]))
    return "\n".join([f"a stream of {columns}:", *lines])


def _time(value: int | None) -> str:
    return "" if value is None else format_ticks(value)


def physical_streams(
    *, max_events: int = 12, odd: bool = True, retractions: bool = True, ctis: bool = True, min_events: int = 0
) -> st.SearchStrategy[list[Event]]:
    """A physical stream that keeps its promises: inserts of all durations, chains of corrections, CTIs.

    Every event has an `id`, shared by an insert and its corrections, for `shuffled`; `tables` drops it.
    """
    sizes = {"max_events": max_events, "min_events": min_events}
    return _events(payloads(odd=odd), SCHEMA, **sizes, retractions=retractions, ctis=ctis)


@st.composite
def _events(
    draw: st.DrawFn,
    payload_strategy: st.SearchStrategy[Event],
    schema: Schema,
    *,
    max_events: int,
    retractions: bool,
    ctis: bool,
    min_events: int = 0,
) -> list[Event]:
    kinds = _KINDS if ctis else _KINDS - 2
    steps = st.tuples(st.integers(0, kinds - 1), st.integers(0, 24), st.integers(0, len(_DURATIONS)), payload_strategy)
    stream = _Stream(schema, retractions=retractions)
    for kind, number, choice, payload in draw(st.lists(steps, min_size=min_events, max_size=max_events)):
        stream.step(kind, number, choice, payload)
    return stream.events


class _Stream:
    """Turns numbers into legal events."""

    def __init__(self, schema: Schema, *, retractions: bool) -> None:
        self.schema = schema
        self.events: list[Event] = []
        self.cti: int | None = None
        self._retractions = retractions
        self._alive: dict[int, tuple[int, int, Event]] = {}

    def step(self, kind: int, number: int, choice: int, payload: Event) -> None:
        """Add one event, if the numbers stand for a legal one."""
        if kind >= _KINDS - 2:
            self._promise(number)
        elif kind >= 5 and self._retractions and self._alive:
            self._retract(number, choice)
        else:
            self._insert(number, choice, payload)

    def _insert(self, number: int, choice: int, payload: Event) -> None:
        le = number if self.cti is None else max(self.cti, number)
        duration = _DURATIONS[min(choice, len(_DURATIONS) - 1)]
        re = INFINITY if duration is None else le + duration
        identifier = len(self.events)
        self._alive[identifier] = (le, re, payload)
        self.events.append({"kind": "insert", "le": le, "re": re, "re_new": None, **payload, "id": identifier})

    def _retract(self, number: int, choice: int) -> None:
        identifier = list(self._alive)[number % len(self._alive)]
        le, re, payload = self._alive[identifier]
        floor = le if self.cti is None else max(le, self.cti)
        if self.cti is not None and (le < self.cti and re < self.cti):
            return  # a promise protects it
        duration = _DURATIONS[min(choice, len(_DURATIONS) - 1)]
        re_new = INFINITY if duration is None else floor + duration - 1 + number % 3
        if re_new == re:
            return
        self.events.append({"kind": "retract", "le": le, "re": re, "re_new": re_new, **payload, "id": identifier})
        if re_new == le:
            del self._alive[identifier]
        else:
            self._alive[identifier] = (le, re_new, payload)

    def _promise(self, number: int) -> None:
        cti = number if self.cti is None else self.cti + 1 + number // 3
        self.cti = cti
        no_payload = dict.fromkeys(self.schema.names)
        self.events.append({"kind": "cti", "le": cti, "re": None, "re_new": None, **no_payload, "id": None})


def without_ids(events: Sequence[Event]) -> list[Event]:
    """The events as a query reads them."""
    return [{name: value for name, value in event.items() if name != "id"} for event in events]


def tables(events: Sequence[Event], schema: Schema = SCHEMA) -> pa.Table:
    """The physical table of drawn events."""
    return pa.Table.from_pylist(without_ids(events), schema=physical_schema(schema))


@st.composite
def shuffled(draw: st.DrawFn, events: Sequence[Event]) -> list[Event]:
    """The same events in another order that keeps the promises: rows between two CTIs change places, but corrections of
    an event stay after it and in their order.
    """
    result: list[Event] = []
    part: list[Event] = []
    for event in [*events, None]:
        if event is not None and event["kind"] != "cti":
            part.append(event)
            continue
        result += _in_order(draw(st.permutations(part)), part)
        part = []
        if event is not None:
            result.append(event)
    return result


def _in_order(permuted: Sequence[Event], original: Sequence[Event]) -> list[Event]:
    """`permuted`, with the events of each id in their original order among themselves."""
    waiting: dict[Any, list[Event]] = {}
    for event in original:
        waiting.setdefault(event["id"], []).append(event)
    return [waiting[event["id"]].pop(0) for event in permuted]


@st.composite
def batch_sizes(draw: st.DrawFn, rows: int) -> tuple[int, ...]:
    """How many rows each batch has; they sum to `rows`. Often one row a batch, or all in one."""
    if rows == 0:
        return ()
    if draw(st.booleans()):
        return (1,) * rows
    cuts = sorted(draw(st.sets(st.integers(1, rows - 1)))) if rows > 1 else []
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, rows], strict=True))


def buckets() -> st.SearchStrategy[int]:
    """How many buckets a stage has."""
    return st.integers(1, 5)
