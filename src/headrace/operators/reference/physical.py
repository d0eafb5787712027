"""The twin of ingress for streams that keep their promises: physical events to a history and a progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.errors import EventError
from headrace.operators.reference.rows import Row, payload_identity
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["history_of", "progress_of"]

_CONTROL = ("kind", "le", "re", "re_new")


def history_of(events: Iterable[Mapping[str, Any]]) -> list[Row]:
    """What is left when every retraction has been applied (rule 1.4)."""
    rows: list[Row] = []
    for event in events:
        payload = {name: value for name, value in event.items() if name not in _CONTROL}
        if event["kind"] == "insert":
            rows.append((event["le"], event["re"], payload))
        elif event["kind"] == "retract":
            wanted = (event["le"], event["re"], payload_identity(payload))
            place = next((i for i, r in enumerate(rows) if (r[0], r[1], payload_identity(r[2])) == wanted), None)
            if place is None:
                raise EventError("a retraction names an event that is not there", given=dict(event))
            del rows[place]
            if event["re_new"] > event["le"]:
                rows.append((event["le"], event["re_new"], payload))
    return rows


def progress_of(events: Iterable[Mapping[str, Any]]) -> Progress:
    """The last CTI, and the greatest finite time among LEs and CTIs."""
    listed = list(events)
    ctis = [event["le"] for event in listed if event["kind"] == "cti"]
    times = [event["le"] for event in listed if event["le"] != INFINITY]
    return Progress(max(ctis, default=NEG_INFINITY), max(times, default=NEG_INFINITY))
