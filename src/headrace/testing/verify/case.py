"""One try: a query, the streams it is asked of, and how they reach it.

A stream reaches a query as physical events held in memory, or, where nothing of it is ever corrected, as rows of files
with a lifetime and a promise of their own: then ingress is tried as well, and rows may come too late. Everything about
a case follows from its seed and its number.
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
from headrace.testing.generators.stories import Promise, Told
from headrace.testing.generators.traits import Setting
from headrace.testing.generators.values import SCHEMA
from headrace.testing.intents.grouped import GROUPED
from headrace.testing.intents.transform import Concrete
from headrace.testing.order import Order

__all__ = [
    "ASKED_OF_GROUPS",
    "Feed",
    "PlainFeed",
    "VerifyCase",
    "case_of",
    "cut_randomly",
    "in_some_batches",
    "write_files",
]

_START, _END = "starts", "ends"
#: When the first file of a stream was written, in seconds.
_FIRST_FILE = 1_700_000_000
_LIFETIMES: tuple[Literal["interval", "point", "edge"], ...] = ("interval", "point", "point", "edge")
#: What is wanted of the rows of a file: all of them, or some.
_WANTED = (None, col("i") > 0, col("k") == "a")
#: Kinds of queries that run a query for each group. History translates that for all groups at once, as it runs; that
#: groups stay apart is for the twins to say.
_APPLIED = tuple(kind.name for kind in GROUPED)
ASKED_OF_GROUPS = ("twins",)
#: Of signals: the first column of generated streams.
_KEY = SCHEMA.names[0]


class Feed(Protocol):
    """How a stream reaches a query."""

    @property
    def physical(self) -> bool:
        """Whether it comes as events, of which only the history counts."""

    def stream(self, told: Told, folder: Path) -> Stream:
        """The stream, in files below the folder if it comes in files."""


@dataclass(frozen=True)
class PlainFeed:
    """As events in memory, or as rows in files that make promises of this kind and have such lifetimes.

    Of some files only part of the rows is wanted; the others still say how far time has come.
    """

    setting: Setting
    promise: Advance | None = None
    lifetime: Literal["interval", "point", "edge"] = "interval"
    wanted: Expr | None = None

    @property
    def physical(self) -> bool:
        return self.promise is None

    def stream(self, told: Told, folder: Path) -> Stream:
        """The stream, in files below the folder if it is fed as rows."""
        if self.promise is None:
            return speculated(told.stream(), self.setting, told.schema.names[0])
        columns = Schema((*told.schema, Field(_START, Type.LONG), Field(_END, Type.LONG)))
        rows = told.table()
        table = pa.table([*(rows[name] for name in told.schema.names), rows["le"], rows["re"]], schema=columns.arrow)
        write_files(table, told.cuts, folder)
        lifetimes: dict[str, Lifetime] = {
            "interval": interval(_START, _END),
            "point": point(_START),
            "edge": edge(_START, _KEY),
        }
        read = read_parquet(str(folder), columns, lifetime=lifetimes[self.lifetime], progress=self.promise)
        wanted = read if self.wanted is None else read.where(self.wanted)
        return wanted.select(*told.schema.names)

    def __str__(self) -> str:
        if self.promise is None:
            how = self.setting["speculation"]
            return "events" if how in ("certain", "revised") else f"events, {how}"
        where = "" if self.wanted is None else f", where {self.wanted}"
        return f"rows of files, {self.lifetime}, {self.promise}{where}"


@dataclass(frozen=True)
class VerifyCase:
    """A query over streams that were made up for it."""

    query: Callable[[Sequence[Stream]], Stream]
    streams: tuple[Told, ...]
    feeds: tuple[Feed, ...]
    buckets: int
    #: `seed:number`, which is all that it takes to make it again.
    name: str
    #: The query in words, and as a program over `s0`, `s1`, ….
    says: str
    python: str = ""
    covers: dict[str, str] = field(default_factory=dict)
    #: What the query's author says its answers are like (rule 10.2).
    shape: Shape = "interval"
    order: Order = "corrections"
    #: What it was made for, as text.
    intent: str = ""
    #: Checks that say nothing here, and those that are not left to chance.
    skips: frozenset[str] = frozenset()
    asks: tuple[str, ...] = ()

    @property
    def random(self) -> Random:
        """Where everything that is left to chance comes from, the same each time it is asked."""
        return Random(f"{self.name} {self.says}")  # noqa: S311 - nothing secret

    def plan(self, folder: Path) -> Stream:
        """The query over its streams."""
        pairs = zip(self.feeds, self.streams, strict=True)
        streams = [feed.stream(told, folder / f"s{number}") for number, (feed, told) in enumerate(pairs)]
        with instants_may_meet():
            return self.query(streams)

    def over(self, streams: tuple[Told, ...]) -> VerifyCase:
        """The same query over other streams."""
        return replace(self, streams=streams)

    @property
    def interrupted(self) -> bool:
        """Whether its process dies on the way, and another goes on: every third case does."""
        return Random(f"{self.name} {self.says} dies").random() < 1 / 3  # noqa: S311 - nothing secret

    @property
    def rows(self) -> int:
        """How many rows its streams have."""
        return sum(map(len, self.streams))

    @property
    def physical(self) -> bool:
        """Whether all streams come as events, so that only their histories count."""
        return all(feed.physical for feed in self.feeds)


def write_files(table: pa.Table, cuts: Sequence[int], folder: Path) -> None:
    """Rows as files, a batch each, whose times of change say in which order they came."""
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
    told, feeds = [], []
    for setting in query.settings:
        # A stream that a fragment makes speculative may have been revised before it gets there.
        plain = setting["speculation"] in ("certain", "revised") or random.random() < 1 / 2
        told_as = setting if plain else {**setting, "speculation": "revised"}
        stream = generate(SCHEMA, told_as, random.randrange(2**32), size=size)
        feed = PlainFeed(setting)
        if setting["speculation"] == "certain" and random.random() < 0.5:
            lifetime = random.choice(_LIFETIMES)
            feed = PlainFeed(setting, _promise(random, lifetime), lifetime, random.choice(_WANTED))
            stream = replace(stream, steps=tuple(step for step in stream.steps if isinstance(step, int)), cuts=())
        told.append(in_some_batches(stream, random))
        feeds.append(feed)
    if len(told) > 1 and random.random() < 1 / 2:  # all but one are there from the start
        slow = random.randrange(len(told))
        told = [one if number == slow else one.in_batches() for number, one in enumerate(told)]
    covers = (
        query.covers()
        | {"operator": _operators(query)}
        | {"fed as": " + ".join(dict.fromkeys("rows" if f.promise else "events" for f in feeds))}
    )
    return VerifyCase(
        query.build,
        tuple(told),
        tuple(feeds),
        random.choice((1, 1, 2, 3)),
        name,
        str(query),
        query.python(),
        covers,
        asks=ASKED_OF_GROUPS if any(one.kind in _APPLIED for one in query.walk()) else (),
    )


def _operators(query: Concrete) -> str:
    """The kinds of queries in it, those per window with the kind of window."""
    kinds = [
        f"{one.kind} over {one.options['window']}" if "window" in one.options else one.kind for one in query.walk()
    ]
    return " + ".join(dict.fromkeys(kinds))


def _promise(random: Random, lifetime: str) -> Advance:
    late = random.choice(("drop", "divert", "adjust"))
    if lifetime != "interval" and late == "adjust":  # nothing would be left of an instant
        late = "divert"
    return advance(random.choice((0, 0, 2, 10, 60)), random.choice((1, 5)), late)  # type: ignore[arg-type]


def in_some_batches(told: Told, random: Random) -> Told:
    """The stream in batches that end anywhere or, as those of a source that punctuates do, with its CTIs."""
    ends = [number for number, step in enumerate(told.steps, 1) if isinstance(step, Promise) and number < len(told)]
    if ends and random.random() < 3 / 4:
        return told.in_batches([b - a for a, b in pairwise([0, *ends, len(told)])])
    return told.in_batches(cut_randomly(len(told), random))


def cut_randomly(rows: int, random: Random) -> tuple[int, ...]:
    """Sizes of batches that sum to so many rows: one batch, several, or one for every few rows."""
    if rows < 2:
        return ()
    batches = min(rows, random.choice((1, 2, 3, 5, 8)))
    places = sorted(random.sample(range(1, rows), batches - 1))
    return tuple(b - a for a, b in zip([0, *places], [*places, rows], strict=True))
