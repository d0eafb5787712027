"""Random input for modules: the items of a window, and physical streams of the module's fields.

Values have the types of the module's input fields, are small and few, so that a failing example shrinks to something
readable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headrace.api.grouped import Windowed
from headrace.api.inputs import events
from headrace.api.stream import Stream
from headrace.api.windows import count_by_end, count_by_start, hopping, session, snapshot, tumbling
from headrace.events import events_table, physical_schema
from headrace.modules.base import Aggregate, Module, Operator, Window
from headrace.modules.items import items_of
from headrace.operators.reference import history_of
from headrace.plan.windows import WindowKind
from headrace.schema import Field, Schema, Type
from headrace.testing.strategies import Event as Physical
from headrace.testing.strategies import batch_sizes, buckets, physical_streams
from headrace.time import INFINITY, format_ticks

__all__ = [
    "Change",
    "Drawn",
    "ModuleQuery",
    "Parts",
    "WindowContent",
    "bags",
    "changed_at",
    "changes",
    "drawn_table",
    "parts",
    "queries",
    "same_answer",
    "sample_of",
    "without",
]

KEY = "group_key"
_DAY = datetime(2024, 5, 1, tzinfo=UTC)
_LAST = 300  # later than any drawn time; replaces the end of events that never end in `physical_streams`
_PLAIN_FLOATS = (0.0, 1.0, -2.5, 0.1, 0.2, 0.3, 3.0, 10.0)
_ODD_FLOATS = (math.nan, math.inf, -math.inf, 1e300, -1e300, 5e-324)
_TEXTS = ("a", "b", "ab", "", "é", "A")


@dataclass(frozen=True)
class Drawn:
    """An event of a window: its lifetime and the values of the module's fields."""

    le: int
    re: int
    values: tuple[Any, ...]


@dataclass(frozen=True)
class WindowContent:
    """A window and its events."""

    module: Module
    window: Window
    events: tuple[Drawn, ...]

    def items(self, events: Sequence[Drawn] | None = None) -> list[Any]:
        """The items as the engine passes them to the module: in order of start, end and value."""
        ordered = sorted(self.events if events is None else events, key=self._order)
        timed = self.module.time_sensitive
        rows = [(e.le, e.re, *e.values) if timed else e.values for e in ordered]
        return items_of(self.module.fields.names, rows, timed=timed)

    def _order(self, event: Drawn) -> tuple[Any, ...]:
        times = (event.le, event.re) if self.module.time_sensitive else (event.le,)
        return (*times, *map(_rank, event.values))

    def clipped(self, *, left: bool = False, right: bool = False) -> WindowContent:
        """The content with lifetimes clipped to the window (rule 6.3)."""
        le = self.window.le if left else -INFINITY
        re = self.window.re if right else INFINITY
        cut = tuple(Drawn(max(e.le, le), min(e.re, re), e.values) for e in self.events)
        return WindowContent(self.module, self.window, cut)

    def with_events(self, events: Sequence[Drawn]) -> WindowContent:
        """The same window with other events."""
        return WindowContent(self.module, self.window, tuple(events))

    def copied(self) -> WindowContent:
        """The same events as new objects."""
        return self.with_events(
            [Drawn(int(str(e.le)), int(str(e.re)), tuple(map(_copied, e.values))) for e in self.events]
        )

    def __str__(self) -> str:
        window = f"window {format_ticks(self.window.le)} .. {format_ticks(self.window.re)}"
        return f"{window}\n{drawn_table(_records(self.events, self.module.fields.names))}"


def _rank(value: Any) -> tuple[Any, ...]:
    """A sort key: nulls last, and NaN after all numbers."""
    if isinstance(value, list):
        return (False, False, [_rank(v) for v in value])
    odd = isinstance(value, float) and math.isnan(value)
    return (value is None, odd, 0 if value is None or odd else value)


def _copied(value: Any) -> Any:
    if isinstance(value, str):
        return "".join(list(value))
    if isinstance(value, list):
        return [_copied(v) for v in value]
    return float(repr(value)) if isinstance(value, float) else value


# --- values ---------------------------------------------------------------------------------------------------------


