"""Topics as a source: what is read, from where on, and as which columns."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import numpy as np
import pyarrow as pa

from headrace.adapters.kafka.columns import METADATA, TOMBSTONE, RecordDecoder
from headrace.adapters.kafka.options import (
    FORMAT_OPTIONS,
    client_module,
    connection,
    key_columns_of,
    pairs,
    place_of,
    reserved,
    value_format,
)
from headrace.errors import PlanError, SourceError
from headrace.io.adapter import Offsets, SourceAdapter
from headrace.io.decoded import DecodedBlock, refused_table
from headrace.io.drift import DriftRules, checked_drift
from headrace.io.envelope import OP, TS
from headrace.io.values import ValueFormat
from headrace.schema import Field, Schema, Type

if TYPE_CHECKING:
    from headrace.adapters.kafka.discovery import TopicPlace

__all__ = ["KafkaSource"]

Isolation = Literal["read_committed", "read_uncommitted"]
_FIXED = (
    "bootstrap.servers", "group.id", "isolation.level", "enable.auto.commit", "enable.auto.offset.store",
    "enable.partition.eof", "auto.offset.reset", "allow.auto.create.topics",
)  # fmt: skip
#: How many bytes of values one range has at most, roughly: a batch is bounded in rows, and records may be large.
RANGE_BYTES = 256 << 20
_JSON = ValueFormat("json")
_NONE = Schema(())
_VALUE_OPTIONS = tuple(name for name in FORMAT_OPTIONS if name != "subject")
_KEY_OPTIONS = ("key_delimiter", "key_avro_schema", "key_registry")


@dataclass(frozen=True, repr=False)
class KafkaSource(SourceAdapter):
    """Topics of Kafka as a source; a partition is named `topic/number`.

    `topics`, or a regular expression `pattern` for their whole names: topics that appear later are read too. `columns`
    are those of the value, decoded by `format`; `key_columns` those of the key, decoded by `key_format`. The record's
    own columns are in `columns.py`.

    `on_drift` judges the columns of each message (`io/value_drift.py`); `sparse` names those that it may lack, and `*`
    is all of them.

    `start` is where partitions begin that were never read: `"earliest"`, `"latest"`, a time with a time zone, or
    offsets by partition (`{"trades/0": 500}`; others begin at the earliest). Partitions that appear while a query runs
    should begin at their first offset under `"latest"` too; the driver decides that.

    `options` are passed to librdkafka. With `group_id`, committed offsets are shown to Kafka's own tools under it;
    the query itself never reads them.
    """

    more_options: ClassVar[tuple[str, ...]] = (*_VALUE_OPTIONS, *_KEY_OPTIONS)
    bootstrap: str
    topics: tuple[str, ...] = ()
    columns: Schema = _NONE
    pattern: str | None = None
    format: ValueFormat = _JSON
    key_format: ValueFormat | None = None
    key_columns: Schema = _NONE
    start: Any = "earliest"
    tombstones: bool = False
    group_id: str | None = None
    isolation: Isolation = "read_committed"
    on_gap: Literal["raise", "continue"] = "raise"
    on_drift: Literal["", "raise", "divert", "widen"] = ""
    sparse: tuple[str, ...] = ()
    options: Any = field(default=())

    def __post_init__(self) -> None:
        given: Any = self.topics
        topics = (given,) if isinstance(given, str) else tuple(given)
        changed = {
            "topics": topics, "on_drift": checked_drift(self.on_drift or None), "sparse": _names(self.sparse),
            "columns": Schema.of(self.columns), "key_columns": Schema.of(self.key_columns),
            "options": pairs(self.options), "start": _start(self.start),
        }  # fmt: skip
        for name, value in changed.items():
            object.__setattr__(self, name, value)
        self._check()
        self._check_start()

    def _check(self) -> None:
        if bool(self.topics) == (self.pattern is not None):
            given = f"topics={self.topics!r}, pattern={self.pattern!r}"
            raise PlanError(
                "give topics or a pattern", given=given, instead="topics=('trades',) or pattern='trades-.*'"
            )
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise PlanError(f"the pattern is not a regular expression: {error}", given=self.pattern) from error
        for option, allowed in (("isolation", get_args(Isolation)), ("on_gap", ("raise", "continue"))):
            if getattr(self, option) not in allowed:
                raise PlanError(f"unknown {option}", given=getattr(self, option), allowed=", ".join(allowed))
        if bool(self.key_columns) != (self.key_format is not None):
            raise PlanError(
                "columns of the key need a format, and a format needs columns",
                given=f"key_columns={self.key_columns}, key_format={self.key_format}",
                instead="key_columns='id LONG', key_format=ValueFormat('json')",
            )
        self._check_drift()
        reserved(self.options, _FIXED)
        for column in (*self.columns, *self.key_columns):
            if column.name in METADATA or column.name == TOMBSTONE.name:
                raise PlanError(f"{column.name} is a column of every record", given=str(self.columns))

    def _check_drift(self) -> None:
        if self.on_drift and self.format.name not in ("json", "avro"):
            raise PlanError(
                f"{self.format.name} messages have no names of columns to judge",
                given=f"on_drift={self.on_drift!r}, format {self.format.name}",
                allowed="on_drift with the formats json and avro",
            )
        if self.sparse and not self.on_drift:
            raise PlanError(
                "sparse names columns that messages may lack under on_drift; without it they may lack any",
                given=f"sparse={list(self.sparse)!r}",
                instead="on_drift='widen', 'divert' or 'raise'",
            )
        for name in self.sparse:
            if name != "*":
                self.columns[name]  # an error that names the columns, if there is none of this name

    def _check_start(self) -> None:
        offsets = self.start if isinstance(self.start, tuple) and self.pattern is None else ()
        for name, _ in offsets:
            if name.rpartition("/")[0] not in self.topics:
                allowed = ", ".join(f"{topic}/0" for topic in self.topics)
                raise PlanError("start has an offset of a topic that is not read", given=name, allowed=allowed)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """The source; `columns` may have those of the key and of the record itself, as streams of SQL have them.

        `format` is a name, with the options of a `ValueFormat`; those of the key have the prefix `key_`.
        """
        given = {name: value for name, value in options.items() if name not in cls.more_options}
        columns = Schema.of(given.get("columns", _NONE))
        keys = key_columns_of(given.get("key_columns", _NONE), columns)
        if TOMBSTONE.name in columns:
            given.setdefault("tombstones", True)
        own = {*METADATA.names, TOMBSTONE.name, *keys.names}
        given["columns"] = Schema(tuple(column for column in columns if column.name not in own))
        given["key_columns"] = keys
        given["format"] = value_format(given.get("format", "json"), options)
        if "kind" in columns and given["format"].name == "json":  # physical events, as the sink writes them
            given["format"] = replace(given["format"], nested=True)
        if keys or "key_format" in given:
            given["key_format"] = value_format(given.get("key_format", "json"), options, "key_")
        if "start" in given:
            given["start"] = place_of(given["start"])
        return super().from_options(given)

    @property
    def schema(self) -> Schema:
        both = [column for column in self.columns if column.name not in self.key_columns]
        own = (*METADATA, TOMBSTONE) if self.tombstones else tuple(METADATA)
        return Schema((*self.key_columns, *both, *own))

    def __str__(self) -> str:
        what = f"pattern {self.pattern}" if self.pattern is not None else ", ".join(self.topics)
        key = f", key {self.key_format}: {self.key_columns}" if self.key_format is not None else ""
        more = [f"start {_shown(self.start)}"] if self.start != "earliest" else []
        more += ["tombstones"] if self.tombstones else []
        more += [self.isolation] if self.isolation != "read_committed" else []
        return f"kafka({'; '.join([f'{what}, {self.format}: {self.columns}{key}', *more])})"

    __repr__ = __str__

    @property
    def read_place(self) -> str:
        """The topics, and where they begin: offsets do not depend on columns and formats."""
        what = f"pattern {self.pattern}" if self.pattern is not None else ", ".join(self.topics)
        return f"kafka({what}; start {_shown(self.start)})"

    @property
    def _place(self) -> TopicPlace:
        place: TopicPlace = client_module("discovery", SourceError).TopicPlace(
            self._connection, self.topics, self.pattern, self.isolation
        )
        return place

    @property
    def _connection(self) -> tuple[tuple[str, str], ...]:
        return connection(self.bootstrap, self.options)

    def as_log(self, encoding: str) -> KafkaSource:
        """Debezium's envelopes have the operation in them; for upserts a tombstone deletes the row of its key."""
        if encoding == "debezium" and not self.format.envelope:
            own = (Field(OP, Type.STRING), Field(TS, Type.DATETIME))
            columns = Schema((*self.columns, *(column for column in own if column.name not in self.columns)))
            return replace(self, format=replace(self.format, envelope="debezium"), columns=columns)
        return replace(self, tombstones=True) if encoding == "upsert" else self

    def offsets(self, positions: Mapping[str, int]) -> Mapping[str, Offsets]:
        found: Mapping[str, Offsets] = client_module("discovery", SourceError).reach(
            self._place, positions, gaps=self.on_gap == "continue"
        )
        return found

    def begin(self, partition: str, available: Offsets) -> int:
        if self.start == "earliest":
            return available.first
        if self.start == "latest":
            return available.end
        if isinstance(self.start, datetime):
            millis = -(-int(self.start.timestamp() * 1_000_000) // 1000)
            offset: int = client_module("discovery", SourceError).offset_at(
                self._place, partition, millis, available.end
            )
            return offset
        given = dict(self.start).get(partition, available.first)
        if not available.first <= given <= available.end:
            raise SourceError(
                f"partition {partition} has no offset {given}",
                given=f"start={{{partition!r}: {given}}}",
                allowed=f"{available.first} to {available.end}",
            )
        return int(given)

    def read(
        self, partition: str, start: int, end: int, columns: Sequence[str]
    ) -> Generator[DecodedBlock, None, int | None]:
        reading, place = client_module("reading", SourceError), client_module("discovery", SourceError).split(partition)
        decoder = _decoder(self, tuple(columns))
        wanted = reading.Wanted(decoder.needs_keys, decoder.needs_headers)
        at, lost, left = start, 0, RANGE_BYTES
        while at < end:
            try:
                for found in reading.read_range(self._connection, self.isolation, place, (at, end), wanted):
                    # The sizes of records alone decide where it stops: every attempt stops at the same one.
                    records, left = found.within(left)
                    yield replace(decoder.decode(records).where(None, columns), lost=lost)
                    at, lost = int(records.offsets[-1]) + 1, 0
                    if left <= 0:
                        return at
                at = end
            except reading.Lost as gap:
                lost += min(gap.end, end) - gap.start
                at = min(gap.end, end)
                self._check_gap(partition, gap.start, gap.end, end)
        if lost:
            empty = pa.schema([(name, self.schema[name].type.arrow) for name in columns]).empty_table()
            none = np.zeros(0, np.int64)
            yield DecodedBlock(empty, refused_table(), none, none, arrived=none, lost=lost)
        return None

    def _check_gap(self, partition: str, start: int, first: int, end: int) -> None:
        if self.on_gap == "raise":
            until = min(first, end)
            raise SourceError(
                f"{until - start} offsets of partition {partition} are lost, {start} to {until - 1}: Kafka no longer "
                f"stores them, its first offset is {first}",
                allowed="offsets that the topic's retention still keeps",
                instead="on_gap='continue', which goes on and counts them, or a longer retention of the topic",
            )

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        if self.group_id is not None and positions:
            split = client_module("discovery", SourceError).split
            client_module("reading", SourceError).commit(
                self._connection, self.group_id, {split(name): at for name, at in positions.items()}
            )

    def close(self) -> None:
        client_module("reading", SourceError).close_readers(self._connection)
        client_module("discovery", SourceError).forget(self._place)


@lru_cache(maxsize=64)
def _decoder(source: KafkaSource, columns: tuple[str, ...]) -> RecordDecoder:
    """The decoder of a source's records. Making one takes as long as decoding a hundred of them, so it is kept."""
    key = (source.key_format, source.key_columns) if source.key_format is not None else None
    # A value is malformed if any of its columns is, also one that the query does not read: else another query of the
    # same script, or a history, would see other rows.
    own = (*source.columns.names, *source.key_columns.names)
    names = [*columns, *(name for name in own if name not in columns)]
    rules = DriftRules(source.on_drift, optional=source.sparse, source=str(source)) if source.on_drift else None
    return RecordDecoder(names, (source.format, source.columns), key, tombstones=source.tombstones, drift=rules)


def _names(given: Any) -> tuple[str, ...]:
    """Names of columns; True is all of them."""
    if isinstance(given, bool):
        return ("*",) if given else ()
    return (given,) if isinstance(given, str) else tuple(given)


def _start(given: Any) -> Any:
    """Where to begin, as a value that can be compared and hashed."""
    if given in ("earliest", "latest"):
        return given
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise PlanError("a time to start at needs a time zone", given=given, instead="datetime(..., tzinfo=UTC)")
        return given.astimezone(UTC)
    items = given.items() if isinstance(given, Mapping) else given if isinstance(given, tuple) else None
    if items is None or not all(re.fullmatch(r".+/\d+", str(n)) and isinstance(at, int) for n, at in items):
        raise PlanError(
            "unknown start", given=given, allowed="'earliest', 'latest', a time, or offsets by partition",
            instead="datetime(2024, 5, 1, tzinfo=UTC) or {'trades/0': 500}",
        )  # fmt: skip
    return tuple(sorted(items))


def _shown(start: Any) -> str:
    if isinstance(start, datetime):
        return start.isoformat()
    return start if isinstance(start, str) else ", ".join(f"{name}:{at}" for name, at in start)
