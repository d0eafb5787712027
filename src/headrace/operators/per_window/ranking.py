"""The places of events that stand in order, group by group."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headrace.columnar import Bools, Int64s
from headrace.plan.operate import Place

__all__ = ["PLACES", "places_of"]


def places_of(group: Int64s) -> Int64s:
    """The place of each element among those of its group before it."""
    order = np.argsort(group, kind="stable")
    first = np.flatnonzero(np.r_[True, np.diff(group[order]) != 0]) if len(group) else np.empty(0, np.int64)
    places = np.empty(len(group), np.int64)
    places[order] = np.arange(len(group)) - np.repeat(first, np.diff(np.r_[first, len(group)]))
    return places


def _ranks(group: Int64s, peers: Int64s) -> Int64s:
    """The place of the first of equal elements, from 1 on; groups and peers stand together."""
    place = places_of(group)
    here = np.arange(len(group))
    first = np.maximum.accumulate(np.where(_begins(group, peers), here, 0)) if len(group) else here
    return place - (here - first) + 1


def _dense_ranks(group: Int64s, peers: Int64s) -> Int64s:
    """The number of different elements of the group up to each; groups and peers stand together."""
    different: Int64s = np.cumsum(_begins(group, peers))
    first: Int64s = different[np.arange(len(group)) - places_of(group)]
    return different - first + 1


def _begins(group: Int64s, peers: Int64s) -> Bools:
    """Where another group or other peers begin."""
    return np.r_[True, (group[1:] != group[:-1]) | (peers[1:] != peers[:-1])] if len(group) else np.empty(0, bool)


PLACES: dict[Place, Callable[[Int64s, Int64s], Int64s]] = {
    "row_number": lambda group, _: places_of(group) + 1,
    "rank": _ranks,
    "dense_rank": _dense_ranks,
    "copy": lambda group, equal: places_of(group) - _ranks(group, equal) + 2,
}