def values(kind: Type, *, odd: bool = False, nulls: bool = False) -> st.SearchStrategy[Any]:
    """Values of a type; `odd` adds NaN, infinities and extremes, `nulls` adds null."""
    if kind.is_array:
        drawn: st.SearchStrategy[Any] = st.lists(values(kind.element, odd=odd, nulls=nulls), max_size=3)
    elif kind.is_struct:
        drawn = st.fixed_dictionaries({name: values(part, odd=odd, nulls=nulls) for name, part in kind.fields})
    elif kind.is_integer:
        most = 2 ** (kind.arrow.bit_width - 1) - 1
        drawn = st.integers(-20, 20) | (st.sampled_from((most, -most - 1)) if odd else st.nothing())
    elif kind.is_floating:
        plain = st.sampled_from(_PLAIN_FLOATS) | st.integers(-40, 40).map(lambda n: n / 4)
        drawn = plain | (st.sampled_from(_ODD_FLOATS) if odd else st.nothing())
    elif kind.is_text:
        drawn = st.sampled_from(_TEXTS)
    elif kind is Type.BOOLEAN:
        drawn = st.booleans()
    elif kind.is_decimal:
        drawn = st.integers(0, 9).map(lambda n: Decimal(n).scaleb(-kind.scale))
    elif kind is Type.TIME or kind is Type.INTERVAL:
        drawn = st.integers(0, 20).map(lambda n: n * 3_600_000_000)
    elif kind is Type.DATE:
        drawn = st.integers(0, 20).map(lambda n: _DAY.date() + timedelta(days=n))
    else:
        drawn = st.integers(0, 20).map(lambda n: _DAY + timedelta(hours=n))
    held = drawn.map(lambda value: pa.scalar(value, kind.arrow).as_py())  # as a column of that type holds it
    return held | st.none() if nulls else held


def _payloads(fields: Schema, *, odd: bool, nulls: bool) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*(values(field.type, odd=odd, nulls=nulls) for field in fields))


# --- windows --------------------------------------------------------------------------------------------------------


def sample_of(data: Any, module: Module) -> tuple[Drawn, ...]:
    """Events of a module's fields, from any data that `hr.events` accepts."""
    rows = events_table(data, module.fields).to_pylist()
    return tuple(Drawn(le, re, tuple(r[name] for name in module.fields.names)) for le, re, r in history_of(rows))


@st.composite
def bags(
    draw: st.DrawFn,
    module: Module,
    sample: tuple[Drawn, ...] = (),
    *,
    odd: bool = False,
    nulls: bool = False,
    most: int = 14,
) -> WindowContent:
    """A window and at least one event in it; lifetimes may stick out on both sides.

    Where there is a sample, most windows hold the greater part of it.
    """
    chosen = [event for event in sample if draw(st.integers(0, 9))]
    le, use_sample = draw(st.integers(0, 5)), bool(draw(st.integers(0, 3)))
    if chosen and use_sample:
        window = Window(min(e.le for e in chosen) - le, max(e.le for e in chosen) + 1 + draw(st.integers(0, 5)))
        return WindowContent(module, window, tuple(chosen))
    window = Window(le, le + draw(st.integers(1, 20)))
    # Few different payloads in one window, often one after the other: then a pattern has a chance to show.
    payloads = draw(st.lists(_payloads(module.fields, odd=odd, nulls=nulls), min_size=1, max_size=4))
    size, in_a_row = draw(st.integers(1, most)), draw(st.booleans())
    starts, found = st.integers(window.le - 4, window.re - 1), []
    for place in range(min(size, window.re - window.le) if in_a_row else size):
        start = window.le + place if in_a_row else draw(starts)
        end = max(start, window.le) + draw(st.integers(1, 9))
        found.append(Drawn(start, end, draw(st.sampled_from(payloads))))
    return WindowContent(module, window, tuple(found))


@dataclass(frozen=True)
class Parts:
    """A window whose items come in parts, in some order."""

    bag: WindowContent
    parts: tuple[tuple[Drawn, ...], ...]


