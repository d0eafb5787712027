"""The traces that pages look at, and what can be asked of them by name: the routes under `/ui/data/traces`."""

from __future__ import annotations

import re
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from headrace.dashboard.traces import TraceData
from headrace.display.words import clipped, counted
from headrace.errors import TraceError
from headrace.tracing.traced import TracedRun

__all__ = ["PARTS", "OpenTraces", "TraceClosed", "trace_part"]


class TraceClosed(TraceError):
    """A page asks for a trace that is no longer kept: the query can be traced again."""


@dataclass
class _Open:
    data: TraceData
    owner: str
    used: float


class OpenTraces:
    """Traces under names that nobody guesses, bounded in number, rows and age.

    An owner has `each` of them, and the one that it used longest ago goes first. If there are more than `most`, or than
    `rows` changes, the oldest of the owner who has the most changes goes: many traces of one do not close those of
    others. `clock` gives seconds, for the age.
    """

    def __init__(
        self,
        *,
        each: int = 4,
        most: int = 32,
        rows: int = 4_000_000,
        seconds: float = 1800.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.each, self.most, self.rows, self.seconds = each, most, rows, seconds
        self._clock = clock
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._lock = Lock()

    def add(self, name: str, trace: TracedRun, owner: str = "") -> str:
        """Keep a trace; its key."""
        data = TraceData(name, trace)
        if data.rows > self.rows:
            raise TraceError(
                "this trace is too large to keep open",
                given=counted(data.rows, "change"),
                allowed=f"{self.rows:,}",
                instead="fewer batches, or headrace trace --save",
            )
        key = secrets.token_urlsafe(12)
        with self._lock:
            self._open[key] = _Open(data, owner, self._clock())
            self._tidy()
            self._make_room(key)
        return key

    def get(self, key: str, owner: str = "") -> TraceData:
        """An open trace of this owner."""
        with self._lock:
            self._tidy()
            found = self._open.get(key)
            if found is None or found.owner != owner:
                raise TraceClosed(
                    "this trace is no longer open",
                    given=key,
                    allowed=f"the last {counted(self.each, 'trace')}, for {counted(int(self.seconds // 60), 'minute')}",
                    instead="trace the query again",
                )
            found.used = self._clock()
            self._open.move_to_end(key)
            return found.data

    def part(self, key: str, part: str, parameters: Mapping[str, str], owner: str = "") -> dict[str, Any]:
        """A part of an open trace; `compare` also names the `other` trace."""
        data = self.get(key, owner)
        if part == "compare":
            return data.compare(self.get(parameters.get("other", ""), owner))
        return trace_part(data, part, parameters)

    def close(self, key: str) -> None:
        """Forget a trace."""
        with self._lock:
            self._open.pop(key, None)

    def __len__(self) -> int:
        return len(self._open)

    def _tidy(self) -> None:
        """Forget what nobody has used for long."""
        oldest = self._clock() - self.seconds
        while self._open and next(iter(self._open.values())).used < oldest:
            self._open.popitem(last=False)

    def _make_room(self, newest: str) -> None:
        """Forget others for a new trace, which stays."""
        owner = self._open[newest].owner
        while len(own := [key for key, one in self._open.items() if one.owner == owner]) > self.each:
            del self._open[own[0]]
        while len(self._open) > self.most or sum(one.data.rows for one in self._open.values()) > self.rows:
            sizes: Counter[str] = Counter()
            for one in self._open.values():
                sizes[one.owner] += one.data.rows
            others = [key for key in self._open if key != newest]
            del self._open[max(others, key=lambda key: sizes[self._open[key].owner])]  # of equal ones, the first


#: What can be asked of a trace, with the names of parameters that are numbers; those with `?` may be missing.
PARTS: Mapping[str, tuple[str, ...]] = {
    "graph": (),
    "batch": ("batch",),
    "activity": ("operator?",),
    "changes": ("operator", "batch", "offset?", "limit?"),
    "history": ("operator", "batch", "offset?", "limit?"),
    "state": ("operator", "batch", "limit?"),
    "why": ("operator", "batch", "row"),
    "why_retracted": ("operator", "batch", "row"),
    "forward": ("operator", "batch", "row"),
    "lines": ("operator", "batch", "row"),
    "why_not": ("operator", "batch"),
    "why_cti": ("operator", "batch"),
    "stop": ("batch", "operator?"),
}
#: Their parameters that are texts, which may be missing.
_TEXTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("why", "why_retracted", "forward", "lines"), ("at",)),
    "why_not": ("values", "at"),
    "stop": ("breakpoints",),
}


def trace_part(data: TraceData, part: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    """A part of a trace by its name, with the parameters of a request."""
    if part not in PARTS:
        raise TraceError("a trace has no such part", given=part, allowed=", ".join(PARTS))
    arguments: dict[str, Any] = {}
    for name in PARTS[part]:
        given = parameters.get(name.rstrip("?"))
        if given is None and name.endswith("?"):
            continue
        if given is None or not re.fullmatch(r"[0-9]{1,12}", given):
            allowed = ", ".join(one.rstrip("?") for one in PARTS[part])
            raise TraceError(
                f"{part} needs {name.rstrip('?')}, a number of at most 12 digits",
                given=given and clipped(given, 60),
                allowed=f"numbers: {allowed}",
            )
        arguments[name.rstrip("?")] = int(given)
    arguments |= {name: parameters[name] for name in _TEXTS.get(part, ()) if name in parameters}
    with data.lock:  # questions share what they have found
        found: dict[str, Any] = getattr(data, part)(**arguments)
    return found
