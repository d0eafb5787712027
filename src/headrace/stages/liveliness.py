"""How soon a query's answers are final, what it remembers until then, and what would improve either (rule 6.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.operators.ordered.sums import RunSums
from headrace.operators.ordered.tumbling import goes_by_slots
from headrace.plan.nodes import (
    Admit,
    Clip,
    Coalesce,
    EdgeLifetimes,
    Extend,
    Final,
    Fold,
    Join,
    Match,
    Merge,
    Node,
    Over,
    PerWindow,
    Recurse,
    Shift,
    Source,
    Union,
)
from headrace.plan.ordered import Fixed, Frame, Landmark, Ordered, Slides, Time, Tuples
from headrace.plan.windows import Count, Grid, Session, Snapshot
from headrace.stages import patterns
from headrace.time import format_duration

__all__ = ["Liveliness", "liveliness_of"]


@dataclass(frozen=True)
class Liveliness:
    """Of one operator: its output CTI, how far that is behind, what it remembers, and how to make it better."""

    cti: str
    delay: str
    state: str
    advice: tuple[str, ...] = ()


def liveliness_of(node: Node) -> Liveliness:
    """What rule 6.4 says of an operator."""
    if isinstance(node, Merge):
        return _per_window(node.aggregate)
    if isinstance(node, (Match, PerWindow)):
        found = _per_window(node) if isinstance(node, PerWindow) else Liveliness(*patterns.liveliness(node))
        return replace(found, delay=f"{found.delay}; final answers do not wait for it") if node.final else found
    if isinstance(node, Source):
        return Liveliness("by its policy", "by its policy", "none")
    if isinstance(node, Final):
        return _final(node)
    if isinstance(node, (Clip, Join, Recurse, Union)):
        outer = isinstance(node, Join) and node.kind != "inner"
        state = _BOTH_ENDED if outer else _STATES.get(type(node), "none")
        return Liveliness("the least of its inputs", "that of the slowest input", state)
    if isinstance(node, Shift):
        return Liveliness(f"its input's, moved by {format_duration(node.by)}", "none", "none")
    if isinstance(node, Extend) and node.by < 0:
        late = format_duration(-node.by)
        return Liveliness(f"its input's less {late}", late, "none")
    return Liveliness("as its input", "none", _STATES.get(type(node), "none"))


_BOTH_ENDED = "events whose end the lesser of both CTIs has not passed"
_STATES: dict[type[Node], str] = {
    Admit: "events whose end the CTI has not passed",
    Clip: f"{_BOTH_ENDED}, but for those that are cut for good",
    Coalesce: "events whose end the CTI has not passed",
    EdgeLifetimes: "last sample per key, samples after the CTI",
    Join: "events whose end the other side's CTI has not passed",
    Recurse: "what the loop has found, and events its operators met, whose end the CTI has not passed",
}
_MEANWHILE = "final() gives the answers of closed windows all the same"
_NOT_FINAL = "events the CTI has not made final"
_CLOSED = "groups × windows the CTI has not closed"
_ENDED = "groups × windows the CTI has not closed or that hold an event it has not ended"


def _final(node: Final) -> Liveliness:
    if node.input.properties.settled:
        return Liveliness("as its input", f"none; answers wait for {_waits_for(node)}", _NOT_FINAL)
    advice = "lifetimes that never change let events out at their start: set_duration(...), or speculative answers"
    delay = f"as long as events last; answers wait for {_waits_for(node)}"
    return Liveliness("start of the oldest event that waits", delay, _NOT_FINAL, (advice,))


def _waits_for(node: Node) -> str:
    """Whose CTI it is that a final answer waits for: the nearest operator's that does not just pass one on."""
    below = node.inputs[0]
    while len(below.inputs) == 1 and liveliness_of(below).cti == "as its input":
        below = below.inputs[0]
    return f"the CTI of {type(below).__name__}: {liveliness_of(below).cti}"


