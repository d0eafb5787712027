"""The end of a loop that is spread over buckets, trip by trip (`trips.py`).

In a trip one round has its turn. Other changes wait in traces: derivations of higher rounds, and those too late for
this wave.

`SpreadBag` passes on the derivations of the round. Since they wait for their turn, an event and its retraction meet and
cancel, and do not follow each other round a cycle. `SpreadDistinct` counts the derivations of the payloads of its
bucket (`levels.py`), and passes on the changes of the facts of this level. It also keeps *marks*: payloads that a lower
level has changed and that a higher one must recompute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import hash_rows, to_numpy
from headrace.operators.coalesce import CoalesceKernel
from headrace.operators.kernel import Data, Kernel, SavedTraces, consolidated_rows
from headrace.operators.recurse.body import part_of
from headrace.operators.recurse.guard import Guard
from headrace.operators.recurse.levels import Levels, Turns
from headrace.operators.recurse.rounds import next_round, split_rounds, with_round
from headrace.operators.recurse.tally import Tally
from headrace.operators.recurse.trips import TripReport, Trips
from headrace.plan.nodes import Coalesce
from headrace.plan.spread import LoopEnd
from headrace.progress import Progress
from headrace.time import INFINITY
from headrace.trace import Segment, Trace

__all__ = ["SpreadBag", "SpreadDistinct", "SpreadLoop", "spread_loop_of"]

Int64s = NDArray[np.int64]

#: More rounds than an unlucky order of arrival can cause.
_SURELY_TOO_DEEP = 10_000


def spread_loop_of(node: LoopEnd) -> SpreadLoop:
    """The end of a loop in one bucket."""
    return SpreadDistinct(node) if node.loop.distinct else SpreadBag(node)


class SpreadLoop(Kernel):
    """The end of a loop in one bucket. The stage sets `trips` before every step."""

    divisible = spread = True
    #: The start of a wave in one bucket becomes that of all: they promise less, until the next wave.
    merged: ClassVar[Mapping[str, str]] = {"since": "min", "tally most_rounds": "max", "tally in_all": "sum"}

    def __init__(self, node: LoopEnd) -> None:
        super().__init__(node)
        self.end = node
        self.trips = Trips(node.loop.strategy)
        self.tally = Tally(dates=node.dates)
        self.guard = Guard(node.loop, self.tally)
        #: The guess at its return, the changes that circulate, and the report to the others.
        self.home = INFINITY
        self.given = Changes.empty(node.body.schema)
        self.report = TripReport(0, INFINITY)
        #: The first instant that this wave alters here.
        self.since = INFINITY
        self.waiting = {"pending": Trace(consolidated_rows), "later": Trace(consolidated_rows)}
        self.traces = dict(self.waiting)

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        seed, derived = (part for part in inputs if isinstance(part, Changes))
        now = Progress(self.trips.definite, Progress.together(progress).high)
        arrived = Changes.concat([with_round(seed, self.end.round_column, 0), next_round(derived)]).consolidate()
        if self.trips.fresh:  # a wave may begin without this bucket
            self.since = INFINITY
        busy = len(arrived) > 0 or self._waits()
        if busy and self.trips.fresh:
            self.tally.begin()
        if not busy:
            self._give(Changes.empty(self.end.body.schema))
        result = self._result(self._work_off(arrived) if busy else Changes.empty(self.end.schema), now)
        self.tally.promised([Progress(self.home)], now)
        self._note()
        return result, now

    def _work_off(self, arrived: Changes) -> Changes:
        """Take the turn of a round, with arrived and waiting changes; the changes of the loop's result."""
        turn = self.trips.turn
        late, pending = self._sorted(arrived)
        rounds = _rounds(pending)
        if len(pending):
            self.since = min(self.since, int(pending.sync_times().min()))
        changes, again = self._turn(split_rounds(pending.filter(rounds == turn))[0])
        pending = pending.filter(rounds > turn)
        self._keep("pending", pending)
        self._keep("later", late)
        first = int(np.concatenate([_rounds(pending), again]).min(initial=INFINITY))
        held = min(self.since if first < INFINITY else INFINITY, int(late.sync_times().min(initial=INFINITY)))
        later = int(_rounds(late).min(initial=INFINITY))
        self._give(with_round(changes, self.end.round_column, turn), held=held, pending=first, later=later)
        return changes

    def _sorted(self, arrived: Changes) -> tuple[Changes, Changes]:
        """The changes too late for this wave, and its pending ones."""
        pending, later = self._kept("pending"), self._kept("later")
        if self.trips.fresh:
            pending, later = later, Changes.empty(self.end.body.schema)
        pending = Changes.concat([pending, arrived]).consolidate()
        early = _rounds(pending) >= self.trips.turn
        return Changes.concat([later, pending.filter(~early)]).consolidate(), pending.filter(early)

    def _turn(self, changes: Changes) -> tuple[Changes, Int64s]:
        """Process the derivations of the current round; the changes that circulate, and rounds to recompute."""
        raise NotImplementedError

    def _result(self, changes: Changes, now: Progress) -> Changes:
        """The output of the loop."""
        raise NotImplementedError

    def _give(self, changes: Changes, *, held: int = INFINITY, pending: int = INFINITY, later: int = INFINITY) -> None:
        """Circulate changes, and report what waits here."""
        times = changes.sync_times()
        first, last = (int(times.min()), int(times.max())) if len(times) else (INFINITY, self.trips.high)
        self.given = changes
        if len(changes):
            # While changes wait for the next wave, facts may seem deeper than they are; the next wave corrects that.
            sure = not (self.trips.waits or later < INFINITY) and bool((changes.weight > 0).any())
            depth = self.trips.turn
            self.guard.round(changes, self, depth if sure or depth >= _SURELY_TOO_DEEP else 0)
        self.report = TripReport(self.trips.trip, self.home, len(changes), first, last, held, pending, later)

    def busiest(self) -> str:
        """The operator with the most changes."""
        return self.end.loop.body.describe()

    # --- state -------------------------------------------------------------------------------------------------------

    def _waits(self) -> bool:
        return any(trace.segments for trace in self.waiting.values())

    def _keep(self, name: str, changes: Changes) -> None:
        if len(changes) or self.waiting[name].segments:
            times = np.full(len(changes), INFINITY, np.int64)
            self.waiting[name].replace(changes.to_table(), hash_rows(changes.payload), times)

    def _kept(self, name: str) -> Changes:
        rows = self.waiting[name].scan()
        return Changes.empty(self.end.body.schema) if rows is None else Changes.from_table(rows)

    def _note(self) -> None:
        self.scalars = {"since": self.since} | {f"tally {name}": n for name, n in self.tally.scalars().items()}

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        super().restore(scalars, traces, held)
        self.since = scalars["since"]
        self.tally.restore(part_of("tally", scalars))

    def state(self) -> dict[str, Any]:
        return super().state() | self.tally.state() | {"trips": self.trips.trip, "loop": []}

    def held_by(self) -> str:
        return "what the loop has found and the CTI has not ended"


