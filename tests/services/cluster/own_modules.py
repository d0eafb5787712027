"""A user's module, which workers do not have: a query names it, so it travels to the workers."""

from __future__ import annotations

from collections.abc import Sequence

from tests.services.cluster.own_helpers import spread

import headrace as hr


class Spread(hr.Aggregate):
    """The difference of the largest and the smallest value."""

    input = "value LONG"
    output = "LONG"

    def compute(self, values: Sequence[int]) -> int:
        return spread(values)
