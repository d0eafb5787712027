"""Payloads of generated streams: for every type a few values, how often each occurs, and the odd ones.

Values are few, so that keys match, groups have several events and equal payloads occur. The seed decides which value is
frequent. `pools` adds values around the literals that a query compares with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from headrace.schema import Schema, Type

__all__ = ["SCHEMA", "Payloads", "plain_value", "plain_values"]

#: The default payload of streams: few keys, whole numbers, floats.
SCHEMA = Schema.of("k STRING, i LONG, x DOUBLE")

_DAY = datetime(2024, 5, 1, tzinfo=UTC)
_WORDS = ("a", "b", "c", "ab", "A", "B", "d", "e", "f", "g", "h", "i")
_LETTERS = ("a", "b", "c", "A", "B", "d", "e", "f", "g", "h", "i", "j")
_WHOLE = (0, 1, 2, -1, 7, 3, 4, 5, -2, 10, 12, 100)
# Both zeros are among the first few: they must compare as equal.
_FLOATS = (0.0, 1.0, -2.5, -0.0, 0.1, 3.0, 0.5, 2.0, -1.0, 0.25, 0.3, 10.0, 100.0)
_ODD_DOUBLES = (math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e300, -1e300, 1e16, 2.0**53)
_ODD_FLOATS = (math.nan, math.inf, -math.inf, -0.0, 2.0**-149, 3e38, -3e38, 1e16, 2.0**24)
_ODD_TEXTS = ("", " ", "a ", "z" * 300, "null", "0", "é")
# accents composed and not, a lone combining mark, emoji with and without joiners, right to left, quotes, bars, astral
_UNICODE = (
    "é", "e\u0301", "\u0301", "ß", "Straße", "İ", "🙂", "👩‍👩‍👧", "\U0001f1e9\U0001f1ea", "שלום", "مرحبا",
    '"quoted"', "it's", "a|b", "\\", "日本語", "\ufeff", "\u200b", "ﬁ", "𝒳",
)  # fmt: skip
_UNICODE_LETTERS = ("é", "ß", "🙂", "ש", "م", '"', "'", "|", "\\", "日", "İ", "\u0301")
_ODD_DATES = (
    datetime(1970, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1900, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
)  # fmt: skip
_FEW, _MANY = 4, 12
#: Digits of the greatest decimals: sums of many of them still have 38.
_DIGITS = 28


@dataclass(frozen=True)
class _Palette:
    """The values of a column, and how often each is drawn."""

    values: tuple[Any, ...]
    weights: tuple[float, ...]

    def draw(self, random: Random) -> Any:
        return random.choices(self.values, self.weights)[0]


class Payloads:
    """Draws payloads of a schema; `distribution` is a value of the dimension `payload`."""

    def __init__(
        self, random: Random, schema: Schema, distribution: str, pools: Mapping[str, Sequence[Any]] | None = None
    ) -> None:
        self._random = random
        pool_values = pools or {}
        self._palettes = {
            field.name: _PALETTES[distribution](random, field.type, _held(pool_values.get(field.name, ()), field.type))
            for field in schema
        }

    def draw(self) -> dict[str, Any]:
        """One payload."""
        return {name: palette.draw(self._random) for name, palette in self._palettes.items()}


def plain_value(kind: Type) -> Any:
    """The plainest value of a type, which shrinking tries first."""
    return plain_values(kind)[0]


def plain_values(kind: Type) -> tuple[Any, ...]:
    """The few plainest values of a type, the plainest first."""
    few = _plain(kind.element)[:_FEW]
    return ([], *([value] for value in few)) if kind.is_array else tuple(few)


def _held(values: Sequence[Any], kind: Type) -> list[Any]:
    """The values as a column of the type holds them, without those that it cannot hold."""
    found = []
    for value in values:
        try:
            found.append(pa.scalar(value, kind.arrow).as_py())
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, ValueError):
            continue
    return [value.astimezone(UTC) if isinstance(value, datetime) else value for value in found]


def _parts(kind: Type, scalars: Callable[[Type], list[Any]]) -> list[Any]:
    """Lists and structs of such values of their parts."""
    if kind.is_array:
        return [[], *([value] for value in scalars(kind.element))]
    some = {name: scalars(part) for name, part in kind.fields}
    return [{name: values[k % len(values)] for name, values in some.items()} for k in range(_MANY)]


def _plain(kind: Type) -> list[Any]:
    if kind.is_nested:
        return _parts(kind, _plain)
    if kind.is_integer:
        return list(_WHOLE)
    if kind.is_floating:
        return _held(_FLOATS, kind)
    if kind.is_text:
        return list(_LETTERS if kind is Type.CHAR else _WORDS)
    if kind is Type.BOOLEAN:
        return [False, True]
    if kind.is_decimal:
        return [Decimal(value).scaleb(-kind.scale) for value in _WHOLE] if kind.precision > 2 else [Decimal(0)]
    if kind is Type.DATE:
        return [_DAY.date() + timedelta(days=days) for days in range(_MANY)]
    if kind is Type.TIME:
        return [time(hour, 30 * (hour % 2)) for hour in range(24)]
    if kind is Type.INTERVAL:
        return [timedelta(seconds=seconds) for seconds in _WHOLE]
    return [_DAY + timedelta(hours=hours) for hours in range(_MANY)]


def _extreme(kind: Type) -> list[Any]:
    if kind.is_nested:
        return _parts(kind, _extreme)
    if kind.is_integer:
        most = 2 ** (kind.arrow.bit_width - 1) - 1
        return [most, -most - 1, most - 1, -most, *([2**53 + 1, -(2**53) - 1] if kind is Type.LONG else [])]
    if kind.is_floating:
        return _held(_ODD_FLOATS if kind is Type.FLOAT else _ODD_DOUBLES, kind)
    if kind.is_text:
        return ["", " ", "0"] if kind is Type.CHAR else list(_ODD_TEXTS)
    if kind.is_decimal:
        most = (10 ** min(kind.precision, _DIGITS)) - 1
        return [Decimal(value).scaleb(-kind.scale) for value in (most, -most, most - 1, 0)]
    if kind is Type.DATE:
        return [one.date() for one in _ODD_DATES]
    if kind is Type.TIME:
        return [time(), time(23, 59, 59, 999_999), time(0, 0, 0, 1)]
    if kind is Type.INTERVAL:
        return [timedelta(microseconds=1), timedelta(days=-400), timedelta(days=30_000, microseconds=1), timedelta()]
    return _plain(kind) if kind is Type.BOOLEAN else list(_ODD_DATES)


def _odd_text(kind: Type) -> list[Any]:
    if kind.is_text:
        return list(_UNICODE_LETTERS if kind is Type.CHAR else _UNICODE)
    return _plain(kind)[:_FEW]


def _sample(random: Random, kind: Type, scalars: Callable[[Type], list[Any]], count: int) -> list[Any]:
    """Up to `count` values of a type; lists consist of such values of their element type."""
    if not kind.is_array:
        known = scalars(kind)
        return random.sample(known, min(count, len(known)))
    elements = _sample(random, kind.element, scalars, count)
    return [[], *([random.choice(elements) for _ in range(random.randint(1, 3))] for _ in range(count - 1))]


def _even(values: Sequence[Any], pool: Sequence[Any], nulls: float = 0.0) -> _Palette:
    """A palette of equally frequent values, a third from the pool if there is one, and a share of nulls."""
    own = (1 - nulls) * (2 / 3 if pool else 1)
    rest = 1 - nulls - own
    weights = [*(own / len(values) for _ in values), *(rest / len(pool) for _ in pool), nulls]
    return _Palette((*values, *pool, None), tuple(weights))


def _uniform(random: Random, kind: Type, pool: Sequence[Any]) -> _Palette:
    # The plainest values, so that streams of different seeds match in joins.
    few = _sample(random, kind, _plain, _FEW) if kind.is_array else _plain(kind)[:_FEW]
    return _even(few, pool)


def _zipf(random: Random, kind: Type, pool: Sequence[Any]) -> _Palette:
    values = [*_sample(random, kind, _plain, _MANY), None, *pool]
    random.shuffle(values)
    return _Palette(tuple(values), tuple(1 / rank**1.5 for rank in range(1, len(values) + 1)))


def _nulls(random: Random, kind: Type, pool: Sequence[Any]) -> _Palette:
    few = _sample(random, kind, _plain, _FEW) if kind.is_array else _plain(kind)[:_FEW]
    if kind.is_array:
        few += [[None], [few[-1][0], None]]
    return _even(few, pool, nulls=0.5)


def _extremes(random: Random, kind: Type, pool: Sequence[Any]) -> _Palette:
    values = [*_sample(random, kind, _extreme, _FEW), *_sample(random, kind, _extreme, _MANY)]
    return _even([*values, *(_plain(kind)[:2] if not kind.is_array else [])], pool, nulls=0.2)


def _unicode(random: Random, kind: Type, pool: Sequence[Any]) -> _Palette:
    return _even(_sample(random, kind, _odd_text, 2 * _FEW), pool)


_PALETTES: Mapping[str, Callable[[Random, Type, Sequence[Any]], _Palette]] = {
    "uniform": _uniform,
    "zipf": _zipf,
    "nulls": _nulls,
    "extremes": _extremes,
    "unicode": _unicode,
}
