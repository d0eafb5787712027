"""The times of rows that have none of their own: when they arrived, in the order in which they did."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.columnar import Int64s, to_numpy
from headrace.events import FARTHEST
from headrace.schema import ARRIVAL
from headrace.time import CHRONON, NEG_INFINITY

__all__ = ["in_log_order", "move_to_cti", "spaced"]

Flags = NDArray[np.bool_]


def spaced(events: pa.Table, high: int) -> pa.Table:
    """Points at their arrival, at distinct times: each at its own time, or a tick after the point before it."""
    absent = np.asarray(pc.is_null(events.column("le")))
    le = to_numpy(pc.fill_null(events.column("le"), NEG_INFINITY // 2))
    place = np.arange(len(le), dtype=np.int64)
    first = np.int64(NEG_INFINITY // 2 if high == NEG_INFINITY else min(high, FARTHEST) + 1)
    le = np.maximum.accumulate(np.maximum(le - place, first)) + place
    return _timed(events, le, absent)


def in_log_order(events: pa.Table, first: int, fine: Flags) -> pa.Table:
    """Changes at their arrival, or at the time of the change before if that is later."""
    if events.num_rows == 0:
        return events
    le = np.where(fine, to_numpy(pc.fill_null(events.column("le"), 0)), NEG_INFINITY)
    le = np.maximum(np.maximum.accumulate(le), first)
    return _timed(events, le, ~fine)


def move_to_cti(events: pa.Table, late: Flags, cti: Int64s) -> tuple[pa.Table, Flags]:
    """Late points at their arrival, moved to the CTI; and those that stay late, because time has ended."""
    moved = late & (cti < FARTHEST)
    le = np.where(moved, cti, to_numpy(pc.fill_null(events.column("le"), 0)))
    return _timed(events, le, np.asarray(pc.is_null(events.column("le")))), late & ~moved


def _timed(events: pa.Table, le: Int64s, absent: Flags) -> pa.Table:
    """Points at new times, which are also their arrivals."""
    values = {"le": le, "re": le + CHRONON} | ({ARRIVAL: le} if ARRIVAL in events.column_names else {})
    for name, times in values.items():
        events = events.set_column(events.schema.get_field_index(name), name, pa.array(times, mask=absent))
    return events
