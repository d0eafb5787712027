"""Check the order of a physical stream (rule 10.2), and that every run gives the same one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal, Unpack, get_args

import pyarrow as pa

from headrace.api.options import StreamRunOptions, shows_options
from headrace.api.stream import Stream
from headrace.border import as_ticks
from headrace.columnar import factorize
from headrace.errors import PlanError
from headrace.events import CONTROL
from headrace.testing.checks import Violation
from headrace.time import NEG_INFINITY, format_ticks

__all__ = ["Order", "check_deterministic", "check_order", "deterministic", "order_violations"]

#: `full`: by sync time, and corrections after the rows they correct. `corrections`: only the latter.
Order = Literal["full", "corrections"]


def order_violations(events: pa.Table, order: Order) -> Iterator[tuple[int, str]]:
    """Every row of a physical table that is out of order, by its number from 0, and why.

    In full order no row has a sync time (LE of an insert, the earlier end of a retraction) before that of a row above
    it, or before a CTI above it. In either order a retraction follows the insert or the retraction that gave the event
    the lifetime that it names.
    """
    if order not in get_args(Order):
        raise PlanError("unknown order", given=order, allowed=", ".join(get_args(Order)))
    events = as_ticks(events)
    alive: Counter[tuple[int, int]] = Counter()
    highest, above = NEG_INFINITY, ""
    rows = zip(events.select(list(CONTROL)).to_pylist(), _identities(events), strict=True)
    for number, (event, identity) in enumerate(rows):
        kind, le, re, re_new = (event[name] for name in CONTROL)
        sync = min(re, re_new) if kind == "retract" else le
        if kind == "retract" and not alive[identity, re]:
            yield number, "it corrects an event that does not exist yet, or that has another lifetime now"
        if order == "full" and kind != "cti" and sync < highest:
            yield number, f"its sync time {format_ticks(sync)} is before {format_ticks(highest)}, {above} above it"
        if sync > highest:
            highest, above = sync, "a CTI" if kind == "cti" else "the sync time of a row"
        if kind == "retract" and alive[identity, re]:
            alive[identity, re] -= 1
        if kind != "cti":
            alive[identity, re_new if kind == "retract" else re] += 1


def _identities(events: pa.Table) -> list[int]:
    """A number for every row, the same for equal payloads that start together."""
    codes, _ = factorize(events.drop_columns(["kind", "re", "re_new"]))
    return [int(code) for code in codes]


def check_order(events: pa.Table, order: Order) -> None:
    """Raise for the first row that is out of order."""
    for row, problem in order_violations(events, order):
        raise Violation(f"row {row + 1} is out of order: {problem}", given=events.slice(row, 1).to_pylist()[0])


@shows_options(StreamRunOptions)
def deterministic(stream: Stream, runs: int = 2, **options: Unpack[StreamRunOptions]) -> bool:
    """Whether every run gives the same physical events, row for row; options are those of `stream.run`."""
    return _first_difference(stream, runs, options) is None


@shows_options(StreamRunOptions)
def check_deterministic(stream: Stream, runs: int = 2, **options: Unpack[StreamRunOptions]) -> None:
    """Raise, with the first row that differs, unless every run gives the same physical events, row for row."""
    difference = _first_difference(stream, runs, options)
    if difference is not None:
        raise Violation(
            difference,
            allowed="modules and functions whose results depend on their arguments alone",
            instead="window(..., verify=True) to find out which module it is",
        )


def _first_difference(stream: Stream, runs: int, options: StreamRunOptions) -> str | None:
    if runs < 2:
        raise PlanError("one run cannot differ from another", given=runs, allowed="2 runs or more")
    first = _rows(stream, options)
    for run in range(2, runs + 1):
        other = _rows(stream, options)
        for number, (a, b) in enumerate(zip(first, other, strict=False), 1):
            if a != b:
                return f"row {number} of run 1 is {a}, of run {run} {b}"
        if len(first) != len(other):
            return f"run 1 gave {len(first)} rows, run {run} {len(other)}"
    return None


def _rows(stream: Stream, options: StreamRunOptions) -> list[str]:
    """Rows as text, in which NaN equals itself."""
    return [str(row) for row in stream.run(**options).events().to_pylist()]
