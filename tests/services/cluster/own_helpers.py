"""What a user's modules use in turn."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["spread"]


def spread(values: Sequence[int]) -> int:
    return max(values) - min(values)
