"""The payloads that a loop derives, with lifetimes and rounds: `distinct` that handles deletions.

A fact is a payload at an instant. It may be derived in several ways, in several rounds; `counts` has the number of
derivations in each. Its *level* is the least round with a derivation, and the body gets it at this level only. So a
fact of level r + 1 follows from facts up to level r, of which at least one has level r.

Changes are processed round by round, upwards. In the turn of round r, all lower rounds are settled, so all derivations
of round r are known; the facts of level r are those that they cover and no lower level covers. A fact that loses its
lowest derivation is deleted; the facts derived from it lose a derivation too, round after round. It returns only in the
turn of its next higher round, if it still has a derivation. Facts on a cycle cannot support each other: each needs one
of a lower level, down to the seed.

Derivations and facts that ended before the CTI are forgotten. Time before the CTI is settled: changes there are
ignored, and a fact that started before the CTI and continues keeps its start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import concat, factorize, hash_rows
from headrace.operators.kernel import consolidated_rows
from headrace.operators.recurse.rounds import next_round, split_rounds, with_round
from headrace.schema import Schema
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import Trace

__all__ = ["Levels", "Turns"]

Int64s = NDArray[np.int64]


class Levels:
    """The derivations and facts of a loop that the CTI has not ended."""

    def __init__(self, schema: Schema, round_column: str) -> None:
        self.schema, self.round_column = schema, round_column
        self.traces = {"counts": Trace(consolidated_rows), "facts": Trace(consolidated_rows)}
        self.floor = NEG_INFINITY

    def known(self, trace: str, hashes: NDArray[np.uint64]) -> tuple[Changes, Int64s]:
        """The rows of payloads with these hashes, and their rounds; equal ones are not summed."""
        rows = self.traces[trace].lookup(hashes)
        if rows is None:
            return Changes.empty(self.schema), np.empty(0, np.int64)
        return split_rounds(Changes.from_table(rows))

    def with_round(self, changes: Changes, rounds: int) -> Changes:
        """Changes with their round as the first column."""
        return with_round(changes, self.round_column, rounds)

    def remember(self, trace: str, parts: list[Changes]) -> None:
        """Store changes with their rounds, by the hashes of their payloads."""
        if parts:
            changes = Changes.concat(parts)
            hashes = hash_rows(changes.payload.drop_columns([self.round_column]))
            self.traces[trace].append(changes.to_table(), hashes, changes.re)

    def settle(self, cti: int) -> None:
        """Forget rows that ended before the CTI."""
        self.floor = cti
        for trace in self.traces.values():
            trace.drop(cti)


@dataclass(frozen=True, eq=False)
class WeightedLifetimes:
    """Weighted lifetimes of payloads, which are numbers."""

    id: Int64s
    le: Int64s
    re: Int64s
    weight: Int64s

    @classmethod
    def joined(cls, parts: list[WeightedLifetimes]) -> WeightedLifetimes:
        if len(parts) == 1:
            return parts[0]
        columns = zip(*((p.id, p.le, p.re, p.weight) for p in parts), strict=True)
        none = np.empty(0, np.int64)
        return cls(*map(np.concatenate, columns)) if parts else cls(none, none, none, none)

    def where(self, mask: NDArray[np.bool_]) -> WeightedLifetimes:
        return WeightedLifetimes(self.id[mask], self.le[mask], self.re[mask], self.weight[mask])

    def since(self, time: int) -> WeightedLifetimes:
        """Their parts from a time on."""
        return WeightedLifetimes(self.id, np.maximum(self.le, time), self.re, self.weight).where(self.re > time)

    def until(self, time: int) -> WeightedLifetimes:
        """Their parts before a time."""
        return WeightedLifetimes(self.id, self.le, np.minimum(self.re, time), self.weight).where(self.le < time)


class Turns:
    """One batch: turns changes of derivations into changes of facts, round by round."""

    def __init__(self, levels: Levels) -> None:
        self.levels = levels
        #: The distinct payloads that the batch touches; their rows are their numbers.
        self.payloads = levels.schema.arrow.empty_table()
        #: By round: changes of derivations; and the earlier derivations and facts of touched payloads.
        self.pending: dict[int, list[Changes]] = {}
        self.counts: dict[int, list[WeightedLifetimes]] = {}
        self.facts: dict[int, list[WeightedLifetimes]] = {}
        #: The parts of touched payloads that levels below the current round cover now.
        self.covered: list[WeightedLifetimes] = []
        #: The changes of the latest turn.
        self.changed = WeightedLifetimes.joined([])
        self._new_counts: list[Changes] = []
        self._new_facts: list[Changes] = []

    def add(self, changes: Changes, rounds: int) -> None:
        """Add changes of derivations in a round."""
        if len(changes):
            self.pending.setdefault(rounds, []).append(changes)

    def add_stamped(self, changes: Changes) -> None:
        """Add the body's output. Its round is that of the facts it is derived from, so it counts in the next one."""
        bare, rounds = split_rounds(next_round(changes))
        numbers = np.unique(rounds)
        for number in numbers.tolist():
            self.add(bare if len(numbers) == 1 else bare.filter(rounds == number), number)

    def next(self) -> int | None:
        """The lowest round with work to do."""
        return min((*self.pending, *self.counts, *self.facts), default=None)

    def take(self, rounds: int) -> Changes:
        """Take the turn of a round; the changes of the facts of this level."""
        delta = Changes.concat([Changes.empty(self.levels.schema), *self.pending.pop(rounds, [])]).consolidate()
        fresh = WeightedLifetimes(self._touch(delta.payload, rounds), delta.le, delta.re, delta.weight)
        if len(delta):
            self._new_counts.append(self.levels.with_round(delta, rounds))
        counts = WeightedLifetimes.joined([fresh, *self.counts.pop(rounds, [])])
        before = WeightedLifetimes.joined(self.facts.pop(rounds, []))
        after = self._level(counts, before)
        self.covered.append(after.since(self.levels.floor))
        changed = _difference(after, before)
        self.changed = changed
        payload = self.payloads.take(pa.array(changed.id))
        result = Changes(changed.le, changed.re, changed.weight, payload)
        if len(result):
            self._new_facts.append(self.levels.with_round(result, rounds))
        return result

    def take_alone(
        self, rounds: int, again: pa.Table, lost: NDArray[np.bool_]
    ) -> tuple[Changes, tuple[Int64s, NDArray[np.bool_], pa.Table]]:
        """Take the turn of a round, if other rounds take theirs in later batches.

        The payloads `again` are recomputed because a lower level has changed; if it has `lost` part of a payload,
        derivations of this level may now count. Also returns the payloads to recompute later, each with its round and
        the same mark.
        """
        marked = self._touch(again, rounds)
        changes = self.take(rounds)
        count = self.payloads.num_rows
        affected, losing = np.zeros(count, bool), np.zeros(count, bool)
        affected[marked] = affected[self.changed.id] = True
        losing[marked[lost]] = losing[self.changed.id[self.changed.weight < 0]] = True
        when = np.full(count, INFINITY, np.int64)
        for parts, mask in ((self.facts, affected), (self.counts, losing)):
            for number, known in parts.items():
                ids = np.concatenate([pieces.id for pieces in known])
                ids = ids[mask[ids]]
                when[ids] = np.minimum(when[ids], number)
        left = np.flatnonzero(when < INFINITY)
        return changes, (when[left], losing[left], self.payloads.take(pa.array(left)))

    def finish(self) -> None:
        """Store all changes of the batch."""
        self.levels.remember("counts", self._new_counts)
        self.levels.remember("facts", self._new_facts)

    def _level(self, counts: WeightedLifetimes, before: WeightedLifetimes) -> WeightedLifetimes:
        """The facts of this level: covered by its derivations and by no lower level; the past stays."""
        floor = self.levels.floor
        active = np.zeros(self.payloads.num_rows, bool)
        active[counts.id] = active[before.id] = True
        covered = WeightedLifetimes.joined(self.covered)
        self.covered = [covered]
        return _alive(
            WeightedLifetimes.joined([counts.since(floor), before.until(floor)]), covered.where(active[covered.id])
        )

    def _touch(self, payload: pa.Table, rounds: int) -> Int64s:
        """The numbers of payloads; looks up the state of those that are new to the batch."""
        if payload.num_rows == 0:
            return np.empty(0, np.int64)
        known = self.payloads.num_rows
        codes, first = factorize(concat([self.payloads, payload]) if known else payload)
        numbers = np.full(len(first), -1, np.int64)
        numbers[codes[:known]] = np.arange(known)
        fresh = np.flatnonzero(numbers < 0)
        numbers[fresh] = known + np.arange(len(fresh))
        added = payload.take(pa.array(first[fresh] - known))
        if len(fresh):
            self.payloads = concat([self.payloads, added]) if known else added
            self._look_up(added, known, rounds)
        return numbers[codes[known:]]

    def _look_up(self, added: pa.Table, offset: int, rounds: int) -> None:
        hashes = hash_rows(added)
        known = [self.levels.known(trace, hashes) for trace in ("counts", "facts")]
        codes, _ = factorize(concat([added, *(changes.payload for changes, _ in known)]))
        numbers = np.full(int(codes.max(initial=0)) + 1, -1, np.int64)
        numbers[codes[: added.num_rows]] = offset + np.arange(added.num_rows)
        ids = np.split(numbers[codes[added.num_rows :]], [len(known[0][0])])
        (counts, their_levels), (facts, levels) = map(_summed, ids, *zip(*known, strict=True))
        self.covered.append(facts.where(levels < rounds).since(self.levels.floor))
        for pieces, at, place in ((counts, their_levels, self.counts), (facts, levels, self.facts)):
            for number in np.unique(at[at >= rounds]).tolist():
                place.setdefault(number, []).append(pieces.where(at == number))


