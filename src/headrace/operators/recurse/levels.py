"""Which payloads a loop has found, from when to when, and in which round: `distinct` that deletes rightly.

A fact is a payload at an instant. It may be derived in several ways, in several rounds; `counts` knows how often it
is derived in each. Its *level* is the least round with a derivation, and it is given to the body at this level only,
so the body's facts of level r + 1 rest on facts up to level r, of which one has level r.

Changes are worked off round by round, upwards. When the turn of round r has come, everything below has been settled, so
all derivations of round r are known, and what is given at level r is what they cover that no lower level covers. A fact
that has lost its lowest derivation goes; whatever rests on it loses one too, round after round; and only when its next
higher round has its turn does it come back, if there still is a derivation. Facts on a cycle cannot hold each other up:
each needs one of a lower level, down to the seed.

Derivations and facts that ended before the CTI are forgotten. Where the CTI is c, whatever is before c is settled: a
change there is of no account, and a fact from before c that goes on keeps its start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import concat, factorize, hash_rows
from headrace.operators.kernel import consolidated_rows
from headrace.operators.recurse.rounds import further, parted, stamped
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
        return parted(Changes.from_table(rows))

    def stamped(self, changes: Changes, rounds: int) -> Changes:
        """Changes with their round in front."""
        return stamped(changes, self.round_column, rounds)

    def remember(self, trace: str, parts: list[Changes]) -> None:
        """Changes with their rounds, to be found by their payloads."""
        if parts:
            changes = Changes.concat(parts)
            hashes = hash_rows(changes.payload.drop_columns([self.round_column]))
            self.traces[trace].append(changes.to_table(), hashes, changes.re)

    def settle(self, cti: int) -> None:
        """Forget what ended before the CTI."""
        self.floor = cti
        for trace in self.traces.values():
            trace.drop(cti)


@dataclass(frozen=True, eq=False)
class WeightedLifetimes:
    """Weighted lifetimes of payloads that go by numbers."""

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
        """What is left of them from a time on."""
        return WeightedLifetimes(self.id, np.maximum(self.le, time), self.re, self.weight).where(self.re > time)

    def until(self, time: int) -> WeightedLifetimes:
        """What there was of them up to a time."""
        return WeightedLifetimes(self.id, self.le, np.minimum(self.re, time), self.weight).where(self.le < time)


class Turns:
    """One batch: changes of derivations go in, round by round; changes of facts come out."""

    def __init__(self, levels: Levels) -> None:
        self.levels = levels
        #: The payloads that the batch has touched, each once: its row is its number.
        self.payloads = levels.schema.arrow.empty_table()
        #: By round: what came of derivations; and of touched payloads, what is known from before.
        self.pending: dict[int, list[Changes]] = {}
        self.counts: dict[int, list[WeightedLifetimes]] = {}
        self.facts: dict[int, list[WeightedLifetimes]] = {}
        #: What levels below the round whose turn it is cover of touched payloads, now.
        self.covered: list[WeightedLifetimes] = []
        #: What the latest turn has changed.
        self.changed = WeightedLifetimes.joined([])
        self._new_counts: list[Changes] = []
        self._new_facts: list[Changes] = []

    def add(self, changes: Changes, rounds: int) -> None:
        """Derivations that come or go in a round."""
        if len(changes):
            self.pending.setdefault(rounds, []).append(changes)

    def add_stamped(self, changes: Changes) -> None:
        """What the body gave: derived from facts of the round that it says, so it counts in the next one."""
        bare, rounds = parted(further(changes))
        found = np.unique(rounds)
        for number in found.tolist():
            self.add(bare if len(found) == 1 else bare.filter(rounds == number), number)

    def next(self) -> int | None:
        """The lowest round with something to do."""
        return min((*self.pending, *self.counts, *self.facts), default=None)

    def take(self, rounds: int) -> Changes:
        """The turn of a round: how the facts of this level change."""
        delta = Changes.concat([Changes.empty(self.levels.schema), *self.pending.pop(rounds, [])]).consolidate()
        fresh = WeightedLifetimes(self._touch(delta.payload, rounds), delta.le, delta.re, delta.weight)
        if len(delta):
            self._new_counts.append(self.levels.stamped(delta, rounds))
        counts = WeightedLifetimes.joined([fresh, *self.counts.pop(rounds, [])])
        before = WeightedLifetimes.joined(self.facts.pop(rounds, []))
        after = self._level(counts, before)
        self.covered.append(after.since(self.levels.floor))
        changed = _difference(after, before)
        self.changed = changed
        payload = self.payloads.take(pa.array(changed.id))
        result = Changes(changed.le, changed.re, changed.weight, payload)
        if len(result):
            self._new_facts.append(self.levels.stamped(result, rounds))
        return result

    def take_alone(
        self, rounds: int, again: pa.Table, lost: NDArray[np.bool_]
    ) -> tuple[Changes, tuple[Int64s, NDArray[np.bool_], pa.Table]]:
        """The turn of a round, if other rounds have theirs in later batches.

        The payloads `again` are looked at because a lower level has changed; where it has `lost` some of a payload,
        derivations of this one may now count. Gives what must be looked at later: in which round, the same mark, and
        the payloads.
        """
        marked = self._touch(again, rounds)
        changes = self.take(rounds)
        count = self.payloads.num_rows
        concerned, losing = np.zeros(count, bool), np.zeros(count, bool)
        concerned[marked] = concerned[self.changed.id] = True
        losing[marked[lost]] = losing[self.changed.id[self.changed.weight < 0]] = True
        when = np.full(count, INFINITY, np.int64)
        for parts, wanted in ((self.facts, concerned), (self.counts, losing)):
            for number, known in parts.items():
                ids = np.concatenate([pieces.id for pieces in known])
                ids = ids[wanted[ids]]
                when[ids] = np.minimum(when[ids], number)
        left = np.flatnonzero(when < INFINITY)
        return changes, (when[left], losing[left], self.payloads.take(pa.array(left)))

    def finish(self) -> None:
        """Remember what has changed."""
        self.levels.remember("counts", self._new_counts)
        self.levels.remember("facts", self._new_facts)

    def _level(self, counts: WeightedLifetimes, before: WeightedLifetimes) -> WeightedLifetimes:
        """What holds at this level: what its derivations cover and no lower level does; the past is as it was."""
        floor = self.levels.floor
        active = np.zeros(self.payloads.num_rows, bool)
        active[counts.id] = active[before.id] = True
        covered = WeightedLifetimes.joined(self.covered)
        self.covered = [covered]
        return _alive(
            WeightedLifetimes.joined([counts.since(floor), before.until(floor)]), covered.where(active[covered.id])
        )

    def _touch(self, payload: pa.Table, rounds: int) -> Int64s:
        """The numbers of payloads; of those that are new to the batch, what is known is looked up."""
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
        found = [self.levels.known(trace, hashes) for trace in ("counts", "facts")]
        codes, _ = factorize(concat([added, *(changes.payload for changes, _ in found)]))
        numbers = np.full(int(codes.max(initial=0)) + 1, -1, np.int64)
        numbers[codes[: added.num_rows]] = offset + np.arange(added.num_rows)
        ids = np.split(numbers[codes[added.num_rows :]], [len(found[0][0])])
        (counts, their_levels), (facts, levels) = map(_summed, ids, *zip(*found, strict=True))
        self.covered.append(facts.where(levels < rounds).since(self.levels.floor))
        for pieces, at, place in ((counts, their_levels, self.counts), (facts, levels, self.facts)):
            for number in np.unique(at[at >= rounds]).tolist():
                place.setdefault(number, []).append(pieces.where(at == number))


def _alive(counts: WeightedLifetimes, covered: WeightedLifetimes) -> WeightedLifetimes:
    """The spans in which the weights of `counts` add up to more than nothing and nothing is `covered`."""
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
    # Behind the last end of a payload nothing is alive, so a span never reaches from one payload to the next.
    earlier = np.r_[False, alive[:-1]] if len(ids) else alive
    begins, ends = alive & ~earlier, ~alive & earlier
    return WeightedLifetimes(ids[begins], at[begins], at[ends], np.ones(int(begins.sum()), np.int64))


def _difference(after: WeightedLifetimes, before: WeightedLifetimes) -> WeightedLifetimes:
    """What must be added to `before` to make it `after`."""
    return _net(WeightedLifetimes.joined([after, WeightedLifetimes(before.id, before.le, before.re, -before.weight)]))


def _summed(ids: Int64s, changes: Changes, levels: Int64s) -> tuple[WeightedLifetimes, Int64s]:
    """What is known of payloads, by their numbers, and at which levels; a number below 0 is another payload's."""
    span = int(levels.max(initial=0)) + 1
    known = WeightedLifetimes(ids * span + levels, changes.le, changes.re, changes.weight).where(ids >= 0)
    net = _net(known)  # a payload at a level has a number of its own meanwhile
    return WeightedLifetimes(net.id // span, net.le, net.re, net.weight), net.id % span


def _net(pieces: WeightedLifetimes) -> WeightedLifetimes:
    """Equal ones summed; what cancels is dropped."""
    if len(pieces.id) == 0:
        return pieces
    order = np.lexsort((pieces.re, pieces.le, pieces.id))
    id_, le, re = pieces.id[order], pieces.le[order], pieces.re[order]
    first = np.r_[True, (id_[1:] != id_[:-1]) | (le[1:] != le[:-1]) | (re[1:] != re[:-1])]
    places = np.flatnonzero(first)
    weight = np.add.reduceat(pieces.weight[order], places)
    return WeightedLifetimes(id_[places], le[places], re[places], weight).where(weight != 0)
