"""A physical stream as stories (events with their corrections) and a separate order of arrival.

A list of physical rows is hard to make smaller: without its insert a retraction makes no sense, and one time that moves
must move in every row that names it. Here an event is a *story* (a start, its first end, every corrected end), and a
stream is stories and *steps*: the number of the story whose next end arrives, or a promise (a CTI). After any
removal, the rest is still a consistent stream.

>>> from headrace.schema import Schema
>>> long, short = Story(1, (10, 5), {"p": "P1"}), Story(4, (9,), {"p": "P2"})
>>> print(StoryStream(Schema.of("p STRING"), (long, short), (0, 1, 0, Promise(5))).drawn())
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
from datetime import date, datetime, time, timedelta
from typing import Any

import pyarrow as pa

from headrace.api.inputs import events as stream_of
from headrace.api.stream import Stream
from headrace.drawn import read_drawn
from headrace.errors import HeadraceError
from headrace.events import CONTROL, FARTHEST, physical_schema
from headrace.schema import Schema
from headrace.time import INFINITY, NEG_INFINITY, format_ticks

__all__ = ["Promise", "Step", "Story", "StoryStream"]


@dataclass(frozen=True)
class Promise:
    """A CTI: nothing that arrives later has a sync time before it."""

    time: int


Step = int | Promise


@dataclass(frozen=True)
class Story:
    """An event and its corrections: its ends in the order in which they arrive.

    The last end may equal `le`: then the event is deleted. Any end may be `INFINITY`.
    """

    le: int
    ends: tuple[int, ...]
    payload: Mapping[str, Any]

    @property
    def re(self) -> int:
        """The end after all corrections; `le` if the event is deleted."""
        return self.ends[-1]

    def sync(self, number: int) -> int:
        """The earliest instant that the arrival of this end changes (rule 2.4)."""
        return self.le if number == 0 else min(self.ends[number - 1], self.ends[number])

    def is_consistent(self) -> bool:
        """Whether the ends are consistent: none before the start, none twice in a row, none after the deletion."""
        if not self.ends or abs(self.le) >= FARTHEST:
            return False
        alive = all(end > self.le for end in self.ends[:-1]) and self.ends[0] > self.le <= self.re
        near = all(end == INFINITY or end < FARTHEST for end in self.ends)
        return alive and near and all(a != b for a, b in zip(self.ends, self.ends[1:], strict=False))


@dataclass(frozen=True)
class StoryStream:
    """A physical stream: stories, the steps in which they arrive, and the number of steps of each batch."""

    schema: Schema
    stories: tuple[Story, ...]
    steps: tuple[Step, ...]
    cuts: tuple[int, ...] = ()

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.steps)

    def numbered_steps(self) -> Iterator[tuple[int, int] | Promise]:
        """The steps, each with the number of its story and of the end that arrives."""
        seen: Counter[int] = Counter()
        for step in self.steps:
            if isinstance(step, Promise):
                yield step
            else:
                yield step, seen[step]
                seen[step] += 1

    def events(self) -> list[dict[str, Any]]:
        """The physical events in the order in which they arrive."""
        no_payload = dict.fromkeys(self.schema.names)
        rows: list[dict[str, Any]] = []
        for step in self.numbered_steps():
            if isinstance(step, Promise):
                rows.append({"kind": "cti", "le": step.time, "re": None, "re_new": None, **no_payload})
                continue
            story, end = self.stories[step[0]], step[1]
            first, last = ("insert", None) if end == 0 else ("retract", story.ends[end])
            payload = {name: story.payload[name] for name in self.schema.names}
            rows.append({"kind": first, "le": story.le, "re": story.ends[max(end - 1, 0)], "re_new": last, **payload})
        return rows

    def table(self) -> pa.Table:
        """The physical events as a table."""
        return pa.Table.from_pylist(self.events(), schema=physical_schema(self.schema))

    def is_legal(self) -> bool:
        """Whether every story is consistent and complete, no promise is broken (rule 3.1), and CTIs rise."""
        times = Counter(step for step in self.steps if not isinstance(step, Promise))
        if times != Counter({number: len(story.ends) for number, story in enumerate(self.stories)}):
            return False
        if self.cuts and (sum(self.cuts) != len(self.steps) or min(self.cuts) < 1):
            return False
        return all(story.is_consistent() for story in self.stories) and self._keeps_promises()

    def _keeps_promises(self) -> bool:
        cti = NEG_INFINITY
        for step in self.numbered_steps():
            if isinstance(step, Promise):
                if step.time <= cti:
                    return False
                cti = step.time
            elif self.stories[step[0]].sync(step[1]) < cti:
                return False
        return True

    def history(self) -> list[tuple[int, int, dict[str, Any]]]:
        """The history: the events after all corrections (rule 1.4)."""
        return [(story.le, story.re, dict(story.payload)) for story in self.stories if story.re > story.le]

    def in_batches(self, cuts: Sequence[int] = ()) -> StoryStream:
        """The same stream in other batches."""
        return replace(self, cuts=tuple(cuts))

    def stream(self) -> Stream:
        """The stream, as input for queries."""
        return stream_of(self.table(), self.schema.arrow, batches=self.cuts)

    def drawn(self) -> str:
        """The events as text, ready to paste into `hr.events(…, schema)`.

        It is a drawn table, or a Python list of dicts if a drawn table cannot hold a value.
        """
        rows = self.events()
        lines = [[*CONTROL, *self.schema.names], *(_cells(row) for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = "\n".join(" | ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
        return text if self._reads_back(text) else _python(rows)

    def _reads_back(self, text: str) -> bool:
        try:
            read, _ = read_drawn(text, self.schema)
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
    if isinstance(value, date):
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
    if isinstance(value, (time, timedelta)):
        return repr(value).removeprefix("datetime.")
    if isinstance(value, date):
        return f'date.fromisoformat("{value.isoformat()}")'
    return f"[{', '.join(map(_literal, value))}]" if isinstance(value, list) else repr(value)