def _ordered(node: PerWindow, window: Ordered) -> Liveliness:
    """Windows of tuples: a lower bound may lie as far back as the tuples that are kept."""
    if isinstance(window, Frame):
        state = "tuples of the frame before the CTI and those after it"
        if window.rows is None and window.range is None:
            total = isinstance(node, Over) and RunSums.of(node.aggregate) is not None
            state = "a total of each group, tuples after the CTI" if total else "all tuples"
        if isinstance(node, (Fold, Over)) and goes_by_slots(node):
            state = "a state of each group, tuples after the CTI"
        elif isinstance(window.slide, Tuples):
            state += ", a row a group"
        state += "; results of tuples that have not ended"
        if isinstance(window.slide, Time):
            return Liveliness("the last tuple of the first open slot", f"up to {window.slide}", state)
        return Liveliness("as its input", "none", state)
    cti = "lower bound of the first open window"
    if isinstance(window, Landmark):
        advice = "the CTI never passes the landmark; that of windows of a size goes on: sliding(...)"
        return Liveliness("the landmark", "until the input ends", "all tuples since the landmark", (advice,))
    if isinstance(window, Fixed):
        return Liveliness(cti, f"up to {format_duration(window.end - window.start)}", "tuples until it has ended")
    if isinstance(window, Slides) and isinstance(window.size, Time):
        return Liveliness(cti, f"up to {window.size}", f"tuples of the last {window.size}, a row a group")
    delay = "until the slowest group has its next windows"
    quiet = _quiet_advice(node)
    if isinstance(window, Slides):
        state = f"the last {window.size} of each group, tuples after the CTI, a row a group"
        return Liveliness(cti, delay, state, quiet)
    return Liveliness(cti, "as long as the longest open run", "tuples since the open run of each group began", quiet)


def _per_window(node: PerWindow) -> Liveliness:
    if isinstance(node.window, Ordered):
        return _ordered(node, node.window)
    state = _ENDED if node.holds_ends else _CLOSED
    if node.prompt:
        return Liveliness("as its input", "none", state, _clip_advice(node, delayed=False))
    cti = "start of the first open window"
    delay = _delay(node)
    if node.holds_ends:
        cti, delay = f"{cti}, or of the first that holds an open event", f"{delay}, and as long as events last"
    advice = _clip_advice(node, delayed=True) + _bound_advice(node) + _quiet_advice(node)
    return Liveliness(cti, delay, state, advice)


def _bound_advice(node: PerWindow) -> tuple[str, ...]:
    """Whether outputs could be bound in time: not if a window is known only when its last time has come."""
    own_times = node.timestamping in ("unchanged", "clip") and not isinstance(node.window, Count)
    if not node.sensitive or not (own_times or isinstance(node.window, Snapshot)):
        return ()
    return ("timestamping='time_bound': output CTI is the input's, if no output depends on what comes after its start",)


def _quiet_advice(node: PerWindow) -> tuple[str, ...]:
    """What to do about one group that holds back the output CTI of all."""
    if not node.keys:
        return ()
    if isinstance(node.window, Count):
        who = f"goes quiet before it has {node.window.n} {node.window.by} times"
        remedy = "windows that end by time alone: tumbling(...)"
    elif isinstance(node.window, Session):
        who, remedy = "never pauses", "windows that end by time alone: tumbling(...)"
    elif isinstance(node.window, Snapshot):
        who = "has an event that lasts, while nothing starts or ends in it,"
        remedy = "cap_duration(...) before it, which bounds how long events last"
    elif isinstance(node.window, Ordered):
        who, remedy = "goes quiet", "a window measured by time: sliding('10 s', ...)"
    else:
        return ()
    return (f"a group that {who} holds the output CTI of all groups; {_MEANWHILE}; {remedy}",)


def _delay(node: PerWindow) -> str:
    if isinstance(node.window, Grid):
        return f"up to {format_duration(node.window.size)}"
    if isinstance(node.window, Session):
        return f"as long as the longest open session, at least {format_duration(node.window.gap)}"
    if isinstance(node.window, Count):
        return f"until the slowest group has {node.window.n} {node.window.by} times"
    assert isinstance(node.window, Snapshot)
    return "as long as nothing starts or ends in the slowest group"


def _clip_advice(node: PerWindow, *, delayed: bool) -> tuple[str, ...]:
    if not node.holds_ends:
        return ()
    gain = "output CTI no longer waits for open events; " if delayed else ""
    side = "full" if node.policy.clipping == "left" else "right"
    return (f"clipping={side!r}: {gain}state bound falls from {_ENDED} to {_CLOSED}",)
