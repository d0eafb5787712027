"""A column as conversion gives it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["ConvertedColumn", "Mask"]

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ConvertedColumn:
    """The converted values, null where they do not fit, and the mask of these (None: all fit)."""

    values: pa.ChunkedArray | pa.Array
    bad: Mask | None = None
