"""The tuples that have results under a slide: the yield tuples (rule 7.5).

Equal tuples with different ends are in the order of their ends, and ends may move after everything else is settled. So
a kernel that keeps the result of a yield tuple keeps its equals as well: one of them may have to replace it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, factorize, group_sum, to_numpy
from headrace.operators.groups import UNTIL
from headrace.operators.ordered.tuples import OrderedTuples, run_starts
from headrace.plan.ordered import Frame, Time, Tuples
from headrace.time import INFINITY, NEG_INFINITY, add

__all__ = ["TIE", "moved_ends", "open_since", "slot_end", "ties", "with_equals", "yields"]

_LIMIT = 2**60
#: The place of a tuple among its equals.
TIE = "__tie"


def slot_end(slide: Time, le: Int64s) -> Int64s:
    """The end of the slot of each time."""
    return (np.clip(le, -_LIMIT, _LIMIT) // slide.ticks + 1) * slide.ticks


def open_since(frame: Frame, cti: int) -> int:
    """The time from which results may still change: the CTI, or the start of its slot."""
    if not isinstance(frame.slide, Time) or cti in (INFINITY, NEG_INFINITY):
        return cti
    return cti // frame.slide.ticks * frame.slide.ticks


def yields(frame: Frame, tuples: OrderedTuples, seen: int) -> Bools:
    """Which tuples have visible results; valid for tuples that their group's past does not count.

    `seen` is m of rule 5.3, infinite when the input has ended.
    """
    if frame.slide is None:
        return np.ones(len(tuples), bool)
    if isinstance(frame.slide, Tuples):
        return np.asarray(tuples.position % frame.slide.count == 0)
    end = slot_end(frame.slide, tuples.le)
    last = np.ones(len(tuples), bool)
    last[:-1] = (np.diff(tuples.group) != 0) | (np.diff(end) != 0)
    return last & (end <= seen)


def with_equals(tuples: OrderedTuples, mask: Bools) -> Bools:
    """These tuples, and those that are equal to one of them except for their ends."""
    if mask.all() or not mask.any():
        return mask
    number = np.cumsum(ties(tuples) == 0) - 1
    chosen = np.zeros(len(tuples), bool)
    chosen[number[mask]] = True
    return np.asarray(chosen[number])


def ties(tuples: OrderedTuples) -> Int64s:
    """The place of each tuple among those that are equal except for their ends."""
    places = np.zeros(len(tuples), np.int64)
    begins = run_starts(tuples.group, tuples.le)
    lengths = np.diff(np.r_[begins, len(tuples)])
    together = np.flatnonzero(np.repeat(lengths > 1, lengths))  # only these may be equal, and there are few
    if len(together):
        codes, _ = factorize(tuples.events.payload.take(pa.array(together)))
        begins = run_starts(tuples.group[together], tuples.le[together], codes)
        places[together] = np.arange(len(together)) - np.repeat(begins, np.diff(np.r_[begins, len(together)]))
    return places


def moved_ends(standing: Changes, delta: Changes, columns: Sequence[str]) -> tuple[Changes, Changes]:
    """Outputs of settled tuples whose ends move, before and after.

    Of tuples that are equal except for their ends, the first ends first; the outputs of a tuple end together.
    """
    tables = [x.payload.select(columns).append_column("__start", pa.array(x.le)) for x in (standing, delta)]
    codes, _ = factorize(pa.concat_tables(tables))
    of_standing, of_delta = codes[: len(standing)], codes[len(standing) :]
    involved = np.isin(of_standing, of_delta)
    old, of_standing = standing.filter(involved), of_standing[involved]
    order = np.lexsort((to_numpy(old.payload.column(TIE)), of_standing))
    old, of_standing = old.take(order), of_standing[order]
    heads = run_starts(of_standing, to_numpy(old.payload.column(TIE)))
    known = np.isin(of_delta, of_standing)
    ends, of = np.r_[old.re[heads], delta.re[known]], np.r_[of_standing[heads], of_delta[known]]
    place, first = factorize(pa.table({"of": of, "end": ends}))
    weight = group_sum(place, np.r_[np.ones(len(heads), np.int64), delta.weight[known]], len(first))
    again = np.repeat(first, np.maximum(weight, 0))
    again = again[np.lexsort((ends[again], of[again]))]
    assert len(again) == len(heads), "the end of an unknown tuple moves"
    re = np.repeat(ends[again], np.diff(np.r_[heads, len(old)]))
    until = pa.array(np.where(re == INFINITY, INFINITY, add(re, 1)))
    payload = old.payload.set_column(old.payload.schema.get_field_index(UNTIL), UNTIL, until)
    return old, Changes(old.le, re, old.weight, payload)
