"""The twin of everything per group and window (rules 5 and 6): each window by itself, from a group's whole history."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from headrace.expr import AggregateCall
from headrace.modules import Module, ModuleCall
from headrace.modules.base import Event
from headrace.modules.base import Window as SeenWindow
from headrace.modules.items import items_of
from headrace.operators.reference.contents import contents
from headrace.operators.reference.functions import FUNCTIONS
from headrace.operators.reference.rows import Payload, Row, identity, value_of
from headrace.operators.reference.windows import WindowSpan, last_closed_start, open_window_start, windows_over
from headrace.plan.around import Around
from headrace.plan.nodes import Aggregate, Contents, Operate, PerWindow, Top
from headrace.plan.windows import Count, Grid, Session, Snapshot
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["outputs_of", "per_window", "ranking", "windows_of"]


def per_window(node: PerWindow, rows: Sequence[Row], now: Progress) -> tuple[list[Row], Progress]:
    """The outputs of every visible or closed window, and the promise of rule 6.4."""
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        key = tuple(identity(value_of(expr, row[2], node.input.schema)) for _, expr in node.keys)
        groups.setdefault(key, []).append(row)
    out = []
    for group in groups.values():
        key_values = {name: value_of(expr, group[0][2], node.input.schema) for name, expr in node.keys}
        for span, members in windows_of(node, group, now):
            for le, re, payload in outputs_of(node, members, span):
                whole = key_values | payload
                out.append((le, re, {name: whole[name] for name in node.schema.names}))
    held = [time for group in groups.values() for time in _holding(node, group, now.cti)]
    return out, Progress(_promise(node, now.cti, held), _high(node, now))


# --- windows ----------------------------------------------------------------------------------------------------------


def windows_of(node: PerWindow, group: list[Row], now: Progress) -> list[tuple[WindowSpan, list[Row]]]:
    """The windows of a group whose outputs are given, with their members."""
    visible = _visible(node, group, now)
    given = [s for s in visible if _closed(node, group, s, now.cti)] if node.final else visible
    return [(span, _members(node, group, span)) for span in given]


def _visible(node: PerWindow, group: list[Row], now: Progress) -> list[WindowSpan]:
    ended, seen = now.cti == INFINITY, now.high if now.cti == INFINITY else max(now.cti, now.high)
    begun = node.timestamping == "time_bound"
    if isinstance(node.window, Grid):
        finite = [re for _, re, _ in group if re != INFINITY] + [le + 1 for le, _, _ in group]
        limit = max([*finite, seen + begun] if seen != NEG_INFINITY else finite)
        found = {w for le, re, _ in group for w in windows_over(node.window, le, min(re, limit))}
        shown = [w for w in found if (w[0] <= seen if begun else w[1] <= seen) or (ended and w[0] < max(finite))]
        return sorted(shown)
    spans = list(_spans(node, group))
    return spans if isinstance(node.window, Snapshot) or begun or ended else [w for w in spans if w[1] <= seen]


def _spans(node: PerWindow, group: list[Row]) -> Iterator[WindowSpan]:
    """All windows of a group that depend on its events."""
    if isinstance(node.window, Snapshot):
        ends = sorted({time for le, re, _ in group for time in (le, re)})
        for a, b in pairwise(ends):
            if any(le < b and re > a for le, re, _ in group):
                yield a, b
    elif isinstance(node.window, Count):
        times = _counted(node.window, group)
        for i in range(len(times) - node.window.n + 1):
            yield times[i], times[i + node.window.n - 1] + 1
    else:
        assert isinstance(node.window, Session)
        gap, longest = node.window.gap, INFINITY if node.window.longest is None else node.window.longest
        run: list[int] = []
        for time in sorted(le for le, _, _ in group):
            if run and (time - run[-1] >= gap or time - run[0] >= longest):
                yield run[0], min(run[-1] + gap, run[0] + longest)
                run = []
            run.append(time)
        yield run[0], min(run[-1] + gap, run[0] + longest)


def _counted(window: Count, group: list[Row]) -> list[int]:
    return sorted({row[0] if window.by == "start" else row[1] for row in group} - {INFINITY})


def _members(node: PerWindow, group: list[Row], span: WindowSpan) -> list[Row]:
    start, end = span
    if isinstance(node.window, (Session, Count)):
        by_end = isinstance(node.window, Count) and node.window.by == "end"
        return [row for row in group if start <= (row[1] if by_end else row[0]) < end]
    return [row for row in group if row[0] < end and row[1] > start]


# --- progress ---------------------------------------------------------------------------------------------------------


def _holding(node: PerWindow, group: list[Row], cti: int) -> list[int]:
    """The starts of the windows that can still change (rule 6.4)."""
    if isinstance(node.window, Grid):
        first = [next(windows_over(node.window, le, re), None) for le, re, _ in group if re >= cti]
        return [window[0] for window in first if window is not None] if node.holds_ends else []
    held = [span[0] for span in _spans(node, group) if not _closed(node, group, span, cti)]
    if isinstance(node.window, Count):
        times = _counted(node.window, group)
        held += times[len(times) - node.window.n + 1 :] if len(times) >= node.window.n else times
    return held


def _closed(node: PerWindow, group: list[Row], span: WindowSpan, cti: int) -> bool:
    """Whether no legal change can reach a window any more (rule 6.4)."""
    if cti == INFINITY:
        return True
    pinned = node.holds_ends and any(re >= cti for _, re, _ in _members(node, group, span))
    return not pinned and (span[1] < cti if isinstance(node.window, Snapshot) else span[1] <= cti)


def _promise(node: PerWindow, cti: int, held: list[int]) -> int:
    if node.prompt or cti in (INFINITY, NEG_INFINITY):
        return cti
    first = open_window_start(node.window, cti) if isinstance(node.window, Grid) else cti
    return min([first, *held])


def _high(node: PerWindow, now: Progress) -> int:
    if not isinstance(node.window, Grid) or now.high == NEG_INFINITY:
        return now.high
    return last_closed_start(node.window, now.high)


# --- one window -------------------------------------------------------------------------------------------------------


def outputs_of(node: PerWindow, members: list[Row], span: WindowSpan) -> list[Row]:
    """The outputs of one window with these members; payloads have no keys."""
    return _OUTPUTS[type(node)](node, members, span)


def _top(node: Top, members: list[Row], span: WindowSpan) -> list[Row]:
    ranked = _ranked(node, members)
    found = []
    for number, (_, _, payload) in enumerate(_first_of(node, ranked), 1):
        own = _sorted_by(node, payload)
        before = [_sorted_by(node, row[2]) for row in ranked[: number - 1]]
        peers = [one for one in before if one == own]
        places = {"row_number": number, "rank": number - len(peers), "dense_rank": len({*before, own})}
        whole = [identity(list(row[2].values())) for row in ranked[:number]]
        places["copy"] = whole.count(whole[-1])
        answers = {
            n: _seen(node, p, ranked, number - 1) if isinstance(p, Around) else places[p] for n, p in node.places
        }
        found.append((*span, payload | answers))
    return found


def ranking(node: Top, members: list[Row]) -> tuple[list[Row], list[Row]]:
    """The events of a window in their order, and those among them that are answers."""
    ranked = _ranked(node, members)
    return ranked, _first_of(node, ranked)


def _seen(node: Top, around: Around, ranked: list[Row], place: int) -> Any:
    """What an event sees of those around it: the frame is found event by event."""
    below = node.input.schema
    rows = [row for other, row in enumerate(ranked) if _in_frame(node, around, ranked, place, other)]
    if around.nth is not None:
        index = around.nth - 1 if around.nth > 0 else len(rows) + around.nth
        return value_of(around.value, rows[index][2], below) if 0 <= index < len(rows) else None
    assert isinstance(around.value, AggregateCall)
    argument = around.value.argument
    items = [(i, True if argument is None else value_of(argument, p, below)) for i, (_, _, p) in enumerate(rows)]
    return FUNCTIONS[around.value.function](items, *around.value.parameters)


def _in_frame(node: Top, around: Around, ranked: list[Row], place: int, other: int) -> bool:
    own, its = (_sorted_by(node, ranked[i][2]) for i in (place, other))

    def inside(distance: float | None, before: Callable[[Any, Any], bool]) -> bool:
        """Whether the other event is on the inner side of a bound, which is at a distance from the event."""
        if distance is None:
            return True
        if around.unit == "rows":
            return before(place + distance, other)
        sign, measured = -1 if node.directions[0] else 1, not any(null or nan for null, nan, _ in (*own, *its))
        if distance and measured:
            return before(sign * own[0][2] + distance, sign * its[0][2])
        return own == its or before(place, other)  # nulls and NaN are at no distance from others

    return inside(around.start, operator.le) and inside(around.end, operator.ge)


def _sorted_by(node: Top, payload: Payload) -> tuple[Any, ...]:
    return tuple(_order(value_of(expr, payload, node.input.schema)) for expr in node.by)


def _operated(node: Operate, members: list[Row], span: WindowSpan) -> list[Row]:
    mapped = [[value_of(expr, row[2], node.input.schema) for _, expr in node.mapping] for row in members]
    outputs = _called(node, node.module, members, mapped, span)
    return [row for output in outputs if (row := _stamped(node, output, span)) is not None]


def _aggregated(node: Aggregate, members: list[Row], span: WindowSpan) -> list[Row]:
    below = node.input.schema
    calls, exprs = node.split
    results: Payload = {}
    for name, call in calls.items():
        if isinstance(call, ModuleCall):
            mapped = [[value_of(expr, row[2], below) for expr in call.arguments] for row in members]
            results[name] = _called(node, call.module, members, mapped, span)
        else:
            argument = call.argument
            items = [(le, True if argument is None else value_of(argument, p, below)) for le, _, p in members]
            results[name] = FUNCTIONS[call.function](items, *getattr(call, "parameters", ()))
    types = pa.schema([(name, call.type(below).arrow) for name, call in calls.items()])
    return [(*span, {name: value_of(expr, results, types) for name, expr in exprs.items()})]


def _order(value: Any) -> tuple[bool, bool, Any]:
    """Nulls last, NaN greatest."""
    if value is None:
        return True, False, 0
    if isinstance(value, float) and math.isnan(value):
        return False, True, 0
    return False, False, value


def _ranked(node: Top, members: list[Row]) -> list[Row]:
    ranked = sorted(members, key=lambda row: [_order(row[2][name]) for name in node.input.schema.names])
    for expr, down in reversed(list(zip(node.by, node.directions, strict=True))):
        values = {id(row): _order(value_of(expr, row[2], node.input.schema)) for row in ranked}
        present = [row for row in ranked if not values[id(row)][0]]
        missing = [row for row in ranked if values[id(row)][0]]
        # Sorting in reverse must keep the order of equal rows.
        present.sort(key=lambda row: values[id(row)], reverse=down)
        ranked = present + missing
    return ranked


def _first_of(node: Top, ranked: list[Row]) -> list[Row]:
    """The ranked events to return: one of equal `distinct` values, k of each `each` value."""
    below = node.input.schema
    seen: set[Any] = set()
    taken: Counter[Any] = Counter()
    found = []
    for row in ranked:
        same = tuple(_order(value_of(expr, row[2], below)) for expr in node.distinct)
        each = tuple(_order(value_of(expr, row[2], below)) for expr in node.each)
        if (node.distinct and same in seen) or taken[each] >= node.skip + node.k:
            continue
        seen.add(same)
        taken[each] += 1
        if taken[each] > node.skip:
            found.append(row)
    return found


def _called(node: PerWindow, module: Module, members: list[Row], mapped: list[list[Any]], span: WindowSpan) -> Any:
    start, end = span
    items = []
    for (le, re, _), values in zip(members, mapped, strict=True):
        typed = zip(values, module.fields, strict=True)  # one zero: -0.0 is 0.0
        values = [float(v) + 0.0 if v is not None and f.type.is_floating else v for v, f in typed]
        if module.time_sensitive:
            re = min(re, end) if node.clips_right else re
            le = max(le, start) if node.policy.clipping in ("left", "full") else le
            re = max(re, le + 1)  # an event that ends at its window's start is an instant
            items.append(((le, re, *map(_order, values)), (le, re, *values)))
        else:
            items.append(((le, *map(_order, values)), tuple(values)))
    rows = [values for _, values in sorted(items, key=lambda item: item[0])]
    given: list[Any] = items_of(module.fields.names, rows, timed=module.time_sensitive)
    argument: Any = given
    if module.incremental:
        argument = module.initial()
        after = module.add(argument, given)
        argument = argument if after is None else after
    compute: Any = module.compute
    found = compute(argument, SeenWindow(start, end)) if module.takes_window else compute(argument)
    return list(found or []) if module.kind == "operator" else found


def _stamped(node: Operate, output: Any, span: WindowSpan) -> Row | None:
    le, re = span
    if isinstance(output, Event):
        own_le, own_re, output = output
        if node.timestamping == "clip":
            le, re = max(own_le, le), min(own_re, re)
        elif node.timestamping != "align":
            le, re = own_le, own_re
    values = output.values() if isinstance(output, dict) else output if isinstance(output, (tuple, list)) else (output,)
    if isinstance(output, dict):
        values = [output[name] for name in node.module.gives.names]
    return (le, re, dict(zip(node.module.gives.names, values, strict=True))) if le < re else None


_OUTPUTS: dict[type[PerWindow], Callable[[Any, list[Row], WindowSpan], list[Row]]] = {
    Aggregate: _aggregated,
    Contents: contents,
    Operate: _operated,
    Top: _top,
}
