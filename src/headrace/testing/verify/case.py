"""A case: a query, its streams, and how they reach it.

A stream reaches a query as physical events held in memory, or, if it has no corrections, as rows of files with a
lifetime and a promise of their own: that tests ingress as well, and rows may be late. Seed and number determine a case.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Literal, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.api.checks import instants_may_meet
from headrace.api.inputs import advance, edge, interval, point, read_parquet
from headrace.api.stream import Stream
from headrace.expr import Expr, col
from headrace.plan.policies import Advance, Lifetime
from headrace.schema import Field, Schema, Type
from headrace.testing.checks import Shape
from headrace.testing.generators.generate import generate, speculated
from headrace.testing.generators.stories import Promise, StoryStream
from headrace.testing.generators.traits import Setting
from headrace.testing.generators.values import SCHEMA
from headrace.testing.intents.grouped import GROUPED
from headrace.testing.intents.transform import Concrete
from headrace.testing.order import Order

__all__ = [
    "GROUP_CHECKS",
    "Feed",
    "PlainFeed",
    "VerifyCase",
    "case_of",
    "cut_randomly",
    "in_some_batches",
    "write_files",
]

_START, _END = "starts", "ends"
#: The modification time of the first file of a stream, in seconds.
_FIRST_FILE = 1_700_000_000
_LIFETIMES: tuple[Literal["interval", "point", "edge"], ...] = ("interval", "point", "point", "edge")
#: Conditions on the rows of a file; None keeps all of them.
_CONDITIONS = (None, col("i") > 0, col("k") == "a")
#: Kinds of queries that run a query for each group. The history translates that for all groups at once, as the engine
#: does; only the twins show that groups stay separate.
_APPLIED = tuple(kind.name for kind in GROUPED)
GROUP_CHECKS = ("twins",)
#: Of signals: the first column of generated streams.
_KEY = SCHEMA.names[0]


class Feed(Protocol):
    """How a stream reaches a query."""

    @property
    def physical(self) -> bool:
        """Whether it comes as events, where only the history matters."""

    def stream(self, generated: StoryStream, folder: Path) -> Stream:
        """The stream, in files below the folder if it comes in files."""


@dataclass(frozen=True)
class PlainFeed:
    """Feed events from memory, or rows from files with a promise and a lifetime.

    A condition may drop rows; dropped rows still advance time.
    """

    setting: Setting
    promise: Advance | None = None
    lifetime: Literal["interval", "point", "edge"] = "interval"
    condition: Expr | None = None

    @property
    def physical(self) -> bool:
        return self.promise is None

    def stream(self, generated: StoryStream, folder: Path) -> Stream:
        """The stream, in files below the folder if it is fed as rows."""
        if self.promise is None:
            return speculated(generated.stream(), self.setting, generated.schema.names[0])
        columns = Schema((*generated.schema, Field(_START, Type.LONG), Field(_END, Type.LONG)))
        rows = generated.table()
        table = pa.table(
            [*(rows[name] for name in generated.schema.names), rows["le"], rows["re"]], schema=columns.arrow
        )
        write_files(table, generated.cuts, folder)
        lifetimes: dict[str, Lifetime] = {
            "interval": interval(_START, _END),
            "point": point(_START),
            "edge": edge(_START, _KEY),
        }
        read = read_parquet(str(folder), columns, lifetime=lifetimes[self.lifetime], progress=self.promise)
        condition = read if self.condition is None else read.where(self.condition)
        return condition.select(*generated.schema.names)

    def __str__(self) -> str:
        if self.promise is None:
            how = self.setting["speculation"]
            return "events" if how in ("certain", "revised") else f"events, {how}"
        where = "" if self.condition is None else f", where {self.condition}"
        return f"rows of files, {self.lifetime}, {self.promise}{where}"


@dataclass(frozen=True)
class VerifyCase:
    """A query over generated streams."""

    query: Callable[[Sequence[Stream]], Stream]
    streams: tuple[StoryStream, ...]
    feeds: tuple[Feed, ...]
    buckets: int
    #: `seed:number`, which reproduces the case.
    name: str
    #: The query in words, and as a program over `s0`, `s1`, ….
    says: str
    python: str = ""
    covers: dict[str, str] = field(default_factory=dict)
    #: The shape and order that the query's author declares (rule 10.2).
    shape: Shape = "interval"
    order: Order = "corrections"
    #: The intent of the case, as text.
    intent: str = ""
    #: Checks that do not apply, and checks that always run.
    skips: frozenset[str] = frozenset()
    asks: tuple[str, ...] = ()

    @property
    def random(self) -> Random:
        """The random generator of the case, with the same seed each time."""
        return Random(f"{self.name} {self.says}")  # noqa: S311 - nothing secret

    def plan(self, folder: Path) -> Stream:
        """The query over its streams."""
        pairs = zip(self.feeds, self.streams, strict=True)
        streams = [feed.stream(stream, folder / f"s{number}") for number, (feed, stream) in enumerate(pairs)]
        with instants_may_meet():
            return self.query(streams)

    def with_streams(self, streams: tuple[StoryStream, ...]) -> VerifyCase:
        """The same query over other streams."""
        return replace(self, streams=streams)

    @property
    def interrupted(self) -> bool:
        """Whether its process dies and another continues; true for every third case."""
        return Random(f"{self.name} {self.says} dies").random() < 1 / 3  # noqa: S311 - nothing secret

    @property
    def rows(self) -> int:
        """The number of rows of its streams."""
        return sum(map(len, self.streams))

    @property
    def physical(self) -> bool:
        """Whether all streams come as events, so that only their histories matter."""
        return all(feed.physical for feed in self.feeds)


def write_files(table: pa.Table, cuts: Sequence[int], folder: Path) -> None:
    """Write rows as files, one per batch, whose modification times give their order."""
    folder.mkdir(parents=True, exist_ok=True)
    start = 0
    for number, size in enumerate(cuts or (table.num_rows,)):
        path = folder / f"{number:04}.parquet"
        pq.write_table(table.slice(start, size), path)
        os.utime(path, (_FIRST_FILE + number, _FIRST_FILE + number))
        start += size


def case_of(query: Concrete, seed: int, number: int) -> VerifyCase:
    """A case for a query of the catalogue."""
    name = f"{seed}:{number}"
    random = Random(f"{name} {query}")  # noqa: S311 - nothing secret
    size = random.choice((0, 3, 6, 9, 9, 12, 12, 16, 16, 24))
    streams, feeds = [], []
    for setting in query.settings:
        # A stream that a fragment makes speculative may also have revisions of its own.
        plain = setting["speculation"] in ("certain", "revised") or random.random() < 1 / 2
        stream_setting = setting if plain else {**setting, "speculation": "revised"}
        stream = generate(SCHEMA, stream_setting, random.randrange(2**32), size=size)
        feed = PlainFeed(setting)
        if setting["speculation"] == "certain" and random.random() < 0.5:
            lifetime = random.choice(_LIFETIMES)
            feed = PlainFeed(setting, _promise(random, lifetime), lifetime, random.choice(_CONDITIONS))
            stream = replace(stream, steps=tuple(step for step in stream.steps if isinstance(step, int)), cuts=())
        streams.append(in_some_batches(stream, random))
        feeds.append(feed)
    if len(streams) > 1 and random.random() < 1 / 2:  # all but one arrive in the first batch
        slow = random.randrange(len(streams))
        streams = [item if number == slow else item.in_batches() for number, item in enumerate(streams)]
    covers = (
        query.covers()
        | {"operator": _operators(query)}
        | {"fed as": " + ".join(dict.fromkeys("rows" if f.promise else "events" for f in feeds))}
    )
    return VerifyCase(
        query.build,
        tuple(streams),
        tuple(feeds),
        random.choice((1, 1, 2, 3)),
        name,
        str(query),
        query.python(),
        covers,
        asks=GROUP_CHECKS if any(item.kind in _APPLIED for item in query.walk()) else (),
    )


def _operators(query: Concrete) -> str:
    """The kinds of the queries in it; those per window with the kind of window."""
    kinds = [
        f"{part.kind} over {part.options['window']}" if "window" in part.options else part.kind for part in query.walk()
    ]
    return " + ".join(dict.fromkeys(kinds))


def _promise(random: Random, lifetime: str) -> Advance:
    late = random.choice(("drop", "divert", "adjust"))
    if lifetime != "interval" and late == "adjust":  # an instant has no later part to keep
        late = "divert"
    return advance(random.choice((0, 0, 2, 10, 60)), random.choice((1, 5)), late)  # type: ignore[arg-type]


def in_some_batches(stream: StoryStream, random: Random) -> StoryStream:
    """The stream in batches that end anywhere or, as for a source with punctuation, with its CTIs."""
    ends = [number for number, step in enumerate(stream.steps, 1) if isinstance(step, Promise) and number < len(stream)]
    if ends and random.random() < 3 / 4:
        return stream.in_batches([b - a for a, b in pairwise([0, *ends, len(stream)])])
    return stream.in_batches(cut_randomly(len(stream), random))


def cut_randomly(rows: int, random: Random) -> tuple[int, ...]:
    """Random batch sizes that sum to `rows`: one batch, several, or one for every few rows."""
    if rows < 2:
        return ()
    batches = min(rows, random.choice((1, 2, 3, 5, 8)))
    places = sorted(random.sample(range(1, rows), batches - 1))
    return tuple(b - a for a, b in zip([0, *places], [*places, rows], strict=True))
