"""Which tuples of a line give results under a slide: the yield tuples (rule 7.5).

Equal tuples with different ends stand in the order of their ends, and ends may move after all else is settled. So
whoever remembers the result of a yield tuple remembers its equals as well: one of them may have to take its place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, factorize, group_sum, to_numpy
from headrace.operators.groups import UNTIL
from headrace.operators.ordered.line import OrderedTuples, runs
from headrace.plan.ordered import Frame, Time, Tuples
from headrace.time import INFINITY, NEG_INFINITY, add

__all__ = ["TIE", "equals", "moved_ends", "open_since", "slot_end", "ties", "yields"]

_LIMIT = 2**60
#: The place of a tuple among its equals.
TIE = "__tie"


def slot_end(slide: Time, le: Int64s) -> Int64s:
    """Where the slot of each time ends."""
    return (np.clip(le, -_LIMIT, _LIMIT) // slide.ticks + 1) * slide.ticks


def open_since(frame: Frame, cti: int) -> int:
    """From when on results may still change: from the CTI on, or in the whole slot that it is in."""
    if not isinstance(frame.slide, Time) or cti in (INFINITY, NEG_INFINITY):
        return cti
    return cti // frame.slide.ticks * frame.slide.ticks


def yields(frame: Frame, line: OrderedTuples, seen: int) -> Bools:
    """Which tuples give results that can be seen; right for all that are not counted by their group's past.

    `seen` is m of rule 5.3, infinite when the input has ended.
    """
    if frame.slide is None:
        return np.ones(len(line), bool)
    if isinstance(frame.slide, Tuples):
        return np.asarray(line.position % frame.slide.count == 0)
    end = slot_end(frame.slide, line.le)
    last = np.ones(len(line), bool)
    last[:-1] = (np.diff(line.group) != 0) | (np.diff(end) != 0)
    return last & (end <= seen)


def equals(line: OrderedTuples, some: Bools) -> Bools:
    """The tuples that are equal to one of these but for their ends, and these."""
    if some.all() or not some.any():
        return some
    number = np.cumsum(ties(line) == 0) - 1
    found = np.zeros(len(line), bool)
    found[number[some]] = True
    return np.asarray(found[number])


def ties(line: OrderedTuples) -> Int64s:
    """The place of each tuple among those that are equal but for their ends."""
    found = np.zeros(len(line), np.int64)
    begins = runs(line.group, line.le)
    lengths = np.diff(np.r_[begins, len(line)])
    together = np.flatnonzero(np.repeat(lengths > 1, lengths))  # only these may be equal, and there are few
    if len(together):
        codes, _ = factorize(line.events.payload.take(pa.array(together)))
        begins = runs(line.group[together], line.le[together], codes)
        found[together] = np.arange(len(together)) - np.repeat(begins, np.diff(np.r_[begins, len(together)]))
    return found


def moved_ends(standing: Changes, delta: Changes, columns: Sequence[str]) -> tuple[Changes, Changes]:
    """Outputs of settled tuples whose ends move: as they were, and as they are.

    Of tuples that are equal but for their ends, the first ends first; the outputs of a tuple end together.
    """
    tables = [x.payload.select(columns).append_column("__start", pa.array(x.le)) for x in (standing, delta)]
    codes, _ = factorize(pa.concat_tables(tables))
    mine, theirs = codes[: len(standing)], codes[len(standing) :]
    involved = np.isin(mine, theirs)
    old, mine = standing.filter(involved), mine[involved]
    order = np.lexsort((to_numpy(old.payload.column(TIE)), mine))
    old, mine = old.take(order), mine[order]
    heads = runs(mine, to_numpy(old.payload.column(TIE)))
    known = np.isin(theirs, mine)
    ends, of = np.r_[old.re[heads], delta.re[known]], np.r_[mine[heads], theirs[known]]
    place, first = factorize(pa.table({"of": of, "end": ends}))
    weight = group_sum(place, np.r_[np.ones(len(heads), np.int64), delta.weight[known]], len(first))
    again = np.repeat(first, np.maximum(weight, 0))
    again = again[np.lexsort((ends[again], of[again]))]
    assert len(again) == len(heads), "an end moves of a tuple that is not known"
    re = np.repeat(ends[again], np.diff(np.r_[heads, len(old)]))
    until = pa.array(np.where(re == INFINITY, INFINITY, add(re, 1)))
    payload = old.payload.set_column(old.payload.schema.get_field_index(UNTIL), UNTIL, until)
    return old, Changes(old.le, re, old.weight, payload)
