"""Cases for a user's own query, over streams generated for its sources.

The streams have the columns, the types and the lifetimes of the sources. Times match the durations in the query, and
values come from the constants that it compares with, so that its conditions are sometimes true.
A source of rows with a lifetime of their own gets rows in files, with its own promises, unless corrections are wanted:
then, and where its times are not plain columns, it is replaced by physical events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from headrace.api.stream import Stream
from headrace.errors import IntentError
from headrace.expr import Expr
from headrace.expr.nodes import Column, Literal
from headrace.io.formats import Format
from headrace.io.keyed_changes import ENCODINGS
from headrace.io.origins import Events, Files
from headrace.plan.group_apply import GroupApply, GroupInput
from headrace.plan.nodes import Admit, Node, PerWindow, Recurse, Source, sources_of, walk
from headrace.plan.policies import Advance, Changed, Edge, Explicit, Interval, Physical
from headrace.schema import ARRIVAL, POSITION, STAMPS, Field, Schema, Type
from headrace.testing.generators.generate import Pattern, generate
from headrace.testing.generators.stories import Story, StoryStream
from headrace.testing.generators.traits import DIMENSIONS, Setting, Traits
from headrace.testing.intents.pairwise import pairwise
from headrace.testing.verify.case import GROUP_CHECKS, VerifyCase, in_some_batches, write_files
from headrace.time import INFINITY

__all__ = ["over_sources", "own_cases"]

#: The column with the time of a row, where the source computes it.
_AT = "_at"
#: In units, longer than any drawn lifetime: for columns that have no value for "never".
_LONGEST = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATIONS = ("size", "hop", "gap", "by", "duration")


def own_cases(node: Node, over: Traits, seed: int, pattern: Pattern | None = None) -> Iterator[VerifyCase]:
    """Cases for a query, without end; `pattern` is a user's own generator of lifetimes."""
    sources = sources_of(node)
    if not sources:
        raise IntentError("this query has no sources", given=node.describe())
    unit, pools = _unit(node, sources), _pools(node)
    settings = pairwise(_open(over), f"{seed} own")
    operators = dict.fromkeys(_operator(n) for n in walk(node) if not isinstance(n, (Admit, Source)))
    policies = dict.fromkeys(_policy(n) for n in walk(node) if isinstance(n, PerWindow) and n.modules)
    places = "\n".join(f"# s{i} stands for {source.origin}" for i, source in enumerate(sources))
    # Later times would change columns that hold times.
    skips = frozenset(["times"] if any(_time_columns(source) for source in sources) else [])

    asks = GROUP_CHECKS if any(isinstance(n, GroupApply) for n in walk(node)) else ()

    def query(streams: Sequence[Stream]) -> Stream:
        replacements = {source.fingerprint: s.node for source, s in zip(sources, streams, strict=True)}
        return Stream(over_sources(node, replacements))

    for number, row in zip(count(), settings, strict=False):
        name = f"{seed}:{number}"
        random = Random(name)  # noqa: S311 - nothing secret
        streams, feeds = [], []
        for place, source in enumerate(sources):
            other = {name: random.choice((row[name], random.choice(values))) for name, values in _open(over).items()}
            setting = other if place else row
            feed = OwnFeed(source, setting, unit)
            size = random.choice((0, 3, 6, 12, 24, 40))
            start = random.randrange(2**32)
            stream = generate(
                _without_stamps(source.schema), setting, start, size=size, unit=unit, pools=pools, pattern=pattern
            )
            stream = feed.adapt(stream)
            streams.append(in_some_batches(stream, random))
            feeds.append(feed)

        covers = {
            name: " + ".join(dict.fromkeys(values))
            for name in row
            if (values := [feed.covers[name] for feed in feeds if name in feed.covers])
        }
        covers |= {"operator": " + ".join(operators), "policy": " + ".join(policies)}
        buckets = random.choice((1, 1, 2, 3))
        yield VerifyCase(
            query, tuple(streams), tuple(feeds), buckets, name, node.describe(), places, covers, skips=skips, asks=asks
        )


def _open(over: Traits) -> dict[str, tuple[str, ...]]:
    """The values that may vary; corrections come from the stream, not from a query before the user's."""
    found = {name: over.open(name) for name in DIMENSIONS}
    plain = tuple(value for value in found["speculation"] if value in ("certain", "revised"))
    return found | {"speculation": plain or ("revised",)}


