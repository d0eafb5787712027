"""The causes of answers of windows, frames, folds and patterns: the members, and what decides that they are members."""

from __future__ import annotations

from typing import Any

from headrace.expr import Expr
from headrace.operators.reference.lineage.histories import Cause, Histories, Stem, same_payload
from headrace.operators.reference.ordered import found_windows, frame_of, groups_of
from headrace.operators.reference.pattern import found_matches
from headrace.operators.reference.per_window import outputs_of, windows_of
from headrace.operators.reference.rows import Row, row_identity
from headrace.operators.reference.windows import WindowSpan
from headrace.plan.nodes import Contents, Match, Over, PerWindow, Top
from headrace.plan.ordered import By, Delta, Frame, Ordered, Slides, Time, Tuples
from headrace.plan.windows import Count, Grid, Session, Snapshot
from headrace.time import NEG_INFINITY, format_ticks

__all__ = ["of_frames", "of_matches", "of_prefix", "of_windows"]

#: The most letters of a value in the name of a group.
_MOST_LETTERS = 60


def of_windows(node: PerWindow, row: Row, inputs: Histories) -> Stem:
    """The members of the window, and the events that bound it."""
    if isinstance(node.window, Ordered):
        return _of_tuples(node, row, inputs)
    if node.timestamping != "align":
        return _of_own_times(node, row, inputs)
    span = (row[0], row[1])
    members = _members(node, span, inputs, _keys(node, row))
    if isinstance(node, (Top, Contents)) and isinstance(node.window, (Grid, Snapshot)) and _alone(node):
        shown = {name: row[2][name] for name in node.input.schema.names}
        members = [member for member in members if same_payload(member[2], shown)]
    causes = [Cause(0, member, "member") for member in members] + _bounds(node, row, span, inputs)
    return Stem(causes, _text(node, row, span))


def _alone(node: Top | Contents) -> bool:
    """Whether an event is an answer whatever the others before it in the ranking are."""
    return isinstance(node, Contents) or not (node.places or node.skip)


def _keys(node: Any, row: Row) -> list[tuple[Expr, Any]]:
    """The keys of the group of an answer."""
    return [(expr, row[2][name]) for name, expr in node.keys if name in row[2]]


def _members(node: PerWindow, span: WindowSpan, inputs: Histories, keys: list[tuple[Expr, Any]]) -> list[Row]:
    if isinstance(node.window, Count) and node.window.by == "end":
        return inputs.find(0, ends=span, keys=keys)
    if isinstance(node.window, (Count, Session)):
        return inputs.find(0, starts=span, keys=keys)
    return inputs.find(0, over=span, keys=keys)


def _bounds(node: PerWindow, row: Row, span: WindowSpan, inputs: Histories) -> list[Cause]:
    """The events of the group at whose ends the window begins or ends."""
    keys = _keys(node, row)
    if isinstance(node.window, Snapshot):
        found = [r for t in span for r in (*inputs.find(0, le=t, keys=keys), *inputs.find(0, re=t, keys=keys))]
        return [Cause(0, bound, "bound") for bound in found]
    if isinstance(node.window, Session) and node.window.longest is not None:  # earlier sessions decide where it begins
        return [Cause(0, r, "earlier") for r in inputs.find(0, starts=(NEG_INFINITY, span[0]), keys=keys)]
    return []


def _of_own_times(node: PerWindow, row: Row, inputs: Histories) -> Stem:
    """Of outputs with lifetimes of their own: the windows that give them, all of the group tried."""
    group = inputs.find(0, keys=_keys(node, row))
    causes, spans = list[Cause](), []
    for span, members in windows_of(node, group, inputs.progress[0]) if group else ():
        if _among(row, outputs_of(node, members, span), node):
            causes += [Cause(0, member, "member") for member in members] + _bounds(node, row, span, inputs)
            spans.append(_text(node, row, span))
    return Stem(causes, "; ".join(spans))