@st.composite
def parts(draw: st.DrawFn, module: Module, sample: tuple[Drawn, ...] = ()) -> Parts:
    """The items of a window in up to four parts and any order."""
    bag = draw(bags(module, sample))
    mixed = tuple(draw(st.permutations(bag.events)))
    cuts = sorted(draw(st.lists(st.integers(0, len(mixed)), min_size=1, max_size=3)))
    return Parts(bag, tuple(mixed[a:b] for a, b in zip([0, *cuts], [*cuts, len(mixed)], strict=True)))


@dataclass(frozen=True)
class Change:
    """A window before and after one change of the input, and the earliest instant that it changes."""

    bag: WindowContent
    events: tuple[Drawn, ...]
    sync: int


@st.composite
def changes(draw: st.DrawFn, module: Module, sample: tuple[Drawn, ...] = ()) -> Change:
    """An added event, or an event with another end, in the window."""
    bag = draw(bags(module, sample))
    at = draw(st.integers(0, len(bag.events) - 1))
    others, last = (*bag.events[:at], *bag.events[at + 1 :]), bag.events[at]
    kind: int = draw(st.integers(0, 3))
    if others and kind:
        return Change(bag.with_events(others), bag.events, last.le)
    end = max(last.le, bag.window.le) + draw(st.integers(1, 9))
    return Change(bag, (*others, Drawn(last.le, end, last.values)), min(end, last.re))


# --- queries --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModuleQuery:
    """A module in a query: the windows, the policies, and a physical stream that arrives in batches."""

    module: Module
    schema: Schema
    events: tuple[Physical, ...]
    batches: tuple[int, ...]
    buckets: int
    window: WindowKind
    keyed: bool
    policy: tuple[tuple[str, Any], ...]

    def corrected(self) -> Stream:
        """The query over the stream as it arrives."""
        return self._query(self.events, self.batches)

    def at_once(self) -> Stream:
        """The query over the history of the stream, in one batch."""
        left = [
            {"kind": "insert", "le": le, "re": re, "re_new": None, **payload}
            for le, re, payload in history_of(self.events)
        ]
        return self._query(left, (len(left),) if left else ())

    def _query(self, rows: Sequence[Physical], batches: tuple[int, ...]) -> Stream:
        table = pa.Table.from_pylist(list(rows), schema=physical_schema(self.schema))
        stream = events(table, self.schema, batches=batches)
        windowed = (stream.group_by(KEY) if self.keyed else stream.group_by()).window(self.window, **dict(self.policy))
        return _apply_module(windowed, self.module)

    def __str__(self) -> str:
        keys = f".group_by({KEY!r})" if self.keyed else ""
        policy = "".join(f", {name}={value!r}" for name, value in self.policy)
        call = "aggregate(answer=module)" if isinstance(self.module, Aggregate) else "operate(module)"
        query = f"stream{keys}.window(hr.{_window_text(self.window)}{policy}).{call}"
        return f"{query}\nbatches={list(self.batches)}, buckets={self.buckets}\n{drawn_table(self.events)}"


def _apply_module(windowed: Windowed, module: Module) -> Stream:
    if isinstance(module, Aggregate):
        return windowed.aggregate(answer=module)
    assert isinstance(module, Operator)
    return windowed.operate(module)


def _window_text(window: WindowKind) -> str:
    """A window as it is written in code."""
    return f"{window}".replace(" ticks", "").replace(" tick", "") + ("()" if "(" not in str(window) else "")


_WINDOWS: tuple[WindowKind, ...] = (
    tumbling(10), tumbling(7, origin=3), hopping(12, every=5), hopping(5, every=9), snapshot(), count_by_start(2),
    count_by_end(2), session(4),
)  # fmt: skip