def _operator(node: Node) -> str:
    if isinstance(node, PerWindow):
        return f"{type(node).__name__} over {str(node.window).partition('(')[0]}"
    return type(node).__name__


def _policy(node: PerWindow) -> str:
    return f"{node.policy.clipping} {node.timestamping}"


# --- sources ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnFeed:
    """How a generated stream replaces a user's source."""

    source: Source
    setting: Setting
    unit: int

    @property
    def physical(self) -> bool:
        """Whether it comes as physical events: if the source has them, or if corrections are needed."""
        if isinstance(self.source.lifetime, Physical):
            return True
        plain = _time_columns(self.source) is not None
        return not isinstance(self.source.lifetime, Edge) and (self.setting["speculation"] != "certain" or not plain)

    @property
    def covers(self) -> dict[str, str]:
        """The part of its setting that has an effect: rows have no CTIs or corrections, points no other duration."""
        shown = dict(self.setting)
        if not self.physical:
            shown |= {"speculation": "certain"} | (
                {} if isinstance(self.source.lifetime, Interval) else {"duration": "points"}
            )
            del shown["ctis"]
        return shown

    def adapt(self, stream: StoryStream) -> StoryStream:
        """The stream adapted to its source: rows have no CTIs, points last one tick."""
        stories = stream.stories
        if ARRIVAL in self.source.schema:
            stream = _with_stamps(stream, self.source.schema)
            stories = stream.stories
        if not self.physical:
            first = tuple(replace(s, ends=(self._end(s.le, s.ends[0]),)) for s in stories)
            return StoryStream(stream.schema, tuple(map(self._with_times, first)), tuple(_firsts(stream)))
        return replace(stream, stories=tuple(map(self._with_times, stories)))

    def _end(self, le: int, re: int) -> int:
        if not isinstance(self.source.lifetime, Interval):
            return le + 1
        return min(re, le + _LONGEST * self.unit)

    def _with_times(self, story: Story) -> Story:
        """The story with its times in the columns that its lifetime is computed from; a change has an operation."""
        columns = _time_columns(self.source) or {}
        ends = {"start": story.le, "end": min(story.ends[0], story.le + _LONGEST * self.unit)}
        values: dict[str, Any] = {name: ends[end] for name, end in columns.items()}
        for name in columns:
            if self.source.columns[name].type is Type.DATETIME:
                values[name] = _EPOCH + timedelta(microseconds=values[name])
        lifetime = self.source.lifetime
        if isinstance(lifetime, Changed) and lifetime.op is not None:  # hardly any text is an operation
            known = ENCODINGS[lifetime.encoding].values
            values[lifetime.op] = known[story.le % len(known)]
        return replace(story, payload={**story.payload, **values})

    def stream(self, generated: StoryStream, folder: Path) -> Stream:
        """The stream that replaces the source."""
        if self.physical:
            origin = Events(generated.table(), generated.cuts)
            columns = Schema.of(generated.table().schema)
            stamped, dated = ARRIVAL in columns, self.source.dates
            source = Source(origin, columns, Physical(), Explicit("raise"), "raise", stamped=stamped, dated=dated)
            return Stream(Admit(source))
        names = generated.schema.names
        rows = [{name: s.payload[name] for name in names} | {_AT: s.le} for s in self._in_order(generated)]
        files = Files(str(folder), Format("parquet"), label=str(self.source.origin), holds_stamps=True)
        policy = self.source.policy
        late = "divert" if policy.late == "raise" else policy.late
        policy = replace(policy, late=late, max_skew=None) if isinstance(policy, Advance) else Explicit(late)
        source, columns = self.source, self.source.schema
        if _time_columns(source) is None:  # samples at a time that is computed: theirs is a column instead
            assert isinstance(source.lifetime, Edge)
            source = replace(source, lifetime=replace(source.lifetime, at=Column(_AT)), dated=source.dates)
            columns = Schema((*columns, Field(_AT, Type.LONG)))
        write_files(pa.Table.from_pylist(rows, schema=columns.arrow), generated.cuts, folder)
        fed = Stream(replace(source, origin=files, columns=columns, policy=policy, stamped=ARRIVAL in columns))
        return fed if columns == self.source.schema else fed.select(*self.source.schema.names)

    def _in_order(self, generated: StoryStream) -> list[Story]:
        return [generated.stories[step] for step in generated.steps if isinstance(step, int)]

    def __str__(self) -> str:
        return "events" if self.physical else f"rows of {self.source.origin}"


