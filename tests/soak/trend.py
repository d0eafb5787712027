"""Whether a curve has a trend: the rule by which a soak fails.

Only the second half of a curve counts, after caches, paces and retention have settled. Its slope is that of Theil and
Sen: the median of the slopes of all pairs of points, which single outliers do not move. A curve has a trend if

- it grows by more than `TOLERANCE` of its median from the beginning of that half to its end, and by more than what its
  unit makes noise (`noise`); and
- at least `SHARE` of the pairs rise. A leak rises in nearly all pairs, a saw-tooth of clean-up in about half of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["SHARE", "TOLERANCE", "Trend", "trend_of"]

TOLERANCE, SHARE = 0.10, 0.70
#: The most points that are compared with each other; of more, every n-th counts.
_MOST = 600


@dataclass(frozen=True)
class Trend:
    """The second half of a curve: its median, how much it grows, and how many of its pairs of points rise."""

    median: float
    growth: float
    rising: float
    noise: float

    @property
    def fails(self) -> bool:
        return self.growth > max(TOLERANCE * abs(self.median), self.noise) and self.rising >= SHARE


def trend_of(times: Sequence[float], values: Sequence[float], noise: float = 0.0) -> Trend:
    """The trend of a curve; `noise` is a growth in its own unit that never counts."""
    begin = times[0] + (times[-1] - times[0]) / 2
    half = [(t, v) for t, v in zip(times, values, strict=True) if t >= begin]
    points = np.array(half[:: max(1, len(half) // _MOST)], float)
    first, second = np.triu_indices(len(points), k=1)
    apart = points[second] - points[first]
    slopes = apart[:, 1] / apart[:, 0]
    growth = float(np.median(slopes)) * float(points[-1, 0] - points[0, 0]) if len(slopes) else 0.0
    rising = float(np.mean(slopes > 0)) if len(slopes) else 0.0
    return Trend(float(np.median(points[:, 1])), growth, rising, noise)
