"""The figures of a query, and the metrics made of them. `docs/metrics.md` has the table of all metrics."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Literal

from headrace.io.lateness import BOUNDS
from headrace.metrics.families import Family
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["OperatorFigures", "QueryFigures", "Reached", "process_families", "query_families", "state_family"]

_TICKS_PER_SECOND = 1_000_000


@dataclass(frozen=True)
class Reached:
    """How far a source or an output is: its CTI and the highest time so far, in ticks."""

    name: str
    cti: int
    high: int
    dates: bool

    @property
    def finite(self) -> bool:
        """Whether the CTI is a time: at the beginning and at the end it is infinite."""
        return NEG_INFINITY < self.cti < INFINITY

    @property
    def shown(self) -> float:
        """The CTI in seconds since 1970, or as a number."""
        return self.cti / _TICKS_PER_SECOND if self.dates else float(self.cti)

    @property
    def ticks_behind(self) -> int | None:
        """By how much the CTI is behind the highest time, of numbers; None for dates, and before the first row."""
        if self.dates or not NEG_INFINITY < self.high < INFINITY:
            return None
        return max(0, self.high - self.cti)


@dataclass(frozen=True)
class OperatorFigures:
    """The state of an operator, and the source whose CTI holds it: the one that is farthest behind."""

    name: str
    rows: int
    size: int
    held_by: str | None


@dataclass(frozen=True)
class QueryFigures:
    """What is known of a query that runs; all totals but those of rows begin with the process."""

    query: str
    state: str
    #: The number of its last batch, and when it was committed, in seconds since 1970.
    batch: int | None = None
    committed: float | None = None
    #: By source.
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lateness: Mapping[str, Sequence[int]] = field(default_factory=dict)
    sources: Sequence[Reached] = ()
    outputs: Sequence[Reached] = ()
    operators: Sequence[OperatorFigures] = ()
    #: Batches, seconds by phase, and changes and removals by output.
    batches: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    changes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: Seconds of the latest batches.
    batch_seconds: Sequence[float] = ()
    #: What waits to be read, by source: the unit and the number.
    waiting: Mapping[str, tuple[Literal["files", "offsets"], int]] = field(default_factory=dict)
    starts: int = 0
    #: For each rule of alarms, whether it has an alarm now, and how many have begun.
    alarms: Mapping[str, tuple[bool, int]] = field(default_factory=dict)


def query_families(queries: Iterable[QueryFigures], now: float) -> Iterator[Family]:
    """The metrics of queries, at a time of the clock in seconds since 1970."""
    found = list(queries)
    for families in (_rows, _lateness, lambda found: _progress(found, now), _batches, _changes, _state, _alarms):
        yield from families(found)


def state_family(states: Mapping[str, str]) -> Family:
    """The states of queries by name."""
    family = Family("headrace_query_state", "gauge", "The state of a query.", ("query", "state"))
    for name, state in states.items():
        family.add((name, state), 1)
    return family


def _rows(queries: Sequence[QueryFigures]) -> Iterator[Family]:
    fates = Family(
        "headrace_rows_total", "counter", "Rows of sources by fate; `rows` are all that were read.",
        ("query", "source", "fate"),
    )  # fmt: skip
    waiting = Family("headrace_waiting", "gauge", "Files or offsets that wait to be read.", ("query", "source", "unit"))
    for one in queries:
        for source, counts in one.counts.items():
            for fate, count in counts.items():
                fates.add((one.query, source, fate), count)
        for source, (unit, count) in one.waiting.items():
            waiting.add((one.query, source, unit), count)
    yield from (fates, waiting)


def _lateness(queries: Sequence[QueryFigures]) -> Iterator[Family]:
    """By how much rows are behind the CTI: rows on time are those in the bucket of 0 seconds."""
    found = Family(
        "headrace_lateness_seconds", "histogram", "By how much rows of dates were behind the CTI; 0: on time.",
        ("query", "source"),
    )  # fmt: skip
    bounds = [0.0, *(bound / _TICKS_PER_SECOND for bound in BOUNDS)]
    for one in queries:
        for source, (*late, ticks) in one.lateness.items():
            counts = one.counts[source]
            on_time = counts["rows"] - counts["malformed"] - sum(late)
            found.add_histogram((one.query, source), bounds, [on_time, *late], ticks / _TICKS_PER_SECOND)
    yield found


def _progress(queries: Sequence[QueryFigures], now: float) -> Iterator[Family]:
    yield from _reached(queries, now, "", ("query",), _least)
    yield from _reached(queries, now, "source_", ("query", "source"), lambda one: one.sources)
    yield from _reached(queries, now, "output_", ("query", "output"), lambda one: one.outputs)


def _least(one: QueryFigures) -> Sequence[Reached]:
    """The source that is farthest behind."""
    return [min(one.sources, key=lambda source: source.cti)] if one.sources else []


def _reached(
    queries: Sequence[QueryFigures], now: float, prefix: str, labels: tuple[str, ...],
    of: Callable[[QueryFigures], Sequence[Reached]],
) -> Iterator[Family]:  # fmt: skip
    what = {"": "The least CTI of the sources", "source_": "The CTI of a source", "output_": "The CTI of an output"}
    ctis = Family(f"headrace_{prefix}cti", "gauge", f"{what[prefix]}, in seconds since 1970 or as a number.", labels)
    lags = Family(
        f"headrace_{prefix}cti_lag_seconds", "gauge", f"{what[prefix]}: by how much it is behind the clock.", labels
    )
    ticks = Family(
        f"headrace_{prefix}cti_lag_ticks", "gauge",
        f"{what[prefix]}, of numbers: by how much it is behind the highest time read.", labels,
    )  # fmt: skip
    for one in queries:
        for reached in of(one):
            if not reached.finite:
                continue
            which = (one.query, reached.name)[: len(labels)]
            ctis.add(which, reached.shown)
            if reached.dates:
                lags.add(which, now - reached.shown)
            elif (behind := reached.ticks_behind) is not None:
                ticks.add(which, behind)
    yield from (ctis, lags, ticks)


def _batches(queries: Sequence[QueryFigures]) -> Iterator[Family]:
    one_query = ("query",)
    number = Family("headrace_batch", "gauge", "The number of the last batch.", one_query)
    total = Family("headrace_batches_total", "counter", "Batches since the process was started.", one_query)
    committed = Family(
        "headrace_last_batch_timestamp_seconds", "gauge", "When the last batch was committed, in seconds since 1970.",
        one_query,
    )  # fmt: skip
    last = Family("headrace_batch_seconds", "gauge", "The time of the last batch.", one_query)
    slowest = Family("headrace_batch_seconds_max", "gauge", "The longest of the last 1,000 batches.", one_query)
    phases = Family(
        "headrace_batch_phase_seconds_total", "counter", "Time of batches by phase: plan, run, commit, deliver, tidy.",
        ("query", "phase"),
    )  # fmt: skip
    restarts = Family(
        "headrace_restarts_total", "counter", "Times that the checkpoint was taken over after the first.", one_query
    )
    for one in queries:
        which = (one.query,)
        if one.batch is not None:
            number.add(which, one.batch)
        if one.committed is not None:
            committed.add(which, one.committed)
        total.add(which, one.batches)
        restarts.add(which, max(0, one.starts - 1))
        if one.batch_seconds:
            last.add(which, one.batch_seconds[-1])
            slowest.add(which, max(one.batch_seconds))
        for phase, seconds in one.phases.items():
            phases.add((one.query, phase), seconds)
    yield from (number, total, committed, last, slowest, phases, restarts)


def _changes(queries: Sequence[QueryFigures]) -> Iterator[Family]:
    labels = ("query", "output")
    changes = Family("headrace_changes_total", "counter", "Changes that left by an output.", labels)
    corrections = Family(
        "headrace_corrections_total", "counter", "Answers of an output that were taken back or replaced.", labels
    )
    for one in queries:
        for output, (changed, removed) in one.changes.items():
            changes.add((one.query, output), changed)
            corrections.add((one.query, output), removed)
    yield from (changes, corrections)


def _state(queries: Sequence[QueryFigures]) -> Iterator[Family]:
    labels = ("query", "operator", "place")
    rows = Family("headrace_state_rows", "gauge", "Rows of state of an operator.", labels)
    size = Family("headrace_state_bytes", "gauge", "Bytes of state of an operator.", labels)
    held = Family(
        "headrace_state_held_by", "gauge", "1 for the source whose CTI holds the state: the one farthest behind.",
        (*labels, "source"),
    )  # fmt: skip
    for one in queries:
        for place, operator in enumerate(one.operators):
            which = (one.query, operator.name, str(place))
            rows.add(which, operator.rows)
            size.add(which, operator.size)
            if operator.held_by is not None:
                held.add((*which, operator.held_by), 1)
    yield from (rows, size, held)


def _alarms(queries: Sequence[QueryFigures]) -> Iterator[Family]:
    labels = ("query", "rule")
    now = Family("headrace_alarm", "gauge", "1 while a rule has an alarm, else 0.", labels)
    begun = Family("headrace_alarms_total", "counter", "Alarms that have begun, by rule.", labels)
    for one in queries:
        for rule, (active, count) in one.alarms.items():
            now.add((one.query, rule), 1 if active else 0)
            begun.add((one.query, rule), count)
    yield from (now, begun)


def process_families() -> Iterator[Family]:
    """The metrics of the process itself."""
    build = Family("headrace_build_info", "gauge", "1; the label has the version.", ("version",))
    build.add((_version(),), 1)
    cpu = Family("headrace_process_cpu_seconds_total", "counter", "Processor time of the process.")
    cpu.add((), time.process_time())
    yield from (build, cpu)
    memory = _resident_bytes()
    if memory is not None:
        resident = Family("headrace_process_memory_bytes", "gauge", "Resident memory of the process.")
        resident.add((), memory)
        yield resident


@cache
def _version() -> str:
    try:
        return metadata.version("headrace")
    except metadata.PackageNotFoundError:  # run from its source, without being installed
        return "unknown"


def _resident_bytes() -> int | None:
    """The resident memory of this process; None where the system does not say."""
    if sys.platform != "linux":
        return None
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")]
    return sizes[0] if sizes else None
