"""A physical stream told as stories: each event with its corrections, and apart from them the order of arrival.

A list of physical rows is hard to make smaller: without its insert a retraction makes no sense, and one time that moves
must move in every row that names it. Here an event is a *story* (a start, its first end, every corrected end), and a
stream is stories and *steps*: the number of the story whose next end arrives, or a promise (a CTI). Whatever is taken
away, what is left is a stream that makes sense.

>>> from headrace.schema import Schema
>>> long, short = Story(1, (10, 5), {"p": "P1"}), Story(4, (9,), {"p": "P2"})
>>> print(Told(Schema.of("p STRING"), (long, short), (0, 1, 0, Promise(5))).drawn())
kind    | le | re | re_new | p
insert  | 1  | 10 |        | P1
insert  | 4  | 9  |        | P2
retract | 1  | 10 | 5      | P1
cti     | 5  |    |        |
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from headrace.api.inputs import events as stream_of
from headrace.api.stream import Stream
from headrace.drawn import read_drawn
from headrace.errors import HeadraceError
from headrace.events import CONTROL, FARTHEST, physical_schema
from headrace.schema import Schema
from headrace.time import INFINITY, NEG_INFINITY, format_ticks

__all__ = ["Promise", "Step", "Story", "Told"]


@dataclass(frozen=True)
class Promise:
    """A CTI: nothing that arrives later has a sync time before it."""

    time: int


Step = int | Promise


@dataclass(frozen=True)
class Story:
    """An event and its corrections: its ends in the order in which they are told.

    The last end may equal `le`: then the event is deleted. Any end may be `INFINITY`.
    """

    le: int
    ends: tuple[int, ...]
    payload: Mapping[str, Any]

    @property
    def re(self) -> int:
        """Where it ends when all corrections are made; `le` when it is deleted."""
        return self.ends[-1]

    def sync(self, number: int) -> int:
        """The earliest instant that the telling of this end changes (rule 2.4)."""
        return self.le if number == 0 else min(self.ends[number - 1], self.ends[number])

    def sensible(self) -> bool:
        """Whether these are the ends of one event: none before its start, none twice in a row, none once deleted."""
        if not self.ends or abs(self.le) >= FARTHEST:
            return False
        alive = all(end > self.le for end in self.ends[:-1]) and self.ends[0] > self.le <= self.re
        near = all(end == INFINITY or end < FARTHEST for end in self.ends)
        return alive and near and all(a != b for a, b in zip(self.ends, self.ends[1:], strict=False))


@dataclass(frozen=True)
class Told:
    """A physical stream: stories, the steps in which they are told, and how many steps each batch has."""

    schema: Schema
    stories: tuple[Story, ...]
    steps: tuple[Step, ...]
    cuts: tuple[int, ...] = ()

    def __len__(self) -> int:
        """How many rows it has."""
        return len(self.steps)

    def told(self) -> Iterator[tuple[int, int] | Promise]:
        """The steps, each with which end of its story it tells."""
        seen: Counter[int] = Counter()
        for step in self.steps:
            if isinstance(step, Promise):
                yield step
            else:
                yield step, seen[step]
                seen[step] += 1

    def events(self) -> list[dict[str, Any]]:
        """The physical events in the order in which they arrive."""
        nothing = dict.fromkeys(self.schema.names)
        rows: list[dict[str, Any]] = []
        for step in self.told():
            if isinstance(step, Promise):
                rows.append({"kind": "cti", "le": step.time, "re": None, "re_new": None, **nothing})
                continue
            story, end = self.stories[step[0]], step[1]
            first, last = ("insert", None) if end == 0 else ("retract", story.ends[end])
            payload = {name: story.payload[name] for name in self.schema.names}
            rows.append({"kind": first, "le": story.le, "re": story.ends[max(end - 1, 0)], "re_new": last, **payload})
        return rows

    def table(self) -> pa.Table:
        """The physical events as a table."""
        return pa.Table.from_pylist(self.events(), schema=physical_schema(self.schema))

    def legal(self) -> bool:
        """Whether every story makes sense and is told to its end, no promise is broken (rule 3.1), and CTIs rise."""
        times = Counter(step for step in self.steps if not isinstance(step, Promise))
        if times != Counter({number: len(story.ends) for number, story in enumerate(self.stories)}):
            return False
        if self.cuts and (sum(self.cuts) != len(self.steps) or min(self.cuts) < 1):
            return False
        return all(story.sensible() for story in self.stories) and self._keeps_promises()

    def _keeps_promises(self) -> bool:
        cti = NEG_INFINITY
        for step in self.told():
            if isinstance(step, Promise):
                if step.time <= cti:
                    return False
                cti = step.time
            elif self.stories[step[0]].sync(step[1]) < cti:
                return False
        return True

    def history(self) -> list[tuple[int, int, dict[str, Any]]]:
        """What is left when all corrections are made (rule 1.4)."""
        return [(story.le, story.re, dict(story.payload)) for story in self.stories if story.re > story.le]

    def in_batches(self, cuts: Sequence[int] = ()) -> Told:
        """The same stream, delivered in other batches."""
        return replace(self, cuts=tuple(cuts))

    def stream(self) -> Stream:
        """The stream, to ask queries of."""
        return stream_of(self.table(), self.schema.arrow, batches=self.cuts)

    def drawn(self) -> str:
        """The events as text, ready to paste into `hr.events(…, schema)`.

        It is a drawn table, or, when a value is none that a drawn table can hold, a list of dicts in Python.
        """
        rows = self.events()
        lines = [[*CONTROL, *self.schema.names], *(_cells(row) for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = "\n".join(" | ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
        return text if self._reads_back(text) else _python(rows)

    def _reads_back(self, text: str) -> bool:
        try:
            read = read_drawn(text, self.schema)
        except HeadraceError:
            return False
        # As text, NaN equals NaN and -0.0 is not 0.0.
        return repr(read.to_pylist()) == repr(self.table().to_pylist())


def _cells(row: Mapping[str, Any]) -> list[str]:
    times = ["" if row[name] is None else format_ticks(row[name]) for name in CONTROL[1:]]
    return [row["kind"], *times, *(_cell(value) for name, value in row.items() if name not in CONTROL)]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f'"{value}"' if value != value.strip() or value[:1] in ("", '"') else value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat()
    return f"[{', '.join(map(_cell, value))}]" if isinstance(value, list) else repr(value)


def _python(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [", ".join(f"{name!r}: {_literal(value, name)}" for name, value in row.items()) for row in rows]
    return "\n".join(["[", *(f"    {{{line}}}," for line in lines), "]"])


def _literal(value: Any, name: str = "") -> str:
    if name in CONTROL and value in (INFINITY, NEG_INFINITY):
        return repr("inf" if value == INFINITY else "-inf")
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, datetime):
        return f'datetime.fromisoformat("{value.isoformat()}")'
    return f"[{', '.join(map(_literal, value))}]" if isinstance(value, list) else repr(value)
