"""The twins of windows of tuples and of aggregates over preceding tuples (rules 7.5, 8.2 and 8.3)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from headrace.operators.reference.fold import fold
from headrace.operators.reference.per_window import outputs_of
from headrace.operators.reference.rows import Row, identity, value_of
from headrace.plan.nodes import Fold, Over, PerWindow
from headrace.plan.ordered import (
    FIRST,
    NUMBER,
    By,
    Delta,
    Fixed,
    Frame,
    Landmark,
    Measure,
    Ordered,
    Slides,
    Time,
    Tuples,
    order_columns,
)
from headrace.progress import Progress
from headrace.schema import Field, Schema
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["found_windows", "frame_of", "groups_of", "ordered"]

#: The tuples of a window, and its bounds.
Found = tuple[list[Row], int, int]


def ordered(node: PerWindow, rows: Sequence[Row], now: Progress) -> tuple[list[Row], Progress]:
    """The outputs of every visible window, or of the frame of each tuple, and the promise."""
    if isinstance(node, Fold):
        groups, frame = list(groups_of(node, rows)), node.frame
        held = [time for _, tuples in groups for time in _open_slot(frame, tuples, now)]
        given = fold(node, groups, now, lambda tuples, i: _yields(frame, tuples, i, now))
        return given, Progress(min([now.cti, *held]), now.high)
    if isinstance(node, Over):
        return _over(node, rows, now)
    assert isinstance(node.window, Ordered)
    out, held = [], []
    for keys, tuples in groups_of(node, rows):
        for members, le, re in found_windows(node, tuples, now):
            for a, b, payload in outputs_of(node, _in_order(node, members), (le, re)):
                whole = keys | payload
                out.append((a, b, {name: whole[name] for name in node.schema.names}))
        held += _holding(node, [row for row in tuples if _counts(node.window, row)], now.cti)
    if now.cti in (INFINITY, NEG_INFINITY):
        return out, now
    return out, Progress(min([now.cti, *held, *_always(node.window, now.cti)]), now.high)


def found_windows(node: PerWindow, tuples: list[Row], now: Progress) -> list[Found]:
    """The windows of a group whose outputs are given."""
    assert isinstance(node.window, Ordered)
    ended, seen = now.cti == INFINITY, now.high if now.cti == INFINITY else max(now.cti, now.high)
    found = list(_windows(node, [row for row in tuples if _counts(node.window, row)], seen, ended=ended))
    return [w for n, w in enumerate(found) if not node.final or _closed(node, found, n, now.cti)]


def frame_of(frame: Frame, tuples: list[Row], i: int) -> list[Row]:
    """The tuples that a tuple sees."""
    le = tuples[i][0]
    members = [row for row in tuples if row[0] <= le] if frame.peers else tuples[: i + 1]
    if frame.rows is not None:
        members = members[-frame.rows - 1 :]
    return members if frame.range is None else [row for row in members if row[0] >= le - frame.range]


def _over(node: Over, rows: Sequence[Row], now: Progress) -> tuple[list[Row], Progress]:
    """Each tuple, or each yield tuple, with the outputs of the frame that ends with it."""
    frame = node.window
    assert isinstance(frame, Frame)
    out, held = [], [now.cti]
    for keys, tuples in groups_of(node, rows):
        held += _open_slot(frame, tuples, now)
        for i, (le, re, payload) in enumerate(tuples):
            if not _yields(frame, tuples, i, now):
                continue
            members = frame_of(frame, tuples, i)
            start = members[0][0] if frame.range is None else le - frame.range
            for _, _, found in outputs_of(node.aggregate, _in_order(node, members), (start, le + 1)):
                whole = keys | payload | ({NUMBER: i + 1} if node.numbers else {}) | found
                out.append((le, re, {name: whole[name] for name in node.schema.names}))
    return out, Progress(min(held), now.high)


def _open_slot(frame: Frame, tuples: list[Row], now: Progress) -> list[int]:
    """The last settled tuple, if its slot is open: a later one may replace it."""
    if not isinstance(frame.slide, Time) or now.cti == INFINITY:
        return []
    settled = [row for row in tuples if row[0] < now.cti]
    return [row[0] for row in settled[-1:] if _next(row[0], 0, frame.slide.ticks) > now.cti]


def _yields(frame: Frame, tuples: list[Row], i: int, now: Progress) -> bool:
    """Whether a tuple is the last of its slot, and the slot has visibly ended."""
    if isinstance(frame.slide, Tuples):
        return (i + 1) % frame.slide.count == 0
    if frame.slide is None:
        return True
    end = _next(tuples[i][0], 0, frame.slide.ticks)
    return all(row[0] >= end for row in tuples[i + 1 :]) and end <= max(now.cti, now.high)


def _in_order(node: PerWindow, members: list[Row]) -> list[Row]:
    """The tuples with places as times, if no module sees times: places decide what is first."""
    return members if node.sensitive else [(i, i + 1, row[2]) for i, row in enumerate(members)]


def groups_of(node: PerWindow, rows: Sequence[Row]) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """The keys of every group, and its tuples in their order."""
    groups: dict[Hashable, list[Row]] = {}
    schema = node.input.schema
    for row in rows:
        key = tuple(identity(value_of(expr, row[2], schema)) for _, expr in node.keys)
        groups.setdefault(key, []).append(row)
    names = order_columns(schema)
    for group in groups.values():
        keys = {name: value_of(expr, group[0][2], schema) for name, expr in node.keys}
        yield keys, sorted(group, key=lambda row: (row[0], [_order(row[2][name]) for name in names], row[1]))


def _order(value: Any) -> tuple[int, Any]:
    """Nulls first, NaN last."""
    if value is None:
        return 0, 0
    if isinstance(value, float) and math.isnan(value):
        return 2, 0
    return 1, [_order(part) for part in value] if isinstance(value, list) else value


# --- windows ----------------------------------------------------------------------------------------------------------


def _counts(window: Ordered, row: Row) -> bool:
    if isinstance(window, Landmark):
        return row[0] >= window.start
    return not isinstance(window, Fixed) or window.start <= row[0] < window.end


def _windows(node: PerWindow, line: list[Row], seen: int, *, ended: bool) -> Iterator[Found]:
    window = node.window
    if not line:
        return
    if isinstance(window, Slides):
        yield from _slides(window, line, seen, ended=ended)
    elif isinstance(window, Delta):
        for run in _runs(window, line, node.input.schema):
            yield run, run[0][0], run[-1][0] + 1
    elif isinstance(window, Landmark):
        for upto, re in _triggers(Slides(window.every, window.every), line, seen, ended, window.start):
            yield upto, window.start, re
    else:
        assert isinstance(window, Fixed)
        if ended or window.end <= seen:
            yield line, window.start, window.end


def _slides(window: Slides, line: list[Row], seen: int, *, ended: bool) -> Iterator[Found]:
    origin = line[0][0] if window.starting == "first" else window.starting or 0
    assert isinstance(origin, int)
    for upto, re in _triggers(window, line, seen, ended, origin):
        members = _sized(window.size, upto, re)
        if not members:
            continue
        if isinstance(window.every, Time) and window.tick != "tuple":
            before = re - window.every.ticks
            earlier = _sized(window.size, [row for row in line if row[0] < before], before)
            if [id(row) for row in earlier] == [id(row) for row in members]:
                continue
        yield members, re - window.size.ticks if isinstance(window.size, Time) else members[0][0], re


def _triggers(window: Slides, line: list[Row], seen: int, ended: bool, origin: int) -> Iterator[tuple[list[Row], int]]:
    """The tuples up to each trigger, and the upper bound there."""
    if isinstance(window.every, Time):
        every = window.every.ticks
        limit = max(seen, _next(line[-1][0], origin, every)) if ended else seen
        time = _next(line[0][0], origin, every)
        while time <= limit:
            yield [row for row in line if row[0] < time], time
            time += every
        return
    passed = 0
    for i in range(1, len(line) + 1):
        if _reacts(window, line, i):
            if i // window.every.count > passed // window.every.count:
                yield line[:i], line[i - 1][0] + 1
            passed = i


def _next(time: int, origin: int, every: int) -> int:
    """The first slide after a time."""
    slide = origin
    while slide <= time:
        slide += every
    while slide - every > time:
        slide -= every
    return slide


def _reacts(window: Slides, line: list[Row], i: int) -> bool:
    """Whether the i-th tuple is the last of its tick."""
    later, mine = line[i:], line[i - 1]
    if window.tick == "time":
        return all(row[0] != mine[0] for row in later)
    if window.tick == "batch" and window.batch is not None:
        batch = identity(mine[2][window.batch])
        return all(row[0] != mine[0] or identity(row[2][window.batch]) != batch for row in later)
    return True


def _sized(size: Measure, upto: list[Row], bound: int) -> list[Row]:
    if isinstance(size, Tuples):
        return upto[-size.count :]
    if isinstance(size, Time):
        return [row for row in upto if row[0] >= bound - size.ticks]
    values = [_distance(row[2][size.column]) for row in upto]
    top = max((value for value in values if value is not None), default=None)
    return [
        row
        for row, value in zip(upto, values, strict=True)
        if value is not None and top is not None and (value == top or top - value < size.extent)
    ]


def _distance(value: Any) -> Any:
    """A value as a number; None for values that are in no window."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return round(value.timestamp() * 1_000_000) if hasattr(value, "timestamp") else value