def _without_stamps(schema: Schema) -> Schema:
    return Schema(tuple(field for field in schema if field.name not in STAMPS))


def _with_stamps(stream: StoryStream, schema: Schema) -> StoryStream:
    """The stream with stamps in the order in which its stories first occur, never before a time in it."""
    stories, latest = list(stream.stories), None
    for position, number in enumerate(_firsts(stream)):
        story = stories[number]
        latest = story.le if latest is None else max(latest, story.le)
        stories[number] = replace(story, payload={**story.payload, ARRIVAL: latest, POSITION: position})
    return replace(stream, schema=schema, stories=tuple(stories))


def _firsts(stream: StoryStream) -> Iterator[int]:
    """The stories in the order in which they first occur."""
    seen: set[int] = set()
    for step in stream.steps:
        if isinstance(step, int) and step not in seen:
            seen.add(step)
            yield step


def _time_columns(source: Source) -> dict[str, str] | None:
    """Which columns hold the start and the end of a row's lifetime; None if they are not plain columns."""
    lifetime = source.lifetime
    if isinstance(lifetime, Physical):
        return {}
    exprs = {"start": lifetime.start, "end": lifetime.end} if isinstance(lifetime, Interval) else {"start": lifetime.at}
    found = {expr.column: end for end, expr in exprs.items() if isinstance(expr, Column)}
    known = all(name in source.schema and source.columns[name].type in (Type.LONG, Type.DATETIME) for name in found)
    return found if known and len(found) == len(exprs) else None


def over_sources(node: Node, replacements: Mapping[str, Node]) -> Node:
    """The plan with its sources replaced by other nodes, by fingerprint."""
    new: dict[str, Node] = {}

    def replaced(old: Node) -> Node:
        if old.fingerprint in new:
            return new[old.fingerprint]
        if isinstance(old, Source):
            result = replacements[old.fingerprint]
        elif isinstance(old, Admit):
            result = replaced(old.input)
        elif isinstance(old, GroupApply):
            group = GroupInput(replaced(old.group.input), old.group.number)
            new[old.group.fingerprint] = group
            result = replace(old, input=replaced(old.input), group=group, body=replaced(old.body))
        elif isinstance(old, GroupInput):
            result = GroupInput(replaced(old.input), old.number)
        elif isinstance(old, Recurse):
            result = replace(old.with_inputs(*map(replaced, old.inputs)), definition=replaced(old.definition))
        else:
            result = old.with_inputs(*map(replaced, old.inputs))
        new[old.fingerprint] = result
        return result

    return replaced(node)


# --- durations and constants ----------------------------------------------------------------------------------------


def _unit(node: Node, sources: Sequence[Source]) -> int:
    """A quarter of the shortest duration in the query."""
    holders: list[Any] = list(walk(node))
    holders += [n.window for n in walk(node) if isinstance(n, PerWindow)]
    found = [abs(value) for h in holders for name in _DURATIONS if isinstance(value := getattr(h, name, None), int)]
    found += [s.policy.delay for s in sources if isinstance(s.policy, Advance)]
    return max(1, min([value for value in found if 0 < value < INFINITY], default=4) // 4)


def _pools(node: Node) -> dict[str, list[Any]]:
    """For each column, the constants that it is compared with, and their neighbours."""
    found: dict[str, list[Any]] = {}
    for expr in (e for n in walk(node) for e in _exprs([getattr(n, f.name) for f in fields(n)])):
        below = [*_parts(expr)]
        values: list[Any] = [part.value for part in below if isinstance(part, Literal) and part.value is not None]
        for column in {part.column for part in below if isinstance(part, Column)}:
            for value in values:
                near = [value - 1, value, value + 1] if type(value) in (int, float) else [value]
                found.setdefault(column, []).extend(near)
    return found


def _exprs(value: Any) -> Iterator[Expr]:
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _exprs(part)


def _parts(expr: Expr) -> Iterator[Expr]:
    yield expr
    for child in expr.children:
        yield from _parts(child)
