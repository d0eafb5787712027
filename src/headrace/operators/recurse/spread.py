"""The end of a loop that is spread over buckets: what comes round, trip by trip (`trips.py`).

In a trip one round has its turn. What else is in hand waits for its own turn, and is remembered: derivations of higher
rounds, and what came too late for this wave.

`SpreadBag` passes on the derivations of the round. That they wait for their turn lets an event and its retraction meet
which would else chase each other round a cycle. `SpreadDistinct` counts the derivations of the payloads of its bucket
(`levels.py`), and passes on how the facts of this level change by them. It remembers *marks*, too: of payloads that
a lower level has changed and a higher one must look at again.
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
from headrace.operators.recurse.body import under
from headrace.operators.recurse.guard import Guard
from headrace.operators.recurse.levels import Levels, Turns
from headrace.operators.recurse.rounds import further, parted, stamped
from headrace.operators.recurse.tally import Tally
from headrace.operators.recurse.trips import TripReport, Trips
from headrace.plan.nodes import Coalesce
from headrace.plan.spread import LoopEnd
from headrace.progress import Progress
from headrace.time import INFINITY
from headrace.trace import Segment, Trace

__all__ = ["SpreadBag", "SpreadDistinct", "SpreadLoop", "spread_loop_of"]

Int64s = NDArray[np.int64]

#: Rounds that nothing reaches because it came in an unlucky order.
_SURELY_TOO_DEEP = 10_000


def spread_loop_of(node: LoopEnd) -> SpreadLoop:
    """The end of a loop in one bucket."""
    return SpreadDistinct(node) if node.loop.distinct else SpreadBag(node)


class SpreadLoop(Kernel):
    """The end of a loop in one bucket. The stage says what is known of the loop before every step."""

    divisible = spread = True
    #: What a wave alters in one bucket is said by all: they promise less, until the next wave.
    merged: ClassVar[Mapping[str, str]] = {"since": "min", "tally most_rounds": "max", "tally in_all": "sum"}

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
        #: The first instant that this wave alters here.
        self.since = INFINITY
        self.waiting = {"pending": Trace(consolidated_rows), "later": Trace(consolidated_rows)}
        self.traces = dict(self.waiting)

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        seed, derived = (part for part in inputs if isinstance(part, Changes))
        now = Progress(self.trips.definite, Progress.together(progress).high)
        arrived = Changes.concat([stamped(seed, self.end.round_column, 0), further(derived)]).consolidate()
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
        """The turn of a round, with what has come and what has waited: how the loop's result changes."""
        turn = self.trips.turn
        late, pending = self._sorted(arrived)
        rounds = _rounds(pending)
        if len(pending):
            self.since = min(self.since, int(pending.sync_times().min()))
        changes, again = self._turn(parted(pending.filter(rounds == turn))[0])
        pending = pending.filter(rounds > turn)
        self._keep("pending", pending)
        self._keep("later", late)
        first = int(np.concatenate([_rounds(pending), again]).min(initial=INFINITY))
        held = min(self.since if first < INFINITY else INFINITY, int(late.sync_times().min(initial=INFINITY)))
        later = int(_rounds(late).min(initial=INFINITY))
        self._give(stamped(changes, self.end.round_column, turn), held=held, pending=first, later=later)
        return changes

    def _sorted(self, arrived: Changes) -> tuple[Changes, Changes]:
        """What came too late for this wave, and what is part of it and has not had its turn."""
        pending, later = self._kept("pending"), self._kept("later")
        if self.trips.fresh:
            pending, later = later, Changes.empty(self.end.body.schema)
        pending = Changes.concat([pending, arrived]).consolidate()
        early = _rounds(pending) >= self.trips.turn
        return Changes.concat([later, pending.filter(~early)]).consolidate(), pending.filter(early)

    def _turn(self, changes: Changes) -> tuple[Changes, Int64s]:
        """Derivations of the round that has its turn: what goes round of them, and rounds to be looked at."""
        raise NotImplementedError

    def _result(self, changes: Changes, now: Progress) -> Changes:
        """What leaves the loop."""
        raise NotImplementedError

    def _give(self, changes: Changes, *, held: int = INFINITY, pending: int = INFINITY, later: int = INFINITY) -> None:
        """Send changes round again, and tell what is kept here."""
        times = changes.sync_times()
        first, last = (int(times.min()), int(times.max())) if len(times) else (INFINITY, self.trips.high)
        self.given = changes
        if len(changes):
            # As long as something waits for the next wave, what is found may look deeper than it is. It goes later.
            sure = not (self.trips.waits or later < INFINITY) and bool((changes.weight > 0).any())
            depth = self.trips.turn
            self.guard.round(changes, self, depth if sure or depth >= _SURELY_TOO_DEEP else 0)
        self.report = TripReport(self.trips.trip, self.home, len(changes), first, last, held, pending, later)

    def busiest(self) -> str:
        """The operator that gives what goes round."""
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
        self.tally.restore(under("tally", scalars))

    def state(self) -> dict[str, Any]:
        return super().state() | self.tally.state() | {"trips": self.trips.trip, "loop": []}

    def held_by(self) -> str:
        return "what the loop has found and the CTI has not ended"


class SpreadBag(SpreadLoop):
    """All events, as often as they are derived."""

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
        mine = to_numpy(marks.column(0)) == turn
        turns = Turns(self.levels)
        turns.add(changes, turn)
        again = marks.filter(pa.array(mine))
        lost = again.column(1).to_numpy()
        facts, left = turns.take_alone(turn, again.drop_columns(again.column_names[:2]), lost)
        turns.finish()
        table = pa.table([*left[:2], *left[2].columns], schema=marks.schema)
        marks = pa.concat_tables([marks.filter(pa.array(~mine)), table])
        self.marks.replace(marks, hash_rows(marks), np.full(marks.num_rows, INFINITY, np.int64))
        return facts, to_numpy(marks.column(0))

    def _marks(self) -> pa.Table:
        """Payloads that are to be looked at: in which round, and whether a lower level has lost them."""
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
        self.united.restore(under("result", scalars), under("result", traces), held)


def _rounds(changes: Changes) -> Int64s:
    return parted(changes)[1]
