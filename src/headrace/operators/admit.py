"""Admission: a retraction is accepted only if its event is there.

A stream of physical events may retract an event that never arrived: its sender made a mistake, or the insert was late
and was diverted. Such a retraction would subtract an event that was never added, and every later answer would be wrong.
So the kernel keeps the events that a legal retraction may still name (those with RE at or after the CTI, rule 3.1), and
diverts a retraction that finds no event, with the reason, like any bad row.

The check runs for the whole batch at once. Only if the sums of some payloads are negative, their retractions are
applied one by one. Where late inserts are adjusted, a retraction that names the lifetime as sent finds the event by its
end.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import LE, WEIGHT, Changes
from headrace.columnar import concat, factorize, hash_rows, to_numpy
from headrace.errors import EventError
from headrace.operators.kernel import Data, Kernel, consolidated_rows
from headrace.plan.nodes import DIVERTED, Admit
from headrace.plan.source import RE_NEW, diverted_rows
from headrace.progress import Progress
from headrace.time import CHRONON, INFINITY, NEG_INFINITY
from headrace.trace import Trace

__all__ = ["AdmitKernel"]

_REASON = "it retracts an event that is not there: never inserted, or diverted"


class AdmitKernel(Kernel):
    """Turns physical events into changes, and diverts retractions of unknown events."""

    divisible = True
    merged: ClassVar[Mapping[str, str]] = {"orphans": "sum"}

    def __init__(self, node: Admit) -> None:
        super().__init__(node)
        self.source = node.source
        self.traces = {"open": Trace(consolidated_rows)}
        self.scalars = {"cti": NEG_INFINITY, "orphans": 0}

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (events,), (now,) = inputs, progress
        assert isinstance(events, Changes)
        self.side = Changes.empty(DIVERTED)
        changes = as_changes(events)
        if (changes.weight < 0).any():
            changes = self._checked(events, changes)
        self.traces["open"].drop(now.cti if now.cti == INFINITY else now.cti - 1)
        lasting = changes.filter(changes.re > self.traces["open"].floor)  # no legal retraction names the others
        self.traces["open"].append(lasting.to_table(), _hashes(lasting), lasting.re)
        self.scalars["cti"] = max(self.scalars["cti"], now.cti)
        return changes, now

    def _checked(self, events: Changes, changes: Changes) -> Changes:
        changes = changes.consolidate()
        retracted = changes.filter(changes.weight < 0)
        known = self.traces["open"].lookup(_hashes(retracted))
        held = Changes.from_table(known) if known is not None else Changes.empty(self.node.schema)
        both = Changes.concat([held, changes]).consolidate()
        missing = both.filter(both.weight < 0)
        if len(missing) == 0:
            return changes
        suspects = _same_payload(events, missing)
        orphans, repaired = self._sort_out(events.filter(suspects))
        self._divert(orphans)
        return Changes.concat([as_changes(events.filter(~suspects)), repaired]).consolidate()

    def _sort_out(self, events: Changes) -> tuple[Changes, Changes]:
        """`(retractions of unknown events, changes of the rest)`, for the few payloads with negative sums."""
        re_new = events.payload.column(RE_NEW).to_pylist()
        codes, _ = factorize(events.payload.drop_columns([RE_NEW]))
        live = self._live(events, codes)
        inserts = [i for i, end in enumerate(re_new) if end is None]
        for i in inserts:
            live[int(codes[i]), int(events.le[i]), int(events.re[i])] += 1
        rows, changes = (
            [i for i, end in enumerate(re_new) if end is not None],
            [(i, int(events.le[i]), int(events.re[i]), 1) for i in inserts],
        )
        while True:  # retractions of one event form a chain, but stand here in any order
            waiting = []
            for i in rows:
                moved = self._applied(int(codes[i]), int(events.le[i]), int(events.re[i]), int(re_new[i]), live)
                changes += [(i, *change) for change in moved]
                if not moved:
                    waiting.append(i)
            if len(waiting) == len(rows):
                break
            rows = waiting
        return events.take(np.array(rows, np.int64)), _rebuilt(events, changes)

    def _live(self, events: Changes, codes: NDArray[np.int64]) -> Counter[tuple[int, int, int]]:
        """How often each lifetime is there, by payload."""
        live: Counter[tuple[int, int, int]] = Counter()
        held = self.traces["open"].scan()
        if held is None:
            return live
        known = Changes.from_table(held).consolidate()
        payload = events.payload.drop_columns([RE_NEW])
        both, _ = factorize(concat([payload, known.payload.select(payload.column_names)]))
        code_in_batch = dict(zip(both[: len(events)].tolist(), codes.tolist(), strict=True))
        for code, le, re, weight in zip(both[len(events) :].tolist(), known.le, known.re, known.weight, strict=True):
            if code in code_in_batch:
                live[code_in_batch[code], int(le), int(re)] += int(weight)
        return live

    def _applied(
        self, code: int, le: int, re: int, re_new: int, live: Counter[tuple[int, int, int]]
    ) -> list[tuple[int, int, int]]:
        """The changes of a retraction, as `(le, re, weight)`; none if its event is unknown."""
        event = (code, le, re)
        if live[event] <= 0 and self.source.policy.late == "adjust":
            later = [
                key for key, count in live.items() if key[0] == code and key[2] == re and key[1] > le and count > 0
            ]
            event = min(later, default=event)
        if live[event] <= 0:
            return []
        live[event] -= 1
        start = event[1]
        if re_new <= start:
            return [(start, re, -1)]
        live[code, start, re_new] += 1
        return [(start, re, -1), (start, re_new, 1)]

    def _divert(self, orphans: Changes) -> None:
        if len(orphans) == 0:
            return
        rows = orphans.payload.to_pylist()
        texts = []
        for row, le, re in zip(rows, orphans.le.tolist(), orphans.re.tolist(), strict=True):
            times = {"le": le, "re": re, "re_new": row.pop(RE_NEW)}
            event = {"kind": "retract", **{name: self._shown(time) for name, time in times.items()}, **row}
            texts.append(json.dumps(event, default=str, ensure_ascii=False))
        if self.source.bad_rows == "raise":
            raise EventError(f"{self.source.origin}: {_REASON}", given=texts[0], instead="bad_rows='divert'")
        self.scalars["orphans"] += len(texts)
        cti = self.scalars["cti"]
        at = np.full(len(texts), 0 if cti == NEG_INFINITY else min(cti, INFINITY - 1), np.int64)
        payload = diverted_rows(str(self.source.origin), [_REASON] * len(texts), texts)
        self.side = Changes.inserts(at, at + CHRONON, payload)

    def _shown(self, time: int) -> int | str:
        if time == INFINITY:
            return "inf"
        return self.time_text(time) if self.node.dates else time

    def held_by(self) -> str:
        return f"events a retraction may still name: CTI {self.time_text(self.scalars['cti'])} has not passed their end"


def as_changes(events: Changes) -> Changes:
    """Physical events (with `RE_NEW`) as changes (rule 2.1)."""
    ends = events.payload.column(RE_NEW)
    payload = events.payload.drop_columns([RE_NEW])
    if ends.null_count == len(events):
        return events.with_payload(payload)
    plain = Changes(events.le, events.re, np.where(np.asarray(ends.is_null()), 1, -1), payload)
    moved = ~np.asarray(ends.is_null())
    new_ends = to_numpy(ends.fill_null(0))
    stays = moved & (new_ends > events.le)
    again = Changes(events.le, new_ends, np.ones(len(events), np.int64), payload).filter(stays)
    return Changes.concat([plain, again])


def _hashes(changes: Changes) -> NDArray[np.uint64]:
    return hash_rows(changes.to_table().drop_columns([LE, WEIGHT]))


def _same_payload(events: Changes, missing: Changes) -> NDArray[np.bool_]:
    payload = events.payload.drop_columns([RE_NEW])
    codes, _ = factorize(concat([payload, missing.payload.select(payload.column_names)]))
    return np.isin(codes[: len(events)], codes[len(events) :])


def _rebuilt(events: Changes, changes: list[tuple[int, int, int, int]]) -> Changes:
    columns = np.array(changes, np.int64).reshape(-1, 4)
    rows = events.payload.drop_columns([RE_NEW]).take(pa.array(columns[:, 0]))
    return Changes(columns[:, 1], columns[:, 2], columns[:, 3], rows)
