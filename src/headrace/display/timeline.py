"""A timeline: the lifetimes of a stream's events and their corrections, as an SVG picture.

Each event has a row, with its values beside it; where columns divide the picture (`by`), or there are more events than
rows, events that do not overlap share a row. What a correction has made untrue is dashed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headrace.display.axis import Axis
from headrace.display.svg import BLUE, INK, PAPER, RED, SOFT, YELLOW, dot, line, picture, spans, text
from headrace.display.tracks import Batches, Track, tracks_of
from headrace.display.words import clipped, counted, value_text
from headrace.errors import PlanError, SinkError, nearest
from headrace.schema import Schema
from headrace.time import INFINITY, NEG_INFINITY, TimeLike, ticks

__all__ = ["Timeline"]

#: Colours of groups; not yellow and red, which stand for corrections.
_GROUPS = (BLUE, "#2f855a", "#6b46c1", "#c05621", "#0e7490", "#b83280", "#5f6b0f", "#7b4a2d")
_GRID = "#e4e7eb"
_ROW, _GAP, _TOP, _MARGIN = 26.0, 12.0, 58.0, 16.0
_CHANGES = 1000  # that a picture looks at
_SIZES = {"rows": (1, 500), "width": (400, 4000)}
_LETTER = 0.56  # the usual width of a letter, by its size
_WORDS = 44  # letters of an event's values


@dataclass(frozen=True)
class _Placed:
    """A track in its row, in a colour, with what is written beside it."""

    track: Track
    row: int
    colour: str
    parts: list[tuple[str, str]]


@dataclass(frozen=True)
class Timeline:
    """A picture of a stream: notebooks show it, and `save` writes it."""

    schema: Schema
    batches: Batches
    by: tuple[str, ...] = ()
    start: int = NEG_INFINITY
    end: int = INFINITY
    rows: int = 40
    width: int = 900
    title: str = ""
    #: Whether its times are dates.
    dates: bool = False

    @classmethod
    def of(
        cls, schema: Schema, batches: Batches, by: str | Sequence[str] = (), *, start: TimeLike | None = None,
        end: TimeLike | None = None, **look: Any,
    ) -> Timeline:  # fmt: skip
        """A timeline; `by` names columns of the payload, `start` and `end` are times."""
        names = (by,) if isinstance(by, str) else tuple(by)
        for name in names:
            if name not in schema.names:
                close = nearest(str(name), schema.names)
                raise PlanError(
                    "plot divides a stream by its columns", given=name, allowed=", ".join(schema.names) or "(none)",
                    instead=f"by={close!r}" if close else "",
                )  # fmt: skip
        first = NEG_INFINITY if start is None else ticks(start)
        last = INFINITY if end is None else ticks(end)
        if first >= last:
            raise PlanError("plot shows the times from start to end", given=f"start={start!r}, end={end!r}",
                            allowed="a start before the end")  # fmt: skip
        for option, value in look.items():
            least, most = _SIZES.get(option, (0, 0))
            if option in _SIZES and not (type(value) is int and least <= value <= most):
                raise PlanError(f"plot takes a number as {option}", given=value, allowed=f"{least} to {most}")
        return cls(schema, batches, names, first, last, **look)

    @property
    def svg(self) -> str:
        """The picture, as the text of an SVG file."""
        return self._drawing.svg

    def save(self, path: str | Path) -> None:
        """Write the picture into a file: `out.svg`."""
        place = Path(path)
        if place.suffix.lower() != ".svg":
            raise SinkError("a timeline is an SVG picture", given=str(path), instead=str(place.with_suffix(".svg")))
        try:
            place.write_text(self.svg, encoding="utf-8")
        except OSError as error:
            raise SinkError(f"this file cannot be written: {error.strerror}", given=str(path)) from error

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f'<div style="max-width: 100%; overflow-x: auto">{self.svg}</div>'

    @cached_property
    def _drawing(self) -> _Drawing:
        return _Drawing(self)

    @property
    def summary(self) -> str:
        """How many events there are, and how many of them were corrected and withdrawn."""
        return self._drawing.summary

    def __repr__(self) -> str:
        return f"Timeline of {self.summary}; .save('timeline.svg') writes it"


class _Drawing:
    """The places of everything in a picture, and the picture."""

    def __init__(self, look: Timeline) -> None:
        self.look = look
        tracks, self.left_out = tracks_of(look.batches, by=look.by, start=look.start, end=look.end, most=_CHANGES)
        self.cti = max((p.cti for _, p in look.batches if p.cti < INFINITY), default=NEG_INFINITY)
        self.counts = len(tracks) + self.left_out, sum(t.corrected for t in tracks), sum(t.withdrawn for t in tracks)
        times = [t for track in tracks for v in track.versions for t in (v.le, v.re)]
        self.dates = look.dates
        self.groups = _groups(tracks, look.by)
        listed = not look.by and len(tracks) <= look.rows
        labels = [self._group(key) for key in self.groups] if look.by else [""]
        self.axis = self._axis(times, 60.0, 120.0)  # for the words of lifetimes
        if listed:
            labels = [self.axis.span(track.last.le, track.last.re) for track in tracks]
        words = max((_width(self._values(track)) for track in tracks), default=0.0)
        left = _MARGIN + min(look.width * 0.25, max(map(_letters, labels), default=0.0)) + 18
        self.axis = self._axis(times, left, (min(words, look.width * 0.34) if listed else 0.0) + 30)
        self.labels: dict[int, str] = {}
        self.placed = self._list(tracks, labels) if listed else self._pack()
        self.height = self._y(max((p.row for p in self.placed), default=0)) + _ROW / 2

    @property
    def summary(self) -> str:
        events, corrected, withdrawn = self.counts
        parts = [counted(events, "event")]
        parts += [f"{corrected:,} corrected"] if corrected else []
        return ", ".join([*parts, *([f"{withdrawn:,} withdrawn"] if withdrawn else [])])

    # --- places ------------------------------------------------------------------------------------------------------

    def _axis(self, times: list[int], left: float, margin: float) -> Axis:
        limits = [t for t in (self.look.start, self.look.end) if t not in (INFINITY, NEG_INFINITY)]
        finite = [t for t in times if t not in (INFINITY, NEG_INFINITY)] or [0, 1]
        low, high = min(finite), max(finite)
        if low <= self.cti <= high + (high - low) // 4:
            high = max(high, self.cti)
        pad = 0 if high > low + 1 else 1
        low, high = (self.look.start if self.look.start in limits else low - pad), high + pad
        high = self.look.end if self.look.end in limits else high
        if INFINITY in times and self.look.end == INFINITY:
            high += max(1, (high - low) // 12)
        return Axis(low, max(high, low + 1), left, self.look.width - margin, self.dates)

    def _list(self, tracks: list[Track], labels: list[str]) -> list[_Placed]:
        self.labels = dict(enumerate(labels))
        return [_Placed(t, i, YELLOW if t.corrected else BLUE, self._values(t)) for i, t in enumerate(tracks)]

    def _pack(self) -> list[_Placed]:
        """Put events that do not overlap into one row; those that find no room are left out."""
        placed: list[_Placed] = []
        for named in (True, False):  # without words, if they need too much room
            placed, first, missing = [], 0, 0
            self.labels = {}
            for number, (key, tracks) in enumerate(self.groups.items()):
                if first >= self.look.rows:
                    missing += len(tracks)
                    continue
                colour = _GROUPS[number % len(_GROUPS)] if self.look.by else ""
                self.labels[first] = self._group(key) if self.look.by else ""
                ends: list[float] = []
                for track in tracks:
                    parts = self._values(track, short=True) if named else []
                    left, right = self._extent(track, parts)
                    row = next((i for i, end in enumerate(ends) if end <= left), len(ends))
                    if first + row >= self.look.rows:
                        missing += 1
                        continue
                    ends[row : row + 1] = [right]
                    look = colour or (YELLOW if track.corrected else BLUE)
                    placed.append(_Placed(track, first + row, look, parts))
                first += len(ends)
            if not missing:
                break
        self.left_out += missing
        return placed

    def _extent(self, track: Track, parts: list[tuple[str, str]]) -> tuple[float, float]:
        """The pixels that a track needs in its row."""
        left, right = self.axis.x(track.last.le) - 7, self.axis.x(track.end) + 7
        return left, max(right, left + (_width(parts, 11) + 14 if parts else 0))

    # --- words -------------------------------------------------------------------------------------------------------

    def _group(self, key: tuple[Any, ...]) -> str:
        return clipped(" · ".join(map(value_text, key)), 30)

    def _values(self, track: Track, *, short: bool = False) -> list[tuple[str, str]]:
        """The values of an event, with the old ones of a correction struck out."""
        names = [name for name in track.last.payload if name not in self.look.by]
        parts: list[tuple[str, str]] = []
        room = _WORDS
        for name in names:
            label = "" if len(names) == 1 or short else f"{name} "
            values = [value_text(version.payload[name]) for version in track.versions]
            old = [value for value in dict.fromkeys(values) if value != values[-1]][-2:]
            words = [(f"{' · ' if parts else ''}{label}", f'fill="{SOFT}"')]
            words += [look for v in old for look in ((clipped(v, 16), _STRUCK), (" → ", f'fill="{SOFT}"'))]
            fill = _STRUCK if track.withdrawn else f'fill="{YELLOW}" font-weight="600"' if old else f'fill="{INK}"'
            words.append((clipped(values[-1], 24), fill))
            room -= sum(len(word) for word, _ in words)
            if room < 0 and parts:
                return [*parts, (" …", f'fill="{SOFT}"')]
            parts += words
        return [part for part in parts if part[0]]

    # --- drawing -----------------------------------------------------------------------------------------------------

    @cached_property
    def svg(self) -> str:
        look, axis = self.look, self.axis
        name = look.title or "Timeline"
        parts = [text(_MARGIN, 26, name, bold=True, size=15)]
        parts.append(text(look.width - _MARGIN, 26, self.summary, colour=SOFT, size=11, anchor="end"))
        parts += self._grid()
        parts += [
            text(
                _MARGIN,
                self._y(row) + 4.5,
                clipped(words, int(look.width * 0.25 / _letters("0"))),
                size=12,
                bold=bool(look.by),
            )
            for row, words in self.labels.items()
        ]
        for placed in self.placed:
            parts += _marks(placed, axis, self._y(placed.row))
            parts.append(self._words(placed))
        if not self.placed:
            parts.append(text(axis.left, self._y(0) + 5, "no events", colour=SOFT))
        foot = self.height + 42 + (14 if axis.days(axis.ticks()) else 0)
        legend = self._legend()
        parts.append(spans(_MARGIN, foot, legend, size=11))
        if self.left_out:
            foot += 18
            note = (
                f"… and {self.left_out:,} more events, which are not drawn: rows=, start=, end= and by= choose others"
            )
            parts.append(text(_MARGIN, foot, note, colour=RED, size=11))
        return picture(look.width, int(foot + 14), name, *parts)

    def _y(self, row: int) -> float:
        """The middle of a row; groups have a gap between them."""
        groups = sum(first <= row for first in self.labels) - 1 if self.look.by else 0
        return _TOP + _ROW * (row + 0.5) + _GAP * max(groups, 0)

    def _grid(self) -> list[str]:
        axis, bottom = self.axis, self.height + 4
        marks = axis.ticks()
        parts = [line(axis.x(t), _TOP - 4, axis.x(t), bottom, colour=_GRID) for t in marks]
        borders = [self._y(row) - (_ROW + _GAP) / 2 for row in self.labels if self.look.by and row]
        parts += [line(_MARGIN, y, axis.right, y, colour=_GRID) for y in borders]
        parts += [line(axis.left, bottom, axis.right, bottom)]
        parts += [text(axis.x(t), bottom + 15, axis.label(t), anchor="middle", colour=SOFT, size=11) for t in marks]
        days = axis.days(marks)
        parts += [text(axis.x(t), bottom + 29, day, anchor="middle", colour=SOFT, size=11) for t, day in days]
        if axis.start <= self.cti <= axis.end:
            x = axis.x(self.cti)
            parts.append(line(x, _TOP - 4, x, bottom, colour=INK, more=' stroke-dasharray="2 3"'))
            words = f"CTI {axis.label(self.cti)}"
            parts.append(text(x, _TOP - 9, words, anchor="middle", size=11, bold=True))
        return parts

    def _words(self, placed: _Placed) -> str:
        y, axis = self._y(placed.row), self.axis
        if not placed.parts:
            return ""
        if self.look.by or len(self.labels) < len(self.placed):
            return spans(max(axis.x(placed.track.last.le) - 4, axis.left), y - 7, placed.parts, size=11)
        return spans(axis.x(placed.track.end) + 13, y + 4.5, placed.parts, size=12)

    def _legend(self) -> list[tuple[str, str]]:
        _, corrected, withdrawn = self.counts
        parts = [("● from, ○ until", f'fill="{SOFT}"')]
        if corrected:
            parts.append(("   corrected", f'fill="{YELLOW}" font-weight="600"'))
        if corrected or withdrawn:
            parts.append(("   dashed or struck out: no longer true", f'fill="{SOFT}"'))
        names = [name for name in self.look.schema.names if name not in self.look.by]
        if self.look.by and len(names) > 1 and any(placed.parts for placed in self.placed):
            parts.append((f"   values: {clipped(' · '.join(names), 60)}", f'fill="{SOFT}"'))
        return parts


_STRUCK = f'fill="{SOFT}" text-decoration="line-through"'


def _marks(placed: _Placed, axis: Axis, y: float) -> list[str]:
    """The lifetime of a track: what holds is solid, what held is dashed."""
    track, colour = placed.track, placed.colour
    last, left = track.last, axis.x(track.last.le)
    title = f"<title>{len(track.versions)} versions</title>" if track.corrected else ""
    if track.withdrawn:
        return [_group_of(title, _life(axis, last.le, track.end, y, SOFT, ghost=True))]
    right, parts = axis.x(last.re), []
    old = sorted({version.re for version in track.versions if version.re != last.re})
    if old and old[-1] > last.re:  # the lifetime became shorter
        parts.append(_gone(right, axis.x(old[-1]), y, endless=old[-1] >= axis.end))
    parts.append(_life(axis, last.le, last.re, y, colour))
    parts += [_ring(axis.x(end), y, colour, 2.5) for end in old if left + 9 < axis.x(end) < right - 9]
    return [_group_of(title, *parts)]


def _group_of(title: str, *parts: str) -> str:
    return f'<g class="event">{title}{"".join(parts)}</g>'


def _life(axis: Axis, le: int, re: int, y: float, colour: str, *, ghost: bool = False) -> str:
    left, right = axis.x(le), axis.x(re)
    look = ' stroke-dasharray="4 4"' if ghost else ""
    if right - left < 8:  # an instant, at this scale
        return _ring(left, y, colour, 4.5, look) if ghost else dot(left, y, colour)
    endless = re > axis.end or re == INFINITY
    tip = right - 7 if endless else right - 4
    parts = [line(left, y, tip, y, colour=colour, width=2 if ghost else 4, more=look)]
    parts.append("" if le < axis.start else _ring(left, y, colour, 4, look) if ghost else dot(left, y, colour))
    return "".join([*parts, _head(right, y, colour) if endless else _ring(right, y, colour, 4, look)])


def _gone(left: float, right: float, y: float, *, endless: bool) -> str:
    """The part of a lifetime that was taken back, with an arrow back to the new end."""
    dashes = ' stroke-dasharray="4 4"'
    end = _head(right, y, SOFT) if endless else _ring(right, y, SOFT, 4, ' stroke-dasharray="2 2"')
    back = _head(left + 5, y, SOFT, -1) if right - left > 30 else ""
    return line(left + 5, y, right - 5, y, colour=SOFT, width=2, more=dashes) + back + end


def _ring(x: float, y: float, colour: str, radius: float, more: str = "") -> str:
    look = f'fill="{PAPER}" stroke="{colour}" stroke-width="2"{more}'
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" {look}/>'


def _head(x: float, y: float, colour: str, way: int = 1) -> str:
    back = x - 9 * way
    return f'<path d="M{back:g},{y - 5:g} L{x:g},{y:g} L{back:g},{y + 5:g} z" fill="{colour}"/>'


def _groups(tracks: list[Track], by: tuple[str, ...]) -> dict[tuple[Any, ...], list[Track]]:
    """The tracks by the values of columns, in the order of these values."""
    found: dict[tuple[str, ...], tuple[tuple[Any, ...], list[Track]]] = {}
    for track in tracks:
        key = tuple(track.last.payload[name] for name in by)
        found.setdefault(tuple(map(value_text, key)), (key, []))[1].append(track)
    return {texts: members for texts, (_, members) in sorted(found.items())}


def _letters(words: str, size: float = 12) -> float:
    wide = sum(ord(letter) > 0x2E7F for letter in words)
    return size * (_LETTER * len(words) + 0.45 * wide)


def _width(parts: list[tuple[str, str]], size: float = 12) -> float:
    return _letters("".join(words for words, _ in parts), size)
