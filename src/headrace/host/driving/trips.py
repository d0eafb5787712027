"""The trips of a batch: the feedback of a loop across buckets returns in the same batch.

A trip is one run of the batch's tasks. The first reads the batch's input, and the feedback of the last commit. Each
later trip reads only the feedback of the trip before, and starts from its state. No commit names that state yet: the
driver writes an *interim record*, in the format of a commit, under a name that only tasks of this driver read
(`Log.note_trip`). It is not used for recovery. A driver that dies between two trips leaves a plan and files that no
commit names, and the next driver runs the batch from its beginning.

The batch is committed once: with the state and the feedback of the last trip, the output rows of all trips, and the
sources' reports of the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import HostError
from headrace.host.driving.plan import Batch
from headrace.stages.load import added_arrivals
from headrace.stages.message import FEEDBACK, REPORTS, RESULT, STATE, STATISTICS, Message

__all__ = ["BatchResult", "MixedReadings", "checked", "reports_of", "states_by_operator"]


class MixedReadings(HostError):
    """Buckets have rows of different attempts to read what is not the same each time."""


@dataclass(eq=False)
class BatchResult:
    """The messages of a batch: those of its latest trip, and the results of the trips before."""

    first: Batch
    trip: Batch
    messages: Sequence[Message]
    earlier: list[list[Message]] = field(default_factory=list)

    def add(self, trip: Batch, messages: Sequence[Message]) -> None:
        """Add a trip; state and feedback of the trip before are dropped."""
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
        """The statistics of stages after the latest trip, with the bytes fetched and the rows that arrived in all."""
        latest = [m.extra for m in self.messages if m.edge == STATISTICS]
        fetched, arrivals = Counter[tuple[int, int]](), dict[tuple[int, int], list[list[Any]]]()
        for part in self.counted:
            place = part["level"], part["bucket"]
            fetched[place] += part.get("fetched", 0)
            arrivals[place] = added_arrivals(arrivals.get(place, []), part["arrivals"])
        places = [(part["level"], part["bucket"]) for part in latest]
        return [
            part | {"fetched": fetched[place], "arrivals": arrivals[place]}
            for part, place in zip(latest, places, strict=True)
        ]

    @property
    def counted(self) -> list[dict[str, Any]]:
        """The statistics of every trip, with its counts."""
        return [m.extra for m in self._all() if m.edge == STATISTICS]

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The reports of intake tasks, of all trips."""
        return reports_of(list(self._all()))

    def _all(self) -> Iterator[Message]:
        return (message for messages in self.trips for message in messages)


def reports_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The reports of intake tasks; all buckets get the same ones."""
    return [m.extra for m in messages if m.edge == REPORTS and m.bucket == 0]


def checked(messages: Sequence[Message]) -> Sequence[Message]:
    """Messages of a trip in which all buckets have the rows of the same attempts to read."""
    if len({tuple(m.extra.get("readings", ())) for m in messages if m.edge == STATE}) > 1:
        raise MixedReadings("a task was repeated and has read other rows, such as a newer snapshot of a table")
    return messages


def states_by_operator(states: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The state of every operator, by fingerprint and bucket."""
    found: dict[str, dict[str, Any]] = {}
    for state in states:
        for fingerprint, operator in state["operators"].items():
            found.setdefault(fingerprint, {})[str(state["bucket"])] = operator
    return found
