"""How late rows are: a histogram, for each source, of the time by which late rows are behind the CTI that they break.

A histogram is a list: the number of rows in each class of `BOUNDS`, then of those beyond the last bound, then the sum
of all these times, in ticks. Rows on time are not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.plan.nodes import Source

__all__ = ["BOUNDS", "NONE_LATE", "histogram", "lateness_so_far", "together"]

_SECOND = 1_000_000
#: Upper bounds of the classes, in ticks: 0.1 s, 1 s, 10 s, a minute, ten minutes, an hour, six hours, a day, a week.
BOUNDS = tuple(round(seconds * _SECOND) for seconds in (0.1, 1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800))

#: The histogram of no rows.
NONE_LATE = (0,) * (len(BOUNDS) + 2)


def histogram(behind: NDArray[np.int64]) -> list[int]:
    """The histogram of rows that are so many ticks behind."""
    classes = np.bincount(np.searchsorted(BOUNDS, behind), minlength=len(BOUNDS) + 1)
    return [*map(int, classes), int(behind.astype(np.float64).sum())]


def together(one: Sequence[int] | None, other: Sequence[int] | None) -> list[int] | None:
    """The histogram of the rows of both."""
    if one is None or other is None:
        return None if one is other else [*(one or other or ())]
    return [a + b for a, b in zip(one, other, strict=True)]


def lateness_so_far(
    before: Mapping[str, Sequence[int]], sources: Iterable[Source], reports: Sequence[Mapping[str, Any]]
) -> dict[str, list[int]]:
    """The histogram of every source with late rows, from the batches before and the reports of a batch's tasks."""
    found: dict[str, list[int] | None] = {name: [*counts] for name, counts in before.items()}
    for source in sources:
        name = str(source.origin)
        for part in (part for report in reports for part in report.get(source.fingerprint, [])):
            found[name] = together(found.get(name), part.get("lateness"))
    return {name: counts for name, counts in found.items() if counts is not None}