def _runs(window: Delta, line: list[Row], schema: Schema) -> list[list[Row]]:
    both = Schema((*schema.fields, *(Field(FIRST + f.name, f.type) for f in schema)))
    runs: list[list[Row]] = []
    for row in line:
        first = {FIRST + name: value for name, value in runs[-1][0][2].items()} if runs else {}
        if runs and value_of(window.joins, row[2] | first, both):
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


# --- progress ---------------------------------------------------------------------------------------------------------


def _always(window: Ordered, cti: int) -> list[int]:
    """The least lower bounds that windows of any group may have."""
    if isinstance(window, Landmark):
        return [window.start]
    if isinstance(window, Fixed):
        return [window.start] if cti < window.end else []
    if not isinstance(window, Slides) or not isinstance(window.size, Time):
        return []
    if isinstance(window.every, Tuples):
        return [cti - window.size.ticks + 1]
    if window.starting == "first":
        return [cti + window.every.ticks - window.size.ticks]
    return [_next(cti, int(window.starting or 0), window.every.ticks) - window.size.ticks]


def _closed(node: PerWindow, found: list[Found], number: int, cti: int) -> bool:
    """Whether no later tuple can change a window: of a run, the next one has begun."""
    if isinstance(node.window, Delta) and cti != INFINITY:
        return number + 1 < len(found) and found[number + 1][0][0][0] < cti
    return found[number][2] <= cti


def _holding(node: PerWindow, line: list[Row], cti: int) -> list[int]:
    """The least lower bound of a later window with settled tuples of a group."""
    window, settled = node.window, [row for row in line if row[0] < cti]
    if not settled or cti == INFINITY:
        return []
    if isinstance(window, Delta):
        open_runs = [run[0][0] for run in _runs(window, line, node.input.schema) if run[0][0] < cti]
        return open_runs[-1:]
    if not isinstance(window, Slides):
        return []
    if isinstance(window.size, Time):
        if window.starting != "first":
            return []
        assert isinstance(window.every, Time)
        return [_next(cti, settled[0][0], window.every.ticks) - window.size.ticks]
    if isinstance(window.size, By) or isinstance(window.every, Time):
        return [row[0] for row in _sized(window.size, settled, cti)[:1]]
    trigger = (len(settled) // window.every.count + 1) * window.every.count
    return [row[0] for row in settled[max(0, trigger - window.size.count) :][:1]]