class SpreadBag(SpreadLoop):
    """All events, one copy for each derivation."""

    def __init__(self, node: LoopEnd) -> None:
        super().__init__(node)
        self._note()

    def _turn(self, changes: Changes) -> tuple[Changes, Int64s]:
        return changes, np.empty(0, np.int64)

    def _result(self, changes: Changes, now: Progress) -> Changes:  # noqa: ARG002 - it needs no promise
        return changes

    def held_by(self) -> str:
        return "derivations whose round has not had its turn"


class SpreadDistinct(SpreadLoop):
    """Every payload at most once at an instant."""

    def __init__(self, node: LoopEnd) -> None:
        super().__init__(node)
        self.levels = Levels(node.schema, node.round_column)
        self.united = CoalesceKernel(Coalesce(node.seed))
        self.marks = Trace(lambda rows: rows)
        self.traces |= {**self.levels.traces, "marks": self.marks}
        self.traces |= {f"result {name}": trace for name, trace in self.united.traces.items()}
        self._note()

    def _result(self, changes: Changes, now: Progress) -> Changes:
        self.levels.settle(now.cti)
        return self.united.step([changes], [now])[0]

    def _turn(self, changes: Changes) -> tuple[Changes, Int64s]:
        turn = self.trips.turn
        marks = self._marks()
        current = to_numpy(marks.column(0)) == turn
        turns = Turns(self.levels)
        turns.add(changes, turn)
        again = marks.filter(pa.array(current))
        lost = again.column(1).to_numpy()
        facts, remaining = turns.take_alone(turn, again.drop_columns(again.column_names[:2]), lost)
        turns.finish()
        table = pa.table([*remaining[:2], *remaining[2].columns], schema=marks.schema)
        marks = pa.concat_tables([marks.filter(pa.array(~current)), table])
        self.marks.replace(marks, hash_rows(marks), np.full(marks.num_rows, INFINITY, np.int64))
        return facts, to_numpy(marks.column(0))

    def _marks(self) -> pa.Table:
        """Payloads to recompute: in which round, and whether a lower level has lost them."""
        rows = self.marks.scan()
        fields = [pa.field("__round", pa.int64()), pa.field("__lost", pa.bool_()), *self.end.schema.arrow]
        return pa.schema(fields).empty_table() if rows is None else rows

    # --- state -------------------------------------------------------------------------------------------------------

    def _waits(self) -> bool:
        return super()._waits() or bool(self.marks.segments)

    def _note(self) -> None:
        super()._note()
        self.scalars |= {f"result {name}": value for name, value in self.united.scalars.items()}

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        super().restore(scalars, traces, held)
        self.levels.floor = max((trace.floor for trace in self.levels.traces.values()), default=self.levels.floor)
        self.united.restore(part_of("result", scalars), part_of("result", traces), held)


def _rounds(changes: Changes) -> Int64s:
    return split_rounds(changes)[1]