def _among(row: Row, outputs: list[Row], node: PerWindow) -> bool:
    """Whether outputs, which have no keys, include one."""
    keys = dict.fromkeys(name for name, _ in node.keys)
    shown = (row[0], row[1], {name: value for name, value in row[2].items() if name not in keys})
    return any(
        row_identity((le, re, {n: v for n, v in payload.items() if n in shown[2]})) == row_identity(shown)
        for le, re, payload in outputs
    )


def _text(node: PerWindow, row: Row, span: WindowSpan) -> str:
    start, end = (format_ticks(time, dates=node.dates) for time in span)
    group = ", ".join(f"{name} = {_shown(row[2][name])}" for name, _ in node.keys if name in row[2])
    return f"window [{start}, {end}){f' of {group}' if group else ''}"


def _shown(value: object) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…"


# --- tuples in their order --------------------------------------------------------------------------------------------


def _of_tuples(node: PerWindow, row: Row, inputs: Histories) -> Stem:
    """The tuples of the window; where numbers or the first tuple decide what it holds, all before them."""
    causes, spans = list[Cause](), []
    for _, tuples in groups_of(node, inputs.find(0, keys=_keys(node, row))):
        for members, le, re in found_windows(node, tuples, inputs.progress[0]):
            if node.timestamping == "align" and (le, re) != (row[0], row[1]):
                continue
            causes += [Cause(0, member, "member") for member in members]
            if _counted(node.window):
                causes += [Cause(0, r, "earlier") for r in tuples if r[0] < members[-1][0]]
            if isinstance(node.window, Slides) and node.window.tick != "tuple" and isinstance(node.window.every, Time):
                causes += [Cause(0, r, "earlier") for r in tuples if r[0] < re]
            spans.append(_text(node, row, (le, re)))
    return Stem(causes, "; ".join(spans))


def _counted(window: Any) -> bool:
    """Whether what a window of tuples holds depends on the tuples before it."""
    if isinstance(window, Slides):
        return isinstance(window.every, Tuples) or window.starting == "first" or isinstance(window.size, By)
    return isinstance(window, Delta)


def of_frames(node: Over, row: Row, inputs: Histories) -> Stem:
    """The tuple and those that it sees; all before it where their number counts."""
    frame = node.window
    assert isinstance(frame, Frame)
    own = {name: row[2][name] for name in node.input.schema.names if name in row[2]}
    causes: list[Cause] = []
    for _, tuples in groups_of(node, inputs.find(0, keys=_keys(node, row))):
        for i, (le, re, payload) in enumerate(tuples):
            if (le, re) == (row[0], row[1]) and same_payload(payload, own):
                counted = node.numbers or isinstance(frame.slide, Tuples)
                seen = tuples[: i + 1] if counted else [*frame_of(frame, tuples, i), tuples[i]]
                causes += [Cause(0, member, "seen") for member in seen]
    return Stem(causes, "frame")


def of_prefix(node: PerWindow, row: Row, inputs: Histories) -> Stem:
    """A fold: every tuple of the group up to the answer's."""
    return Stem.of(inputs.find(0, starts=(NEG_INFINITY, row[0] + 1), keys=_keys(node, row)), "folded")


def of_matches(node: Match, row: Row, inputs: Histories, *, whole: bool = False) -> Stem:
    """The tuples of the match, those that its conditions look at, and all before it if matches are numbered.

    With `whole`, all before it in any case: without an earlier match, one that it kept away may take the tuples.
    """
    causes, texts = list[Cause](), []
    for keys, tuples in groups_of(node, inputs.find(0, keys=_keys(node, row))):  # type: ignore[arg-type]
        for places, outputs in found_matches(node, keys, tuples):
            if row_identity(row) not in map(row_identity, outputs):
                continue
            first = 0 if node.numbered or whole else max(0, places.start - node.references.back)
            last = min(len(tuples), places.stop + node.references.ahead)
            for place in range(first, last):
                causes.append(Cause(0, tuples[place], "matched" if place in places else "looked at"))
            texts.append(f"match of {len(places)} tuples")
    return Stem(causes, "; ".join(texts))