@st.composite
def queries(
    draw: st.DrawFn, module: Module, time_limit: float, sample: tuple[Drawn, ...] = (), *, most: int = 10
) -> ModuleQuery:
    """A physical stream with corrections, in random batches and buckets, through a random window and policy."""
    schema = Schema((Field(KEY, Type.STRING), *module.fields.fields))
    names = module.fields.names
    windows, use_sample = _WINDOWS, bool(draw(st.integers(0, 3)))
    if sample and use_sample:
        rows = draw(_miscorrected(sample, names))
        first, last = min(e.le for e in sample), max(e.le for e in sample)
        size = last - first + 1
        windows = (tumbling(size, first), hopping(2 * size, size, first), session(size), count_by_start(len(sample)))
    else:
        stream = draw(physical_streams(max_events=most, odd=False))
        payloads: dict[Any, dict[str, Any]] = {None: dict.fromkeys(schema.names)}
        for event in stream:
            if event["id"] not in payloads:
                drawn = draw(_payloads(module.fields, odd=False, nulls=False))
                payloads[event["id"]] = {KEY: event["k"], **dict(zip(names, drawn, strict=True))}
        rows = [
            {n: _bounded(event[n]) for n in ("kind", "le", "re", "re_new")} | payloads[event["id"]] for event in stream
        ]
    policy: dict[str, Any] = {"time_limit": time_limit}
    if module.time_sensitive:
        policy["clipping"] = draw(st.sampled_from(["none", "right", "full", "left"]))
        if isinstance(module, Operator):
            policy["timestamping"] = draw(st.sampled_from(["unchanged", "clip", "align"]))
    return ModuleQuery(
        module, schema, tuple(rows), draw(batch_sizes(len(rows))), draw(buckets()), draw(st.sampled_from(windows)),
        draw(st.booleans()), tuple(policy.items()),
    )  # fmt: skip


@st.composite
def _miscorrected(draw: st.DrawFn, sample: tuple[Drawn, ...], names: Sequence[str]) -> list[Physical]:
    """A sample out of order, with some events inserted twice or with a wrong end, and corrected later."""
    rows: list[Physical] = []
    later: list[Physical] = []
    for event in draw(st.permutations(sample)):
        payload = {KEY: "a", **dict(zip(names, event.values, strict=True))}
        right = {"kind": "insert", "le": event.le, "re": event.re, "re_new": None, **payload}
        slip = draw(st.sampled_from(["none", "none", "twice", "end"]))
        rows.append({**right, "re": event.re + 3} if slip == "end" else right)
        if slip == "end":
            later.append({**rows[-1], "kind": "retract", "re_new": event.re})
        elif slip == "twice":
            rows.append(right)
            later.append({**right, "kind": "retract", "re_new": event.le})
    return [*rows, *later]


def _bounded(value: Any) -> Any:
    # The number of windows of an endless event depends on the progress of time (rule 5.3), not on the module.
    return _LAST if value == INFINITY else value


# --- answers --------------------------------------------------------------------------------------------------------


def same_answer(a: Any, b: Any) -> bool:
    """Equality by value, where NaN equals NaN."""
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same_answer, a, b))
    return bool(a == b)


def changed_at(before: Sequence[Any], after: Sequence[Any]) -> Iterator[int]:
    """The earliest instant of every change from one bag of outputs to another; the same start pairs up (rule 2.3)."""
    lost, gained = without(before, after), without(after, before)
    for le, re, *payload in lost:
        pair = next((other for other in gained if other[0] == le and same_answer(list(other[2:]), payload)), None)
        yield le if pair is None else min(re, pair[1])
    for le, _, *payload in gained:
        if not any(other[0] == le and same_answer(list(other[2:]), payload) for other in lost):
            yield le


def without(outputs: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The outputs of one bag that another does not have."""
    unmatched = list(others)
    found = []
    for output in outputs:
        at = next((i for i, other in enumerate(unmatched) if same_answer(output, other)), None)
        if at is None:
            found.append(output)
        else:
            del unmatched[at]
    return found


# --- text -----------------------------------------------------------------------------------------------------------


def _records(events: Sequence[Drawn], names: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"le": e.le, "re": e.re, **dict(zip(names, e.values, strict=True))} for e in sorted(events, key=lambda e: e.le)
    ]


def drawn_table(records: Sequence[dict[str, Any]]) -> str:
    """Events as a drawn table, ready to paste into `hr.events`."""
    if not records:
        return "(no events)"
    cells = [list(records[0]), *([_cell(value) for value in record.values()] for record in records)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(" | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f'"{value}"' if not value or value != value.strip() else str(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)
