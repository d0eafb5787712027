"""How long output and input is kept: by age, by size, or both.

`"30 days"` keeps what is younger, `"10 GB"` keeps the newest of that size, `"30 days, 10 GB"` keeps what both allow. It
is a bound on what may be removed, never a promise to remove at once: things are removed in whole batches, and the
newest one always stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import Any

from headrace.errors import PlanError, TimeError
from headrace.time import duration

__all__ = ["Keep", "KeepLike", "shown_bytes"]

KeepLike = str | timedelta
_ALLOWED = "an age such as '30 days', a size such as '10 GB', or both: '30 days, 10 GB'"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b)", re.IGNORECASE)
_PREFIXES = "kmgt"


@dataclass(frozen=True)
class Keep:
    """What is kept: things of at most so many seconds, and the newest of at most so many bytes; None: no bound."""

    seconds: float | None = None
    bytes: int | None = None

    @classmethod
    def of(cls, value: KeepLike) -> Keep:
        """From a text or a timedelta.

        >>> Keep.of("30 days, 10 GB")
        Keep(seconds=2592000.0, bytes=10000000000)
        """
        if isinstance(value, timedelta):
            return cls(seconds=_positive(value.total_seconds(), value))
        if not isinstance(value, str):
            raise _refused(value)
        parts: dict[str, Any] = {}
        for text in value.split(","):
            size = _SIZE.fullmatch(text.strip())
            name = "seconds" if size is None else "bytes"
            if name in parts:
                raise _refused(value)
            parts[name] = _seconds(text, value) if size is None else _bytes(size[1], size[2], value)
        return cls(**parts)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Keep:
        return cls(data["seconds"], data["bytes"])

    def to_json(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "bytes": self.bytes}

    def __str__(self) -> str:
        age = [] if self.seconds is None else [f"{self.seconds:g} s"]
        return ", ".join([*age, *([] if self.bytes is None else [shown_bytes(self.bytes)])])

    def removable(self, things: Sequence[tuple[float, int]], now: float) -> int:
        """How many of the first things may be removed; of each the time in seconds and the bytes, oldest first.

        The last one always stays. A clock may have been ahead for a while: no thing is younger than those after it.

        >>> Keep(seconds=10).removable([(1, 5), (2, 5), (15, 5), (16, 5)], now=20)
        2
        >>> Keep(bytes=11).removable([(1, 5), (2, 5), (15, 5), (16, 5)], now=20)
        2
        >>> Keep(seconds=10).removable([(900, 5), (2, 5), (15, 5), (16, 5)], now=20)
        2
        """
        count, left = 0, sum(size for _, size in things)
        times = [*accumulate((written for written, _ in reversed(things)), min)][::-1]
        for written, (_, size) in zip(times[:-1], things, strict=False):
            old = self.seconds is not None and written < now - self.seconds
            large = self.bytes is not None and left > self.bytes
            if not old and not large:
                break
            count, left = count + 1, left - size
        return count


def shown_bytes(count: int) -> str:
    """A number of bytes for users, with three digits.

    >>> shown_bytes(999), shown_bytes(10_000_000_000)
    ('999 B', '10 GB')
    """
    size, unit = float(count), 0
    while size >= 1000 and unit < len(_PREFIXES):
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {'kMGT'[unit - 1] if unit else ''}B"


def _bytes(number: str, unit: str, value: object) -> int:
    prefix = unit.lower().rstrip("b").rstrip("i")
    base = 1024 if "i" in unit.lower() else 1000
    return int(_positive(float(number) * base ** (_PREFIXES.index(prefix) + 1 if prefix else 0), value))


def _seconds(text: str, value: object) -> float:
    try:
        return _positive(duration(text) / 1_000_000, value)
    except TimeError as error:
        raise _refused(value) from error


def _positive(number: float, value: object) -> float:
    if number <= 0:
        raise _refused(value)
    return number


def _refused(value: object) -> PlanError:
    return PlanError("this does not say how long something is kept", given=value, allowed=_ALLOWED, instead="'30 days'")
