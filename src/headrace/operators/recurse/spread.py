"""The end of a loop that is spread over buckets: what comes round, one trip a batch (`trips.py`).

`SpreadBag` passes on all that comes. `SpreadDistinct` has the derivations and facts of the payloads of its bucket
(`levels.py`). In a trip one round has its turn: its derivations are counted, and the facts of this level change by
them. What else is in hand waits for its own turn, and is remembered: derivations of higher rounds, what came too late
for this wave, and *marks* of payloads that a lower level has changed and a higher one must look at again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import hash_rows, to_numpy
from headrace.operators.coalesce import CoalesceKernel
from headrace.operators.kernel import Data, Kernel, SavedTraces, consolidated_rows
from headrace.operators.recurse.body import under
from headrace.operators.recurse.guard import Guard
from headrace.operators.recurse.levels import Levels, Turns
from headrace.operators.recurse.rounds import further, parted, stamped
from headrace.operators.recurse.tally import Tally
from headrace.operators.recurse.trips import TripReport, Trips
from headrace.plan.nodes import Coalesce
from headrace.plan.spread import LoopEnd
from headrace.progress import Progress
from headrace.schema import Field, Schema, Type
from headrace.time import INFINITY
from headrace.trace import Segment, Trace

__all__ = ["SpreadBag", "SpreadDistinct", "SpreadLoop", "spread_loop_of"]

Int64s = NDArray[np.int64]


def spread_loop_of(node: LoopEnd) -> SpreadLoop:
    """The end of a loop in one bucket."""
    return SpreadDistinct(node) if node.loop.distinct else SpreadBag(node)


class SpreadLoop(Kernel):
    """The end of a loop in one bucket. The stage says what is known of the loop before every step."""

    def __init__(self, node: LoopEnd) -> None:
        super().__init__(node)
        self.end = node
        self.trips = Trips(node.loop.strategy)
        self.tally = Tally()
        self.guard = Guard(node.loop, self.tally)
        #: The guess as it came home, what goes round again, and what the others are told with it.
        self.home = INFINITY
        self.given = Changes.empty(node.body.schema)
        self.report = TripReport(0, INFINITY)

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        seed, derived = (part for part in inputs if isinstance(part, Changes))
        now = Progress(self.trips.definite, Progress.together(progress).high)
        arrived = Changes.concat([stamped(seed, self.end.round_column, 0), further(derived)]).consolidate()
        if self.trips.fresh:
            self.tally.begin()
        result = self._trip(arrived, now)
        self.tally.promised([Progress(self.home)], now)
        self._note()
        return result, now

    def _trip(self, arrived: Changes, now: Progress) -> Changes:
        """What has come, with its rounds: what leaves the loop."""
        raise NotImplementedError

    def _give(self, changes: Changes, *, held: int = INFINITY, pending: int = INFINITY, later: int = INFINITY) -> None:
        """Send changes round again, and tell what is kept here."""
        times = changes.sync_times()
        first, last = (int(times.min()), int(times.max())) if len(times) else (INFINITY, self.trips.high)
        self.given = changes
        if len(changes):
            self.guard.round(changes, self, int(parted(changes)[1].max()))
        self.report = TripReport(self.trips.trip, self.home, len(changes), first, last, held, pending, later)

    def busiest(self) -> str:
        """The operator that gives what goes round."""
        return self.end.loop.body.describe()

    def state(self) -> dict[str, Any]:
        return super().state() | self.tally.state() | {"trips": self.trips.trip, "loop": []}

    def held_by(self) -> str:
        return "what the loop has found and the CTI has not ended"

    def _note(self) -> None:
        self.scalars = {f"tally {name}": value for name, value in self.tally.scalars().items()}

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        super().restore(scalars, traces, held)
        self.tally.restore(under("tally", scalars))


class SpreadBag(SpreadLoop):
    """All events, as often as they are derived."""

    def __init__(self, node: LoopEnd) -> None:
        super().__init__(node)
        self._note()

    def _trip(self, arrived: Changes, now: Progress) -> Changes:  # noqa: ARG002 - nothing is remembered
        self._give(arrived)
        return parted(arrived)[0].consolidate()


class SpreadDistinct(SpreadLoop):
    """Every payload at most once at an instant."""

    def __init__(self, node: LoopEnd) -> None:
        super().__init__(node)
        #: The first instant that this wave alters here.
        self.since = INFINITY
        self.levels = Levels(node.schema, node.round_column)
        self.united = CoalesceKernel(Coalesce(node.seed))
        self.waiting = {"pending": Trace(consolidated_rows), "later": Trace(consolidated_rows)}
        self.marks = Trace(lambda rows: rows)
        self.traces = {**self.levels.traces, **self.waiting, "marks": self.marks}
        self.traces |= {f"result {name}": trace for name, trace in self.united.traces.items()}
        self._note()

    def _trip(self, arrived: Changes, now: Progress) -> Changes:
        self.levels.settle(now.cti)
        waiting = any(trace.segments for trace in (*self.waiting.values(), self.marks))
        changes = self._work_off(arrived) if waiting or len(arrived) else self._nothing()
        return self.united.step([changes], [now])[0]

    def _nothing(self) -> Changes:
        """A trip with nothing to do here."""
        self._give(Changes.empty(self.end.body.schema))
        return Changes.empty(self.end.schema)

    def _work_off(self, arrived: Changes) -> Changes:
        """The turn of a round, with what has come and what has waited: how facts change."""
        turn = self.trips.turn
        late, pending = self._sorted(arrived)
        rounds = _rounds(pending)
        if len(pending):
            self.since = min(self.since, int(pending.sync_times().min()))
        changes, marks = self._turn(parted(pending.filter(rounds == turn))[0])
        pending = pending.filter(rounds > turn)
        self._keep("pending", pending)
        self._keep("later", late)
        self.marks.replace(marks, hash_rows(marks), np.full(marks.num_rows, INFINITY, np.int64))
        rest = [*_rounds(pending).tolist(), *to_numpy(marks.column(0)).tolist()]
        held = min(self.since if rest else INFINITY, int(late.sync_times().min(initial=INFINITY)))
        later = int(_rounds(late).min(initial=INFINITY))
        self._give(self.levels.stamped(changes, turn), held=held, pending=min(rest, default=INFINITY), later=later)
        return changes

    def _sorted(self, arrived: Changes) -> tuple[Changes, Changes]:
        """What came too late for this wave, and what is part of it and has not had its turn."""
        pending, later = self._kept("pending"), self._kept("later")
        if self.trips.fresh:
            self.since = INFINITY
            pending, later = later, Changes.empty(self.end.body.schema)
        pending = Changes.concat([pending, arrived]).consolidate()
        early = _rounds(pending) >= self.trips.turn
        return Changes.concat([later, pending.filter(~early)]).consolidate(), pending.filter(early)

    def _turn(self, changes: Changes) -> tuple[Changes, pa.Table]:
        """The turn of a round: how the facts of its level change, and what is to be looked at again."""
        turn = self.trips.turn
        marks = self._marks()
        mine = to_numpy(marks.column(0)) == turn
        turns = Turns(self.levels)
        turns.add(changes, turn)
        again = marks.filter(pa.array(mine))
        lost = again.column(1).to_numpy()
        facts, left = turns.take_alone(turn, again.drop_columns(again.column_names[:2]), lost)
        turns.finish()
        table = pa.table([*left[:2], *left[2].columns], schema=marks.schema)
        return facts, pa.concat_tables([marks.filter(pa.array(~mine)), table])

    def _marks(self) -> pa.Table:
        """Payloads that are to be looked at: in which round, and whether a lower level has lost them."""
        rows = self.marks.scan()
        column = self.end.round_column
        fields = (Field(column, Type.LONG), Field(f"{column}_lost", Type.BOOLEAN), *self.end.schema.fields)
        return Schema(fields).arrow.empty_table() if rows is None else rows

    # --- state -------------------------------------------------------------------------------------------------------

    def _keep(self, name: str, changes: Changes) -> None:
        times = np.full(len(changes), INFINITY, np.int64)
        self.waiting[name].replace(changes.to_table(), hash_rows(changes.payload), times)

    def _kept(self, name: str) -> Changes:
        rows = self.waiting[name].scan()
        return Changes.empty(self.end.body.schema) if rows is None else Changes.from_table(rows)

    def _note(self) -> None:
        super()._note()
        self.scalars |= {"since": self.since} | {f"result {n}": value for n, value in self.united.scalars.items()}

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        super().restore(scalars, traces, held)
        self.since = scalars["since"]
        self.united.restore(under("result", scalars), under("result", traces), held)


def _rounds(changes: Changes) -> Int64s:
    return parted(changes)[1]
