"""The trips of a batch: what goes round a loop across buckets comes round again in the same batch.

A trip is one run of the batch's tasks. The first reads the batch's input, and what circulated when the batch before was
committed. Each of the others reads only what the trip before it has fed back, and begins with the state which that trip
has left. No commit names that state yet: the driver writes it down in an *interim record*, of the form of a commit,
under a name that only tasks of this driver ask for (`Log.note_trip`). Nothing is recovered from it. A driver that dies
between two trips leaves a plan and files that no commit names, and the next one runs the batch from its beginning.

The batch is committed once: state and feedback are those of the last trip, what leaves are the rows of all trips, and
sources are heard in the first one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.host.driving.plan import Batch
from headrace.stages.message import FEEDBACK, REPORTS, RESULT, STATE, STATISTICS, Message

__all__ = ["Made", "reports_of"]


@dataclass(eq=False)
class Made:
    """What a batch has made so far: the messages of its latest trip, and what is left of those before."""

    first: Batch
    trip: Batch
    messages: Sequence[Message]
    earlier: list[list[Message]] = field(default_factory=list)

    def add(self, trip: Batch, messages: Sequence[Message]) -> None:
        """Another trip was made. Of the one before only state and feedback are out of date."""
        self.earlier.append([m for m in self.messages if m.edge <= RESULT or m.edge in (REPORTS, STATISTICS)])
        self.trip, self.messages = trip, messages

    @property
    def trips(self) -> list[Sequence[Message]]:
        """The messages of every trip."""
        return [*self.earlier, self.messages]

    @property
    def states(self) -> list[dict[str, Any]]:
        return [m.extra for m in self.messages if m.edge == STATE]

    @property
    def feedback(self) -> list[dict[str, Any]]:
        return [m.extra for m in self.messages if m.edge == FEEDBACK]

    @property
    def statistics(self) -> list[dict[str, Any]]:
        """What the stages told after the latest trip, with the bytes that were fetched in all of them."""
        told = [m.extra for m in self.messages if m.edge == STATISTICS]
        fetched = Counter[tuple[int, int]]()
        for part in self.counted:
            fetched[part["level"], part["bucket"]] += part.get("fetched", 0)
        return [part | {"fetched": fetched[part["level"], part["bucket"]]} for part in told]

    @property
    def counted(self) -> list[dict[str, Any]]:
        """What they told after every trip, which holds what was counted in it."""
        return [m.extra for m in self._all() if m.edge == STATISTICS]

    @property
    def reports(self) -> list[dict[str, Any]]:
        """What was read, in all trips."""
        return reports_of(list(self._all()))

    def _all(self) -> Iterator[Message]:
        return (message for messages in self.trips for message in messages)


def reports_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """What intake tasks told; all buckets hear the same."""
    return [m.extra for m in messages if m.edge == REPORTS and m.bucket == 0]
