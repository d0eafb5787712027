"""The place of a sink during a check: what was delivered to it, and what it must hold by that."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.errors import Unavailable
from headrace.events import cti_row
from headrace.io.adapter import DeliveryId, SinkAdapter
from headrace.io.sinks import rows_of
from headrace.schema import Schema
from headrace.testing.adapter_check.report import Broken, Example
from headrace.testing.adapter_check.samples import Row, difference, plain_rows, sample_rows
from headrace.time import INFINITY

__all__ = ["Batches", "Place", "ReadBack", "deliver_patiently", "expected_rows"]

ReadBack = Callable[[SinkAdapter], pa.Table | Iterable[Mapping[str, Any]]]
_CONTROL = {
    "events": ("kind", "le", "re", "re_new"), "changes": ("_change_type", "le", "re"), "final": ("le", "re"),
    "upsert": ("le",),
}  # fmt: skip
_PATIENCE = 30.0


def deliver_patiently(sink: SinkAdapter, deliveries: Sequence[tuple[DeliveryId, pa.Table]]) -> None:
    """Deliver as the engine does: again while the place is unavailable."""
    deadline = time.monotonic() + _PATIENCE
    for delivery, rows in deliveries:
        while True:
            try:
                sink.deliver(delivery, rows)
                break
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def expected_rows(
    sink: SinkAdapter, deliveries: Iterable[tuple[DeliveryId, pa.Table]], columns: Sequence[str]
) -> list[Row]:
    """What a place has after deliveries: all rows, or for upserts the row of each key."""
    ordered = sorted(deliveries, key=lambda pair: (pair[0].batch, pair[0].part))
    if sink.encoding != "upsert":
        return [row for _, rows in ordered for row in plain_rows(rows, columns)]
    latest: dict[Row, Row] = {}
    for _, rows in ordered:
        keys, values = plain_rows(rows, sink.key), plain_rows(rows, columns)
        for kind, key, row in zip(rows["op"].to_pylist(), keys, values, strict=True):
            latest.pop(key, None)
            if kind == "upsert":
                latest[key] = row
    return list(latest.values())


@dataclass(eq=False)
class Place:
    """A sink with a place of its own."""

    sink: SinkAdapter
    columns: Schema
    read_back: ReadBack
    example: Example
    #: Whether the place stores the CTIs of physical events.
    ctis: bool = True
    #: The mark of its query; no two places have the same.
    query: str = field(default_factory=lambda: f"query-{uuid.uuid4().hex[:8]}")
    delivered: dict[DeliveryId, pa.Table] = field(default_factory=dict)

    def open(self, batch: int = -1, query: str | None = None, output: int = 0) -> None:
        """Prepare the place."""
        self.example.add(f"open({query or self.query!r}, {output}, columns, batch={batch})")
        self.sink.open(query or self.query, output, self.columns, batch)

    def id(self, part: int, batch: int, output: int = 0, query: str | None = None) -> DeliveryId:
        """The identity of a delivery."""
        return DeliveryId(query or self.query, output, part, batch)

    def expect(self, delivery: DeliveryId, rows: pa.Table, how: str = "") -> None:
        """Note a delivery that is made, or will be."""
        self.example.add(f"deliver({delivery}, {rows.num_rows} rows){how}")
        self.delivered[delivery] = rows

    def deliver(self, delivery: DeliveryId, rows: pa.Table, sink: SinkAdapter | None = None, how: str = "") -> None:
        """Deliver rows, by this value of the sink or another one."""
        self.expect(delivery, rows, how)
        deliver_patiently(sink or self.sink, [(delivery, rows)])

    def check(self, what: str = "") -> None:
        """Raise unless the place holds what was delivered."""
        found = self.read_back(self.sink)
        found = found.to_pylist() if isinstance(found, pa.Table) else list(found)
        columns = [*_CONTROL[self.sink.encoding], *self.columns.names]
        if found:
            missing = [name for name in self.columns.names if name not in found[0]]
            if missing:
                raise Broken(f"the place has no column {missing[0]!r}")
            columns = [name for name in columns if name in found[0]]
        deliveries = [pair for pair in self.delivered.items() if self.ctis or pair[0].part >= 0]
        expected = expected_rows(self.sink, deliveries, columns)
        rows = plain_rows(found, columns)
        if not self.sink.exactly_once and self.sink.encoding != "upsert":
            rows, expected = sorted(set(rows), key=repr), sorted(set(expected), key=repr)
        if wrong := difference(rows, expected):
            raise Broken(f"{what}the place does not hold what was delivered to it, as {tuple(columns)}:\n{wrong}")


class Batches:
    """Random rows of batches in the encoding of a sink: of each part, new events, and corrections of earlier ones."""

    def __init__(self, place: Place, seed: int = 0) -> None:
        self._place, self._random = place, random.Random(seed)  # noqa: S311 - not a secret
        self._live: dict[int, list[Changes]] = {}
        self._made = 0

    def rows(self, part: int, batch: int, size: int = 2) -> pa.Table:
        """The rows of a part, at least one."""
        live = self._live.setdefault(part, [])
        new = [self._event(part, batch, i) for i in range(size)]
        gone: list[Changes] = []
        if self._place.sink.encoding != "final":
            gone = [event for event in live if self._random.random() < 0.3]
            if self._place.sink.encoding == "upsert":
                gone += [event for event in live if event not in gone and self._same_key(event, new)]
        self._live[part] = [event for event in live if event not in gone] + new
        if gone and self._random.random() < 0.3:
            self._live[part] = [event for event in self._live[part] if event not in new]
            new = []
        changes = Changes.concat([*new, *(event.negated() for event in gone)])
        return rows_of(changes, self._place.sink, batch)

    def cti(self, batch: int) -> pa.Table:
        """The row of a CTI."""
        return cti_row(100 * batch, self._place.columns)

    def _event(self, part: int, batch: int, number: int) -> Changes:
        payload = sample_rows(self._place.columns, self._made, 1)
        self._made += 1
        for name in self._place.sink.key:
            field_ = payload.schema.field(name)
            if pa.types.is_string(field_.type):  # keys of a part are in no other; those of a batch are distinct
                key = f"part {part} key {(batch + number) % 4}"
                payload = payload.set_column(payload.schema.get_field_index(name), field_, pa.array([key]))
        le = np.array([100 * batch + number], np.int64)
        re = np.array([INFINITY if self._made % 3 == 0 else 100 * batch + 50], np.int64)
        return Changes.inserts(le, re, payload)

    def _same_key(self, event: Changes, others: Sequence[Changes]) -> bool:
        names = list(self._place.sink.key)
        return any(event.payload.select(names).equals(other.payload.select(names)) for other in others)
