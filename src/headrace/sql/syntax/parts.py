"""The base of all parts of a text: each has a place."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["NOWHERE", "Part", "Span"]

Span = tuple[int, int]
NOWHERE: Span = (0, 0)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a text."""

    at: Span = field(default=NOWHERE, compare=False, repr=False)

    def parts(self) -> list[Part]:
        """The parts inside this one, in the order of their fields."""
        return [part for f in fields(self) for part in _parts(getattr(self, f.name))]


def _parts(value: Any) -> list[Part]:
    if isinstance(value, Part):
        return [value]
    return [part for item in value for part in _parts(item)] if isinstance(value, tuple) else []