def _alive(counts: WeightedLifetimes, covered: WeightedLifetimes) -> WeightedLifetimes:
    """The spans in which the sum of the weights of `counts` is positive and nothing is `covered`."""
    nothing, one = np.zeros(len(counts.id), np.int64), np.ones(len(covered.id), np.int64)
    ids = np.concatenate([counts.id, counts.id, covered.id, covered.id])
    at = np.concatenate([counts.le, counts.re, covered.le, covered.re])
    held = np.concatenate([counts.weight, -counts.weight, 0 * one, 0 * one])
    hidden = np.concatenate([nothing, nothing, one, -one])
    order = np.lexsort((at, ids))
    ids, at = ids[order], at[order]
    alive = (np.cumsum(held[order]) > 0) & (np.cumsum(hidden[order]) == 0)
    last = np.r_[(ids[1:] != ids[:-1]) | (at[1:] != at[:-1]), True] if len(ids) else np.empty(0, bool)
    ids, at, alive = ids[last], at[last], alive[last]
    # After the last end of a payload nothing is alive, so a span never reaches from one payload to the next.
    earlier = np.r_[False, alive[:-1]] if len(ids) else alive
    begins, ends = alive & ~earlier, ~alive & earlier
    return WeightedLifetimes(ids[begins], at[begins], at[ends], np.ones(int(begins.sum()), np.int64))


