"""Output checks (rule 10.2): a physical stream must keep its promises, and its rows must be consistent in order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Literal, get_args

import pyarrow as pa

from headrace.border import as_ticks
from headrace.errors import EventError, HeadraceError, PlanError
from headrace.time import CHRONON, INFINITY, NEG_INFINITY, format_ticks

__all__ = ["Shape", "Violation", "check_output", "output_violations"]

Shape = Literal["point", "interval", "edge"]
_CONTROL = ("kind", "le", "re", "re_new")


class Violation(HeadraceError, AssertionError):
    """A physical stream broke a rule."""

    code = "OUTPUT_VIOLATION"


def check_output(events: pa.Table, shape: Shape = "interval", *, retractions: bool = True) -> None:
    """Raise for the first row that breaks a rule; `retractions=False` forbids corrections (a final stream)."""
    if shape not in get_args(Shape):
        raise PlanError("unknown shape", given=shape, allowed=", ".join(get_args(Shape)))
    for row, problem in output_violations(events, shape, retractions=retractions):
        raise Violation(f"row {row + 1}: {problem}", given=events.slice(row, 1).to_pylist()[0])


def output_violations(
    events: pa.Table, shape: Shape = "interval", *, retractions: bool = True
) -> Iterator[tuple[int, str]]:
    """Every row that breaks a rule, with the problem.

    No event may have a sync time before a CTI that came earlier (rule 3.1); CTIs must rise; a retraction must name an
    event that exists, so it comes after the insert it corrects; lifetimes must have the declared shape.
    """
    alive: Counter[Hashable] = Counter()
    cti = NEG_INFINITY
    for number, event in enumerate(as_ticks(events).to_pylist()):
        problem = _problem(event, shape, cti, alive, retractions=retractions)
        if problem is not None:
            yield number, problem
        if event["kind"] == "cti":
            cti = max(cti, event["le"])
        else:
            _apply(event, alive)


def _problem(
    event: Mapping[str, Any], shape: Shape, cti: int, alive: Counter[Hashable], *, retractions: bool
) -> str | None:
    kind, le, re, re_new = (event[name] for name in _CONTROL)
    if kind == "cti":
        return None if le > cti else f"the CTI {format_ticks(le)} does not rise above {format_ticks(cti)}"
    if kind not in ("insert", "retract"):
        return f"unknown kind {kind!r}"
    if not le < re:
        return "the lifetime is empty"
    sync = le if kind == "insert" else min(re, re_new)
    if sync < cti:
        return f"its sync time {format_ticks(sync)} is before the CTI {format_ticks(cti)}"
    if kind == "retract":
        shape_problem = _bad_shape(shape, le, re_new) if shape == "point" and re_new > le else None
        return _bad_retraction(event, alive, retractions=retractions) or shape_problem
    return _bad_shape(shape, le, re)


def _bad_retraction(event: Mapping[str, Any], alive: Counter[Hashable], *, retractions: bool) -> str | None:
    if not retractions:
        return "a final stream has no retractions"
    if event["re_new"] < event["le"] or event["re_new"] == event["re"]:
        return "the retraction changes nothing, or ends before it starts"
    return None if alive[_key(event, event["re"])] > 0 else "it retracts an event that does not exist"


def _bad_shape(shape: Shape, le: int, re: int) -> str | None:
    if shape == "point" and re != le + CHRONON:
        return "not a point"
    return "a start edge never ends until it is corrected" if shape == "edge" and re != INFINITY else None


def _apply(event: Mapping[str, Any], alive: Counter[Hashable]) -> None:
    if event["kind"] == "insert":
        alive[_key(event, event["re"])] += 1
    elif event["kind"] == "retract":
        alive[_key(event, event["re"])] -= 1
        if event["re_new"] > event["le"]:
            alive[_key(event, event["re_new"])] += 1
    else:
        raise EventError("unknown kind", given=event["kind"])


def _key(event: Mapping[str, Any], re: int) -> Hashable:
    return (event["le"], re, *(_comparable(value) for name, value in event.items() if name not in _CONTROL))


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return tuple(map(_comparable, value)) if isinstance(value, list) else value
