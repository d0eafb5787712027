"""Why an answer of a window, a frame, a fold or a pattern is not there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from headrace.expr import Expr, col
from headrace.literals import sql_text
from headrace.operators.reference.lineage.histories import Cause
from headrace.operators.reference.lineage.losses import NEAR, Loss, LostEvents, Question, other_lifetimes
from headrace.operators.reference.lineage.wanted import TimeSpan, WantedEvent
from headrace.operators.reference.ordered import groups_of
from headrace.operators.reference.pattern import furthest_way
from headrace.operators.reference.per_window import ranking, windows_of
from headrace.operators.reference.rows import Row, row_identity, value_of
from headrace.operators.reference.windows import windows_over
from headrace.plan.nodes import Contents, Fold, PerWindow, Top
from headrace.plan.ordered import Ordered
from headrace.plan.windows import Count, Grid, Session, Snapshot
from headrace.progress import Progress
from headrace.time import CHRONON, INFINITY, NEG_INFINITY, add_one, format_ticks

__all__ = ["lost_in_frames", "lost_in_loop", "lost_in_matches", "lost_in_windows"]

#: The most windows of a grid for which a time is looked up and the most rows of a group.
_MOST_WINDOWS, _MOST_ROWS = 1_000, 5_000


def lost_in_windows(question: Question) -> LostEvents:
    """Windows without events, windows that are open, answers with other values, events below the top."""
    node, wanted = question.node, question.wanted
    keys = dict(node.keys)
    group = wanted.untimed().through(keys)
    members = _at(group, _times_of_members(node, wanted))
    below = [members]
    found: list[Loss] = []
    if isinstance(node, (Top, Contents)):
        event = _at(wanted.untimed().through(_passed(node)), members)
        below = [event] if _alone(node) and isinstance(node.window, Grid) else [event, members]
        found += _below_the_top(question, event, group) if isinstance(node, Top) else []
        found += other_lifetimes(question, wanted.lasting())
    if not question.given and not found:
        found += _other_values(question, list(keys) if not isinstance(node, (Top, Contents)) else list(_passed(node)))
        found = found or _open_windows(question, group) or _empty(question, members)
    return LostEvents(found, [(0, one) for one in below])


def _passed(node: Any) -> dict[str, Expr]:
    """The columns of answers that are those of an input event, or the keys."""
    return dict(node.keys) | {name: col(name) for name in node.input.schema.names if name in node.schema.names}


def _alone(node: Top | Contents) -> bool:
    return isinstance(node, Contents) or not (node.places or node.skip)


def _at(one: WantedEvent, times: WantedEvent) -> WantedEvent:
    return replace(one, le=times.le, re=times.re, over=times.over, starts=times.starts, ends=times.ends)


def _times_of_members(node: PerWindow, wanted: WantedEvent) -> WantedEvent:
    """The times of events that belong to a window with the wanted lifetime, or bound it."""
    le, re, window = wanted.le, wanted.re, node.window
    if node.timestamping != "align":
        return WantedEvent()
    if isinstance(window, Ordered):
        end = re if re is not None else wanted.over[1] if wanted.over is not None else INFINITY
        return WantedEvent(starts=(NEG_INFINITY, end))
    if isinstance(window, Grid):
        return WantedEvent(over=_in_grid(window, wanted))
    if isinstance(window, Snapshot):
        if le is None and re is None:
            return WantedEvent(over=wanted.over)
        start = NEG_INFINITY if le is None else add_one(le, -CHRONON)
        return WantedEvent(over=(start, INFINITY if re is None else add_one(re, CHRONON)))
    if le is None or re is None:
        return WantedEvent()
    if isinstance(window, Count) and window.by == "end":
        return WantedEvent(ends=(le, re))
    longest = isinstance(window, Session) and window.longest is not None
    return WantedEvent(starts=(NEG_INFINITY if longest else le, re))


def _in_grid(grid: Grid, wanted: WantedEvent) -> TimeSpan | None:
    """The hull of the windows of a grid that have the wanted times."""
    if wanted.le is not None and wanted.re is not None:
        return wanted.le, wanted.re
    span = wanted.span
    if span is None or NEG_INFINITY in span or INFINITY in span:
        return None
    found = []
    for number, window in enumerate(windows_over(grid, *span)):
        if number > _MOST_WINDOWS:
            return None
        if (wanted.le is None or window[0] == wanted.le) and (wanted.re is None or window[1] == wanted.re):
            found.append(window)
    return (min(start for start, _ in found), max(end for _, end in found)) if found else None


def _other_values(question: Question, names: list[str]) -> list[Loss]:
    """Answers of the same group at the same times with other values."""
    near = question.wanted.only(*names)
    others = near.find(question.output)[:NEAR]
    return [Loss("other values", _differences(question.wanted, row), (), [row]) for row in others]


def _differences(wanted: WantedEvent, row: Row) -> str:
    """The columns in which an answer is not as wanted."""
    parts = [
        f"{name} is {sql_text(row[2][name])}, not {sql_text(value)}"
        for name, value in wanted.equal.items()
        if row_identity((0, 0, {name: row[2][name]})) != row_identity((0, 0, {name: value}))
    ]
    parts += [f"{expr} does not hold" for expr, value in wanted.holds if value is True]
    return "the answer is there with other values: " + "; ".join(parts) if parts else "another answer is there"


def _groups(question: Question, group: WantedEvent) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """The groups that fit; none of very large ones."""
    rows = question.inputs.find(0, equal=group.equal, keys=group.holds)
    if rows and len(rows) <= _MOST_ROWS:
        yield from groups_of(question.node, rows)


def _open_windows(question: Question, group: WantedEvent) -> list[Loss]:
    """Windows with events whose answers are not given yet."""
    node, now = question.node, question.inputs.progress[0]
    if isinstance(node.window, Ordered) or now.cti == INFINITY:
        return []
    found = []
    for _, rows in _groups(question, group):
        given = {span for span, _ in windows_of(node, rows, now)}
        for span, members in windows_of(node, rows, Progress(INFINITY, now.high)):
            if span in given or not _at(WantedEvent(), question.wanted).fits((*span, {}), node.schema):
                continue
            cti, start, end = (format_ticks(time, dates=node.dates) for time in (now.cti, *span))
            when = f"when the CTI reaches {end}" if node.final else f"when the CTI or an event reaches {end}"
            reason = f"window [{start}, {end}) is open: its answer is given {when}; the CTI is {cti}"
            found.append(Loss("not final", reason, [Cause(0, row, "member") for row in members]))
    return found[:NEAR]


def _empty(question: Question, members: WantedEvent) -> list[Loss]:
    """A window without events."""
    if members.find(question.inputs):
        return []
    text = members.text(dates=question.node.dates)
    return [Loss("no events", "there are no events" if members.is_empty else f"no event has {text}")]


def _below_the_top(question: Question, event: WantedEvent, group: WantedEvent) -> list[Loss]:
    """Events of the window that are not among the first."""
    node, found = question.node, []
    if isinstance(node.window, Ordered) or question.given:
        return []
    for _, rows in _groups(question, group):
        for span, members in windows_of(node, rows, question.inputs.progress[0]):
            ranked, answers = ranking(node, members)
            if not _at(WantedEvent(), question.wanted).fits((*span, {}), node.schema) or not answers:
                continue
            for place, row in enumerate(ranked, 1):
                if row not in answers and event.fits(row, node.input.schema):
                    found.append(_ranked_loss(node, place, row, answers))
    return found[:NEAR]


def _ranked_loss(node: Top, place: int, row: Row, answers: list[Row]) -> Loss:
    def by(one: Row) -> str:
        return ", ".join(f"{expr} = {sql_text(value_of(expr, one[2], node.input.schema))}" for expr in node.by)

    last = answers[-1]
    reason = f"below the top {node.k}: in place {place} with {by(row)}; the last of the top has {by(last)}"
    return Loss("below the top", reason, [Cause(0, row, "event"), Cause(0, last, "last of the top")])


# --- tuples in their order --------------------------------------------------------------------------------------------


def lost_in_frames(question: Question) -> LostEvents:
    """A tuple with other values, or one that gives no answer; and the tuples before it."""
    node, wanted = question.node, question.wanted
    ends = [time + 1 for time in (wanted.le,) if time is not None]
    ends += [span[1] for span in (wanted.over, wanted.starts) if span is not None]
    earlier = replace(wanted.untimed().through(dict(node.keys)), starts=(NEG_INFINITY, min(ends, default=INFINITY)))
    if isinstance(node, Fold) and node.active:
        return LostEvents([] if question.given else _other_values(question, list(dict(node.keys))), [(0, earlier)])
    own = wanted.through(_passed(node))
    found = [] if question.given else _other_values(question, list(_passed(node)))
    for row in [] if question.given or found else question.candidates(own)[:NEAR]:
        found.append(Loss("no answer", "no answer is given at this tuple", [Cause(0, row, "tuple")]))
    return LostEvents(found, [(0, own), (0, earlier)])


def lost_in_matches(question: Question) -> LostEvents:
    """Groups without a match: how far the best way reached."""
    node, wanted = question.node, question.wanted
    group = wanted.untimed().through(dict(node.keys))
    below = [(0, group)]
    if question.given:
        return LostEvents((), below)
    found = _other_values(question, list(dict(node.keys)))
    for _, tuples in () if found else _groups(question, group):
        first, labels, unfinished = furthest_way(node, tuples)
        way = [Cause(0, row, label) for row, label in zip(tuples[first:], labels, strict=False)]
        reach = (
            f"the furthest way maps {len(labels)} of {len(tuples)} tuples ({' '.join(labels)})"
            if labels
            else "no tuple begins one"
        )
        stopped = tuples[first + len(labels) :][:1]
        after = (
            "; it wants more tuples" if unfinished else "; the next tuple does not fit" if labels and stopped else ""
        )
        events = [*way, *(Cause(0, row, "does not fit") for row in stopped if not unfinished)]
        found.append(Loss("no match", f"no match: {reach}{after}", events))
    return LostEvents(found[:NEAR], below)


def lost_in_loop(question: Question) -> LostEvents:
    """A row that no round derives: any input event could have been part of a derivation."""
    found = [] if question.given else [Loss("not derived", "no round of the loop derives it")]
    return LostEvents(found, [(position, WantedEvent()) for position in range(len(question.node.inputs))])
