"""The rules of sinks, and their check."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.api.inputs import advance, point, read_source
from headrace.api.stream import Stream
from headrace.api.windows import tumbling
from headrace.changes import Changes
from headrace.errors import PlanError, SinkError, Unavailable
from headrace.expr import count, sum
from headrace.io.adapter import SinkAdapter
from headrace.io.sinks import Encoding, Sink, rows_of
from headrace.schema import Schema
from headrace.testing.adapter_check.calls import check_copy, check_text, copied
from headrace.testing.adapter_check.driven import DELAY, WIDTH, Fate, MortalSink, MortalSource, Rows, drive
from headrace.testing.adapter_check.log import LogSource
from headrace.testing.adapter_check.place import Batches, Place, ReadBack, deliver_patiently
from headrace.testing.adapter_check.processes import Death, call_elsewhere, lines_of, start_call
from headrace.testing.adapter_check.report import AdapterReport, Broken, Example, Skipped, run_rules
from headrace.testing.adapter_check.samples import sample_rows

__all__ = ["check_sink"]

Make = Callable[[Encoding, tuple[str, ...]], SinkAdapter]
_COLUMNS = "k STRING, order LONG, x DOUBLE, ok BOOLEAN, at DATETIME"
_LOG = "k STRING, v LONG, ts LONG"
_THREADS = 4


def check_sink(
    make: Make,
    read_back: ReadBack,
    *,
    encodings: Sequence[Encoding] = ("events", "changes", "final", "upsert"),
    columns: Schema | str = _COLUMNS,
    ctis: bool = True,
    outage: Callable[[], AbstractContextManager[Any]] | None = None,
    secrets: Sequence[str] = (),
    kills: int = 25,
    runs: int = 4,
    seed: int = 0,
) -> AdapterReport:
    """Check that an adapter keeps the contract of sinks; raise with the calls that show a broken rule.

    `make(encoding, key)` returns an adapter with a new, empty place of its own, such as another table.
    `read_back(sink)` returns what that place holds, read without the adapter: an Arrow table or dicts, with the
    payload's columns, and those of the encoding (`kind`, `le`, …) that the place keeps.

    `encodings` are those that the adapter accepts. `columns` are those of the payloads, if the place cannot store the
    default types: a STRING `k` must be among them. `ctis` says whether it keeps the CTIs of physical events; `outage()`
    is a context in which the place does not answer; `secrets` are texts that `str(adapter)` must not show.

    A process that delivers is killed up to `kills` times for each encoding, before different lines of the adapter. At
    last a query runs into the adapter `runs` times, with a driver that dies.
    """
    example = Example()
    check = _SinkCheck(
        make, read_back, tuple(encodings), Schema.of(columns), ctis, outage, tuple(secrets), kills, runs, seed, example
    )
    first = make(check.encodings[0], _key(check.encodings[0]))
    if not isinstance(first, SinkAdapter):
        raise PlanError("make() returned no adapter of a sink", given=type(first).__name__)
    return run_rules(f"{type(first).__name__} ({first})", check, example, _RULES)


def _key(encoding: Encoding) -> tuple[str, ...]:
    return ("k",) if encoding == "upsert" else ()


@dataclass(eq=False)
class _SinkCheck:
    """The ways to make a sink, and to its place."""

    make: Make
    read_back: ReadBack
    encodings: tuple[Encoding, ...]
    columns: Schema
    ctis: bool
    outage: Callable[[], AbstractContextManager[Any]] | None
    secrets: tuple[str, ...]
    kills: int
    runs: int
    seed: int
    example: Example

    def places(self, *, opened: bool = True) -> Iterator[tuple[Place, Batches]]:
        """A new place for each encoding, and rows for it."""
        for encoding in self.encodings:
            yield self.place(encoding, _key(encoding), opened=opened)

    def place(self, encoding: Encoding, key: tuple[str, ...], *, opened: bool = True) -> tuple[Place, Batches]:
        """A new place for an encoding."""
        self.example.begin(f"sink = make({encoding!r}, {key})")
        place = Place(self.make(encoding, key), self.columns, self.read_back, self.example, self.ctis)
        if opened:
            place.open()
        return place, Batches(place, self.seed)

    def upsert_place(self, key: tuple[str, ...]) -> Place:
        """A place for upserts, if the adapter accepts them."""
        if "upsert" not in self.encodings:
            raise Skipped("the adapter does not accept upserts")
        return self.place("upsert", key)[0]


# --- rules -----------------------------------------------------------------------------------------------------------


def _value(check: _SinkCheck) -> None:
    for place, _ in check.places(opened=False):
        check_copy(place.sink)


def _text(check: _SinkCheck) -> None:
    for place, _ in check.places(opened=False):
        check_text(place.sink, check.secrets)


def _rows(check: _SinkCheck) -> None:
    for place, rows in check.places():
        place.check("before the first delivery, ")
        for batch, size in enumerate((1, 1, 6)):
            place.deliver(place.id(0, batch), rows.rows(0, batch, size))
            place.check()


def _open(check: _SinkCheck) -> None:
    for place, rows in check.places():
        place.open()
        place.deliver(place.id(0, 0), rows.rows(0, 0))
        place.open(batch=0)
        place.check("after open() was called again, ")
        place.open(batch=1)  # the batch is committed, and the driver died before it was delivered
        place.deliver(place.id(0, 1), rows.rows(0, 1))
        place.check("the last committed batch may not have been delivered: ")


def _once(check: _SinkCheck) -> None:
    for place, rows in check.places():
        batches = [rows.rows(0, batch) for batch in range(3)]
        for batch, by in itertools.product(range(3), (place.sink, copied(place.sink))):
            place.deliver(place.id(0, batch), batches[batch], by, "" if by is place.sink else " by a copy")
            place.check()
        place.deliver(place.id(0, 1), batches[1], how=" once more, by a process that was slow")
        place.check()


def _parts(check: _SinkCheck) -> None:
    for place, rows in check.places():
        for batch, parts in enumerate([(0, 1, 2), (2, 1, 0), (1,), (7, 0), (2, 7)]):
            number = 3 * batch  # not every batch has rows
            for part in parts:
                place.deliver(place.id(part, number), rows.rows(part, number))
                place.check()
            for part in reversed(parts):
                place.deliver(place.id(part, number), place.delivered[place.id(part, number)], how=" again")
            place.check()


def _identity(check: _SinkCheck) -> None:
    for place, rows in check.places():
        if place.sink.encoding == "upsert":
            continue
        place.deliver(place.id(0, 0), rows.rows(0, 0))
        others = {
            "part": place.id(1, 0),
            "output": place.id(0, 0, output=1),
            "query": place.id(0, 0, query=f"{place.query}-2"),
        }
        for what, delivery in others.items():
            if what != "part":
                place.open(query=delivery.query, output=delivery.output)
            place.deliver(delivery, rows.rows(delivery.part, 0))
            place.check(f"another {what} is another delivery: ")


def _cti(check: _SinkCheck) -> None:
    if "events" not in check.encodings:
        raise Skipped("the adapter does not accept physical events")
    place, rows = check.place("events", ())
    for batch in range(3):
        if batch != 1:  # a batch may have no rows, and a CTI
            place.deliver(place.id(0, batch), rows.rows(0, batch))
        for how in ("", " again"):
            place.deliver(place.id(-1, batch), rows.cti(batch), how=how)
            place.check()


def _upsert(check: _SinkCheck) -> None:
    place = check.upsert_place(("k",))
    rows = Batches(place, check.seed)
    for batch in range(12):
        for part in (0, 1):
            place.deliver(place.id(part, batch), rows.rows(part, batch, 1 + batch % 2))
            place.check()


def _keys(check: _SinkCheck) -> None:
    names = check.columns.names[:2]
    place = check.upsert_place(names)
    payload = sample_rows(check.columns, 6, 3)
    keys = [*zip(*(payload[name].to_pylist() for name in names), strict=True)]
    keys[1], keys[2] = (keys[0][0], keys[1][1]), (None, keys[0][1])
    for i, name in enumerate(names):
        column = pa.array([key[i] for key in keys], payload.schema.field(name).type)
        payload = payload.set_column(i, payload.schema.field(name), column)
    for batch, weight in enumerate((1, 1, -1)):  # the same keys are written, replaced and deleted
        le = np.full(3, 100 * batch, np.int64)
        changes = Changes(le, le + 50, np.full(3, weight, np.int64), payload)
        rows = rows_of(changes, place.sink, batch)
        try:
            place.deliver(place.id(0, batch), rows)
        except SinkError:  # a place that cannot have nulls in a key says so
            if batch == 0:
                return
            raise
        place.check("keys of two columns, nulls among them: ")


def _process(check: _SinkCheck) -> None:
    for place, rows in check.places():
        for batch in range(2):
            delivery, table = place.id(0, batch), rows.rows(0, batch)
            place.expect(delivery, table, " in a new process")
            call_elsewhere(deliver_patiently, place.sink, [(delivery, table)])
            place.deliver(delivery, table, how=" here")
            place.check()


def _crash(check: _SinkCheck) -> None:
    for place, rows in check.places():
        first = place.id(0, 0), rows.rows(0, 0)
        place.expect(*first)
        lines = lines_of(deliver_patiently, place.sink, [first])
        step = max(1, -(-lines // max(1, check.kills)))
        for batch, line in enumerate(range(0, lines, step), 1):
            delivery, table = place.id(0, batch), rows.rows(0, batch)
            check.example.begin(f"sink = make({place.sink.encoding!r}, {place.sink.key})")
            ended = start_call(deliver_patiently, place.sink, [(delivery, table)], dies_at=line).result()
            where = ended.where if isinstance(ended, Death) else "nowhere"
            place.expect(delivery, table, f"; its process is killed at {where}")
            place.deliver(delivery, table, how=" again, by another process")
            place.check()
        _kill_at_random(check, place, rows)


def _kill_at_random(check: _SinkCheck, place: Place, rows: Batches) -> None:
    """Processes that deliver several batches are killed from outside."""
    rng = random.Random(check.seed)  # noqa: S311 - not a secret
    for start in range(1000, 1050, 10):
        deliveries = [(place.id(0, batch), rows.rows(0, batch)) for batch in range(start, start + 8)]
        check.example.begin(f"deliver batches {start} to {start + 7}; the process is killed at some moment")
        call = start_call(deliver_patiently, place.sink, deliveries)
        sleep(rng.random() * 0.06)
        call.kill()
        call.result()
        for delivery, table in deliveries:
            place.deliver(delivery, table, how=" again")
        place.check()


def _race(check: _SinkCheck) -> None:
    for place, rows in check.places():
        for batch in range(3):
            delivery, table = place.id(0, batch), rows.rows(0, batch)
            place.expect(delivery, table, " by two processes at once")
            calls = [start_call(deliver_patiently, place.sink, [(delivery, table)], waits=True) for _ in range(2)]
            for call in calls:
                call.ready()
            for call in calls:
                call.begin()
            failures = []
            for call in calls:
                try:
                    call.result()
                except SinkError as error:  # one of two may be shut out
                    failures.append(error)
            if len(failures) == len(calls):
                raise Broken(f"both failed: {failures[0]}")
            place.deliver(delivery, table, how=" again")
            place.check()


def _threads(check: _SinkCheck) -> None:
    for place, rows in check.places():
        for batch in range(2):
            deliveries = [(place.id(part, batch), rows.rows(part, batch)) for part in range(_THREADS)]
            for pair in deliveries:
                place.expect(*pair, " by a thread of its own")
            with ThreadPoolExecutor(_THREADS) as threads:
                calls = [threads.submit(deliver_patiently, place.sink, [pair]) for pair in deliveries]
                for call in calls:
                    call.result()
            place.check()


def _close(check: _SinkCheck) -> None:
    for place, rows in check.places():
        place.deliver(place.id(0, 0), rows.rows(0, 0))
        place.example.add("close(); close()")
        place.sink.close()
        place.sink.close()
        place.open(batch=0)
        place.deliver(place.id(0, 1), rows.rows(0, 1))
        place.check("after close(), ")


def _unavailable(check: _SinkCheck) -> None:
    if check.outage is None:
        raise Skipped("outage= was not given")
    for place, rows in check.places():
        delivery, table = place.id(0, 0), rows.rows(0, 0)
        with check.outage():
            place.expect(delivery, table, " while the place does not answer")
            try:
                place.sink.deliver(delivery, table)
            except Unavailable:
                pass
            except Exception as error:
                raise Broken(f"it raised {type(error).__name__}: {error}; Unavailable lets it be repeated") from error
            else:
                raise Broken("the call succeeded, although the place does not answer")
        place.deliver(delivery, table, how=" when it answers again")
        place.check()


def _query(check: _SinkCheck) -> None:
    """Queries into the sink; every run is longer than the one before, and one more driver dies."""
    for run, encoding in itertools.product(range(check.runs), check.encodings):
        place, _ = check.place(encoding, _key(encoding), opened=False)
        rng = random.Random(f"{check.seed} {run} {encoding}")  # noqa: S311 - not a secret
        with tempfile.TemporaryDirectory() as folder:
            place.columns, place.delivered = _driven(place, Path(folder), rng, run, check.example)
        place.check("after a query, ")


def _driven(
    place: Place, folder: Path, rng: random.Random, run: int, example: Example
) -> tuple[Schema, dict[Any, pa.Table]]:
    """Run a query into the sink of a place; its columns, and what it delivered."""
    source = LogSource(str(folder / "log"), _LOG)
    for partition in ("a", "b"):
        source.add(partition)
    fate = Fate(example)
    rows = Rows(source.schema, "ts", ("a", "b"), source.append, _few_keys(), rng, example)
    rows.left = 4 + 8 * run
    delivered: dict[Any, pa.Table] = {}

    def totals() -> Stream:
        mortal = MortalSource(source, fate, {"a": 0, "b": 0})
        stream = read_source(mortal, lifetime=point("ts"), progress=advance(delay=DELAY))
        return stream.group_by("k").window(tumbling(WIDTH)).aggregate(total=sum("v"), n=count())

    def pairs() -> list[tuple[Stream, Sink]]:
        inner = copied(place.sink)
        return [(totals(), MortalSink(inner.encoding, inner.key, inner.ended, inner, fate, delivered))]

    rows.append()
    drive(folder, pairs, rows, rng, fate, run, place.query)
    return totals().schema, delivered


def _few_keys() -> pa.Table:
    keys = pa.array(["a", "b", "c", "a", "b"])
    return pa.table({"k": keys, "v": pa.array([1, 2, 3, 4, 5]), "ts": pa.array([0] * 5)})


_RULES = (
    ("value", "an adapter is a value: a pickled copy is equal to it", _value),
    ("text", "str() names the place, the same in every process, without secrets", _text),
    ("rows", "the place holds the rows that were delivered, in each encoding", _rows),
    ("upsert", "upserts replace the row of their key, and deletes remove it", _upsert),
    ("keys", "keys of several columns, and nulls in them", _keys),
    ("open", "open() may be called again, and the batch that it names may still come", _open),
    ("once", "a part that is delivered again is in the place once", _once),
    ("parts", "parts of a batch come in any order, and not every batch has each", _parts),
    ("identity", "deliveries are distinguished by query, output, part and batch", _identity),
    ("cti", "the CTI of a batch is a part of its own", _cti),
    ("threads", "several threads may deliver parts at once", _threads),
    ("close", "after close() another query may use the adapter", _close),
    ("unavailable", "a place that does not answer raises Unavailable, and nothing is lost", _unavailable),
    ("process", "another process may repeat a delivery", _process),
    ("crash", "after a crash at any line of the adapter the delivery is repeated, and is in the place once", _crash),
    ("race", "two processes may deliver the same part at once", _race),
    ("query", "a query whose driver dies at any step delivers every row once", _query),
)
