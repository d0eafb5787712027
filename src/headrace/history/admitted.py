"""Admit physical events one by one, where retractions may not find their events (rule 1.3).

SQL sums what events add and remove; that is enough as long as no sum is negative. A negative sum means that a
retraction named an event that did not exist: never inserted, diverted as late, or inserted in a later batch. Such a
retraction has no effect, and neither have those that depend on it. Which ones do depends on the order of arrival, so
Python processes all events of the payload, batch by batch. Within a batch inserts come first, and retractions may come
in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from headrace.errors import EventError
from headrace.history.script import HistoryFunction
from headrace.plan.nodes import Source

__all__ = ["EVENT", "admit_function"]

#: An event as SQL gathers it; `re_new` is null for an insert.
EVENT = pa.struct([(name, pa.int64()) for name in ("batch", "row", "le", "re", "re_new")])
_LIVES = pa.list_(pa.struct([("le", pa.int64()), ("re", pa.int64())]))

Lives = Counter[tuple[int, int]]
Event = dict[str, Any]


def admit_function(name: str, source: Source) -> HistoryFunction:
    """The function that returns the remaining lifetimes of the events of one payload."""

    def call(lists: Any) -> pa.Array:
        found = [_left(source, events) for events in lists.to_pylist()]
        return pa.array([[{"le": le, "re": re} for le, re in lives] for lives in found], _LIVES)

    return HistoryFunction(name, (pa.list_(EVENT),), _LIVES, call)


def _left(source: Source, events: list[Event]) -> Iterable[tuple[int, int]]:
    lives: Lives = Counter()
    ordered = sorted(events, key=lambda event: (event["batch"], event["row"]))
    for _, batch in groupby(ordered, key=lambda event: event["batch"]):
        orphans = _take(lives, list(batch), adjusted=source.policy.late == "adjust")
        if orphans and source.bad_rows == "raise":
            raise EventError(
                f"{source.origin}: it retracts an event that is not there: never inserted, or diverted",
                given=orphans[0],
                instead="bad_rows='divert'",
            )
    return lives.elements()


def _take(lives: Lives, batch: Sequence[Event], *, adjusted: bool) -> list[Event]:
    """Apply the events of a batch; return the retractions without an event."""
    waiting = [event for event in batch if event["re_new"] is not None]
    lives.update((event["le"], event["re"]) for event in batch if event["re_new"] is None)
    if _sums_up(lives, waiting):
        return []
    while True:
        left = [event for event in waiting if not _applied(lives, event, adjusted=adjusted)]
        if len(left) == len(waiting):
            return left
        waiting = left


def _sums_up(lives: Lives, retractions: Sequence[Event]) -> bool:
    """Apply all retractions at once, if that leaves no negative count."""
    after = Counter(lives)
    for event in retractions:
        after[event["le"], event["re"]] -= 1
        after[event["le"], event["re_new"]] += event["re_new"] > event["le"]
    if min(after.values(), default=0) < 0:
        return False
    lives.clear()
    lives.update(after)
    return True


def _applied(lives: Lives, event: Event, *, adjusted: bool) -> bool:
    le, re, re_new = event["le"], event["re"], event["re_new"]
    if lives[le, re] <= 0 and adjusted:  # the event may have been adjusted to a CTI: then its end identifies it
        le = min((start for (start, end), times in lives.items() if times > 0 and end == re and start > le), default=le)
    if lives[le, re] <= 0:
        return False
    lives[le, re] -= 1
    if re_new > le:
        lives[le, re_new] += 1
    return True
