"""Which partitions a source has, and how far they reach.

The driver asks every few milliseconds. One request answers for the ends of all partitions; topics, their partitions and
the first offsets change slowly, and are asked for again after `REFRESH` seconds.

Under `read_committed` the end of a partition is its last stable offset, before which every transaction has ended. So
the rows of a range never change.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.adapters.kafka.clients import PATIENCE, Kept, Options, address, admin, codes, failure
from headrace.errors import SourceError, Unavailable
from headrace.io.adapter import Offsets

__all__ = ["REFRESH", "TopicPlace", "forget", "offset_at", "partition_name", "reach", "split"]

#: How old the list of partitions and their first offsets may be, in seconds.
REFRESH = 3.0
#: How often, and after which pause, an end before a position is asked for again: a new leader may lag for a moment.
_DOUBTS, _PAUSE = 4, 0.25
#: What the client answers for a partition that nobody leads: it was deleted, or its broker is away.
_NO_LEADER = codes("UNKNOWN_TOPIC_OR_PART", "_NOENT")
_EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class TopicPlace:
    """What a source reads: these topics, or those that match a pattern."""

    options: Options
    topics: tuple[str, ...]
    pattern: str | None
    isolation: Literal["read_committed", "read_uncommitted"]


@dataclass
class _Listing:
    """The partitions of a place, and their first offsets."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    time: float = 0.0
    partitions: tuple[TopicPartition, ...] = ()
    first: Mapping[TopicPartition, int] = field(default_factory=dict)


_listings: Kept[_Listing] = Kept()


def partition_name(topic: str, number: int) -> str:
    """The name of a partition: `topic/number`."""
    return f"{topic}/{number}"


def split(partition: str) -> tuple[str, int]:
    """The topic and the number of a partition."""
    topic, _, number = partition.rpartition("/")
    return topic, int(number)


def reach(place: TopicPlace, positions: Mapping[str, int], *, gaps: bool) -> dict[str, Offsets]:
    """How far each partition reaches; `gaps` allows that partitions have disappeared."""
    listing = _listings.once(place, _Listing)
    with listing.lock:
        if time.monotonic() - listing.time > REFRESH:
            _refresh(place, listing)
        partitions, first = listing.partitions, listing.first
    found = _with_ends(place, partitions, first)
    gone = [name for name in positions if name not in found]
    if gone and not gaps:
        raise SourceError(
            f"{len(gone)} partitions that were read no longer exist, the first is {gone[0]}",
            given=", ".join(gone[:5]),
            instead="a new checkpoint, or on_gap='continue' to go on with the others",
        )
    _check_not_recreated(place, positions, found)
    return found


def forget(place: TopicPlace) -> None:
    """Ask for everything again at the next call."""
    _listings.take(lambda key: key == place)


def offset_at(place: TopicPlace, partition: str, millis: int, end: int) -> int:
    """The offset of the first record at or after a time; the end if there is none."""
    found = _listed(place, {TopicPartition(*split(partition)): OffsetSpec.for_timestamp(millis)})
    offset = next(iter(found.values()))
    return min(offset, end) if offset >= 0 else end


def _with_ends(
    place: TopicPlace, partitions: Iterable[TopicPartition], first: Mapping[TopicPartition, int]
) -> dict[str, Offsets]:
    ends = _listed(place, dict.fromkeys(partitions, _LATEST))
    return {
        partition_name(tp.topic, tp.partition): Offsets(min(first.get(tp, 0), end), end) for tp, end in ends.items()
    }


def _check_not_recreated(place: TopicPlace, positions: Mapping[str, int], found: dict[str, Offsets]) -> None:
    for attempt in range(_DOUBTS):
        back = [name for name, at in positions.items() if name in found and found[name].end < at]
        if not back:
            return
        if attempt:
            time.sleep(_PAUSE)
        found.update(_with_ends(place, [TopicPartition(*split(name)) for name in back], {}))
    name = back[0]
    raise SourceError(
        f"partition {name} ends at offset {found[name].end}, but was read up to {positions[name]}: the topic was "
        "deleted and created again, or lost its last records",
        given=f"{len(back)} such partitions",
        instead="a new checkpoint, which reads the topic from its beginning",
    )


def _refresh(place: TopicPlace, listing: _Listing) -> None:
    numbers = _by_pattern(place) if place.pattern is not None else _by_name(place)
    partitions = tuple(TopicPartition(topic, n) for topic, parts in sorted(numbers.items()) for n in sorted(parts))
    listing.first = _listed(place, dict.fromkeys(partitions, _EARLIEST))
    listing.partitions, listing.time = partitions, time.monotonic()


def _by_pattern(place: TopicPlace) -> dict[str, list[int]]:
    assert place.pattern is not None
    try:
        topics = admin(place.options).list_topics(timeout=PATIENCE).topics
    except KafkaException as error:
        raise failure(
            error, f"the topics of {address(place.options)} cannot be listed", options=place.options
        ) from error
    matches = re.compile(place.pattern).fullmatch
    return {name: [*topic.partitions] for name, topic in topics.items() if topic.error is None and matches(name)}


def _by_name(place: TopicPlace) -> dict[str, list[int]]:
    # Not list_topics, which may create a topic that is missing.
    asked = admin(place.options).describe_topics(TopicCollection([*place.topics]), request_timeout=PATIENCE)
    result = {}
    for name, answer in asked.items():
        try:
            result[name] = [partition.id for partition in answer.result().partitions]
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise SourceError(
                    f"there is no topic {name!r} at {address(place.options)}",
                    given=", ".join(place.topics),
                    instead=f"create the topic first, or give pattern={re.escape(name)!r}, which waits for it",
                ) from error
            raise failure(
                error, f"topic {name!r} of {address(place.options)} cannot be described", options=place.options
            ) from error
    return result


def _listed(place: TopicPlace, wanted: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
    """One request for an offset of each partition."""
    if not wanted:
        return {}
    level = IsolationLevel[place.isolation.upper()]
    answers: dict[TopicPartition, Future[Any]] = admin(place.options).list_offsets(
        dict(wanted), isolation_level=level, request_timeout=PATIENCE
    )
    result = {}
    for partition, answer in answers.items():
        try:
            result[partition] = answer.result().offset
        except KafkaException as error:
            if error.args[0].code() in _NO_LEADER:
                forget(place)  # deleted since it was listed, or not yet known to its leader: the next call shows it
                raise Unavailable(
                    f"partition {partition_name(partition.topic, partition.partition)} is away"
                ) from error
            what = f"the offsets of topic {partition.topic!r} cannot be listed"
            raise failure(error, what, options=place.options) from error
    return result
