"""Small modules, functions and tables that generated queries use.

The modules output a checksum of everything they see, so that any wrong input gives a wrong answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from headrace.expr import udf
from headrace.modules import Aggregate, IncrementalAggregate, IncrementalOperator, Operator
from headrace.modules.base import Event, Window

__all__ = [
    "NUMBERS",
    "TEXTS",
    "Each",
    "Grown",
    "InOrder",
    "Largest",
    "Later",
    "Merged",
    "Onwards",
    "PayloadChecksum",
    "Seen",
    "SeenInTime",
    "TallyEach",
    "capped",
    "foremost",
    "halved",
    "known",
    "reciprocal",
    "sequence",
    "size",
]  # fmt: skip

_FIELDS = "i LONG, x DOUBLE"
_OUTPUTS = "label STRING, n LONG, value DOUBLE"


def _checksum(seen: Any) -> float:
    return float(crc32(repr(seen).encode()))


# --- aggregates -------------------------------------------------------------------------------------------------------


class Seen(Aggregate):
    """A checksum of the payloads, in the order of the module's input."""

    input = _FIELDS
    output = "DOUBLE"

    def compute(self, rows: list[Any]) -> float:
        return _checksum([tuple(row) for row in rows])


class SeenInTime(Aggregate):
    """A checksum of the events with their lifetimes, and of the window."""

    input = _FIELDS
    output = "DOUBLE"
    time_sensitive = True

    def compute(self, events: list[Any], window: Window) -> float:
        return _checksum((tuple(window), [tuple(event) for event in events]))


class _Tallied:
    """A count for each payload; payloads can be removed."""

    def initial(self) -> Counter[str]:
        return Counter()

    def add(self, state: Counter[str], rows: list[Any]) -> None:
        state.update(repr(tuple(row)) for row in rows)

    def remove(self, state: Counter[str], rows: list[Any]) -> None:
        state.subtract(repr(tuple(row)) for row in rows)


class PayloadChecksum(_Tallied, IncrementalAggregate):
    """A checksum of the count of each payload; payloads can be removed."""

    input = _FIELDS
    output = "DOUBLE"

    def compute(self, state: Counter[str]) -> float:
        # Negative counts stay: they show payloads that were removed but never added.
        return _checksum(sorted((text, number) for text, number in state.items() if number))


class Grown(PayloadChecksum):
    """The same, without removal."""

    remove = IncrementalAggregate.remove  # type: ignore[assignment]


class Merged(PayloadChecksum):
    """The same, and two states can be merged."""

    def merge(self, state: Counter[str], other: Counter[str]) -> Counter[str]:
        for text, number in other.items():
            state[text] += number
        return state


class InOrder(IncrementalAggregate):
    """A checksum that depends on the order of events, and on their lifetimes."""

    input = _FIELDS
    output = "DOUBLE"
    time_sensitive = True
    order_sensitive = True

    def initial(self) -> str:
        return ""

    def add(self, state: str, events: list[Any]) -> str:
        for event in events:
            state = str(_checksum((state, tuple(event))))
        return state

    def compute(self, state: str, window: Window) -> float:
        return _checksum((state, tuple(window)))


# --- operators --------------------------------------------------------------------------------------------------------


class Each(Operator):
    """Two outputs for each payload: itself, and the number of payloads."""

    input = _FIELDS
    output = _OUTPUTS

    def compute(self, rows: list[Any]) -> Iterator[Any]:
        for row in rows:
            yield "a", row.i, row.x
            yield {"value": None, "n": len(rows), "label": "b"}


class Largest(Operator):
    """The greatest whole number, if there is one: some windows have no output."""

    input = _FIELDS
    output = _OUTPUTS

    def compute(self, rows: list[Any]) -> list[Any]:
        numbers = [row.i for row in rows if row.i is not None]
        return [("c", max(numbers), 0.5)] if numbers else []


class TallyEach(_Tallied, IncrementalOperator):
    """Each payload once, with its count; payloads can be removed."""

    input = _FIELDS
    output = _OUTPUTS

    def compute(self, state: Counter[str]) -> list[Any]:
        return [("a", number, _checksum(text)) for text, number in sorted(state.items()) if number]


class Later(Operator):
    """Each event from its window's start or its own, whichever is later, for three ticks; and one for the window."""

    input = _FIELDS
    output = _OUTPUTS
    time_sensitive = True

    def compute(self, events: list[Any], window: Window) -> Iterator[Event]:
        for event in events:
            start = max(window.le, event.le)
            yield self.event(start, start + 3, label="a", n=event.i, value=event.x)
        yield self.event(window.le, window.re, "b", len(events), _checksum([tuple(event) for event in events]))


class Onwards(Operator):
    """Each event that starts in the window, for two ticks: depends on nothing later, as `time_bound` requires."""

    input = _FIELDS
    output = _OUTPUTS
    time_sensitive = True

    def compute(self, events: list[Any], window: Window) -> list[Event]:
        return [self.event(e.le, e.le + 2, "a", e.i, e.x) for e in events if e.le >= window.le]


# --- functions --------------------------------------------------------------------------------------------------------


@udf
def halved(x: float) -> float:
    """Half of a number: a plain function, which never sees a null."""
    return x / 2


@udf(takes="DOUBLE", returns="DOUBLE", nulls="pass")
def known(x: float | None) -> float | None:
    """A function that receives nulls and returns some."""
    return 0.25 if x is None else None if x == 1.0 else x


@udf(takes="DOUBLE", returns="DOUBLE", vectorised=True)
def capped(x: pa.Array) -> pa.Array:
    """A number, but two at most: a vectorised function."""
    return pc.if_else(pc.greater(x, 2.0), 2.0, x)


@udf(on_error="null")
def reciprocal(x: float) -> float:
    """The reciprocal: a function that fails for zero."""
    return 1 / x


@udf(takes="ARRAY<DOUBLE>", returns="LONG")
def size(values: list[float]) -> int:
    """How many values a list has."""
    return len(values)


@udf(takes="ARRAY<STRING>, STRING", returns="STRING", nulls="pass")
def foremost(values: list[str], otherwise: str | None) -> str | None:
    """The first value of a list."""
    return values[0] if values else otherwise


@udf(takes="ARRAY<DOUBLE>", returns="DOUBLE")
def sequence(values: list[float]) -> float:
    """A checksum of a list, which depends on its order."""
    return _checksum([value + 0.0 for value in values])  # both zeros are one value


# --- tables -----------------------------------------------------------------------------------------------------------

#: Rows by text: a key with several rows, one with none, a null that equals nothing.
TEXTS = pa.table(
    {"k": ["a", "b", "b", None], "name": ["anna", "bert", None, "none"], "number": pa.array([1, 2, 3, 4], pa.int64())}
)
#: Rows by whole number.
NUMBERS = pa.table({"i": pa.array([0, 1, 1, 7, None], pa.int64()), "factor": [0.5, 1.0, None, 3.0, 4.0]})
