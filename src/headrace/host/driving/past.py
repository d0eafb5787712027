"""The latest batches of a running query, for people who look at it: what each did, and where its time was spent.

They are kept in memory: the latest batches one by one, and for longer as sums of all batches that ended within the same
second. Queries that run together have their batches in common; `PastBatch.own` has the part of one of them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

from headrace.border import shown_time
from headrace.stages.cut import Line
from headrace.stages.load import StageLoad
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["PHASES", "Flows", "PastBatch", "PastBatches", "cti_and_lag", "new_rows", "phases_of", "together"]

#: The parts of the time of a batch. `commit` also waits until the batch before is delivered.
PHASES = ("plan", "run", "commit", "deliver", "tidy")
_KEPT = 600
_V = TypeVar("_V")
_N = TypeVar("_N", int, float)


@dataclass(frozen=True)
class Flows:
    """The rows that left each operator in a batch, by fingerprint; and the changes and removals of each output."""

    rows: Mapping[str, int]
    outputs: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, line: Line, statistics: Iterable[Mapping[str, Any]], outputs: Mapping[str, tuple[int, int]]) -> Flows:
        """From the statistics of all stages in all trips.

        What leaves the intake is known by what arrives at the stages.
        """
        rows, edges = Counter[str](), Counter[int]()
        for part in statistics:
            rows.update(part.get("out", {}))
            ending = (edge.number for edge in line.edges if edge.to == part["level"])
            edges.update({number: arrived for number, (_, arrived) in zip(ending, part["arrivals"], strict=True)})
        for number, arrived in edges.items():
            edge = line.edges[number]
            if edge.start == 0:
                rows[edge.producer.fingerprint] = max(rows[edge.producer.fingerprint], arrived)
        for output in line.outputs:
            rows[output.fingerprint] = outputs[output.name][0]
        return cls(dict(rows), outputs)


@dataclass(frozen=True)
class PastBatch:
    """What one batch did, or several that ended within the same second: then sums, and the latest CTIs and sizes."""

    number: int
    #: When it was committed, in seconds since 1970.
    ended: float
    #: Seconds by `PHASES`.
    phases: Mapping[str, float]
    #: New rows by source and fate.
    rows: Mapping[str, Mapping[str, int]]
    #: The CTIs of sources, by fingerprint.
    ctis: Mapping[str, int]
    flows: Flows
    #: Rows and bytes of state, by operator.
    state: Mapping[str, tuple[int, int]]
    loads: tuple[StageLoad, ...] = ()
    batches: int = 1

    @property
    def seconds(self) -> float:
        """How long it took."""
        return sum(self.phases.values())

    @property
    def cti(self) -> int:
        """The least CTI of its sources."""
        return min(self.ctis.values(), default=NEG_INFINITY)

    def fate(self, *names: str) -> int:
        """The rows of all sources with one of these fates."""
        return sum(counts.get(name, 0) for counts in self.rows.values() for name in names)

    @property
    def changes(self) -> int:
        """The changes of all outputs."""
        return sum(changes for changes, _ in self.flows.outputs.values())

    @property
    def removals(self) -> int:
        """The answers that were taken back or replaced."""
        return sum(removed for _, removed in self.flows.outputs.values())

    @property
    def state_size(self) -> tuple[int, int]:
        """Rows and bytes of the state of all operators."""
        return sum(rows for rows, _ in self.state.values()), sum(size for _, size in self.state.values())

    def own(self, sources: Collection[str], operators: Collection[str], outputs: Collection[str]) -> PastBatch:
        """The part of one query: origins of its sources, fingerprints of its operators, names of its outputs."""
        flows = Flows(_only(self.flows.rows, operators), _only(self.flows.outputs, outputs))
        return replace(
            self, rows=_only(self.rows, sources), ctis=_only(self.ctis, operators), flows=flows,
            state=_only(self.state, operators),
        )  # fmt: skip

    def followed_by(self, later: PastBatch) -> PastBatch:
        """Both together, as one."""
        return replace(
            later,
            phases=_added(self.phases, later.phases),
            rows=_joined(self.rows, later.rows, _added),
            flows=Flows(
                _added(self.flows.rows, later.flows.rows),
                _joined(self.flows.outputs, later.flows.outputs, lambda a, b: (a[0] + b[0], a[1] + b[1])),
            ),
            batches=self.batches + later.batches,
        )


class PastBatches:
    """The latest batches, and the latest seconds that had one; the oldest are forgotten."""

    def __init__(self) -> None:
        self._batches: deque[PastBatch] = deque(maxlen=_KEPT)
        self._seconds: deque[PastBatch] = deque(maxlen=_KEPT)
        #: All batches, also those that are forgotten, as one.
        self.total: PastBatch | None = None

    @property
    def batches(self) -> list[PastBatch]:
        return list(self._batches.copy())

    @property
    def seconds(self) -> list[PastBatch]:
        return list(self._seconds.copy())

    def add(self, batch: PastBatch) -> None:
        """Add a batch; one thread does."""
        self._batches.append(batch)
        self.total = batch if self.total is None else self.total.followed_by(batch)
        if self._seconds and int(self._seconds[-1].ended) == int(batch.ended):
            self._seconds[-1] = self._seconds[-1].followed_by(batch)
        else:
            self._seconds.append(batch)

    def extend(self, later: PastBatches) -> None:
        """Add those of a query that continues where this one ended."""
        self._batches.extend(later.batches)
        self._seconds.extend(later.seconds)
        self.total = together(self.total, later.total)


def together(first: PastBatch | None, later: PastBatch | None) -> PastBatch | None:
    """Both as one, where there may be none."""
    if first is None or later is None:
        return first or later
    return first.followed_by(later)


def cti_and_lag(cti: int, now: float, *, dates: bool) -> tuple[int | str, float | None]:
    """A CTI as users see it, and by how many seconds it is behind the clock; None if it is no date, or infinite."""
    finite = NEG_INFINITY < cti < INFINITY
    return shown_time(cti, dates=dates), round(now - cti / 1e6, 3) if dates and finite else None


def phases_of(ends: Sequence[float]) -> dict[str, float]:
    """Seconds by phase, from the moments at which phases ended; the first is the start of the batch."""
    return {name: end - begin for name, (begin, end) in zip(PHASES, pairwise(ends), strict=True)}


def new_rows(
    before: Mapping[str, Mapping[str, int]], now: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """By how much counts have grown; what has not is left out."""
    grown = {name: {k: n - before.get(name, {}).get(k, 0) for k, n in counts.items()} for name, counts in now.items()}
    found = {name: {k: n for k, n in counts.items() if n} for name, counts in grown.items()}
    return {name: counts for name, counts in found.items() if counts}


def _only(values: Mapping[str, _V], names: Collection[str]) -> dict[str, _V]:
    return {name: value for name, value in values.items() if name in names}


def _added(first: Mapping[str, _N], second: Mapping[str, _N]) -> dict[str, _N]:
    return _joined(first, second, lambda a, b: a + b)


def _joined(first: Mapping[str, _V], second: Mapping[str, _V], add: Callable[[_V, _V], _V]) -> dict[str, _V]:
    return {**first, **{name: add(first[name], value) if name in first else value for name, value in second.items()}}