def _difference(after: WeightedLifetimes, before: WeightedLifetimes) -> WeightedLifetimes:
    """The changes that turn `before` into `after`."""
    return _net(WeightedLifetimes.joined([after, WeightedLifetimes(before.id, before.le, before.re, -before.weight)]))


def _summed(ids: Int64s, changes: Changes, levels: Int64s) -> tuple[WeightedLifetimes, Int64s]:
    """The sums of lifetimes by payload number, and their levels; numbers below 0 are other payloads."""
    span = int(levels.max(initial=0)) + 1
    known = WeightedLifetimes(ids * span + levels, changes.le, changes.re, changes.weight).where(ids >= 0)
    net = _net(known)  # here each pair of payload and level has its own number
    return WeightedLifetimes(net.id // span, net.le, net.re, net.weight), net.id % span


def _net(pieces: WeightedLifetimes) -> WeightedLifetimes:
    """Sum equal lifetimes, and drop those that cancel."""
    if len(pieces.id) == 0:
        return pieces
    order = np.lexsort((pieces.re, pieces.le, pieces.id))
    id_, le, re = pieces.id[order], pieces.le[order], pieces.re[order]
    first = np.r_[True, (id_[1:] != id_[:-1]) | (le[1:] != le[:-1]) | (re[1:] != re[:-1])]
    places = np.flatnonzero(first)
    weight = np.add.reduceat(pieces.weight[order], places)
    return WeightedLifetimes(id_[places], le[places], re[places], weight).where(weight != 0)
